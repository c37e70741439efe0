/*
 * What a CUDA program beside this library does, with calls to the driver that the core has found: work on a stream, a
 * gate that holds a stream back, and the findings of the simulated driver. DeviceTest.java compiles it. Functions that
 * return int return the driver's code.
 */
#include <dlfcn.h>
#include <jni.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int open_gates, closed_gates;

/* A function of the driver; a program without a driver must not come here. */
static void *driver(const char *name) {
    static void *library;
    if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
    void *function = library == NULL ? NULL : dlsym(library, name);
    if (function == NULL) abort();
    return function;
}

#define DRIVER(name, ...) ((int (*)(__VA_ARGS__))(uintptr_t)driver(name))

/* Makes the primary context of a device current on this thread. */
JNIEXPORT jint JNICALL Java_dev_devexchange_DeviceScenario_useContext(JNIEnv *env, jclass class, jint device) {
    (void)env, (void)class;
    void *context = NULL;
    int code = DRIVER("cuInit", unsigned)(0);
    if (code == 0) code = DRIVER("cuDevicePrimaryCtxRetain", void **, int)(&context, device);
    return code != 0 ? code : DRIVER("cuCtxSetCurrent", void *)(context);
}

/* The current context. */
JNIEXPORT jlong JNICALL Java_dev_devexchange_DeviceScenario_context(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    void *context = NULL;
    DRIVER("cuCtxGetCurrent", void **)(&context);
    return (jlong)(intptr_t)context;
}

/* Pinned memory, made for the device whose context is current; 0 if there is no memory. */
JNIEXPORT jlong JNICALL Java_dev_devexchange_DeviceScenario_hostMemory(JNIEnv *env, jclass class, jlong bytes) {
    (void)env, (void)class;
    void *memory = NULL;
    int code = DRIVER("cuMemHostAlloc", void **, size_t, unsigned)(&memory, (size_t)bytes, 1);
    return code == 0 ? (jlong)(intptr_t)memory : 0;
}

JNIEXPORT jint JNICALL Java_dev_devexchange_DeviceScenario_freeHostMemory(JNIEnv *env, jclass class, jlong memory) {
    (void)env, (void)class;
    return DRIVER("cuMemFreeHost", void *)((void *)(intptr_t)memory);
}

/* Queues a copy within a device, which stands for a kernel that reads and writes. */
JNIEXPORT jint JNICALL Java_dev_devexchange_DeviceScenario_work(JNIEnv *env, jclass class, jlong to, jlong from, jlong bytes,
                                                              jlong stream) {
    (void)env, (void)class;
    return DRIVER("cuMemcpyAsync", uint64_t, uint64_t, size_t, void *)((uint64_t)to, (uint64_t)from, (size_t)bytes,
                                                                    (void *)(intptr_t)stream);
}

static void wait_at_gate(void *number) {
    pthread_mutex_lock(&lock);
    while (open_gates < (int)(intptr_t)number) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* Holds a stream back until the next gate is opened. */
JNIEXPORT jint JNICALL Java_dev_devexchange_DeviceScenario_closeGate(JNIEnv *env, jclass class, jlong stream) {
    (void)env, (void)class;
    return DRIVER("cuLaunchHostFunc", void *, void (*)(void *), void *)((void *)(intptr_t)stream, wait_at_gate,
                                                                         (void *)(intptr_t)++closed_gates);
}

JNIEXPORT void JNICALL Java_dev_devexchange_DeviceScenario_openGate(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    pthread_mutex_lock(&lock);
    open_gates = closed_gates;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* One of the numbers of simcuda_stat. */
JNIEXPORT jlong JNICALL Java_dev_devexchange_DeviceScenario_stat(JNIEnv *env, jclass class, jstring name) {
    (void)class;
    const char *text = (*env)->GetStringUTFChars(env, name, NULL);
    if (text == NULL) return -1;
    int64_t number = ((int64_t(*)(const char *))(uintptr_t)driver("simcuda_stat"))(text);
    (*env)->ReleaseStringUTFChars(env, name, text);
    return number;
}

/* The first finding, or null. */
JNIEXPORT jstring JNICALL Java_dev_devexchange_DeviceScenario_finding(JNIEnv *env, jclass class) {
    (void)class;
    char text[4096];
    if (((size_t(*)(void))(uintptr_t)driver("simcuda_findings"))() == 0) return NULL;
    ((size_t(*)(size_t, char *, size_t))(uintptr_t)driver("simcuda_finding"))(0, text, sizeof text);
    return (*env)->NewStringUTF(env, text);
}
