/* Scenes in which each allocation of the library fails once, and what they share. After a call that failed, a scene goes on as
 * far as it can. Included first, and linked with tests/corpus.
 */
#ifndef DEVEXCHANGE_TESTS_FAULTS_H_
#define DEVEXCHANGE_TESTS_FAULTS_H_

#define _POSIX_C_SOURCE 200809L /* setenv */

#include <corpus.h>

#include "test_support.h"

/* --- a scene --- */

static struct tally tally;

/* The outcome of the calls of a scene: how many had no memory or a callback that had none, and one that failed otherwise. */
static int without_memory;
static int told;
static char otherwise[220];

/* Notes the outcome of a call: it succeeds, or has no memory, or lacks what an earlier call would have given. */
static inline int note(const char *call, devx_status status) {
    if (status == DEVX_OUT_OF_MEMORY || status == DEVX_CALLBACK) {
        without_memory += status == DEVX_OUT_OF_MEMORY;
        told += status == DEVX_CALLBACK;
    } else if (status != DEVX_OK && without_memory + told == 0) {
        snprintf(otherwise, sizeof otherwise, "%.60s: %s: %.90s", call, devx_status_name(status), error.message);
    }
    return status == DEVX_OK;
}

#define TRY(call) note(#call, call)

typedef void act(void);

/* What the library keeps for good is made before, where no allocation fails: see docs/reliability.md. */
struct scene {
    act *before, *play, *after;
};

/* How many allocations failed, in all sweeps of the program. */
static int64_t injected;

/* To be called before the library is used. Keeping blocks is turned off, because a block that is kept is not allocated again.
 * `warm` is the first exchange of the thread: it allocates what each thread keeps for itself.
 */
static inline void make_allocations_fail(act *warm) {
    setenv("DEVEXCHANGE_KEEP_BLOCKS", "0", 1);
    CHECK(corpus_fault_install("libdevexchange.so") > 0);
    corpus_fault_arm(1000000, 0);
    warm();
    CHECK_INT(corpus_fault_disarm(), 0);
}

/* Plays a scene while the nth allocation fails; returns how many failed. */
static inline int64_t play(const struct scene *scene, int64_t nth, int from_then_on) {
    tally = (struct tally){0};
    without_memory = told = 0;
    otherwise[0] = '\0';
    if (scene->before != NULL) {
        scene->before();
    }
    corpus_fault_arm(nth, from_then_on);
    scene->play();
    int64_t const failed = corpus_fault_disarm();
    if (scene->after != NULL) {
        scene->after();
    }
    return failed;
}

static inline void sweep(const struct scene *scene) {
    int64_t const before = injected;
    for (int from_then_on = 0; from_then_on < 2; ++from_then_on) {
        for (int64_t nth = 1, failed = 1; failed > 0; ++nth) {
            failed = play(scene, nth, from_then_on);
            injected += failed;
            CHECK_MSG(otherwise[0] == '\0', "without allocation %d: %s", (int)nth, otherwise);
            CHECK_MSG(failed > 0 || without_memory == 0, "memory was missing, but is there");
            CHECK_MSG(tally.live == 0, "without allocation %d: %d are not released", (int)nth, tally.live);
            CHECK_MSG(devx_ledger_outstanding() == 0, "without allocation %d: %d are outstanding", (int)nth,
                      (int)devx_ledger_outstanding());
        }
    }
    CHECK_MSG(injected > before, "no allocation of it failed");
}

#define SWEEP(played)                                                                                                  \
    TEST(every_allocation_of_##played) {                                                                               \
        struct scene const all = {NULL, played, NULL};                                                                 \
        CHECK_CALL(sweep(&all));                                                                                       \
    }

/* --- what scenes are made of --- */

static double values[6] = {0, 1, 2, 3, 4, 5};
static int64_t const shape[2] = {2, 3};

/* An owner that counts as one living object until it is released. */
static inline void let_go(void *context) {
    atomic_fetch_sub(&((struct tally *)context)->live, 1);
}

static inline devx_owner living(void) {
    atomic_fetch_add(&tally.live, 1);
    return (devx_owner){&tally, let_go};
}

static inline void not_taken(devx_owner owner) {
    owner.release(owner.context);
}

static inline devx_tensor_t *made_tensor(void) {
    DLTensor const described = {values, cpu, 2, float64, (int64_t *)(uintptr_t)shape, NULL, 0};
    devx_owner const owner = living();
    devx_tensor_t *tensor = NULL;
    if (!TRY(devx_tensor_create(&described, 0, &owner, &tensor, &error))) {
        not_taken(owner);
    }
    return tensor;
}

/* A record batch of numbers, texts, lists and a dictionary, made here. */
static inline devx_batch_t *made_batch(devx_schema_t **schema) {
    static int32_t const offsets[3] = {0, 1, 3}, numbers[2] = {7, 8};
    static const char texts[] = "abb";
    static const void *none[1] = {NULL}, *number[2] = {NULL, numbers}, *text[3] = {NULL, offsets, texts};
    static const void *list[2] = {NULL, offsets}, *items[2] = {NULL, values};
    static int32_t const indices[2] = {1, 0};
    static const void *index[2] = {NULL, indices};
    devx_field const fields[] = {
        {"+s", "", NULL, 0, 4, 0},     {"i", "number", NULL, 2, 0, 0}, {"u", "text", NULL, 2, 0, 0},
        {"+l", "list", NULL, 2, 1, 0}, {"g", "item", NULL, 2, 0, 0},   {"i", "index", NULL, 2, 0, 1},
        {"u", "", NULL, 2, 0, 0},
    };
    devx_node const nodes[] = {
        {2, 0, 0, none, 1},  {2, 0, 0, number, 2}, {2, 0, 0, text, 3}, {2, 0, 0, list, 2},
        {3, 0, 0, items, 2}, {2, 0, 0, index, 2},  {2, 0, 0, text, 3},
    };
    devx_owner const owner = living();
    devx_batch_t *batch = NULL;
    (void)TRY(devx_schema_create(fields, 7, schema, &error));
    if (!TRY(devx_batch_create(*schema, cpu, nodes, 7, &owner, &batch, &error))) {
        not_taken(owner);
    }
    return batch;
}

#endif
