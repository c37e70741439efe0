// devexchange.hpp: values of every kind of column, batches of columns, matrices and columns of tensors.
#include <devexchange.hpp>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "throws.hpp"

namespace dx = devexchange;

static std::int32_t const numbers[] = {10, 11, 12, 13};
static std::int32_t const text_offsets[] = {0, 1, 3};
static dx::Node const number_node{4, {nullptr, numbers}};
static dx::Node const text_node{2, {nullptr, text_offsets, "abc"}};

// A batch over static memory, which needs no owner.
static dx::Batch batch(dx::Field const &field, dx::Node const &node) {
    return dx::Batch::create(dx::Schema::create(field), node, dx::Owner());
}

static bool is_view(dx::Plan const &plan) {
    return plan.kind == dx::Plan::Kind::view;
}

static std::string rows(dx::Column const &column) {
    std::string all;
    for (std::int64_t row = 0; row < column.length(); ++row) {
        all += (row > 0 ? " " : "") + column.text(row);
    }
    return all;
}

TEST(the_values_of_a_union_are_where_it_says) {
    std::int8_t const ids[] = {4, 9, 4};
    std::int32_t const offsets[] = {2, 1, 0};
    auto const made = batch({"", "+ud:4,9", 0, {{"n", "i"}, {"t", "u"}}},
                            {3, {ids, offsets}, {number_node, text_node}});
    auto const root = made.root();
    CHECK(rows(root) == "12 \"bc\" 10");
    auto const second = root.union_value(1);
    CHECK_INT(second.type_id, 9);
    CHECK(second.child.format() == "u");
    CHECK(second.child.bytes(second.row) == "bc");
    auto const stored = root.resolve(0);
    CHECK(stored.has_value());
    CHECK(stored->column.format() == "i");
    CHECK_INT(stored->row, 2);
    CHECK_THROWS(root.union_value(3), "DEVX_OUT_OF_RANGE: row is 3");
    CHECK_THROWS(root.run(0), "DEVX_MISMATCH: ");
}

TEST(runs_lead_to_their_values_or_to_none) {
    std::int16_t const ends[] = {2, 3, 5};
    unsigned char const valid[] = {0x5};
    auto const made = batch({"", "+r", 0, {{"ends", "s", 0}, {"values", "i"}}},
                            {5, {}, {{3, {nullptr, ends}}, {3, {valid, numbers}, {}, {}, -1}}});
    auto const root = made.root();
    CHECK(rows(root) == "10 10 null 12 12");
    CHECK_INT(root.run(3), 2);
    CHECK(!root.resolve(2).has_value());
    CHECK_INT(root.child(1).null_count(), 1);
    CHECK_THROWS(static_cast<void>(root.child(1).null_count_on(1)), "DEVX_DEVICE: stream is 1: device is cpu:0");
}

TEST(values_of_a_fixed_width_are_bytes) {
    auto const made = batch({"", "i"}, number_node);
    auto const bytes = made.root().fixed(2);
    CHECK_INT(bytes.size(), 4);
    CHECK(std::memcmp(bytes.data(), &numbers[2], 4) == 0);
}

TEST(parts_of_a_batch) {
    auto const whole = batch({"", "+s", 0, {{"n", "i"}, {"t", "u"}}}, {2, {nullptr}, {number_node, text_node}});
    auto text = whole.column("t").slice(1, 1).share();
    CHECK(rows(text.root()) == "\"bc\"");
    CHECK(text.root().name() == "t");
    auto const last = whole.slice(1, 1);
    CHECK(rows(last.root()) == "{\"n\": 11, \"t\": \"bc\"}");
    CHECK(rows(dx::Batch::of_columns({{"u", text}, {"v", last}}).root()) ==
          "{\"u\": \"bc\", \"v\": {\"n\": 11, \"t\": \"bc\"}}");
    /* Temporaries, and a list that is made at run time. */
    CHECK(rows(dx::Batch::of_columns({{"a", whole.column("t").share()}, {"b", whole.column("n").share()}}).root()) ==
          "{\"a\": \"a\", \"b\": 10} {\"a\": \"bc\", \"b\": 11}");
    std::vector<std::pair<std::string, dx::Batch::Ref>> columns;
    columns.emplace_back("last", last);
    CHECK(rows(dx::Batch::of_columns(columns).root()) == "{\"last\": {\"n\": 11, \"t\": \"bc\"}}");
    CHECK(rows(dx::Batch::of_columns({{"q", whole.column(1).share()}}).root()) == "{\"q\": \"a\"} {\"q\": \"bc\"}");
    CHECK_THROWS(static_cast<void>(whole.slice(1, 2)), "DEVX_OUT_OF_RANGE: offset is 1 and length is 2");
    CHECK_THROWS(static_cast<void>(whole.root().slice(-1, 1)), "DEVX_OUT_OF_RANGE: offset is -1");
}

TEST(a_schema_is_looked_at_field_by_field) {
    auto const make = [](std::int64_t flags) {
        return dx::Schema::of({{"n", "i", 0, {}, {}, dx::encode_metadata({{"key", "value"}})},
                               {"l", "+l", flags, {{"item", "g"}}},
                               {"d", "c", DEVX_FIELD_ORDERED, {}, {{"", "u"}}}});
    };
    auto const schema = make(DEVX_FIELD_NULLABLE);
    auto const root = schema.root();
    CHECK(root.format() == "+s" && root.name().empty() && root.metadata().empty() && !root.nullable());
    CHECK_INT(root.n_children(), 3);
    std::string names;
    for (auto const &column : root.children()) {
        names += std::string(column.name()) + " " + column.type_name() + "; ";
    }
    CHECK_STR(names.c_str(), "n int32; l list; d int8 -> utf8; ");
    auto const pairs = root.child("n").metadata();
    CHECK(pairs.size() == 1 && pairs[0].first == "key" && pairs[0].second == "value");
    CHECK(root.child("l").nullable() && root.child(1).child(0).name() == "item");
    CHECK_INT(root.child("d").flags(), DEVX_FIELD_ORDERED);
    CHECK(root.child("d").has_dictionary() && root.child(2).dictionary().format() == "u");
    CHECK_THROWS(static_cast<void>(root.child("x")), "DEVX_OUT_OF_RANGE: name is \"x\": the field has no such");
    CHECK_THROWS(static_cast<void>(root.child(3)), "DEVX_OUT_OF_RANGE: index is 3: the field has 3 children");
    CHECK_THROWS(static_cast<void>(root.child(-1)), "DEVX_OUT_OF_RANGE: index is -1");
    CHECK_THROWS(static_cast<void>(root.dictionary()), "DEVX_MISMATCH: the field has no dictionary");
    CHECK(schema == make(DEVX_FIELD_NULLABLE));
    CHECK(schema != make(0));
}

TEST(a_long_text_is_whole) {
    std::string const words(1000, 'w');
    std::int32_t const offsets[] = {0, 1000};
    auto const made = batch({"", "u"}, {1, {nullptr, offsets, words.data()}});
    CHECK(made.root().text(0) == '"' + words + '"');
    /* Around the first room that there is for a text. */
    for (std::int32_t length = 60; length < 66; ++length) {
        std::int32_t const ends[] = {0, length};
        std::string const expected = '"' + words.substr(0, static_cast<std::size_t>(length)) + '"';
        CHECK(batch({"", "u"}, {1, {nullptr, ends, words.data()}}).root().text(0) == expected);
    }
}

TEST(columns_become_a_batch) {
    auto const first = batch({"", "i"}, number_node);
    auto const text = batch({"", "u"}, text_node);
    {
        auto const both = dx::Batch::of_columns({{"n", first}, {"again", first}});
        CHECK_INT(both.n_columns(), 2);
        CHECK(both.column("again").values<std::int32_t>().data() == numbers);
        auto const copy = both.copy();
        auto const copied = copy.column("n").values<std::int32_t>(), source = both.column("n").values<std::int32_t>();
        CHECK(copied.data() != source.data() && copied.size() == source.size());
        CHECK(std::equal(copied.begin(), copied.end(), source.begin()));
        auto const schema = both.schema();
        auto const same = schema.share();
        CHECK(same.get() != nullptr);
    }
    CHECK_THROWS(dx::Batch::of_columns({{"n", first}, {"t", text}}), "DEVX_INVALID_LENGTH: column \"t\" has length 2");
    CHECK_THROWS(dx::Batch::of_columns({{"n", first}}, dx::legacy_stream), "DEVX_DEVICE: ");
    std::string const name("a\0b", 3);
    CHECK_THROWS(dx::Batch::of_columns({{name, first}}), "DEVX_INVALID_TEXT: ");
}

TEST(a_matrix_is_a_batch_and_a_batch_is_a_matrix) {
    int releases = 0;
    {
        double values[] = {1, 2, 3, 4, 5, 6}; // three columns of two rows, one after the other
        auto const matrix = dx::Tensor::over(values, {2, 3}, dx::owner([&releases] { ++releases; }), {1, 2});
        CHECK(is_view(matrix.plan_batch()));
        auto const named = matrix.to_batch({"a", "b", "c"});
        auto const unnamed = matrix.to_batch();
        CHECK(unnamed.column(2).name() == "2");
        CHECK_DOUBLE(named.column("b").values<double>()[1], 4, 0);
        CHECK(is_view(named.plan_matrix()));
        auto const back = named.to_matrix();
        CHECK(back.borrow().raw().data == values);
        auto const copy = named.to_matrix(dx::Copy::always);
        CHECK(copy.borrow().raw().data != values);
        CHECK_THROWS(matrix.to_batch({"a"}), "DEVX_MISMATCH: there are 1 names");
    }
    CHECK_INT(releases, 1);
}

TEST(a_tensor_is_a_column_of_tensors) {
    auto const tensor = dx::Tensor::of(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
    CHECK(is_view(tensor.plan_fixed_shape_column()));
    auto const column = tensor.to_fixed_shape_column("t");
    auto const metadata = column.root().metadata();
    CHECK_INT(metadata.size(), 2);
    CHECK(metadata[0].second == "arrow.fixed_shape_tensor");
    auto const back = column.root().to_tensor();
    CHECK(back.borrow().raw().data == tensor.borrow().raw().data);
    CHECK_INT(back.borrow().raw().ndim, 3);
}

TEST(nothing_is_outstanding) {
    CHECK_INT(devx_ledger_outstanding(), 0);
}

CHECK_MAIN()
