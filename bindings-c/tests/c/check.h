/* A test harness in one header, for C11 and C++17.
 *
 *   #include "check.h"
 *
 *   TEST(refuses_null) {
 *       CHECK(devx_something(NULL) != 0);
 *       CHECK_INT(devx_count(), 0);
 *   }
 *
 *   CHECK_MAIN()
 *
 * Each TEST prints one line, which scripts/test-c.sh counts:
 *
 *   ok - refuses_null
 *   ok - needs_a_gpu # skip no device
 *   not ok - refuses_null: test_x.c:7: devx_count() is 3, expected 0
 *
 * A failed check ends its function. In a helper, it ends only the helper: call helpers that check through
 * CHECK_CALL, which ends the test, too. The program's arguments, if there are any, name the tests to run.
 */
#ifndef DEVEXCHANGE_TESTS_CHECK_H_
#define DEVEXCHANGE_TESTS_CHECK_H_

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#if defined(__GNUC__)
#define CHECK_PRINTF_ __attribute__((format(printf, 1, 2)))
#else
#define CHECK_PRINTF_
#endif

struct check_test {
    char const *name;
    void (*run)(void);
    struct check_test *next;
};

struct check_state {
    struct check_test *first;
    struct check_test **end;
    int failed;  /* in the running test: 1 from its first failed check on */
    int skipped; /* in the running test: 1 after SKIP */
    char why[512];
};

/* One state per program: a test program is one source file. */
static struct check_state check_state_ = {NULL, NULL, 0, 0, {0}};

static inline void check_register_(struct check_test *test) {
    if (check_state_.end == NULL) {
        check_state_.end = &check_state_.first;
    }
    *check_state_.end = test;
    check_state_.end = &test->next;
}

CHECK_PRINTF_ static inline void check_fail_(char const *format, ...) {
    if (!check_state_.failed) { /* the first reason is the one that helps */
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(check_state_.why, sizeof check_state_.why, format, arguments);
        va_end(arguments);
    }
    check_state_.failed = 1;
}

static inline char const *check_file_(char const *path) {
    char const *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static inline char const *check_text_(char const *text) {
    return text != NULL ? text : "(null)";
}

static inline int check_same_text_(char const *left, char const *right) {
    return left == right || (left != NULL && right != NULL && strcmp(left, right) == 0);
}

#define CHECK_AT_ "%s:%d: "
#define CHECK_HERE_ check_file_(__FILE__), __LINE__

/* The condition holds. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            check_fail_(CHECK_AT_ "%s does not hold", CHECK_HERE_, #condition);                                        \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* The condition holds; if not, this printf-like text says more. */
#define CHECK_MSG(condition, ...)                                                                                      \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            char check_said_[256];                                                                                     \
            snprintf(check_said_, sizeof check_said_, __VA_ARGS__);                                                    \
            check_fail_(CHECK_AT_ "%s does not hold: %s", CHECK_HERE_, #condition, check_said_);                       \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Two integers of at most 64 bits are equal. */
#define CHECK_INT(actual, expected)                                                                                    \
    do {                                                                                                               \
        int64_t const check_actual_ = (int64_t)(actual);                                                               \
        int64_t const check_expected_ = (int64_t)(expected);                                                           \
        if (check_actual_ != check_expected_) {                                                                        \
            check_fail_(CHECK_AT_ "%s is %" PRId64 ", expected %" PRId64, CHECK_HERE_, #actual, check_actual_,         \
                        check_expected_);                                                                              \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Two doubles differ by at most `tolerance`; a NaN never does. */
#define CHECK_DOUBLE(actual, expected, tolerance)                                                                      \
    do {                                                                                                               \
        double const check_actual_ = (actual);                                                                         \
        double const check_expected_ = (expected);                                                                     \
        double const check_apart_ =                                                                                    \
            check_actual_ < check_expected_ ? check_expected_ - check_actual_ : check_actual_ - check_expected_;       \
        if (!(check_apart_ <= (tolerance))) {                                                                          \
            check_fail_(CHECK_AT_ "%s is %.17g, expected %.17g", CHECK_HERE_, #actual, check_actual_,                  \
                        check_expected_);                                                                              \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Two strings are equal; NULL equals NULL only. */
#define CHECK_STR(actual, expected)                                                                                    \
    do {                                                                                                               \
        char const *const check_actual_ = (actual);                                                                    \
        char const *const check_expected_ = (expected);                                                                \
        if (!check_same_text_(check_actual_, check_expected_)) {                                                       \
            check_fail_(CHECK_AT_ "%s is \"%s\", expected \"%s\"", CHECK_HERE_, #actual, check_text_(check_actual_),   \
                        check_text_(check_expected_));                                                                 \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* A string has this part in it. */
#define CHECK_HAS(actual, part)                                                                                        \
    do {                                                                                                               \
        char const *const check_actual_ = (actual);                                                                    \
        char const *const check_part_ = (part);                                                                        \
        if (check_actual_ == NULL || strstr(check_actual_, check_part_) == NULL) {                                     \
            check_fail_(CHECK_AT_ "%s is \"%s\", which lacks \"%s\"", CHECK_HERE_, #actual, check_text_(check_actual_), \
                        check_part_);                                                                                  \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Two addresses are the same one. */
#define CHECK_PTR(actual, expected)                                                                                    \
    do {                                                                                                               \
        void const *const check_actual_ = (void const *)(actual);                                                      \
        void const *const check_expected_ = (void const *)(expected);                                                  \
        if (check_actual_ != check_expected_) {                                                                        \
            check_fail_(CHECK_AT_ "%s is %p, expected %p", CHECK_HERE_, #actual, check_actual_, check_expected_);      \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Calls a void helper that checks, and goes on only if none of its checks failed. */
#define CHECK_CALL(call)                                                                                               \
    do {                                                                                                               \
        call;                                                                                                          \
        if (check_state_.failed || check_state_.skipped) {                                                             \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Skips this test, which cannot run here. */
#define SKIP(reason)                                                                                                   \
    do {                                                                                                               \
        snprintf(check_state_.why, sizeof check_state_.why, "%s", (reason));                                           \
        check_state_.skipped = 1;                                                                                      \
        return;                                                                                                        \
    } while (0)

/* Defines a test and registers it before main; tests run in the order of the file. */
#define TEST(name)                                                                                                     \
    static void name(void);                                                                                            \
    static struct check_test check_test_##name = {#name, name, NULL};                                                  \
    __attribute__((constructor)) static void check_add_##name(void) {                                                  \
        check_register_(&check_test_##name);                                                                           \
    }                                                                                                                  \
    static void name(void)

static inline int check_is_wanted_(char const *name, int argc, char **argv) {
    if (argc <= 1) {
        return 1;
    }
    for (int i = 1; i < argc; ++i) {
        if (strcmp(name, argv[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static inline int check_run_(int argc, char **argv) {
    int passed = 0;
    int failed = 0;
    int skipped = 0;
    /* What was printed before a crash must not be lost, and must not come out again after a fork. */
    setvbuf(stdout, NULL, _IONBF, 0);
    for (struct check_test *test = check_state_.first; test != NULL; test = test->next) {
        if (!check_is_wanted_(test->name, argc, argv)) {
            continue;
        }
        check_state_.failed = 0;
        check_state_.skipped = 0;
        check_state_.why[0] = '\0';
        test->run();
        if (check_state_.failed) {
            failed += 1;
            printf("not ok - %s: %s\n", test->name, check_state_.why);
        } else if (check_state_.skipped) {
            skipped += 1;
            printf("ok - %s # skip %s\n", test->name, check_state_.why);
        } else {
            passed += 1;
            printf("ok - %s\n", test->name);
        }
    }
    printf("# %d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed == 0 && passed + skipped > 0 ? 0 : 1;
}

#define CHECK_MAIN()                                                                                                   \
    int main(int argc, char **argv) {                                                                                  \
        return check_run_(argc, argv);                                                                                 \
    }

#endif /* DEVEXCHANGE_TESTS_CHECK_H_ */
