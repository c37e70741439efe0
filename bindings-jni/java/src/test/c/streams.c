/*
 * Producers and consumers of streams in C, on threads that are unknown to the JVM; Streams.java compiles it. A batch is
 * an array of two int32: its number and the next one. Addresses are those of structs.
 */
#include <arrow/c/async.h>
#include <arrow/c/device_stream.h>
#include <arrow/c/stream.h>
#include <errno.h>
#include <jni.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define CALL(result, name) JNIEXPORT result JNICALL Java_dev_devexchange_Streams_##name

/* Arrays, schemas, streams and handlers of this side that are not released yet. */
static atomic_int live;

CALL(jint, all)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return atomic_load(&live);
}

/* The error text that the last consumer got. */
static char text[512];

CALL(jstring, text)(JNIEnv *env, jclass class) {
    (void)class;
    return (*env)->NewStringUTF(env, text);
}

static void keep_text(const char *said) { snprintf(text, sizeof text, "%s", said == NULL ? "" : said); }

/* The thread of the last call of an asynchronous producer's `cancel`, or of a handler's `on_error`. */
static char caller[16];

static void keep_caller(void) { prctl(PR_GET_NAME, caller); }

CALL(jstring, caller)(JNIEnv *env, jclass class) {
    (void)class;
    return (*env)->NewStringUTF(env, caller);
}

static void *make(size_t bytes) {
    void *made = calloc(1, bytes);
    if (made == NULL) abort();
    atomic_fetch_add(&live, 1);
    return made;
}

static void give_up(void *made) {
    free(made);
    atomic_fetch_sub(&live, 1);
}

static void start(void *(*body)(void *), void *context, pthread_t *thread) {
    if (pthread_create(thread, NULL, body, context) != 0) abort();
}

/* ---- batches ---- */

static void release_schema(struct ArrowSchema *self) {
    give_up(self->private_data);
    self->release = NULL;
}

static struct ArrowSchema int32_schema(void) {
    return (struct ArrowSchema){.format = "i", .name = "n", .release = release_schema, .private_data = make(1)};
}

typedef struct {
    const void *buffers[2];
    int32_t values[2];
} block;

static void release_array(struct ArrowArray *self) {
    give_up(self->private_data);
    self->release = NULL;
}

static struct ArrowArray int32_array(int number) {
    block *made = make(sizeof *made);
    made->values[0] = number, made->values[1] = number + 1;
    made->buffers[1] = made->values;
    return (struct ArrowArray){
        .length = 2, .n_buffers = 2, .buffers = made->buffers, .release = release_array, .private_data = made};
}

/* The sum of the values of an array, which is then given up. */
static int64_t take_sum(struct ArrowArray *array) {
    const int32_t *values = array->buffers[1];
    int64_t sum = 0;
    for (int64_t i = 0; i < array->length; i++) sum += values[array->offset + i];
    array->release(array);
    return sum;
}

/* ---- a producer that is pulled: a number of batches, with an error in place of number `fail_at` ---- */

typedef struct {
    int batches, fail_at, next;
    char error[64];
} plan;

static int give(plan *plan, struct ArrowArray *out) {
    int number = plan->next++;
    if (number == plan->fail_at) {
        snprintf(plan->error, sizeof plan->error, "no room for batch %d", number);
        return ENOSPC;
    }
    *out = number < plan->batches ? int32_array(number) : (struct ArrowArray){0};
    return 0;
}

static int host_schema(struct ArrowArrayStream *self, struct ArrowSchema *out) {
    (void)self;
    *out = int32_schema();
    return 0;
}

static int host_next(struct ArrowArrayStream *self, struct ArrowArray *out) { return give(self->private_data, out); }

static const char *host_error(struct ArrowArrayStream *self) { return ((plan *)self->private_data)->error; }

static void host_release(struct ArrowArrayStream *self) {
    give_up(self->private_data);
    self->release = NULL;
}

static int device_schema(struct ArrowDeviceArrayStream *self, struct ArrowSchema *out) {
    (void)self;
    *out = int32_schema();
    return 0;
}

static int device_next(struct ArrowDeviceArrayStream *self, struct ArrowDeviceArray *out) {
    *out = (struct ArrowDeviceArray){.device_id = -1, .device_type = ARROW_DEVICE_CPU};
    return give(self->private_data, &out->array);
}

static const char *device_error(struct ArrowDeviceArrayStream *self) { return ((plan *)self->private_data)->error; }

static void device_release(struct ArrowDeviceArrayStream *self) {
    give_up(self->private_data);
    self->release = NULL;
}

CALL(void, produce)(JNIEnv *env, jclass class, jlong address, jboolean device, jint batches, jint fail_at) {
    (void)env, (void)class;
    plan *made = make(sizeof *made);
    *made = (plan){.batches = batches, .fail_at = fail_at};
    if (device) {
        *(struct ArrowDeviceArrayStream *)(intptr_t)address = (struct ArrowDeviceArrayStream){
            .device_type = ARROW_DEVICE_CPU, .get_schema = device_schema, .get_next = device_next,
            .get_last_error = device_error, .release = device_release, .private_data = made};
    } else {
        *(struct ArrowArrayStream *)(intptr_t)address = (struct ArrowArrayStream){
            .get_schema = host_schema, .get_next = host_next, .get_last_error = host_error, .release = host_release,
            .private_data = made};
    }
}

/* ---- a consumer that pulls, on its own thread ---- */

/* Either stream, moved from where it was. */
typedef struct {
    struct ArrowArrayStream host;
    struct ArrowDeviceArrayStream device;
    int most;
    int64_t result;
} pull;

static int pull_next(pull *pull, struct ArrowArray *out) {
    if (pull->host.release != NULL) return pull->host.get_next(&pull->host, out);
    struct ArrowDeviceArray next;
    int code = pull->device.get_next(&pull->device, &next);
    *out = next.array;
    return code;
}

static void *pull_all(void *context) {
    pull *pull = context;
    for (int i = 0; i < pull->most; i++) {
        struct ArrowArray next = {0};
        int code = pull_next(pull, &next);
        if (code != 0) {
            int host = pull->host.release != NULL;
            keep_text(host ? pull->host.get_last_error(&pull->host) : pull->device.get_last_error(&pull->device));
            /* A second call gives the same error. */
            pull->result = pull_next(pull, &next) == code ? -code : -9999;
            break;
        }
        if (next.release == NULL) break;
        pull->result += take_sum(&next);
    }
    if (pull->host.release != NULL) pull->host.release(&pull->host);
    if (pull->device.release != NULL) pull->device.release(&pull->device);
    return NULL;
}

static pull *pull_of(jlong address, jboolean device, jint most) {
    pull *made = make(sizeof *made);
    made->most = most;
    if (device) {
        struct ArrowDeviceArrayStream *source = (void *)(intptr_t)address;
        made->device = *source;
        source->release = NULL;
    } else {
        struct ArrowArrayStream *source = (void *)(intptr_t)address;
        made->host = *source;
        source->release = NULL;
    }
    return made;
}

/*
 * Takes at most `most` batches and releases the stream; returns the sum of all values, or minus the code of an error.
 */
CALL(jlong, consume)(JNIEnv *env, jclass class, jlong address, jboolean device, jint most) {
    (void)env, (void)class;
    pull *made = pull_of(address, device, most);
    pthread_t thread;
    start(pull_all, made, &thread);
    pthread_join(thread, NULL);
    int64_t result = made->result;
    give_up(made);
    return result;
}

static pull *at_exit;

static void pull_at_exit(void) {
    pull_all(at_exit);
    printf("%lld: %s\n", (long long)at_exit->result, text);
    fflush(stdout);
}

/* Takes all batches when the process exits, after the JVM has ended. */
CALL(jboolean, consumeAtExit)(JNIEnv *env, jclass class, jlong address) {
    (void)env, (void)class;
    at_exit = pull_of(address, JNI_FALSE, 1 << 30);
    return atexit(pull_at_exit) == 0 ? JNI_TRUE : JNI_FALSE;
}

/* ---- an asynchronous producer, on its own thread ---- */

typedef struct {
    struct ArrowAsyncProducer producer;
    struct ArrowAsyncDeviceStreamHandler *handler;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t requested;
    int cancelled;
    plan plan;
} source;

static void source_request(struct ArrowAsyncProducer *self, int64_t n) {
    source *source = self->private_data;
    pthread_mutex_lock(&source->lock);
    source->requested += n;
    pthread_cond_signal(&source->changed);
    pthread_mutex_unlock(&source->lock);
}

static void source_cancel(struct ArrowAsyncProducer *self) {
    keep_caller();
    source *source = self->private_data;
    pthread_mutex_lock(&source->lock);
    source->cancelled = 1;
    pthread_cond_signal(&source->changed);
    pthread_mutex_unlock(&source->lock);
}

/* Whether taking the data of a task, or releasing an array, waits, and how many threads wait. */
static atomic_int gate, at_gate;

static void wait_at_gate(void) {
    atomic_fetch_add(&at_gate, 1);
    while (atomic_load(&gate)) sched_yield();
    atomic_fetch_sub(&at_gate, 1);
}

CALL(void, setGate)(JNIEnv *env, jclass class, jboolean shut) {
    (void)env, (void)class;
    atomic_store(&gate, shut);
}

CALL(jboolean, isAtGate)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return atomic_load(&at_gate) ? JNI_TRUE : JNI_FALSE;
}

/* Counts every call, so that one call too many shows. */
static void release_at_gate(struct ArrowArray *self) {
    wait_at_gate();
    atomic_fetch_sub(&live, 1);
    self->release = NULL;
}

CALL(void, holdArray)(JNIEnv *env, jclass class, jlong address) {
    (void)env, (void)class;
    atomic_fetch_add(&live, 1);
    *(struct ArrowArray *)address = (struct ArrowArray){.release = release_at_gate};
}

/* A consumer that does not want the array passes NULL. */
static int extract(struct ArrowAsyncTask *self, struct ArrowDeviceArray *out) {
    atomic_fetch_sub(&live, 1);
    if (out == NULL) return 0;
    wait_at_gate();
    *out = (struct ArrowDeviceArray){.device_id = -1, .device_type = ARROW_DEVICE_CPU};
    out->array = int32_array((int)(intptr_t)self->private_data);
    return 0;
}

/* Metadata with one pair, "k" and the last digit of a number. */
static const char *pair(int number, char block[14]) {
    int32_t one = 1;
    memcpy(block, &one, 4), memcpy(block + 4, &one, 4), memcpy(block + 9, &one, 4);
    block[8] = 'k', block[13] = (char)('0' + number % 10);
    return block;
}

static void *send_all(void *context) {
    source *source = context;
    struct ArrowAsyncDeviceStreamHandler *handler = source->handler;
    struct ArrowSchema schema = int32_schema();
    int code = handler->on_schema(handler, &schema);
    if (schema.release != NULL) schema.release(&schema);
    char block[14];
    for (int number = 0, over = code != 0; !over; number++) {
        pthread_mutex_lock(&source->lock);
        while (source->requested == 0 && !source->cancelled) pthread_cond_wait(&source->changed, &source->lock);
        over = source->cancelled;
        source->requested--;
        pthread_mutex_unlock(&source->lock);
        if (over) break;
        if (number == source->plan.fail_at) {
            /* 0 is no `errno`, but still an error. */
            handler->on_error(handler, number == 0 ? 0 : ENOSPC, "no room", pair(number, block));
            over = 1;
        } else if (number == source->plan.batches) {
            handler->on_next_task(handler, NULL, NULL);
            over = 1;
        } else {
            atomic_fetch_add(&live, 1);
            struct ArrowAsyncTask task = {.extract_data = extract, .private_data = (void *)(intptr_t)number};
            over = handler->on_next_task(handler, &task, pair(number, block)) != 0;
        }
    }
    handler->release(handler);
    pthread_mutex_destroy(&source->lock);
    pthread_cond_destroy(&source->changed);
    give_up(source);
    return NULL;
}

/* Gives a handler batches with metadata. The end, like a batch, has to be requested here. */
CALL(void, produceAsync)(JNIEnv *env, jclass class, jlong handler, jint batches, jint fail_at) {
    (void)env, (void)class;
    source *made = make(sizeof *made);
    made->producer = (struct ArrowAsyncProducer){
        .device_type = ARROW_DEVICE_CPU, .request = source_request, .cancel = source_cancel, .private_data = made};
    made->plan = (plan){.batches = batches, .fail_at = fail_at};
    made->handler = (void *)(intptr_t)handler;
    made->handler->producer = &made->producer;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    pthread_t thread;
    start(send_all, made, &thread);
    pthread_detach(thread);
}

/* ---- an asynchronous consumer ---- */

/* Takes batches, one at a time; refuses number `refuse_at`, and cancels after number `cancel_at`. */
typedef struct {
    struct ArrowAsyncDeviceStreamHandler handler;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int taken, refuse_at, cancel_at, released;
    int64_t result;
} sink;

static int sink_schema(struct ArrowAsyncDeviceStreamHandler *self, struct ArrowSchema *schema) {
    sink *sink = self->private_data;
    schema->release(schema);
    if (sink->refuse_at < 0) return EPERM;
    self->producer->request(self->producer, 1);
    return 0;
}

static int sink_next(struct ArrowAsyncDeviceStreamHandler *self, struct ArrowAsyncTask *task, const char *metadata) {
    (void)metadata;
    sink *sink = self->private_data;
    if (task == NULL) return 0;
    int number = sink->taken++;
    if (number == sink->refuse_at) return EPERM;
    struct ArrowDeviceArray next;
    int code = task->extract_data(task, &next);
    if (code != 0) return code;
    sink->result += take_sum(&next.array);
    if (number == sink->cancel_at) {
        self->producer->cancel(self->producer);
    } else {
        self->producer->request(self->producer, 1);
    }
    return 0;
}

static JavaVM *jvm;
static jclass streams;

/* Same as `sink_next`, but calls Java first, and then keeps the first key of the metadata as the text. */
static int sink_next_in_java(struct ArrowAsyncDeviceStreamHandler *self, struct ArrowAsyncTask *task,
                             const char *metadata) {
    JNIEnv *env;
    if ((*jvm)->GetEnv(jvm, (void **)&env, JNI_VERSION_10) != JNI_OK) return EPERM;
    jmethodID asked = (*env)->GetStaticMethodID(env, streams, "asked", "()V");
    if (asked != NULL) (*env)->CallStaticVoidMethod(env, streams, asked);
    if ((*env)->ExceptionCheck(env)) return EPERM;
    if (metadata != NULL) {
        int32_t length;
        memcpy(&length, metadata + 4, 4);
        snprintf(text, sizeof text, "%.*s", (int)length, metadata + 8);
    }
    return sink_next(self, task, metadata);
}

static void sink_error(struct ArrowAsyncDeviceStreamHandler *self, int code, const char *message,
                       const char *metadata) {
    (void)metadata;
    keep_caller();
    keep_text(message);
    ((sink *)self->private_data)->result = -code;
}

static void sink_release(struct ArrowAsyncDeviceStreamHandler *self) {
    sink *sink = self->private_data;
    self->release = NULL;
    pthread_mutex_lock(&sink->lock);
    sink->released = 1;
    pthread_cond_signal(&sink->changed);
    pthread_mutex_unlock(&sink->lock);
}

/* Makes a handler, which `awaitSink` waits for and frees. A negative `refuse_at` refuses the schema. */
CALL(jlong, sink)(JNIEnv *env, jclass class, jint refuse_at, jint cancel_at) {
    (void)env, (void)class;
    sink *made = make(sizeof *made);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->refuse_at = refuse_at, made->cancel_at = cancel_at;
    made->handler = (struct ArrowAsyncDeviceStreamHandler){
        .on_schema = sink_schema, .on_next_task = sink_next, .on_error = sink_error, .release = sink_release,
        .private_data = made};
    return (jlong)(intptr_t)&made->handler;
}

/* Same as `sink`, for a consumer that is written in Java: it calls Java before it reads the metadata of a batch. */
CALL(jlong, sinkInJava)(JNIEnv *env, jclass class) {
    (*env)->GetJavaVM(env, &jvm);
    streams = (*env)->NewGlobalRef(env, class);
    jlong made = Java_dev_devexchange_Streams_sink(env, class, 1 << 30, 1 << 30);
    ((struct ArrowAsyncDeviceStreamHandler *)(intptr_t)made)->on_next_task = sink_next_in_java;
    return made;
}

/* Waits for the release; returns the sum of all values, or minus the code of an error. */
CALL(jlong, awaitSink)(JNIEnv *env, jclass class, jlong handler) {
    (void)env, (void)class;
    sink *sink = ((struct ArrowAsyncDeviceStreamHandler *)(intptr_t)handler)->private_data;
    pthread_mutex_lock(&sink->lock);
    while (!sink->released) pthread_cond_wait(&sink->changed, &sink->lock);
    pthread_mutex_unlock(&sink->lock);
    int64_t result = sink->result;
    pthread_mutex_destroy(&sink->lock);
    pthread_cond_destroy(&sink->changed);
    give_up(sink);
    return result;
}
