/* Calls the functions that PyTorch calls, and catches their exceptions, as PyTorch does. */

#include <exception>
#include <string>

static std::string text;
static bool is_caught;

template <typename Act> static void *trying(Act act) {
    is_caught = false;
    try {
        return act();
    } catch (std::exception const &error) {
        text = error.what();
        is_caught = true;
        return nullptr;
    }
}

extern "C" {

void *allocate(void *(*function)(long, int, void *), long size, int device, void *stream) {
    return trying([&] { return function(size, device, stream); });
}

void record_stream(void (*function)(void *, void *), void *address, void *stream) {
    trying([&]() -> void * { return function(address, stream), nullptr; });
}

/* The text of the exception of the last call; NULL if there was none. */
char const *caught() { return is_caught ? text.c_str() : nullptr; }
}
