/* The library reports the version that it was built from. */
#include <devexchange.h>
#include <stdio.h>

#include "check.h"

#ifndef DEVX_TEST_VERSION
#error "scripts/test-c.sh passes the version of Cargo.toml as DEVX_TEST_VERSION"
#endif

TEST(version_string_is_that_of_the_package) {
    CHECK_STR(devx_version_string(), DEVX_TEST_VERSION);
}

TEST(version_string_is_one_string) {
    CHECK_PTR(devx_version_string(), devx_version_string());
}

/* major << 16 | minor << 8 | patch: a program can compare it with <. */
TEST(version_number_is_the_version_string) {
    uint32_t const version = devx_version();
    char text[32];
    snprintf(text, sizeof text, "%u.%u.%u", (unsigned)(version >> 16), (unsigned)(version >> 8 & 0xff),
             (unsigned)(version & 0xff));
    CHECK_STR(text, DEVX_TEST_VERSION);
}

/* A program may compare the version of the library with that of its header. */
TEST(version_of_the_header_is_that_of_the_library) {
    CHECK_INT(DEVEXCHANGE_VERSION, devx_version());
}

CHECK_MAIN()
