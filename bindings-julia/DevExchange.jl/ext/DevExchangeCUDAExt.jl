# Arrays of CUDA.jl as tensors, and tensors of CUDA memory as arrays of CUDA.jl, without a copy.
#
# All arrays that share memory (views, reshaped ones) share one record of it (`Managed`), which knows the stream that
# used the memory last, and one reference count (`DataRef`), which calls a function when the last array is gone. CUDA.jl
# has had both since 5.4; they are in its source, but in no manual.
module DevExchangeCUDAExt

using CUDA: CUDA, CuArray, CuPtr, CuStream, StridedCuArray
using DevExchange: DevExchange, DLDevice, DeviceStream, DevExchangeError, Tensor, produced_on, share, used_on, wait_on
using GPUArrays: GPUArrays, DataRef

const DX = DevExchange

# Also with permuted dimensions, which is how to get a row-major matrix.
const AnyTensor{T,N} = Union{Tensor{T,N},PermutedDimsArray{T,N,<:Any,<:Any,<:Tensor}}
const AnyStrided{T,N} = Union{StridedCuArray{T,N},PermutedDimsArray{T,N,<:Any,<:Any,<:StridedCuArray}}

whole(array::Union{CuArray,Tensor}) = array
whole(array::AbstractArray) = whole(parent(array))

# The kinds of memory, as each side names them.
place(::Type{CUDA.DeviceMemory}, id) = DX.cuda(id)
place(::Type{CUDA.UnifiedMemory}, _) = DX.MANAGED
place(::Type{CUDA.HostMemory}, _) = DX.PINNED

function memory(d::DLDevice)
    d.device_type == DX.kDLCUDA && return CUDA.DeviceMemory
    d.device_type == DX.kDLCUDAManaged && return CUDA.UnifiedMemory
    d.device_type == DX.kDLCUDAHost && return CUDA.HostMemory
    throw(DevExchangeError(DX.DEVX_DEVICE,
        "the memory is on $(DX.device_name(d)): an array of CUDA.jl is of memory that CUDA has allocated"))
end

"""
    DeviceStream(stream::CuStream)

Wraps a stream of CUDA.jl, for example `CUDA.stream()`; a default stream is that of the task's device. The `CuStream`
has to be kept as long as the result is used. Throws `DEVX_INVALID_STREAM` for the per-thread default stream, because
tasks change threads.
"""
DX.DeviceStream(stream::CuStream) = stream_on(CUDA.deviceid(CUDA.device()), stream)

stream_on(id, s::CuStream) = DeviceStream(DX.cuda(id), DX.stream_value(UInt(s.handle)))

"""
    Tensor(array::CuArray; release=nothing, readonly=false)

Makes a tensor over the memory of an array of CUDA.jl, or of a view or a `PermutedDimsArray` of one, without a copy:
device, unified (`DevExchange.MANAGED`) or host memory (`DevExchange.PINNED`). It is ready after the work that is
queued, until it is handed on, on the stream that used the array last, in whatever task that was. Nothing waits here.

The memory is kept until the last user of the tensor has released it, even if the array is resized or freed
(`CUDA.unsafe_free!`) before. CUDA.jl does not know what consumers do with the memory: make the stream of a task wait
for them before the array is used again. Otherwise like `Tensor(array)` for an `Array`.

Throws `DEVX_UNSUPPORTED` for an element type that DLPack does not have, `DEVX_INVALID_STREAM` for an array that was last
used on the per-thread default stream, `DEVX_INVALID_ARGUMENT` for a `release` that cannot be called.
"""
function DX.Tensor(array::AnyStrided{T,N}; release=nothing, readonly::Bool=false) where {T,N}
    DX.dtype(T)
    release === nothing || DX.check_callable(release, "release")
    base = whole(array)
    id, last = CUDA.deviceid(CUDA.device(base)), base.data[].stream
    stream = stream_on(id, last)
    # CUDA.jl treats taking an address as a use of the memory; on another stream that would make the host wait. Hence on
    # the same stream.
    data = CUDA.context!(CUDA.context(base)) do
        CUDA.stream!(() -> Base.unsafe_convert(CuPtr{T}, array), last)
    end
    kept, done = copy(base.data), Ref(false)
    # The function of the caller is not called if a later step fails, but even if the memory cannot be given back.
    give_back = DX.Releases(Any[() -> GPUArrays.unsafe_free!(kept), () -> done[] && release !== nothing && release()])
    tensor = try
        # The stream is kept, too: the stream of a task is destroyed some time after the task.
        Tensor(Ptr{T}(UInt(data)), size(array); strides=strides(array), root=last, release=give_back,
            readonly=readonly, device=place(CUDA.memory_type(base), id))
    catch
        GPUArrays.unsafe_free!(kept)
        rethrow()
    end
    try
        produced_on(tensor, stream)
    catch
        close(tensor)
        rethrow()
    end
    done[] = true
    return tensor
end

"""
    unsafe_wrap(CuArray, t::Tensor{T,N}) -> CuArray{T,N}

Makes an array of CUDA.jl over a compact column-major tensor in CUDA memory, without a copy. The stream of the calling
task is made to wait, on the device, until the data is ready; other tasks follow by the rules of CUDA.jl.

The array holds its own reference until all arrays that share its memory are gone: through the garbage collector, or at
once with `CUDA.unsafe_free!`. Then a task notes that the stream that used the memory last uses it ([`used_on`](@ref)),
and gives the reference up: the producer gets the memory back when that work is done. Work that CUDA.jl does not know of
is for you to name, with `used_on(t, stream)`.

To get a row-major tensor with its dimensions reversed: `unsafe_wrap(CuArray, PermutedDimsArray(t, (2, 1)))`.

Throws `DEVX_DEVICE` for memory that is not CUDA's, `DEVX_COPY_REQUIRED` for other strides and for `Bool` and vectors of
it, whose bytes may not be valid in Julia, `DEVX_READ_ONLY` for a read-only tensor (`CuArray(t)` is a copy that may be
written), `DEVX_INVALID_STREAM` if the task works on the per-thread default stream, `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
function Base.unsafe_wrap(::Union{Type{CuArray},Type{CuArray{T}},Type{CuArray{T,N}}}, t::AnyTensor{T,N}) where {T,N}
    isreadonly(whole(t)) && throw(DX.read_only())
    return wrap(t)
end

function wrap(array::AnyTensor{T,N}) where {T,N}
    tensor = whole(array)
    M = memory(tensor.device)
    DX.require_memory_of_julia(array)
    id = M === CUDA.DeviceMemory ? Int(tensor.device.device_id) : CUDA.deviceid(CUDA.device())
    return CUDA.context!(CUDA.context(CUDA.CuDevice(id))) do
        DX.require_open(tensor.handle)
        isempty(array) ? CuArray{T,N,M}(undef, size(array)) : wrap(M, CuPtr{T}(UInt(tensor.data)), size(array), tensor, id)
    end
end

function wrap(::Type{M}, data::CuPtr{T}, size::Dims{N}, tensor::Tensor, id) where {M,T,N}
    reference = share(tensor)
    try
        wait_on(reference, stream_on(id, CUDA.stream()))
        managed = unsafe_wrap(CuArray{T,N,M}, data, size).data[]
        return CuArray{T,N}(DataRef(DX.later(Imported(reference, managed, id)), managed), size)
    catch
        close(reference)
        rethrow()
    end
end

"""
    CuArray(t::Tensor{T,N}) -> CuArray{T,N}

Returns a copy. For a tensor in CUDA memory the copy is made on the device, in the order of the task's stream. Throws
the errors of [`unsafe_wrap`](@ref Base.unsafe_wrap), except for read-only tensors.
"""
function CUDA.CuArray(t::AnyTensor{T,N}) where {T,N}
    DX.is_cuda(whole(t).device) || return CuArray{T,N}(t)
    array = wrap(t)
    try
        return copy(array)
    finally
        CUDA.unsafe_free!(array)
    end
end

# A tensor that is the memory of CUDA.jl arrays. It is rooted until they are gone, and with it the stream that used the
# memory last.
struct Imported
    tensor::Tensor
    managed::Any
    id::Int
end

note_use(i::Imported) = used_on(i.tensor, stream_on(i.id, i.managed.stream))

# Tensors for which nobody can say when the last work is done: their memory is never given back.
const LOST = Imported[]

# Called when the last array is gone. An interrupt is deferred: it says nothing about the work.
function (i::Imported)()
    disable_sigint() do
        try
            note_use(i)
        catch
            push!(LOST, i)
            rethrow()
        end
        close(i.tensor)
    end
end

# When Julia ends, finalizers close what arrays hold, and no task notes the last uses any more. So they are noted here.
function note_uses()
    for root in lock(() -> collect(values(DX.ROOTS)), DX.ROOTS_LOCK)
        root.release isa Imported || continue
        try
            note_use(root.release)
        catch e
            @error "DevExchange: an array of CUDA.jl is in use" exception = (e, catch_backtrace())
        end
    end
    return nothing
end

__init__() = (atexit(note_uses); nothing)

end
