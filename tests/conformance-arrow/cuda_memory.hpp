/*
 * CUDA memory for Arrow C++, added as an application adds a device of its own, because the wheels of pyarrow come without
 * Arrow's CUDA library. All calls go to `libcuda.so.1`, be it a real or the simulated driver.
 */
#ifndef DEVX_CONFORMANCE_CUDA_MEMORY_HPP_
#define DEVX_CONFORMANCE_CUDA_MEMORY_HPP_

#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/device.h>
#include <dlfcn.h>

#include <memory>
#include <string>

namespace cuda_memory {

using arrow::Buffer;
using arrow::Device;
using arrow::MemoryManager;
using arrow::Result;
using arrow::Status;

/* The driver with the functions that are used here. */
struct Driver {
  using Event = void *;
  using Address = unsigned long long;
  int (*init)(unsigned);
  int (*retain)(void **context, int device);
  int (*set_current)(void *context);
  int (*synchronize)();
  int (*allocate)(Address *out, size_t bytes);
  int (*free)(Address);
  int (*to_host)(void *to, Address from, size_t bytes);
  int (*to_device)(Address to, const void *from, size_t bytes);
  int (*event_create)(Event *out, unsigned flags);
  int (*event_record)(Event, void *stream);
  int (*event_synchronize)(Event);
  int (*event_destroy)(Event);
  void *context = nullptr;

  static Driver &get() {
    static Driver driver;
    return driver;
  }

  static Status check(int code, const char *call) {
    return code == 0 ? Status::OK() : Status::IOError(call, " says ", code);
  }

 private:
  Driver() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return;
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    };
    find(init, "cuInit");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set_current, "cuCtxSetCurrent");
    find(synchronize, "cuCtxSynchronize");
    find(allocate, "cuMemAlloc_v2");
    find(free, "cuMemFree_v2");
    find(to_host, "cuMemcpyDtoH_v2");
    find(to_device, "cuMemcpyHtoD_v2");
    find(event_create, "cuEventCreate");
    find(event_record, "cuEventRecord");
    find(event_synchronize, "cuEventSynchronize");
    find(event_destroy, "cuEventDestroy_v2");
    if (init(0) != 0 || retain(&context, 0) != 0) context = nullptr;
  }
};

#define CUDA(function, ...)                                                                      \
  do {                                                                                           \
    auto &driver_ = cuda_memory::Driver::get();                                                  \
    ARROW_RETURN_NOT_OK(driver_.check(driver_.set_current(driver_.context), "cuCtxSetCurrent")); \
    ARROW_RETURN_NOT_OK(driver_.check(driver_.function(__VA_ARGS__), #function));                \
  } while (0)

class Event : public Device::SyncEvent {
 public:
  Event(void *raw, release_fn_t release) : SyncEvent(raw, release ? release : [](void *) {}) {}

  Status Wait() override {
    if (get_raw() != nullptr) CUDA(event_synchronize, *static_cast<Driver::Event *>(get_raw()));
    return Status::OK();
  }

  Status Record(const Device::Stream &) override { return Status::NotImplemented("no streams here"); }

  /* An event that this call records on the legacy default stream. */
  static Result<std::shared_ptr<Device::SyncEvent>> Now() {
    auto raw = std::make_unique<Driver::Event>();
    CUDA(event_create, raw.get(), 2 /* no timing */);
    CUDA(event_record, *raw, nullptr);
    return std::make_shared<Event>(raw.release(), [](void *event) {
      std::unique_ptr<Driver::Event> raw(static_cast<Driver::Event *>(event));
      auto &driver = Driver::get();
      driver.set_current(driver.context);
      driver.event_destroy(*raw);
    });
  }
};

class Manager : public MemoryManager {
 public:
  explicit Manager(const std::shared_ptr<Device> &device) : MemoryManager(device) {}

  Result<std::unique_ptr<Buffer>> AllocateBuffer(int64_t size) override;

  Result<std::shared_ptr<arrow::io::RandomAccessFile>> GetBufferReader(std::shared_ptr<Buffer>) override {
    return Status::NotImplemented("device memory is not a file");
  }
  Result<std::shared_ptr<arrow::io::OutputStream>> GetBufferWriter(std::shared_ptr<Buffer>) override {
    return Status::NotImplemented("device memory is not a file");
  }

  Result<std::shared_ptr<Device::SyncEvent>> WrapDeviceSyncEvent(void *raw,
                                                                 Device::SyncEvent::release_fn_t release) override {
    return std::make_shared<Event>(raw, release);
  }

 protected:
  Result<std::shared_ptr<Buffer>> CopyBufferTo(const std::shared_ptr<Buffer> &from,
                                               const std::shared_ptr<MemoryManager> &to) override {
    return CopyNonOwnedTo(*from, to);
  }

  Result<std::unique_ptr<Buffer>> CopyNonOwnedTo(const Buffer &from,
                                                 const std::shared_ptr<MemoryManager> &to) override {
    if (!to->is_cpu()) return nullptr;
    ARROW_ASSIGN_OR_RAISE(auto out, to->AllocateBuffer(from.size()));
    // Arrow reads offsets while it imports an array, before it waits for the array's event.
    CUDA(synchronize);
    if (from.size() > 0) CUDA(to_host, out->mutable_data(), from.address(), from.size());
    return out;
  }

  Result<std::shared_ptr<Buffer>> CopyBufferFrom(const std::shared_ptr<Buffer> &from,
                                                 const std::shared_ptr<MemoryManager> &manager) override {
    return CopyNonOwnedFrom(*from, manager);
  }

  Result<std::unique_ptr<Buffer>> CopyNonOwnedFrom(const Buffer &from,
                                                   const std::shared_ptr<MemoryManager> &manager) override {
    if (!manager->is_cpu()) return nullptr;
    ARROW_ASSIGN_OR_RAISE(auto out, AllocateBuffer(from.size()));
    if (from.size() > 0) CUDA(to_device, out->address(), from.data(), from.size());
    return out;
  }
};

class Gpu : public Device {
 public:
  static std::shared_ptr<MemoryManager> manager() {
    static auto device = std::make_shared<Gpu>();
    static auto manager = std::make_shared<Manager>(device);
    return manager;
  }

  /* The `DeviceMemoryMapper` for imports: Arrow itself knows no CUDA device here. */
  static Result<std::shared_ptr<MemoryManager>> mapper(ArrowDeviceType type, int64_t id) {
    if (type == ARROW_DEVICE_CUDA && id == 0) return manager();
    return arrow::DefaultDeviceMemoryMapper(type, id);
  }

  const char *type_name() const override { return "conformance::Gpu"; }
  std::string ToString() const override { return "Gpu(0)"; }
  bool Equals(const Device &other) const override { return type_name() == std::string(other.type_name()); }
  int64_t device_id() const override { return 0; }
  std::shared_ptr<MemoryManager> default_memory_manager() override { return manager(); }
  arrow::DeviceAllocationType device_type() const override { return arrow::DeviceAllocationType::kCUDA; }
};

class Memory : public Buffer {
 public:
  Memory(Driver::Address address, int64_t size, std::shared_ptr<MemoryManager> manager)
      : Buffer(address, size, std::move(manager)) {}
  ~Memory() override {
    auto &driver = Driver::get();
    driver.set_current(driver.context);
    driver.free(address());
  }
};

inline Result<std::unique_ptr<Buffer>> Manager::AllocateBuffer(int64_t size) {
  Driver::Address address;
  CUDA(allocate, &address, size > 0 ? size : 1);
  return std::make_unique<Memory>(address, size, shared_from_this());
}

}  // namespace cuda_memory

#endif
