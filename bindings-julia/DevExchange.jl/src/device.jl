# Where data is, and which devices there are.

"Host memory. DLPack numbers it 0; Arrow's -1 means the same and is accepted on import."
const CPU = DLDevice(kDLCPU, 0)

"Host memory that CUDA has pinned: every device copies from and to it without staging."
const PINNED = DLDevice(kDLCUDAHost, 0)

"Memory of CUDA that host and devices can use (\"managed\", \"unified\")."
const MANAGED = DLDevice(kDLCUDAManaged, 0)

"""
    cuda(id=0) -> DLDevice

The CUDA device of this number. Nothing is asked of the driver; see [`device_count`](@ref).
"""
cuda(id::Integer=0) = DLDevice(kDLCUDA, number(Int32, id, "id"))

"""
    device(x) -> DLDevice

The device that the memory of a [`Tensor`](@ref) or [`Batch`](@ref) is on, or that a [`DeviceStream`](@ref) belongs to:
`device_type` is a number of DLPack and Arrow (1 is the CPU, 2 CUDA), `device_id` says which one of that type. The set
of types is open.
"""
function device end

"""
    device_count(device_type=DevExchange.kDLCUDA) -> Int

How many devices of a type there are. Throws `DEVX_DEVICE` with the reason if this machine has no driver for that type,
or none of its devices, and for types other than the CPU and CUDA.
"""
function device_count(device_type::Integer=kDLCUDA)
    count = Ref{Int32}(0)
    @checked devx_device_count(device_type::Int32, count::Ptr{Int32})
    return Int(count[])
end

"""
    DeviceInfo

What [`device_info`](@ref) says: `name`; `uuid`, the same in every process; `free_bytes` (when it was asked for) and
`total_bytes`; `driver_version` as CUDA writes it (12040 is 12.4). For the CPU bytes are -1, the rest 0.
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

What a device is called and how much memory it has. Throws `DEVX_DEVICE` for a device that is not there, and for other
types than the CPU and CUDA; `DEVX_DRIVER`.
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

# Whether Julia may read the memory as it is, once it is ready: that of the host, pinned or not, and managed memory.
is_host(d::DLDevice) = d.device_type in (kDLCPU, kDLCUDAHost, kDLCUDAManaged)
is_cuda(d::DLDevice) = d.device_type in (kDLCUDA, kDLCUDAHost, kDLCUDAManaged)

# What Julia does not touch: memory that is not the host's, and memory that work on a stream may still be writing.
@noinline function not_readable(d::DLDevice)
    is_host(d) && return DevExchangeError(DEVX_NOT_READY, "the data on $(device_name(d)) may be queued on " *
        "a stream: wait for it with `synchronize(tensor, stream)`, or copy it to the host with `copy_to`")
    return DevExchangeError(DEVX_DEVICE, "the memory is on $(device_name(d)): its " *
        "elements cannot be read here; copy them to the host with `copy_to` or `read!`")
end

# As above, for who wants a copy of memory that is not copied on its own.
@noinline not_copied(d::DLDevice, instead) =
    DevExchangeError(is_host(d) ? DEVX_NOT_READY : DEVX_DEVICE, "the memory is on $(device_name(d)): $instead")

"""
    device_name(d::DLDevice) -> String

The name of a device, for example `"cuda:0"`; of a type without a name its number.
"""
device_name(d::DLDevice) = named() do name, room
    @checked devx_device_name(d::DLDevice, name::Ptr{UInt8}, room::Csize_t)
end
