// devexchange.hpp on devices: with a driver, real or simulated, and without one.
#include <devexchange.hpp>

#include <dlfcn.h>

#include <string>
#include <vector>

#include "check.h"
#include "soon.hpp"
#include "throws.hpp"

namespace dx = devexchange;

static bool has_device() {
    std::int32_t count = 0;
    return devx_device_count(kDLCUDA, &count, nullptr) == DEVX_OK;
}

// How many streams the simulated driver has destroyed; -1 of another driver.
static std::int64_t destroyed() {
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    void *const found = library == nullptr ? nullptr : dlsym(library, "simcuda_calls");
    using Calls = std::uint64_t (*)(char const *function);
    return found == nullptr ? -1 : static_cast<std::int64_t>(reinterpret_cast<Calls>(found)("cuStreamDestroy_v2"));
}

// Waits for releases, which come on a thread of the library, after the work.
static bool releases_end() {
    return soon([] { return dx::releases_waiting() == 0; }) && dx::releases_lost() == 0;
}

static std::vector<double> const six{0, 1, 2, 3, 4, 5};

TEST(host_memory_needs_no_driver) {
    CHECK_INT(dx::device_count(kDLCPU), 1);
    auto const host = dx::device_info(dx::cpu);
    CHECK_STR(host.name, "host memory");
    auto const tensor = dx::Tensor::allocate(dx::cpu, dx::dtype<double>, {2, 3});
    CHECK_INT(tensor.size().elements, 6);
    auto const again = dx::Tensor::import_on(tensor.export_share(), dx::no_stream);
    CHECK_PTR(again.borrow().raw().data, tensor.borrow().raw().data);
    again.check_pointers();
    CHECK_THROWS(again.used_on(dx::legacy_stream), "DEVX_DEVICE: ");
    CHECK_THROWS(dx::Stream{dx::cpu}, "DEVX_DEVICE: ");
}

TEST(without_a_driver_devices_are_refused) {
    if (has_device()) {
        SKIP("there is a CUDA driver");
    }
    CHECK_THROWS(dx::device_count(kDLCUDA), "DEVX_DEVICE: there is no CUDA driver");
    CHECK_THROWS(dx::device_info(dx::cuda()), "there is no CUDA driver");
    CHECK_THROWS(dx::Stream{dx::cuda()}, "there is no CUDA driver");
    CHECK_THROWS(dx::Tensor::allocate(dx::cuda(), dx::dtype<double>, {6}), "there is no CUDA driver");
    CHECK_INT(dx::outstanding(), 0);
}

TEST(streams_are_moved_not_copied) {
    if (!has_device()) {
        SKIP("there is no CUDA driver");
    }
    dx::Stream first(dx::cuda());
    auto const value = first.value();
    dx::Stream second = std::move(first);
    CHECK(!first);
    CHECK_INT(second, value);
    CHECK_INT(second.device().device_type, kDLCUDA);
    second.synchronize();
    dx::Stream third(dx::cuda());
    auto const before = destroyed();
    second = std::move(third);
    CHECK(second.value() != value);
    auto &same = second;
    second = std::move(same);
    second.synchronize();
    CHECK(before < 0 || destroyed() == before + 1);
    second.reset();
    second.reset();
    CHECK(!second);
    dx::Stream fourth;
    CHECK_INT(fourth.device().device_type, kDLCPU);
    fourth = dx::Stream(dx::cuda());
    CHECK_INT(fourth.device().device_type, kDLCUDA);
    fourth.reset(); // it is a stream of that device
    CHECK(before < 0 || destroyed() == before + 3);
}

TEST(a_stream_is_held) {
    if (!has_device()) {
        SKIP("there is no CUDA driver");
    }
    CHECK(!dx::hold_stream(dx::no_stream));
    dx::Stream stream(dx::cuda());
    auto const value = stream.value();
    dx::Owner const hold = dx::hold_stream(stream);
    CHECK(hold);
    stream.reset();
    CHECK_INT(devx_stream_synchronize(dx::cuda(), value, nullptr), DEVX_OK);
}

TEST(a_tensor_goes_to_the_device_and_back) {
    if (!has_device()) {
        SKIP("there is no CUDA driver");
    }
    dx::Stream const stream(dx::cuda()), other(dx::cuda());
    {
        auto const tensor = dx::Tensor::allocate(dx::cuda(), dx::dtype<double>, {2, 3}, stream);
        tensor.write(six, stream);
        CHECK(tensor.read<double>(stream) == six);
        CHECK_THROWS(tensor.read<float>(stream), "DEVX_MISMATCH: ");
        CHECK_THROWS(tensor.write(std::vector<std::int64_t>(6), stream), "DEVX_MISMATCH: ");

        // Exported for a consumer's stream, and imported there.
        dx::Request request;
        request.stream = other;
        auto const taken = dx::Tensor::import_on(tensor.export_share(request), other);
        auto copy = taken.copy_to(dx::cuda(), other);
        copy.wait(stream);
        CHECK(copy.read<double>(stream) == six);
        auto const host = copy.copy_to(dx::cpu, stream);
        CHECK(host.borrow().at<double>({1, 2}) == 5);
        taken.used_on(other);
        CHECK_INT(taken.stream(dx::legacy_stream), dx::stream_of(dx::cuda(), dx::legacy_stream));
        CHECK_THROWS(taken.used_on(0), "DEVX_INVALID_STREAM: ");
    }
    CHECK(releases_end());
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_batch_goes_to_the_device_and_back) {
    if (!has_device()) {
        SKIP("there is no CUDA driver");
    }
    static std::int64_t const numbers[] = {1, 2, 3};
    int releases = 0;
    dx::Stream const stream(dx::cuda());
    {
        auto const schema = dx::Schema::of({dx::Field{"number", "l"}});
        auto const batch = dx::Batch::of(schema, 3, {dx::Node{3, {nullptr, numbers}}}, dx::owner([&] { ++releases; }));
        auto copy = batch.copy_to(dx::cuda(), stream);
        CHECK_INT(copy.info().device_type, kDLCUDA);
        copy.produced_on(stream);
        auto const taken = dx::Batch::import_from(std::move(copy).export_move_device(), schema);
        taken.wait(dx::legacy_stream);
        taken.used_on(dx::stream_of(dx::cuda(), dx::legacy_stream));
        auto const host = taken.copy_to(dx::cpu, dx::legacy_stream);
        CHECK_INT(host.column("number").values<std::int64_t>()[2], 3);
    }
    CHECK(releases_end());
    CHECK_INT(releases, 1);
    CHECK_INT(dx::outstanding(), 0);
}

CHECK_MAIN()
