/* The library of the corpus of bad input (tests/corpus) for Java, function by function; Corpus.java compiles this. */
#include <corpus.h>
#include <jni.h>

#define CALL(result, name) JNIEXPORT result JNICALL Java_dev_devexchange_Corpus_##name

static const char language[] = "java";

static jstring said(JNIEnv *env, const char *text) { return text == NULL ? NULL : (*env)->NewStringUTF(env, text); }

static corpus_made *of(jlong made) { return (corpus_made *)(intptr_t)made; }

CALL(jlong, count)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return corpus_count();
}

CALL(jlong, countForJava)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return corpus_count_for(language);
}

CALL(jboolean, isForJava)(JNIEnv *env, jclass class, jlong i) {
    (void)env, (void)class;
    return corpus_is_for(i, language) != 0;
}

CALL(jstring, text)(JNIEnv *env, jclass class, jlong i, jstring what) {
    (void)class;
    const char *name = (*env)->GetStringUTFChars(env, what, NULL);
    if (name == NULL) return NULL;
    const char *text = corpus_text(i, name);
    (*env)->ReleaseStringUTFChars(env, what, name);
    return said(env, text);
}

CALL(jlong, batches)(JNIEnv *env, jclass class, jlong i) {
    (void)env, (void)class;
    return corpus_batches(i);
}

CALL(jlong, make)(JNIEnv *env, jclass class, jlong i) {
    (void)env, (void)class;
    return (jlong)(intptr_t)corpus_make(i);
}

CALL(jlong, address)(JNIEnv *env, jclass class, jlong made) {
    (void)env, (void)class;
    return (jlong)(intptr_t)corpus_address(of(made));
}

CALL(jlong, schema)(JNIEnv *env, jclass class, jlong made) {
    (void)env, (void)class;
    return (jlong)(intptr_t)corpus_schema(of(made));
}

CALL(jstring, listens)(JNIEnv *env, jclass class, jlong made) {
    (void)class;
    return said(env, corpus_listens(of(made)));
}

CALL(void, drive)(JNIEnv *env, jclass class, jlong made, jlong handler) {
    (void)env, (void)class;
    corpus_drive(of(made), (struct ArrowAsyncDeviceStreamHandler *)(intptr_t)handler);
}

CALL(jstring, after)(JNIEnv *env, jclass class, jlong made, jboolean refused) {
    (void)class;
    return said(env, corpus_after(of(made), refused));
}

CALL(jstring, end)(JNIEnv *env, jclass class, jlong made) {
    (void)class;
    return said(env, corpus_end(of(made)));
}

CALL(jint, installFaults)(JNIEnv *env, jclass class, jstring library) {
    (void)class;
    const char *name = (*env)->GetStringUTFChars(env, library, NULL);
    if (name == NULL) return 0;
    jint const changed = corpus_fault_install(name);
    (*env)->ReleaseStringUTFChars(env, library, name);
    return changed;
}

CALL(void, arm)(JNIEnv *env, jclass class, jlong nth, jboolean from_then_on) {
    (void)env, (void)class;
    corpus_fault_arm(nth, from_then_on);
}

CALL(jlong, disarm)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return corpus_fault_disarm();
}

CALL(void, armCallback)(JNIEnv *env, jclass class, jlong nth, jint how) {
    (void)env, (void)class;
    corpus_callback_arm(nth, how);
}

CALL(jboolean, disarmCallback)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return corpus_callback_disarm() != 0;
}

CALL(jint, callbackStatus)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return corpus_callback_status();
}

CALL(jstring, callbackSays)(JNIEnv *env, jclass class) {
    (void)class;
    return said(env, corpus_callback_says());
}

CALL(jlong, consumerMake)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return (jlong)(intptr_t)corpus_consumer_make();
}

CALL(jlong, consumerHandler)(JNIEnv *env, jclass class, jlong consumer) {
    (void)env, (void)class;
    return (jlong)(intptr_t)corpus_consumer_handler((corpus_consumer *)(intptr_t)consumer);
}

CALL(jstring, consumerEnd)(JNIEnv *env, jclass class, jlong consumer) {
    (void)class;
    return said(env, corpus_consumer_end((corpus_consumer *)(intptr_t)consumer));
}
