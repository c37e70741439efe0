// devexchange.hpp: streams of batches as ranges, with sources that throw.
#include <devexchange.hpp>

#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>
#if __cplusplus >= 202002L
#include <ranges>
#endif

#include "check.h"
#include "throws.hpp"

namespace dx = devexchange;

static dx::Schema numbers_schema() {
    return dx::Schema::of({dx::Field{"number", "i"}});
}

static dx::Batch numbers(dx::Schema const &schema, std::int64_t length, int &releases) {
    static std::int32_t const values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    return dx::Batch::of(schema, length, {dx::Node{length, {nullptr, values}}}, dx::owner([&releases] { ++releases; }));
}

// Batches of 1, 2, ... rows; `alive` dies with the source.
static dx::BatchStream counting(int n, int &releases, std::shared_ptr<int> alive = nullptr) {
    auto const schema = numbers_schema();
    return dx::BatchStream::create(
        schema, [n, &releases, given = 0, own = numbers_schema(), alive = std::move(alive)]() mutable {
            return given == n ? dx::Batch() : numbers(own, ++given, releases);
        });
}

TEST(a_stream_is_a_range) {
    int releases = 0;
    auto alive = std::make_shared<int>(1);
    std::weak_ptr<int> const watch = alive;
    {
        auto stream = counting(3, releases, std::move(alive));
        CHECK_INT(stream.device_type(), kDLCPU);
        CHECK(static_cast<bool>(stream.schema()));
        std::vector<dx::Batch> kept;
        std::int64_t rows = 0;
        for (auto &batch : stream) {
            rows += batch.length();
            kept.push_back(std::move(batch));
        }
        CHECK_INT(rows, 6);
        CHECK(stream.begin() == stream.end()); // the end stays the end
        CHECK(!stream.next());
        stream = dx::BatchStream();
        CHECK(watch.expired());
        CHECK_INT(releases, 0); // batches outlive their stream
        CHECK_INT(kept[2].column("number").values<std::int32_t>()[2], 2);
    }
    CHECK_INT(releases, 3);
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_stream_goes_out_and_comes_back) {
    int releases = 0;
    {
        auto plain = dx::BatchStream::import_from(counting(2, releases).export_move());
        auto device = dx::BatchStream::import_from(std::move(plain).export_move_device());
        CHECK(!plain);
        std::int64_t rows = 0;
        while (auto batch = device.next()) {
            rows += batch.length();
        }
        CHECK_INT(rows, 3);
        CHECK_INT(dx::ledger().stream_imports.live, 2);
        dx::OwnedStream released;
        CHECK_THROWS(dx::BatchStream::import_from(std::move(released)), "DEVX_RELEASED: ");
    }
    CHECK_INT(releases, 2);
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_stream_that_nobody_takes_is_released) {
    int releases = 0;
    auto alive = std::make_shared<int>(1);
    std::weak_ptr<int> const watch = alive;
    {
        auto const exported = counting(2, releases, std::move(alive)).export_move();
        CHECK(!watch.expired());
    }
    CHECK(watch.expired());
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_long_text_of_an_exception_is_cut_at_a_character) {
    std::string text;
    while (text.size() < sizeof(devx_error::message)) {
        text += "\xc3\xa4"; // one character
    }
    auto stream = dx::BatchStream::create(numbers_schema(), [&]() -> dx::Batch { throw dx::Error(DEVX_MISMATCH, text); });
    auto handed = std::move(stream).export_move();
    ArrowArray array{};
    CHECK(handed->get_next(handed.get(), &array) != 0);
    std::string const said = handed->get_last_error(handed.get());
    CHECK_INT(said.size(), sizeof(devx_error::message) - 2);
    CHECK(text.compare(0, said.size(), said) == 0);
}

TEST(what_a_source_throws_is_the_error_of_the_stream) {
    struct {
        void (*act)();
        char const *says;
    } const all[] = {
        {[] { throw dx::Error(DEVX_NOT_READY, "not yet"); }, "DEVX_NOT_READY: not yet"},
        {[] { throw std::runtime_error("row 3 is bad"); }, "DEVX_CALLBACK: row 3 is bad"},
        {[] { throw std::bad_alloc(); }, "DEVX_OUT_OF_MEMORY: "},
        {[] { throw dx::Error(devx_error{}); }, "DEVX_CALLBACK: "},
        {[] { throw dx::Error(DEVX_OK, "no more"); }, "DEVX_CALLBACK: no more"},
        {[] { throw 5; }, "DEVX_CALLBACK: a callback threw what is not a std::exception"},
        {[] { throw std::runtime_error(std::string(5000, 'x')); }, "DEVX_CALLBACK: xxx"},
    };
    for (auto const &one : all) {
        int releases = 0;
        {
            auto own = numbers_schema();
            auto stream = dx::BatchStream::create(numbers_schema(), [&, first = true]() mutable {
                if (!std::exchange(first, false)) {
                    one.act();
                }
                return numbers(own, 1, releases);
            });
            int seen = 0;
            auto const loop = [&] {
                for (auto &batch : stream) {
                    seen += batch ? 1 : 0;
                }
            };
            CHECK_THROWS(loop(), one.says);
            CHECK_THROWS(loop(), one.says); // never the end
            CHECK_INT(seen, 1);
        }
        CHECK_INT(releases, 1);
    }
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_source_that_is_refused_is_destroyed_by_its_maker) {
    auto alive = std::make_shared<int>(1);
    std::weak_ptr<int> const watch = alive;
    auto const make = [&] {
        dx::BatchStream::create(
            numbers_schema(), [alive = std::move(alive)] { return dx::Batch(); }, static_cast<DLDeviceType>(99));
    };
    CHECK_THROWS(make(), "DEVX_DEVICE: device_type is 99");
    CHECK(watch.expired());
    CHECK_INT(dx::outstanding(), 0);
}

namespace {

// A source that can be moved, but not assigned.
struct Source {
    std::shared_ptr<int> alive = std::make_shared<int>(1);
    int const fixed = 3;
    dx::Batch operator()() { return {}; }
};

} // namespace

TEST(a_source_that_is_refused_is_where_it_was) {
    Source source;
    std::weak_ptr<int> const watch = source.alive;
    CHECK_THROWS(dx::BatchStream::create(dx::Schema(), std::move(source)), "DEVX_NULL_ARGUMENT: schema");
    CHECK(source.alive != nullptr);
    CHECK_INT(source.fixed, 3);
    auto lambda = [kept = std::move(source)]() mutable { return kept(); };
    CHECK_THROWS(dx::BatchStream::create(dx::Schema(), std::move(lambda)), "DEVX_NULL_ARGUMENT: schema");
    {
        auto const stream = dx::BatchStream::create(numbers_schema(), std::move(lambda));
        CHECK_INT(watch.use_count(), 1);
    }
    CHECK(watch.expired());

    /* A source that can be assigned. */
    std::function<dx::Batch()> function = [] { return dx::Batch(); };
    CHECK_THROWS(dx::BatchStream::create(dx::Schema(), std::move(function)), "DEVX_NULL_ARGUMENT: schema");
    CHECK(function != nullptr);
    CHECK_INT(dx::outstanding(), 0);
}

#if __cplusplus >= 202002L
static_assert(std::input_iterator<dx::BatchStream::iterator>);
static_assert(std::sentinel_for<dx::BatchStream::sentinel, dx::BatchStream::iterator>);
static_assert(std::ranges::input_range<dx::BatchStream>);
#endif

// Not an iterator of C++17: those can be copied.
template <class T, class = void> static constexpr bool has_category = false;
template <class T>
static constexpr bool has_category<T, std::void_t<typename std::iterator_traits<T>::iterator_category>> = true;
static_assert(!has_category<dx::BatchStream::iterator>);

TEST(a_stream_has_iterators) {
    int releases = 0;
    {
        auto stream = counting(3, releases);
        auto at = stream.begin();
        auto const &same = at;
        CHECK_INT((*same).length(), 1);
        at++;
        CHECK_INT(same->length(), 2);
        dx::Batch const taken = std::move(*same);
        ++at;
        CHECK(at != stream.end() && stream.end() != at);
        ++at;
        CHECK(at == stream.end() && stream.end() == at && at == dx::BatchStream::iterator());
    }
    CHECK_INT(releases, 3);
    CHECK_INT(dx::outstanding(), 0);
}

CHECK_MAIN()
