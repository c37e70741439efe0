/* A program with two static libraries of Rust: ours does not allocate through the other one. */
#include <devexchange.h>
#include <inttypes.h>
#include <stdio.h>

extern int64_t other_allocations(void);

int main(void) {
    int64_t const before = other_allocations();
    devx_field const field = {"l", "n", NULL, 0, 0, 0};
    devx_schema_t *schema = NULL;
    devx_error error;
    if (devx_schema_create(&field, 1, &schema, &error) != DEVX_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    devx_schema_release(&schema);
    /* Each question takes an allocation of its own. */
    int64_t const asking = other_allocations() - before;
    int64_t const only_asking = other_allocations() - before - asking;
    if (before < 1 || asking != only_asking) {
        fprintf(stderr, "the other library allocated %" PRId64 ", then %" PRId64 " with a schema and %" PRId64 " without\n",
                before, asking, only_asking);
        return 1;
    }
    printf("%s\n", devx_version_string());
    return 0;
}
