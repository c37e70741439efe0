/* A native library of another version, which answers the first question of the binding. */
#include <jni.h>

JNIEXPORT jstring JNICALL Java_dev_devexchange_Native_version(JNIEnv *env, jclass type) {
    (void)type;
    return (*env)->NewStringUTF(env, "99.0.0");
}
