/* Two threads pass the library the same output, so the library writes it from both. If the library was built with the
 * thread sanitizer, the sanitizer must report the race. */
#define _POSIX_C_SOURCE 200809L /* barriers */
#include <devexchange.h>
#include <pthread.h>
#include <stdio.h>

static devx_tensor_t *place;
static pthread_barrier_t both;

static void *write_there(void *unused) {
    static float values[3];
    int64_t shape[1] = {3};
    devx_error error;
    DLTensor const description = {values, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
    (void)unused;
    /* The calls must overlap, because the library's own synchronization may order calls that do not. */
    pthread_barrier_wait(&both);
    for (int i = 0; i < 200000; ++i) devx_tensor_create(&description, 0, NULL, &place, &error);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    if (pthread_barrier_init(&both, NULL, 2) != 0) return 0;
    for (int i = 0; i < 2; ++i) {
        if (pthread_create(&threads[i], NULL, write_there, NULL) != 0) return 0;
    }
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    printf("%p\n", (void *)place);
    return 0;
}
