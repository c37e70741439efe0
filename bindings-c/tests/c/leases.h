/* Waits for memory that comes back from importers. Included after _POSIX_C_SOURCE is defined, for nanosleep.
 */
#ifndef DEVEXCHANGE_TESTS_LEASES_H_
#define DEVEXCHANGE_TESTS_LEASES_H_

#include <time.h>

#include "test_support.h"

/* Checks that no importer holds anything any more. An importer says so, or its end does; a thread of the exporter notices. */
static inline void check_leases_end(const devx_ipc_server_t *server) {
    struct timespec const pause = {0, 500 * 1000};
    int64_t leases = -1;
    for (int i = 0; i < 240 * 1000; ++i) {
        CHECK_OK(devx_ipc_server_leases(server, &leases, &error));
        if (leases == 0) {
            return;
        }
        nanosleep(&pause, NULL);
    }
    CHECK_INT(leases, 0);
}

#endif
