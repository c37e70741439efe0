/* Tensors and batches shared with another process, which was forked before the library was used. */
#define _XOPEN_SOURCE 700
#include "leases.h"

#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t const shape_4[1] = {4};

static void address_of(char *out, size_t size, pid_t exporter) {
    snprintf(out, size, "@devexchange-c-test-%ld", (long)exporter);
}

/* The importer: returns 0 if everything was right, otherwise the number of the step that was not. */
static int import_all(char const *address) {
    devx_ipc_client_t *client = NULL;
    devx_tensor_t *tensor = NULL;
    devx_batch_t *batch = NULL;
    devx_batch_info info;
    DLTensor seen;
    devx_error why;
    if (devx_ipc_client_create(address, INT64_MIN, &client, &why) != DEVX_OK) return 1; /* as long as it takes */
    if (devx_ipc_client_import_tensor(client, "t", &tensor, &why) != DEVX_OK) return 2;
    if (devx_ipc_client_import_tensor(client, "none", &tensor, &why) != DEVX_INVALID_ARGUMENT) return 3;
    if (strstr(why.message, "nothing is offered") == NULL) return 4;
    if (devx_ipc_client_import_batch(client, "b", &batch, &why) != DEVX_OK) return 5;
    devx_ipc_client_release(&client);
    if (client != NULL) return 6;
    if (devx_tensor_borrow(tensor, &seen, NULL, &why) != DEVX_OK || seen.shape[0] != 4) return 7;
    if (((int32_t *)seen.data)[3] != 40) return 8;
    ((int32_t *)seen.data)[0] = 77;
    if (devx_batch_get_info(batch, &info, &why) != DEVX_OK || info.length != 4) return 9;
    devx_tensor_release(&tensor);
    devx_batch_release(&batch);
    return 0;
}

TEST(a_tensor_and_a_batch_go_to_another_process) {
    int ready[2], status = 0;
    char address[64];
    devx_ipc_server_t *server = NULL;
    devx_tensor_t *tensor = NULL;
    devx_batch_t *batch = NULL;
    devx_plan plan;
    DLTensor seen;
    int32_t withdrawn = -1;
    pid_t child;
    CHECK(pipe(ready) == 0);
    address_of(address, sizeof address, getpid());
    child = fork();
    if (child == 0) {
        char byte;
        close(ready[1]); /* so that it sees an end of the exporter */
        _exit(read(ready[0], &byte, 1) == 1 ? import_all(address) : 100);
    }
    CHECK_OK(devx_ipc_server_create(address, &server, &error));
    CHECK_OK(devx_tensor_allocate_shared(int32, shape_4, 1, &tensor, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &seen, NULL, &error));
    for (int32_t i = 0; i < 4; ++i) {
        ((int32_t *)seen.data)[i] = 10 * (i + 1);
    }
    CHECK_OK(devx_ipc_plan_tensor(tensor, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_VIEW);
    CHECK_OK(devx_ipc_server_offer_tensor(server, "t", tensor, DEVX_COPY_NEVER, &error));
    CHECK_OK(devx_tensor_to_column(tensor, "x", DEVX_COPY_NEVER, &batch, &error));
    CHECK_OK(devx_ipc_plan_batch(batch, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_VIEW);
    CHECK_OK(devx_ipc_server_offer_batch(server, "b", batch, DEVX_COPY_NEVER, &error));
    CHECK(write(ready[1], "!", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_INT(((int32_t *)seen.data)[0], 77);
    CHECK_CALL(check_leases_end(server));
    CHECK_OK(devx_ipc_server_withdraw(server, "t", &withdrawn, &error));
    CHECK_INT(withdrawn, 1);
    CHECK_OK(devx_ipc_server_withdraw(server, "t", &withdrawn, &error));
    CHECK_INT(withdrawn, 0);
    CHECK_OK(devx_ipc_server_withdraw(server, "b", NULL, &error));
    CHECK_OK(devx_ipc_server_withdraw(server, "b", &withdrawn, &error));
    CHECK_INT(withdrawn, 0);
    devx_ipc_server_release(&server);
    CHECK(server == NULL);
    devx_ipc_server_release(&server);
    devx_ipc_server_release(NULL);
    devx_ipc_client_release(NULL);
    devx_batch_release(&batch);
    devx_tensor_release(&tensor);
    close(ready[0]);
    close(ready[1]);
    CHECK_NOTHING_OUTSTANDING();
}

static void ignore(int number) {
    (void)number;
}

/* From now on a signal comes every so many microseconds, after which no system call is restarted; 0 ends that. */
static void disturb(suseconds_t pause) {
    struct sigaction action;
    struct itimerval const timer = {{0, pause}, {0, pause}};
    memset(&action, 0, sizeof action);
    action.sa_handler = ignore;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* Under valgrind a signal breaks off even a question that does not wait. */
static int has_ended(pid_t child, int *status) {
    pid_t answer;
    do {
        answer = waitpid(child, status, WNOHANG);
    } while (answer == -1 && errno == EINTR);
    return answer != 0;
}

TEST(a_timer_disturbs_no_exchange) {
    /* The second is a file. The tensor takes several system calls to allocate, and the batch is described in a file. */
    char addresses[2][64];
    int64_t const large[1] = {20 << 20}, wide[2] = {4, 1000};
    int ready[2], status = 0;
    char byte = '!';
    pid_t child;
    CHECK(pipe(ready) == 0);
    address_of(addresses[0], sizeof addresses[0], getpid());
    snprintf(addresses[1], sizeof addresses[1], "/tmp/devexchange-c-test-%ld", (long)getpid());
    child = fork();
    disturb(300);
    if (child == 0) close(ready[1]);
    for (int i = 0; i < 6 && child == 0; ++i) {
        ssize_t got;
        while ((got = read(ready[0], &byte, 1)) == -1 && errno == EINTR) {
        }
        status = got == 1 ? import_all(addresses[i % 2]) : 100;
        if (status != 0) _exit(status);
    }
    if (child == 0) _exit(0);
    for (int i = 0; i < 6; ++i) {
        devx_ipc_server_t *server = NULL;
        devx_tensor_t *tensor = NULL, *matrix = NULL, *part = NULL;
        devx_batch_t *batch = NULL;
        DLTensor seen;
        CHECK_OK(devx_ipc_server_create(addresses[i % 2], &server, &error));
        CHECK_OK(devx_tensor_allocate_shared(int32, large, 1, &tensor, &error));
        CHECK_OK(devx_tensor_slice(tensor, 0, 0, 4, &part, &error));
        CHECK_OK(devx_tensor_borrow(part, &seen, NULL, &error));
        ((int32_t *)seen.data)[3] = 40;
        CHECK_OK(devx_ipc_server_offer_tensor(server, "t", part, DEVX_COPY_NEVER, &error));
        CHECK_OK(devx_tensor_allocate(seen.device, int32, wide, 2, -1, &matrix, &error));
        CHECK_OK(devx_tensor_to_batch(matrix, NULL, 0, DEVX_COPY_IF_NEEDED, &batch, &error));
        CHECK_OK(devx_ipc_server_offer_batch(server, "b", batch, DEVX_COPY_IF_NEEDED, &error));
        while (write(ready[1], &byte, 1) != 1) {
        }
        while (*(int32_t volatile *)seen.data != 77 && !has_ended(child, &status)) {
        }
        CHECK_CALL(check_leases_end(server));
        devx_ipc_server_release(&server);
        devx_batch_release(&batch);
        devx_tensor_release(&matrix);
        devx_tensor_release(&part);
        devx_tensor_release(&tensor);
    }
    if (status == 0) {
        while (waitpid(child, &status, 0) != child) {
        }
    }
    disturb(0);
    CHECK_INT(status, 0);
    close(ready[0]);
    close(ready[1]);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(what_cannot_be_is_refused) {
    devx_ipc_server_t *server = NULL;
    devx_ipc_client_t *client = NULL;
    devx_tensor_t *tensor = NULL;
    devx_batch_t *batch = NULL;
    devx_plan plan;
    int32_t values[4] = {1, 2, 3, 4};
    DLTensor const private = {values, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, (int64_t *)shape_4, NULL, 0};
    char address[64];
    address_of(address, sizeof address, getpid());
    CHECK_REFUSED(devx_ipc_server_create(NULL, &server, &error), DEVX_NULL_ARGUMENT, "address is NULL");
    CHECK_REFUSED(devx_ipc_server_create("@", &server, &error), DEVX_INVALID_ARGUMENT, "address is \"@\"");
    CHECK_REFUSED(devx_ipc_client_create(address, -1, &client, &error), DEVX_SYSTEM, "connect");
    CHECK_OK(devx_ipc_server_create(address, &server, &error));
    CHECK_OK(devx_tensor_create(&private, 0, NULL, &tensor, &error));
    CHECK_OK(devx_ipc_plan_tensor(tensor, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_COPY);
    CHECK_INT(plan.copy_bytes, 16);
    CHECK_REFUSED(devx_ipc_server_offer_tensor(server, "t", tensor, DEVX_COPY_NEVER, &error), DEVX_COPY_REQUIRED,
                  "memory of this process alone");
    CHECK_REFUSED(devx_ipc_server_offer_tensor(server, "t", tensor, 9, &error), DEVX_INVALID_ARGUMENT, "copy is 9");
    CHECK_REFUSED(devx_ipc_server_offer_tensor(server, "", tensor, DEVX_COPY_ALWAYS, &error), DEVX_INVALID_ARGUMENT,
                  "name has 0 bytes");
    CHECK_REFUSED(devx_ipc_server_offer_tensor(NULL, "t", tensor, DEVX_COPY_ALWAYS, &error), DEVX_NULL_ARGUMENT,
                  "server is NULL");
    CHECK_OK(devx_ipc_server_offer_tensor(server, "t", tensor, DEVX_COPY_IF_NEEDED, &error));
    CHECK_OK(devx_tensor_to_column(tensor, "x", DEVX_COPY_NEVER, &batch, &error));
    CHECK_REFUSED(devx_ipc_server_offer_batch(server, "b", batch, DEVX_COPY_NEVER, &error), DEVX_COPY_REQUIRED,
                  "memory of this process alone");
    CHECK_REFUSED(devx_ipc_server_offer_batch(server, "b", batch, 9, &error), DEVX_INVALID_ARGUMENT, "copy is 9");
    CHECK_OK(devx_ipc_server_offer_batch(server, "b", batch, DEVX_COPY_IF_NEEDED, &error));
    devx_batch_release(&batch);
    devx_tensor_release(&tensor);
    devx_ipc_server_release(&server);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(null_arguments_are_refused) {
    devx_ipc_server_t *server = UNWRITTEN;
    devx_ipc_client_t *client = UNWRITTEN;
    devx_tensor_t *tensor = NULL, *other = UNWRITTEN;
    devx_batch_t *batch = NULL, *other_batch = UNWRITTEN;
    devx_plan plan;
    int64_t leases = 77;
    int32_t withdrawn = 77;
    char address[64];
    address_of(address, sizeof address, getpid());
    CHECK_OK(devx_tensor_allocate_shared(int32, shape_4, 1, &tensor, &error));
    CHECK_OK(devx_tensor_to_column(tensor, "x", DEVX_COPY_NEVER, &batch, &error));

    CHECK_NEEDS(devx_tensor_allocate_shared(int32, shape_4, 1, NULL, &error), "out");
    CHECK_REFUSED(devx_tensor_allocate_shared(int32, NULL, 1, &other, &error), DEVX_NULL_ARGUMENT,
                  "shape is NULL with 1 entries");
    CHECK_NEEDS(devx_ipc_plan_tensor(NULL, &plan, &error), "tensor");
    CHECK_NEEDS(devx_ipc_plan_tensor(tensor, NULL, &error), "out");
    CHECK_NEEDS(devx_ipc_plan_batch(NULL, &plan, &error), "batch");
    CHECK_NEEDS(devx_ipc_plan_batch(batch, NULL, &error), "out");
    CHECK_NEEDS(devx_ipc_server_create(address, NULL, &error), "out");
    CHECK_NEEDS(devx_ipc_client_create(NULL, 0, &client, &error), "address");
    CHECK_REFUSED(devx_ipc_client_create("\xff", 0, &client, &error), DEVX_INVALID_TEXT,
                  "address is not valid UTF-8: \"\\xff\"");
    CHECK_PTR(client, UNWRITTEN);
    CHECK_OK(devx_ipc_server_create(address, &server, &error)); /* the address is still free */
    CHECK_NEEDS(devx_ipc_client_create(address, -1, NULL, &error), "out");
    CHECK_OK(devx_ipc_client_create(address, -1, &client, &error));
    CHECK_NEEDS(devx_ipc_server_offer_tensor(server, NULL, tensor, 0, &error), "name");
    CHECK_NEEDS(devx_ipc_server_offer_tensor(server, "t", NULL, 0, &error), "tensor");
    CHECK_NEEDS(devx_ipc_server_offer_batch(NULL, "b", batch, 0, &error), "server");
    CHECK_NEEDS(devx_ipc_server_offer_batch(server, NULL, batch, 0, &error), "name");
    CHECK_NEEDS(devx_ipc_server_offer_batch(server, "b", NULL, 0, &error), "batch");
    CHECK_NEEDS(devx_ipc_server_withdraw(NULL, "t", &withdrawn, &error), "server");
    CHECK_NEEDS(devx_ipc_server_withdraw(server, NULL, &withdrawn, &error), "name");
    CHECK_NEEDS(devx_ipc_server_leases(NULL, &leases, &error), "server");
    CHECK_NEEDS(devx_ipc_server_leases(server, NULL, &error), "out");
    CHECK_OK(devx_ipc_server_offer_tensor(server, "t", tensor, DEVX_COPY_NEVER, &error));
    CHECK_OK(devx_ipc_server_offer_batch(server, "b", batch, DEVX_COPY_NEVER, &error));
    CHECK_NEEDS(devx_ipc_client_import_tensor(NULL, "t", &other, &error), "client");
    CHECK_NEEDS(devx_ipc_client_import_tensor(client, NULL, &other, &error), "name");
    CHECK_NEEDS(devx_ipc_client_import_tensor(client, "t", NULL, &error), "out");
    CHECK_NEEDS(devx_ipc_client_import_batch(NULL, "b", &other_batch, &error), "client");
    CHECK_NEEDS(devx_ipc_client_import_batch(client, NULL, &other_batch, &error), "name");
    CHECK_NEEDS(devx_ipc_client_import_batch(client, "b", NULL, &error), "out");

    CHECK_PTR(other, UNWRITTEN);
    CHECK_PTR(other_batch, UNWRITTEN);
    CHECK_INT(withdrawn, 77);
    CHECK_INT(leases, 77);
    CHECK_OK(devx_ipc_server_leases(server, &leases, &error));
    CHECK_INT(leases, 0);
    devx_ipc_client_release(&client);
    devx_ipc_server_release(&server);
    devx_batch_release(&batch);
    devx_tensor_release(&tensor);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
