// devexchange.hpp: what it writes to stderr if DEVEXCHANGE_TRACE says so, which the first release that throws looks up.
#include <devexchange.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <unistd.h>

#include "check.h"

namespace dx = devexchange;

// What `call` writes to stderr.
template <class Call> static std::string written(Call &&call) {
    int ends[2];
    if (pipe(ends) != 0) {
        std::abort();
    }
    int const before = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    call();
    std::fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    char text[256];
    auto const length = read(ends[0], text, sizeof text);
    close(ends[0]);
    return std::string(text, length < 0 ? 0 : static_cast<std::size_t>(length));
}

TEST(a_release_that_throws_is_traced) {
    static double values[] = {1, 2};
    setenv("DEVEXCHANGE_TRACE", "1", 1);
    auto const said = written([] {
        dx::Tensor::over(values, {2}, dx::owner([] { throw std::runtime_error("the disk is full"); }));
        dx::Tensor::over(values, {2}, dx::owner([] { throw 42; }));
    });
    CHECK_STR(said.c_str(), "devexchange: an exception in a release: the disk is full\n"
                            "devexchange: an exception in a release: not a std::exception\n");
    CHECK_INT(dx::release_errors(), 2);
    CHECK_INT(dx::outstanding(), 0);
}

CHECK_MAIN()
