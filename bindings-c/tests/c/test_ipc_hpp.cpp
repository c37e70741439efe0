// devexchange.hpp: sharing with other processes. The importer was forked before the library was used.
#include <devexchange.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "soon.hpp"
#include "throws.hpp"

namespace dx = devexchange;

static std::string address_of(char const *what, pid_t process) {
    return std::string("@devexchange-hpp-") + what + "-" + std::to_string(process);
}

static int import_all(std::string const &address) {
    try {
        auto const client = dx::IpcClient::create(address, dx::forever);
        auto const tensor = client.import_tensor("t");
        auto const batch = client.import_batch("b");
        auto const view = tensor.borrow();
        if (view.at<std::int32_t>({3}) != 40) return 2;
        view.mutable_data<std::int32_t>()[0] = 77;
        if (batch.length() != 4 || batch.root().values<std::int32_t>()[1] != 20) return 3;
        auto const said = thrown([&] { static_cast<void>(client.import_tensor("none")); });
        if (said.find("nothing is offered") == std::string::npos) return 4;
        return 0;
    } catch (std::exception const &exception) {
        std::fprintf(stderr, "# %s\n", exception.what());
        return 1;
    }
}

TEST(a_tensor_and_a_batch_go_to_another_process) {
    int ready[2], status = -1;
    char byte;
    CHECK(pipe(ready) == 0);
    auto const address = address_of("both", getpid());
    pid_t const child = fork();
    if (child == 0) {
        close(ready[1]); // so that it sees an end of the exporter
        _exit(read(ready[0], &byte, 1) == 1 ? import_all(address) : 100);
    }
    {
        auto server = dx::IpcServer::create(address);
        auto const tensor = dx::Tensor::allocate_shared(dx::dtype<std::int32_t>, {4});
        auto *const values = tensor.borrow().mutable_data<std::int32_t>();
        for (int i = 0; i < 4; ++i) {
            values[i] = 10 * (i + 1);
        }
        server.offer("t", tensor);
        server.offer("b", tensor.to_column("x"));
        CHECK(dx::ipc_plan(tensor).kind == dx::Plan::Kind::view);
        CHECK(write(ready[1], "!", 1) == 1);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_INT(status, 0);
        CHECK_INT(values[0], 77);
        CHECK(soon([&] { return server.leases() == 0; }));
        CHECK(server.withdraw("t") && !server.withdraw("t"));

        auto const own = dx::Tensor::of(std::vector<float>{1, 2, 3}, {3});
        auto const plan = dx::ipc_plan(own);
        CHECK(plan.kind == dx::Plan::Kind::copy);
        CHECK_INT(plan.copy_bytes, 12);
        CHECK_THROWS(server.offer("own", own), "DEVX_COPY_REQUIRED: ");
        server.offer("own", own, dx::Copy::if_needed);
        {
            auto const again = dx::IpcClient::create(address).import_tensor("own");
            CHECK(again.borrow().at<float>({2}) == 3);
        }
        CHECK(soon([&] { return server.leases() == 0; }));
        CHECK_THROWS(server.offer(std::string("a\0b", 3), own, dx::Copy::always), "DEVX_INVALID_TEXT: name has a NUL");
        CHECK_THROWS(static_cast<void>(dx::IpcServer::create(std::string("@\0", 2))), "address has a NUL byte at 1");
        CHECK_THROWS(static_cast<void>(dx::IpcServer::create(address)), "DEVX_SYSTEM: ");
        CHECK_THROWS(static_cast<void>(dx::IpcClient::create(address_of("nobody", getpid()), 50000000)), "connect: ");
        dx::IpcServer const moved = std::move(server);
        CHECK(!server && moved);
        CHECK_THROWS(server.withdraw("t"), "DEVX_NULL_ARGUMENT: server is NULL");
    }
    close(ready[0]);
    close(ready[1]);
    CHECK_INT(dx::outstanding(), 0);
}

TEST(several_threads_use_one_server_and_one_connection) {
    {
        auto const address = address_of("threads", getpid());
        auto const server = dx::IpcServer::create(address);
        auto const client = dx::IpcClient::create(address, dx::forever);
        std::atomic<int> right{0};
        std::vector<std::thread> threads;
        for (int k = 0; k < 4; ++k) {
            threads.emplace_back([&, k] {
                auto const name = std::to_string(k);
                for (int i = 0; i < 25; ++i) {
                    auto const tensor = dx::Tensor::allocate_shared(dx::dtype<std::int32_t>, {1});
                    tensor.borrow().mutable_data<std::int32_t>()[0] = 100 * k + i;
                    server.offer(name, tensor);
                    right += client.import_tensor(name).borrow().at<std::int32_t>({0}) == 100 * k + i;
                    right += server.withdraw(name);
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        CHECK_INT(right, 200);
        CHECK(soon([&] { return server.leases() == 0; }));
    }
    CHECK_INT(dx::outstanding(), 0);
}

CHECK_MAIN()
