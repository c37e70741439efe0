# Where data is.

"Host memory. DLPack numbers it 0; Arrow's -1 means the same and is accepted on import."
const CPU = DLDevice(kDLCPU, 0)

"""
    device(x) -> DLDevice

The device that the memory of a [`Tensor`](@ref) or [`Batch`](@ref) is on: `device_type` is a number of DLPack and Arrow
(1 is the CPU), `device_id` says which one of that type. The set of types is open.
"""
function device end

# Whether Julia may read the memory as it is: that of the host, pinned or not, and managed memory.
is_host(d::DLDevice) = d.device_type in (kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged)

@inline require_host(d::DLDevice) = is_host(d) || throw(not_host(d))
@noinline not_host(d) = DevExchangeError(DEVX_DEVICE,
    "the memory is on device type $(d.device_type), id $(d.device_id): its elements cannot be read here")
