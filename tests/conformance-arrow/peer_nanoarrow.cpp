/*
 * nanoarrow's C library as the peer, with its CUDA device: peer_nanoarrow CORPUS
 *
 * Prints a line for each exchange (results.py describes the columns). nanoarrow reads arrays through views and cannot
 * compare them, so this program makes the text of each row and compares it with the row of the case.
 */
#include <nanoarrow_device.h>
#include <nanoarrow_ipc.h>

#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "ours.h"

namespace {

std::string corpus;

const int kStreamed = 3;

/* One of the C structs of Arrow or nanoarrow, which is released at the end of its scope. */
template <typename T>
struct Struct : T {
  explicit Struct(std::function<void(T *)> reset =
                      [](T *it) {
                        if constexpr (requires { it->array; }) {
                          if (it->array.release != nullptr) it->array.release(&it->array);
                        } else {
                          if (it->release != nullptr) it->release(it);
                        }
                      })
      : T{}, reset_(std::move(reset)) {}
  Struct(const Struct &) = delete;
  ~Struct() { reset_(this); }

 private:
  std::function<void(T *)> reset_;
};

/* An exchange failed on our side, or its result is not the expected one. */
struct Wrong {
  std::string how;
};

/* An error of nanoarrow. */
struct Refused {
  std::string how;
};

void said(ours_case *it, int answer) {
  if (!answer) throw Wrong{ours_why(it)};
}

void must(int code, const ArrowError &error, const char *call) {
  if (code != NANOARROW_OK) throw Refused{std::string(call) + " says " + std::to_string(code) + ": " + error.message};
}

#define NANOARROW(call, ...)                         \
  do {                                               \
    ArrowError error_{};                             \
    must(call(__VA_ARGS__, &error_), error_, #call); \
  } while (0)

/* --- the values that nanoarrow reads, as texts like those of devexchange --- */

std::string quoted(const std::string &text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

template <class Float> std::string of_float(Float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0" : "0";
  // The shortest digits that give this number of its type, with the point moved to its place and no exponent.
  char room[40];
  auto end = std::to_chars(room, room + sizeof room, value, std::chars_format::scientific);
  std::string digits(room, end.ptr);
  const int exponent = std::stoi(digits.substr(digits.find('e') + 1));
  digits.resize(digits.find('e'));
  const std::string sign = digits[0] == '-' ? "-" : "";
  digits.erase(0, sign.size());
  if (digits.size() > 1) digits.erase(1, 1);
  const int before = exponent + 1, count = static_cast<int>(digits.size());
  if (before <= 0) return sign + "0." + std::string(-before, '0') + digits;
  if (before >= count) return sign + digits + std::string(before - count, '0');
  return sign + digits.insert(before, ".");
}

std::string joined(int64_t from, int64_t to, const std::function<std::string(int64_t)> &text) {
  std::string out;
  for (int64_t i = from; i < to; i++) out += (i > from ? ", " : "") + text(i);
  return out;
}

std::string text(const ArrowArrayView &view, const ArrowSchema &schema, int64_t row);

std::string of_map(const ArrowArrayView &entries, const ArrowSchema &schema, int64_t from, int64_t to) {
  return "{" +
         joined(from, to,
                [&](int64_t i) {
                  const int64_t at = entries.offset + i;
                  return text(*entries.children[0], *schema.children[0], at) + ": " +
                         text(*entries.children[1], *schema.children[1], at);
                }) +
         "}";
}

std::string of_runs(const ArrowArrayView &view, const ArrowSchema &schema, int64_t row) {
  int64_t run = 0;
  while (ArrowArrayViewGetIntUnsafe(view.children[0], run) <= view.offset + row) run++;
  return text(*view.children[1], *schema.children[1], run);
}

std::string of_decimal(const ArrowArrayView &view, const ArrowSchema &schema, int64_t row) {
  ArrowSchemaView type;
  NANOARROW(ArrowSchemaViewInit, &type, &schema);
  ArrowDecimal decimal;
  ArrowDecimalInit(&decimal, type.decimal_bitwidth, type.decimal_precision, type.decimal_scale);
  ArrowArrayViewGetDecimalUnsafe(&view, row, &decimal);
  ArrowBuffer buffer;
  ArrowBufferInit(&buffer);
  const int code = ArrowDecimalAppendStringToBuffer(&decimal, &buffer);
  std::string out(reinterpret_cast<char *>(buffer.data), buffer.size_bytes);
  ArrowBufferReset(&buffer);
  if (code != NANOARROW_OK) throw Refused{"ArrowDecimalAppendStringToBuffer says " + std::to_string(code)};
  return out;
}

std::string text(const ArrowArrayView &view, const ArrowSchema &schema, int64_t row) {
  const int64_t at = view.offset + row;
  if (ArrowArrayViewIsNull(&view, row)) return "null";
  if (schema.dictionary != nullptr)
    return text(*view.dictionary, *schema.dictionary, ArrowArrayViewGetIntUnsafe(&view, row));
  switch (view.storage_type) {
    case NANOARROW_TYPE_BOOL:
      return ArrowArrayViewGetIntUnsafe(&view, row) ? "true" : "false";
    case NANOARROW_TYPE_UINT8:
    case NANOARROW_TYPE_UINT16:
    case NANOARROW_TYPE_UINT32:
    case NANOARROW_TYPE_UINT64:
      return std::to_string(ArrowArrayViewGetUIntUnsafe(&view, row));
    case NANOARROW_TYPE_HALF_FLOAT:
    case NANOARROW_TYPE_FLOAT:
      return of_float(static_cast<float>(ArrowArrayViewGetDoubleUnsafe(&view, row)));
    case NANOARROW_TYPE_DOUBLE:
      return of_float(ArrowArrayViewGetDoubleUnsafe(&view, row));
    case NANOARROW_TYPE_DECIMAL32:
    case NANOARROW_TYPE_DECIMAL64:
    case NANOARROW_TYPE_DECIMAL128:
    case NANOARROW_TYPE_DECIMAL256:
      return of_decimal(view, schema, row);
    case NANOARROW_TYPE_INTERVAL_MONTHS:
    case NANOARROW_TYPE_INTERVAL_DAY_TIME:
    case NANOARROW_TYPE_INTERVAL_MONTH_DAY_NANO: {
      ArrowInterval interval;
      ArrowIntervalInit(&interval, view.storage_type);
      ArrowArrayViewGetIntervalUnsafe(&view, row, &interval);
      return std::to_string(interval.months) + " months " + std::to_string(interval.days) + " days " +
             std::to_string(interval.ms * int64_t{1'000'000} + interval.ns) + " ns";
    }
    case NANOARROW_TYPE_STRING:
    case NANOARROW_TYPE_LARGE_STRING:
    case NANOARROW_TYPE_STRING_VIEW: {
      auto found = ArrowArrayViewGetStringUnsafe(&view, row);
      return quoted(std::string(found.data, found.size_bytes));
    }
    case NANOARROW_TYPE_BINARY:
    case NANOARROW_TYPE_LARGE_BINARY:
    case NANOARROW_TYPE_BINARY_VIEW:
    case NANOARROW_TYPE_FIXED_SIZE_BINARY: {
      auto found = ArrowArrayViewGetBytesUnsafe(&view, row);
      std::string out = "0x";
      for (int64_t i = 0; i < found.size_bytes; i++) {
        char hex[3];
        std::snprintf(hex, sizeof hex, "%02x", found.data.as_uint8[i]);
        out += hex;
      }
      return out;
    }
    case NANOARROW_TYPE_STRUCT:
      return "{" +
             joined(0, view.n_children,
                    [&](int64_t i) {
                      return quoted(schema.children[i]->name) + ": " +
                             text(*view.children[i], *schema.children[i], at);
                    }) +
             "}";
    case NANOARROW_TYPE_MAP:
      return of_map(*view.children[0], *schema.children[0], ArrowArrayViewListChildOffset(&view, at),
                    ArrowArrayViewListChildOffset(&view, at + 1));
    case NANOARROW_TYPE_LIST:
    case NANOARROW_TYPE_LARGE_LIST:
    case NANOARROW_TYPE_LIST_VIEW:
    case NANOARROW_TYPE_LARGE_LIST_VIEW:
    case NANOARROW_TYPE_FIXED_SIZE_LIST: {
      int64_t from, to;
      if (view.storage_type == NANOARROW_TYPE_FIXED_SIZE_LIST) {
        from = at * view.layout.child_size_elements;
        to = from + view.layout.child_size_elements;
      } else {
        from = ArrowArrayViewListChildOffset(&view, at);
        to = view.storage_type == NANOARROW_TYPE_LIST_VIEW         ? from + view.buffer_views[2].data.as_int32[at]
             : view.storage_type == NANOARROW_TYPE_LARGE_LIST_VIEW ? from + view.buffer_views[2].data.as_int64[at]
                                                                   : ArrowArrayViewListChildOffset(&view, at + 1);
      }
      return "[" + joined(from, to, [&](int64_t i) { return text(*view.children[0], *schema.children[0], i); }) + "]";
    }
    case NANOARROW_TYPE_SPARSE_UNION:
    case NANOARROW_TYPE_DENSE_UNION: {
      const int8_t child = ArrowArrayViewUnionChildIndex(&view, row);
      return text(*view.children[child], *schema.children[child], ArrowArrayViewUnionChildOffset(&view, row));
    }
    case NANOARROW_TYPE_RUN_END_ENCODED:
      return of_runs(view, schema, row);
    default:
      return std::to_string(ArrowArrayViewGetIntUnsafe(&view, row));
  }
}

/* --- exchanges --- */

/* Requires an array that passes full validation and has the rows of the case. */
void same(ours_case *it, const ArrowArray &array, const ArrowSchema &schema) {
  Struct<ArrowArrayView> view(ArrowArrayViewReset);
  NANOARROW(ArrowArrayViewInitFromSchema, &view, &schema);
  NANOARROW(ArrowArrayViewSetArray, &view, &array);
  NANOARROW(ArrowArrayViewValidate, &view, NANOARROW_VALIDATION_LEVEL_FULL);
  if (view.length != ours_n_rows(it)) throw Wrong{"length is " + std::to_string(view.length)};
  for (int64_t row = 0; row < view.length; row++) {
    const std::string found = text(view, schema, row);
    if (found != ours_stored_row(it, row))
      throw Wrong{"row " + std::to_string(row) + " is " + found + ", not " + ours_stored_row(it, row)};
  }
}

/* nanoarrow does not copy the data buffers of string and binary views, and reading such a copy would crash this process. */
void same_buffers(const ArrowArray &copy, const ArrowArray &from) {
  if (copy.n_buffers != from.n_buffers)
    throw Wrong{"its copy has " + std::to_string(copy.n_buffers) + " buffers, not " + std::to_string(from.n_buffers)};
  for (int64_t i = 0; i < from.n_children; i++) same_buffers(*copy.children[i], *from.children[i]);
  if (from.dictionary != nullptr) same_buffers(*copy.dictionary, *from.dictionary);
}

void *const legacy_stream = nullptr;

/* Lets nanoarrow copy an array to CUDA device 0 or to the host. */
void copy(ArrowDeviceArray *from, const ArrowSchema &schema, bool cuda, ArrowDeviceArray *out) {
  ArrowDevice *device = ArrowDeviceResolve(cuda ? ARROW_DEVICE_CUDA : ARROW_DEVICE_CPU, cuda ? 0 : -1);
  if (device == nullptr) throw Refused{"there is no such device"};
  // nanoarrow accepts a stream only for work on a GPU.
  void *stream = legacy_stream;
  void *source_stream = from->device_type == ARROW_DEVICE_CPU ? nullptr : &stream;
  Struct<ArrowDeviceArrayView> view(ArrowDeviceArrayViewReset);
  ArrowDeviceArrayViewInit(&view);
  NANOARROW(ArrowArrayViewInitFromSchema, &view.array_view, &schema);
  {
    ArrowError error{};
    must(ArrowDeviceArrayViewSetArrayAsync(&view, from, source_stream, &error), error,
         "ArrowDeviceArrayViewSetArrayAsync");
  }
  const int code = ArrowDeviceArrayViewCopyAsync(&view, device, out, cuda ? &stream : source_stream);
  if (code != NANOARROW_OK) throw Refused{"ArrowDeviceArrayViewCopyAsync says " + std::to_string(code)};
  same_buffers(out->array, from->array);
  // A copy to the host is not finished when the call returns.
  if (!cuda) NANOARROW(view.device->synchronize_event, view.device, nullptr, source_stream);
}

void report(const std::string &name, const char *direction, const char *transport, const char *place,
            const std::string &layout, const std::function<void()> &exchange) {
  std::string result = "ok", how;
  try {
    exchange();
  } catch (const Wrong &wrong) {
    result = "wrong", how = wrong.how;
  } catch (const Refused &refused) {
    result = "refused", how = refused.how;
  }
  for (char &character : how)
    if (character == '\n' || character == '\t') character = ' ';
  std::cout << name << '\t' << direction << '\t' << transport << '\t' << place << '\t' << layout << '\t' << result
            << '\t' << how << std::endl;
}

void arrays(const std::string &name, const std::string &layout, ours_case *it) {
  report(name, "to peer", "array", "host", layout, [&] {
    Struct<ArrowArray> array;
    Struct<ArrowSchema> schema;
    said(it, ours_give(it, &array, &schema));
    same(it, array, schema);
  });
  for (const bool cuda : {false, true}) {
    const char *place = cuda ? "cuda" : "host";
    // To the peer: nanoarrow copies arrays on a device to the host. From the peer: it copies an array of the host to the place.
    report(name, "to peer", "device array", place, layout, [&] {
      Struct<ArrowDeviceArray> array, host;
      Struct<ArrowSchema> schema;
      said(it, ours_give_device(it, cuda, &array, &schema));
      if (cuda) {
        copy(&array, schema, false, &host);
        same(it, host.array, schema);
      } else {
        same(it, array.array, schema);
      }
    });
    report(name, "from peer", "device array", place, layout, [&] {
      Struct<ArrowDeviceArray> array, made;
      Struct<ArrowSchema> schema;
      said(it, ours_give_device(it, false, &array, &schema));
      copy(&array, schema, cuda, &made);
      said(it, ours_take_device(it, 0, -1, &made, &schema));
    });
  }
}

void streams(const std::string &name, const std::string &layout, ours_case *it) {
  report(name, "to peer", "stream", "host", layout, [&] {
    Struct<ArrowArrayStream> stream;
    Struct<ArrowSchema> schema;
    said(it, ours_give_stream(it, kStreamed, &stream));
    NANOARROW(ArrowArrayStreamGetSchema, &stream, &schema);
    for (int i = 0;; i++) {
      Struct<ArrowArray> array;
      NANOARROW(ArrowArrayStreamGetNext, &stream, &array);
      if (array.release == nullptr) {
        if (i != kStreamed) throw Wrong{"there are " + std::to_string(i) + " batches"};
        return;
      }
      same(it, array, schema);
    }
  });
}

/* A stream of the batch that nanoarrow reads from the case's file. */
void open_own(const std::string &name, ArrowArrayStream *out) {
  const std::string path = corpus + "/" + name + ".arrow";
  ArrowIpcInputStream input;
  if (ArrowIpcInputStreamInitFile(&input, std::fopen(path.c_str(), "rb"), 1) != NANOARROW_OK)
    throw Refused{"no " + path};
  if (ArrowIpcArrayStreamReaderInit(out, &input, nullptr) != NANOARROW_OK) throw Refused{"no reader"};
}

/* Whether nanoarrow reads the schema within two seconds: its verification takes twice as long for each level. */
bool reads_schema_in_time(const std::string &name) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(2);
    ArrowArrayStream stream;
    ArrowSchema schema;
    open_own(name, &stream);
    _exit(ArrowArrayStreamGetSchema(&stream, &schema, nullptr));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFSIGNALED(status);
}

void own(const std::string &name, ours_case *it) {
  std::string problem;
  if (!std::ifstream(corpus + "/" + name + ".arrow")) problem = "there is no file of it";
  else if (name == "deep" && !reads_schema_in_time(name))
    problem = "its schema is not read in two seconds";
  if (!problem.empty()) {
    for (auto transport : {"array", "stream"})
      report(name, "from peer", transport, "host", "its own", [&] { throw Refused{problem}; });
    return;
  }
  report(name, "from peer", "array", "host", "its own", [&] {
    Struct<ArrowArrayStream> stream;
    Struct<ArrowSchema> schema;
    Struct<ArrowArray> array;
    open_own(name, &stream);
    NANOARROW(ArrowArrayStreamGetSchema, &stream, &schema);
    NANOARROW(ArrowArrayStreamGetNext, &stream, &array);
    said(it, ours_take(it, 0, -1, &array, &schema));
  });
  report(name, "from peer", "stream", "host", "its own", [&] {
    Struct<ArrowArrayStream> stream;
    open_own(name, &stream);
    said(it, ours_take_stream(it, 1, &stream));
  });
}

}  // namespace

int main(int, char **arguments) {
  corpus = arguments[1];
  std::ifstream list(corpus + "/layouts");
  for (std::string name, layout; list >> name >> layout;) {
    ours_case *it = ours_open(corpus.c_str(), name.c_str(), layout.c_str());
    arrays(name, layout, it);
    streams(name, layout, it);
    if (layout == "plain") own(name, it);
    ours_close(it);
  }
  std::cout << "outstanding\t" << ours_outstanding() << "\n";
}
