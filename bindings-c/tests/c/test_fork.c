/* A child of fork() inherits what was exported and imported: it may use it, release it, and make new objects, and its parent
 * sees nothing of that. */
#define _POSIX_C_SOURCE 200809L /* fork */
#include "test_support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 10 };

static int64_t const shape_2x3[2] = {2, 3};

/* What exists when the process forks. */
struct held {
    struct tally tensors, batches;
    devx_tensor_t *tensor;
    devx_batch_t *batch;
    struct DLManagedTensorVersioned *lent_tensor;
    struct ArrowArray lent_batch;
};

static devx_status acquire(struct held *held) {
    struct ArrowSchema schema;
    struct ArrowArray array;
    struct DLManagedTensorVersioned *source = foreign_tensor(&held->tensors, 2, shape_2x3, NULL);
    foreign_batch(&held->batches, 3, &schema, &array);
    devx_status status = devx_tensor_import(source, &held->tensor, &error);
    status = status != DEVX_OK ? status : devx_tensor_export_share(held->tensor, NULL, &held->lent_tensor, &error);
    status = status != DEVX_OK ? status : devx_batch_import_pair(&array, &schema, &held->batch, &error);
    return status != DEVX_OK ? status : devx_batch_export_share(held->batch, &held->lent_batch, &error);
}

/* The last two are released through the structs, by their holder. */
static void let_go(struct held *held) {
    devx_tensor_release(&held->tensor);
    devx_batch_release(&held->batch);
    devx_dlpack_release(&held->lent_tensor);
    release_array(&held->lent_batch);
}

static int is_released(struct held const *held) {
    return held->tensors.releases == 1 && held->tensors.live == 0 && held->batches.live == 0;
}

static void *release_on_thread(void *held) {
    let_go((struct held *)held);
    return NULL;
}

/* The child: returns 0 if all was well. It ends as a program does, with its exit handlers. */
static int child(struct held *held, int64_t outstanding, int on_a_thread) {
    struct held fresh = {.tensor = NULL};
    pthread_t thread;
    DLTensor view;
    if (devx_ledger_outstanding() != outstanding || devx_tensor_borrow(held->tensor, &view, NULL, &error) != DEVX_OK ||
        ((double *)view.data)[5] != 5) {
        return 1;
    }
    if (acquire(&fresh) != DEVX_OK) {
        return 2;
    }
    let_go(&fresh);
    if (!on_a_thread) {
        let_go(held);
    } else if (pthread_create(&thread, NULL, release_on_thread, held) != 0 || pthread_join(thread, NULL) != 0) {
        return 3;
    }
    return !is_released(&fresh) ? 4 : !is_released(held) ? 5 : devx_ledger_outstanding() != 0 ? 6 : 0;
}

TEST(a_child_releases_what_it_inherits_and_its_parent_still_has_it) {
    struct held held = {.tensor = NULL};
    CHECK_OK(acquire(&held));
    int64_t const outstanding = devx_ledger_outstanding();
    for (int k = 0; k < FORKS; ++k) {
        int status = -1;
        pid_t const pid = fork();
        if (pid == 0) {
            exit(child(&held, outstanding, k % 2));
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK_INT(status, 0);
        CHECK_INT(held.tensors.releases, 0);
        CHECK_INT(devx_ledger_outstanding(), outstanding);
    }
    let_go(&held);
    CHECK(is_released(&held));
    CHECK_NOTHING_OUTSTANDING();
}

/* --- what is offered to other processes --- */

/* The child: returns 0 if both calls were refused and nothing was written. */
static int change_offers(devx_ipc_server_t *server, devx_tensor_t *tensor) {
    int32_t withdrawn = 7;
    if (devx_ipc_server_offer_tensor(server, "other", tensor, DEVX_COPY_NEVER, &error) != DEVX_UNSUPPORTED) {
        return 1;
    }
    if (devx_ipc_server_withdraw(server, "offered", &withdrawn, &error) != DEVX_UNSUPPORTED || withdrawn != 7) {
        return 2;
    }
    return strstr(error.message, "of which this is a fork") != NULL ? 0 : 3;
}

TEST(a_child_cannot_change_what_its_parent_offers) {
    char address[64];
    int status = -1;
    int32_t withdrawn = 0;
    DLDataType const int32 = {kDLInt, 32, 1};
    devx_ipc_server_t *server = NULL;
    devx_tensor_t *tensor = NULL;
    snprintf(address, sizeof address, "@devexchange-c-fork-%d", (int)getpid());
    CHECK_OK(devx_tensor_allocate_shared(int32, shape_2x3, 2, &tensor, &error));
    CHECK_OK(devx_ipc_server_create(address, &server, &error));
    CHECK_OK(devx_ipc_server_offer_tensor(server, "offered", tensor, DEVX_COPY_NEVER, &error));
    pid_t const pid = fork();
    if (pid == 0) {
        int const wrong = change_offers(server, tensor);
        if (wrong == 0) {
            execlp("true", "true", (char *)NULL); /* or valgrind would miss the thread of the server and what it holds */
        }
        _exit(wrong);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK_OK(devx_ipc_server_withdraw(server, "offered", &withdrawn, &error));
    CHECK_INT(withdrawn, 1);
    devx_ipc_server_release(&server);
    devx_tensor_release(&tensor);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- a program that ends within a release --- */

enum { DEEP = 60 }; /* more than the number of releases that go one within the other */

static devx_tensor_t *chain;
static struct tally chain_tally;

static void end_with_the_chain_released(void) { _exit(chain_tally.releases == 1 ? 0 : 1); }

static void release_and_exit(void *context) {
    (void)context;
    devx_tensor_release(&chain);
    exit(chain_tally.releases == 0 ? 2 : 3);
}

/* Returns 0 if what waited for the release that ends the program is released, but not before. */
static int exit_within_a_release(void) {
    static double values[6];
    int64_t shape[2] = {2, 3};
    DLTensor const description = {values, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, shape, NULL, 0};
    devx_owner const last = counting_owner(&chain_tally), first = {NULL, release_and_exit};
    devx_tensor_t *tensor = NULL;
    if (atexit(end_with_the_chain_released) != 0 || devx_tensor_create(&description, 0, &last, &chain, &error) != DEVX_OK ||
        devx_tensor_create(&description, 0, &first, &tensor, &error) != DEVX_OK) {
        return 4;
    }
    for (int i = 0; i < DEEP; ++i) {
        struct DLManagedTensorVersioned *managed = NULL;
        if (devx_tensor_export_move(&chain, NULL, &managed, &error) != DEVX_OK ||
            devx_tensor_import(managed, &chain, &error) != DEVX_OK) {
            return 5;
        }
    }
    devx_tensor_release(&tensor);
    return 6;
}

TEST(what_waits_for_a_release_that_ends_the_program_is_released) {
    int status = -1;
    pid_t const pid = fork();
    if (pid == 0) {
        _exit(exit_within_a_release());
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
