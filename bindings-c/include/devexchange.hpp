/*
 * devexchange for C++17: RAII over the C API (devexchange.h). Header only; link with -ldevexchange.
 *
 *   auto values = std::vector<double>{1, 2, 3, 4, 5, 6};
 *   auto tensor = devexchange::Tensor::of(std::move(values), {2, 3});   // the tensor keeps the vector
 *   consume(std::move(tensor).export_move().release());                 // the consumer calls the deleter
 *
 * Ownership. An object is one owner: it can be moved but not copied, and its destructor gives up what it holds. There are
 * three ways to hand something over, named as in C: `share` (one more owner, counted), `move` (this owner is given up;
 * needs an rvalue), `borrow` (a view that owns nothing and is valid as long as what it was borrowed from). `create` and
 * `import_from` take an owner or a source only if they succeed: if they throw, it is still in the object that it was
 * moved from. A callable is moved back there, unless its moves may throw: then it is destroyed.
 *
 * Errors. A call that fails throws devexchange::Error. No destructor throws, and no release does: an exception from a
 * callable given to owner() is caught, counted, reported to the handler of set_release_error_handler(), and written to stderr
 * with DEVEXCHANGE_TRACE=1 in the environment.
 *
 * Threads. Different objects may be used on different threads, even if they share memory; a release may come on any
 * thread. One object is for one thread at a time, as usual in C++, unless its class says otherwise. No thread may be cancelled
 * (pthread_cancel) in a call of the library.
 *
 * Nothing here needs run-time type information: -fno-rtti is fine. With -fno-exceptions, use devexchange.h.
 */
#ifndef DEVEXCHANGE_DEVEXCHANGE_HPP_
#define DEVEXCHANGE_DEVEXCHANGE_HPP_

#if __cplusplus < 201703L
#error "devexchange.hpp needs C++17 or newer (-std=c++17); devexchange.h is for C and for any C++ from 11 on"
#endif
#ifndef __cpp_exceptions
#error "devexchange.hpp needs exceptions, by which it says what fails; devexchange.h does without (-fno-exceptions)"
#endif

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
#ifdef __STDCPP_BFLOAT16_T__
#include <stdfloat>
#endif

#include "devexchange.h"

#ifndef DLPACK_MAJOR_VERSION
#error "a dlpack/dlpack.h of before DLPack 1.0 was included first: include devexchange.hpp before it, which has all of its names"
#endif

namespace devexchange {

/* --- errors --- */

/* The reason why a call failed. what() names the field, its value, and what was expected. */
class Error : public std::runtime_error {
public:
    /* DEVX_OK is no error: it becomes DEVX_CALLBACK, because otherwise an error thrown by a callback would pass for success. */
    Error(devx_status status, std::string const &message, std::int32_t driver_code = 0)
        : std::runtime_error(message), status_(status == DEVX_OK ? DEVX_CALLBACK : status), driver_code_(driver_code) {}
    explicit Error(devx_error const &error) : Error(error.status, error.message, error.driver_code) {}

    /* One of DEVX_..., never DEVX_OK. */
    devx_status status() const noexcept { return status_; }
    /* The name of the status, for example "DEVX_INVALID_SHAPE". */
    char const *name() const noexcept { return devx_status_name(status_); }
    /* The code of the failed device driver call, or 0. */
    std::int32_t driver_code() const noexcept { return driver_code_; }

private:
    devx_status status_;
    std::int32_t driver_code_;
};

namespace detail {

/* Runs a call of the C API with an error record, and throws an Error if it fails. */
template <class Call> void check(Call &&call) {
    devx_error error;
    if (call(&error) != DEVX_OK) {
        throw Error(error);
    }
}

/* A handle of the C API. */
template <class T, void (*Release)(T **)> class Handle {
public:
    Handle() noexcept = default;
    explicit Handle(T *raw) noexcept : raw_(raw) {}
    Handle(Handle &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Handle &operator=(Handle &&other) noexcept {
        /* Released last: it may be what keeps `other`. */
        Handle const before(std::exchange(raw_, other.release()));
        return *this;
    }
    Handle(Handle const &) = delete;
    Handle &operator=(Handle const &) = delete;
    ~Handle() { Release(&raw_); }

    T *get() const noexcept { return raw_; }
    T **address() noexcept { return &raw_; }
    T *release() noexcept { return std::exchange(raw_, nullptr); }

private:
    T *raw_ = nullptr;
};

/* Runs the body of a callback of the C API. Its callers cannot handle exceptions, so an exception becomes a status. */
template <class Act> devx_status status_of(devx_error *error, Act &&act) noexcept {
    auto const said = [error](devx_status status, char const *what, std::int32_t driver_code = 0) noexcept {
        std::size_t length = std::min(std::strlen(what), sizeof error->message - 1);
        while (length > 0 && (what[length] & 0xc0) == 0x80) {
            --length; /* cut at a character of UTF-8 */
        }
        std::memcpy(error->message, what, length);
        error->message[length] = '\0';
        error->driver_code = driver_code;
        return status;
    };
    try {
        act();
        return DEVX_OK;
    } catch (Error const &exception) {
        return said(exception.status(), exception.what(), exception.driver_code());
    } catch (std::bad_alloc const &exception) {
        return said(DEVX_OUT_OF_MEMORY, exception.what());
    } catch (std::exception const &exception) {
        return said(DEVX_CALLBACK, exception.what());
    } catch (...) {
        return said(DEVX_CALLBACK, "a callback threw what is not a std::exception");
    }
}

/* Destroys the object that is the context of a table of callbacks. */
template <class Object> void destroy(void *context) noexcept {
    delete static_cast<Object *>(context);
}

/* Moves a callable to the heap, where `act` gives it to the C API as a context; a callback of the C API deletes it later. If
 * `act` throws, a callable that was moved goes back to where it came from. */
template <class Given, class Act> auto hand_over(Given &&given, Act &&act) {
    using Stored = std::decay_t<Given>;
    auto stored = std::make_unique<Stored>(std::forward<Given>(given));
    try {
        auto out = act(stored.get());
        static_cast<void>(stored.release());
        return out;
    } catch (...) {
        /* Only for an rvalue that is not const: anything else was copied. */
        if constexpr (std::is_same_v<Given, Stored>) {
            if constexpr (std::is_nothrow_move_assignable_v<Stored>) {
                given = std::move(*stored);
            } else if constexpr (std::is_nothrow_move_constructible_v<Stored>) {
                given.~Stored(); /* a lambda cannot be assigned */
                ::new (static_cast<void *>(std::addressof(given))) Stored(std::move(*stored));
            }
        }
        throw;
    }
}

inline std::size_t to_size(std::int64_t number) noexcept {
    return number < 0 ? 0 : static_cast<std::size_t>(number);
}

/* A name, format or address as a C string. */
inline char const *c_text(std::string const &text, char const *what) {
    if (text.find('\0') != std::string::npos) {
        throw Error(DEVX_INVALID_TEXT, std::string(what) + " has a NUL byte at " + std::to_string(text.find('\0')));
    }
    return text.c_str();
}

} // namespace detail

/* --- the library --- */

/* The version of the library that the program runs with, for example "0.1.0". */
inline char const *version() noexcept {
    return devx_version_string();
}

/* How much the library has handed out and taken in, and how much of that is not released yet. */
inline devx_ledger ledger() {
    devx_ledger out;
    detail::check([&](devx_error *error) { return devx_ledger_read(&out, error); });
    return out;
}

/* How many releases of all kinds are still to come (devx_ledger_outstanding says what counts). */
inline std::int64_t outstanding() noexcept {
    return devx_ledger_outstanding();
}

/* --- owners --- */

/* Called when a release has thrown, on the thread of the release; `what` is the text of the exception. */
using ReleaseErrorHandler = void (*)(char const *what) noexcept;

namespace detail {

inline std::atomic<std::int64_t> release_errors{0};
inline std::atomic<ReleaseErrorHandler> release_error_handler{nullptr};

/* Whether the library traces, by the same rule as in the library. */
inline bool is_tracing() noexcept {
    static bool const is = [] {
        char const *const value = std::getenv("DEVEXCHANGE_TRACE");
        return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
    }();
    return is;
}

inline void report_release_error(char const *what) noexcept {
    release_errors.fetch_add(1, std::memory_order_relaxed);
    if (is_tracing()) {
        std::fprintf(stderr, "devexchange: an exception in a release: %s\n", what);
    }
    if (ReleaseErrorHandler const handler = release_error_handler.load(std::memory_order_acquire)) {
        handler(what);
    }
}

/* The function in `devx_owner::release`. Its callers cannot handle exceptions, so none gets out. */
template <class Callable> void run_once(void *context) noexcept {
    std::unique_ptr<Callable> const callable(static_cast<Callable *>(context));
    try {
        (*callable)();
    } catch (std::exception const &exception) {
        report_release_error(exception.what());
    } catch (...) {
        report_release_error("not a std::exception");
    }
}

} // namespace detail

/* How many releases have thrown so far: those of callables that were given to owner() in this shared object or program. Others
 * in the process may have a counter and a handler of their own, for example if they were compiled with -fvisibility=hidden. */
inline std::int64_t release_errors() noexcept {
    return detail::release_errors.load(std::memory_order_relaxed);
}

/* Sets the handler for the releases that release_errors() counts; nullptr for none. Returns the previous one. */
inline ReleaseErrorHandler set_release_error_handler(ReleaseErrorHandler handler) noexcept {
    return detail::release_error_handler.exchange(handler, std::memory_order_acq_rel);
}

/*
 * Keeps memory alive. Its release is called once: when nothing refers to the memory any more, or when this object is
 * destroyed without having been handed over.
 */
class Owner {
public:
    /* Nothing to release: the memory outlives everything. */
    Owner() noexcept = default;
    /* Takes over an owner of the C API. */
    explicit Owner(devx_owner raw) noexcept : raw_(raw) {}
    Owner(Owner &&other) noexcept : raw_(std::exchange(other.raw_, devx_owner{})) {}
    Owner &operator=(Owner &&other) noexcept {
        /* Released last: it may be what keeps `other`. */
        Owner const before(std::exchange(raw_, other.release()));
        return *this;
    }
    Owner(Owner const &) = delete;
    Owner &operator=(Owner const &) = delete;
    ~Owner() { reset(); }

    /* Whether there is something to release. */
    explicit operator bool() const noexcept { return raw_.release != nullptr; }
    /* For a call of the C API; call release() if that succeeds. */
    devx_owner const *get() const noexcept { return &raw_; }
    /* Hands the owner over: whoever gets the result calls its release. */
    devx_owner release() noexcept { return std::exchange(raw_, devx_owner{}); }
    /* Releases now. */
    void reset() noexcept {
        devx_owner const raw = release();
        if (raw.release != nullptr) {
            raw.release(raw.context);
        }
    }

private:
    devx_owner raw_{};
};

/* An owner that calls `callable()` once, on any thread (that of the last user, or one of the library after queued work), and
 * then destroys it. The callable must not wait for another release (devx_owner). The shared object that calls this, such as a
 * plugin, has the code of the release: it must stay loaded, whichever library it is linked with (-Wl,-z,nodelete). */
template <class Callable> Owner owner(Callable &&callable) {
    using Stored = std::decay_t<Callable>;
    static_assert(std::is_invocable_v<Stored &>, "an owner needs something that can be called without arguments");
    auto stored = std::make_unique<Stored>(std::forward<Callable>(callable));
    return Owner(devx_owner{stored.release(), &detail::run_once<Stored>});
}

/* An owner that keeps a value (a std::vector, a std::shared_ptr, ...) until nobody needs it any more; see owner(). */
template <class T> Owner keep(T value) {
    return owner([kept = std::move(value)]() noexcept { static_cast<void>(kept); });
}

/* --- small things --- */

/* A contiguous run of values that somebody else owns. */
template <class T> class Span {
public:
    constexpr Span() noexcept = default;
    constexpr Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t index) const { return data_[index]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* Whether a call may copy. */
enum class Copy : std::int32_t {
    never = DEVX_COPY_NEVER,         /* refuse rather than copy */
    if_needed = DEVX_COPY_IF_NEEDED, /* copy only where a view is not possible */
    always = DEVX_COPY_ALWAYS,
};

/* How an exchange could be done. */
struct Plan {
    enum class Kind : std::int32_t {
        view = DEVX_PLAN_VIEW,
        copy = DEVX_PLAN_COPY,
        impossible = DEVX_PLAN_IMPOSSIBLE,
    };
    Kind kind;
    std::int64_t copy_bytes; /* how many bytes a copy would write; 0 for a view */
    std::string reason;      /* why not a view; empty for a view */

    explicit Plan(devx_plan const &raw)
        : kind(static_cast<Kind>(raw.kind)), copy_bytes(raw.copy_bytes), reason(raw.reason) {}
};

/* What a consumer asks of a DLPack export. The default is the newest version, no synchronisation and no copy. */
struct Request {
    std::uint32_t max_major = DLPACK_MAJOR_VERSION;
    std::uint32_t max_minor = DLPACK_MINOR_VERSION;
    std::int64_t stream = -1; /* the consumer's stream, on which the data is to be ready */
    Copy copy = Copy::never;  /* of host memory only; copy device memory with Tensor::copy_to */

    devx_dlpack_request raw() const noexcept {
        devx_dlpack_request request{};
        request.max_major = max_major;
        request.max_minor = max_minor;
        request.stream = stream;
        request.copy = static_cast<std::int32_t>(copy);
        return request;
    }
};

inline constexpr DLDevice cpu{kDLCPU, 0};
/* A CUDA device: the memory of one GPU. */
inline constexpr DLDevice cuda(std::int32_t id = 0) noexcept {
    return DLDevice{kDLCUDA, id};
}

/* --- devices and streams --- */

/* How many devices of a type there are. Throws DEVX_DEVICE if there is no driver or no device of the type, and for types other
 * than the CPU and CUDA. */
inline std::int32_t device_count(DLDeviceType type) {
    std::int32_t out = 0;
    detail::check([&](devx_error *error) { return devx_device_count(type, &out, error); });
    return out;
}

/* The name of a device and how much memory it has. */
inline devx_device_info device_info(DLDevice device) {
    devx_device_info out;
    detail::check([&](devx_error *error) { return devx_device_get_info(device, &out, error); });
    return out;
}

/* How many releases wait for work that is queued on a device. */
inline std::int64_t releases_waiting() noexcept {
    return devx_releases_waiting();
}

/* How many releases were lost: never called, because the driver could not say whether the work that used the memory is done.
 * Also counts memory, events and streams that the driver did not take back. */
inline std::int64_t releases_lost() noexcept {
    return devx_releases_lost();
}

/* A stream is a number, as in the protocols: one of the following, or a handle (CUstream, cudaStream_t). */
inline constexpr std::int64_t no_stream = -1;
inline constexpr std::int64_t legacy_stream = 1;
inline constexpr std::int64_t per_thread_stream = 2;

/* A number for a default stream of this device, whatever device the data is on: 1 and 2 by themselves are the default streams
 * of the data's device. Only this library knows the number (devx_stream_of_device). */
inline std::int64_t stream_of(DLDevice device, std::int64_t stream) {
    std::int64_t out = no_stream;
    detail::check([&](devx_error *error) { return devx_stream_of_device(device, stream, &out, error); });
    return out;
}

/* Holds a stream: closed meanwhile, it is destroyed only after the result is. For a manager that gives memory back some time
 * after the release of its owner (devx_stream_hold). */
inline Owner hold_stream(std::int64_t stream) {
    devx_owner out{};
    detail::check([&](devx_error *error) { return devx_stream_hold(stream, &out, error); });
    return Owner(out);
}

/* A stream that its object owns. The destructor closes it (devx_stream_close): it is destroyed when everything that was
 * allocated, copied, imported, produced or made of columns on it is released, with all CUDA arrays that were exported for it,
 * and nobody holds it. Work that is queued on it is still done. A Stream converts to its number. */
class Stream {
public:
    /* No stream: the state of an object that was moved from. */
    Stream() noexcept = default;
    /* A new stream that does not wait for the legacy default stream. */
    explicit Stream(DLDevice device) : device_(device) {
        detail::check([&](devx_error *error) { return devx_stream_create(device, &value_, error); });
    }
    Stream(Stream &&other) noexcept : device_(other.device_), value_(other.release()) {}
    Stream &operator=(Stream &&other) noexcept {
        if (this != &other) {
            reset();
            device_ = other.device_;
            value_ = other.release();
        }
        return *this;
    }
    Stream(Stream const &) = delete;
    Stream &operator=(Stream const &) = delete;
    ~Stream() { reset(); }

    explicit operator bool() const noexcept { return value_ != no_stream; }
    operator std::int64_t() const noexcept { return value_; }
    std::int64_t value() const noexcept { return value_; }
    DLDevice device() const noexcept { return device_; }
    /* Blocks until all work that is queued here is done. No exchange needs this. */
    void synchronize() const {
        detail::check([&](devx_error *error) { return devx_stream_synchronize(device_, value_, error); });
    }
    /* Hands the stream over: whoever gets the result destroys it. */
    std::int64_t release() noexcept { return std::exchange(value_, no_stream); }
    /* Closes the stream now. */
    void reset() noexcept {
        std::int64_t const value = release();
        if (value != no_stream) {
            devx_stream_close(device_, value, nullptr);
        }
    }

private:
    DLDevice device_ = cpu;
    std::int64_t value_ = no_stream;
};

namespace detail {

template <class T> struct is_complex : std::false_type {};
template <> struct is_complex<std::complex<float>> : std::true_type {};
template <> struct is_complex<std::complex<double>> : std::true_type {};

template <class T> struct is_bfloat16 : std::false_type {};
#ifdef __STDCPP_BFLOAT16_T__
template <> struct is_bfloat16<std::bfloat16_t> : std::true_type {};
#endif

template <class T> constexpr DLDataType dtype_of() noexcept {
    using Value = std::remove_cv_t<T>;
    static_assert(std::is_arithmetic_v<Value> || is_complex<Value>::value,
                  "an element is a number, a bool or a std::complex of float or double");
    static_assert(!std::is_same_v<Value, long double>, "the size of long double is not that of any DLPack type");
    auto const bits = static_cast<std::uint8_t>(sizeof(Value) * 8);
    if constexpr (std::is_same_v<Value, bool>) {
        return DLDataType{kDLBool, bits, 1};
    } else if constexpr (is_complex<Value>::value) {
        return DLDataType{kDLComplex, bits, 1};
    } else if constexpr (is_bfloat16<Value>::value) {
        return DLDataType{kDLBfloat, bits, 1};
    } else if constexpr (std::is_floating_point_v<Value>) {
        return DLDataType{kDLFloat, bits, 1};
    } else if constexpr (std::is_signed_v<Value>) {
        return DLDataType{kDLInt, bits, 1};
    } else {
        return DLDataType{kDLUInt, bits, 1};
    }
}

} // namespace detail

/* The DLPack type of a C++ type. */
template <class T> inline constexpr DLDataType dtype = detail::dtype_of<T>();

inline constexpr bool same_dtype(DLDataType left, DLDataType right) noexcept {
    return left.code == right.code && left.bits == right.bits && left.lanes == right.lanes;
}

/* The name of an element type, for example "float32". */
inline std::string dtype_name(DLDataType type) {
    char name[32];
    detail::check([&](devx_error *error) { return devx_dtype_name(type, name, sizeof name, error); });
    return name;
}

/* The name of a device, for example "cuda:0". */
inline std::string device_name(DLDevice device) {
    char name[48];
    detail::check([&](devx_error *error) { return devx_device_name(device, name, sizeof name, error); });
    return name;
}

namespace detail {

/* The text, of any length, that `write(buffer, capacity, length, error)` writes as far as there is room. */
template <class Write> std::string written(Write &&write) {
    std::string out(64, '\0');
    for (std::size_t length = 0;; out.resize(length + 1)) {
        check([&](devx_error *error) { return write(out.data(), out.size(), &length, error); });
        if (length < out.size()) {
            out.resize(length);
            return out;
        }
    }
}

} // namespace detail

/* A readable name of the Arrow type that a format string stands for: "int64" for "l". */
inline std::string type_name(char const *format) {
    return detail::written([&](char *buffer, std::size_t capacity, std::size_t *length, devx_error *error) {
        return devx_type_name(format, buffer, capacity, length, error);
    });
}

/* --- structs of the standards, with their owner --- */

namespace detail {

struct DlpackDeleter {
    void operator()(DLManagedTensorVersioned *tensor) const noexcept { devx_dlpack_release(&tensor); }
    void operator()(DLManagedTensor *tensor) const noexcept { devx_dlpack_release_legacy(&tensor); }
};

inline ArrowSchema &release_part(ArrowSchema &value) noexcept {
    return value;
}
inline ArrowArray &release_part(ArrowArray &value) noexcept {
    return value;
}
inline ArrowArray &release_part(ArrowDeviceArray &value) noexcept {
    return value.array;
}
inline ArrowArrayStream &release_part(ArrowArrayStream &value) noexcept {
    return value;
}
inline ArrowDeviceArrayStream &release_part(ArrowDeviceArrayStream &value) noexcept {
    return value;
}
inline devx_cuda_array &release_part(devx_cuda_array &value) noexcept {
    return value;
}

} // namespace detail

/* A DLPack tensor, which this pointer owns; after release(), whoever gets the plain pointer calls its deleter. */
using Dlpack = std::unique_ptr<DLManagedTensorVersioned, detail::DlpackDeleter>;
/* The same for the struct of DLPack before 1.0. */
using DlpackLegacy = std::unique_ptr<DLManagedTensor, detail::DlpackDeleter>;

/* An Arrow struct (schema, array, stream) or a CUDA array, which this object owns by value. A released struct is empty. */
template <class T> class Owned {
public:
    Owned() noexcept = default;
    /* Moves a struct in: `source` is marked as released. */
    explicit Owned(T &source) noexcept : value_(source) { detail::release_part(source).release = nullptr; }
    Owned(Owned &&other) noexcept : Owned(other.value_) {}
    Owned &operator=(Owned &&other) noexcept {
        /* What was here before is released last: it may be what keeps `other`. */
        Owned taken(std::move(other));
        std::swap(value_, taken.value_);
        return *this;
    }
    Owned(Owned const &) = delete;
    Owned &operator=(Owned const &) = delete;
    ~Owned() { reset(); }

    /* Whether there is something to release. */
    explicit operator bool() const noexcept { return detail::release_part(const_cast<T &>(value_)).release != nullptr; }
    T const &operator*() const noexcept { return value_; }
    T const *operator->() const noexcept { return &value_; }
    /* For a call that fills in the struct, or moves it out. */
    T *get() noexcept { return &value_; }
    /* Moves the struct out: whoever holds the result releases it. */
    T release() noexcept {
        T out = value_;
        detail::release_part(value_).release = nullptr;
        return out;
    }
    /* Releases now. */
    void reset() noexcept {
        if (*this) {
            T taken = release(); /* first, because what holds this object may end with the release */
            auto &part = detail::release_part(taken);
            part.release(&part);
        }
    }

private:
    T value_{};
};

using OwnedSchema = Owned<ArrowSchema>;
using OwnedArray = Owned<ArrowArray>;
using OwnedDeviceArray = Owned<ArrowDeviceArray>;
using OwnedStream = Owned<ArrowArrayStream>;
using OwnedDeviceStream = Owned<ArrowDeviceArrayStream>;
using OwnedCudaArray = Owned<devx_cuda_array>;

/* What takes the place of the stream in versions of the CUDA Array Interface that have none (0 to 2). */
enum class NoStream : std::int32_t {
    legacy_default = DEVX_NO_STREAM_LEGACY_DEFAULT, /* the legacy default stream takes the place of the producer's */
    host_sync = DEVX_NO_STREAM_HOST_SYNC,           /* the host waits for the device */
    trust = DEVX_NO_STREAM_TRUST,                   /* the data is known to be ready */
};

/* How a CUDA array is imported or exported. The default is version 3 and no stream. */
struct CudaArrayRequest {
    std::int32_t max_version = 3; /* export: the highest version that the consumer reads */
    NoStream no_stream = NoStream::legacy_default;
    std::int64_t stream = DEVX_CUDA_ARRAY_NO_STREAM; /* import: the consumer's; export: the one to order the data on */

    devx_cuda_array_request raw() const noexcept {
        devx_cuda_array_request request{};
        request.max_version = max_version;
        request.no_stream = static_cast<std::int32_t>(no_stream);
        request.stream = stream;
        return request;
    }
};

class Batch;
class Manager;
struct MaskedTensor;

/* --- tensors --- */

/* A view of a tensor: it owns nothing, and is valid as long as the tensor. */
class TensorView {
public:
    TensorView(DLTensor const &raw, std::uint64_t flags) noexcept : raw_(raw), flags_(flags) {}

    /* The view as a struct of DLPack; its strides are never NULL, its byte_offset is 0. */
    DLTensor const &raw() const noexcept { return raw_; }
    std::size_t ndim() const noexcept { return detail::to_size(raw_.ndim); }
    /* Extents. */
    Span<std::int64_t const> shape() const noexcept { return {raw_.shape, ndim()}; }
    /* Steps along each dimension, in elements. */
    Span<std::int64_t const> strides() const noexcept { return {raw_.strides, ndim()}; }
    DLDataType dtype() const noexcept { return raw_.dtype; }
    DLDevice device() const noexcept { return raw_.device; }
    /* DLPACK_FLAG_BITMASK_... bits. */
    std::uint64_t flags() const noexcept { return flags_; }
    bool read_only() const noexcept { return (flags_ & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }

    /* The address of the first element, in memory of the device. Throws if the elements have another type. */
    template <class T> T const *data() const {
        require<T>();
        return static_cast<T const *>(raw_.data);
    }
    /* The address of the first element, to write to. Throws DEVX_READ_ONLY if that is not allowed. */
    template <class T> T *mutable_data() const {
        require<T>();
        if (read_only()) {
            throw Error(DEVX_READ_ONLY, "flags has READ_ONLY: the memory must not be written");
        }
        return static_cast<T *>(raw_.data);
    }
    /* One element of a tensor in plain host memory. Throws if the index is out of range. A bool is returned by value,
     * because a byte from another runtime may be true without being 1, which a C++ `bool` must not be. Elements in pinned
     * and managed memory may still be written by queued work, of which a view knows nothing: read them through data() when
     * they are ready. */
    template <class T>
    std::conditional_t<std::is_same_v<std::remove_cv_t<T>, bool>, bool, T const &>
    at(std::initializer_list<std::int64_t> index) const {
        T const *const first = data<T>();
        if (raw_.device.device_type != kDLCPU) {
            throw Error(DEVX_DEVICE, "device is " + device_name(raw_.device) + ": an element is read of plain host memory");
        }
        if (index.size() != ndim()) {
            throw Error(DEVX_OUT_OF_RANGE, "index has " + std::to_string(index.size()) +
                                               " dimensions: the tensor has " + std::to_string(ndim()));
        }
        std::int64_t offset = 0;
        std::size_t k = 0;
        for (std::int64_t const i : index) {
            if (i < 0 || i >= raw_.shape[k]) {
                throw Error(DEVX_OUT_OF_RANGE, "index[" + std::to_string(k) + "] is " + std::to_string(i) +
                                                   ": the extent is " + std::to_string(raw_.shape[k]));
            }
            offset += i * raw_.strides[k];
            ++k;
        }
        if constexpr (std::is_same_v<std::remove_cv_t<T>, bool>) {
            return reinterpret_cast<unsigned char const *>(first)[offset] != 0;
        } else {
            return first[offset];
        }
    }

private:
    template <class T> void require() const {
        if (!same_dtype(raw_.dtype, devexchange::dtype<T>)) {
            throw Error(DEVX_MISMATCH,
                        "dtype is " + dtype_name(raw_.dtype) + ", not " + dtype_name(devexchange::dtype<T>));
        }
    }

    DLTensor raw_;
    std::uint64_t flags_;
};

/* The size of a tensor. */
struct TensorSize {
    std::int64_t elements;
    std::int64_t bytes; /* of the elements when compact */
    bool row_major;     /* whether they are compact and in row-major order */
};

/* One reference to memory with a shape and an element type. */
class Tensor {
public:
    /* No tensor: the state of an object that was moved from. */
    Tensor() noexcept = default;
    /* Takes over a handle of the C API. */
    explicit Tensor(devx_tensor_t *raw) noexcept : handle_(raw) {}

    /* A tensor over memory that `owner` keeps alive; shape and strides are copied. Data that is not on the CPU counts as queued
     * on the legacy default stream (produced_on). */
    static Tensor create(DLTensor const &description, Owner &&owner, std::uint64_t flags = 0) {
        Tensor out;
        detail::check([&](devx_error *error) {
            return devx_tensor_create(&description, flags, owner.get(), out.handle_.address(), error);
        });
        static_cast<void>(owner.release()); /* the tensor owns it now */
        return out;
    }

    /* A tensor over host memory; without strides, the elements are compact and in row-major order. A tensor over `const` values
     * is read-only. */
    template <class T>
    static Tensor over(T *data, std::vector<std::int64_t> shape, Owner &&owner,
                       std::vector<std::int64_t> strides = {}) {
        if (!strides.empty() && strides.size() != shape.size()) {
            throw Error(DEVX_INVALID_SHAPE, "there are " + std::to_string(strides.size()) + " strides for " +
                                                std::to_string(shape.size()) + " dimensions");
        }
        DLTensor description{};
        description.data = const_cast<std::remove_cv_t<T> *>(data);
        description.device = cpu;
        description.ndim = static_cast<std::int32_t>(shape.size());
        description.dtype = devexchange::dtype<T>;
        description.shape = shape.data();
        description.strides = strides.empty() ? nullptr : strides.data();
        return create(description, std::move(owner), std::is_const_v<T> ? DLPACK_FLAG_BITMASK_READ_ONLY : 0);
    }

    /* A row-major tensor over a vector, which it keeps; the vector must have as many elements as the shape. */
    template <class T> static Tensor of(std::vector<T> values, std::vector<std::int64_t> shape) {
        static_assert(!std::is_same_v<T, bool>, "a std::vector<bool> has bits, a tensor has bytes");
        auto const kept = std::make_shared<std::vector<T>>(std::move(values));
        auto const count = kept->size();
        Tensor out = over(kept->data(), std::move(shape), keep(kept));
        if (detail::to_size(out.size().elements) != count) {
            throw Error(DEVX_INVALID_SHAPE, "shape has " + std::to_string(out.size().elements) +
                                                " elements: the vector has " + std::to_string(count));
        }
        return out;
    }

    /* Takes a DLPack tensor from its producer. If this throws, `source` still has it. Data that is not on the CPU counts as
     * queued on the legacy default stream. */
    static Tensor import_from(Dlpack &&source) {
        Tensor out = import_from(source.get());
        static_cast<void>(source.release());
        return out;
    }
    static Tensor import_from(DlpackLegacy &&source) {
        Tensor out = import_from(source.get());
        static_cast<void>(source.release());
        return out;
    }
    /* The same for a plain pointer. If this throws, the tensor is still the caller's to delete. */
    static Tensor import_from(DLManagedTensorVersioned *source) {
        Tensor out;
        detail::check([&](devx_error *error) { return devx_tensor_import(source, out.handle_.address(), error); });
        return out;
    }
    static Tensor import_from(DLManagedTensor *source) {
        Tensor out;
        detail::check(
            [&](devx_error *error) { return devx_tensor_import_legacy(source, out.handle_.address(), error); });
        return out;
    }

    /* Takes a tensor that its producer exported for `stream`: its data is ready for work that is queued there from now on.
     * no_stream says nothing about the data, which counts as queued on the legacy default stream. */
    static Tensor import_on(Dlpack &&source, std::int64_t stream) {
        Tensor out = import_on(source.get(), stream);
        static_cast<void>(source.release());
        return out;
    }
    static Tensor import_on(DlpackLegacy &&source, std::int64_t stream) {
        Tensor out = import_on(source.get(), stream);
        static_cast<void>(source.release());
        return out;
    }
    static Tensor import_on(DLManagedTensorVersioned *source, std::int64_t stream) {
        Tensor out;
        detail::check(
            [&](devx_error *error) { return devx_tensor_import_on(source, stream, out.handle_.address(), error); });
        return out;
    }
    static Tensor import_on(DLManagedTensor *source, std::int64_t stream) {
        Tensor out;
        detail::check([&](devx_error *error) {
            return devx_tensor_import_on_legacy(source, stream, out.handle_.address(), error);
        });
        return out;
    }

    /* A compact row-major tensor over new, uninitialised memory. With a stream, the memory comes from the device's pool and is
     * ready for work on `stream`, which may be closed before the tensor is released. Without one, it can be used at once;
     * that of a GPU counts as filled on the legacy default stream (produced_on). Pinned and managed memory is made for the
     * device of the stream, without one for device 0. */
    static Tensor allocate(DLDevice device, DLDataType type, std::vector<std::int64_t> const &shape,
                           std::int64_t stream = no_stream) {
        Tensor out;
        detail::check([&](devx_error *error) {
            return devx_tensor_allocate(device, type, shape.data(), shape.size(), stream, out.handle_.address(),
                                        error);
        });
        return out;
    }

    /* The same over memory from a manager. Without a stream, memory of a pool is in the order of the legacy default stream. */
    static Tensor allocate_with(Manager const &manager, DLDevice device, DLDataType type,
                                std::vector<std::int64_t> const &shape, std::int64_t stream = no_stream);
    /* A compact row-major tensor over zeroed host memory that can be offered to other processes without a copy. */
    static Tensor allocate_shared(DLDataType type, std::vector<std::int64_t> const &shape) {
        Tensor out;
        detail::check([&](devx_error *error) {
            return devx_tensor_allocate_shared(type, shape.data(), shape.size(), out.handle_.address(), error);
        });
        return out;
    }

    /* Takes a CUDA array from its producer. The producer's stream is waited for on the device, and must stay alive until the
     * array is released. If this throws, `source` still has the array. An array with a mask is refused. */
    static Tensor import_from(OwnedCudaArray &&source, CudaArrayRequest const &request = {}) {
        return import_from(source.get(), request);
    }
    static Tensor import_from(devx_cuda_array *source, CudaArrayRequest const &request = {}) {
        Tensor out;
        auto const raw = request.raw();
        detail::check([&](devx_error *error) {
            return devx_cuda_array_import(source, &raw, out.handle_.address(), nullptr, error);
        });
        return out;
    }
    /* The same, with a tensor that says which elements are valid; the tensor is empty if all are. */
    static MaskedTensor import_masked(devx_cuda_array *source, CudaArrayRequest const &request = {});
    static MaskedTensor import_masked(OwnedCudaArray &&source, CudaArrayRequest const &request = {});

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    /* The handle, for a call of the C API. */
    devx_tensor_t *get() const noexcept { return handle_.get(); }
    /* Hands the handle over: whoever gets the result releases it. */
    devx_tensor_t *release() noexcept { return handle_.release(); }

    /* Another reference to the same tensor. */
    Tensor share() const {
        Tensor out;
        detail::check([&](devx_error *error) { return devx_tensor_share(get(), out.handle_.address(), error); });
        return out;
    }
    /* A tensor of `length` indices along one dimension, from index `offset` on. It shares the memory and the order: used_on of
     * the result counts for the whole. */
    Tensor slice(std::int64_t dimension, std::int64_t offset, std::int64_t length) const {
        Tensor out;
        detail::check([&](devx_error *error) {
            return devx_tensor_slice(get(), dimension, offset, length, out.handle_.address(), error);
        });
        return out;
    }
    /* A view, valid as long as this tensor. */
    TensorView borrow() const {
        DLTensor raw{};
        std::uint64_t flags = 0;
        detail::check([&](devx_error *error) { return devx_tensor_borrow(get(), &raw, &flags, error); });
        return TensorView(raw, flags);
    }
    /* A compact row-major copy in host memory of a tensor that the host can read now; see copy_to for any other. */
    Tensor copy() const {
        Tensor out;
        detail::check([&](devx_error *error) { return devx_tensor_copy(get(), out.handle_.address(), error); });
        return out;
    }
    /* A copy on another device, or on the same one, queued on `stream`. A copy from or into plain host memory is waited for.
     * Within plain host memory, any stream but no_stream will do; copy() needs none. A copy from or to plain host memory is
     * row-major, any other has the same strides. */
    Tensor copy_to(DLDevice device, std::int64_t stream) const {
        Tensor out;
        detail::check([&](devx_error *error) {
            return devx_tensor_copy_to(get(), device, stream, out.handle_.address(), error);
        });
        return out;
    }
    /* Reads all elements into host memory, in row-major order, and waits for them. */
    void read(void *into, std::size_t bytes, std::int64_t stream) const {
        detail::check([&](devx_error *error) { return devx_tensor_read(get(), into, bytes, stream, error); });
    }
    template <class T> std::vector<T> read(std::int64_t stream) const {
        static_assert(!std::is_same_v<T, bool>, "a std::vector<bool> has bits, a tensor has bytes");
        static_cast<void>(borrow().template data<T>()); /* throws if the elements are of another type */
        std::vector<T> out(detail::to_size(size().elements));
        read(out.data(), out.size() * sizeof(T), stream);
        return out;
    }
    /* Writes all elements from host memory, in row-major order, and waits until they are written. */
    void write(void const *from, std::size_t bytes, std::int64_t stream) const {
        detail::check([&](devx_error *error) { return devx_tensor_write(get(), from, bytes, stream, error); });
    }
    template <class T> void write(std::vector<T> const &from, std::int64_t stream) const {
        static_assert(!std::is_same_v<T, bool>, "a std::vector<bool> has bits, a tensor has bytes");
        static_cast<void>(borrow().template data<T>());
        write(from.data(), from.size() * sizeof(T), stream);
    }
    /* The stream that `stream` stands for here: a default stream with its device (stream_of). For pinned and managed memory,
     * that is the device that the memory was made for. */
    std::int64_t stream(std::int64_t stream) const {
        std::int64_t out = no_stream;
        detail::check([&](devx_error *error) { return devx_tensor_stream(get(), stream, &out, error); });
        return out;
    }
    /* Makes `stream` wait, on the device, until the data is ready. */
    void wait(std::int64_t stream) const {
        detail::check([&](devx_error *error) { return devx_tensor_wait(get(), stream, error); });
    }
    /* Says that work that is queued on `stream` uses the tensor: its memory is given back only after that work. */
    void used_on(std::int64_t stream) const {
        detail::check([&](devx_error *error) { return devx_tensor_used_on(get(), stream, error); });
    }
    /* Says that the data is ready when the work that is queued on `stream` is done: for work on another stream than the one
     * that the tensor was made on (the legacy default stream if no other was named), and on any stream for pinned or managed
     * memory that was allocated, which counts as ready at once. To be called before the tensor is shared, while no other call
     * uses the handle. Memory that is given back in the order of another stream is given back only after this work, too. */
    void produced_on(std::int64_t stream) {
        detail::check([&](devx_error *error) { return devx_tensor_produced_on(get(), stream, error); });
    }
    /* Asks the driver whether all of the memory is where the tensor says. Memory of the CPU is not checked. */
    void check_pointers() const {
        detail::check([&](devx_error *error) { return devx_tensor_check_pointers(get(), error); });
    }
    TensorSize size() const {
        TensorSize out{};
        std::int32_t row_major = 0;
        detail::check([&](devx_error *error) {
            return devx_tensor_size(get(), &out.elements, &out.bytes, &row_major, error);
        });
        out.row_major = row_major != 0;
        return out;
    }

    /* Hands the tensor to a consumer; this object keeps its reference. */
    Dlpack export_share(Request const &request = {}) const {
        DLManagedTensorVersioned *out = nullptr;
        auto const raw = request.raw();
        detail::check([&](devx_error *error) { return devx_tensor_export_share(get(), &raw, &out, error); });
        return Dlpack(out);
    }
    /* Hands the tensor to a consumer; this object is empty afterwards. If this throws, it is as before. */
    Dlpack export_move(Request const &request = {}) && {
        DLManagedTensorVersioned *out = nullptr;
        auto const raw = request.raw();
        detail::check([&](devx_error *error) { return devx_tensor_export_move(handle_.address(), &raw, &out, error); });
        return Dlpack(out);
    }
    /* The same two, with the struct of DLPack before 1.0, which cannot express read-only memory and padded sub-byte elements
     * (devx_tensor_export_share_legacy). */
    DlpackLegacy export_share_legacy(Request const &request = {}) const {
        DLManagedTensor *out = nullptr;
        auto const raw = request.raw();
        detail::check([&](devx_error *error) { return devx_tensor_export_share_legacy(get(), &raw, &out, error); });
        return DlpackLegacy(out);
    }
    DlpackLegacy export_move_legacy(Request const &request = {}) && {
        DLManagedTensor *out = nullptr;
        auto const raw = request.raw();
        detail::check(
            [&](devx_error *error) { return devx_tensor_export_move_legacy(handle_.address(), &raw, &out, error); });
        return DlpackLegacy(out);
    }

    /* Hands the tensor to a consumer as a CUDA array; this object keeps its reference. */
    OwnedCudaArray export_share_cuda_array(CudaArrayRequest const &request = {}) const {
        OwnedCudaArray out;
        auto const raw = request.raw();
        detail::check([&](devx_error *error) {
            return devx_tensor_export_share_cuda_array(get(), &raw, out.get(), error);
        });
        return out;
    }
    /* The same, but this object is empty afterwards. If this throws, it is as before. */
    OwnedCudaArray export_move_cuda_array(CudaArrayRequest const &request = {}) && {
        OwnedCudaArray out;
        auto const raw = request.raw();
        detail::check([&](devx_error *error) {
            return devx_tensor_export_move_cuda_array(handle_.address(), &raw, out.get(), error);
        });
        return out;
    }

    /* Tells how the tensor can become a column. Nothing is taken. */
    Plan plan_column() const {
        devx_plan out;
        detail::check([&](devx_error *error) { return devx_tensor_plan_column(get(), &out, error); });
        return Plan(out);
    }
    /* The tensor as a column: the first dimension becomes the rows, the others become fixed-size lists. */
    Batch to_column(std::string const &name, Copy copy = Copy::never) const;
    /* The same for a column of the extension type arrow.fixed_shape_tensor, whose dimensions may lie in any order. */
    Plan plan_fixed_shape_column() const {
        devx_plan out;
        detail::check([&](devx_error *error) { return devx_tensor_plan_fixed_shape_column(get(), &out, error); });
        return Plan(out);
    }
    Batch to_fixed_shape_column(std::string const &name, Copy copy = Copy::never) const;
    /* Tells how the matrix can become a record batch with the same columns. Nothing is taken. */
    Plan plan_batch() const {
        devx_plan out;
        detail::check([&](devx_error *error) { return devx_tensor_plan_batch(get(), &out, error); });
        return Plan(out);
    }
    /* The matrix as a record batch; without names the columns are called "0", "1", and so on. */
    Batch to_batch(std::vector<std::string> const &names = {}, Copy copy = Copy::never) const;

private:
    detail::Handle<devx_tensor_t, devx_tensor_release> handle_;
};

/* The result of importing a CUDA array: the elements, and which of them are valid (`mask` is empty if all are). */
struct MaskedTensor {
    Tensor tensor;
    Tensor mask;
};

inline MaskedTensor Tensor::import_masked(devx_cuda_array *source, CudaArrayRequest const &request) {
    MaskedTensor out;
    auto const raw = request.raw();
    detail::check([&](devx_error *error) {
        return devx_cuda_array_import(source, &raw, out.tensor.handle_.address(), out.mask.handle_.address(), error);
    });
    return out;
}

inline MaskedTensor Tensor::import_masked(OwnedCudaArray &&source, CudaArrayRequest const &request) {
    return import_masked(source.get(), request);
}

/* --- schemas --- */

/* Encodes pairs of keys and values as the block that Arrow uses for metadata. */
inline std::string encode_metadata(std::vector<std::pair<std::string, std::string>> const &pairs) {
    std::string out;
    auto const put = [&](std::size_t number) {
        if (number > static_cast<std::size_t>(INT32_MAX)) {
            throw Error(DEVX_INVALID_METADATA, "metadata has a count or length of " + std::to_string(number));
        }
        auto const value = static_cast<std::int32_t>(number);
        out.append(reinterpret_cast<char const *>(&value), sizeof value);
    };
    put(pairs.size());
    for (auto const &[key, value] : pairs) {
        put(key.size());
        out += key;
        put(value.size());
        out += value;
    }
    return out;
}

namespace detail {

/* A block as C takes it. C is not told its size and would read past the end of a block that is cut off, so it is checked. */
inline char const *block_of(std::string const &metadata) {
    if (metadata.empty()) {
        return nullptr;
    }
    std::size_t at = 0;
    auto const number = [&](std::string const &what) {
        std::int32_t value = 0;
        if (metadata.size() - at < sizeof value) {
            throw Error(DEVX_INVALID_METADATA, "metadata has " + std::to_string(metadata.size()) +
                                                   " bytes: it is cut off within " + what);
        }
        std::memcpy(&value, metadata.data() + at, sizeof value);
        at += sizeof value;
        if (value < 0) {
            throw Error(DEVX_INVALID_METADATA,
                        "metadata: " + what + " is " + std::to_string(value) + ": it cannot be negative");
        }
        return value;
    };
    std::int32_t const pairs = number("the number of pairs");
    for (std::int32_t i = 0; i < pairs; ++i) {
        for (char const *const part : {"key ", "value "}) {
            std::string const named = part + std::to_string(i);
            auto const length = to_size(number("the length of " + named));
            if (metadata.size() - at < length) {
                throw Error(DEVX_INVALID_METADATA, "metadata has " + std::to_string(metadata.size()) + " bytes: " +
                                                       named + " has " + std::to_string(length) + " from byte " +
                                                       std::to_string(at) + " on");
            }
            at += length;
        }
    }
    return metadata.data();
}

} // namespace detail

/* The pairs in a metadata block that devexchange has checked; none for nullptr. */
inline std::vector<std::pair<std::string, std::string>> decode_metadata(char const *block) {
    std::vector<std::pair<std::string, std::string>> out;
    if (block == nullptr) {
        return out;
    }
    auto const number = [&] {
        std::int32_t value;
        std::memcpy(&value, block, sizeof value);
        block += sizeof value;
        return value;
    };
    auto const text = [&] {
        auto const length = detail::to_size(number());
        std::string value(block, length);
        block += length;
        return value;
    };
    for (std::int32_t left = number(); left > 0; --left) {
        auto key = text();
        out.emplace_back(std::move(key), text());
    }
    return out;
}

/* A field in the description of a schema. */
struct Field {
    std::string name;
    std::string format;                        /* Arrow format string, for example "g" for float64 */
    std::int64_t flags = DEVX_FIELD_NULLABLE;  /* DEVX_FIELD_... bits */
    std::vector<Field> children = {};
    std::vector<Field> dictionary = {};        /* the field of the dictionary's values, or empty */
    std::string metadata = {};                 /* from encode_metadata, or empty */
};

/* A view of one field of a schema: owns nothing, valid as long as the schema. */
class FieldView {
public:
    FieldView(devx_schema_t const *schema, std::int64_t node) : schema_(schema) {
        detail::check([&](devx_error *error) { return devx_schema_field(schema, node, &raw_, error); });
    }

    devx_field_info const &raw() const noexcept { return raw_; }
    std::string_view name() const noexcept { return raw_.name; }
    std::string_view format() const noexcept { return raw_.format; }
    /* A readable name of the type; for a dictionary, the types of the indices and of the values, as in "int32 -> utf8". */
    std::string type_name() const {
        std::string const own = devexchange::type_name(raw_.format);
        return has_dictionary() ? own + " -> " + dictionary().type_name() : own;
    }
    std::vector<std::pair<std::string, std::string>> metadata() const { return decode_metadata(raw_.metadata); }
    /* DEVX_FIELD_... bits, and any others that the producer has set. */
    std::int64_t flags() const noexcept { return raw_.flags; }
    bool nullable() const noexcept { return (raw_.flags & DEVX_FIELD_NULLABLE) != 0; }

    std::int64_t n_children() const noexcept { return raw_.n_children; }
    FieldView child(std::int64_t index) const {
        if (index < 0 || index >= raw_.n_children) {
            throw Error(DEVX_OUT_OF_RANGE, "index is " + std::to_string(index) + ": the field has " +
                                               std::to_string(raw_.n_children) + " children");
        }
        return FieldView(schema_, raw_.first_child + index);
    }
    /* The first child with this name. */
    FieldView child(std::string_view name) const {
        for (std::int64_t index = 0; index < raw_.n_children; ++index) {
            if (FieldView const one = child(index); one.name() == name) {
                return one;
            }
        }
        throw Error(DEVX_OUT_OF_RANGE, "name is \"" + std::string(name) + "\": the field has no such child");
    }
    std::vector<FieldView> children() const {
        std::vector<FieldView> out;
        for (std::int64_t index = 0; index < raw_.n_children; ++index) {
            out.push_back(child(index));
        }
        return out;
    }
    bool has_dictionary() const noexcept { return raw_.dictionary >= 0; }
    /* The field of the dictionary's values. */
    FieldView dictionary() const {
        if (!has_dictionary()) {
            throw Error(DEVX_MISMATCH, "the field has no dictionary");
        }
        return FieldView(schema_, raw_.dictionary);
    }

private:
    devx_schema_t const *schema_;
    devx_field_info raw_;
};

/* One reference to a tree of fields, which never changes. Schemas are equal if all their fields are, with everything that the
 * fields say. */
class Schema {
public:
    Schema() noexcept = default;
    explicit Schema(devx_schema_t *raw) noexcept : handle_(raw) {}

    /* The schema of an array whose type is that of the field. */
    static Schema create(Field const &root) {
        std::vector<devx_field> fields;
        flatten(root, fields);
        Schema out;
        detail::check([&](devx_error *error) {
            return devx_schema_create(fields.data(), fields.size(), out.handle_.address(), error);
        });
        return out;
    }
    /* The schema of a record batch with these columns. */
    static Schema of(std::vector<Field> columns) { return create(Field{"", "+s", 0, std::move(columns)}); }

    /* Takes an Arrow schema from its producer. If this throws, `source` still has it. */
    static Schema import_from(OwnedSchema &&source) { return import_from(source.get()); }
    static Schema import_from(ArrowSchema *source) {
        Schema out;
        detail::check([&](devx_error *error) { return devx_schema_import(source, out.handle_.address(), error); });
        return out;
    }

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    devx_schema_t *get() const noexcept { return handle_.get(); }
    devx_schema_t *release() noexcept { return handle_.release(); }

    /* The root: for a record batch, a field of type struct with a child for each column. */
    FieldView root() const { return FieldView(get(), 0); }

    friend bool operator==(Schema const &a, Schema const &b) {
        std::int32_t out = 0;
        detail::check([&](devx_error *error) { return devx_schema_equal(a.get(), b.get(), &out, error); });
        return out != 0;
    }
    friend bool operator!=(Schema const &a, Schema const &b) { return !(a == b); }

    /* Another reference to the same schema. */
    Schema share() const {
        Schema out;
        detail::check([&](devx_error *error) { return devx_schema_share(get(), out.handle_.address(), error); });
        return out;
    }
    /* Hands the schema to a consumer; this object keeps its reference. */
    OwnedSchema export_share() const {
        OwnedSchema out;
        detail::check([&](devx_error *error) { return devx_schema_export(get(), out.get(), error); });
        return out;
    }

private:
    friend class Batch;

    static void flatten(Field const &field, std::vector<devx_field> &out) {
        devx_field raw{};
        raw.format = detail::c_text(field.format, "format");
        raw.name = detail::c_text(field.name, "name");
        raw.metadata = detail::block_of(field.metadata);
        raw.flags = field.flags;
        raw.n_children = static_cast<std::int64_t>(field.children.size());
        raw.has_dictionary = static_cast<std::int64_t>(field.dictionary.size()); /* more than one is refused */
        out.push_back(raw);
        for (auto const &child : field.children) {
            flatten(child, out);
        }
        for (auto const &values : field.dictionary) {
            flatten(values, out);
        }
    }

    detail::Handle<devx_schema_t, devx_schema_release> handle_;
};

/* --- columns --- */

struct StoredValue;
struct UnionValue;

/* A view of one array of a batch: owns nothing, valid as long as the batch. Rows are counted from 0. */
class Column {
public:
    Column(devx_batch_t const *batch, devx_column const &raw) noexcept : batch_(batch), raw_(raw) {}

    devx_column const &raw() const noexcept { return raw_; }
    std::string_view name() const noexcept { return raw_.name; }
    std::string_view format() const noexcept { return raw_.format; }
    /* A readable name of the type; for a dictionary, the types of the indices and of the values, as in "int32 -> utf8". */
    std::string type_name() const {
        std::string const own = devexchange::type_name(raw_.format);
        return has_dictionary() ? own + " -> " + dictionary().type_name() : own;
    }
    std::vector<std::pair<std::string, std::string>> metadata() const { return decode_metadata(raw_.metadata); }
    bool nullable() const noexcept { return (raw_.flags & DEVX_FIELD_NULLABLE) != 0; }
    std::int64_t length() const noexcept { return raw_.length; }
    /* The index of row 0 in the buffers. */
    std::int64_t offset() const noexcept { return raw_.offset; }
    /* The addresses of the buffers, in memory of the batch's device. */
    Span<void const *const> buffers() const noexcept { return {raw_.buffers, detail::to_size(raw_.n_buffers)}; }
    std::int64_t n_children() const noexcept { return raw_.n_children; }
    bool has_dictionary() const noexcept { return raw_.has_dictionary != 0; }

    /* The number of nulls; if it is not known, every call counts them, in host memory only. */
    std::int64_t null_count() const {
        std::int64_t out = 0;
        detail::check([&](devx_error *error) { return devx_column_null_count(batch_, &raw_, &out, error); });
        return out;
    }
    /* The same for memory of a GPU, pinned and managed memory: if the number is not known and the host cannot read the data,
     * the validity buffer is copied on `stream`, and the host waits. Throws DEVX_DEVICE if the batch is on the CPU. */
    std::int64_t null_count_on(std::int64_t stream) const {
        std::int64_t out = 0;
        detail::check([&](devx_error *error) {
            return devx_column_null_count_on(batch_, &raw_, stream, &out, error);
        });
        return out;
    }
    bool is_valid(std::int64_t row) const {
        std::int32_t out = 0;
        detail::check([&](devx_error *error) { return devx_column_is_valid(batch_, &raw_, row, &out, error); });
        return out != 0;
    }
    /* All values of a column of numbers; dates and times are read as the integers that they are stored as, and values of a
     * dictionary as their indices. */
    template <class T> Span<T const> values() const {
        void const *out = nullptr;
        detail::check(
            [&](devx_error *error) { return devx_column_values(batch_, &raw_, devexchange::dtype<T>, &out, error); });
        return {static_cast<T const *>(out), detail::to_size(raw_.length)};
    }
    /* The value of a row of bools. */
    bool boolean(std::int64_t row) const {
        std::int32_t out = 0;
        detail::check([&](devx_error *error) { return devx_column_bool(batch_, &raw_, row, &out, error); });
        return out != 0;
    }
    /* The bytes of a row of text or binary, in memory of the batch. */
    std::string_view bytes(std::int64_t row) const {
        char const *out = nullptr;
        std::size_t length = 0;
        detail::check([&](devx_error *error) { return devx_column_bytes(batch_, &raw_, row, &out, &length, error); });
        return {out, length};
    }
    /* The bytes of a row, as stored, in a column whose values all have the same size (numbers, dates, decimals, fixed-size
     * binary); they need not be aligned. */
    std::string_view fixed(std::int64_t row) const {
        char const *out = nullptr;
        std::size_t length = 0;
        detail::check([&](devx_error *error) { return devx_column_fixed(batch_, &raw_, row, &out, &length, error); });
        return {out, length};
    }
    /* The value of a row of any type as readable text: text in quotes as in JSON, null as null (devx_column_text). */
    std::string text(std::int64_t row) const;
    /* Where the value of a row is stored, behind dictionaries, unions and runs; std::nullopt if it is null there or on the
     * way. */
    std::optional<StoredValue> resolve(std::int64_t row) const;
    /* Which child of a union holds the value of a row. */
    UnionValue union_value(std::int64_t row) const;
    /* The run of a run-end encoded column that a row is in: the row of its value in the second child. */
    std::int64_t run(std::int64_t row) const {
        std::int64_t out = 0;
        detail::check([&](devx_error *error) { return devx_column_run(batch_, &raw_, row, &out, error); });
        return out;
    }
    /* The values of a row of lists. */
    Column list(std::int64_t row) const {
        return made(
            [&](devx_column *out, devx_error *error) { return devx_column_list(batch_, &raw_, row, out, error); });
    }
    /* A child: of a struct, a sparse union or a fixed-size list, what belongs to the rows that this column sees; of any other
     * type, all values. */
    Column child(std::int64_t index) const {
        return made(
            [&](devx_column *out, devx_error *error) { return devx_column_child(batch_, &raw_, index, out, error); });
    }
    /* `length` of the rows, from row `offset` on. */
    Column slice(std::int64_t offset, std::int64_t length) const {
        return made([&](devx_column *out, devx_error *error) {
            return devx_column_slice(batch_, &raw_, offset, length, out, error);
        });
    }
    /* A batch of the rows, which shares the memory. It is a record batch if the column is a struct. */
    Batch share() const;
    /* The dictionary that the values of the rows are indices into. */
    Column dictionary() const {
        return made(
            [&](devx_column *out, devx_error *error) { return devx_column_dictionary(batch_, &raw_, out, error); });
    }
    std::int64_t dictionary_index(std::int64_t row) const {
        std::int64_t out = 0;
        detail::check([&](devx_error *error) { return devx_column_dictionary_index(batch_, &raw_, row, &out, error); });
        return out;
    }
    /* Tells how the column can become a tensor. Nothing is taken. Throws DEVX_DEVICE or DEVX_NOT_READY if nulls would have to
     * be counted and the host cannot read the data. */
    Plan plan_tensor() const {
        devx_plan out;
        detail::check([&](devx_error *error) { return devx_column_plan_tensor(batch_, &raw_, &out, error); });
        return Plan(out);
    }
    /* The column as a tensor. A view is read-only and keeps the batch's memory alive. */
    Tensor to_tensor(Copy copy = Copy::never) const {
        devx_tensor_t *out = nullptr;
        detail::check([&](devx_error *error) {
            return devx_column_to_tensor(batch_, &raw_, static_cast<std::int32_t>(copy), &out, error);
        });
        return Tensor(out);
    }

private:
    template <class Call> Column made(Call &&call) const {
        devx_column out;
        detail::check([&](devx_error *error) { return call(&out, error); });
        return Column(batch_, out);
    }

    devx_batch_t const *batch_;
    devx_column raw_;
};

/* Where a value is stored: the column of its type, and the row in that column. */
struct StoredValue {
    Column column;
    std::int64_t row;
};

/* The value of a row of a union: its type id, the child that holds it, and the row in that child. */
struct UnionValue {
    std::int32_t type_id;
    Column child;
    std::int64_t row;
};

inline std::string Column::text(std::int64_t row) const {
    return detail::written([&](char *buffer, std::size_t capacity, std::size_t *length, devx_error *error) {
        return devx_column_text(batch_, &raw_, row, buffer, capacity, length, error);
    });
}

inline std::optional<StoredValue> Column::resolve(std::int64_t row) const {
    std::int32_t valid = 0;
    devx_column column;
    std::int64_t stored_row = 0;
    detail::check([&](devx_error *error) {
        return devx_column_resolve(batch_, &raw_, row, &valid, &column, &stored_row, error);
    });
    return valid != 0 ? std::optional<StoredValue>(StoredValue{Column(batch_, column), stored_row}) : std::nullopt;
}

inline UnionValue Column::union_value(std::int64_t row) const {
    std::int32_t type_id = 0;
    devx_column child;
    std::int64_t child_row = 0;
    detail::check([&](devx_error *error) {
        return devx_column_union(batch_, &raw_, row, &type_id, &child, &child_row, error);
    });
    return {type_id, Column(batch_, child), child_row};
}

/* --- batches --- */

/* One array in the description of a batch. The nodes form the same tree as the fields of the schema. */
struct Node {
    std::int64_t length = 0;
    std::vector<void const *> buffers = {}; /* validity first (nullptr if there are no nulls) */
    std::vector<Node> children = {};
    std::vector<Node> dictionary = {};
    std::int64_t null_count = -1; /* -1 if not known: then it is counted when somebody asks */
    std::int64_t offset = 0;
    std::vector<std::int64_t> sizes = {}; /* bytes of each buffer, -1 if not known; empty if none is known */
};

/* One reference to an Arrow array with its schema: a record batch if the type is struct. */
class Batch {
public:
    Batch() noexcept = default;
    explicit Batch(devx_batch_t *raw) noexcept : handle_(raw) {}

    /* A batch over memory that `owner` keeps alive; the addresses of the buffers are copied, the buffers are not. */
    static Batch create(Schema const &schema, Node const &root, Owner &&owner, DLDevice device = cpu) {
        std::vector<devx_node> nodes;
        std::vector<std::int64_t> sizes;
        flatten(root, nodes, sizes);
        Batch out;
        detail::check([&](devx_error *error) {
            return devx_batch_create_sized(schema.get(), device, nodes.data(), nodes.size(), sizes.data(), owner.get(),
                                           out.handle_.address(), error);
        });
        static_cast<void>(owner.release());
        return out;
    }
    /* A record batch of these columns. */
    static Batch of(Schema const &schema, std::int64_t length, std::vector<Node> columns, Owner &&owner) {
        return create(schema, Node{length, {nullptr}, std::move(columns)}, std::move(owner));
    }

    /* A batch as an argument of of_columns(), valid as long as that batch. A temporary lives until the call has returned. */
    class Ref {
    public:
        Ref(Batch const &batch) noexcept : raw_(batch.get()) {}
        devx_batch_t const *get() const noexcept { return raw_; }

    private:
        devx_batch_t const *raw_;
    };

    /* A record batch of columns, each of which is a batch, under new names. All have the same length and are on the same
     * device. They are shared. On a GPU, they are ordered by `stream`, which waits for all of them and may be closed before the
     * batch is released; none is needed if all are ready. */
    static Batch of_columns(std::vector<std::pair<std::string, Ref>> const &columns, std::int64_t stream = no_stream) {
        std::vector<char const *> names;
        std::vector<devx_batch_t const *> raw;
        for (auto const &[name, column] : columns) {
            names.push_back(detail::c_text(name, "name"));
            raw.push_back(column.get());
        }
        Batch out;
        detail::check([&](devx_error *error) {
            return devx_batch_of_columns(names.data(), raw.data(), raw.size(), stream, out.handle_.address(), error);
        });
        return out;
    }

    /* Takes an array from its producer. If this throws, `source` still has it. */
    static Batch import_from(OwnedArray &&source, Schema const &schema) { return import_from(source.get(), schema); }
    static Batch import_from(OwnedDeviceArray &&source, Schema const &schema) {
        return import_from(source.get(), schema);
    }
    static Batch import_from(ArrowArray *source, Schema const &schema) {
        Batch out;
        detail::check(
            [&](devx_error *error) { return devx_batch_import(source, schema.get(), out.handle_.address(), error); });
        return out;
    }
    static Batch import_from(ArrowDeviceArray *source, Schema const &schema) {
        Batch out;
        detail::check([&](devx_error *error) {
            return devx_batch_import_device(source, schema.get(), out.handle_.address(), error);
        });
        return out;
    }

    /* Takes an array together with its schema. If this throws, both still belong to their owners. */
    static Batch import_from(OwnedArray &&source, OwnedSchema &&schema) {
        return import_from(source.get(), schema.get());
    }
    static Batch import_from(OwnedDeviceArray &&source, OwnedSchema &&schema) {
        return import_from(source.get(), schema.get());
    }
    static Batch import_from(ArrowArray *source, ArrowSchema *schema) {
        Batch out;
        detail::check(
            [&](devx_error *error) { return devx_batch_import_pair(source, schema, out.handle_.address(), error); });
        return out;
    }
    static Batch import_from(ArrowDeviceArray *source, ArrowSchema *schema) {
        Batch out;
        detail::check([&](devx_error *error) {
            return devx_batch_import_pair_device(source, schema, out.handle_.address(), error);
        });
        return out;
    }

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    devx_batch_t *get() const noexcept { return handle_.get(); }
    devx_batch_t *release() noexcept { return handle_.release(); }

    devx_batch_info info() const {
        devx_batch_info out;
        detail::check([&](devx_error *error) { return devx_batch_get_info(get(), &out, error); });
        return out;
    }
    std::int64_t length() const { return info().length; }
    std::int64_t n_columns() const { return info().n_columns; }

    /* A reference to the schema. */
    Schema schema() const {
        Schema out;
        detail::check([&](devx_error *error) { return devx_batch_schema(get(), out.handle_.address(), error); });
        return out;
    }
    /* The whole array as one column. */
    Column root() const {
        return made([&](devx_column *out, devx_error *error) { return devx_batch_root(get(), out, error); });
    }
    Column column(std::int64_t index) const {
        return made([&](devx_column *out, devx_error *error) { return devx_batch_column(get(), index, out, error); });
    }
    /* All columns of a record batch, in one call. */
    std::vector<Column> columns() const {
        std::vector<devx_column> raw(detail::to_size(n_columns()));
        detail::check([&](devx_error *error) {
            return devx_batch_columns(get(), 0, raw.size(), raw.data(), error);
        });
        std::vector<Column> out;
        out.reserve(raw.size());
        for (devx_column const &one : raw) out.emplace_back(get(), one);
        return out;
    }
    /* The first column with this name. */
    Column column(std::string const &name) const {
        char const *const text = detail::c_text(name, "name");
        return made([&](devx_column *out, devx_error *error) {
            return devx_batch_column_named(get(), text, out, error);
        });
    }

    /* Another reference to the same batch. */
    Batch share() const {
        Batch out;
        detail::check([&](devx_error *error) { return devx_batch_share(get(), out.handle_.address(), error); });
        return out;
    }
    /* A batch of `length` rows, from row `offset` on. It shares the memory and the order: used_on of the result counts for the
     * whole. */
    Batch slice(std::int64_t offset, std::int64_t length) const {
        Batch out;
        detail::check([&](devx_error *error) {
            return devx_batch_slice(get(), offset, length, out.handle_.address(), error);
        });
        return out;
    }
    /* A copy in one block of host memory: of a slice, the rows with their texts and elements of lists. It has no offsets,
     * except in run-end encoded columns. devx_batch_copy says what is copied whole. */
    Batch copy() const {
        Batch out;
        detail::check([&](devx_error *error) { return devx_batch_copy(get(), out.handle_.address(), error); });
        return out;
    }
    /* A copy on another device, or on the same one, queued on `stream`. A copy from or into plain host memory is waited for.
     * Within plain host memory, any stream but no_stream will do; copy() needs none. devx_batch_copy_to says what a copy of a
     * slice has. */
    Batch copy_to(DLDevice device, std::int64_t stream) const {
        Batch out;
        detail::check([&](devx_error *error) {
            return devx_batch_copy_to(get(), device, stream, out.handle_.address(), error);
        });
        return out;
    }
    /* Makes `stream` wait, on the device, until the data is ready. */
    void wait(std::int64_t stream) const {
        detail::check([&](devx_error *error) { return devx_batch_wait(get(), stream, error); });
    }
    /* Says that work that is queued on `stream` uses the batch: its memory is given back only after that work. */
    void used_on(std::int64_t stream) const {
        detail::check([&](devx_error *error) { return devx_batch_used_on(get(), stream, error); });
    }
    /* Says that the data is ready when the work that is queued on `stream` is done; see Tensor::produced_on. */
    void produced_on(std::int64_t stream) {
        detail::check([&](devx_error *error) { return devx_batch_produced_on(get(), stream, error); });
    }
    /* Asks the driver whether the buffers are where the batch says, but for data whose size only offsets and views tell. Memory
     * of the CPU is not checked. */
    void check_pointers() const {
        detail::check([&](devx_error *error) { return devx_batch_check_pointers(get(), error); });
    }
    /* Tells how a record batch can become a matrix; all columns have to be of the same number type. Nothing is taken. Throws
     * DEVX_DEVICE or DEVX_NOT_READY if nulls would have to be counted and the host cannot read the data. */
    Plan plan_matrix() const {
        devx_plan out;
        detail::check([&](devx_error *error) { return devx_batch_plan_matrix(get(), &out, error); });
        return Plan(out);
    }
    /* The record batch as a column-major matrix. A view is read-only and keeps the batch's memory alive; a copy of memory
     * that the host cannot read is queued on `stream`. */
    Tensor to_matrix(Copy copy = Copy::never, std::int64_t stream = no_stream) const {
        devx_tensor_t *out = nullptr;
        detail::check([&](devx_error *error) {
            return devx_batch_to_matrix(get(), static_cast<std::int32_t>(copy), stream, &out, error);
        });
        return Tensor(out);
    }
    /* Hands the batch to a consumer; this object keeps its reference. Throws DEVX_DEVICE if the batch is not on the CPU: then
     * use export_share_device. */
    OwnedArray export_share() const {
        OwnedArray out;
        detail::check([&](devx_error *error) { return devx_batch_export_share(get(), out.get(), error); });
        return out;
    }
    OwnedDeviceArray export_share_device() const {
        OwnedDeviceArray out;
        detail::check([&](devx_error *error) { return devx_batch_export_share_device(get(), out.get(), error); });
        return out;
    }
    /* Hands the batch to a consumer; this object is empty afterwards. If this throws, it is as before. */
    OwnedArray export_move() && {
        OwnedArray out;
        detail::check([&](devx_error *error) { return devx_batch_export_move(handle_.address(), out.get(), error); });
        return out;
    }
    OwnedDeviceArray export_move_device() && {
        OwnedDeviceArray out;
        detail::check(
            [&](devx_error *error) { return devx_batch_export_move_device(handle_.address(), out.get(), error); });
        return out;
    }

private:
    static void flatten(Node const &node, std::vector<devx_node> &out, std::vector<std::int64_t> &sizes) {
        devx_node raw{};
        raw.length = node.length;
        raw.null_count = node.null_count;
        raw.offset = node.offset;
        raw.buffers = node.buffers.data();
        raw.n_buffers = static_cast<std::int64_t>(node.buffers.size());
        out.push_back(raw);
        if (node.sizes.empty()) {
            sizes.insert(sizes.end(), node.buffers.size(), -1);
        } else if (node.sizes.size() == node.buffers.size()) {
            sizes.insert(sizes.end(), node.sizes.begin(), node.sizes.end());
        } else {
            throw Error(DEVX_INVALID_BUFFERS, "sizes has " + std::to_string(node.sizes.size()) + " numbers for " +
                                                  std::to_string(node.buffers.size()) + " buffers");
        }
        for (auto const &child : node.children) {
            flatten(child, out, sizes);
        }
        for (auto const &values : node.dictionary) {
            flatten(values, out, sizes);
        }
    }

    template <class Call> Column made(Call &&call) const {
        devx_column out;
        detail::check([&](devx_error *error) { return call(&out, error); });
        return Column(get(), out);
    }

    detail::Handle<devx_batch_t, devx_batch_release> handle_;
};

inline Batch Column::share() const {
    devx_batch_t *out = nullptr;
    detail::check([&](devx_error *error) { return devx_column_share(batch_, &raw_, &out, error); });
    return Batch(out);
}

/* --- streams of batches --- */

namespace detail {

/* The function in `devx_batch_source::next`. */
template <class Source> devx_status next_of(void *context, devx_batch_t **out, devx_error *error) noexcept {
    return status_of(error, [&] {
        Batch batch = (*static_cast<Source *>(context))();
        *out = batch.release();
    });
}

} // namespace detail

/*
 * A stream of batches of one schema on one type of device, pulled one after the other:
 *
 *   for (auto &batch : stream) { ... }                       // throws where the stream has an error
 *   while (auto batch = stream.next()) { ... }               // the same
 */
class BatchStream {
public:
    BatchStream() noexcept = default;
    explicit BatchStream(devx_batch_stream_t *raw) noexcept : handle_(raw) {}

    /* A stream of what `source()` returns: batches, then an empty Batch. What it throws is the stream's error. `source` is
     * called on whatever thread pulls, and not again after the end or an error. It is destroyed with the stream. */
    template <class Source>
    static BatchStream create(Schema const &schema, Source &&source, DLDeviceType device_type = kDLCPU) {
        using Stored = std::decay_t<Source>;
        static_assert(std::is_convertible_v<std::invoke_result_t<Stored &>, Batch>, "a source returns a Batch");
        return detail::hand_over(std::forward<Source>(source), [&](Stored *stored) {
            devx_batch_source raw{};
            raw.context = stored;
            raw.next = &detail::next_of<Stored>;
            raw.release = &detail::destroy<Stored>;
            BatchStream out;
            detail::check([&](devx_error *error) {
                return devx_batch_stream_create(schema.get(), device_type, &raw, out.handle_.address(), error);
            });
            return out;
        });
    }

    /* Takes a stream from its producer. If this throws, `source` still has it. */
    static BatchStream import_from(OwnedStream &&source) { return import_from(source.get()); }
    static BatchStream import_from(OwnedDeviceStream &&source) { return import_from(source.get()); }
    static BatchStream import_from(ArrowArrayStream *source) {
        BatchStream out;
        detail::check(
            [&](devx_error *error) { return devx_batch_stream_import(source, out.handle_.address(), error); });
        return out;
    }
    static BatchStream import_from(ArrowDeviceArrayStream *source) {
        BatchStream out;
        detail::check(
            [&](devx_error *error) { return devx_batch_stream_import_device(source, out.handle_.address(), error); });
        return out;
    }

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    devx_batch_stream_t *get() const noexcept { return handle_.get(); }
    devx_batch_stream_t *release() noexcept { return handle_.release(); }

    /* A reference to the schema that all batches have. */
    Schema schema() const {
        devx_schema_t *out = nullptr;
        detail::check([&](devx_error *error) { return devx_batch_stream_schema(get(), &out, error); });
        return Schema(out);
    }
    DLDeviceType device_type() const {
        std::int32_t out = 0;
        detail::check([&](devx_error *error) { return devx_batch_stream_device_type(get(), &out, error); });
        return static_cast<DLDeviceType>(out);
    }
    /* The next batch, or an empty one at the end and on every later call. Throws the stream's error, also on every later
     * call. */
    Batch next() {
        devx_batch_t *out = nullptr;
        detail::check([&](devx_error *error) { return devx_batch_stream_next(get(), &out, error); });
        return Batch(out);
    }

    /* Hands the stream to a consumer; this object is empty afterwards. If this throws, it is as before: DEVX_DEVICE if the
     * batches are not on the CPU (use export_move_device), DEVX_BUSY while another call uses the stream. */
    OwnedStream export_move() && {
        OwnedStream out;
        detail::check(
            [&](devx_error *error) { return devx_batch_stream_export(handle_.address(), out.get(), error); });
        return out;
    }
    OwnedDeviceStream export_move_device() && {
        OwnedDeviceStream out;
        detail::check(
            [&](devx_error *error) { return devx_batch_stream_export_device(handle_.address(), out.get(), error); });
        return out;
    }

    /* The end of the range. */
    struct sentinel {};

    /* For a range-based for: each step pulls the next batch, which may be moved from. The iterator cannot be copied, so it is
     * an input iterator of C++20 (std::input_iterator), but not of C++17. */
    class iterator {
    public:
        using iterator_concept = std::input_iterator_tag;
        using value_type = Batch;
        using difference_type = std::ptrdiff_t;

        iterator() noexcept = default;
        explicit iterator(BatchStream *stream) : stream_(stream) { ++*this; }

        Batch &operator*() const noexcept { return batch_; }
        Batch *operator->() const noexcept { return &batch_; }
        iterator &operator++() {
            batch_ = stream_->next();
            if (!batch_) {
                stream_ = nullptr;
            }
            return *this;
        }
        void operator++(int) { ++*this; }
        bool operator==(iterator const &other) const noexcept { return stream_ == other.stream_; }
        bool operator!=(iterator const &other) const noexcept { return stream_ != other.stream_; }
        friend bool operator==(iterator const &at, sentinel) noexcept { return at.stream_ == nullptr; }
        friend bool operator!=(iterator const &at, sentinel) noexcept { return at.stream_ != nullptr; }
        friend bool operator==(sentinel, iterator const &at) noexcept { return at.stream_ == nullptr; }
        friend bool operator!=(sentinel, iterator const &at) noexcept { return at.stream_ != nullptr; }

    private:
        BatchStream *stream_ = nullptr;
        mutable Batch batch_; /* belongs to the stream; not part of the iterator's position */
    };

    iterator begin() { return iterator(this); }
    sentinel end() noexcept { return {}; }

private:
    detail::Handle<devx_batch_stream_t, devx_batch_stream_release> handle_;
};

/* --- asynchronous streams of batches --- */

/* A metadata block that came with a batch, a stream or an error: one reference. */
class Metadata {
public:
    Metadata() noexcept = default;
    explicit Metadata(devx_metadata_t *raw) noexcept : handle_(raw) {}

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    /* The block, encoded as ArrowSchema.metadata; empty if there is none. Valid as long as this object. */
    std::string_view block() const {
        char const *block = nullptr;
        std::size_t bytes = 0;
        if (*this) {
            detail::check([&](devx_error *error) { return devx_metadata_block(handle_.get(), &block, &bytes, error); });
        }
        return {block, bytes};
    }

private:
    detail::Handle<devx_metadata_t, devx_metadata_release> handle_;
};

namespace detail {

/* The devx_wake record of a callable. */
template <class Wake> devx_wake wake_of(Wake *wake) noexcept {
    devx_wake raw{};
    raw.context = wake;
    raw.wake = [](void *context) noexcept { (*static_cast<Wake *>(context))(); };
    raw.release = [](void *context) noexcept { delete static_cast<Wake *>(context); };
    return raw;
}

/* `true` if the call succeeds, `false` if it returns DEVX_NOT_READY; throws any other error. */
template <class Call> bool ready(Call &&call) {
    devx_error error;
    devx_status const status = call(&error);
    if (status != DEVX_OK && status != DEVX_NOT_READY) {
        throw Error(error);
    }
    return status == DEVX_OK;
}

} // namespace detail

/* Times are in nanoseconds: 0 does not wait, a negative time is as long as it takes. */
inline constexpr std::int64_t forever = -1;

/*
 * The consumer of an asynchronous stream:
 *
 *   auto reader = AsyncReader::create(4);                    // keeps four batches requested
 *   produce(reader.handler());                               // to any producer
 *   while (auto batch = reader.next()) { ... }               // throws where the stream has an error
 *
 * Unlike most objects here, an AsyncReader may be used from several threads at once.
 */
class AsyncReader {
public:
    AsyncReader() noexcept = default;
    explicit AsyncReader(devx_async_reader_t *raw) noexcept : handle_(raw) {}

    /* Keeps `limit` batches requested; if it is 0, batches come only after request(). `abi_h_metadata` says that the producer's
     * struct is that of Arrow's abi.h, so that its metadata can be read. */
    static AsyncReader create(std::int64_t limit = 4, bool abi_h_metadata = false) {
        return make(limit, abi_h_metadata, nullptr);
    }
    /* Also calls `wake()`, which must not throw, on any thread, when there is something to poll for. */
    template <class Wake> static AsyncReader create(std::int64_t limit, bool abi_h_metadata, Wake &&wake) {
        return detail::hand_over(std::forward<Wake>(wake), [&](auto *stored) {
            devx_wake const raw = detail::wake_of(stored);
            return make(limit, abi_h_metadata, &raw);
        });
    }

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    devx_async_reader_t *get() const noexcept { return handle_.get(); }
    devx_async_reader_t *release() noexcept { return handle_.release(); }

    /* The handler to pass to a producer; a second call throws. The producer that takes it calls its release once; if none takes
     * it, the caller does. It may outlive this object. The producer must not hold a lock during the release that its `request`
     * or `cancel` takes (devx_async_reader_handler). */
    ArrowAsyncDeviceStreamHandler *handler() const {
        ArrowAsyncDeviceStreamHandler *out = nullptr;
        detail::check([&](devx_error *error) { return devx_async_reader_handler(get(), &out, error); });
        return out;
    }
    void request(std::int64_t n) const {
        detail::check([&](devx_error *error) { return devx_async_reader_request(get(), n, error); });
    }
    /* Asks the producer to stop: the stream ends here, without an error. */
    void cancel() const {
        detail::check([&](devx_error *error) { return devx_async_reader_cancel(get(), error); });
    }
    Schema schema(std::int64_t timeout_ns = forever) const {
        devx_schema_t *out = nullptr;
        detail::check([&](devx_error *error) { return devx_async_reader_schema(get(), timeout_ns, &out, error); });
        return Schema(out);
    }
    /* The next batch, or an empty one at the end. */
    Batch next(Metadata *metadata = nullptr) const {
        Batch out;
        try_next(out, forever, metadata);
        return out;
    }
    /* Like next(), but returns `false` and leaves `out` as it is if nothing has come in time. */
    bool try_next(Batch &out, std::int64_t timeout_ns = 0, Metadata *metadata = nullptr) const {
        devx_batch_t *batch = nullptr;
        devx_metadata_t *block = nullptr;
        bool const come = detail::ready(
            [&](devx_error *error) { return devx_async_reader_next(get(), timeout_ns, &batch, &block, error); });
        Metadata held(block);
        if (come) {
            out = Batch(batch);
            if (metadata != nullptr) {
                *metadata = std::move(held);
            }
        }
        return come;
    }
    /* The device type and the metadata of the producer; throws DEVX_NOT_READY before the schema has come. */
    DLDeviceType device_type() const {
        std::int32_t out = 0;
        detail::check([&](devx_error *error) { return devx_async_reader_producer(get(), &out, nullptr, error); });
        return static_cast<DLDeviceType>(out);
    }
    Metadata metadata() const {
        devx_metadata_t *out = nullptr;
        detail::check([&](devx_error *error) { return devx_async_reader_producer(get(), nullptr, &out, error); });
        return Metadata(out);
    }
    /* The errno code of the producer's error; 0 if there was none. */
    std::int32_t producer_error(Metadata *metadata = nullptr) const {
        std::int32_t out = 0;
        devx_metadata_t *block = nullptr;
        detail::check([&](devx_error *error) { return devx_async_reader_producer_error(get(), &out, &block, error); });
        Metadata held(block);
        if (metadata != nullptr) {
            *metadata = std::move(held);
        }
        return out;
    }

private:
    static AsyncReader make(std::int64_t limit, bool abi_h_metadata, devx_wake const *wake) {
        AsyncReader out;
        detail::check([&](devx_error *error) {
            return devx_async_reader_create(limit, abi_h_metadata, wake, out.handle_.address(), error);
        });
        return out;
    }

    detail::Handle<devx_async_reader_t, devx_async_reader_release> handle_;
};

/*
 * The producer of an asynchronous stream, for the handler of a consumer:
 *
 *   auto writer = AsyncWriter::create(handler);
 *   writer.start(schema);
 *   while (more && writer.ready()) { writer.send_move(next_batch()); }
 *   writer.finish();
 *
 * If the consumer cancelled or refused something, the next call that starts, waits or sends throws, and the handler is
 * released. finish() and fail() succeed if the consumer cancelled.
 */
class AsyncWriter {
public:
    AsyncWriter() noexcept = default;
    explicit AsyncWriter(devx_async_writer_t *raw) noexcept : handle_(raw) {}

    /* Takes the handler; if this throws, the handler is untouched. `metadata` is from encode_metadata, or empty. */
    static AsyncWriter create(ArrowAsyncDeviceStreamHandler *handler, DLDeviceType device_type = kDLCPU,
                              std::string const &metadata = {}) {
        return make(handler, device_type, metadata, nullptr);
    }
    /* Also calls `wake()`, which must not throw, on any thread, when the consumer has asked for something: then call
     * ready(0). */
    template <class Wake>
    static AsyncWriter create(ArrowAsyncDeviceStreamHandler *handler, DLDeviceType device_type,
                              std::string const &metadata, Wake &&wake) {
        return detail::hand_over(std::forward<Wake>(wake), [&](auto *stored) {
            devx_wake const raw = detail::wake_of(stored);
            return make(handler, device_type, metadata, &raw);
        });
    }

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    devx_async_writer_t *get() const noexcept { return handle_.get(); }
    devx_async_writer_t *release() noexcept { return handle_.release(); }

    void start(Schema const &schema) const {
        detail::check([&](devx_error *error) { return devx_async_writer_start(get(), schema.get(), error); });
    }
    /* The number of batches that are requested and not sent yet; 0 when none can be sent any more. */
    std::int64_t demand() const {
        std::int64_t out = 0;
        detail::check([&](devx_error *error) { return devx_async_writer_demand(get(), &out, error); });
        return out;
    }
    bool is_cancelled() const {
        std::int32_t out = 0;
        detail::check([&](devx_error *error) { return devx_async_writer_is_cancelled(get(), &out, error); });
        return out != 0;
    }
    /* Waits until a batch can be sent; `false` if that takes longer than the time. */
    bool ready(std::int64_t timeout_ns = forever) const {
        return detail::ready([&](devx_error *error) { return devx_async_writer_ready(get(), timeout_ns, error); });
    }
    /* Sends the consumer the batch. If this throws, `batch` still has it. */
    void send_move(Batch &&batch, std::string const &metadata = {}) const {
        char const *const block = detail::block_of(metadata);
        devx_batch_t *raw = batch.release();
        devx_error error;
        devx_status const status = devx_async_writer_send_move(get(), &raw, block, &error);
        batch = Batch(raw);
        if (status != DEVX_OK) {
            throw Error(error);
        }
    }
    void finish() const {
        detail::check([&](devx_error *error) { return devx_async_writer_finish(get(), error); });
    }
    /* Reports an error to the consumer; `code` is an errno code other than 0. */
    void fail(std::int32_t code, std::string const &message, std::string const &metadata = {}) const {
        char const *const text = detail::c_text(message, "message");
        detail::check([&](devx_error *error) {
            return devx_async_writer_fail(get(), code, text, detail::block_of(metadata), error);
        });
    }

private:
    static AsyncWriter make(ArrowAsyncDeviceStreamHandler *handler, DLDeviceType device_type,
                            std::string const &metadata, devx_wake const *wake) {
        AsyncWriter out;
        detail::check([&](devx_error *error) {
            return devx_async_writer_create(handler, device_type, detail::block_of(metadata), wake,
                                            out.handle_.address(), error);
        });
        return out;
    }

    detail::Handle<devx_async_writer_t, devx_async_writer_release> handle_;
};

/* --- memory managers --- */

/* Memory from a manager. It is given back when this object is destroyed, which may be after the manager. */
struct Memory {
    void *address = nullptr;
    DLDevice device = cpu;
    Owner owner = {};
};

/* A request for memory from a manager. */
inline devx_memory_request memory_request(DLDevice device, std::int64_t bytes, std::int64_t stream = no_stream,
                                          std::uint32_t host_flags = 0) noexcept {
    devx_memory_request request{};
    request.device_type = device.device_type;
    request.device_id = device.device_id;
    request.bytes = bytes;
    request.stream = stream;
    request.host_flags = host_flags;
    return request;
}

namespace detail {

/* Whether an expression with a type is well-formed. */
template <template <class> class Expression, class T, class = void> struct can : std::false_type {};
template <template <class> class Expression, class T>
struct can<Expression, T, std::void_t<Expression<T>>> : std::true_type {};

/* The members that a program's own manager may have besides `allocate`. */
template <class Own> using can_initialize = decltype(std::declval<Own &>().initialize(std::int32_t{}));
template <class Own>
using can_pin = decltype(std::declval<Own &>().pin(std::int32_t{}, std::declval<void *>(), std::int64_t{},
                                                   std::uint32_t{}));
template <class Own> using can_memory_info = decltype(std::declval<Own &>().memory_info(std::int32_t{}));
template <class Own> using can_ipc_handle = decltype(std::declval<Own &>().ipc_handle(std::declval<void const *>()));
template <class Own> using can_reset = decltype(std::declval<Own &>().reset(std::int32_t{}));
template <class Own> using can_trim = decltype(std::declval<Own &>().trim(std::int32_t{}, std::int64_t{}));
template <class Own> using can_defer_cleanup = decltype(std::declval<Own &>().defer_cleanup(true));

/* The table of callbacks of a C++ object, which is its context. Callbacks for which the object has no member are left out. */
template <class Own> devx_manager_table manager_table(Own *context) noexcept {
    devx_manager_table table{};
    table.version = DEVX_MANAGER_VERSION;
    table.context = context;
    table.release = &destroy<Own>;
    table.allocate = [](void *own, devx_memory_request const *request, devx_memory *out, devx_error *error) noexcept {
        return status_of(error, [&] {
            auto const ask = [&]() -> Memory {
                if constexpr (std::is_invocable_v<Own &, devx_memory_request const &>) {
                    return (*static_cast<Own *>(own))(*request);
                } else {
                    return static_cast<Own *>(own)->allocate(*request);
                }
            };
            Memory memory = ask();
            out->address = memory.address;
            out->device_type = memory.device.device_type;
            out->device_id = memory.device.device_id;
            out->owner = memory.owner.release();
        });
    };
    if constexpr (can<can_initialize, Own>::value) {
        table.initialize = [](void *own, std::int32_t id, devx_error *error) noexcept {
            return status_of(error, [&] { static_cast<Own *>(own)->initialize(id); });
        };
    }
    if constexpr (can<can_pin, Own>::value) {
        table.pin = [](void *own, std::int32_t id, void *address, std::int64_t bytes, std::uint32_t flags,
                       devx_owner *out, devx_error *error) noexcept {
            return status_of(error, [&] {
                Owner pinned = static_cast<Own *>(own)->pin(id, address, bytes, flags);
                *out = pinned.release();
            });
        };
    }
    if constexpr (can<can_memory_info, Own>::value) {
        table.memory_info = [](void *own, std::int32_t id, devx_memory_info *out, devx_error *error) noexcept {
            return status_of(error, [&] { *out = static_cast<Own *>(own)->memory_info(id); });
        };
    }
    if constexpr (can<can_ipc_handle, Own>::value) {
        table.ipc_handle = [](void *own, void const *address, devx_ipc_handle *out, devx_error *error) noexcept {
            return status_of(error, [&] { *out = static_cast<Own *>(own)->ipc_handle(address); });
        };
    }
    if constexpr (can<can_reset, Own>::value) {
        table.reset = [](void *own, std::int32_t id, devx_error *error) noexcept {
            return status_of(error, [&] { static_cast<Own *>(own)->reset(id); });
        };
    }
    if constexpr (can<can_trim, Own>::value) {
        table.trim = [](void *own, std::int32_t id, std::int64_t keep, devx_error *error) noexcept {
            return status_of(error, [&] { static_cast<Own *>(own)->trim(id, keep); });
        };
    }
    if constexpr (can<can_defer_cleanup, Own>::value) {
        table.defer_cleanup = [](void *own, std::int32_t begin) noexcept {
            devx_error ignored;
            static_cast<void>(status_of(&ignored, [&] { static_cast<Own *>(own)->defer_cleanup(begin != 0); }));
        };
    }
    return table;
}

} // namespace detail

/* As long as this object lives, a manager holds back memory that is given up. The manager must outlive it. */
class CleanupDeferral {
public:
    explicit CleanupDeferral(devx_manager_t const *manager) : manager_(manager) {
        detail::check([&](devx_error *error) { return devx_manager_defer_cleanup(manager, error); });
    }
    CleanupDeferral(CleanupDeferral &&other) noexcept : manager_(std::exchange(other.manager_, nullptr)) {}
    CleanupDeferral &operator=(CleanupDeferral &&) = delete;
    ~CleanupDeferral() {
        if (manager_ != nullptr) {
            devx_manager_resume_cleanup(manager_, nullptr);
        }
    }

private:
    devx_manager_t const *manager_;
};

/*
 * A memory manager, from the library or the program itself: one reference.
 *
 *   auto const manager = Manager::pool();
 *   auto const tensor = Tensor::allocate_with(manager, cuda(), dtype<float>, {2, 3}, stream);
 *
 * Memory from it may outlive it. It may be used from several threads at once.
 */
class Manager {
public:
    Manager() noexcept = default;
    explicit Manager(devx_manager_t *raw) noexcept : handle_(raw) {}

    /* Asks the driver for each allocation, for every kind of memory. */
    static Manager driver() { return made(&devx_manager_create_driver); }
    /* Like driver(), but gives managed memory for every request for device memory. */
    static Manager managed() { return made(&devx_manager_create_managed); }
    /* Plain and pinned host memory only. */
    static Manager host_only() { return made(&devx_manager_create_host_only); }
    /* A stream-ordered pool on each device, for device and pinned memory: at most `limit` bytes in use over all devices, up to
     * `keep` unused bytes kept on each; -1 for no limit. */
    static Manager pool(std::int64_t limit = -1, std::int64_t keep = -1) {
        return made([&](auto out, auto error) { return devx_manager_create_pool(limit, keep, out, error); });
    }
    /* Like pool(), with memory that can be offered to other processes. */
    static Manager shareable_pool(std::int64_t limit = -1, std::int64_t keep = -1) {
        return made([&](auto out, auto error) { return devx_manager_create_shareable_pool(limit, keep, out, error); });
    }
    /* Allocates from `inner`, which is shared, and has at most `limit` bytes in use; with -1, it only counts. At most 64
       managers can stand one over the other (DEVX_TOO_DEEP). */
    static Manager limited(Manager const &inner, std::int64_t limit) {
        return made(
            [&](auto out, auto error) { return devx_manager_create_limited(inner.get(), limit, out, error); });
    }
    /* The program's own manager: an object that has `Memory allocate(devx_memory_request const &)`, or can itself be called
     * with a request (a lambda), and has any of
     *
     *   initialize(id), Owner pin(id, address, bytes, flags), devx_memory_info memory_info(id),
     *   devx_ipc_handle ipc_handle(address), reset(id), trim(id, keep), defer_cleanup(bool begin)
     *
     * as in devx_manager_table. They are called from any thread, several at once. What they throw is the error of the call;
     * what defer_cleanup throws is dropped. The object is destroyed when the manager and all memory from it have been given
     * up. */
    template <class Own> static Manager create(Own &&own) {
        return detail::hand_over(std::forward<Own>(own), [](auto *stored) {
            devx_manager_table const table = detail::manager_table(stored);
            return made([&](auto out, auto error) { return devx_manager_create(&table, out, error); });
        });
    }

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    devx_manager_t *get() const noexcept { return handle_.get(); }
    devx_manager_t *release() noexcept { return handle_.release(); }

    /* Prepares for allocations on a device. May be called any number of times. */
    void initialize(std::int32_t device_id) const {
        detail::check([&](devx_error *error) { return devx_manager_initialize(get(), device_id, error); });
    }
    /* Allocates memory, which is given back in the order of the request's stream, if there is one; without one, the memory is
     * ready when this returns (devx_manager_allocate). */
    Memory allocate(devx_memory_request const &request) const {
        devx_memory raw{};
        detail::check([&](devx_error *error) { return devx_manager_allocate(get(), &request, &raw, error); });
        DLDevice const device{static_cast<DLDeviceType>(raw.device_type), raw.device_id};
        return Memory{raw.address, device, Owner(raw.owner)};
    }
    /* Pins existing host memory, which must outlive the result; `host_flags` are DEVX_HOST_... bits (devx_manager_pin). */
    Owner pin(std::int32_t device_id, void *address, std::size_t bytes, std::uint32_t host_flags = 0) const {
        devx_owner raw{};
        detail::check([&](devx_error *error) {
            return devx_manager_pin(get(), device_id, address, bytes, host_flags, &raw, error);
        });
        return Owner(raw);
    }
    /* How much memory the manager has on a device. Throws DEVX_UNSUPPORTED if it cannot tell; host_only() never can. */
    devx_memory_info memory_info(std::int32_t device_id) const {
        devx_memory_info out{};
        detail::check([&](devx_error *error) { return devx_manager_memory_info(get(), device_id, &out, error); });
        return out;
    }
    /* The driver's handle of the allocation that contains an address: for programs that send handles themselves. */
    devx_ipc_handle ipc_handle(void const *address) const {
        devx_ipc_handle out{};
        detail::check([&](devx_error *error) { return devx_manager_ipc_handle(get(), address, &out, error); });
        return out;
    }
    /* Gives back all memory of a device, even if it is in use; a limited manager also resets the one that it allocates from.
       Nobody may use the memory afterwards (devx_manager_reset). */
    void reset(std::int32_t device_id) const {
        detail::check([&](devx_error *error) { return devx_manager_reset(get(), device_id, error); });
    }
    /* Gives unused memory of a device back to the driver, except for `keep` bytes. */
    void trim(std::int32_t device_id, std::size_t keep = 0) const {
        detail::check([&](devx_error *error) { return devx_manager_trim(get(), device_id, keep, error); });
    }
    /* Holds back memory that is given up as long as the result lives, except for memory in the order of a stream and that of
     * pin() (devx_manager_defer_cleanup). Not for a temporary manager, which would not outlive the result. */
    CleanupDeferral defer_cleanup() const & { return CleanupDeferral(get()); }
    CleanupDeferral defer_cleanup() const && = delete;
    devx_manager_statistics statistics() const {
        devx_manager_statistics out{};
        detail::check([&](devx_error *error) { return devx_manager_get_statistics(get(), &out, error); });
        return out;
    }

private:
    template <class Create> static Manager made(Create &&create) {
        Manager out;
        detail::check([&](devx_error *error) { return create(out.handle_.address(), error); });
        return out;
    }

    detail::Handle<devx_manager_t, devx_manager_release> handle_;
};

inline Tensor Tensor::allocate_with(Manager const &manager, DLDevice device, DLDataType type,
                                    std::vector<std::int64_t> const &shape, std::int64_t stream) {
    Tensor out;
    detail::check([&](devx_error *error) {
        return devx_tensor_allocate_with(manager.get(), device, type, shape.data(), shape.size(), stream,
                                         out.handle_.address(), error);
    });
    return out;
}

/* --- sharing between processes --- */

/* Tells how a tensor or batch can be offered to other processes. Nothing is taken. */
inline Plan ipc_plan(Tensor const &tensor) {
    devx_plan out;
    detail::check([&](devx_error *error) { return devx_ipc_plan_tensor(tensor.get(), &out, error); });
    return Plan(out);
}
inline Plan ipc_plan(Batch const &batch) {
    devx_plan out;
    detail::check([&](devx_error *error) { return devx_ipc_plan_batch(batch.get(), &out, error); });
    return Plan(out);
}

/*
 * An exporter. Its offers end with it; what was imported stays valid until the importers release it. Its destructor waits until
 * the address is free again, for a second at most. When its process ends, host memory that was imported stays valid; device
 * memory does not. It may be used from several threads at once.
 *
 *   auto const server = IpcServer::create("@weights");       // a name without a file, or the path of a socket
 *   server.offer("layer 1", tensor);
 */
class IpcServer {
public:
    IpcServer() noexcept = default;
    explicit IpcServer(devx_ipc_server_t *raw) noexcept : handle_(raw) {}

    /* Listens at an address, for processes of the same user. If the process is killed, the file of a path stays, and a server
     * at this path is refused until the file is removed. */
    static IpcServer create(std::string const &address) {
        IpcServer out;
        char const *const at = detail::c_text(address, "address");
        detail::check([&](devx_error *error) { return devx_ipc_server_create(at, out.handle_.address(), error); });
        return out;
    }

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    devx_ipc_server_t *get() const noexcept { return handle_.get(); }
    devx_ipc_server_t *release() noexcept { return handle_.release(); }

    /* Offers the memory under a name, in place of any offer that had that name. Memory that cannot be shared is copied if
     * `copy` allows it. A read-only tensor is read-only for importers, too, even if it was copied. */
    void offer(std::string const &name, Tensor const &tensor, Copy copy = Copy::never) const {
        char const *const text = detail::c_text(name, "name");
        detail::check([&](devx_error *error) {
            return devx_ipc_server_offer_tensor(get(), text, tensor.get(), static_cast<std::int32_t>(copy), error);
        });
    }
    void offer(std::string const &name, Batch const &batch, Copy copy = Copy::never) const {
        char const *const text = detail::c_text(name, "name");
        detail::check([&](devx_error *error) {
            return devx_ipc_server_offer_batch(get(), text, batch.get(), static_cast<std::int32_t>(copy), error);
        });
    }
    /* Ends an offer and returns whether there was one. What was imported from it stays valid. A child of a fork can neither
     * make nor end offers. */
    bool withdraw(std::string const &name) const {
        char const *const text = detail::c_text(name, "name");
        std::int32_t out = 0;
        detail::check([&](devx_error *error) { return devx_ipc_server_withdraw(get(), text, &out, error); });
        return out != 0;
    }
    /* The number of imports that are not released yet; what a client imports again while it holds it counts once, unless an
     * offer has changed. */
    std::int64_t leases() const {
        std::int64_t out = 0;
        detail::check([&](devx_error *error) { return devx_ipc_server_leases(get(), &out, error); });
        return out;
    }

private:
    detail::Handle<devx_ipc_server_t, devx_ipc_server_release> handle_;
};

/*
 * A connection of an importer. What was imported may outlive it, and is given back to the exporter when it is released.
 * The exporter is trusted like a producer in this process: the memory holds what the exporter says, and nobody writes it
 * while it is read. A connection may be used from several threads at once.
 *
 *   auto const tensor = IpcClient::create("@weights").import_tensor("layer 1");
 */
class IpcClient {
public:
    IpcClient() noexcept = default;
    explicit IpcClient(devx_ipc_client_t *raw) noexcept : handle_(raw) {}

    /* Connects to an exporter of the same user. It has `timeout_ns` for each answer; `forever` is as long as it takes. */
    static IpcClient create(std::string const &address, std::int64_t timeout_ns = DEVX_IPC_TIMEOUT_NS) {
        IpcClient out;
        char const *const at = detail::c_text(address, "address");
        detail::check(
            [&](devx_error *error) { return devx_ipc_client_create(at, timeout_ns, out.handle_.address(), error); });
        return out;
    }

    explicit operator bool() const noexcept { return handle_.get() != nullptr; }
    devx_ipc_client_t *get() const noexcept { return handle_.get(); }
    devx_ipc_client_t *release() noexcept { return handle_.release(); }

    /* Imports the tensor that is offered under a name, without a copy. */
    Tensor import_tensor(std::string const &name) const {
        devx_tensor_t *out = nullptr;
        char const *const text = detail::c_text(name, "name");
        detail::check([&](devx_error *error) { return devx_ipc_client_import_tensor(get(), text, &out, error); });
        return Tensor(out);
    }
    Batch import_batch(std::string const &name) const {
        devx_batch_t *out = nullptr;
        char const *const text = detail::c_text(name, "name");
        detail::check([&](devx_error *error) { return devx_ipc_client_import_batch(get(), text, &out, error); });
        return Batch(out);
    }

private:
    detail::Handle<devx_ipc_client_t, devx_ipc_client_release> handle_;
};

inline Batch Tensor::to_column(std::string const &name, Copy copy) const {
    devx_batch_t *out = nullptr;
    char const *const text = detail::c_text(name, "name");
    detail::check([&](devx_error *error) {
        return devx_tensor_to_column(get(), text, static_cast<std::int32_t>(copy), &out, error);
    });
    return Batch(out);
}

inline Batch Tensor::to_fixed_shape_column(std::string const &name, Copy copy) const {
    devx_batch_t *out = nullptr;
    char const *const text = detail::c_text(name, "name");
    detail::check([&](devx_error *error) {
        return devx_tensor_to_fixed_shape_column(get(), text, static_cast<std::int32_t>(copy), &out, error);
    });
    return Batch(out);
}

inline Batch Tensor::to_batch(std::vector<std::string> const &names, Copy copy) const {
    devx_batch_t *out = nullptr;
    std::vector<char const *> texts;
    for (auto const &name : names) {
        texts.push_back(detail::c_text(name, "name"));
    }
    detail::check([&](devx_error *error) {
        return devx_tensor_to_batch(get(), texts.data(), texts.size(), static_cast<std::int32_t>(copy), &out, error);
    });
    return Batch(out);
}

} // namespace devexchange

#endif /* DEVEXCHANGE_DEVEXCHANGE_HPP_ */
