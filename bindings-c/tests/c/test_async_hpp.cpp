// devexchange.hpp: asynchronous streams between two threads.
#include <devexchange.hpp>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "check.h"

namespace dx = devexchange;

static dx::Schema numbers_schema() {
    return dx::Schema::of({dx::Field{"number", "i"}});
}

static dx::Batch numbers(dx::Schema const &schema, std::int64_t length) {
    static std::int32_t const values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    return dx::Batch::of(schema, length, {dx::Node{length, {nullptr, values}}}, dx::Owner());
}

// The status of what the call throws; DEVX_OK if it throws nothing.
template <class Call> static devx_status thrown(Call &&call) {
    try {
        call();
    } catch (dx::Error const &error) {
        return error.status();
    }
    return DEVX_OK;
}

static std::int64_t read_all(dx::AsyncReader const &reader, std::string const &block) {
    std::int64_t came = 0;
    dx::Metadata metadata;
    while (auto batch = reader.next(&metadata)) {
        if (batch.length() != came % 8 || metadata.block() != (came == 3 ? block : "")) {
            return -1;
        }
        ++came;
    }
    return came;
}

TEST(goes_from_thread_to_thread) {
    {
        std::atomic<int> wakes{0};
        auto const alive = std::make_shared<int>(0);
        auto const block = dx::encode_metadata({{"key", "value"}});
        auto const reader = dx::AsyncReader::create(3, true, [&wakes, alive]() noexcept { ++wakes; });
        auto writer = dx::AsyncWriter::create(reader.handler(), kDLCPU, block, [alive]() noexcept {});
        std::thread thread([&] {
            auto const schema = numbers_schema();
            writer.start(schema);
            for (std::int64_t i = 0; i < 100 && writer.ready(); ++i) {
                writer.send_move(numbers(schema, i % 8), i == 3 ? block : "");
            }
            writer.finish();
        });
        std::int64_t const came = read_all(reader, block);
        thread.join();
        CHECK_INT(came, 100);
        CHECK(wakes > 0);
        CHECK(reader.metadata().block() == block);
        CHECK_INT(reader.device_type(), kDLCPU);
        CHECK_INT(reader.schema().export_share()->n_children, 1);
        CHECK_INT(reader.producer_error(), 0);
        writer = dx::AsyncWriter();
        CHECK_INT(alive.use_count(), 2); // the writer's wake is gone
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(failures_leave_what_was_given) {
    {
        auto const schema = numbers_schema();
        auto const reader = dx::AsyncReader::create(0);
        CHECK_INT(thrown([&] { dx::AsyncReader::create(-1, false, [] {}); }), DEVX_INVALID_ARGUMENT);
        CHECK_INT(thrown([&] { dx::AsyncWriter::create(nullptr, kDLCPU, "", [] {}); }), DEVX_NULL_ARGUMENT);
        auto const writer = dx::AsyncWriter::create(reader.handler());
        writer.start(schema);
        auto batch = numbers(schema, 2);
        CHECK(!writer.ready(0));
        CHECK_INT(thrown([&] { writer.send_move(std::move(batch)); }), DEVX_NOT_READY);
        CHECK(static_cast<bool>(batch));
        reader.request(2);
        CHECK_INT(writer.demand(), 2);
        writer.send_move(std::move(batch));
        CHECK(!batch);
        writer.fail(ENOSPC, "the disk is full", dx::encode_metadata({{"free", "0"}}));
        dx::Batch out;
        dx::Metadata metadata;
        CHECK(reader.try_next(out) && out.length() == 2);
        CHECK_INT(thrown([&] { reader.try_next(out); }), DEVX_CALLBACK);
        CHECK_INT(reader.producer_error(), ENOSPC);
        CHECK_INT(reader.producer_error(&metadata), ENOSPC);
        CHECK(static_cast<bool>(metadata));
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(what_does_not_come_changes_nothing) {
    {
        auto const block = dx::encode_metadata({{"key", "value"}});
        auto const schema = numbers_schema();
        auto const reader = dx::AsyncReader::create(2, true);
        auto const writer = dx::AsyncWriter::create(reader.handler(), kDLCPU, block);
        writer.start(schema);
        CHECK(reader.metadata().block() == block);
        writer.send_move(numbers(schema, 3), block);
        dx::Batch batch;
        dx::Metadata metadata;
        CHECK(reader.try_next(batch, 0, &metadata));
        CHECK(!reader.try_next(batch, 0, &metadata));
        CHECK_INT(batch.length(), 3);
        CHECK(metadata.block() == block);
        writer.finish();
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_wake_that_is_refused_is_where_it_was) {
    auto const alive = std::make_shared<int>(0);
    auto wake = [kept = alive]() noexcept { static_cast<void>(kept); };
    CHECK_INT(thrown([&] { dx::AsyncReader::create(-1, false, std::move(wake)); }), DEVX_INVALID_ARGUMENT);
    CHECK_INT(thrown([&] { dx::AsyncWriter::create(nullptr, kDLCPU, "", std::move(wake)); }), DEVX_NULL_ARGUMENT);
    {
        auto const reader = dx::AsyncReader::create(0, false, std::move(wake));
        CHECK_INT(alive.use_count(), 2); // moved from `wake`, where it still was
    }
    CHECK_INT(alive.use_count(), 1);
    CHECK_INT(dx::outstanding(), 0);
}

TEST(metadata_that_is_cut_off_is_refused) {
    {
        auto const block = dx::encode_metadata({{"key", "value"}});
        auto const schema = numbers_schema();
        for (std::size_t size = 1; size < block.size(); ++size) {
            std::string const cut(block, 0, size);
            auto const reader = dx::AsyncReader::create(1);
            auto *const handler = reader.handler();
            CHECK_INT(thrown([&] { dx::AsyncWriter::create(handler, kDLCPU, cut); }), DEVX_INVALID_METADATA);
            auto const writer = dx::AsyncWriter::create(handler);
            writer.start(schema);
            auto batch = numbers(schema, 2);
            CHECK_INT(thrown([&] { writer.send_move(std::move(batch), cut); }), DEVX_INVALID_METADATA);
            CHECK(static_cast<bool>(batch));
            CHECK_INT(thrown([&] { writer.fail(EIO, "no", cut); }), DEVX_INVALID_METADATA);
            CHECK_INT(thrown([&] { writer.fail(EIO, std::string("no\0", 3)); }), DEVX_INVALID_TEXT);
        }
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_cancelled_stream_is_over) {
    {
        auto const reader = dx::AsyncReader::create(2);
        auto const writer = dx::AsyncWriter::create(reader.handler());
        writer.start(numbers_schema());
        reader.cancel();
        CHECK(!reader.next());
        CHECK(writer.is_cancelled());
        CHECK_INT(thrown([&] { writer.ready(); }), DEVX_CLOSED);
        writer.finish();
    }
    CHECK_INT(dx::outstanding(), 0);
}

CHECK_MAIN()
