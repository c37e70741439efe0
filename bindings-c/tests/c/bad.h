/* What the tests of bad input share: memory that must not be touched, and good structs to spoil. Each bad input is refused with
 * a status and a text that names the field and the value. The source is untouched and still its owner's; no output is written.
 */
#ifndef DEVEXCHANGE_TESTS_BAD_H_
#define DEVEXCHANGE_TESTS_BAD_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "test_support.h"

#include <sys/mman.h>
#include <unistd.h>

/* An address that kills a program that reads or writes there. */
static inline void *forbidden(void) {
    static void *page = NULL;
    if (page == NULL) {
        page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) {
            abort();
        }
    }
    return page;
}

/* `bytes` bytes that can be read and written, directly before bytes that cannot. */
static inline void *last_bytes_of_a_page(size_t bytes) {
    size_t const page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = (char *)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) {
        abort();
    }
    return pages + page - bytes;
}

static inline void free_page_of(void *memory) {
    size_t const page = (size_t)sysconf(_SC_PAGESIZE);
    munmap((void *)((uintptr_t)memory & ~(uintptr_t)(page - 1)), 2 * page);
}

/* Like CHECK_REFUSED, for a case in a table. */
static inline void check_refusal(const char *name, devx_status got, devx_status expected, const char *part) {
    CHECK_MSG(got == expected, "%s: %s instead of %s: %.150s", name, devx_status_name(got), devx_status_name(expected),
              error.message);
    CHECK_MSG(got == DEVX_OK || error.status == expected, "%s: the record says %s", name,
              devx_status_name(error.status));
    CHECK_MSG(got == DEVX_OK || strstr(error.message, part) != NULL, "%s: \"%s\" is not in \"%.150s\"", name, part,
              error.message);
}

/* A case in a table: its name is the function that spoils the input. */
#define BAD(spoil, status, part) {#spoil, spoil, status, part}

/* A schema to spoil:
 * struct { number: int32, texts: list<utf8>, kind: dictionary<int8, utf8>, pair: fixed_size_list(2)<int32> } */
static inline struct ArrowSchema good_schema(struct tally *tally) {
    struct ArrowSchema root = foreign_schema(tally, "+s", ""), list = foreign_schema(tally, "+l", "texts");
    struct ArrowSchema kind = foreign_schema(tally, "c", "kind"), pair = foreign_schema(tally, "+w:2", "pair");
    add_schema_child(&list, foreign_schema(tally, "u", "item"));
    set_schema_dictionary(&kind, foreign_schema(tally, "u", NULL));
    add_schema_child(&pair, foreign_schema(tally, "i", "item"));
    add_schema_child(&root, foreign_schema(tally, "i", "number"));
    add_schema_child(&root, list);
    add_schema_child(&root, kind);
    add_schema_child(&root, pair);
    return root;
}
enum { NUMBER, TEXTS, KIND, PAIR, COLUMNS, GOOD_NODES = 8 };

#endif
