# The structs that cross the boundary, with the fields that they have in C: those of the standards (dlpack/dlpack.h,
# arrow/c/*.h) and the records of the C API (devexchange/types.h). Function pointers are `Ptr{Cvoid}`. The sets of codes
# are open, so they are plain integers: a foreign value that has no name here stays a number.

# ---- DLPack 1.3 ----

const DLPACK_MAJOR_VERSION = 1
const DLPACK_MINOR_VERSION = 3

const DLPACK_FLAG_BITMASK_READ_ONLY = UInt64(1) << 0
const DLPACK_FLAG_BITMASK_IS_COPIED = UInt64(1) << 1
const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED = UInt64(1) << 2

const kDLCPU = Int32(1)
const kDLCUDA = Int32(2)
const kDLCUDAHost = Int32(3)
const kDLOpenCL = Int32(4)
const kDLVulkan = Int32(7)
const kDLMetal = Int32(8)
const kDLVPI = Int32(9)
const kDLROCM = Int32(10)
const kDLROCMHost = Int32(11)
const kDLExtDev = Int32(12)
const kDLCUDAManaged = Int32(13)
const kDLOneAPI = Int32(14)
const kDLWebGPU = Int32(15)
const kDLHexagon = Int32(16)
const kDLMAIA = Int32(17)
const kDLTrn = Int32(18)

const kDLInt = 0x00
const kDLUInt = 0x01
const kDLFloat = 0x02
const kDLOpaqueHandle = 0x03
const kDLBfloat = 0x04
const kDLComplex = 0x05
const kDLBool = 0x06
const kDLFloat8_e3m4 = 0x07
const kDLFloat8_e4m3 = 0x08
const kDLFloat8_e4m3b11fnuz = 0x09
const kDLFloat8_e4m3fn = 0x0a
const kDLFloat8_e4m3fnuz = 0x0b
const kDLFloat8_e5m2 = 0x0c
const kDLFloat8_e5m2fnuz = 0x0d
const kDLFloat8_e8m0fnu = 0x0e
const kDLFloat6_e2m3fn = 0x0f
const kDLFloat6_e3m2fn = 0x10
const kDLFloat4_e2m1fn = 0x11

const DLDeviceType = Int32

"Version of a struct of DLPack. If a consumer does not know the major version, it reads nothing else."
struct DLPackVersion
    major::UInt32
    minor::UInt32
end

"A device: its type (a number, [`kDLCPU`](@ref DevExchange.kDLCPU), ...) and its number among devices of that type."
struct DLDevice
    device_type::DLDeviceType
    device_id::Int32
end

"The type of an element: code, bits of one lane, lanes (1 unless the element is a vector)."
struct DLDataType
    code::UInt8
    bits::UInt8
    lanes::UInt16
end

"A view of a tensor; it owns nothing. Strides are counted in elements, `byte_offset` in bytes."
struct DLTensor
    data::Ptr{Cvoid}
    device::DLDevice
    ndim::Int32
    dtype::DLDataType
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    byte_offset::UInt64
end

"A tensor and its owner, in the struct of DLPack before 1.0, which has no version and no flags."
struct DLManagedTensor
    dl_tensor::DLTensor
    manager_ctx::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
end

"A tensor and its owner. The holder calls `deleter` once ([`dlpack_release`](@ref)) or imports the tensor."
struct DLManagedTensorVersioned
    version::DLPackVersion
    manager_ctx::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
    flags::UInt64
    dl_tensor::DLTensor
end

const DLPackManagedTensorAllocator = Ptr{Cvoid}
const DLPackManagedTensorFromPyObjectNoSync = Ptr{Cvoid}
const DLPackDLTensorFromPyObjectNoSync = Ptr{Cvoid}
const DLPackCurrentWorkStream = Ptr{Cvoid}
const DLPackManagedTensorToPyObjectNoSync = Ptr{Cvoid}

struct DLPackExchangeAPIHeader
    version::DLPackVersion
    prev_api::Ptr{DLPackExchangeAPIHeader}
end

struct DLPackExchangeAPI
    header::DLPackExchangeAPIHeader
    managed_tensor_allocator::DLPackManagedTensorAllocator
    managed_tensor_from_py_object_no_sync::DLPackManagedTensorFromPyObjectNoSync
    managed_tensor_to_py_object_no_sync::DLPackManagedTensorToPyObjectNoSync
    dltensor_from_py_object_no_sync::DLPackDLTensorFromPyObjectNoSync
    current_work_stream::DLPackCurrentWorkStream
end

# ---- Arrow C data, device, stream and async interfaces ----

const ARROW_FLAG_DICTIONARY_ORDERED = Int64(1)
const ARROW_FLAG_NULLABLE = Int64(2)
const ARROW_FLAG_MAP_KEYS_SORTED = Int64(4)

const ArrowDeviceType = Int32
const ARROW_DEVICE_CPU = Int32(1)
const ARROW_DEVICE_CUDA = Int32(2)
const ARROW_DEVICE_CUDA_HOST = Int32(3)
const ARROW_DEVICE_OPENCL = Int32(4)
const ARROW_DEVICE_VULKAN = Int32(7)
const ARROW_DEVICE_METAL = Int32(8)
const ARROW_DEVICE_VPI = Int32(9)
const ARROW_DEVICE_ROCM = Int32(10)
const ARROW_DEVICE_ROCM_HOST = Int32(11)
const ARROW_DEVICE_EXT_DEV = Int32(12)
const ARROW_DEVICE_CUDA_MANAGED = Int32(13)
const ARROW_DEVICE_ONEAPI = Int32(14)
const ARROW_DEVICE_WEBGPU = Int32(15)
const ARROW_DEVICE_HEXAGON = Int32(16)

"""
    ArrowSchema()

Type, name and metadata of an array (Arrow C data interface). Without arguments, a released struct of zeros: room for a
producer to write to, as `Ref(ArrowSchema())`. The holder calls [`arrow_release`](@ref) once or imports it.
"""
struct ArrowSchema
    format::Ptr{UInt8}
    name::Ptr{UInt8}
    metadata::Ptr{UInt8}
    flags::Int64
    n_children::Int64
    children::Ptr{Ptr{ArrowSchema}}
    dictionary::Ptr{ArrowSchema}
    release::Ptr{Cvoid}
    private_data::Ptr{Cvoid}
end

"""
    ArrowArray()

The data of an array (Arrow C data interface). Without arguments, a released struct of zeros: room for a producer to
write to, as `Ref(ArrowArray())`. The holder calls [`arrow_release`](@ref) once or imports it.
"""
struct ArrowArray
    length::Int64
    null_count::Int64
    offset::Int64
    n_buffers::Int64
    n_children::Int64
    buffers::Ptr{Ptr{Cvoid}}
    children::Ptr{Ptr{ArrowArray}}
    dictionary::Ptr{ArrowArray}
    release::Ptr{Cvoid}
    private_data::Ptr{Cvoid}
end

"""
    ArrowDeviceArray()

An array with the device that its buffers are on, and the event to wait for before they are touched (Arrow C device data
interface). Without arguments, a released struct of zeros. It is released and moved through `array`.
"""
struct ArrowDeviceArray
    array::ArrowArray
    device_id::Int64
    device_type::ArrowDeviceType
    sync_event::Ptr{Cvoid}
    reserved::NTuple{3,Int64}
end

ArrowSchema() = ArrowSchema(C_NULL, C_NULL, C_NULL, 0, 0, C_NULL, C_NULL, C_NULL, C_NULL)
ArrowArray() = ArrowArray(0, 0, 0, 0, 0, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL)
ArrowDeviceArray() = ArrowDeviceArray(ArrowArray(), 0, 0, C_NULL, (0, 0, 0))

"""
    ArrowArrayStream()

A producer of arrays in host memory that all have one schema (Arrow C stream interface). Without arguments, a released
struct of zeros: room for a producer to write to, as `Ref(ArrowArrayStream())`. The holder calls [`arrow_release`](@ref)
once or imports it ([`import_arrow`](@ref)).
"""
struct ArrowArrayStream
    get_schema::Ptr{Cvoid}
    get_next::Ptr{Cvoid}
    get_last_error::Ptr{Cvoid}
    release::Ptr{Cvoid}
    private_data::Ptr{Cvoid}
end

"""
    ArrowDeviceArrayStream()

Like [`ArrowArrayStream`](@ref), but for arrays on devices of one type (Arrow C device data interface, "Device Stream
Interface").
"""
struct ArrowDeviceArrayStream
    device_type::ArrowDeviceType
    get_schema::Ptr{Cvoid}
    get_next::Ptr{Cvoid}
    get_last_error::Ptr{Cvoid}
    release::Ptr{Cvoid}
    private_data::Ptr{Cvoid}
end

ArrowArrayStream() = ArrowArrayStream(C_NULL, C_NULL, C_NULL, C_NULL, C_NULL)
ArrowDeviceArrayStream() = ArrowDeviceArrayStream(0, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL)

struct ArrowAsyncTask
    extract_data::Ptr{Cvoid}
    private_data::Ptr{Cvoid}
end

struct ArrowAsyncProducer
    device_type::ArrowDeviceType
    request::Ptr{Cvoid}
    cancel::Ptr{Cvoid}
    additional_metadata::Ptr{UInt8}
    private_data::Ptr{Cvoid}
end

"""
The consumer of an asynchronous stream as its producer sees it (Arrow C device data interface, "Async Device Stream
Interface"). [`AsyncReader`](@ref) provides one, [`AsyncWriter`](@ref) takes one.
"""
struct ArrowAsyncDeviceStreamHandler
    on_schema::Ptr{Cvoid}
    on_next_task::Ptr{Cvoid}
    on_error::Ptr{Cvoid}
    release::Ptr{Cvoid}
    producer::Ptr{ArrowAsyncProducer}
    private_data::Ptr{Cvoid}
end

# ---- records of the C API ----

const DevxStatus = Int32

const DEVX_OK = Int32(0)
const DEVX_NULL_ARGUMENT = Int32(1)
const DEVX_INVALID_ARGUMENT = Int32(2)
const DEVX_RELEASED = Int32(3)
const DEVX_CLOSED = Int32(4)
const DEVX_INVALID_FORMAT = Int32(5)
const DEVX_INVALID_DTYPE = Int32(6)
const DEVX_INVALID_SHAPE = Int32(7)
const DEVX_INVALID_LENGTH = Int32(8)
const DEVX_INVALID_NULL_COUNT = Int32(9)
const DEVX_INVALID_BUFFERS = Int32(10)
const DEVX_INVALID_CHILDREN = Int32(11)
const DEVX_INVALID_METADATA = Int32(12)
const DEVX_MISMATCH = Int32(13)
const DEVX_TOO_DEEP = Int32(14)
const DEVX_VERSION = Int32(15)
const DEVX_DEVICE = Int32(16)
const DEVX_UNSUPPORTED = Int32(17)
const DEVX_COPY_REQUIRED = Int32(18)
const DEVX_IMPOSSIBLE = Int32(19)
const DEVX_READ_ONLY = Int32(20)
const DEVX_OUT_OF_MEMORY = Int32(21)
const DEVX_INVALID_TEXT = Int32(22)
const DEVX_OUT_OF_RANGE = Int32(23)
const DEVX_INVALID_STREAM = Int32(24)
const DEVX_NOT_READY = Int32(25)
const DEVX_DRIVER = Int32(26)
const DEVX_CALLBACK = Int32(27)
const DEVX_BUSY = Int32(28)
const DEVX_SYSTEM = Int32(29)
const DEVX_PANIC = Int32(255)

const DEVX_ERROR_MESSAGE_BYTES = 496

const DEVX_COPY_NEVER = Int32(0)
const DEVX_COPY_IF_NEEDED = Int32(1)
const DEVX_COPY_ALWAYS = Int32(2)

const DEVX_FIELD_ORDERED = ARROW_FLAG_DICTIONARY_ORDERED
const DEVX_FIELD_NULLABLE = ARROW_FLAG_NULLABLE
const DEVX_FIELD_KEYS_SORTED = ARROW_FLAG_MAP_KEYS_SORTED

const DEVX_PLAN_VIEW = Int32(0)
const DEVX_PLAN_COPY = Int32(1)
const DEVX_PLAN_IMPOSSIBLE = Int32(2)
const DEVX_PLAN_REASON_BYTES = 240

# Only ever used behind a reference: a tuple of this length should not be loaded.
struct DevxError
    status::DevxStatus
    driver_code::Int32
    message::NTuple{DEVX_ERROR_MESSAGE_BYTES,UInt8}
end

struct DevxOwner
    context::Ptr{Cvoid}
    release::Ptr{Cvoid}
end

struct DevxWake
    context::Ptr{Cvoid}
    wake::Ptr{Cvoid}
    release::Ptr{Cvoid}
end

struct DevxBatchSource
    context::Ptr{Cvoid}
    next::Ptr{Cvoid}
    release::Ptr{Cvoid}
end

struct DevxMemoryRequest
    device_type::Int32
    device_id::Int32
    bytes::Int64
    stream::Int64
    host_flags::UInt32
    reserved::UInt32
end

struct DevxMemory
    address::Ptr{Cvoid}
    device_type::Int32
    device_id::Int32
    owner::DevxOwner
end

struct DevxMemoryInfo
    free_bytes::Int64
    total_bytes::Int64
end

struct DevxIpcHandle
    handle::NTuple{64,UInt8}
    offset::Int64
    bytes::Int64
    device_id::Int32
    reserved::UInt32
end

struct DevxManagerStatistics
    bytes::Int64
    peak_bytes::Int64
    allocations::Int64
    total_allocations::Int64
    total_bytes::Int64
    refused::Int64
end

struct DevxManagerTable
    version::Int32
    reserved::Int32
    context::Ptr{Cvoid}
    initialize::Ptr{Cvoid}
    allocate::Ptr{Cvoid}
    pin::Ptr{Cvoid}
    memory_info::Ptr{Cvoid}
    ipc_handle::Ptr{Cvoid}
    reset::Ptr{Cvoid}
    trim::Ptr{Cvoid}
    defer_cleanup::Ptr{Cvoid}
    release::Ptr{Cvoid}
end

const DEVX_MANAGER_VERSION = Int32(1)
const DEVX_IPC_TIMEOUT_NS = 10_000_000_000
const DEVX_HOST_PORTABLE = UInt32(1)
const DEVX_HOST_MAPPED = UInt32(2)
const DEVX_HOST_WRITE_COMBINED = UInt32(4)

struct DevxDlpackRequest
    max_major::UInt32
    max_minor::UInt32
    stream::Int64
    copy::Int32
end

struct DevxField
    format::Ptr{UInt8}
    name::Ptr{UInt8}
    metadata::Ptr{UInt8}
    flags::Int64
    n_children::Int64
    has_dictionary::Int64
end

struct DevxFieldInfo
    format::Ptr{UInt8}
    name::Ptr{UInt8}
    metadata::Ptr{UInt8}
    flags::Int64
    n_children::Int64
    first_child::Int64
    dictionary::Int64
end

struct DevxNode
    length::Int64
    null_count::Int64
    offset::Int64
    buffers::Ptr{Ptr{Cvoid}}
    n_buffers::Int64
end

struct DevxColumn
    format::Ptr{UInt8}
    name::Ptr{UInt8}
    metadata::Ptr{UInt8}
    flags::Int64
    length::Int64
    null_count::Int64
    offset::Int64
    buffers::Ptr{Ptr{Cvoid}}
    n_buffers::Int64
    n_children::Int64
    has_dictionary::Int64
    node::Int64
end

struct DevxBatchInfo
    length::Int64
    n_columns::Int64
    n_nodes::Int64
    device_type::Int32
    device_id::Int32
end

const DEVX_DEVICE_NAME_BYTES = 128

# Like `DevxError`, only used behind a reference.
struct DevxDeviceInfo
    name::NTuple{DEVX_DEVICE_NAME_BYTES,UInt8}
    uuid::NTuple{16,UInt8}
    free_bytes::Int64
    total_bytes::Int64
    driver_version::Int32
    reserved::Int32
end

# Like `DevxError`, only used behind a reference.
struct DevxPlan
    kind::Int32
    reserved::Int32
    copy_bytes::Int64
    reason::NTuple{DEVX_PLAN_REASON_BYTES,UInt8}
end

struct DevxCount
    total::Int64
    live::Int64
end

struct DevxLedger
    tensor_exports::DevxCount
    tensor_imports::DevxCount
    batch_exports::DevxCount
    batch_imports::DevxCount
    schema_exports::DevxCount
    schema_imports::DevxCount
    owners::DevxCount
    stream_exports::DevxCount
    stream_imports::DevxCount
end

const DEVX_CUDA_ARRAY_VERSION = 3
const DEVX_CUDA_ARRAY_NO_STREAM = -1
const DEVX_NO_STREAM_LEGACY_DEFAULT = Int32(0)
const DEVX_NO_STREAM_HOST_SYNC = Int32(1)
const DEVX_NO_STREAM_TRUST = Int32(2)

"""
    DevxCudaArray()

An array in memory that a CUDA device can access (CUDA Array Interface, versions 0 to 3), with strides in bytes. Without
arguments, a released struct of zeros: room for a producer to write to, as `Ref(DevxCudaArray())`. The holder calls
[`cuda_array_release`](@ref) once or imports it ([`import_cuda_array`](@ref)).
"""
struct DevxCudaArray
    version::Int32
    read_only::Int32
    data::Ptr{Cvoid}
    ndim::Int64
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    typestr::Ptr{UInt8}
    descr::Ptr{UInt8}
    mask::Ptr{DevxCudaArray}
    stream::Int64
    release::Ptr{Cvoid}
    private_data::Ptr{Cvoid}
end

DevxCudaArray() = DevxCudaArray(0, 0, C_NULL, 0, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, 0, C_NULL, C_NULL)

struct DevxCudaArrayRequest
    max_version::Int32
    no_stream::Int32
    stream::Int64
end

# The address of a field, for records that are read through a pointer.
field_address(p::Ptr{R}, field::Symbol) where {R} = Ptr{UInt8}(p) + fieldoffset(R, Base.fieldindex(R, field))
