// devexchange.hpp: owners, moves, exceptions, and that every release happens once.
#include <devexchange.hpp>

#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>
#if __has_include(<stdfloat>)
#include <stdfloat>
#endif

#include "check.h"

namespace dx = devexchange;

// No destructor throws, nothing is copied by accident, and moves do not throw.
template <class T>
constexpr bool is_owner = std::is_nothrow_destructible_v<T> && std::is_nothrow_move_constructible_v<T> &&
                          std::is_nothrow_move_assignable_v<T> && std::is_nothrow_default_constructible_v<T> &&
                          !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(is_owner<dx::Owner>);
static_assert(is_owner<dx::Tensor>);
static_assert(is_owner<dx::Schema>);
static_assert(is_owner<dx::Batch>);
static_assert(is_owner<dx::Dlpack>);
static_assert(is_owner<dx::DlpackLegacy>);
static_assert(is_owner<dx::OwnedSchema>);
static_assert(is_owner<dx::OwnedArray>);
static_assert(is_owner<dx::OwnedDeviceArray>);
static_assert(is_owner<dx::BatchStream>);
static_assert(is_owner<dx::OwnedStream>);
static_assert(is_owner<dx::OwnedDeviceStream>);
static_assert(is_owner<dx::Stream>);
static_assert(std::is_base_of_v<std::runtime_error, dx::Error>);

// An export that moves takes only an rvalue.
template <class T, class = void> struct moves_from_lvalue : std::false_type {};
template <class T>
struct moves_from_lvalue<T, std::void_t<decltype(std::declval<T &>().export_move())>> : std::true_type {};
static_assert(!moves_from_lvalue<dx::Tensor>::value);
static_assert(!moves_from_lvalue<dx::Batch>::value);
static_assert(!moves_from_lvalue<dx::BatchStream>::value);

static_assert(dx::same_dtype(dx::dtype<double>, DLDataType{kDLFloat, 64, 1}));
static_assert(dx::same_dtype(dx::dtype<float const>, DLDataType{kDLFloat, 32, 1}));
static_assert(dx::same_dtype(dx::dtype<std::int8_t>, DLDataType{kDLInt, 8, 1}));
static_assert(dx::same_dtype(dx::dtype<std::uint64_t>, DLDataType{kDLUInt, 64, 1}));
static_assert(dx::same_dtype(dx::dtype<bool>, DLDataType{kDLBool, 8, 1}));
static_assert(dx::same_dtype(dx::dtype<std::complex<float>>, DLDataType{kDLComplex, 64, 1}));
static_assert(dx::same_dtype(dx::dtype<std::complex<double> const>, DLDataType{kDLComplex, 128, 1}));
static_assert(!dx::detail::is_complex<std::complex<int>>::value);
static_assert(!dx::detail::is_complex<std::complex<long double>>::value);
#ifdef __STDCPP_BFLOAT16_T__
static_assert(dx::same_dtype(dx::dtype<std::bfloat16_t>, DLDataType{kDLBfloat, 16, 1}));
#endif
#ifdef __STDCPP_FLOAT16_T__
static_assert(dx::same_dtype(dx::dtype<std::float16_t>, DLDataType{kDLFloat, 16, 1}));
#endif

// The text of what the call throws; empty if it throws nothing.
template <class Call> static std::string thrown(Call &&call, devx_status *status = nullptr) {
    try {
        call();
    } catch (dx::Error const &error) {
        if (status != nullptr) {
            *status = error.status();
        }
        return std::string(error.name()) + ": " + error.what();
    }
    return "";
}

#define CHECK_THROWS(call, status, part)                                                                               \
    do {                                                                                                               \
        std::string const said = thrown([&] { call; });                                                                \
        CHECK_HAS(said.c_str(), #status ": ");                                                                         \
        CHECK_HAS(said.c_str(), part);                                                                                 \
    } while (0)

static dx::Owner counting(int &releases) {
    return dx::owner([&releases] { ++releases; });
}

static double six[6] = {0, 1, 2, 3, 4, 5};

/* --- owners --- */

TEST(an_owner_that_is_not_handed_over_releases_at_the_end) {
    int releases = 0;
    {
        dx::Owner const owner = counting(releases);
        CHECK(static_cast<bool>(owner));
        CHECK_INT(releases, 0);
    }
    CHECK_INT(releases, 1);
}

TEST(an_owner_is_moved_not_copied) {
    int releases = 0, others = 0;
    dx::Owner first = counting(releases);
    dx::Owner second = std::move(first);
    CHECK(!first);
    first.reset();
    CHECK_INT(releases, 0);
    dx::Owner third = counting(others);
    third = std::move(second); // what it had is released
    CHECK_INT(others, 1);
    CHECK_INT(releases, 0);
    third.reset();
    third.reset();
    CHECK_INT(releases, 1);
}

TEST(a_callable_may_hold_what_cannot_be_copied) {
    auto watched = std::make_shared<int>(5);
    std::weak_ptr<int> const watch = watched;
    int seen = 0;
    {
        auto const owner = dx::owner([held = std::make_unique<std::shared_ptr<int>>(std::move(watched)), &seen] {
            seen = **held;
        });
        CHECK(!watch.expired());
    }
    CHECK_INT(seen, 5);
    CHECK(watch.expired());
}

static int function_calls = 0;
static void plain_function() {
    ++function_calls;
}

TEST(a_function_is_a_callable_too) {
    dx::owner(plain_function).reset();
    dx::owner(&plain_function).reset();
    CHECK_INT(function_calls, 2);
}

TEST(an_owner_goes_with_the_tensor_only_if_that_is_made) {
    int releases = 0;
    dx::Owner owner = counting(releases);
    CHECK_THROWS(dx::Tensor::over(six, {2, -3}, std::move(owner)), DEVX_INVALID_SHAPE, "shape[1] is -3");
    CHECK(static_cast<bool>(owner));
    CHECK_INT(releases, 0);
    auto tensor = dx::Tensor::over(six, {2, 3}, std::move(owner));
    CHECK(!owner);
    CHECK_INT(releases, 0);
    tensor = dx::Tensor();
    CHECK_INT(releases, 1);
    // A temporary that was not taken is released where it was made.
    CHECK_THROWS(dx::Tensor::over(six, {-1}, counting(releases)), DEVX_INVALID_SHAPE, "shape[0] is -1");
    CHECK_INT(releases, 2);
    CHECK_INT(dx::outstanding(), 0);
}

/* --- releases that throw --- */

static std::string handler_was_told;
static void remember(char const *what) noexcept {
    handler_was_told = what;
}

TEST(a_release_that_throws_is_swallowed_counted_and_reported) {
    auto const before = dx::release_errors();
    dx::Tensor::over(six, {6}, dx::owner([] { throw std::runtime_error("nobody listens"); }));
    CHECK_INT(dx::release_errors(), before + 1);

    CHECK(dx::set_release_error_handler(remember) == nullptr);
    dx::Tensor::over(six, {6}, dx::owner([] { throw std::runtime_error("the disk is full"); }));
    CHECK_INT(dx::release_errors(), before + 2);
    CHECK_STR(handler_was_told.c_str(), "the disk is full");

    auto managed = dx::Tensor::over(six, {6}, dx::owner([] { throw 42; })).export_share();
    std::thread([&] { managed.reset(); }).join(); // on a thread that would end the program otherwise
    CHECK_INT(dx::release_errors(), before + 3);
    CHECK_STR(handler_was_told.c_str(), "not a std::exception");

    CHECK(dx::set_release_error_handler(nullptr) == remember);
    CHECK_INT(dx::outstanding(), 0);
}

TEST(what_a_throwing_release_holds_is_freed) {
    auto watched = std::make_shared<int>(1);
    std::weak_ptr<int> const watch = watched;
    dx::owner([held = std::move(watched)] { throw std::runtime_error(std::to_string(*held)); }).reset();
    CHECK(watch.expired());
}

/* --- errors --- */

TEST(an_error_says_what_is_wrong) {
    devx_status status = DEVX_OK;
    std::string const said = thrown([] { dx::Tensor::over(six, {7, -2}, {}); }, &status);
    CHECK_INT(status, DEVX_INVALID_SHAPE);
    CHECK_STR(said.c_str(), "DEVX_INVALID_SHAPE: shape[1] is -2: an extent cannot be negative");
    dx::Error const driver(DEVX_DRIVER, "no", 700);
    CHECK_INT(driver.driver_code(), 700);
    CHECK_STR(driver.name(), "DEVX_DRIVER");
    CHECK_INT(dx::Error(DEVX_OK, "an error all the same").status(), DEVX_CALLBACK);
    CHECK_INT(dx::Error(devx_error{}).status(), DEVX_CALLBACK);
}

TEST(an_empty_handle_is_refused) {
    dx::Tensor tensor;
    dx::Batch batch;
    dx::Schema schema;
    CHECK(!tensor && !batch && !schema);
    CHECK_THROWS(tensor.share(), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_THROWS(tensor.borrow(), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_THROWS(std::move(tensor).export_move(), DEVX_NULL_ARGUMENT, "*tensor is NULL");
    CHECK_THROWS(batch.info(), DEVX_NULL_ARGUMENT, "batch is NULL");
    CHECK_THROWS(std::move(batch).export_move(), DEVX_NULL_ARGUMENT, "*batch is NULL");
    CHECK_THROWS(schema.export_share(), DEVX_NULL_ARGUMENT, "schema is NULL");
    CHECK_THROWS(dx::Tensor::import_from(dx::Dlpack()), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_THROWS(dx::Schema::import_from(dx::OwnedSchema()), DEVX_RELEASED, "release is NULL");
}

/* --- tensors --- */

TEST(a_tensor_keeps_a_vector) {
    std::vector<double> values(6);
    std::iota(values.begin(), values.end(), 1.0);
    double const *const address = values.data();
    auto const tensor = dx::Tensor::of(std::move(values), {2, 3});
    auto const view = tensor.borrow();
    CHECK_PTR(view.data<double>(), address);
    CHECK_INT(view.ndim(), 2);
    CHECK_INT(view.shape()[0], 2);
    CHECK_INT(view.strides()[0], 3);
    CHECK_DOUBLE(view.at<double>({1, 2}), 6.0, 0);
    CHECK(!view.read_only());
    view.mutable_data<double>()[0] = 9;
    CHECK_DOUBLE(view.at<double>({0, 0}), 9.0, 0);
    CHECK_INT(view.device().device_type, kDLCPU);
    CHECK(dx::dtype_name(view.dtype()) == "float64");
    CHECK(dx::device_name(DLDevice{kDLCUDAHost, 1}) == "cuda_host:1");
    std::string const zone(200, 'z');
    CHECK(dx::type_name(("tsn:" + zone).c_str()) == "timestamp(nanosecond, " + zone + ")");
    CHECK_THROWS(dx::type_name("no type"), DEVX_INVALID_FORMAT, "format is \"no type\"");
    CHECK_THROWS(dx::stream_of(view.device(), dx::legacy_stream), DEVX_DEVICE, "which has no streams");
    CHECK_THROWS(tensor.stream(dx::legacy_stream), DEVX_DEVICE, "which has no streams");
    CHECK_INT(tensor.size().elements, 6);
    CHECK_INT(tensor.size().bytes, 48);
    CHECK(tensor.size().row_major);
    CHECK_THROWS(dx::Tensor::of(std::vector<int>{1, 2}, {3}), DEVX_INVALID_SHAPE, "3 elements: the vector has 2");
    CHECK_THROWS(dx::Tensor::of(std::vector<int>{1, 2}, {1}), DEVX_INVALID_SHAPE, "1 elements: the vector has 2");
    CHECK_INT(dx::Tensor::of(std::vector<float>{}, {0, 4}).size().elements, 0);
}

TEST(a_view_checks_type_index_and_permission) {
    std::int32_t const values[4] = {1, 2, 3, 4};
    auto const tensor = dx::Tensor::over(values, {2, 2}, {}, {1, 2});
    auto const view = tensor.borrow();
    CHECK(view.read_only());
    CHECK_INT(view.at<std::int32_t>({0, 1}), 3);
    CHECK_THROWS(view.data<float>(), DEVX_MISMATCH, "int32, not float32");
    CHECK_THROWS(view.mutable_data<std::int32_t>(), DEVX_READ_ONLY, "READ_ONLY");
    CHECK_THROWS(view.at<std::int32_t>({0}), DEVX_OUT_OF_RANGE, "index has 1 dimensions");
    CHECK_THROWS(view.at<std::int32_t>({0, 2}), DEVX_OUT_OF_RANGE, "index[1] is 2");
    CHECK_THROWS(view.at<std::int32_t>({-1, 0}), DEVX_OUT_OF_RANGE, "index[0] is -1");
    CHECK_THROWS(dx::Tensor::over(values, {2, 2}, {}, {1}), DEVX_INVALID_SHAPE, "1 strides for 2");
    auto pinned = view.raw();
    pinned.device = {kDLCUDAHost, 0};
    CHECK_THROWS(dx::TensorView(pinned, 0).at<std::int32_t>({0, 0}), DEVX_DEVICE,
                 "device is cuda_host:0: an element is read of plain host memory");
}

TEST(a_bool_of_somebody_elses_may_be_any_byte) {
    static std::uint8_t bytes[] = {0, 1, 2, 254};
    std::int64_t extent = 4;
    DLTensor const description = {bytes, dx::cpu, 1, dx::dtype<bool>, &extent, nullptr, 0};
    auto const tensor = dx::Tensor::create(description, dx::Owner());
    auto const view = tensor.borrow();
    CHECK_INT(view.at<bool>({0}), 0);
    for (std::int64_t i = 1; i < extent; i++) {
        CHECK_INT(view.at<bool>({i}), 1);
        CHECK_INT(view.at<bool const>({i}), 1);
    }
}

TEST(share_move_and_borrow) {
    int releases = 0;
    auto tensor = dx::Tensor::over(six, {2, 3}, counting(releases));
    auto shared = tensor.share();
    auto exported = shared.export_share();
    auto moved = std::move(tensor).export_move();
    CHECK(!tensor);
    CHECK_PTR(moved->dl_tensor.data, six);
    CHECK_INT(exported->version.major, 1);
    shared = dx::Tensor();
    exported.reset();
    CHECK_INT(releases, 0);
    tensor = dx::Tensor::import_from(std::move(moved));
    CHECK(!moved);
    CHECK_PTR(tensor.borrow().data<double>(), six);
    tensor = std::move(tensor).copy();
    CHECK_INT(releases, 1);
    CHECK(tensor.borrow().data<double>() != six);
    CHECK_INT(tensor.borrow().flags(), DLPACK_FLAG_BITMASK_IS_COPIED);
    tensor = dx::Tensor();
    CHECK_INT(dx::outstanding(), 0);
}

TEST(parts_of_a_tensor) {
    int releases = 0;
    auto tensor = dx::Tensor::over(six, {2, 3}, counting(releases));
    auto const column = tensor.slice(1, 2, 1);
    CHECK_THROWS(static_cast<void>(tensor.slice(1, 2, 2)), DEVX_OUT_OF_RANGE, "offset is 2 and length is 2");
    tensor = dx::Tensor();
    CHECK_PTR(column.borrow().data<double>(), six + 2);
    CHECK_INT(column.borrow().shape()[1], 1);
    CHECK_INT(releases, 0);
}

TEST(the_legacy_struct_and_requests) {
    int releases = 0;
    double const constant[2] = {1, 2};
    auto tensor = dx::Tensor::over(constant, {2}, counting(releases));
    CHECK_THROWS(tensor.export_share_legacy(), DEVX_READ_ONLY, "READ_ONLY");
    CHECK_THROWS(std::move(tensor).export_move_legacy(), DEVX_READ_ONLY, "READ_ONLY");
    CHECK(static_cast<bool>(tensor)); // as before
    dx::Request request;
    request.copy = dx::Copy::if_needed;
    auto legacy = tensor.export_share_legacy(request);
    CHECK(legacy->dl_tensor.data != constant);
    auto const imported = dx::Tensor::import_from(std::move(legacy));
    CHECK(!legacy);
    CHECK_DOUBLE(imported.borrow().at<double>({1}), 2.0, 0);
    request = dx::Request();
    request.stream = 5;
    CHECK_THROWS(tensor.export_share(request), DEVX_INVALID_STREAM, "stream is 5");
    CHECK_THROWS(std::move(tensor).export_move(request), DEVX_INVALID_STREAM, "stream is 5");
    request.copy = dx::Copy::if_needed;
    CHECK_THROWS(tensor.export_share_legacy(request), DEVX_INVALID_STREAM, "stream is 5");
    CHECK_THROWS(std::move(tensor).export_move_legacy(request), DEVX_INVALID_STREAM, "stream is 5");
    CHECK(static_cast<bool>(tensor));
    request.stream = dx::no_stream;
    legacy = tensor.export_share_legacy(request);
    CHECK_THROWS(dx::Tensor::import_on(std::move(legacy), 5), DEVX_INVALID_STREAM, "stream is 5");
    CHECK(legacy != nullptr);
    CHECK(dx::Tensor::import_on(std::move(legacy), dx::no_stream));
    request = dx::Request();
    request.max_major = 0;
    CHECK_THROWS(tensor.export_share(request), DEVX_VERSION, "max_version is 0.");
    tensor = dx::Tensor();
    CHECK_INT(releases, 1);
    /* A struct that no consumer takes is released by its pointer. */
    double values[2] = {1, 2};
    tensor = dx::Tensor::over(values, {2}, counting(releases));
    legacy = std::move(tensor).export_move_legacy();
    CHECK(!tensor);
    CHECK_PTR(legacy->dl_tensor.data, values);
    legacy.reset();
    CHECK_INT(releases, 2);
}

TEST(a_refused_import_leaves_the_tensor_where_it_was) {
    int releases = 0;
    auto managed = dx::Tensor::over(six, {6}, counting(releases)).export_share();
    managed->version.major = 9;
    CHECK_THROWS(dx::Tensor::import_from(std::move(managed)), DEVX_VERSION, "version is 9.");
    CHECK(static_cast<bool>(managed));
    CHECK_INT(releases, 0);
    managed.reset();
    CHECK_INT(releases, 1);
    CHECK_INT(dx::outstanding(), 0);
}

TEST(handles_go_to_c_and_back) {
    int releases = 0;
    auto tensor = dx::Tensor::over(six, {6}, counting(releases));
    devx_tensor_t *raw = tensor.release();
    CHECK(!tensor);
    CHECK_INT(releases, 0);
    dx::Tensor again(raw);
    CHECK_PTR(again.get(), raw);
    again = dx::Tensor();
    CHECK_INT(releases, 1);
}

TEST(moving_onto_itself_changes_nothing) {
    int releases = 0;
    auto tensor = dx::Tensor::over(six, {6}, counting(releases));
    auto &same = tensor;
    tensor = std::move(same);
    CHECK(static_cast<bool>(tensor));
    CHECK_INT(releases, 0);
}

/* Keeps the next one of its kind. */
template <class T> struct Link {
    T next;
};

TEST(what_is_assigned_may_be_kept_by_what_it_replaces) {
    int releases = 0;
    auto owners = std::make_unique<Link<dx::Owner>>();
    auto &next_owner = owners->next;
    next_owner = counting(releases);
    dx::Owner owner = dx::keep(std::move(owners));
    owner = std::move(next_owner);
    CHECK(static_cast<bool>(owner));
    CHECK_INT(releases, 0);
    owner.reset();
    CHECK_INT(releases, 1);

    auto tensors = std::make_unique<Link<dx::Tensor>>();
    auto &next_tensor = tensors->next;
    next_tensor = dx::Tensor::over(six, {6}, counting(releases));
    auto tensor = dx::Tensor::over(six, {6}, dx::keep(std::move(tensors)));
    tensor = std::move(next_tensor);
    CHECK(static_cast<bool>(tensor));
    CHECK_INT(releases, 1);
    tensor = dx::Tensor();
    CHECK_INT(releases, 2);

    auto arrays = std::make_unique<Link<dx::OwnedArray>>();
    auto &next_array = arrays->next;
    ArrowArray raw{};
    raw.private_data = &releases;
    raw.release = [](ArrowArray *array) {
        ++*static_cast<int *>(array->private_data);
        array->release = nullptr;
    };
    next_array = dx::OwnedArray(raw);
    raw.private_data = arrays.release();
    raw.release = [](ArrowArray *array) {
        delete static_cast<Link<dx::OwnedArray> *>(array->private_data);
        array->release = nullptr;
    };
    dx::OwnedArray array(raw);
    array = std::move(next_array);
    CHECK(static_cast<bool>(array));
    CHECK_INT(releases, 2);
    array.reset();
    CHECK_INT(releases, 3);
}

TEST(what_is_reset_may_be_held_by_what_it_releases) {
    auto *const owners = new Link<dx::Owner>;
    owners->next = dx::owner([kept = std::unique_ptr<Link<dx::Owner>>(owners)] {});
    owners->next.reset();

    auto *const arrays = new Link<dx::OwnedArray>;
    ArrowArray raw{};
    raw.private_data = arrays;
    raw.release = [](ArrowArray *array) {
        delete static_cast<Link<dx::OwnedArray> *>(array->private_data); // ends the link while its struct is released
        array->release = nullptr;
    };
    arrays->next = dx::OwnedArray(raw);
    arrays->next.reset();
}

/* --- schemas and batches --- */

static std::int32_t const numbers[4] = {10, 20, 30, 40};
static std::int32_t const ends[5] = {0, 1, 3, 3, 6};
static std::int32_t const list_ends[5] = {0, 2, 2, 3, 4};
static std::int8_t const indices[4] = {2, 0, 1, 2};
static unsigned char const valid[1] = {0x0b}; // row 2 is null
static unsigned char const bits[1] = {0x05};

static dx::Schema make_schema() {
    auto const nullable = DEVX_FIELD_NULLABLE;
    return dx::Schema::of({
        dx::Field{"number", "i", nullable, {}, {}, dx::encode_metadata({{"unit", "m"}, {"", ""}})},
        dx::Field{"text", "u", 0, {}, {}, {}},
        dx::Field{"flag", "b", 0, {}, {}, {}},
        dx::Field{"list", "+l", nullable, {dx::Field{"item", "i", nullable, {}, {}, {}}}, {}, {}},
        dx::Field{"kind", "c", nullable, {}, {dx::Field{"", "u", 0, {}, {}, {}}}, {}},
    });
}

static dx::Batch make_batch(dx::Schema const &schema, dx::Owner &&owner) {
    dx::Node const texts{4, {nullptr, ends, "abbccc"}, {}, {}, 0, 0};
    dx::Node const items{4, {nullptr, numbers}, {}, {}, 0, 0};
    return dx::Batch::of(schema, 4,
                         {
                             dx::Node{4, {valid, numbers}, {}, {}, -1, 0},
                             texts,
                             dx::Node{4, {nullptr, bits}, {}, {}, 0, 0},
                             dx::Node{4, {nullptr, list_ends}, {items}, {}, 0, 0},
                             dx::Node{4, {nullptr, indices}, {}, {texts}, 0, 0},
                         },
                         std::move(owner));
}

static void check_columns(dx::Batch const &batch) {
    CHECK_INT(batch.length(), 4);
    CHECK_INT(batch.n_columns(), 5);
    auto const number = batch.column(0);
    CHECK(number.name() == "number");
    CHECK(number.format() == "i");
    CHECK(number.nullable());
    CHECK_INT(number.null_count(), 1);
    CHECK(number.is_valid(1));
    CHECK(!number.is_valid(2));
    CHECK_PTR(number.values<std::int32_t>().data(), numbers);
    CHECK_INT(number.values<std::int32_t>().size(), 4);
    CHECK_INT(number.values<std::int32_t>()[3], 40);
    CHECK_PTR(number.buffers()[1], numbers);
    auto const metadata = number.metadata();
    CHECK_INT(metadata.size(), 2);
    CHECK(metadata[0].first == "unit" && metadata[0].second == "m");
    auto const text = batch.column("text");
    CHECK(!text.nullable());
    CHECK(text.bytes(1) == "bb");
    CHECK(text.bytes(2).empty());
    CHECK(text.metadata().empty());
    CHECK(batch.column("flag").boolean(2));
    CHECK(!batch.column("flag").boolean(3));
    auto const list = batch.column("list");
    CHECK_INT(list.n_children(), 1);
    CHECK_INT(list.list(0).length(), 2);
    CHECK_INT(list.list(3).values<std::int32_t>()[0], 40);
    CHECK_INT(list.child(0).length(), 4);
    auto const kind = batch.column("kind");
    CHECK(kind.has_dictionary());
    CHECK(kind.type_name() == "int8 -> utf8");
    CHECK_INT(kind.dictionary_index(1), 0);
    CHECK(kind.dictionary().bytes(kind.dictionary_index(2)) == "bb");
    CHECK_INT(batch.root().length(), 4);
    std::string names;
    for (dx::Column const &column : batch.columns()) names += std::string(column.name()) + " ";
    CHECK_STR(names.c_str(), "number text flag list kind ");
    CHECK_INT(batch.columns()[3].list(0).length(), 2);
    CHECK_THROWS(batch.column(5), DEVX_OUT_OF_RANGE, "index is 5");
    CHECK_THROWS(batch.column("nobody"), DEVX_OUT_OF_RANGE, "nobody");
    CHECK_THROWS(text.values<double>(), DEVX_MISMATCH, "utf8");
    CHECK_THROWS(number.is_valid(4), DEVX_OUT_OF_RANGE, "row is 4");
}

TEST(a_batch_is_described_and_read) {
    int releases = 0;
    {
        auto const batch = make_batch(make_schema(), counting(releases));
        CHECK_CALL(check_columns(batch));
        CHECK_INT(batch.info().device_type, kDLCPU);
    }
    CHECK_INT(releases, 1);
    CHECK_INT(dx::outstanding(), 0);
}

TEST(nulls_that_nobody_counted_are_there) {
    unsigned char const valid[] = {0x05};
    auto const schema = dx::Schema::of({dx::Field{"n", "i"}});
    auto const batch = dx::Batch::of(schema, 3, {dx::Node{3, {valid, numbers}}}, {});
    auto const column = batch.column("n");
    CHECK_INT(column.null_count(), 1);
    CHECK(!column.is_valid(1));
    CHECK_INT(batch.export_share()->children[0]->null_count, -1);
    CHECK_THROWS(column.to_tensor(), DEVX_IMPOSSIBLE, "1 of 3 values of int32 are null");
}

TEST(a_node_says_where_its_rows_begin_and_how_many_are_null) {
    unsigned char const valid[] = {0x05};
    auto const schema = dx::Schema::create(dx::Field{"n", "i"});
    dx::Node node{2, {valid, numbers}};
    node.offset = 1;
    node.null_count = 1;
    auto const batch = dx::Batch::create(schema, node, {});
    CHECK_INT(batch.root().offset(), 1);
    CHECK_INT(batch.root().values<std::int32_t>()[1], 30);
    CHECK_INT(batch.export_share()->null_count, 1);
    CHECK_THROWS(dx::Batch::create(schema, node, {}, DLDevice{kDLCPU, 7}), DEVX_DEVICE, "device_id is 7");
}

TEST(a_batch_goes_out_and_in) {
    int releases = 0;
    auto batch = make_batch(make_schema(), counting(releases));
    auto schema = batch.schema().export_share();
    auto shared = batch.share();
    auto device = std::move(batch).export_move_device();
    CHECK(!batch);
    CHECK_INT(device->device_type, ARROW_DEVICE_CPU);
    auto described = dx::Schema::import_from(std::move(schema));
    CHECK(!schema);
    batch = dx::Batch::import_from(std::move(device), described);
    CHECK(!device);
    CHECK_CALL(check_columns(batch));

    auto array = batch.export_share();
    auto moved = std::move(array);
    CHECK(!array);
    CHECK_INT(moved->n_children, 5);
    array = std::move(moved);
    batch = dx::Batch::import_from(std::move(array), described);
    auto for_c = std::move(batch).export_move().release(); // a plain struct: ours to release
    shared = dx::Batch();
    CHECK_INT(releases, 0);
    for_c.release(&for_c);
    CHECK_INT(releases, 1);
    described = dx::Schema();
    CHECK_INT(dx::outstanding(), 0);
}

TEST(an_array_is_taken_with_its_schema) {
    int releases = 0;
    auto const batch = make_batch(make_schema(), counting(releases));
    auto array = batch.export_share();
    auto schema = batch.schema().export_share();
    array.get()->length = -1;
    CHECK_THROWS(dx::Batch::import_from(std::move(array), std::move(schema)), DEVX_INVALID_LENGTH, "length is -1");
    CHECK(array && schema);
    array.get()->length = 4;
    CHECK_CALL(check_columns(dx::Batch::import_from(std::move(array), std::move(schema))));
    CHECK(!array && !schema);
    CHECK_CALL(check_columns(dx::Batch::import_from(batch.export_share_device(), batch.schema().export_share())));
    CHECK_INT(releases, 0);
}

TEST(a_refused_batch_leaves_its_source_where_it_was) {
    int releases = 0;
    auto array = make_batch(make_schema(), counting(releases)).export_share();
    auto const other = dx::Schema::of({dx::Field{"x", "g", 0, {}, {}, {}}});
    CHECK_THROWS(dx::Batch::import_from(std::move(array), other), DEVX_MISMATCH, "n_children is 5");
    CHECK(static_cast<bool>(array));
    CHECK_INT(releases, 0);
    array.reset();
    CHECK_INT(releases, 1);

    dx::Owner owner = counting(releases);
    CHECK_THROWS(dx::Batch::of(other, 4, {}, std::move(owner)), DEVX_MISMATCH, "there are 1 nodes");
    CHECK(static_cast<bool>(owner));
    CHECK_THROWS(dx::Schema::of({dx::Field{"x", "?", 0, {}, {}, {}}}), DEVX_INVALID_FORMAT, "\"?\"");
}

TEST(a_buffer_that_is_too_small_is_refused) {
    auto const schema = dx::Schema::of({dx::Field{"y", "i", 0, {}, {}, {}}});
    auto const make = [&](std::vector<std::int64_t> sizes) {
        dx::Node const y{4, {nullptr, numbers}, {}, {}, 0, 0, std::move(sizes)};
        return dx::Batch::of(schema, 4, {y}, dx::Owner());
    };
    CHECK_INT(make({}).length(), 4);
    CHECK_INT(make({-1, -1}).length(), 4);
    CHECK_INT(make({-1, sizeof numbers}).length(), 4);
    CHECK_THROWS(make({sizeof numbers}), DEVX_INVALID_BUFFERS, "sizes has 1 numbers for 2 buffers");
    CHECK_THROWS(make({-1, sizeof numbers, 0}), DEVX_INVALID_BUFFERS, "sizes has 3 numbers for 2 buffers");
    CHECK_THROWS(make({-1, 15}), DEVX_INVALID_BUFFERS, "array \"y\": buffers[1] has 15 bytes: offset and length 4 of int32");
}

TEST(metadata_has_the_size_that_it_says) {
    auto const make = [](std::string const &block) {
        dx::Field field{"x", "g"};
        field.metadata = block;
        dx::Schema::of({field});
    };
    auto const block = dx::encode_metadata({{"key", "value"}, {"", ""}});
    make(block);
    make("");
    for (std::size_t size = 1; size < block.size(); ++size) {
        std::string const has = "metadata has " + std::to_string(size) + " bytes: ";
        CHECK_THROWS(make(block.substr(0, size)), DEVX_INVALID_METADATA, has.c_str());
    }
    CHECK_THROWS(make(block.substr(0, 3)), DEVX_INVALID_METADATA, "3 bytes: it is cut off within the number of pairs");
    CHECK_THROWS(make(block.substr(0, 13)), DEVX_INVALID_METADATA, "13 bytes: it is cut off within the length of value 0");
    CHECK_THROWS(make(block.substr(0, 17)), DEVX_INVALID_METADATA, "17 bytes: value 0 has 5 from byte 15 on");
    CHECK_THROWS(make(std::string(4, '\xff')), DEVX_INVALID_METADATA, "the number of pairs is -1: it cannot be negative");
}

TEST(children_are_moved_out) {
    int releases = 0;
    auto array = make_batch(make_schema(), counting(releases)).export_share();
    dx::OwnedArray text(*array->children[1]);
    CHECK(array->children[1]->release == nullptr);
    array.reset();
    CHECK_INT(releases, 0);
    CHECK(std::string_view(static_cast<char const *>(text->buffers[2]) + 1, 2) == "bb");
    text.reset();
    CHECK_INT(releases, 1);
    CHECK_INT(dx::outstanding(), 0);
}

TEST(a_name_with_a_nul_is_no_shorter_name) {
    std::string const name("text\0s", 6);
    auto const batch = make_batch(make_schema(), {});
    CHECK_THROWS(batch.column(name), DEVX_INVALID_TEXT, "name has a NUL byte at 4");
    CHECK_THROWS(dx::Tensor::over(six, {6}, {}).to_column(name), DEVX_INVALID_TEXT, "name has a NUL byte at 4");
    CHECK_THROWS(dx::Schema::of({{name, "u"}}), DEVX_INVALID_TEXT, "name has a NUL byte at 4");
    CHECK_THROWS(dx::Schema::create({"", std::string("u\0", 2)}), DEVX_INVALID_TEXT, "format has a NUL byte at 1");
}

/* --- conversions --- */

TEST(columns_and_tensors) {
    int releases = 0;
    auto tensor = dx::Tensor::over(six, {3, 2}, counting(releases));
    CHECK(tensor.plan_column().kind == dx::Plan::Kind::view);
    auto column = tensor.to_column("pairs");
    tensor = column.root().to_tensor();
    CHECK_PTR(tensor.borrow().data<double>(), six);
    CHECK(tensor.borrow().read_only());
    column = dx::Batch();
    CHECK_INT(releases, 0);
    tensor = dx::Tensor();
    CHECK_INT(releases, 1);

    auto const batch = make_batch(make_schema(), {});
    auto const flags = batch.column("flag").plan_tensor();
    CHECK(flags.kind == dx::Plan::Kind::copy);
    CHECK_INT(flags.copy_bytes, 4);
    CHECK_HAS(flags.reason.c_str(), "bits in Arrow");
    CHECK_THROWS(batch.column("flag").to_tensor(), DEVX_COPY_REQUIRED, "4 bytes");
    CHECK(batch.column("flag").to_tensor(dx::Copy::if_needed).borrow().at<bool>({2}));
    CHECK(batch.column("text").plan_tensor().kind == dx::Plan::Kind::impossible);
    CHECK_THROWS(batch.column("number").to_tensor(dx::Copy::always), DEVX_IMPOSSIBLE, "1 of 4 values");
}

/* --- the ledger, and threads --- */

TEST(the_ledger_ends_at_zero_from_many_threads) {
    std::atomic<int> releases{0};
    {
        auto const batch = make_batch(make_schema(), dx::owner([&] { ++releases; }));
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&batch] {
                for (int k = 0; k < 200; ++k) {
                    auto shared = batch.share();
                    auto const schema = shared.schema();
                    auto const again = dx::Batch::import_from(std::move(shared).export_move_device(), schema);
                    static_cast<void>(again.column("number").is_valid(0));
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        CHECK_INT(releases.load(), 0);
    }
    CHECK_INT(releases.load(), 1);
    auto const ledger = dx::ledger();
    CHECK_INT(ledger.owners.live, 0);
    CHECK(ledger.batch_imports.total >= 800);
    CHECK_INT(dx::outstanding(), 0);
    CHECK_STR(dx::version(), DEVX_TEST_VERSION);
}

CHECK_MAIN()
