/*
 * Arrow C++ as the peer, from the wheel of pyarrow: peer_cpp CORPUS
 *
 * Prints a line for each exchange (results.py describes the columns).
 */
#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/util/async_generator.h>
#include <arrow/util/thread_pool.h>

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda_memory.hpp"
#include "ours.h"

using arrow::RecordBatch;
using arrow::Result;
using arrow::Status;
using Batches = std::vector<std::shared_ptr<RecordBatch>>;
using cuda_memory::Gpu;

namespace {

std::string corpus;

const int kStreamed = 3;

/* One of the C structs, which is released at the end of its scope unless it was moved. */
template <typename T>
struct Struct : T {
  Struct() : T{} {}
  Struct(const Struct &) = delete;
  ~Struct() {
    if constexpr (requires { this->array; }) {
      if (this->array.release != nullptr) this->array.release(&this->array);
    } else {
      if (this->release != nullptr) this->release(this);
    }
  }
};

/* An exchange failed on our side, or its result is not the expected one. Arrow's own errors have other codes. */
Status wrong(const std::string &how) { return Status::UnknownError(how); }

Status said(ours_case *it, int answer) { return answer ? Status::OK() : wrong(ours_why(it)); }

/* A way to exchange batches, in both directions. */
class Transport {
 public:
  Transport(std::string name, bool cuda, bool one) : name(std::move(name)), cuda(cuda), one(one) {}
  virtual ~Transport() = default;
  /* From devexchange to Arrow. */
  virtual Result<Batches> give(ours_case *it, const std::string &layout) const = 0;
  /* From Arrow to devexchange, which compares with rows `first` to `first + count` of the case. */
  virtual Status take(ours_case *it, const Batches &batches, int64_t first, int64_t count) const = 0;

  const std::string name;
  const bool cuda;
  /* Whether an exchange has one batch, not kStreamed. */
  const bool one;
};

Result<std::shared_ptr<RecordBatch>> of_array(const Result<std::shared_ptr<arrow::Array>> &array,
                                              const std::shared_ptr<arrow::Schema> &schema) {
  ARROW_RETURN_NOT_OK(array);
  ARROW_ASSIGN_OR_RAISE(auto batch, RecordBatch::FromStructArray(*array));
  return batch->ReplaceSchemaMetadata(schema->metadata());
}

class Arrays : public Transport {
 public:
  Arrays() : Transport("array", false, true) {}

  Result<Batches> give(ours_case *it, const std::string &layout) const override {
    Struct<ArrowArray> array;
    Struct<ArrowSchema> described;
    ARROW_RETURN_NOT_OK(said(it, ours_give(it, &array, &described)));
    ARROW_ASSIGN_OR_RAISE(auto schema, arrow::ImportSchema(&described));
    // Arrow C++ imports a batch that begins after row 0 only as an array.
    ARROW_ASSIGN_OR_RAISE(
        auto batch, layout == "root" ? of_array(arrow::ImportArray(&array, arrow::struct_(schema->fields())), schema)
                                     : arrow::ImportRecordBatch(&array, schema));
    return Batches{batch};
  }

  Status take(ours_case *it, const Batches &batches, int64_t first, int64_t count) const override {
    Struct<ArrowArray> array;
    Struct<ArrowSchema> schema;
    ARROW_RETURN_NOT_OK(arrow::ExportRecordBatch(*batches[0], &array, &schema));
    return said(it, ours_take(it, first, count, &array, &schema));
  }
};

class DeviceArrays : public Transport {
 public:
  explicit DeviceArrays(bool cuda) : Transport("device array", cuda, true) {}

  Result<Batches> give(ours_case *it, const std::string &layout) const override {
    Struct<ArrowDeviceArray> array;
    Struct<ArrowSchema> described;
    ARROW_RETURN_NOT_OK(said(it, ours_give_device(it, cuda, &array, &described)));
    ARROW_ASSIGN_OR_RAISE(auto schema, arrow::ImportSchema(&described));
    if (layout == "root") {
      ARROW_ASSIGN_OR_RAISE(
          auto batch,
          of_array(arrow::ImportDeviceArray(&array, arrow::struct_(schema->fields()), Gpu::mapper), schema));
      return Batches{batch};
    }
    ARROW_ASSIGN_OR_RAISE(auto batch, arrow::ImportDeviceRecordBatch(&array, schema, Gpu::mapper));
    return Batches{batch};
  }

  Status take(ours_case *it, const Batches &batches, int64_t first, int64_t count) const override {
    Struct<ArrowDeviceArray> array;
    Struct<ArrowSchema> schema;
    ARROW_RETURN_NOT_OK(arrow::ExportDeviceRecordBatch(*batches[0], batches[0]->GetSyncEvent(), &array, &schema));
    return said(it, ours_take_device(it, first, count, &array, &schema));
  }
};

/* kStreamed batches, which repeat the given ones. */
Batches repeated(const Batches &batches) {
  Batches out;
  while (out.size() < kStreamed) out.push_back(batches[out.size() % batches.size()]);
  return out;
}

class Streams : public Transport {
 public:
  Streams() : Transport("stream", false, false) {}

  Result<Batches> give(ours_case *it, const std::string &) const override {
    Struct<ArrowArrayStream> stream;
    ARROW_RETURN_NOT_OK(said(it, ours_give_stream(it, kStreamed, &stream)));
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ImportRecordBatchReader(&stream));
    return reader->ToRecordBatches();
  }

  Status take(ours_case *it, const Batches &batches, int64_t, int64_t) const override {
    Struct<ArrowArrayStream> stream;
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::RecordBatchReader::Make(repeated(batches), batches[0]->schema()));
    ARROW_RETURN_NOT_OK(arrow::ExportRecordBatchReader(reader, &stream));
    return said(it, ours_take_stream(it, kStreamed, &stream));
  }
};

arrow::DeviceAllocationType allocation(bool cuda) {
  return cuda ? arrow::DeviceAllocationType::kCUDA : arrow::DeviceAllocationType::kCPU;
}

class DeviceStreams : public Transport {
 public:
  explicit DeviceStreams(bool cuda) : Transport("device stream", cuda, false) {}

  Result<Batches> give(ours_case *it, const std::string &) const override {
    Struct<ArrowDeviceArrayStream> stream;
    ARROW_RETURN_NOT_OK(said(it, ours_give_device_stream(it, cuda, kStreamed, &stream)));
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ImportDeviceRecordBatchReader(&stream, Gpu::mapper));
    return reader->ToRecordBatches();
  }

  Status take(ours_case *it, const Batches &batches, int64_t, int64_t) const override {
    Struct<ArrowDeviceArrayStream> stream;
    ARROW_ASSIGN_OR_RAISE(auto reader,
                          arrow::RecordBatchReader::Make(repeated(batches), batches[0]->schema(), allocation(cuda)));
    ARROW_RETURN_NOT_OK(arrow::ExportDeviceRecordBatchReader(reader, &stream));
    return said(it, ours_take_device_stream(it, kStreamed, &stream));
  }
};

template <typename T>
Result<T> waited_for(const arrow::Future<T> &future) {
  if (!future.Wait(5)) return wrong("nothing has come in five seconds");
  return future.result();
}

class Async : public Transport {
 public:
  explicit Async(bool cuda) : Transport("async", cuda, false) {}

  Result<Batches> give(ours_case *it, const std::string &) const override {
    ArrowAsyncDeviceStreamHandler handler{};
    auto created = arrow::CreateAsyncDeviceStreamHandler(&handler, arrow::internal::GetCpuThreadPool(), kStreamed + 1,
                                                         Gpu::mapper);
    ARROW_RETURN_NOT_OK(said(it, ours_give_async(it, cuda, kStreamed, &handler)));
    ARROW_ASSIGN_OR_RAISE(auto stream, waited_for(created));
    Batches batches;
    // Asks for all batches, also after one that Arrow refuses, because Arrow never releases the others.
    Status status;
    for (int i = 0; i <= kStreamed; i++) {
      auto next = waited_for(stream.generator());
      if (next.ok() && arrow::IsIterationEnd(*next)) break;
      if (next.ok()) batches.push_back(next->batch);
      if (status.ok()) status = next.status();
    }
    ARROW_RETURN_NOT_OK(status);
    return batches;
  }

  Status take(ours_case *it, const Batches &batches, int64_t, int64_t) const override {
    auto produce = [&](ArrowAsyncDeviceStreamHandler *handler) {
      auto generator = arrow::MakeVectorGenerator(repeated(batches));
      done_ = arrow::ExportAsyncRecordBatchReader(batches[0]->schema(), generator, allocation(cuda), handler);
    };
    auto call = [](void *context, ArrowAsyncDeviceStreamHandler *handler) {
      (*static_cast<decltype(produce) *>(context))(handler);
    };
    return said(it, ours_take_async(it, cuda, kStreamed, call, &produce));
  }

 private:
  mutable arrow::Future<> done_;
};

const std::vector<std::unique_ptr<Transport>> &transports() {
  static const auto all = [] {
    std::vector<std::unique_ptr<Transport>> all;
    all.push_back(std::make_unique<Arrays>());
    all.push_back(std::make_unique<DeviceArrays>(false));
    all.push_back(std::make_unique<DeviceArrays>(true));
    all.push_back(std::make_unique<Streams>());
    all.push_back(std::make_unique<DeviceStreams>(false));
    all.push_back(std::make_unique<DeviceStreams>(true));
    all.push_back(std::make_unique<Async>(false));
    all.push_back(std::make_unique<Async>(true));
    return all;
  }();
  return all;
}

Result<std::shared_ptr<RecordBatch>> read(const std::string &name) {
  const std::string path = corpus + "/" + name + ".arrow";
  if (!std::ifstream(path)) {
    std::unique_ptr<ours_case, void (*)(ours_case *)> it(ours_open(corpus.c_str(), name.c_str(), "plain"), ours_close);
    ARROW_ASSIGN_OR_RAISE(auto batches, Arrays().give(it.get(), "plain"));
    return batches[0];
  }
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path));
  ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(file));
  return reader->Next();
}

bool holds_memory(const arrow::ArrayData &data) {
  for (auto &buffer : data.buffers)
    if (buffer != nullptr && !buffer->is_cpu()) return true;
  for (auto &child : data.child_data)
    if (holds_memory(*child)) return true;
  return data.dictionary != nullptr && holds_memory(*data.dictionary);
}

/* Whether the batch still refers to a device buffer of the imported array, so that Arrow must not release the array. */
bool holds_memory(const RecordBatch &batch) {
  for (auto &column : batch.column_data())
    if (holds_memory(*column)) return true;
  return false;
}

/* Requires a batch that passes full validation and has the same types, metadata and values as the original. */
Status same(const std::shared_ptr<RecordBatch> &given, const RecordBatch &original) {
  auto batch = given;
  if (batch->GetSyncEvent() != nullptr && !holds_memory(*batch) && ours_outstanding() == 0)
    return wrong("it has released the array, whose event it still holds");
  if (batch->GetSyncEvent() != nullptr) ARROW_RETURN_NOT_OK(batch->GetSyncEvent()->Wait());
  if (batch->device_type() != arrow::DeviceAllocationType::kCPU) {
    ARROW_ASSIGN_OR_RAISE(batch, batch->CopyTo(arrow::default_cpu_memory_manager()));
  }
  ARROW_RETURN_NOT_OK(batch->ValidateFull());
  if (!batch->schema()->Equals(*original.schema(), true))
    return wrong("the schema is " + batch->schema()->ToString(true) + ", not " + original.schema()->ToString(true));
  if (!batch->Equals(original, true, arrow::EqualOptions::Defaults().nans_equal(true)))
    return wrong("the values are " + batch->ToString() + ", not " + original.ToString());
  return Status::OK();
}

/* An exchange that would end this process, so that it is not tried. */
Status crashes(const std::string &how) { return Status::Cancelled(how); }

void report(const std::string &name, const char *direction, const Transport &by, const std::string &layout,
            const Status &status) {
  const char *result = status.ok()               ? "ok"
                       : status.IsUnknownError() ? "wrong"
                       : status.IsCancelled()    ? "crashes"
                                                 : "refused";
  std::string how = status.ok() ? "" : status.message();
  for (char &character : how)
    if (character == '\n' || character == '\t') character = ' ';
  std::cout << name << '\t' << direction << '\t' << by.name << '\t' << (by.cuda ? "cuda" : "host") << '\t' << layout
            << '\t' << result << '\t' << how << '\n';
}

bool has_uncounted_nulls(const arrow::ArrayData &data) {
  if (data.null_count == arrow::kUnknownNullCount && !data.buffers.empty() && data.buffers[0] != nullptr) return true;
  for (auto &child : data.child_data)
    if (has_uncounted_nulls(*child)) return true;
  return data.dictionary != nullptr && has_uncounted_nulls(*data.dictionary);
}

/* Faults of Arrow that would spoil the rest of this process. Child processes look for them; they fork before this process
   uses the driver or starts a thread. */
struct Spoils {
  /* Arrow crashes when it exports a batch in GPU memory with an unknown null count. */
  bool dies_of_uncounted_nulls;
  /* Arrow never releases an asynchronous stream with a batch that it refuses. */
  bool keeps_refused_streams;

  static int in_another_process(const std::function<int()> &run) {
    const pid_t child = fork();
    if (child == 0) _exit(run());
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }

  static Spoils find() {
    const int exported = in_another_process([] {
      auto it = ours_open(corpus.c_str(), "bool", "inner");
      auto given = DeviceArrays(true).give(it, "inner");
      return given.ok() && DeviceArrays(true).take(it, *given, 0, -1).ok() ? 0 : 1;
    });
    const int kept = in_another_process([] {
      auto it = ours_open(corpus.c_str(), "bool", "root");
      return !Async(false).give(it, "root").ok() && ours_outstanding() != 0 ? 1 : 0;
    });
    return {WIFSIGNALED(exported), WIFEXITED(kept) && WEXITSTATUS(kept) == 1};
  }
};

Result<Batches> give(const Transport &by, ours_case *it, const std::string &layout, const Spoils &spoils) {
  if (by.name == "async" && layout == "root" && spoils.keeps_refused_streams)
    return Status::Invalid("non-zero offset; what it was sent is never released");
  return by.give(it, layout);
}

Status hand_back(const Transport &by, ours_case *it, const Batches &batches, const Spoils &spoils) {
  for (auto &batch : batches)
    for (auto &column : batch->column_data())
      if (by.cuda && spoils.dies_of_uncounted_nulls && has_uncounted_nulls(*column))
        return crashes("SIGSEGV: it counts nulls in device memory on the host");
  return by.take(it, batches, 0, -1);
}

/* A copy of the batch in GPU memory, with an event that follows the copy. */
Result<std::shared_ptr<RecordBatch>> on_gpu(const RecordBatch &original) {
  for (auto &column : original.columns()) column->null_count();
  ARROW_ASSIGN_OR_RAISE(auto copy, original.CopyTo(Gpu::manager()));
  ARROW_ASSIGN_OR_RAISE(auto event, cuda_memory::Event::Now());
  return RecordBatch::Make(copy->schema(), copy->num_rows(), copy->column_data(), allocation(true), event);
}

Status run(const std::string &name, const std::vector<std::string> &layouts, const Spoils &spoils) {
  ARROW_ASSIGN_OR_RAISE(auto original, read(name));
  for (auto &layout : layouts) {
    std::unique_ptr<ours_case, void (*)(ours_case *)> it(ours_open(corpus.c_str(), name.c_str(), layout.c_str()),
                                                         ours_close);
    for (auto &transport : transports()) {
      auto given = give(*transport, it.get(), layout, spoils);
      Status status = given.status();
      for (size_t i = 0; status.ok() && i < given->size(); i++) status = same((*given)[i], *original);
      if (status.ok() && given->size() != (transport->one ? 1 : kStreamed))
        status = wrong("so many batches: " + std::to_string(given->size()));
      report(name, "to peer", *transport, layout, status);
      if (given.ok()) report(name, "from peer", *transport, layout, hand_back(*transport, it.get(), *given, spoils));
    }
  }
  std::unique_ptr<ours_case, void (*)(ours_case *)> it(ours_open(corpus.c_str(), name.c_str(), "plain"), ours_close);
  for (auto &transport : transports()) {
    auto take = [&](int64_t first, int64_t count) -> Status {
      auto own = count < 0 ? original : original->Slice(first, count);
      if (transport->cuda) {
        ARROW_ASSIGN_OR_RAISE(own, on_gpu(*own));
      }
      return transport->take(it.get(), {own}, first, count);
    };
    report(name, "from peer", *transport, "its own", take(0, -1));
    const int64_t rows = original->num_rows();
    if (transport->one && rows > 2) report(name, "from peer", *transport, "its own slice", take(1, rows - 2));
  }
  return Status::OK();
}

}  // namespace

int main(int, char **arguments) {
  corpus = arguments[1];
  std::ifstream list(corpus + "/layouts");
  std::vector<std::pair<std::string, std::vector<std::string>>> cases;
  for (std::string name, layout; list >> name >> layout;) {
    if (cases.empty() || cases.back().first != name) cases.push_back({name, {}});
    cases.back().second.push_back(layout);
  }
  const Spoils spoils = Spoils::find();
  for (auto &[name, layouts] : cases) {
    Status status = run(name, layouts, spoils);
    if (!status.ok()) {
      std::cerr << name << ": " << status.ToString() << "\n";
      return 2;
    }
  }
  std::cout << "outstanding\t" << ours_outstanding() << "\n";
}
