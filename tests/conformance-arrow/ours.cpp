#include "ours.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

const DLDevice cpu{kDLCPU, 0};
const DLDevice cuda0{kDLCUDA, 0};
const int64_t legacy_stream = 1;
const int64_t five_seconds = 5'000'000'000;

struct Freed {
  void operator()(void *memory) const { std::free(memory); }
};
using Bytes = std::shared_ptr<char>;

struct FieldOf {
  std::string format, name, metadata;
  bool has_metadata;
  int64_t flags, n_children, has_dictionary;
};

struct NodeOf {
  int64_t length, null_count, offset;
  std::vector<const void *> buffers;
};

[[noreturn]] void broken(const std::string &what) {
  std::fprintf(stderr, "conformance: %s\n", what.c_str());
  std::exit(2);
}

std::string unhex(const std::string &text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

std::string quoted(const std::string &text) { return "'" + text + "'"; }

/* A handle of devexchange, which is released with this struct. */
template <typename T, void (*release)(T **)>
struct Handle {
  T *it = nullptr;
  Handle() = default;
  Handle(Handle &&other) noexcept : it(std::exchange(other.it, nullptr)) {}
  Handle(const Handle &) = delete;
  ~Handle() { release(&it); }
  operator T *() const { return it; }
};
using Batch = Handle<devx_batch_t, devx_batch_release>;
using Schema = Handle<devx_schema_t, devx_schema_release>;
using Reader = Handle<devx_async_reader_t, devx_async_reader_release>;
using Writer = Handle<devx_async_writer_t, devx_async_writer_release>;
using Stream = Handle<devx_batch_stream_t, devx_batch_stream_release>;

/* Why an exchange failed. */
struct Wrong {
  std::string how;
};

void must(devx_status status, const devx_error &error, const char *call) {
  if (status != DEVX_OK) throw Wrong{std::string(call) + ": " + devx_status_name(status) + ": " + error.message};
}

#define DEVX(call, ...)                              \
  do {                                               \
    devx_error error_;                               \
    must(call(__VA_ARGS__, &error_), error_, #call); \
  } while (0)

/* The pairs of a metadata block, sorted: their order has no meaning. */
std::vector<std::pair<std::string, std::string>> pairs_of(const char *metadata) {
  std::vector<std::pair<std::string, std::string>> pairs;
  if (metadata == nullptr) return pairs;
  auto number = [&] {
    int32_t value;
    std::memcpy(&value, metadata, sizeof value);
    metadata += sizeof value;
    return value;
  };
  auto text = [&] {
    int32_t length = number();
    std::string value(metadata, length);
    metadata += length;
    return value;
  };
  for (int32_t n = number(); n > 0; n--) {
    auto key = text();
    pairs.emplace_back(key, text());
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

/* "d:5,2,128" and "d:5,2" are the same type. */
std::string plain_format(const char *format) {
  std::string text = format;
  if (text.compare(0, 2, "d:") == 0 && text.size() > 4 && text.compare(text.size() - 4, 4, ",128") == 0)
    text.resize(text.size() - 4);
  return text;
}

}  // namespace

struct ours_case {
  std::string why;
  std::vector<std::string> rows, stored;
  std::vector<FieldOf> fields;
  std::vector<NodeOf> nodes;
  std::vector<int64_t> nulls;
  Bytes memory;

  int answer(const std::function<void()> &exchange) {
    why.clear();
    try {
      exchange();
      return 1;
    } catch (const Wrong &wrong) {
      why = wrong.how;
    }
    return 0;
  }

  Schema schema() const {
    std::vector<devx_field> descriptions;
    for (auto &field : fields) {
      const char *metadata = field.has_metadata ? field.metadata.data() : nullptr;
      descriptions.push_back(
          {field.format.c_str(), field.name.c_str(), metadata, field.flags, field.n_children, field.has_dictionary});
    }
    Schema out;
    DEVX(devx_schema_create, descriptions.data(), descriptions.size(), &out.it);
    return out;
  }

  Batch batch(const Schema &schema) const {
    std::vector<devx_node> descriptions;
    for (auto &node : nodes)
      descriptions.push_back(
          {node.length, node.null_count, node.offset, node.buffers.data(), static_cast<int64_t>(node.buffers.size())});
    auto keep = std::make_unique<Bytes>(memory);
    devx_owner owner{keep.get(), [](void *kept) { delete static_cast<Bytes *>(kept); }};
    Batch out;
    DEVX(devx_batch_create, schema, cpu, descriptions.data(), descriptions.size(), &owner, &out.it);
    keep.release();
    return out;
  }

  Batch batch(bool cuda) const {
    Batch host = batch(schema()), out;
    if (!cuda) return host;
    DEVX(devx_batch_copy_to, host, cuda0, legacy_stream, &out.it);
    return out;
  }

  /* Only children are compared with name and flags: the root has no name, and its column says whether a dictionary's values
     may be null. */
  enum class As { root, child, dictionary };

  void compare(const ArrowSchema &theirs, size_t &at, As as) const {
    auto &ours = fields.at(at);
    std::string where = as == As::root ? "the schema" : "field " + quoted(ours.name);
    auto differ = [&](const std::string &what, const std::string &is, const std::string &expected) {
      if (is != expected) throw Wrong{where + ": " + what + " is " + quoted(is) + ", not " + quoted(expected)};
    };
    differ("format", plain_format(theirs.format), plain_format(ours.format.c_str()));
    if (as == As::child) {
      differ("name", theirs.name == nullptr ? "" : theirs.name, ours.name);
      differ("flags", std::to_string(theirs.flags), std::to_string(ours.flags));
    }
    auto theirs_pairs = pairs_of(theirs.metadata),
         ours_pairs = pairs_of(ours.has_metadata ? ours.metadata.data() : nullptr);
    if (theirs_pairs != ours_pairs)
      throw Wrong{where + ": metadata has " + std::to_string(theirs_pairs.size()) +
                  " pairs, or other ones than the expected " + std::to_string(ours_pairs.size())};
    differ("n_children", std::to_string(theirs.n_children), std::to_string(ours.n_children));
    differ("has a dictionary", std::to_string(theirs.dictionary != nullptr), std::to_string(ours.has_dictionary));
    at++;
    for (int64_t i = 0; i < theirs.n_children; i++) compare(*theirs.children[i], at, As::child);
    if (theirs.dictionary != nullptr) compare(*theirs.dictionary, at, As::dictionary);
  }

  void compare(devx_schema_t *schema) const {
    ArrowSchema theirs;
    DEVX(devx_schema_export, schema, &theirs);
    size_t at = 0;
    std::unique_ptr<ArrowSchema, void (*)(ArrowSchema *)> released(&theirs, [](ArrowSchema *it) { it->release(it); });
    compare(theirs, at, As::root);
  }

  /* Compares a batch on any device with rows `first` to `first + count`, or with all rows if `count` is negative. */
  void compare(const Batch &given, int64_t first, int64_t count) const {
    Schema schema;
    DEVX(devx_batch_schema, given, &schema.it);
    compare(schema);

    Batch copy;
    devx_batch_info info;
    DEVX(devx_batch_get_info, given, &info);
    if (info.device_type != kDLCPU) DEVX(devx_batch_copy_to, given, cpu, legacy_stream, &copy.it);
    devx_batch_t *batch = info.device_type == kDLCPU ? given.it : copy.it;

    const bool whole = count < 0;
    if (whole) count = static_cast<int64_t>(rows.size());
    if (info.length != count)
      throw Wrong{"length is " + std::to_string(info.length) + ", not " + std::to_string(count)};
    devx_column root;
    DEVX(devx_batch_root, batch, &root);
    std::string shown;
    for (int64_t row = 0; row < count; row++) {
      auto &expected = rows.at(first + row);
      size_t length;
      shown.resize(expected.size() + 1);
      DEVX(devx_column_text, batch, &root, row, shown.data(), shown.size(), &length);
      if (length != expected.size() || shown.compare(0, length, expected) != 0) {
        shown.resize(length + 1);
        DEVX(devx_column_text, batch, &root, row, shown.data(), shown.size(), &length);
        shown.resize(length);
        throw Wrong{"row " + std::to_string(row) + " is " + shown + ", not " + expected};
      }
    }
    for (size_t i = 0; whole && i < nulls.size(); i++) {
      devx_column column;
      int64_t found;
      DEVX(devx_batch_column, batch, i, &column);
      DEVX(devx_column_null_count, batch, &column, &found);
      if (found != nulls[i])
        throw Wrong{"null count of column " + std::to_string(i) + " is " + std::to_string(found) + ", not " +
                    std::to_string(nulls[i])};
    }
  }

  Stream stream(bool cuda, int n) const {
    struct Source {
      const ours_case *of;
      bool cuda;
      int left;
    };
    auto context = std::make_unique<Source>(Source{this, cuda, n});
    devx_batch_source source{};
    source.context = context.get();
    source.next = [](void *context, devx_batch **out, devx_error *) -> devx_status {
      auto &source = *static_cast<Source *>(context);
      if (source.left-- == 0) return DEVX_OK;
      try {
        Batch batch = source.of->batch(source.cuda);
        *out = std::exchange(batch.it, nullptr);
      } catch (const Wrong &wrong) {
        std::fprintf(stderr, "conformance: %s\n", wrong.how.c_str());
        return DEVX_CALLBACK;
      }
      return DEVX_OK;
    };
    source.release = [](void *context) { delete static_cast<Source *>(context); };
    Stream out;
    DEVX(devx_batch_stream_create, schema(), cuda ? kDLCUDA : kDLCPU, &source, &out.it);
    context.release();
    return out;
  }

  void compare(const Stream &stream, int n) const {
    Schema schema;
    DEVX(devx_batch_stream_schema, stream, &schema.it);
    compare(schema);
    compare_all(n, [&](devx_batch_t **out, devx_error *error) { return devx_batch_stream_next(stream, out, error); });
  }

  /* Requires exactly `n` batches, each with all rows. */
  void compare_all(int n, const std::function<devx_status(devx_batch_t **, devx_error *)> &next) const {
    for (int i = 0; i < n; i++) {
      Batch batch;
      DEVX(next, &batch.it);
      if (batch.it == nullptr)
        throw Wrong{"the stream ends after " + std::to_string(i) + " batches, not " + std::to_string(n)};
      compare(batch, 0, -1);
    }
    Batch end;
    DEVX(next, &end.it);
    if (end.it != nullptr) throw Wrong{"the stream does not end after " + std::to_string(n) + " batches"};
  }
};

ours_case *ours_open(const char *corpus, const char *name, const char *layout) {
  auto it = std::make_unique<ours_case>();
  const std::string stem = std::string(corpus) + "/" + name;

  auto read_lines = [](const std::string &path, std::vector<std::string> &lines) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
  };
  read_lines(stem + ".rows", it->rows);
  read_lines(stem + ".stored", it->stored);

  std::ifstream buffers(stem + "." + layout + ".buffers", std::ios::binary | std::ios::ate);
  const std::streamoff size = buffers ? std::streamoff(buffers.tellg()) : 0;
  it->memory = Bytes(static_cast<char *>(std::aligned_alloc(4096, (size / 4096 + 1) * 4096)), Freed());
  if (!buffers.seekg(0).read(it->memory.get(), size)) broken("no buffers of " + stem + " " + layout);

  std::ifstream tree(stem + "." + layout + ".tree");
  for (std::string line; std::getline(tree, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "field") {
      FieldOf field;
      words >> field.flags >> field.n_children >> field.has_dictionary >> field.format >> field.name >> field.metadata;
      field.format = unhex(field.format.substr(1));
      field.name = unhex(field.name.substr(1));
      field.has_metadata = field.metadata != "-";
      field.metadata = unhex(field.metadata);
      it->fields.push_back(field);
    } else if (kind == "node") {
      NodeOf node;
      size_t n;
      words >> node.length >> node.null_count >> node.offset >> n;
      for (std::string place; node.buffers.size() < n && words >> place;)
        node.buffers.push_back(place == "-" ? nullptr : it->memory.get() + std::stoll(place));
      it->nodes.push_back(node);
    } else {
      int64_t count;
      words >> count;
      it->nulls.push_back(count);
    }
    if (!words) broken("cannot read " + stem + " " + layout + ": " + line);
  }
  if (it->fields.empty()) broken("no tree of " + stem + " " + layout);
  return it.release();
}

void ours_close(ours_case *it) { delete it; }

const char *ours_why(const ours_case *it) { return it->why.c_str(); }

int ours_give(ours_case *it, ArrowArray *array, ArrowSchema *schema) {
  return it->answer([=] {
    Schema described = it->schema();
    Batch batch = it->batch(described);
    DEVX(devx_schema_export, described, schema);
    DEVX(devx_batch_export_move, &batch.it, array);
  });
}

int ours_give_device(ours_case *it, int cuda, ArrowDeviceArray *array, ArrowSchema *schema) {
  return it->answer([=] {
    Batch batch = it->batch(cuda != 0);
    Schema described;
    DEVX(devx_batch_schema, batch, &described.it);
    DEVX(devx_schema_export, described, schema);
    DEVX(devx_batch_export_move_device, &batch.it, array);
  });
}

int ours_take(ours_case *it, int64_t first, int64_t count, ArrowArray *array, ArrowSchema *schema) {
  return it->answer([=] {
    Batch batch;
    DEVX(devx_batch_import_pair, array, schema, &batch.it);
    it->compare(batch, first, count);
  });
}

int ours_take_device(ours_case *it, int64_t first, int64_t count, ArrowDeviceArray *array, ArrowSchema *schema) {
  return it->answer([=] {
    Batch batch;
    DEVX(devx_batch_import_pair_device, array, schema, &batch.it);
    it->compare(batch, first, count);
  });
}

int ours_give_stream(ours_case *it, int n, ArrowArrayStream *out) {
  return it->answer([=] {
    Stream stream = it->stream(false, n);
    DEVX(devx_batch_stream_export, &stream.it, out);
  });
}

int ours_give_device_stream(ours_case *it, int cuda, int n, ArrowDeviceArrayStream *out) {
  return it->answer([=] {
    Stream stream = it->stream(cuda != 0, n);
    DEVX(devx_batch_stream_export_device, &stream.it, out);
  });
}

int ours_take_stream(ours_case *it, int n, ArrowArrayStream *source) {
  return it->answer([=] {
    Stream stream;
    DEVX(devx_batch_stream_import, source, &stream.it);
    it->compare(stream, n);
  });
}

int ours_take_device_stream(ours_case *it, int n, ArrowDeviceArrayStream *source) {
  return it->answer([=] {
    Stream stream;
    DEVX(devx_batch_stream_import_device, source, &stream.it);
    it->compare(stream, n);
  });
}

int ours_give_async(ours_case *it, int cuda, int n, ArrowAsyncDeviceStreamHandler *handler) {
  return it->answer([=] {
    Schema schema = it->schema();
    Writer writer;
    DEVX(devx_async_writer_create, handler, cuda ? kDLCUDA : kDLCPU, nullptr, nullptr, &writer.it);
    DEVX(devx_async_writer_start, writer, schema);
    for (int i = 0; i < n; i++) {
      Batch batch = it->batch(cuda != 0);
      DEVX(devx_async_writer_ready, writer, five_seconds);
      DEVX(devx_async_writer_send_move, writer, &batch.it, nullptr);
    }
    DEVX(devx_async_writer_finish, writer);
  });
}

int ours_take_async(ours_case *it, int cuda, int n,
                    void (*produce)(void *context, ArrowAsyncDeviceStreamHandler *handler), void *context) {
  return it->answer([=] {
    Reader reader;
    ArrowAsyncDeviceStreamHandler *handler;
    // Arrow C++ waits for requests within `produce`, so all requests are made before.
    DEVX(devx_async_reader_create, n + 1, 1, nullptr, &reader.it);
    DEVX(devx_async_reader_handler, reader, &handler);
    produce(context, handler);
    Schema schema;
    DEVX(devx_async_reader_schema, reader, five_seconds, &schema.it);
    it->compare(schema.it);
    int32_t device_type;
    DEVX(devx_async_reader_producer, reader, &device_type, nullptr);
    if (device_type != (cuda ? kDLCUDA : kDLCPU))
      throw Wrong{"device type of the stream is " + std::to_string(device_type)};
    it->compare_all(n, [&](devx_batch_t **out, devx_error *error) {
      return devx_async_reader_next(reader, five_seconds, out, nullptr, error);
    });
  });
}

int64_t ours_n_rows(const ours_case *it) { return static_cast<int64_t>(it->rows.size()); }

const char *ours_stored_row(const ours_case *it, int64_t row) { return it->stored.at(row).c_str(); }

int64_t ours_outstanding(void) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (devx_ledger_outstanding() != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return devx_ledger_outstanding();
}
