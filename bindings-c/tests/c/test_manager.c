/* Memory managers: those of the library, and one that this program fills in and through which the library allocates. */
#include "test_support.h"

/* A manager over malloc that counts all requests. */
struct books {
    _Atomic int allocations, frees, initialized, reset, trimmed, deferred, releases;
    int refuse, silent, device_type, astray;
};

struct block {
    struct books *books;
};

static void give_back(void *context) {
    struct block *block = context;
    block->books->frees += 1;
    free(block);
}

static devx_status initialize(void *context, int32_t device_id, devx_error *say) {
    (void)device_id;
    (void)say;
    ((struct books *)context)->initialized += 1;
    return DEVX_OK;
}

static devx_status allocate(void *context, const devx_memory_request *request, devx_memory *out, devx_error *say) {
    struct books *books = context;
    struct block *block;
    if (books->refuse) {
        say->driver_code = 77;
        strcpy(say->message, books->silent ? "" : "no more today");
        return DEVX_OUT_OF_MEMORY;
    }
    block = malloc(sizeof *block + 64 + (size_t)request->bytes);
    block->books = books;
    books->allocations += 1;
    out->address = (char *)block + 64 + books->astray;
    out->device_type = books->device_type ? books->device_type : kDLCPU;
    out->owner = (devx_owner){block, give_back};
    return DEVX_OK;
}

static devx_status memory_info(void *context, int32_t device_id, devx_memory_info *out, devx_error *say) {
    (void)device_id;
    (void)say;
    *out = (devx_memory_info){((struct books *)context)->refuse ? -10 : 10, 100};
    return DEVX_OK;
}

static devx_status ipc_handle(void *context, const void *address, devx_ipc_handle *out, devx_error *say) {
    struct books *books = context;
    (void)address;
    (void)say;
    memset(out->handle, 7, sizeof out->handle);
    out->offset = books->refuse ? 101 : 99;
    out->bytes = 100;
    out->device_id = 3;
    return DEVX_OK;
}

static devx_status reset(void *context, int32_t device_id, devx_error *say) {
    (void)device_id;
    (void)say;
    ((struct books *)context)->reset += 1;
    return DEVX_OK;
}

static void defer_cleanup(void *context, int32_t begin) {
    ((struct books *)context)->deferred += begin ? 1 : -1;
}

static void end(void *context) {
    ((struct books *)context)->releases += 1;
}

static devx_manager_table table_of(struct books *books) {
    return (devx_manager_table){.version = DEVX_MANAGER_VERSION,
                                .context = books,
                                .initialize = initialize,
                                .allocate = allocate,
                                .memory_info = memory_info,
                                .ipc_handle = ipc_handle,
                                .reset = reset,
                                .defer_cleanup = defer_cleanup,
                                .release = end};
}

TEST(the_library_allocates_through_a_table) {
    struct books books = {0};
    devx_manager_table const table = table_of(&books);
    devx_manager_t *manager = NULL;
    devx_tensor_t *tensor = NULL;
    devx_memory_info info;
    devx_manager_statistics now;
    devx_ipc_handle handle;
    int64_t const shape[] = {4, 5};
    DLTensor seen;
    CHECK_OK(devx_manager_create(&table, &manager, &error));
    CHECK_OK(devx_manager_initialize(manager, 0, &error));
    CHECK_OK(devx_tensor_allocate_with(manager, cpu, int32, shape, 2, -1, &tensor, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &seen, NULL, &error));
    memset(seen.data, 1, 4 * 5 * 4);
    CHECK_OK(devx_manager_memory_info(manager, 0, &info, &error));
    CHECK_INT(info.free_bytes, 10);
    CHECK_OK(devx_manager_ipc_handle(manager, seen.data, &handle, &error));
    CHECK_INT(handle.handle[63], 7);
    CHECK_INT(handle.offset, 99);
    CHECK_INT(handle.device_id, 3);
    CHECK_OK(devx_manager_get_statistics(manager, &now, &error));
    CHECK_INT(now.bytes, 80);
    CHECK_INT(now.allocations, 1);
    CHECK_INT(books.allocations, 1);
    /* The manager is released first; its context lives as long as memory from it. */
    devx_manager_release(&manager);
    CHECK(manager == NULL);
    CHECK_INT(books.releases, 0);
    devx_tensor_release(&tensor);
    CHECK_INT(books.frees, 1);
    CHECK_INT(books.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

/* What the last call of each of these functions was given. */
struct asked {
    int32_t initialized, told_of, reset, trimmed;
    int64_t kept;
    int32_t pinned_for;
    void *pinned;
    int64_t bytes;
    uint32_t host_flags;
};

static devx_status note_initialize(void *context, int32_t device_id, devx_error *say) {
    (void)say;
    ((struct asked *)context)->initialized = device_id;
    return DEVX_OK;
}

static devx_status note_pin(void *context, int32_t device_id, void *address, int64_t bytes, uint32_t host_flags,
                            devx_owner *out, devx_error *say) {
    struct asked *asked = context;
    (void)say;
    asked->pinned_for = device_id;
    asked->pinned = address;
    asked->bytes = bytes;
    asked->host_flags = host_flags;
    *out = (devx_owner){NULL, NULL};
    return DEVX_OK;
}

static devx_status note_memory_info(void *context, int32_t device_id, devx_memory_info *out, devx_error *say) {
    (void)say;
    ((struct asked *)context)->told_of = device_id;
    *out = (devx_memory_info){1, 2};
    return DEVX_OK;
}

static devx_status note_reset(void *context, int32_t device_id, devx_error *say) {
    (void)say;
    ((struct asked *)context)->reset = device_id;
    return DEVX_OK;
}

static devx_status note_trim(void *context, int32_t device_id, int64_t keep, devx_error *say) {
    struct asked *asked = context;
    (void)say;
    asked->trimmed = device_id;
    asked->kept = keep;
    return DEVX_OK;
}

TEST(the_table_gets_what_the_caller_says) {
    struct asked asked = {0};
    devx_manager_table const table = {.version = DEVX_MANAGER_VERSION,
                                      .context = &asked,
                                      .initialize = note_initialize,
                                      .allocate = allocate,
                                      .pin = note_pin,
                                      .memory_info = note_memory_info,
                                      .reset = note_reset,
                                      .trim = note_trim};
    devx_manager_t *manager = NULL;
    devx_memory_info info;
    devx_owner pinned;
    char place[24];
    CHECK_OK(devx_manager_create(&table, &manager, &error));
    CHECK_OK(devx_manager_initialize(manager, 1, &error));
    CHECK_OK(devx_manager_memory_info(manager, 2, &info, &error));
    CHECK_OK(devx_manager_pin(manager, 4, place, sizeof place, DEVX_HOST_PORTABLE, &pinned, &error));
    pinned.release(pinned.context);
    CHECK_OK(devx_manager_reset(manager, 5, &error));
    CHECK_OK(devx_manager_trim(manager, 6, 77, &error));
    CHECK_INT(asked.initialized, 1);
    CHECK_INT(asked.told_of, 2);
    CHECK_INT(asked.pinned_for, 4);
    CHECK_PTR(asked.pinned, place);
    CHECK_INT(asked.bytes, 24);
    CHECK_INT(asked.host_flags, DEVX_HOST_PORTABLE);
    CHECK_INT(asked.reset, 5);
    CHECK_INT(asked.trimmed, 6);
    CHECK_INT(asked.kept, 77);
    CHECK_OK(devx_manager_trim(manager, 6, SIZE_MAX, &error));
    CHECK_INT(asked.kept, INT64_MAX); /* all there can be, not less than nothing */
    devx_manager_release(&manager);
    CHECK_NOTHING_OUTSTANDING();
}

/* Memory that is not as requested is given back, and the error says that it came from the manager. */
TEST(what_the_table_gives_is_checked) {
    struct books books = {0};
    devx_manager_table const table = table_of(&books);
    devx_manager_t *manager = NULL;
    devx_tensor_t *tensor = NULL;
    int64_t const shape[] = {4};
    CHECK_OK(devx_manager_create(&table, &manager, &error));
    books.astray = 1;
    CHECK_REFUSED(devx_tensor_allocate_with(manager, cpu, int32, shape, 1, -1, &tensor, &error),
                  DEVX_INVALID_ARGUMENT, "the memory of the manager: data 0x");
    /* This also works without a driver, which is not needed for it. */
    books.device_type = kDLCUDA;
    CHECK_REFUSED(devx_tensor_allocate_with(manager, cpu, int32, shape, 1, -1, &tensor, &error), DEVX_CALLBACK,
                  "allocate: the manager gave memory of cuda:0 for cpu:0");
    CHECK_INT(books.allocations, 2);
    CHECK_INT(books.frees, 2);
    devx_manager_release(&manager);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(what_the_table_refuses_is_told) {
    struct books books = {0};
    devx_manager_table table = table_of(&books);
    table.reserved = 1;
    devx_manager_t *manager = NULL;
    devx_tensor_t *tensor = NULL;
    devx_owner owner;
    devx_memory_info info;
    devx_ipc_handle handle;
    int64_t const shape[] = {4};
    CHECK_REFUSED(devx_manager_create(&table, &manager, &error), DEVX_INVALID_ARGUMENT, "reserved is 1");
    CHECK_INT(books.releases, 0);
    table.reserved = 0;
    CHECK_OK(devx_manager_create(&table, &manager, &error));
    books.refuse = 1;
    CHECK_REFUSED(devx_tensor_allocate_with(manager, cpu, int32, shape, 1, -1, &tensor, &error), DEVX_OUT_OF_MEMORY,
                  "allocate: no more today");
    books.silent = 1;
    CHECK_REFUSED(devx_tensor_allocate_with(manager, cpu, int32, shape, 1, -1, &tensor, &error), DEVX_OUT_OF_MEMORY,
                  "allocate returned DEVX_OUT_OF_MEMORY");
    CHECK_INT(error.driver_code, 77);
    CHECK(tensor == NULL);
    CHECK_REFUSED(devx_manager_memory_info(manager, 0, &info, &error), DEVX_CALLBACK,
                  "memory_info: the manager says free_bytes is -10 and total_bytes is 100");
    CHECK_REFUSED(devx_manager_ipc_handle(manager, &books, &handle, &error), DEVX_CALLBACK, "offset 101 of 100");
    table.ipc_handle = NULL;
    CHECK_REFUSED(devx_manager_pin(manager, 0, &books, sizeof books, 0, &owner, &error), DEVX_UNSUPPORTED, "no pin");
    CHECK_REFUSED(devx_manager_pin(manager, 0, &books, sizeof books, 8, &owner, &error), DEVX_INVALID_ARGUMENT,
                  "host_flags is 0x8");
    devx_manager_release(&manager);
    CHECK_INT(books.releases, 1);
    table.version = 2;
    CHECK_REFUSED(devx_manager_create(&table, &manager, &error), DEVX_VERSION, "version is 2");
    table.version = DEVX_MANAGER_VERSION;
    table.allocate = NULL;
    CHECK_REFUSED(devx_manager_create(&table, &manager, &error), DEVX_NULL_ARGUMENT, "allocate is NULL");
    CHECK_REFUSED(devx_manager_create(NULL, &manager, &error), DEVX_NULL_ARGUMENT, "table is NULL");
    CHECK(manager == NULL);
    CHECK_INT(books.releases, 1);
}

TEST(cleanup_waits_and_reset_leaves_the_host) {
    struct books books = {0};
    devx_manager_table const table = table_of(&books);
    devx_manager_t *manager = NULL;
    devx_memory_request const request = {kDLCPU, 0, 16, -1, 0, 0};
    devx_memory first, second;
    CHECK_OK(devx_manager_create(&table, &manager, &error));
    CHECK_OK(devx_manager_allocate(manager, &request, &first, &error));
    CHECK_OK(devx_manager_allocate(manager, &request, &second, &error));
    CHECK_OK(devx_manager_defer_cleanup(manager, &error));
    CHECK_INT(books.deferred, 1);
    first.owner.release(first.owner.context);
    CHECK_INT(books.frees, 0);
    CHECK_OK(devx_manager_resume_cleanup(manager, &error));
    CHECK_INT(books.frees, 1);
    CHECK_OK(devx_manager_reset(manager, 0, &error));
    CHECK_INT(books.frees, 1);
    CHECK_INT(books.reset, 1);
    second.owner.release(second.owner.context);
    CHECK_INT(books.frees, 2);
    devx_manager_release(&manager);
    CHECK_INT(books.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

/* A manager ends the deferrals that it began, not those of others that use the same memory. */
TEST(nobody_ends_a_deferral_of_somebody_else) {
    struct books books = {0};
    devx_manager_table const table = table_of(&books);
    devx_manager_t *manager = NULL, *first = NULL, *second = NULL;
    devx_memory_request const request = {kDLCPU, 0, 16, -1, 0, 0};
    devx_memory memory;
    CHECK_OK(devx_manager_create(&table, &manager, &error));
    CHECK_OK(devx_manager_create_limited(manager, -1, &first, &error));
    CHECK_OK(devx_manager_create_limited(manager, -1, &second, &error));
    CHECK_REFUSED(devx_manager_resume_cleanup(manager, &error), DEVX_INVALID_ARGUMENT, "without defer_cleanup");
    CHECK_INT(books.deferred, 0);
    CHECK_OK(devx_manager_allocate(manager, &request, &memory, &error));
    CHECK_OK(devx_manager_defer_cleanup(first, &error));
    memory.owner.release(memory.owner.context);
    CHECK_REFUSED(devx_manager_resume_cleanup(second, &error), DEVX_INVALID_ARGUMENT, "without defer_cleanup");
    CHECK_REFUSED(devx_manager_resume_cleanup(manager, &error), DEVX_INVALID_ARGUMENT, "without defer_cleanup");
    CHECK_INT(books.deferred, 1);
    CHECK_INT(books.frees, 0);
    devx_manager_release(&first);
    CHECK_INT(books.deferred, 0);
    CHECK_INT(books.frees, 1);
    devx_manager_release(&second);
    devx_manager_release(&manager);
    CHECK_INT(books.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

/* There is one CPU, as everywhere: 0, or -1 as Arrow writes it. */
TEST(the_cpu_is_one_device) {
    struct books books = {0};
    devx_manager_table const table = table_of(&books);
    devx_manager_t *manager = NULL;
    devx_memory_request request = {kDLCPU, -1, 16, -1, 0, 0};
    devx_memory memory;
    CHECK_OK(devx_manager_create(&table, &manager, &error));
    CHECK_OK(devx_manager_allocate(manager, &request, &memory, &error));
    /* Memory of the CPU is not memory of a GPU with the same number. */
    CHECK_OK(devx_manager_reset(manager, 0, &error));
    CHECK_INT(books.frees, 0);
    memory.owner.release(memory.owner.context);
    CHECK_INT(books.frees, 1);
    request.device_id = 7;
    CHECK_REFUSED(devx_manager_allocate(manager, &request, &memory, &error), DEVX_DEVICE, "device_id is 7: the cpu is");
    CHECK_INT(books.allocations, 1);
    devx_manager_release(&manager);
    CHECK_INT(books.frees, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(limits_and_host_memory) {
    devx_manager_t *host = NULL, *limited = NULL;
    devx_memory_request request = {kDLCPU, 0, 100, -1, 0, 0};
    devx_memory memory, more;
    devx_memory_info info;
    CHECK_OK(devx_manager_create_host_only(&host, &error));
    CHECK_REFUSED(devx_manager_create_limited(host, -2, &limited, &error), DEVX_INVALID_ARGUMENT, "limit is -2");
    CHECK_REFUSED(devx_manager_create_pool(1, -2, &limited, &error), DEVX_INVALID_ARGUMENT, "keep is -2");
    CHECK_REFUSED(devx_manager_create_shareable_pool(1, -2, &limited, &error), DEVX_INVALID_ARGUMENT, "keep is -2");
    request.stream = 0;
    CHECK_REFUSED(devx_manager_allocate(host, &request, &more, &error), DEVX_INVALID_STREAM, "stream is 0: -1 is no stream");
    request.stream = -1;
    request.reserved = 1;
    CHECK_REFUSED(devx_manager_allocate(host, &request, &more, &error), DEVX_INVALID_ARGUMENT, "reserved is 1");
    request.reserved = 0;
    CHECK_OK(devx_manager_create_limited(host, 150, &limited, &error));
    devx_manager_release(&host);
    CHECK_OK(devx_manager_allocate(limited, &request, &memory, &error));
    CHECK_REFUSED(devx_manager_allocate(limited, &request, &more, &error), DEVX_OUT_OF_MEMORY, "limit of 150");
    memory.owner.release(memory.owner.context);
    CHECK_OK(devx_manager_allocate(limited, &request, &memory, &error));
    memory.owner.release(memory.owner.context);
    request.device_type = kDLCUDA;
    CHECK_REFUSED(devx_manager_allocate(limited, &request, &more, &error), DEVX_UNSUPPORTED,
                  "device_type is cuda (2): the host-only manager");
    request.device_type = kDLCPU;
    request.bytes = -1;
    CHECK_REFUSED(devx_manager_allocate(limited, &request, &more, &error), DEVX_INVALID_ARGUMENT, "bytes is -1");
    CHECK_REFUSED(devx_manager_memory_info(limited, 0, &info, &error), DEVX_UNSUPPORTED, "does not know");
    CHECK_OK(devx_manager_trim(limited, 0, 0, &error));
    devx_manager_release(&limited);
    devx_manager_release(&limited);
    devx_manager_release(NULL);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(null_arguments_are_refused) {
    struct books books = {0};
    devx_manager_table const table = table_of(&books);
    devx_memory_request const request = {kDLCPU, 0, 16, -1, 0, 0};
    devx_manager_t *manager = NULL, *other = UNWRITTEN;
    devx_tensor_t *tensor = UNWRITTEN;
    devx_manager_statistics now;
    devx_memory_info info;
    devx_ipc_handle handle;
    devx_memory memory;
    devx_owner owner;
    char place[24];
    int64_t const shape[] = {4};
    CHECK_NEEDS(devx_manager_create(&table, NULL, &error), "out");
    CHECK_INT(books.releases, 0);
    CHECK_NEEDS(devx_manager_create_driver(NULL, &error), "out");
    CHECK_NEEDS(devx_manager_create_managed(NULL, &error), "out");
    CHECK_NEEDS(devx_manager_create_host_only(NULL, &error), "out");
    CHECK_NEEDS(devx_manager_create_pool(-1, -1, NULL, &error), "out");
    CHECK_NEEDS(devx_manager_create_shareable_pool(-1, -1, NULL, &error), "out");
    CHECK_OK(devx_manager_create(&table, &manager, &error));

    CHECK_NEEDS(devx_manager_create_limited(NULL, -1, &other, &error), "inner");
    CHECK_NEEDS(devx_manager_create_limited(manager, -1, NULL, &error), "out");
    CHECK_NEEDS(devx_manager_initialize(NULL, 0, &error), "manager");
    CHECK_NEEDS(devx_manager_allocate(NULL, &request, &memory, &error), "manager");
    CHECK_NEEDS(devx_manager_allocate(manager, NULL, &memory, &error), "request");
    CHECK_NEEDS(devx_manager_allocate(manager, &request, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_allocate_with(NULL, cpu, int32, shape, 1, -1, &tensor, &error), "manager");
    CHECK_NEEDS(devx_tensor_allocate_with(manager, cpu, int32, shape, 1, -1, NULL, &error), "out");
    CHECK_REFUSED(devx_tensor_allocate_with(manager, cpu, int32, NULL, 1, -1, &tensor, &error), DEVX_NULL_ARGUMENT,
                  "shape is NULL with 1 entries");
    CHECK_NEEDS(devx_manager_pin(NULL, 0, place, sizeof place, 0, &owner, &error), "manager");
    CHECK_NEEDS(devx_manager_pin(manager, 0, place, sizeof place, 0, NULL, &error), "out");
    CHECK_NEEDS(devx_manager_memory_info(NULL, 0, &info, &error), "manager");
    CHECK_NEEDS(devx_manager_memory_info(manager, 0, NULL, &error), "out");
    CHECK_NEEDS(devx_manager_ipc_handle(NULL, place, &handle, &error), "manager");
    CHECK_NEEDS(devx_manager_ipc_handle(manager, place, NULL, &error), "out");
    CHECK_NEEDS(devx_manager_reset(NULL, 0, &error), "manager");
    CHECK_NEEDS(devx_manager_trim(NULL, 0, 0, &error), "manager");
    CHECK_NEEDS(devx_manager_defer_cleanup(NULL, &error), "manager");
    CHECK_NEEDS(devx_manager_resume_cleanup(NULL, &error), "manager");
    CHECK_NEEDS(devx_manager_get_statistics(NULL, &now, &error), "manager");
    CHECK_NEEDS(devx_manager_get_statistics(manager, NULL, &error), "out");
    CHECK_PTR(other, UNWRITTEN);
    CHECK_PTR(tensor, UNWRITTEN);
    CHECK_INT(books.allocations, 0);
    devx_manager_release(&manager);
    CHECK_INT(books.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
