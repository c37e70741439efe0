// Waits for what happens on a thread of the library.
#ifndef DEVEXCHANGE_TESTS_SOON_HPP_
#define DEVEXCHANGE_TESTS_SOON_HPP_

#include <chrono>
#include <thread>

// Whether the condition holds within two minutes.
template <class Condition> bool soon(Condition &&condition) {
    for (int i = 0; !condition() && i < 120'000; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
}

#endif
