# Where data is, and which devices exist.

"Host memory. DLPack numbers it 0; Arrow's -1 means the same and is accepted on import."
const CPU = DLDevice(kDLCPU, 0)

"Host memory that CUDA has pinned: every device copies to and from it without staging."
const PINNED = DLDevice(kDLCUDAHost, 0)

"Memory of CUDA that host and devices can use (\"managed\", \"unified\")."
const MANAGED = DLDevice(kDLCUDAManaged, 0)

"""
    cuda(id=0) -> DLDevice

Returns the CUDA device with this number. The driver is not called; see [`device_count`](@ref).
"""
cuda(id::Integer=0) = DLDevice(kDLCUDA, number(Int32, id, "id"))

"""
    device(x) -> DLDevice

Returns the device that the memory of a [`Tensor`](@ref) or [`Batch`](@ref) is on, or that a [`DeviceStream`](@ref)
belongs to: `device_type` is a number of DLPack and Arrow (1 is the CPU, 2 is CUDA), `device_id` is the device's number
among those of that type. The set of types is open.
"""
function device end

"""
    device_count(device_type=DevExchange.kDLCUDA) -> Int

Returns how many devices of a type there are. Throws `DEVX_DEVICE` with the reason if this machine has no driver or no
device of that type, and for types other than the CPU and CUDA.
"""
function device_count(device_type::Integer=kDLCUDA)
    count = Ref{Int32}(0)
    @checked devx_device_count(device_type::Int32, count::Ptr{Int32})
    return Int(count[])
end

"""
    DeviceInfo

The result of [`device_info`](@ref): `name`; `uuid`, the same in every process; `free_bytes` (at the time of the call)
and `total_bytes`; `driver_version` as CUDA writes it (12040 is 12.4). The CPU is called "host memory"; its numbers of
bytes are -1, and the rest is 0.
"""
struct DeviceInfo
    name::String
    uuid::Base.UUID
    free_bytes::Int
    total_bytes::Int
    driver_version::Int
end

"""
    device_info(device::DLDevice) -> DeviceInfo

Returns the name of a device and how much memory it has. Throws `DEVX_DEVICE` for a device that does not exist, and for
types other than the CPU and CUDA; `DEVX_DRIVER`.
"""
function device_info(device::DLDevice)
    record = Ref{DevxDeviceInfo}()
    @checked devx_device_get_info(device::DLDevice, record::Ptr{DevxDeviceInfo})
    GC.@preserve record begin
        p = Base.unsafe_convert(Ptr{DevxDeviceInfo}, record)
        field(name, T) = unsafe_load(Ptr{T}(field_address(p, name)))
        uuid = foldl((bits, byte) -> bits << 8 | byte, field(:uuid, NTuple{16,UInt8}); init=UInt128(0))
        return DeviceInfo(unsafe_string(field_address(p, :name)), Base.UUID(uuid), field(:free_bytes, Int64),
            field(:total_bytes, Int64), field(:driver_version, Int32))
    end
end

# Whether Julia can read the memory in place once it is ready: host memory, pinned or not, and managed memory.
is_host(d::DLDevice) = d.device_type in (kDLCPU, kDLCUDAHost, kDLCUDAManaged)
is_cuda(d::DLDevice) = d.device_type in (kDLCUDA, kDLCUDAHost, kDLCUDAManaged)

# The error for memory that Julia does not touch: it is not host memory, or work on a stream may still be writing it.
@noinline function not_readable(d::DLDevice)
    is_host(d) && return DevExchangeError(DEVX_NOT_READY, "the data on $(device_name(d)) may be queued on " *
        "a stream: wait for it with `synchronize(data, stream)`, or copy it to the host with `copy_to`")
    return DevExchangeError(DEVX_DEVICE, "the memory is on $(device_name(d)): its " *
        "elements cannot be read here; copy them to the host with `copy_to` or `read!`")
end

# Like `not_readable`, but for a copy of memory that is not copied on its own; `instead` says what to copy.
@noinline not_copied(d::DLDevice, instead) =
    DevExchangeError(is_host(d) ? DEVX_NOT_READY : DEVX_DEVICE, "the memory is on $(device_name(d)): $instead")

"""
    device_name(d::DLDevice) -> String

Returns the name of a device, for example `"cuda:0"`; for a type without a name, its number.
"""
device_name(d::DLDevice) = named() do name, room
    @checked devx_device_name(d::DLDevice, name::Ptr{UInt8}, room::Csize_t)
end
