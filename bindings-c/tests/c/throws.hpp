// Tells what a call of devexchange.hpp throws. Included after devexchange.hpp and check.h.
#ifndef DEVEXCHANGE_TESTS_THROWS_HPP_
#define DEVEXCHANGE_TESTS_THROWS_HPP_

#include <string>

// The status and the text; empty if nothing is thrown.
template <class Call> static std::string thrown(Call &&call) {
    try {
        call();
    } catch (devexchange::Error const &error) {
        return std::string(error.name()) + ": " + error.what();
    }
    return "";
}

#define CHECK_THROWS(call, part)                                                                                       \
    do {                                                                                                               \
        std::string const said = thrown([&] { call; });                                                                \
        CHECK_HAS(said.c_str(), part);                                                                                 \
    } while (0)

#endif
