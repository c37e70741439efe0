/* The functions of ours.h as native methods of Java's class Ours; addresses are of type long. */
#include <jni.h>

#include <string>

#include "ours.h"

namespace {

std::string text(JNIEnv *env, jstring from) {
  const char *bytes = env->GetStringUTFChars(from, nullptr);
  std::string out = bytes == nullptr ? "" : bytes;
  env->ReleaseStringUTFChars(from, bytes);
  return out;
}

template <typename T>
T *at(jlong address) {
  return reinterpret_cast<T *>(address);
}

}  // namespace

extern "C" {

JNIEXPORT jlong JNICALL Java_Ours_open(JNIEnv *env, jclass, jstring corpus, jstring name, jstring layout) {
  return reinterpret_cast<jlong>(
      ours_open(text(env, corpus).c_str(), text(env, name).c_str(), text(env, layout).c_str()));
}

JNIEXPORT void JNICALL Java_Ours_close(JNIEnv *, jclass, jlong it) { ours_close(at<ours_case>(it)); }

/* Returns bytes, because JNI makes strings from modified UTF-8 only. */
JNIEXPORT jbyteArray JNICALL Java_Ours_why(JNIEnv *env, jclass, jlong it) {
  const std::string why = ours_why(at<ours_case>(it));
  jbyteArray out = env->NewByteArray(static_cast<jsize>(why.size()));
  if (out != nullptr)
    env->SetByteArrayRegion(out, 0, static_cast<jsize>(why.size()), reinterpret_cast<const jbyte *>(why.data()));
  return out;
}

JNIEXPORT jboolean JNICALL Java_Ours_give(JNIEnv *, jclass, jlong it, jlong array, jlong schema) {
  return ours_give(at<ours_case>(it), at<ArrowArray>(array), at<ArrowSchema>(schema)) != 0;
}

JNIEXPORT jboolean JNICALL Java_Ours_take(JNIEnv *, jclass, jlong it, jlong first, jlong count, jlong array,
                                          jlong schema) {
  return ours_take(at<ours_case>(it), first, count, at<ArrowArray>(array), at<ArrowSchema>(schema)) != 0;
}

JNIEXPORT jboolean JNICALL Java_Ours_giveStream(JNIEnv *, jclass, jlong it, jint n, jlong stream) {
  return ours_give_stream(at<ours_case>(it), n, at<ArrowArrayStream>(stream)) != 0;
}

JNIEXPORT jboolean JNICALL Java_Ours_takeStream(JNIEnv *, jclass, jlong it, jint n, jlong stream) {
  return ours_take_stream(at<ours_case>(it), n, at<ArrowArrayStream>(stream)) != 0;
}

JNIEXPORT jlong JNICALL Java_Ours_outstanding(JNIEnv *, jclass) { return ours_outstanding(); }

}  // extern "C"
