// devexchange.hpp: memory managers, from the library and the program, and CUDA arrays; with a driver, real or simulated,
// and without one.
#include <devexchange.hpp>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "check.h"
#include "soon.hpp"
#include "throws.hpp"

namespace dx = devexchange;

static bool has_device() {
    std::int32_t count = 0;
    return devx_device_count(kDLCUDA, &count, nullptr) == DEVX_OK;
}

static bool releases_end() {
    return soon([] { return dx::releases_waiting() == 0; }) && dx::releases_lost() == 0;
}

// ---- managers ----

template <class M, class = void> struct can_defer : std::false_type {};
template <class M> struct can_defer<M, std::void_t<decltype(std::declval<M>().defer_cleanup())>> : std::true_type {};
static_assert(can_defer<dx::Manager &>::value && can_defer<dx::Manager const &>::value, "one that stays");
static_assert(!can_defer<dx::Manager>::value, "one that goes before the deferral");

TEST(the_librarys_managers_on_the_host) {
    auto const host = dx::Manager::host_only();
    auto const limited = dx::Manager::limited(host, 150);
    {
        auto const memory = limited.allocate(dx::memory_request(dx::cpu, 100));
        CHECK(memory.address != nullptr && memory.owner);
        CHECK_INT(memory.device.device_type, kDLCPU);
        CHECK_THROWS(static_cast<void>(limited.allocate(dx::memory_request(dx::cpu, 100))), "limit of 150");
        CHECK_INT(limited.statistics().bytes, 100);
        CHECK_INT(limited.statistics().refused, 1);
    }
    CHECK_INT(limited.statistics().bytes, 0);
    {
        auto const deferral = limited.defer_cleanup();
        auto const again = dx::Tensor::allocate_with(limited, dx::cpu, dx::dtype<double>, {2, 3});
        CHECK_INT(again.size().bytes, 48);
    }
    limited.initialize(0);
    limited.trim(0);
    limited.reset(0);
    CHECK_INT(limited.statistics().allocations, 0);
    CHECK_THROWS(static_cast<void>(limited.memory_info(0)), "DEVX_UNSUPPORTED: ");
    CHECK_THROWS(static_cast<void>(host.allocate(dx::memory_request(dx::cuda(), 4))), "host-only");
    CHECK_INT(dx::outstanding(), 0);
}

struct Books {
    std::atomic<int> allocations{0}, frees{0}, pins{0}, deferred{0}, destroyed{0};
    bool refuse = false;
};

// A manager over malloc that has every member that a manager can have.
struct Whole {
    Books *books;

    explicit Whole(Books *into) : books(into) {}
    Whole(Whole &&other) noexcept : books(std::exchange(other.books, nullptr)) {}
    ~Whole() {
        if (books != nullptr) {
            ++books->destroyed;
        }
    }

    dx::Memory allocate(devx_memory_request const &request) {
        if (books->refuse) {
            throw dx::Error(DEVX_OUT_OF_MEMORY, "no more today", 77);
        }
        void *const block = std::malloc(static_cast<std::size_t>(request.bytes) + 1);
        ++books->allocations;
        return dx::Memory{block, dx::cpu, dx::owner([own = books, block] {
                              std::free(block);
                              ++own->frees;
                          })};
    }
    void initialize(std::int32_t id) {
        if (id != 0) {
            throw std::runtime_error("there is only device 0");
        }
    }
    dx::Owner pin(std::int32_t, void *, std::int64_t bytes, std::uint32_t) {
        if (bytes == 13) {
            throw 13;
        }
        ++books->pins;
        return dx::owner([own = books] { --own->pins; });
    }
    devx_memory_info memory_info(std::int32_t) { return devx_memory_info{10, 100}; }
    devx_ipc_handle ipc_handle(void const *) {
        devx_ipc_handle handle{};
        handle.handle[0] = 7;
        handle.bytes = 1;
        return handle;
    }
    void reset(std::int32_t) { throw std::bad_alloc(); }
    void trim(std::int32_t, std::int64_t keep) { CHECK_INT(keep, 5); }
    void defer_cleanup(bool begin) {
        books->deferred += begin ? 1 : -1;
        throw std::runtime_error("nobody hears this");
    }
};

TEST(a_manager_of_ones_own_is_an_object) {
    Books books;
    {
        auto manager = dx::Manager::create(Whole(&books));
        CHECK_INT(books.destroyed, 0);
        manager.initialize(0);
        CHECK_THROWS(manager.initialize(1), "DEVX_CALLBACK: initialize: there is only device 0");
        auto tensor = dx::Tensor::allocate_with(manager, dx::cpu, dx::dtype<float>, {2, 2});
        tensor.borrow().mutable_data<float>()[3] = 1;
        CHECK_INT(manager.statistics().bytes, 16);
        CHECK_INT(manager.memory_info(0).total_bytes, 100);
        CHECK_INT(manager.ipc_handle(&books).handle[0], 7);
        manager.trim(0, 5);
        {
            auto const pinned = manager.pin(0, &books, sizeof books);
            CHECK_INT(books.pins, 1);
        }
        CHECK_INT(books.pins, 0);
        CHECK_THROWS(static_cast<void>(manager.pin(0, &books, 13)), "what is not a std::exception");
        {
            auto const deferral = manager.defer_cleanup();
            CHECK_INT(books.deferred, 1);
            static_cast<void>(manager.allocate(dx::memory_request(dx::cpu, 8)));
            CHECK_INT(books.frees, 0);
        }
        CHECK_INT(books.deferred, 0);
        CHECK_INT(books.frees, 1);
        CHECK_THROWS(manager.reset(0), "DEVX_OUT_OF_MEMORY: reset: ");
        CHECK_INT(books.frees, 1);
        books.refuse = true;
        try {
            static_cast<void>(manager.allocate(dx::memory_request(dx::cpu, 8)));
            CHECK(false);
        } catch (dx::Error const &error) {
            CHECK_INT(error.status(), DEVX_OUT_OF_MEMORY);
            CHECK_INT(error.driver_code(), 77);
            CHECK_HAS(error.what(), "allocate: no more today");
        }
        books.refuse = false;
        tensor = dx::Tensor::allocate_with(manager, dx::cpu, dx::dtype<float>, {2, 2});
        manager = dx::Manager();
        CHECK_INT(books.destroyed, 0);
    }
    CHECK_INT(books.allocations, books.frees);
    CHECK_INT(books.destroyed, 1);
    CHECK_INT(dx::outstanding(), 0);
}

// A missing member is like a NULL in the table.
TEST(a_manager_of_ones_own_is_a_lambda) {
    int asked = 0;
    {
        auto const manager = dx::Manager::create([&asked](devx_memory_request const &request) {
            ++asked;
            auto block = std::vector<char>(static_cast<std::size_t>(request.bytes));
            auto const address = block.data();
            return dx::Memory{address, dx::cpu, dx::keep(std::move(block))};
        });
        auto const tensor = dx::Tensor::allocate_with(manager, dx::cpu, dx::dtype<std::uint8_t>, {64});
        CHECK_INT(asked, 1);
        manager.initialize(99);
        manager.trim(0);
        manager.reset(0);
        CHECK_THROWS(static_cast<void>(manager.memory_info(0)), "the manager has no memory_info");
        CHECK_THROWS(static_cast<void>(manager.pin(0, &asked, 4)), "the manager has no pin");
        auto const limited = dx::Manager::limited(manager, 10);
        CHECK_THROWS(static_cast<void>(limited.allocate(dx::memory_request(dx::cpu, 11))), "limit of 10");
    }
    CHECK_INT(asked, 1);
    CHECK_INT(dx::outstanding(), 0);
}

TEST(managers_on_the_device) {
    if (!has_device()) {
        CHECK_THROWS(dx::Manager::driver().initialize(0), "DEVX_DEVICE: ");
        SKIP("there is no CUDA driver");
    }
    dx::Stream const stream(dx::cuda());
    {
        for (auto const &manager : {0, 1, 2, 3}) {
            auto const made = manager == 0   ? dx::Manager::driver()
                              : manager == 1 ? dx::Manager::managed()
                              : manager == 2 ? dx::Manager::pool(1 << 20, 0)
                                             : dx::Manager::shareable_pool();
            made.initialize(0);
            auto const tensor = dx::Tensor::allocate_with(made, dx::cuda(), dx::dtype<double>, {6}, stream);
            CHECK_INT(tensor.borrow().device().device_type, manager == 1 ? kDLCUDAManaged : kDLCUDA);
            CHECK((dx::ipc_plan(tensor).kind == dx::Plan::Kind::view) == (manager == 3));
            tensor.write(std::vector<double>{0, 1, 2, 3, 4, 5}, stream);
            CHECK(tensor.read<double>(stream)[5] == 5);
            CHECK(made.memory_info(0).total_bytes > 0);
            std::vector<char> mine(4096);
            auto const pinned = made.pin(0, mine.data(), mine.size(), DEVX_HOST_PORTABLE);
            CHECK_THROWS(static_cast<void>(made.pin(0, mine.data(), mine.size())), "4096 bytes at 0x");
            tensor.used_on(stream);
        }
        static double host = 0;
        auto const wrong = dx::Manager::create(
            [](devx_memory_request const &) { return dx::Memory{&host, dx::cpu, dx::Owner()}; });
        CHECK_THROWS(static_cast<void>(wrong.allocate(dx::memory_request(dx::cuda(), sizeof host))),
                     "allocate: the manager gave memory of cpu:0 for cuda:0");
        auto const driver = dx::Manager::driver();
        // What it gives is where it says.
        auto const last = dx::cuda(dx::device_count(kDLCUDA) - 1);
        auto const through =
            dx::Manager::create([&driver](devx_memory_request const &request) { return driver.allocate(request); });
        auto const there = through.allocate(dx::memory_request(last, 64));
        CHECK_INT(there.device.device_type, kDLCUDA);
        CHECK_INT(there.device.device_id, last.device_id);
        auto const pinned = driver.allocate(dx::memory_request(DLDevice{kDLCUDAHost, 0}, 64));
        CHECK_THROWS(static_cast<void>(driver.ipc_handle(pinned.address)), "address 0x");
    }
    CHECK(releases_end());
    CHECK_INT(dx::outstanding(), 0);
}

// ---- CUDA arrays ----

TEST(cuda_arrays_come_in_with_a_mask_and_go_out) {
    if (!has_device()) {
        auto const host = dx::Tensor::of(std::vector<float>{1}, {1});
        CHECK_THROWS(static_cast<void>(host.export_share_cuda_array()), "DEVX_DEVICE: ");
        SKIP("there is no CUDA driver");
    }
    dx::Stream const stream(dx::cuda());
    {
        auto tensor = dx::Tensor::allocate(dx::cuda(), dx::dtype<std::int32_t>, {4}, stream);
        tensor.write(std::vector<std::int32_t>{1, 2, 3, 4}, stream);
        dx::CudaArrayRequest request;
        request.stream = stream;
        auto array = tensor.export_share_cuda_array(request);
        CHECK(array);
        CHECK_INT(array->stream, stream.value());
        CHECK_STR(array->typestr, "<i4");
        dx::Stream const other(dx::cuda());
        request.stream = other;
        CHECK_INT(tensor.export_share_cuda_array(request)->stream, other.value());
        request.stream = stream;

        // A producer says which elements are valid.
        auto const valid = dx::Tensor::allocate(dx::cuda(), dx::dtype<bool>, {4});
        auto const kept = valid.export_share_cuda_array();
        devx_cuda_array mask = *kept;
        mask.release = nullptr;
        array.get()->mask = &mask;
        CHECK_THROWS(static_cast<void>(dx::Tensor::import_from(std::move(array))), "DEVX_UNSUPPORTED: mask is there");
        CHECK(array);
        {
            auto const imported = dx::Tensor::import_masked(std::move(array), request);
            CHECK(!array);
            CHECK(imported.tensor.read<std::int32_t>(stream)[3] == 4);
            CHECK(dx::same_dtype(imported.mask.borrow().dtype(), dx::dtype<bool>));
        }
        dx::CudaArrayRequest wrong;
        wrong.no_stream = static_cast<dx::NoStream>(7);
        CHECK_THROWS(static_cast<void>(tensor.export_share_cuda_array(wrong)), "no_stream is 7");
        CHECK_THROWS(static_cast<void>(std::move(tensor).export_move_cuda_array(wrong)), "no_stream is 7");
        CHECK(tensor);
        auto moved = std::move(tensor).export_move_cuda_array();
        CHECK(!tensor);
        CHECK_THROWS(static_cast<void>(dx::Tensor::import_masked(std::move(moved), wrong)), "no_stream is 7");
        wrong = dx::CudaArrayRequest();
        wrong.max_version = -1;
        CHECK_THROWS(static_cast<void>(dx::Tensor::import_from(std::move(moved), wrong)), "max_version is -1");
        CHECK(moved);
        auto const back = dx::Tensor::import_from(std::move(moved));
        CHECK(!moved && back.read<std::int32_t>(stream)[0] == 1);
    }
    CHECK(releases_end());
    CHECK_INT(dx::outstanding(), 0);
}

CHECK_MAIN()
