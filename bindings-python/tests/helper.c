/* Parts of tests that cannot be written in Python. Needs no Python headers. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stddef.h>
#include <time.h>

extern void PyErr_SetString(void *type, const char *text);
extern void *PyExc_KeyError, *PyExc_KeyboardInterrupt;
extern int PyGILState_Ensure(void);
extern void PyGILState_Release(int state);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *state);
extern int Py_AddPendingCall(int (*call)(void *), void *argument);

/* ---- a producer whose answers a test sets ---- */

int answer_code, answer_raises, stream_code, stream_raises;
void *answer_tensor, *answer_stream;
int answer_calls, stream_calls;

static int answer(int code, int raises, void *value, void **out) {
  if (raises) PyErr_SetString(raises == 1 ? PyExc_KeyError : PyExc_KeyboardInterrupt, "the producer's own");
  *out = value;
  return code;
}

int answer_from_object(void *object, void **out) {
  (void)object;
  answer_calls++;
  return answer(answer_code, answer_raises, answer_tensor, out);
}

/* A consumer, which may call back, and call the deleter, the third word of the struct, before it answers. */
int answer_deletes;
void (*answer_first)(void);

int answer_to_object(void **tensor, void **out) {
  answer_calls++;
  if (answer_first != NULL) answer_first();
  if (answer_deletes) ((void (*)(void **))tensor[2])(tensor);
  return answer(answer_code, answer_raises, NULL, out);
}

int answer_work_stream(int32_t kind, int32_t id, void **out) {
  (void)kind, (void)id;
  stream_calls++;
  return answer(stream_code, stream_raises, answer_stream, out);
}

/* ---- a consumer that asks without the GIL ---- */

int ask_work_stream(int (*ask)(int32_t, int32_t, void **), int32_t kind, int32_t id, void **out) {
  void *state = PyEval_SaveThread();
  int code = ask(kind, id, out);
  PyEval_RestoreThread(state);
  return code;
}

/* ---- releases on threads of the C library ---- */

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

/* Calls `release` for each item on `threads` threads that Python has never seen. */
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

/* ---- another library that has the main thread call it ---- */

static pthread_t asking;
static atomic_int asks;

static int do_nothing(void *argument) {
  (void)argument;
  return 0;
}

static void *ask_for_calls(void *argument) {
  while (asks) Py_AddPendingCall(do_nothing, NULL);
  return argument;
}

int begin_to_ask_for_calls(void) {
  asks = 1;
  return pthread_create(&asking, NULL, ask_for_calls, NULL);
}

void end_to_ask_for_calls(void) {
  asks = 0;
  pthread_join(asking, NULL);
}

/* ---- calls of a thread that ends ---- */

static pthread_key_t ending;
static void (*call_late)(void);

static void call_again(void *argument) {
  (void)argument;
  call_late();
}

static void *call_twice(void *argument) {
  call_late();
  /* The destructors of thread-local variables run before those of such keys. */
  pthread_setspecific(ending, &ending);
  return argument;
}

/* Calls a function on a thread, and again while that thread ends. */
int call_at_the_end_of_a_thread(void (*call)(void)) {
  pthread_t thread;
  call_late = call;
  if (pthread_key_create(&ending, call_again) != 0 || pthread_create(&thread, NULL, call_twice, NULL) != 0) return -1;
  pthread_join(thread, NULL);
  return pthread_key_delete(ending);
}

/* ---- an ArrowArrayStream whose producer waits for its own thread, which runs Python ---- */

struct stream {
  int (*get_schema)(struct stream *, void *);
  int (*get_next)(struct stream *, void *);
  const char *(*get_last_error)(struct stream *);
  void (*release)(struct stream *);
  void *private_data;
};
static struct stream inner;
int stream_waits, stream_waits_in_vain;

static void *run_python(void *argument) {
  PyGILState_Release(PyGILState_Ensure());
  return argument;
}

/* Serves as any callback of an asynchronous stream that takes nothing. */
int wait_for_python(void) {
  pthread_t thread;
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 3;
  stream_waits++;
  if (pthread_create(&thread, NULL, run_python, NULL) != 0) stream_waits_in_vain++;
  else if (pthread_timedjoin_np(thread, NULL, &end) != 0) {
    stream_waits_in_vain++;
    pthread_detach(thread);
  }
  return 0;
}

/* Releases an `ArrowSchema`. */
int wait_and_take_schema(void *handler, void **schema) {
  (void)handler;
  ((void (*)(void *))schema[7])(schema);
  return wait_for_python();
}

/* Drops the batch of an `ArrowAsyncTask`. */
int wait_and_take_task(void *handler, void **task) {
  (void)handler;
  if (task) ((int (*)(void *, void *))task[0])(task, NULL);
  return wait_for_python();
}

static int get_schema(struct stream *stream, void *out) {
  wait_for_python();
  return inner.get_schema(stream, out);
}

static int get_next(struct stream *stream, void *out) {
  wait_for_python();
  return inner.get_next(stream, out);
}

static void release(struct stream *stream) {
  wait_for_python();
  inner.release(stream);
}

void make_stream_wait(struct stream *stream) {
  inner = *stream;
  stream->get_schema = get_schema, stream->get_next = get_next, stream->release = release;
}
