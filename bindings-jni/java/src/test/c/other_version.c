/* What the binding asks a native library first, answered by one of another version. */
#include <jni.h>

JNIEXPORT jstring JNICALL Java_dev_devexchange_Native_version(JNIEnv *env, jclass type) {
    (void)type;
    return (*env)->NewStringUTF(env, "99.0.0");
}
