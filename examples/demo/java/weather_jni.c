/* libweather for Java: each function converts its arguments, calls a function of weather.h, and throws an exception if it
 * fails. */
#include "Weather.h" /* written by javac -h: the compiler compares its declarations with the definitions here */

#include <stddef.h>
#include <weather.h>

static void *pointer(jlong address) {
    return (void *)(intptr_t)address;
}

static jlong address_of(const void *pointer) {
    return (jlong)(intptr_t)pointer;
}

static void check(JNIEnv *env, int failed) {
    if (failed != 0) {
        jclass exception = (*env)->FindClass(env, "java/lang/IllegalStateException");
        if (exception != NULL) {
            (*env)->ThrowNew(env, exception, weather_error());
        }
    }
}

JNIEXPORT jlong JNICALL Java_Weather_open(JNIEnv *env, jclass class, jstring directory) {
    (void)class;
    weather *opened = NULL;
    const char *path = (*env)->GetStringUTFChars(env, directory, NULL);
    if (path != NULL) {
        int failed = weather_open(path, &opened);
        (*env)->ReleaseStringUTFChars(env, directory, path);
        check(env, failed);
    }
    return address_of(opened);
}

JNIEXPORT void JNICALL Java_Weather_close(JNIEnv *env, jclass class, jlong handle) {
    (void)env, (void)class;
    weather_close(pointer(handle));
}

JNIEXPORT void JNICALL Java_Weather_useDevice(JNIEnv *env, jclass class, jlong handle, jint type, jint id) {
    (void)class;
    DLDevice const device = {type, id};
    check(env, weather_use_device(pointer(handle), device));
}

JNIEXPORT void JNICALL Java_Weather_airports(JNIEnv *env, jclass class, jlong handle, jlong array, jlong schema) {
    (void)class;
    check(env, weather_airports(pointer(handle), pointer(array), pointer(schema)));
}

JNIEXPORT void JNICALL Java_Weather_days(JNIEnv *env, jclass class, jlong handle, jlong array, jlong schema) {
    (void)class;
    check(env, weather_days(pointer(handle), pointer(array), pointer(schema)));
}

JNIEXPORT jlong JNICALL Java_Weather_measurements(JNIEnv *env, jclass class, jlong handle, jlong stream) {
    (void)class;
    struct DLManagedTensorVersioned *tensor = NULL;
    check(env, weather_measurements(pointer(handle), stream, &tensor));
    return address_of(tensor);
}

JNIEXPORT jlong JNICALL Java_Weather_address(JNIEnv *env, jclass class, jlong handle, jstring what) {
    (void)class;
    const char *name = (*env)->GetStringUTFChars(env, what, NULL);
    if (name == NULL) {
        return 0;
    }
    const void *address = weather_address(pointer(handle), name);
    (*env)->ReleaseStringUTFChars(env, what, name);
    return address_of(address);
}

JNIEXPORT void JNICALL Java_Weather_checkMeans(JNIEnv *env, jclass class, jlong handle, jlong tensor, jlong stream) {
    (void)class;
    check(env, weather_check_means(pointer(handle), pointer(tensor), stream));
}

JNIEXPORT jlong JNICALL Java_Weather_liveBuffers(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return weather_live_buffers();
}

JNIEXPORT jlong JNICALL Java_Weather_outstanding(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return weather_outstanding();
}
