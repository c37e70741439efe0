/* What a test does that cannot be done in Python. It needs no headers of Python's. */

#include <pthread.h>
#include <stdint.h>
#include <stddef.h>

extern void PyErr_SetString(void *type, const char *text);
extern void *PyExc_KeyError;

/* ---- a producer that answers as it was told ---- */

int answer_code, answer_raises, stream_code, stream_raises;
void *answer_tensor, *answer_stream;
int answer_calls, stream_calls;

static int answer(int code, int raises, void *value, void **out) {
  if (raises) PyErr_SetString(PyExc_KeyError, "the producer's own");
  *out = value;
  return code;
}

int answer_from_object(void *object, void **out) {
  (void)object;
  answer_calls++;
  return answer(answer_code, answer_raises, answer_tensor, out);
}

/* As a consumer, who may call the deleter, the third word of the struct, before it answers. */
int answer_deletes;

int answer_to_object(void **tensor, void **out) {
  answer_calls++;
  if (answer_deletes) ((void (*)(void **))tensor[2])(tensor);
  return answer(answer_code, answer_raises, NULL, out);
}

int answer_work_stream(int32_t kind, int32_t id, void **out) {
  (void)kind, (void)id;
  stream_calls++;
  return answer(stream_code, stream_raises, answer_stream, out);
}

/* ---- releases on threads of the C library's ---- */

typedef void release_function(void *);
struct releases {
  release_function *release;
  void **things;
  size_t n;
};

static void *release_all(void *argument) {
  struct releases *all = argument;
  for (size_t i = 0; i < all->n; i++) all->release(all->things[i]);
  return NULL;
}

/* Calls `release` for each of them on `threads` threads that Python has never seen. */
int release_on_threads(release_function *release, void **things, size_t n, size_t threads) {
  pthread_t thread[16];
  struct releases part[16];
  if (threads == 0 || threads > 16) return -1;
  for (size_t i = 0; i < threads; i++) {
    size_t from = n * i / threads, to = n * (i + 1) / threads;
    part[i] = (struct releases){release, things + from, to - from};
    if (pthread_create(&thread[i], NULL, release_all, &part[i]) != 0) return -1;
  }
  for (size_t i = 0; i < threads; i++) pthread_join(thread[i], NULL);
  return 0;
}
