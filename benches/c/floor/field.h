/* What every consumer needs of a field: its type and its name. */
#ifndef FIELD_H_
#define FIELD_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum type { UNKNOWN, INT32, INT64, FLOAT32, FLOAT64, TEXT, BOOL, BINARY, DATE32, LIST, STRUCT };

static const uint8_t types_of_letters[256] = {
    ['i'] = INT32, ['l'] = INT64, ['f'] = FLOAT32, ['g'] = FLOAT64, ['u'] = TEXT, ['b'] = BOOL, ['z'] = BINARY,
};

static inline enum type type_of(const char *format) {
    if (format[0] != '\0' && format[1] == '\0') return types_of_letters[(unsigned char)format[0]];
    return strcmp(format, "tdD") == 0 ? DATE32 : UNKNOWN;
}

/* Whether a text is UTF-8: no overlong sequence, no surrogate, nothing above U+10FFFF. */
static __attribute__((noinline)) int is_utf8(const unsigned char *text) {
    while (*text != '\0') {
        unsigned char const lead = *text++;
        if (lead < 0x80) continue;
        int const more = lead < 0xc2 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : -1;
        uint32_t code = more < 0 ? 0 : lead & (0x3fu >> more);
        if (more < 0) return 0;
        for (int i = 0; i < more; ++i, ++text) {
            if ((*text & 0xc0) != 0x80) return 0;
            code = code << 6 | (*text & 0x3fu);
        }
        if ((more == 2 && (code < 0x800 || code >> 11 == 0x1b)) || (more == 3 && code - 0x10000 > 0xfffff)) return 0;
    }
    return 1;
}

/* Whether a name is NULL or UTF-8. A consumer cannot do without this check, so each name is read to its end. */
static inline int is_name(const char *name) {
    unsigned char seen = 0;
    if (name == NULL) return 1;
    for (const char *at = name; *at != '\0'; ++at) seen |= (unsigned char)*at;
    return seen < 0x80 || is_utf8((const unsigned char *)name);
}

#endif
