// devexchange.hpp: what a call is given arrives in C, each argument in its own place.
#include <devexchange.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "soon.hpp"
#include "throws.hpp"

namespace dx = devexchange;

static double six[] = {1, 2, 3, 4, 5, 6};

// Three columns of two rows, one after the other.
static dx::Tensor matrix() {
    return dx::Tensor::over(six, {2, 3}, dx::Owner(), {1, 2});
}

TEST(a_copy_is_made_if_it_is_asked_for) {
    {
        auto const tensor = dx::Tensor::over(six, {6}, dx::Owner()), columns = matrix();
        auto const seen = tensor.to_column("x"), copied = tensor.to_column("x", dx::Copy::always);
        CHECK_PTR(seen.root().buffers()[1], six);
        CHECK(copied.root().buffers()[1] != six);
        auto const rows = dx::Tensor::over(six, {2, 3}, dx::Owner());
        auto const fixed = rows.to_fixed_shape_column("x"), other = rows.to_fixed_shape_column("x", dx::Copy::always);
        CHECK_PTR(fixed.root().child(0).buffers()[1], six);
        CHECK(other.root().child(0).buffers()[1] != six);
        auto const batch = columns.to_batch(), own = columns.to_batch({}, dx::Copy::always);
        CHECK_PTR(batch.column(0).buffers()[1], six);
        CHECK(own.column(0).buffers()[1] != six);
        CHECK_THROWS(batch.to_matrix(dx::Copy::never, dx::legacy_stream), "DEVX_DEVICE: stream is 1");
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_tensor_says_how_it_lies) {
    CHECK(!matrix().size().row_major);
    CHECK_INT(matrix().size().elements, 6);
    CHECK_INT(matrix().size().bytes, 48);
}

TEST(a_stream_is_the_one_that_was_named) {
    {
        auto const tensor = matrix();
        auto const batch = tensor.to_batch();
        CHECK_THROWS(tensor.copy_to(dx::cpu, 0), "DEVX_INVALID_STREAM: stream is 0");
        CHECK_THROWS(batch.copy_to(dx::cpu, 0), "DEVX_INVALID_STREAM: stream is 0");
        CHECK_THROWS(dx::Tensor::allocate(dx::cpu, dx::dtype<float>, {2}, 5), "DEVX_DEVICE: stream is 5");
        CHECK_THROWS(dx::Tensor::allocate_with(dx::Manager::host_only(), dx::cpu, dx::dtype<float>, {2}, 5),
                     "DEVX_DEVICE: stream is 5");
        auto exported = tensor.export_share();
        CHECK_THROWS(dx::Tensor::import_on(std::move(exported), 5), "DEVX_INVALID_STREAM: stream is 5");
        CHECK(exported != nullptr);
        CHECK_THROWS(dx::Manager::host_only().allocate(dx::memory_request(dx::cpu, 4, 0)),
                     "DEVX_INVALID_STREAM: stream is 0");
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_request_asks_for_a_version) {
    dx::Request request;
    request.max_minor = 1;
    CHECK_INT(matrix().export_share(request)->version.minor, 1);
    CHECK_INT(matrix().export_share()->version.minor, DLPACK_MINOR_VERSION);
    CHECK_INT(dx::outstanding(), 0);
}

/* --- managers --- */

// The last call that the manager of these got.
struct Asked {
    std::string call;
    std::int32_t id = -1;
    void const *address = nullptr;
    std::int64_t number = -1;
    std::uint32_t flags = 0;
};

struct Asking {
    Asked *asked;

    dx::Memory allocate(devx_memory_request const &request) {
        *asked = {"allocate", request.device_id, nullptr, request.bytes, request.host_flags};
        throw dx::Error(DEVX_OUT_OF_MEMORY, "nothing here");
    }
    void initialize(std::int32_t id) { *asked = {"initialize", id}; }
    dx::Owner pin(std::int32_t id, void *address, std::int64_t bytes, std::uint32_t flags) {
        *asked = {"pin", id, address, bytes, flags};
        return {};
    }
    devx_memory_info memory_info(std::int32_t id) {
        *asked = {"memory_info", id};
        return devx_memory_info{10, 100};
    }
    devx_ipc_handle ipc_handle(void const *address) {
        *asked = {"ipc_handle", -1, address};
        devx_ipc_handle handle{};
        handle.bytes = 1;
        return handle;
    }
    void reset(std::int32_t id) { *asked = {"reset", id}; }
    void trim(std::int32_t id, std::int64_t keep) { *asked = {"trim", id, nullptr, keep}; }
    void defer_cleanup(bool begin) { *asked = {"defer_cleanup", begin ? 1 : 0}; }
};

TEST(a_manager_of_ones_own_is_told_what_the_caller_says) {
    Asked asked;
    char place[24];
    {
        auto const manager = dx::Manager::create(Asking{&asked});
        auto const is = [&asked](char const *call, std::int32_t id, std::int64_t number = -1) {
            CHECK_STR(asked.call.c_str(), call);
            CHECK_INT(asked.id, id);
            CHECK_INT(asked.number, number);
        };
        manager.initialize(1);
        CHECK_CALL(is("initialize", 1));
        CHECK_INT(manager.memory_info(2).free_bytes, 10);
        CHECK_CALL(is("memory_info", 2));
        static_cast<void>(manager.pin(3, place, sizeof place, DEVX_HOST_PORTABLE));
        CHECK_CALL(is("pin", 3, sizeof place));
        CHECK_PTR(asked.address, place);
        CHECK_INT(asked.flags, DEVX_HOST_PORTABLE);
        static_cast<void>(manager.pin(3, place, sizeof place));
        CHECK_INT(asked.flags, 0);
        CHECK_INT(manager.ipc_handle(place).bytes, 1);
        CHECK_PTR(asked.address, place);
        manager.reset(4);
        CHECK_CALL(is("reset", 4));
        manager.trim(5, 77);
        CHECK_CALL(is("trim", 5, 77));
        manager.trim(6);
        CHECK_CALL(is("trim", 6, 0));
        CHECK_THROWS(manager.allocate(dx::memory_request(DLDevice{kDLCUDAHost, 7}, 64, dx::no_stream, DEVX_HOST_MAPPED)),
                     "DEVX_OUT_OF_MEMORY: allocate: nothing here");
        CHECK_CALL(is("allocate", 7, 64));
        CHECK_INT(asked.flags, DEVX_HOST_MAPPED);
        {
            // It ends once, however often it is moved.
            auto first = manager.defer_cleanup();
            CHECK_CALL(is("defer_cleanup", 1));
            {
                auto const second = std::move(first);
                asked = {};
            }
            CHECK_CALL(is("defer_cleanup", 0));
            asked = {};
        }
        CHECK_CALL(is("", -1));
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(limits_of_managers_are_checked) {
    CHECK_THROWS(dx::Manager::pool(-2), "limit is -2");
    CHECK_THROWS(dx::Manager::pool(1, -3), "keep is -3");
    CHECK_THROWS(dx::Manager::shareable_pool(-2), "limit is -2");
    CHECK_THROWS(dx::Manager::shareable_pool(1, -3), "keep is -3");
    CHECK_THROWS(dx::Manager::limited(dx::Manager::host_only(), -4), "limit is -4");
    CHECK_INT(dx::outstanding(), 0);
}

/* --- streams and other processes --- */

TEST(streams_are_of_a_type_of_device) {
    {
        auto const reader = dx::AsyncReader::create();
        auto *const handler = reader.handler();
        CHECK_THROWS(dx::AsyncWriter::create(handler, static_cast<DLDeviceType>(99)), "DEVX_DEVICE: device_type is 99");
        CHECK_THROWS(dx::AsyncWriter::create(handler, static_cast<DLDeviceType>(99), {}, [] {}),
                     "DEVX_DEVICE: device_type is 99");
        handler->release(handler);
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(places_in_a_range_are_compared) {
    {
        auto const schema = dx::Schema::of({{"x", "i"}});
        auto const none = std::vector<std::int32_t>(1);
        auto stream = dx::BatchStream::create(schema, [&] {
            return dx::Batch::of(schema, 1, {dx::Node{1, {nullptr, none.data()}}}, dx::Owner());
        });
        dx::BatchStream::iterator const end;
        auto const here = stream.begin(), there = stream.begin();
        CHECK(here == there && !(here != there));
        CHECK(here != end && !(here == end));
        CHECK(here != stream.end() && stream.end() != here && !(here == stream.end()) && !(stream.end() == here));
        CHECK(end == stream.end() && stream.end() == end && !(end != stream.end()) && !(stream.end() != end));
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(offers_are_copied_if_that_is_asked_for) {
    auto const address = "@devexchange-cpp-arguments-" + std::to_string(getpid());
    {
        auto const server = dx::IpcServer::create(address);
        auto const batch = matrix().to_batch();
        CHECK_THROWS(server.offer("b", batch), "DEVX_COPY_REQUIRED: ");
        server.offer("b", batch, dx::Copy::if_needed);
        CHECK_INT(dx::IpcClient::create(address).import_batch("b").length(), 2);
        // A thread of the exporter notices that the importer is gone.
        CHECK(soon([&] { return server.leases() == 0; }));
        CHECK(server.withdraw("b"));
    }
    CHECK_INT(dx::outstanding(), 0);
}

// An exporter that never answers.
TEST(an_importer_waits_as_long_as_it_is_told) {
    auto const address = "@devexchange-cpp-silent-" + std::to_string(getpid());
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path + 1, address.size() - 1, 1);
    int const silent = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    auto const length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    CHECK(bind(silent, reinterpret_cast<sockaddr const *>(&name), length) == 0 && listen(silent, 1) == 0);
    CHECK_THROWS(dx::IpcClient::create(address, 2000000), "did not answer within 2ms");
    close(silent);
}

CHECK_MAIN()
