/* Callbacks of a program that fail, and releases that call the library. Producers of streams that fail are tested in
 * test_corpus.c.
 */
#define _POSIX_C_SOURCE 200809L
#include <corpus.h>

#include "test_support.h"

static struct tally tally;
static int64_t injected;

static int64_t const shape[2] = {2, 3};
static int64_t const NOW = 0;

/* --- a consumer of an asynchronous stream whose callbacks fail, make impossible requests, or cancel --- */

/* The first call that fails, and what it says. */
static devx_status first;
static devx_error said;

static int went(devx_status status) {
    if (status != DEVX_OK && first == DEVX_OK) {
        first = status;
        said = error;
    }
    return status == DEVX_OK;
}

static void send_three(devx_async_writer_t *writer, devx_schema_t *schema, devx_batch_t *batch) {
    int goes_on = went(devx_async_writer_start(writer, schema, &error));
    for (int i = 0; goes_on && i < 3; ++i) {
        devx_batch_t *shared = NULL;
        CHECK_OK(devx_batch_share(batch, &shared, &error));
        goes_on = went(devx_async_writer_send_move(writer, &shared, NULL, &error)) &&
                  went(devx_async_writer_ready(writer, NOW, &error));
        /* A batch that was refused is still ours. */
        devx_batch_release(&shared);
    }
    if (goes_on) {
        (void)went(devx_async_writer_finish(writer, &error));
    }
}

/* Sends three batches while the nth callback of the consumer fails. Returns 0 if there are fewer callbacks. */
static int send_while_failing(int64_t nth, int how) {
    devx_tensor_t *tensor = NULL;
    devx_batch_t *batch = NULL;
    devx_schema_t *schema = NULL;
    devx_async_writer_t *writer = NULL;
    corpus_consumer *const consumer = corpus_consumer_make();
    first = DEVX_OK;
    corpus_callback_arm(nth, how);
    if (!went(devx_tensor_allocate(cpu, float64, shape, 2, -1, &tensor, &error)) ||
        !went(devx_tensor_to_batch(tensor, NULL, 0, DEVX_COPY_IF_NEEDED, &batch, &error)) ||
        !went(devx_batch_schema(batch, &schema, &error)) ||
        !went(devx_async_writer_create(corpus_consumer_handler(consumer), kDLCPU, NULL, NULL, &writer, &error))) {
        check_fail_("%s", said.message);
        return 0;
    }
    send_three(writer, schema, batch);
    devx_async_writer_release(&writer);
    devx_schema_release(&schema);
    devx_batch_release(&batch);
    devx_tensor_release(&tensor);
    int const failed = corpus_callback_disarm();
    const char *const wrong = corpus_consumer_end(consumer);
    if (wrong != NULL) {
        check_fail_("callback %d, %d: %s", (int)nth, how, wrong);
    } else if (failed ? first != corpus_callback_status() ||
                            strstr(said.message, corpus_callback_says()) == NULL
                      : first != DEVX_OK) {
        check_fail_("callback %d, %d: %s: %s", (int)nth, how, devx_status_name(first), said.message);
    }
    return failed;
}

TEST(every_callback_of_an_asynchronous_consumer) {
    int64_t failed = 0;
    for (int how = 0; how < 4; ++how) {
        int64_t nth = 1;
        while (send_while_failing(nth, how)) {
            CHECK_NOTHING_OUTSTANDING();
            nth += 1;
        }
        CHECK_NOTHING_OUTSTANDING();
        failed += nth - 1;
    }
    injected += failed;
    /* The callbacks are the schema, three batches, and the end if the consumer fails with a code. */
    CHECK_INT(failed, 18);
}

/* --- a source of batches whose calls fail, or give batches that do not fit the stream --- */

struct source {
    devx_batch_t *batch;
    devx_batch_t *other;
    int calls, failing, how;
};

static devx_status next_or_fail(void *context, struct devx_batch **out, devx_error *say) {
    struct source *source = context;
    source->calls += 1;
    if (source->calls == source->failing) {
        switch (source->how) {
            case 0: return DEVX_CALLBACK;
            case 1: strcpy(say->message, "as asked"); return DEVX_CALLBACK;
            default: return devx_batch_share(source->other, out, say);
        }
    }
    *out = NULL;
    return source->calls > 3 ? DEVX_OK : devx_batch_share(source->batch, out, say);
}

static void end_of_source(void *context) {
    struct source *source = context;
    devx_batch_release(&source->batch);
    devx_batch_release(&source->other);
    atomic_fetch_add(&tally.releases, 1);
}

/* Reads a stream of the source to its end: directly, or as a consumer of either struct. */
static void read_all(struct source *source, int through) {
    devx_batch_source const record = {source, next_or_fail, end_of_source};
    devx_batch_stream_t *stream = NULL, *again = NULL;
    devx_schema_t *schema = NULL;
    struct ArrowArrayStream plain;
    struct ArrowDeviceArrayStream device;
    CHECK_OK(devx_batch_schema(source->batch, &schema, &error));
    CHECK_OK(devx_batch_stream_create(schema, kDLCPU, &record, &stream, &error));
    devx_schema_release(&schema);
    if (through == 1) {
        CHECK_OK(devx_batch_stream_export(&stream, &plain, &error));
        CHECK_OK(devx_batch_stream_import(&plain, &again, &error));
    } else if (through == 2) {
        CHECK_OK(devx_batch_stream_export_device(&stream, &device, &error));
        CHECK_OK(devx_batch_stream_import_device(&device, &again, &error));
    } else {
        again = stream;
    }
    devx_batch_t *batch = NULL;
    do {
        devx_batch_release(&batch);
    } while (went(devx_batch_stream_next(again, &batch, &error)) && batch != NULL);
    /* The next call gives the same. */
    devx_status const now = devx_batch_stream_next(again, &batch, NULL);
    CHECK(now == first && batch == NULL);
    devx_batch_stream_release(&again);
}

static void read_while_failing(struct source *source, int through) {
    devx_tensor_t *tensor = NULL;
    int64_t const other[2] = {1, 5};
    tally = (struct tally){0};
    first = DEVX_OK;
    CHECK_OK(devx_tensor_allocate(cpu, float64, shape, 2, -1, &tensor, &error));
    CHECK_OK(devx_tensor_to_batch(tensor, NULL, 0, DEVX_COPY_IF_NEEDED, &source->batch, &error));
    devx_tensor_release(&tensor);
    CHECK_OK(devx_tensor_allocate(cpu, int32, other, 2, -1, &tensor, &error));
    CHECK_OK(devx_tensor_to_batch(tensor, NULL, 0, DEVX_COPY_IF_NEEDED, &source->other, &error));
    devx_tensor_release(&tensor);
    CHECK_CALL(read_all(source, through));
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(every_call_of_a_source) {
    int failed = 0;
    for (int through = 0; through < 3; ++through) {
        for (int how = 0; how < 3; ++how) {
            struct source source = {NULL, NULL, 0, 1, how};
            for (;; source.calls = 0, ++source.failing) {
                CHECK_CALL(read_while_failing(&source, through));
                if (source.calls < source.failing) {
                    CHECK_INT(first, DEVX_OK);
                    break;
                }
                /* Through a struct, an error is only a code and a text. */
                CHECK_INT(first, how == 2 && through == 0 ? DEVX_MISMATCH : DEVX_CALLBACK);
                static const char *const says[3] = {"", "as asked", "the batch has 5 columns"};
                CHECK_MSG(strstr(said.message, says[how]) != NULL, "it says %.200s", said.message);
                failed += 1;
            }
        }
    }
    injected += failed;
    CHECK_INT(failed, 36);
}

/* --- releases that call the library --- */

/* What a release also gives up. */
static struct {
    devx_tensor_t *tensor;
    devx_batch_t *batch;
    devx_batch_stream_t *stream;
    devx_manager_t *manager;
    devx_async_reader_t *reader;
    int reentered, went_wrong;
} held;

/* What a program may do in a release: create, export and import, and release other objects of the library. */
static void reenter(void) {
    devx_error inner;
    devx_tensor_t *tensor = NULL, *again = NULL;
    devx_batch_t *batch = NULL;
    struct DLManagedTensorVersioned *managed = NULL;
    struct ArrowArray array = {0};
    int right = devx_tensor_allocate(cpu, float64, shape, 2, -1, &tensor, &inner) == DEVX_OK &&
                devx_tensor_export_share(tensor, NULL, &managed, &inner) == DEVX_OK &&
                devx_tensor_import(managed, &again, &inner) == DEVX_OK &&
                devx_tensor_to_batch(again, NULL, 0, DEVX_COPY_IF_NEEDED, &batch, &inner) == DEVX_OK &&
                devx_batch_export_move(&batch, &array, &inner) == DEVX_OK;
    right = right && devx_tensor_import(NULL, &again, &inner) == DEVX_NULL_ARGUMENT;
    release_array(&array);
    devx_tensor_release(&again);
    devx_tensor_release(&tensor);
    held.reentered += 1;
    held.went_wrong += !right || devx_ledger_outstanding() < 0;
    /* Each of these may be the last user of something whose release comes here, too. */
    devx_batch_stream_release(&held.stream);
    devx_batch_release(&held.batch);
    devx_tensor_release(&held.tensor);
    devx_manager_release(&held.manager);
    devx_async_reader_release(&held.reader);
}

static void reenter_and_count(void *context) {
    reenter();
    count_release(context);
}

static void reenter_and_delete(struct DLManagedTensorVersioned *managed) {
    reenter();
    delete_foreign(managed);
}

static void reenter_and_delete_legacy(struct DLManagedTensor *managed) {
    reenter();
    delete_foreign_legacy(managed);
}

static void reenter_and_release_array(struct ArrowArray *array) {
    reenter();
    release_foreign_array(array);
}

static void reenter_and_release_schema(struct ArrowSchema *schema) {
    reenter();
    release_foreign_schema(schema);
}

static double values[6];

/* Objects whose release calls back into the library, one of each kind; anybody may be the last to release them. */
static devx_tensor_t *owned_tensor(void) {
    DLTensor const described = {values, cpu, 2, float64, (int64_t *)(uintptr_t)shape, NULL, 0};
    devx_owner const owner = {&tally, reenter_and_count};
    devx_tensor_t *tensor = NULL;
    (void)devx_tensor_create(&described, 0, &owner, &tensor, &error);
    return tensor;
}

static devx_tensor_t *taken_tensor(int legacy) {
    devx_tensor_t *tensor = NULL;
    if (legacy) {
        struct DLManagedTensor *managed = foreign_legacy(&tally, 2, shape, NULL);
        managed->deleter = reenter_and_delete_legacy;
        (void)devx_tensor_import_legacy(managed, &tensor, &error);
    } else {
        struct DLManagedTensorVersioned *managed = foreign_tensor(&tally, 2, shape, NULL);
        managed->deleter = reenter_and_delete;
        (void)devx_tensor_import(managed, &tensor, &error);
    }
    return tensor;
}

static devx_batch_t *taken_batch(void) {
    struct ArrowSchema schema;
    struct ArrowArray array;
    devx_batch_t *batch = NULL;
    foreign_batch(&tally, 3, &schema, &array);
    schema.release = reenter_and_release_schema;
    array.release = reenter_and_release_array;
    array.children[0]->release = reenter_and_release_array;
    (void)devx_batch_import_pair(&array, &schema, &batch, &error);
    return batch;
}

static void reenter_at_the_end(void *context) {
    struct source *source = context;
    devx_batch_release(&source->batch);
    reenter();
    free(source);
    atomic_fetch_add(&tally.releases, 1);
}

static devx_batch_stream_t *made_stream(void) {
    struct source *source = support_memory(sizeof *source);
    devx_batch_source const record = {source, next_or_fail, reenter_at_the_end};
    devx_schema_t *schema = NULL;
    devx_batch_stream_t *stream = NULL;
    source->batch = taken_batch();
    (void)devx_batch_schema(source->batch, &schema, &error);
    (void)devx_batch_stream_create(schema, kDLCPU, &record, &stream, &error);
    devx_schema_release(&schema);
    return stream;
}

static devx_status give_values(void *context, const devx_memory_request *request, devx_memory *out, devx_error *say) {
    (void)request;
    (void)say;
    out->address = values;
    out->device_type = kDLCPU;
    out->owner = (devx_owner){context, reenter_and_count};
    return DEVX_OK;
}

static devx_manager_t *made_manager(void) {
    devx_manager_table table = {0};
    devx_manager_t *manager = NULL;
    table.version = DEVX_MANAGER_VERSION;
    table.context = &tally;
    table.release = reenter_and_count;
    table.allocate = give_values;
    (void)devx_manager_create(&table, &manager, &error);
    return manager;
}

static devx_async_reader_t *made_reader(void) {
    devx_wake const wake = {&tally, NULL, reenter_and_count};
    devx_async_reader_t *reader = NULL;
    (void)devx_async_reader_create(1, 1, &wake, &reader, &error);
    return reader;
}

static void hold_all(void) {
    tally = (struct tally){0};
    memset(&held, 0, sizeof held);
    held.tensor = owned_tensor();
    held.batch = taken_batch();
    held.stream = made_stream();
    held.manager = made_manager();
    held.reader = made_reader();
    CHECK_MADE(held.tensor);
    CHECK_MADE(held.batch);
    CHECK_MADE(held.stream);
    CHECK_MADE(held.manager);
    CHECK_MADE(held.reader);
}

/* The first release gives up everything else, each release within the one before. */
static void all_came(int releases, int reentered) {
    CHECK(held.tensor == NULL && held.batch == NULL && held.stream == NULL && held.manager == NULL &&
          held.reader == NULL);
    CHECK_INT(held.went_wrong, 0);
    CHECK_INT(tally.releases, releases);
    CHECK_INT(tally.live, 0);
    CHECK_INT(held.reentered, reentered);
    CHECK_NOTHING_OUTSTANDING();
    injected += reentered;
}

/* Held are an owner, two batches of six structs each (three of which reenter), a stream, a manager and a reader. */
enum { HELD = 1 + 2 * 6 + 1 + 1 + 1, HELD_REENTER = 1 + 2 * 3 + 1 + 1 + 1 };

TEST(a_deleter_may_call_the_library) {
    for (int legacy = 0; legacy < 2; ++legacy) {
        CHECK_CALL(hold_all());
        devx_tensor_t *tensor = taken_tensor(legacy);
        CHECK_MADE(tensor);
        devx_tensor_release(&tensor);
        CHECK_CALL(all_came(HELD + 1, HELD_REENTER + 1));
    }
}

TEST(the_release_of_an_array_or_a_schema_may) {
    CHECK_CALL(hold_all());
    devx_batch_t *batch = taken_batch();
    CHECK_MADE(batch);
    devx_batch_release(&batch);
    CHECK_CALL(all_came(HELD + 6, HELD_REENTER + 3));
}

TEST(the_end_of_a_source_may) {
    CHECK_CALL(hold_all());
    devx_batch_stream_t *stream = made_stream();
    CHECK_MADE(stream);
    struct ArrowArrayStream exported;
    CHECK_OK(devx_batch_stream_export(&stream, &exported, &error));
    exported.release(&exported);
    CHECK_CALL(all_came(HELD + 7, HELD_REENTER + 4));
}

TEST(an_owner_of_what_was_handed_out_may) {
    CHECK_CALL(hold_all());
    devx_tensor_t *tensor = owned_tensor();
    struct DLManagedTensorVersioned *managed = NULL;
    CHECK_MADE(tensor);
    CHECK_OK(devx_tensor_export_move(&tensor, NULL, &managed, &error));
    devx_dlpack_release(&managed);
    CHECK_CALL(all_came(HELD + 1, HELD_REENTER + 1));
}

TEST(a_manager_and_its_memory_may) {
    devx_memory_request const request = {kDLCPU, 0, 24, -1, 0, 0};
    devx_memory memory = {0};
    CHECK_CALL(hold_all());
    devx_manager_t *manager = made_manager();
    CHECK_MADE(manager);
    CHECK_OK(devx_manager_allocate(manager, &request, &memory, &error));
    /* The memory keeps the manager's context. */
    devx_manager_release(&manager);
    CHECK_INT(tally.releases, 0);
    memory.owner.release(memory.owner.context);
    CHECK_CALL(all_came(HELD + 2, HELD_REENTER + 2));
}

TEST(what_wakes_a_reader_may) {
    CHECK_CALL(hold_all());
    devx_async_reader_t *reader = made_reader();
    struct ArrowAsyncDeviceStreamHandler *handler = NULL;
    CHECK_MADE(reader);
    CHECK_OK(devx_async_reader_handler(reader, &handler, &error));
    devx_async_reader_release(&reader);
    handler->release(handler);
    CHECK_CALL(all_came(HELD + 1, HELD_REENTER + 1));
}

TEST(there_were_many) {
    printf("# %d faults and releases that call\n", (int)injected);
    CHECK(injected > 120);
}

CHECK_MAIN()
