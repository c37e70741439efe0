/*
 * A C program that has a JVM inside, and releases when it should not: with an exception pending, and after the JVM is
 * gone, on its own thread and on one that is unknown to the JVM. EmbeddingTest.java compiles and runs it, with the
 * class path as argument.
 */
#include <dlpack/dlpack.h>
#include <jni.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct DLManagedTensorVersioned managed;

static int deleted;

static void delete_produced(managed *self) {
    (void)self;
    deleted += 1;
}

static double values[3];
static int64_t shape[1] = {3};

static managed produce(void) {
    managed made = {.version = {1, 0}, .deleter = delete_produced};
    made.dl_tensor = (DLTensor){values, {kDLCPU, 0}, 1, {kDLFloat, 64, 1}, shape, NULL, 0};
    return made;
}

static void must(int so, char const *what) {
    if (!so) {
        fprintf(stderr, "%s failed\n", what);
        _Exit(2);
    }
}

static void *release(void *address) {
    managed *taken = address;
    taken->deleter(taken);
    return NULL;
}

static void release_elsewhere(managed *taken) {
    pthread_t thread;
    must(pthread_create(&thread, NULL, release, taken) == 0, "pthread_create");
    must(pthread_join(thread, NULL) == 0, "pthread_join");
}

static JNIEnv *env;
static jclass inside;

static managed *call(char const *method, managed *argument) {
    jmethodID const found = (*env)->GetStaticMethodID(env, inside, method, "(J)J");
    must(found != NULL, method);
    jlong const result = (*env)->CallStaticLongMethod(env, inside, found, (jlong)(intptr_t)argument);
    if ((*env)->ExceptionCheck(env)) {
        (*env)->ExceptionDescribe(env);
        must(0, method);
    }
    return (managed *)(intptr_t)result;
}

static void release_with_an_exception_pending(void) {
    managed *own = call("lend", NULL);
    jclass const type = (*env)->FindClass(env, "java/lang/IllegalStateException");
    must((*env)->ThrowNew(env, type, "pending") == 0, "ThrowNew");
    release(own);
    must((*env)->ExceptionCheck(env), "the exception that was pending");
    (*env)->ExceptionClear(env);
    printf("released with an exception pending: %d\n", (int)(intptr_t)call("released", NULL));
}

int main(int argc, char **argv) {
    must(argc == 2, "the class path");
    size_t const room = 4096;
    char *path = malloc(room);
    must(path != NULL && snprintf(path, room, "-Djava.class.path=%s", argv[1]) < (int)room, "the class path");
    JavaVMOption options[] = {
        {path, NULL},
        {"-Xcheck:jni", NULL},
#ifdef JNI_VERSION_24 /* from here on, a JVM warns of native libraries that were not allowed */
        {"--enable-native-access=ALL-UNNAMED", NULL},
#endif
    };
    JavaVMInitArgs arguments = {JNI_VERSION_10, sizeof options / sizeof *options, options, JNI_FALSE};
    JavaVM *jvm;
    must(JNI_CreateJavaVM(&jvm, (void **)&env, &arguments) == JNI_OK, "JNI_CreateJavaVM");
    inside = (*env)->FindClass(env, "dev/devexchange/EmbeddingTest$Inside");
    must(inside != NULL, "FindClass");

    release_with_an_exception_pending();

    managed produced[2] = {produce(), produce()};
    managed *foreign[2] = {call("handOn", &produced[0]), call("handOn", &produced[1])};
    managed *own[2] = {call("lend", NULL), call("lend", NULL)};
    must((*jvm)->DestroyJavaVM(jvm) == JNI_OK, "DestroyJavaVM");

    release(foreign[0]);
    release_elsewhere(foreign[1]);
    printf("of a C producer, after the JVM: %d\n", deleted);
    /* Java's memory went with the JVM, or is left to the system; nothing is called. */
    release(own[0]);
    release_elsewhere(own[1]);
    free(path);
    printf("main is done\n");
    return 0;
}
