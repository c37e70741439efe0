/* Streams of batches: from our own source and from foreign producers, to us and to foreign consumers. */
#include "test_support.h"

#include <errno.h>

/* --- foreign producers --- */

/* What a foreign producer does: it gives `good` batches, and then does the last thing again and again. */
struct foreign_stream {
    struct tally *tally;
    int good;
    int given;
    int calls; /* of get_next */
    int schema_calls;
    int schema_fails; /* an errno code, or 0 */
    int fails;        /* an errno code, or 0 for the end */
    int malformed;    /* 1: an array that is none */
    char *text;       /* a copy for each call that fails, as short-lived as the specification allows */
    const char *says;
};

static struct foreign_stream *new_foreign_stream(struct tally *tally, int good) {
    struct foreign_stream *own = (struct foreign_stream *)support_memory(sizeof *own);
    own->tally = tally;
    own->good = good;
    own->says = "the disk is gone";
    atomic_fetch_add(&tally->live, 1);
    return own;
}

static int produce_schema(struct foreign_stream *own, struct ArrowSchema *out) {
    free(own->text);
    own->text = support_text(own->says);
    own->schema_calls += 1;
    if (own->schema_fails != 0) {
        return own->schema_fails;
    }
    *out = foreign_schema(own->tally, "+s", NULL);
    add_schema_child(out, foreign_schema(own->tally, "i", "number"));
    return 0;
}

/* Gives an array of `given` rows. */
static int produce_array(struct foreign_stream *own, struct ArrowArray *out) {
    free(own->text);
    own->text = support_text(own->says);
    own->calls += 1;
    out->release = NULL;
    if (own->given == own->good && !own->malformed) {
        return own->fails;
    }
    own->given += 1;
    *out = foreign_array(own->tally, own->given, 1);
    add_array_child(out, foreign_numbers(own->tally, own->given));
    if (own->given > own->good) {
        out->children[0]->offset = -5;
    }
    return 0;
}

static void free_foreign_stream(struct foreign_stream *own) {
    atomic_fetch_add(&own->tally->releases, 1);
    atomic_fetch_sub(&own->tally->live, 1);
    free(own->text);
    free(own);
}

#define OWN(stream) ((struct foreign_stream *)(stream)->private_data)

static int host_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    return produce_schema(OWN(stream), out);
}
static int host_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    return produce_array(OWN(stream), out);
}
static const char *host_last_error(struct ArrowArrayStream *stream) {
    return OWN(stream)->text;
}
static void host_release(struct ArrowArrayStream *stream) {
    free_foreign_stream(OWN(stream));
    stream->release = NULL;
}

static struct ArrowArrayStream host_stream(struct foreign_stream *own) {
    struct ArrowArrayStream const stream = {host_schema, host_next, host_last_error, host_release, own};
    return stream;
}

static int device_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out) {
    return produce_schema(OWN(stream), out);
}
static int device_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out) {
    memset(out, 0, sizeof *out);
    out->device_id = -1;
    out->device_type = ARROW_DEVICE_CPU;
    return produce_array(OWN(stream), &out->array);
}
static const char *device_last_error(struct ArrowDeviceArrayStream *stream) {
    return OWN(stream)->text;
}
static void device_release(struct ArrowDeviceArrayStream *stream) {
    free_foreign_stream(OWN(stream));
    stream->release = NULL;
}

static struct ArrowDeviceArrayStream device_stream(struct foreign_stream *own) {
    struct ArrowDeviceArrayStream const stream = {ARROW_DEVICE_CPU, device_schema,  device_next,
                                                  device_last_error, device_release, own};
    return stream;
}

static int same_stream(const struct ArrowDeviceArrayStream *left, const struct ArrowDeviceArrayStream *right) {
    return left->device_type == right->device_type && left->get_schema == right->get_schema &&
           left->get_next == right->get_next && left->get_last_error == right->get_last_error &&
           left->release == right->release && left->private_data == right->private_data;
}

static int64_t length_of(const devx_batch_t *batch) {
    devx_batch_info info = {0, 0, 0, 0, 0};
    return devx_batch_get_info(batch, &info, &error) == DEVX_OK ? info.length : -1;
}

/* --- sources of the C API --- */

struct source {
    struct tally *tally;
    devx_schema_t *schema;
    int good;
    int given;
    int calls;
    devx_status fails; /* DEVX_OK for the end */
    const char *says;
    int32_t code;       /* the driver's code, if nothing is said */
    devx_error chatter; /* what calls that succeed leave in the record */
};

static devx_status next_of_source(void *context, devx_batch_t **out, devx_error *record) {
    static int32_t const numbers[8];
    struct source *source = (struct source *)context;
    source->calls += 1;
    if (source->given == source->good) {
        if (source->fails != DEVX_OK && source->says != NULL) {
            strcpy(record->message, source->says);
            record->driver_code = 7;
        } else if (source->code != 0) {
            record->driver_code = source->code;
        }
        return source->fails;
    }
    source->given += 1;
    *record = source->chatter;
    const void *const none[] = {NULL}, *const values[] = {NULL, numbers};
    devx_node const nodes[] = {{source->given, 0, 0, none, 1}, {source->given, 0, 0, values, 2}};
    devx_owner const owner = counting_owner(source->tally);
    return devx_batch_create(source->schema, cpu, nodes, 2, &owner, out, record);
}

static void release_source(void *context) {
    struct source *source = (struct source *)context;
    devx_schema_release(&source->schema);
    count_release(source->tally);
    free(source);
}

static struct source *new_source(struct tally *tally, int good) {
    devx_field const fields[] = {{"+s", "", NULL, 0, 1, 0}, {"i", "number", NULL, DEVX_FIELD_NULLABLE, 0, 0}};
    struct source *source = (struct source *)support_memory(sizeof *source);
    source->tally = tally;
    source->good = good;
    if (devx_schema_create(fields, 2, &source->schema, &error) != DEVX_OK) {
        abort();
    }
    return source;
}

static devx_batch_stream_t *stream_of(struct source *source) {
    devx_batch_source const raw = {source, next_of_source, release_source};
    devx_batch_stream_t *stream = NULL;
    (void)devx_batch_stream_create(source->schema, kDLCPU, &raw, &stream, &error);
    return stream;
}

/* --- there and back --- */

TEST(a_source_gives_batches_that_outlive_the_stream) {
    struct tally tally = {0};
    struct source *source = new_source(&tally, 3);
    devx_batch_stream_t *stream = stream_of(source);
    devx_batch_t *batches[3] = {NULL, NULL, NULL}, *end = UNWRITTEN;
    devx_schema_t *schema = NULL;
    int32_t device_type = 0;
    CHECK_MADE(stream);
    CHECK_OK(devx_batch_stream_device_type(stream, &device_type, &error));
    CHECK_INT(device_type, kDLCPU);
    CHECK_OK(devx_batch_stream_schema(stream, &schema, &error));
    for (int i = 0; i < 3; ++i) {
        CHECK_OK(devx_batch_stream_next(stream, &batches[i], &error));
        CHECK_INT(length_of(batches[i]), i + 1);
    }
    for (int i = 0; i < 3; ++i) {
        end = UNWRITTEN;
        CHECK_OK(devx_batch_stream_next(stream, &end, &error));
        CHECK(end == NULL);
    }
    CHECK_INT(source->calls, 4); /* the end stays the end */
    CHECK_INT(tally.releases, 0);
    devx_batch_stream_release(&stream);
    CHECK(stream == NULL);
    CHECK_INT(tally.releases, 1);
    for (int i = 0; i < 3; ++i) {
        CHECK_INT(length_of(batches[i]), i + 1);
        devx_batch_release(&batches[i]);
    }
    devx_schema_release(&schema);
    CHECK_INT(tally.releases, 4);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_foreign_consumer_pulls_and_releases_in_the_middle) {
    struct tally tally = {0};
    devx_batch_stream_t *stream = stream_of(new_source(&tally, 5));
    struct ArrowArrayStream exported, moved;
    struct ArrowSchema schema;
    struct ArrowArray first, second;
    CHECK_MADE(stream);
    CHECK_OK(devx_batch_stream_export(&stream, &exported, &error));
    CHECK(stream == NULL);
    devx_ledger ledger;
    CHECK_OK(devx_ledger_read(&ledger, &error));
    CHECK_INT(ledger.stream_exports.live, 1);
    CHECK_INT(exported.get_next(&exported, &first), 0);
    ARROW_MOVE(&exported, &moved);
    CHECK_INT(exported.get_next(&exported, &second), EINVAL); /* moved from */
    CHECK_INT(moved.get_schema(&moved, &schema), 0);
    CHECK_INT(moved.get_next(&moved, &second), 0);
    CHECK(moved.get_last_error(&moved) == NULL);
    CHECK_INT(first.length, 1);
    moved.release(&moved);
    CHECK(moved.release == NULL);
    CHECK_INT(tally.releases, 1);
    CHECK_STR(schema.children[0]->name, "number");
    CHECK_INT(second.children[0]->length, 2);
    release_array(&first);
    release_array(&second);
    release_schema(&schema);
    CHECK_INT(tally.releases, 3);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_foreign_stream_is_taken_and_asked_for_its_schema_once) {
    struct tally tally = {0};
    struct foreign_stream *own = new_foreign_stream(&tally, 2);
    struct ArrowArrayStream source = host_stream(own);
    devx_batch_stream_t *stream = NULL;
    devx_batch_t *first = NULL, *second = NULL, *end = NULL;
    CHECK_OK(devx_batch_stream_import(&source, &stream, &error));
    CHECK(source.release == NULL);
    CHECK_OK(devx_batch_stream_next(stream, &first, &error));
    CHECK_OK(devx_batch_stream_next(stream, &second, &error));
    CHECK_OK(devx_batch_stream_next(stream, &end, &error));
    CHECK_OK(devx_batch_stream_next(stream, &end, &error));
    CHECK(end == NULL);
    CHECK_INT(own->calls, 3);
    CHECK_INT(own->schema_calls, 1);
    devx_batch_stream_release(&stream);
    CHECK_INT(tally.releases, 1); /* the stream; batches and their schema are still used */
    CHECK_INT(length_of(second), 2);
    devx_batch_release(&first);
    devx_batch_release(&second);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_device_stream_goes_in_and_out) {
    struct tally tally = {0};
    struct ArrowDeviceArrayStream source = device_stream(new_foreign_stream(&tally, 2)), exported;
    struct ArrowArrayStream plain;
    struct ArrowDeviceArray array;
    devx_batch_stream_t *stream = NULL;
    devx_batch_t *batch = NULL;
    CHECK_OK(devx_batch_stream_import_device(&source, &stream, &error));
    CHECK_OK(devx_batch_stream_export_device(&stream, &exported, &error));
    CHECK_INT(exported.device_type, ARROW_DEVICE_CPU);
    CHECK_INT(exported.get_next(&exported, &array), 0);
    CHECK_INT(array.device_type, ARROW_DEVICE_CPU);
    CHECK_INT(array.device_id, -1);
    release_array(&array.array);
    /* Exported as a stream of host arrays, it is the same stream. */
    CHECK_OK(devx_batch_stream_import_device(&exported, &stream, &error));
    CHECK_OK(devx_batch_stream_export(&stream, &plain, &error));
    CHECK_OK(devx_batch_stream_import(&plain, &stream, &error));
    CHECK_OK(devx_batch_stream_next(stream, &batch, &error));
    CHECK_INT(length_of(batch), 2);
    devx_batch_release(&batch);
    CHECK_OK(devx_batch_stream_next(stream, &batch, &error));
    CHECK(batch == NULL);
    devx_batch_stream_release(&stream);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- errors --- */

TEST(an_error_of_a_source_stays_and_is_told_to_foreign_consumers) {
    static struct {
        devx_status status;
        int code;
    } const all[] = {
        {DEVX_OUT_OF_MEMORY, ENOMEM}, {DEVX_UNSUPPORTED, ENOTSUP}, {DEVX_CALLBACK, EIO}, {DEVX_SYSTEM, EIO}, {4711, EINVAL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        struct source *source = new_source(&tally, 1);
        source->fails = all[i].status;
        source->says = "row 3 is bad";
        devx_batch_stream_t *stream = stream_of(source);
        devx_batch_t *batch = NULL, *unwritten = UNWRITTEN;
        struct ArrowArrayStream exported;
        struct ArrowArray array;
        CHECK_MADE(stream);
        CHECK_OK(devx_batch_stream_next(stream, &batch, &error));
        devx_batch_release(&batch);
        for (int again = 0; again < 2; ++again) {
            CHECK_REFUSED(devx_batch_stream_next(stream, &unwritten, &error), all[i].status, "row 3 is bad");
            CHECK_INT(error.driver_code, 7);
            CHECK(unwritten == UNWRITTEN);
        }
        CHECK_OK(devx_batch_stream_export(&stream, &exported, &error));
        const char *text = NULL;
        for (int again = 0; again < 2; ++again) {
            CHECK_INT(exported.get_next(&exported, &array), all[i].code);
            text = exported.get_last_error(&exported);
            CHECK_STR(text, "row 3 is bad");
        }
        CHECK_INT(exported.get_next(&exported, NULL), EINVAL);
        CHECK_STR(exported.get_last_error(&exported), "out is NULL");
        CHECK_STR(text, "row 3 is bad"); /* longer than it has to be */
        CHECK_INT(source->calls, 2);
        exported.release(&exported);
        CHECK_INT(exported.get_next(&exported, &array), EINVAL);
        CHECK(exported.get_last_error(&exported) == NULL);
        CHECK_INT(tally.releases, 2);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_source_that_says_nothing_has_its_status_told) {
    struct tally tally = {0};
    struct source *source = new_source(&tally, 0);
    devx_batch_t *batch = NULL;
    source->fails = DEVX_NOT_READY;
    devx_batch_stream_t *stream = stream_of(source);
    CHECK_REFUSED(devx_batch_stream_next(stream, &batch, &error), DEVX_NOT_READY, "DEVX_NOT_READY");
    CHECK_INT(error.driver_code, 0);
    devx_batch_stream_release(&stream);

    source = new_source(&tally, 0);
    source->fails = DEVX_DRIVER;
    source->code = 700;
    stream = stream_of(source);
    CHECK_REFUSED(devx_batch_stream_next(stream, &batch, &error), DEVX_DRIVER, "source.next returned DEVX_DRIVER");
    CHECK_INT(error.driver_code, 700);
    devx_batch_stream_release(&stream);
    CHECK_NOTHING_OUTSTANDING();
}

/* Each of these would otherwise be told as part of the error. */
TEST(what_a_source_says_while_it_succeeds_is_forgotten) {
    static const devx_error chatter[] = {{DEVX_OK, 0, "row 1 was odd"}, {DEVX_OK, 9, ""}, {DEVX_SYSTEM, 0, ""}};
    for (size_t i = 0; i < sizeof chatter / sizeof *chatter; ++i) {
        struct tally tally = {0};
        struct source *source = new_source(&tally, 1);
        devx_batch_t *batch = NULL;
        source->chatter = chatter[i];
        source->fails = DEVX_NOT_READY;
        devx_batch_stream_t *stream = stream_of(source);
        CHECK_MADE(stream);
        CHECK_OK(devx_batch_stream_next(stream, &batch, &error));
        devx_batch_release(&batch);
        CHECK_REFUSED(devx_batch_stream_next(stream, &batch, &error), DEVX_NOT_READY, "source.next returned DEVX_NOT_READY");
        CHECK_INT(error.driver_code, 0);
        devx_batch_stream_release(&stream);
        CHECK_INT(tally.releases, 2);
    }
    CHECK_NOTHING_OUTSTANDING();
}

static devx_status next_of_other_shape(void *context, devx_batch_t **out, devx_error *record) {
    devx_field const fields[] = {{"+s", "", NULL, 0, 1, 0}, {"f", "number", NULL, DEVX_FIELD_NULLABLE, 0, 0}};
    const void *const none[] = {NULL}, *const values[] = {NULL, NULL};
    devx_node const nodes[] = {{0, 0, 0, none, 1}, {0, 0, 0, values, 2}};
    devx_owner const owner = counting_owner((struct tally *)context);
    devx_schema_t *schema = NULL;
    devx_status status = devx_schema_create(fields, 2, &schema, record);
    if (status == DEVX_OK) {
        status = devx_batch_create(schema, cpu, nodes, 2, &owner, out, record);
    }
    devx_schema_release(&schema);
    return status;
}

TEST(a_batch_of_another_shape_is_refused_and_released) {
    struct tally tally = {0}, source_tally = {0};
    struct source *source = new_source(&source_tally, 0);
    devx_batch_source const raw = {&tally, next_of_other_shape, NULL};
    devx_batch_stream_t *stream = NULL;
    devx_batch_t *batch = UNWRITTEN;
    CHECK_OK(devx_batch_stream_create(source->schema, kDLCPU, &raw, &stream, &error));
    CHECK_REFUSED(devx_batch_stream_next(stream, &batch, &error), DEVX_MISMATCH,
                  "field \"number\": the format is \"f\"");
    CHECK(batch == UNWRITTEN);
    CHECK_INT(tally.releases, 1);
    devx_batch_stream_release(&stream);
    release_source(source);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(an_error_of_a_foreign_producer_is_never_the_end) {
    static struct {
        const char *says;
        const char *part;
    } const all[] = {{"the disk is gone", ": the disk is gone"}, {NULL, "get_next failed: "}, {"", "get_next failed: "},
                     {"\xff\xfe", "\xef\xbf\xbd"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        struct foreign_stream *own = new_foreign_stream(&tally, 1);
        struct ArrowArrayStream source = host_stream(own);
        devx_batch_stream_t *stream = NULL;
        devx_batch_t *batch = NULL, *unwritten = UNWRITTEN;
        struct ArrowArray array;
        own->fails = ENOSPC;
        own->says = all[i].says;
        CHECK_OK(devx_batch_stream_import(&source, &stream, &error));
        CHECK_OK(devx_batch_stream_next(stream, &batch, &error));
        for (int again = 0; again < 3; ++again) {
            CHECK_REFUSED(devx_batch_stream_next(stream, &unwritten, &error), DEVX_CALLBACK, all[i].part);
            CHECK(unwritten == UNWRITTEN);
        }
        CHECK_INT(own->calls, 2); /* not called again */
        devx_batch_release(&batch);
        /* Exported again, the stream fails with the producer's own code. */
        CHECK_OK(devx_batch_stream_export(&stream, &source, &error));
        CHECK_INT(source.get_next(&source, &array), ENOSPC);
        CHECK_HAS(source.get_last_error(&source), all[i].part);
        source.release(&source);
        CHECK_INT(tally.live, 0);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_malformed_array_is_released_and_named) {
    struct tally tally = {0};
    struct foreign_stream *own = new_foreign_stream(&tally, 1);
    struct ArrowDeviceArrayStream source = device_stream(own);
    devx_batch_stream_t *stream = NULL;
    devx_batch_t *batch = NULL;
    own->malformed = 1;
    CHECK_OK(devx_batch_stream_import_device(&source, &stream, &error));
    CHECK_OK(devx_batch_stream_next(stream, &batch, &error));
    devx_batch_release(&batch);
    int const live = tally.live;
    for (int again = 0; again < 2; ++again) {
        CHECK_REFUSED(devx_batch_stream_next(stream, &batch, &error), DEVX_INVALID_LENGTH,
                      "get_next: array \"number\": offset is -5");
        CHECK_INT(tally.live, live);
    }
    CHECK_INT(own->calls, 2);
    devx_batch_stream_release(&stream);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_refused_stream_is_untouched) {
    struct tally tally = {0};
    struct foreign_stream *own = new_foreign_stream(&tally, 1);
    struct ArrowDeviceArrayStream source = device_stream(own), before;
    struct ArrowArrayStream host = host_stream(own), released = {NULL, NULL, NULL, NULL, NULL};
    devx_batch_stream_t *stream = UNWRITTEN;
#define REFUSED(status, part)                                                                                          \
    do {                                                                                                               \
        before = source;                                                                                               \
        CHECK_REFUSED(devx_batch_stream_import_device(&source, &stream, &error), status, part);                        \
        CHECK(same_stream(&before, &source));                                                                          \
        CHECK(stream == UNWRITTEN);                                                                                    \
        CHECK_INT(tally.releases, 0);                                                                                  \
    } while (0)
    own->schema_fails = EACCES;
    REFUSED(DEVX_CALLBACK, "get_schema failed: ");
    REFUSED(DEVX_CALLBACK, "the disk is gone");
    own->schema_fails = 0;
    source.device_type = 99;
    REFUSED(DEVX_DEVICE, "device_type is 99");
    source.device_type = ARROW_DEVICE_CPU;
    source.get_schema = NULL;
    REFUSED(DEVX_NULL_ARGUMENT, "stream.get_schema is NULL");
    source.get_schema = device_schema;
    source.get_next = NULL;
    REFUSED(DEVX_NULL_ARGUMENT, "stream.get_next is NULL");
    source.get_next = device_next;
    source.get_last_error = NULL;
    REFUSED(DEVX_NULL_ARGUMENT, "stream.get_last_error is NULL");
#undef REFUSED
    CHECK_REFUSED(devx_batch_stream_import(&released, &stream, &error), DEVX_RELEASED, "stream.release is NULL");
    CHECK_REFUSED(devx_batch_stream_import(NULL, &stream, &error), DEVX_NULL_ARGUMENT, "stream is NULL");
    CHECK_REFUSED(devx_batch_stream_import_device(NULL, &stream, &error), DEVX_NULL_ARGUMENT, "stream is NULL");
    CHECK_REFUSED(devx_batch_stream_import(&host, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_batch_stream_import_device(&source, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK(stream == UNWRITTEN);
    CHECK_INT(own->schema_calls, 2);
    host.release(&host);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(arguments_that_are_missing_are_refused) {
    struct tally tally = {0};
    struct source *source = new_source(&tally, 1);
    devx_batch_source raw = {source, next_of_source, release_source};
    devx_batch_stream_t *stream = UNWRITTEN, *none = NULL;
    devx_batch_t *batch = UNWRITTEN;
    devx_schema_t *schema = UNWRITTEN;
    int32_t device_type = 77;
    CHECK_REFUSED(devx_batch_stream_create(NULL, kDLCPU, &raw, &stream, &error), DEVX_NULL_ARGUMENT, "schema");
    CHECK_REFUSED(devx_batch_stream_create(source->schema, kDLCPU, NULL, &stream, &error), DEVX_NULL_ARGUMENT,
                  "source is NULL");
    CHECK_REFUSED(devx_batch_stream_create(source->schema, kDLCPU, &raw, NULL, &error), DEVX_NULL_ARGUMENT, "out");
    CHECK_REFUSED(devx_batch_stream_create(source->schema, 10, &raw, &stream, &error), DEVX_DEVICE, "rocm (10)");
    raw.next = NULL;
    CHECK_REFUSED(devx_batch_stream_create(source->schema, kDLCPU, &raw, &stream, &error), DEVX_NULL_ARGUMENT,
                  "source.next is NULL");
    CHECK(stream == UNWRITTEN);
    CHECK_INT(tally.releases, 0); /* the source is the caller's as before */
    CHECK_INT(source->calls, 0);
    CHECK_REFUSED(devx_batch_stream_next(NULL, &batch, &error), DEVX_NULL_ARGUMENT, "stream");
    CHECK_REFUSED(devx_batch_stream_schema(NULL, &schema, &error), DEVX_NULL_ARGUMENT, "stream");
    CHECK_REFUSED(devx_batch_stream_device_type(NULL, &device_type, &error), DEVX_NULL_ARGUMENT, "stream");
    struct ArrowArrayStream exported;
    CHECK_REFUSED(devx_batch_stream_export(NULL, &exported, &error), DEVX_NULL_ARGUMENT, "stream");
    CHECK_REFUSED(devx_batch_stream_export(&none, &exported, &error), DEVX_NULL_ARGUMENT, "*stream is NULL");
    struct ArrowDeviceArrayStream with_device;
    CHECK_NEEDS(devx_batch_stream_export_device(NULL, &with_device, &error), "stream");
    CHECK_NEEDS(devx_batch_stream_export_device(&none, &with_device, &error), "*stream");
    stream = stream_of(source);
    CHECK_MADE(stream);
    CHECK_REFUSED(devx_batch_stream_next(stream, NULL, &error), DEVX_NULL_ARGUMENT, "out");
    CHECK_REFUSED(devx_batch_stream_schema(stream, NULL, &error), DEVX_NULL_ARGUMENT, "out");
    CHECK_REFUSED(devx_batch_stream_device_type(stream, NULL, &error), DEVX_NULL_ARGUMENT, "out");
    CHECK_REFUSED(devx_batch_stream_export(&stream, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_batch_stream_export_device(&stream, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK(stream != NULL);
    CHECK_INT(source->calls, 0); /* nothing was pulled by a call that could not give it */
    devx_batch_stream_release(&stream);
    devx_batch_stream_release(&stream);
    devx_batch_stream_release(NULL);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

static devx_status next_of_itself(void *context, devx_batch_t **out, devx_error *record) {
    devx_batch_stream_t *const *stream = (devx_batch_stream_t *const *)context;
    return devx_batch_stream_next(*stream, out, record) == DEVX_BUSY ? DEVX_OK : DEVX_PANIC;
}

TEST(a_call_within_a_call_is_refused) {
    struct tally tally = {0};
    struct source *source = new_source(&tally, 0);
    devx_batch_stream_t *stream = NULL;
    devx_batch_source const raw = {(void *)&stream, next_of_itself, NULL};
    devx_batch_t *batch = UNWRITTEN;
    CHECK_OK(devx_batch_stream_create(source->schema, kDLCPU, &raw, &stream, &error));
    CHECK_OK(devx_batch_stream_next(stream, &batch, &error));
    CHECK(batch == NULL);
    devx_batch_stream_release(&stream);
    release_source(source);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
