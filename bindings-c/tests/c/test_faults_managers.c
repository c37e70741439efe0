/* Each allocation of the library fails once, and each callback of a manager: in managers and in what is allocated with them.
 */
#include "faults.h"

/* This program's own manager, each callback of which may fail: see the sweep of callbacks. */
static int callbacks, failing;

static int fails(void) {
    callbacks += 1;
    return callbacks == failing;
}

static devx_status manage(void *context, const devx_memory_request *request, devx_memory *out, devx_error *say) {
    (void)context;
    (void)request;
    if (fails()) {
        strcpy(say->message, "as asked");
        return DEVX_CALLBACK;
    }
    out->address = values;
    out->device_type = kDLCPU;
    out->owner = living();
    return DEVX_OK;
}

static devx_status get_info(void *context, int32_t device_id, devx_memory_info *out, devx_error *say) {
    (void)context;
    (void)device_id;
    (void)say;
    *out = (devx_memory_info){1, 2};
    return fails() ? DEVX_CALLBACK : DEVX_OK;
}

static devx_status reset(void *context, int32_t device_id, devx_error *say) {
    (void)context;
    (void)device_id;
    (void)say;
    return fails() ? DEVX_CALLBACK : DEVX_OK;
}

static devx_manager_t *own, *limited, *host;

static void make_managers(void) {
    devx_owner const owner = living();
    devx_manager_table table = {0};
    table.version = DEVX_MANAGER_VERSION;
    table.context = owner.context;
    table.release = owner.release;
    table.allocate = manage;
    table.memory_info = get_info;
    table.reset = reset;
    if (!TRY(devx_manager_create(&table, &own, &error))) {
        not_taken(owner);
    }
    (void)TRY(devx_manager_create_limited(own, 1000, &limited, &error));
    (void)TRY(devx_manager_create_host_only(&host, &error));
}

static void release_managers(void) {
    devx_manager_release(&limited);
    devx_manager_release(&host);
    devx_manager_release(&own);
}

static void memory_of_managers(void) {
    devx_memory_request const request = {kDLCPU, 0, 24, -1, 0, 0};
    int64_t const three[1] = {3};
    devx_memory memory = {0};
    devx_memory_info about;
    devx_tensor_t *tensor = NULL, *other = NULL;
    if (TRY(devx_manager_allocate(limited, &request, &memory, &error))) {
        memory.owner.release(memory.owner.context);
    }
    (void)TRY(devx_tensor_allocate_with(limited, cpu, float64, three, 1, -1, &tensor, &error));
    (void)TRY(devx_tensor_allocate_with(host, cpu, float64, three, 1, -1, &other, &error));
    (void)TRY(devx_manager_memory_info(own, 0, &about, &error));
    devx_tensor_release(&tensor);
    (void)TRY(devx_manager_reset(own, 0, &error));
    devx_tensor_release(&other);
}

/* Managers are made and used; what they held back is given back at the end. */
static void managers(void) {
    make_managers();
    if (limited != NULL && host != NULL) {
        memory_of_managers();
    }
    (void)(own != NULL && TRY(devx_manager_defer_cleanup(own, &error)));
    if (own != NULL) {
        devx_memory_request const request = {kDLCPU, 0, 24, -1, 0, 0};
        devx_memory kept[3];
        int given = 0;
        for (int i = 0; i < 3; ++i) {
            given += TRY(devx_manager_allocate(own, &request, &kept[given], &error));
        }
        while (given-- > 0) {
            kept[given].owner.release(kept[given].owner.context);
        }
        (void)TRY(devx_manager_resume_cleanup(own, &error));
    }
    release_managers();
}

/* --- the sweeps --- */

TEST(allocations_can_fail) {
    CHECK_CALL(make_allocations_fail(managers));
}

TEST(every_allocation_of_managers) {
    struct scene const all = {NULL, managers, NULL};
    failing = 0;
    CHECK_CALL(sweep(&all));
}

/* Each callback of the manager fails once: that is the error of the call, and everything is given back. */
TEST(every_callback_of_a_manager) {
    for (failing = 1;; ++failing) {
        tally = (struct tally){0};
        without_memory = told = callbacks = 0;
        otherwise[0] = '\0';
        make_managers();
        memory_of_managers();
        release_managers();
        CHECK_STR(otherwise, "");
        CHECK_INT(tally.live, 0);
        CHECK_NOTHING_OUTSTANDING();
        CHECK_INT(told, failing <= callbacks);
        if (failing > callbacks) {
            break;
        }
        injected += 1;
    }
    CHECK(failing > 4);
}

TEST(there_were_many) {
    printf("# %d faults\n", (int)injected);
    CHECK(injected > 250);
}

CHECK_MAIN()
