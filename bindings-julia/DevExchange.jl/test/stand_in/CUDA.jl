# A stand-in for CUDA.jl, only for the tests of the extension. It uses the driver that is found as libcuda.so.1, the simulated
# one. It has what the extension and its tests use, with the names, arguments and rules in the source of CUDA.jl 5.4 to 6.3: the
# state of a task, a stream for each task and device, memory that knows the stream that used it last, and arrays that share
# memory. It has nothing else of CUDA.jl (kernels, libraries, capture of graphs, limits of memory).
__precompile__(false)

module CUDA

using GPUArrays: GPUArrays, AbstractGPUArray, DataRef
using Libdl

export CuArray, CuContext, CuDevice, CuPtr, CuStream, DenseCuArray, StridedCuArray, context, context!, default_stream,
    device, device!, deviceid, legacy_stream, memory_type, per_thread_stream, stream, stream!, synchronize

# ---- the driver ----

const LIBRARY = Ref(C_NULL)

function __init__()
    LIBRARY[] = dlopen("libcuda.so.1")
    plain_call(ccall(dlsym(LIBRARY[], :cuInit), Cint, (Cuint,), 0), :cuInit)
end

plain_call(code, name) = code == 0 ? nothing : error("CUDA: $name gave $code")

# Calls a function of the driver, with the task's context current on the thread.
macro driver(call)
    name, arguments = call.args[1], call.args[2:end]
    types, values = [esc(a.args[2]) for a in arguments], [esc(a.args[1]) for a in arguments]
    return quote
        activate(context())
        plain_call(ccall(dlsym(LIBRARY[], $(QuoteNode(name))), Cint, ($(types...),), $(values...)), $(QuoteNode(name)))
    end
end

# ---- devices, contexts, streams ----

struct CuDevice
    handle::Cint
    function CuDevice(ordinal::Integer)
        handle = Ref{Cint}()
        plain_call(ccall(dlsym(LIBRARY[], :cuDeviceGet), Cint, (Ptr{Cint}, Cint), handle, ordinal), :cuDeviceGet)
        return new(handle[])
    end
end

deviceid(d::CuDevice) = Int(d.handle)

struct CuContext
    handle::Ptr{Cvoid}
end

activate(c::CuContext) =
    plain_call(ccall(dlsym(LIBRARY[], :cuCtxSetCurrent), Cint, (Ptr{Cvoid},), c.handle), :cuCtxSetCurrent)

# The primary contexts, which are never released.
const CONTEXTS = Dict{CuDevice,CuContext}()
const CONTEXTS_LOCK = ReentrantLock()

context(d::CuDevice) = lock(CONTEXTS_LOCK) do
    get!(CONTEXTS, d) do
        handle = Ref{Ptr{Cvoid}}()
        code = ccall(dlsym(LIBRARY[], :cuDevicePrimaryCtxRetain), Cint, (Ptr{Ptr{Cvoid}}, Cint), handle, d.handle)
        plain_call(code, :cuDevicePrimaryCtxRetain)
        CuContext(handle[])
    end
end

device(c::CuContext) = lock(() -> first(d for (d, known) in CONTEXTS if known == c), CONTEXTS_LOCK)

const STREAM_DEFAULT = 0
const STREAM_NON_BLOCKING = 1

mutable struct CuStream
    handle::Ptr{Cvoid}
    valid::Bool
    ctx::Union{Nothing,CuContext}

    function CuStream(; flags=STREAM_DEFAULT)
        handle = Ref{Ptr{Cvoid}}()
        @driver cuStreamCreate(handle::Ptr{Ptr{Cvoid}}, flags::Cuint)
        stream = new(handle[], true, context())
        finalizer(destroy, stream)
        return stream
    end
    global default_stream() = new(Ptr{Cvoid}(0), true, nothing)
    global legacy_stream() = new(Ptr{Cvoid}(1), true, nothing)
    global per_thread_stream() = new(Ptr{Cvoid}(2), true, nothing)
end

Base.:(==)(a::CuStream, b::CuStream) = a.handle == b.handle
isvalid(s::CuStream) = s.valid

function destroy(s::CuStream)
    context!(s.ctx) do
        @driver cuStreamDestroy_v2(s.handle::Ptr{Cvoid})
    end
    s.valid = false
end

mutable struct TaskState
    device::CuDevice
    context::CuContext
    streams::Dict{CuDevice,CuStream}
end

const DEFAULT_DEVICE = Ref(0)

task_state() = get!(task_local_storage(), :CUDA) do
    d = CuDevice(DEFAULT_DEVICE[])
    TaskState(d, context(d), Dict())
end::TaskState

context() = task_state().context
device() = task_state().device
stream() = (state = task_state(); get!(() -> CuStream(), state.streams, state.device))
stream!(s::CuStream) = (state = task_state(); state.streams[state.device] = s; nothing)

function stream!(f::Function, s::CuStream)
    state = task_state()
    on, before = state.device, get(state.streams, state.device, nothing)
    state.streams[on] = s
    try
        return f()
    finally
        before === nothing ? delete!(state.streams, on) : (state.streams[on] = before)
    end
end

function context!(c::CuContext)
    state = task_state()
    before = state.context
    state.device, state.context = device(c), c
    return before
end

function context!(f::Function, c::CuContext)
    before = context!(c)
    try
        return f()
    finally
        context!(before)
    end
end

device!(id::Integer) = (DEFAULT_DEVICE[] = id; context!(context(CuDevice(id))); nothing)

synchronize(s::CuStream=stream()) = @driver cuStreamSynchronize(s.handle::Ptr{Cvoid})

# ---- memory ----

primitive type CuPtr{T} 64 end
CuPtr{T}(x::Union{Int,UInt,CuPtr}) where {T} = reinterpret(CuPtr{T}, x)
Base.UInt(p::CuPtr) = reinterpret(UInt, p)
Base.:(+)(p::CuPtr{T}, bytes::Integer) where {T} = CuPtr{T}(UInt(p) + bytes)
Base.:(==)(a::CuPtr, b::CuPtr) = UInt(a) == UInt(b)
Base.convert(::Type{CuPtr{T}}, p::CuPtr) where {T} = CuPtr{T}(p)
Base.convert(::Type{<:Ptr}, ::CuPtr) = throw(ArgumentError("an address of the GPU is none of the CPU"))
Base.unsafe_convert(::Type{CuPtr{T}}, a::AbstractArray{T}) where {T} = error("a $(typeof(a)) has no address on the GPU")

abstract type AbstractMemory end

struct DeviceMemory <: AbstractMemory
    ctx::CuContext
    ptr::CuPtr{Cvoid}
    bytes::Int
    pooled::Bool
end

struct UnifiedMemory <: AbstractMemory
    ctx::CuContext
    ptr::CuPtr{Cvoid}
    bytes::Int
end

struct HostMemory <: AbstractMemory
    ctx::CuContext
    ptr::Ptr{Cvoid}
    bytes::Int
end

gpu_address(m::AbstractMemory) = m.ptr
function gpu_address(m::HostMemory)
    m.ptr == C_NULL && return CuPtr{Cvoid}(0)
    out = Ref{UInt}()
    @driver cuMemHostGetDevicePointer_v2(out::Ptr{UInt}, m.ptr::Ptr{Cvoid}, 0::Cuint)
    return CuPtr{Cvoid}(out[])
end

function host_pointer(p::CuPtr)
    out = Ref{Ptr{Cvoid}}()
    # CU_POINTER_ATTRIBUTE_HOST_POINTER
    @driver cuPointerGetAttribute(out::Ptr{Ptr{Cvoid}}, 4::Cint, UInt(p)::UInt)
    return out[]
end

function alloc(::Type{DeviceMemory}, bytes)
    bytes == 0 && return DeviceMemory(context(), CuPtr{Cvoid}(0), 0, false)
    out = Ref{UInt}()
    @driver cuMemAllocAsync(out::Ptr{UInt}, bytes::Csize_t, stream().handle::Ptr{Cvoid})
    return DeviceMemory(context(), CuPtr{Cvoid}(out[]), bytes, true)
end

function alloc(::Type{UnifiedMemory}, bytes)
    bytes == 0 && return UnifiedMemory(context(), CuPtr{Cvoid}(0), 0)
    out = Ref{UInt}()
    @driver cuMemAllocManaged(out::Ptr{UInt}, bytes::Csize_t, 1::Cuint)
    return UnifiedMemory(context(), CuPtr{Cvoid}(out[]), bytes)
end

function alloc(::Type{HostMemory}, bytes)
    bytes == 0 && return HostMemory(context(), C_NULL, 0)
    out = Ref{Ptr{Cvoid}}()
    @driver cuMemHostAlloc(out::Ptr{Ptr{Cvoid}}, bytes::Csize_t, 0::Cuint)
    return HostMemory(context(), out[], bytes)
end

# Memory that arrays share, and the stream that used it last.
mutable struct Managed{M}
    mem::M
    stream::CuStream
    dirty::Bool
    Managed(mem::AbstractMemory; stream=stream(), dirty=true) = new{typeof(mem)}(mem, stream, dirty)
end

function maybe_synchronize(m::Managed)
    m.dirty && synchronize(m.stream)
    m.dirty = false
end

# Asking for the address is a use on the stream of the task. If another stream used the memory last, the host waits for it.
function Base.convert(::Type{CuPtr{T}}, m::Managed{M}) where {T,M}
    data = CuPtr{T}(gpu_address(m.mem))
    UInt(data) == 0 && return data
    if M === DeviceMemory && context() != m.mem.ctx
        maybe_synchronize(m)
        enable_peer_access(m.mem.ctx)
    end
    if m.stream != stream()
        maybe_synchronize(m)
        m.stream = stream()
    end
    m.dirty = true
    return data
end

const PEERS = Set{Tuple{CuContext,CuContext}}()
function enable_peer_access(c::CuContext)
    (context(), c) in PEERS && return nothing
    @driver cuCtxEnablePeerAccess(c.handle::Ptr{Cvoid}, 0::Cuint)
    push!(PEERS, (context(), c))
    return nothing
end

# Finalizers call this, mostly.
function pool_free(m::Managed)
    m.mem.bytes == 0 && return nothing
    try
        context!(() -> free(m.mem, m.stream), m.mem.ctx)
    catch e
        Core.println("the stand-in for CUDA.jl could not free: ", e)
    end
    return nothing
end

function free(m::DeviceMemory, s::CuStream)
    on = isvalid(s) ? s.handle : C_NULL
    m.pooled ? @driver(cuMemFreeAsync(UInt(m.ptr)::UInt, on::Ptr{Cvoid})) : @driver(cuMemFree_v2(UInt(m.ptr)::UInt))
end
free(m::UnifiedMemory, _) = @driver cuMemFree_v2(UInt(m.ptr)::UInt)
free(m::HostMemory, _) = @driver cuMemFreeHost(m.ptr::Ptr{Cvoid})

# ---- arrays ----

mutable struct CuArray{T,N,M} <: AbstractGPUArray{T,N}
    data::DataRef{Managed{M}}
    maxsize::Int
    # In bytes.
    offset::Int
    dims::Dims{N}

    function CuArray{T,N}(data::DataRef{Managed{M}}, dims::Dims{N}; maxsize::Int=prod(dims) * sizeof(T),
                          offset::Int=0) where {T,N,M}
        Base.allocatedinline(T) || error("elements of type $T do not lie in the array")
        array = new{T,N,M}(data, maxsize, offset, dims)
        finalizer(unsafe_free!, array)
        return array
    end
end

CuArray{T,N,M}(::UndefInitializer, dims::Dims{N}) where {T,N,M} =
    CuArray{T,N}(DataRef(pool_free, Managed(alloc(M, prod(dims) * sizeof(T)))), dims)
CuArray{T,N}(::UndefInitializer, dims::Dims{N}) where {T,N} = CuArray{T,N,DeviceMemory}(undef, dims)
CuArray{T}(::UndefInitializer, dims::Integer...) where {T} = CuArray{T,length(dims)}(undef, Dims(dims))
CuArray{T,N,M}(a::AbstractArray{<:Any,N}) where {T,N,M} =
    copyto!(CuArray{T,N,M}(undef, size(a)), convert(Array{T,N}, a))
CuArray{T,N}(a::AbstractArray{<:Any,N}) where {T,N} = CuArray{T,N,DeviceMemory}(a)
CuArray(a::AbstractArray{T,N}) where {T,N} = CuArray{T,N}(a)

unsafe_free!(a::CuArray) = GPUArrays.unsafe_free!(a.data)

function Base.unsafe_wrap(::Type{CuArray{T,N,M}}, p::CuPtr{T}, dims::NTuple{N,Int}; own::Bool=false,
                          ctx::CuContext=context()) where {T,N,M}
    own && error("not in the stand-in")
    bytes = prod(dims) * sizeof(T)
    mem = M === HostMemory ? HostMemory(ctx, host_pointer(p), bytes) :
        M === UnifiedMemory ? UnifiedMemory(ctx, p, bytes) : DeviceMemory(ctx, p, bytes, false)
    return CuArray{T,N}(DataRef(_ -> nothing, Managed(mem)), dims)
end

const DenseCuArray{T,N} = CuArray{T,N}
const StridedSubCuArray{T,N,I<:Tuple{Vararg{Union{Base.RangeIndex,Base.ReshapedUnitRange,Base.AbstractCartesianIndex}}}} =
    SubArray{T,N,<:CuArray,I}
const StridedCuArray{T,N} = Union{CuArray{T,N},StridedSubCuArray{T,N}}

context(a::CuArray) = a.data[].mem.ctx
device(a::CuArray) = device(context(a))
memory_type(a::CuArray) = memory_type(typeof(a))
memory_type(::Type{<:CuArray{<:Any,<:Any,M}}) where {M} = M
synchronize(a::CuArray) = maybe_synchronize(a.data[])

Base.size(a::CuArray) = a.dims
Base.elsize(::Type{<:CuArray{T}}) where {T} = sizeof(T)
Base.IndexStyle(::Type{<:CuArray}) = IndexLinear()
Base.getindex(::CuArray, ::Int...) = error("elements on the GPU are not read one by one")
Base.setindex!(::CuArray, _, ::Int...) = error("elements on the GPU are not written one by one")
Base.show(io::IO, a::CuArray) = print(io, typeof(a), " of size ", size(a))
Base.show(io::IO, ::MIME"text/plain", a::CuArray) = show(io, a)

Base.unsafe_convert(::Type{CuPtr{T}}, a::CuArray{T}) where {T} = convert(CuPtr{T}, a.data[]) + a.offset
Base.unsafe_convert(::Type{Ptr{T}}, ::CuArray{T}) where {T} = throw(ArgumentError("no address of the CPU"))
Base.unsafe_convert(::Type{CuPtr{T}}, a::SubArray{T,N,P,<:Tuple{Vararg{Base.RangeIndex}}}) where {T,N,P} =
    Base.unsafe_convert(CuPtr{T}, parent(a)) + (Base.first_index(a) - 1) * sizeof(T)
Base.unsafe_convert(::Type{CuPtr{T}}, a::PermutedDimsArray{T}) where {T} = Base.unsafe_convert(CuPtr{T}, parent(a))
Base.pointer(a::StridedCuArray{T}) where {T} = Base.unsafe_convert(CuPtr{T}, a)

# Another array over the same memory.
derive(::Type{T}, a::CuArray, dims::Dims{N}, elements::Int) where {T,N} =
    CuArray{T,N}(copy(a.data), dims; maxsize=a.maxsize, offset=a.offset + elements * sizeof(T))

Base.reshape(a::CuArray{T}, dims::Dims) where {T} = dims == size(a) ? a : derive(T, a, dims, 0)
Base.view(a::CuArray{T,1}, range::UnitRange{Int}) where {T} = derive(T, a, (length(range),), first(range) - 1)
Base.view(a::CuArray{T,2}, ::Colon, columns::UnitRange{Int}) where {T} =
    derive(T, a, (size(a, 1), length(columns)), (first(columns) - 1) * size(a, 1))

Base.similar(a::CuArray{T,N,M}) where {T,N,M} = CuArray{T,N,M}(undef, size(a))
Base.copy(a::CuArray) = copyto!(similar(a), a)

function Base.copyto!(to::CuArray{T}, from::CuArray{T}) where {T}
    context!(context(to)) do
        a, b = UInt(pointer(to)), UInt(pointer(from))
        @driver cuMemcpyAsync(a::UInt, b::UInt, (length(from) * sizeof(T))::Csize_t, stream().handle::Ptr{Cvoid})
    end
    return to
end

function Base.copyto!(to::CuArray{T}, from::Array{T}) where {T}
    isempty(from) || context!(context(to)) do
        a, bytes = UInt(pointer(to)), sizeof(from)
        @driver cuMemcpyHtoDAsync_v2(a::UInt, from::Ptr{T}, bytes::Csize_t, stream().handle::Ptr{Cvoid})
        synchronize(stream())
    end
    return to
end

function Base.Array(a::CuArray{T,N}) where {T,N}
    to = Array{T,N}(undef, size(a))
    isempty(a) || context!(context(a)) do
        b = UInt(pointer(a))
        @driver cuMemcpyDtoHAsync_v2(to::Ptr{T}, b::UInt, sizeof(to)::Csize_t, stream().handle::Ptr{Cvoid})
        synchronize(stream())
    end
    return to
end

function Base.fill!(a::CuArray{T}, x) where {T<:Union{Float32,Int32}}
    context!(context(a)) do
        p, bits = UInt(pointer(a)), reinterpret(UInt32, T(x))
        @driver cuMemsetD32Async(p::UInt, bits::Cuint, length(a)::Csize_t, stream().handle::Ptr{Cvoid})
    end
    return a
end

# Only to more elements, in new memory.
function Base.resize!(a::CuArray{T,1,M}, n::Integer) where {T,M}
    new = CuArray{T,1,M}(undef, (Int(n),))
    isempty(a) || copyto!(view(new, 1:length(a)), a)
    old = a.data
    a.data, a.maxsize, a.offset, a.dims = copy(new.data), new.maxsize, 0, new.dims
    GPUArrays.unsafe_free!(old)
    return a
end

end
