/*
 * What only a native program can do to the binding: threads that are unknown to the JVM, a producer with its own
 * deleter, a release at exit. ForeignTest.java compiles it; its native methods take and return addresses.
 */
#include <devexchange/cuda_array.h>
#include <jni.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* DLPack 1, as far as it is needed here. */
typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor;

typedef struct managed {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(struct managed *);
    uint64_t flags;
    tensor dl_tensor;
} managed;

typedef struct {
    managed managed;
    int64_t shape[1];
    double values[3];
} produced;

static atomic_int deleted;

static void delete_produced(managed *self) {
    atomic_fetch_add(&deleted, 1);
    free(self->manager_ctx);
}

JNIEXPORT jlong JNICALL Java_dev_devexchange_ForeignTest_produce(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    produced *made = calloc(1, sizeof *made);
    if (made == NULL) return 0;
    for (int i = 0; i < 3; i++) made->values[i] = i + 0.5;
    made->shape[0] = 3;
    made->managed = (managed){.major = 1, .minor = 0, .manager_ctx = made, .deleter = delete_produced};
    made->managed.dl_tensor =
        (tensor){.data = made->values, .device_type = 1, .ndim = 1, .code = 2, .bits = 64, .lanes = 1, .shape = made->shape};
    return (jlong)(intptr_t)&made->managed;
}

static void release_array(devx_cuda_array *self) {
    atomic_fetch_add(&deleted, 1);
    free(self->private_data);
    self->release = NULL;
}

/* An array of version 3 without elements, in a struct that a later call overwrites. */
JNIEXPORT jlong JNICALL Java_dev_devexchange_ForeignTest_produceCudaArray(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    static devx_cuda_array arrays[4];
    static int made;
    devx_cuda_array *array = &arrays[made++ % 4];
    int64_t *shape = calloc(2, sizeof *shape);
    if (shape == NULL) return 0;
    shape[0] = 3;
    *array = (devx_cuda_array){.version = DEVX_CUDA_ARRAY_VERSION,
                               .ndim = 2,
                               .shape = shape,
                               .typestr = "<f4",
                               .stream = DEVX_CUDA_ARRAY_NO_STREAM,
                               .release = release_array,
                               .private_data = shape};
    return (jlong)(intptr_t)array;
}

JNIEXPORT jint JNICALL Java_dev_devexchange_ForeignTest_deleted(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return atomic_load(&deleted);
}

static void *consume(void *address) {
    managed *taken = address;
    if (taken->deleter != NULL) taken->deleter(taken);
    return NULL;
}

/* Deletes a tensor on a separate thread, and waits for it. */
JNIEXPORT jboolean JNICALL Java_dev_devexchange_ForeignTest_deleteElsewhere(JNIEnv *env, jclass class, jlong address) {
    (void)env, (void)class;
    pthread_t thread;
    if (pthread_create(&thread, NULL, consume, (void *)(intptr_t)address) != 0) return JNI_FALSE;
    return pthread_join(thread, NULL) == 0 ? JNI_TRUE : JNI_FALSE;
}

static managed *kept;

static void delete_kept(void) { consume(kept); }

/* Deletes a tensor when the process exits, after the JVM has ended. */
JNIEXPORT jboolean JNICALL Java_dev_devexchange_ForeignTest_deleteAtExit(JNIEnv *env, jclass class, jlong address) {
    (void)env, (void)class;
    kept = (managed *)(intptr_t)address;
    return atexit(delete_kept) == 0 ? JNI_TRUE : JNI_FALSE;
}

static void *hold(void *address) {
    (void)address;
    for (;;) pthread_testcancel();
    return NULL;
}

/* A thread that never ends and that has released something before. */
static void *consume_and_hold(void *address) {
    consume(address);
    return hold(address);
}

JNIEXPORT jboolean JNICALL Java_dev_devexchange_ForeignTest_deleteOnAThreadThatStays(JNIEnv *env, jclass class, jlong address) {
    (void)env, (void)class;
    pthread_t thread;
    return pthread_create(&thread, NULL, consume_and_hold, (void *)(intptr_t)address) == 0 ? JNI_TRUE : JNI_FALSE;
}

/* A direct buffer of 0 bytes at NULL. */
JNIEXPORT jobject JNICALL Java_dev_devexchange_ForeignTest_nothing(JNIEnv *env, jclass class) {
    (void)class;
    return (*env)->NewDirectByteBuffer(env, NULL, 0);
}
