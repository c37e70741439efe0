# Julia in the soak (soak.py): makes things, takes them and hands them on, takes them for good, as described in
# languages.py.
#
# Every function for soak.py returns 0, or 1 after a line on stderr.
module Soak

using DevExchange
const DX = DevExchange

const DLPACK, DLPACK_LEGACY, CUDA_ARRAY, ARRAY, DEVICE_ARRAY, STREAM = 0, 1, 2, 3, 4, 5
const SHARE, FORGET = 1, 2
const SCHEMA_AT, BATCHES = 128, 2
const TYPES = (Int64, Float64, Int32)
const CUDA = DLDevice(DX.kDLCUDA, 0)

struct Spec
    dtype::Int64
    ndim::Int64
    shape::NTuple{3,Int64}
    base::Int64
    read_only::Int64
    device_type::Int64
end

extents(s) = s.shape[1:s.ndim]
elements(s) = prod(extents(s))
on_device(s) = s.device_type == DX.kDLCUDA
type_of(s) = TYPES[s.dtype + 1]

# ---- what Julia makes ----

# Elements base, base + 1, ... in row-major order.
row_major(size) = reverse((1, cumprod(reverse(size))...)[1:length(size)])

function make_tensor(s)
    memory = type_of(s)[s.base + k for k in 0:elements(s)-1]
    size = extents(s)
    t = Tensor(pointer(memory), size; strides=row_major(size), root=memory, readonly=s.read_only != 0)
    on_device(s) || return t
    copy = copy_to(t, CUDA, DX.LEGACY_STREAM)
    close(t)
    return copy
end

function make_batch(s)
    b = Batch((n=Int64[s.base + k for k in 0:elements(s)-1], x=zeros(elements(s))))
    on_device(s) || return b
    copy = copy_to(b, CUDA, DX.LEGACY_STREAM)
    close(b)
    return copy
end

function make_stream(s)
    batch = make_batch(s)
    own, left = schema(batch), Ref(BATCHES)
    stream = BatchStream(own; device_type=s.device_type, release=() -> close(batch)) do
        (left[] -= 1) < 0 ? nothing : share(batch)
    end
    close(own)
    return stream
end

make(protocol, s) = protocol <= CUDA_ARRAY ? make_tensor(s) : protocol < STREAM ? make_batch(s) : make_stream(s)

# ---- what Julia sees ----

require(fact, what) = fact || error("not as it was made: ", what)

function check(s, t::Tensor)
    require(eltype(t) == type_of(s) && size(t) == extents(s), typeof(t))
    require((DX.flags(t) & DX.DLPACK_FLAG_BITMASK_READ_ONLY != 0) == (s.read_only != 0), DX.flags(t))
    host = on_device(s) ? copy_to(t, DX.CPU, DX.LEGACY_STREAM) : t
    require(host[extents(s)...] == s.base + elements(s) - 1, host)
    on_device(s) && close(host)
end

function check(s, b::Batch)
    host = on_device(s) ? copy_to(b, DX.CPU, DX.LEGACY_STREAM) : b
    n = host["n"]
    require(length(n) == elements(s) && n[end] == s.base + length(n) - 1, n)
    on_device(s) && close(host)
end

function check(s, stream::BatchStream)
    given = 0
    while (batch = next!(stream)) !== nothing
        check(s, batch)
        close(batch)
        given += 1
    end
    require(given == BATCHES, given)
end

# ---- in and out ----

function take(protocol, s, address)
    on = on_device(s) ? DX.LEGACY_STREAM : nothing
    schema = Ptr{ArrowSchema}(address + SCHEMA_AT)
    protocol == DLPACK && return import_dlpack(Ptr{DLManagedTensorVersioned}(address); stream=on)
    protocol == DLPACK_LEGACY && return import_dlpack_legacy(Ptr{DLManagedTensor}(address); stream=on)
    protocol == CUDA_ARRAY && return import_cuda_array(Ptr{Cvoid}(address); stream=DX.LEGACY_STREAM)
    protocol == ARRAY && return import_arrow(Ptr{ArrowArray}(address), schema)
    protocol == DEVICE_ARRAY && return import_arrow_device(Ptr{ArrowDeviceArray}(address), schema)
    protocol == STREAM && return import_arrow(Ptr{ArrowArrayStream}(address))
    return import_arrow_device(Ptr{ArrowDeviceArrayStream}(address))
end

function give(protocol, s, t::Tensor, shared, target)
    on = on_device(s) ? DX.LEGACY_STREAM : nothing
    if protocol == CUDA_ARRAY
        (shared ? export_share_cuda_array : export_move_cuda_array)(t, Ptr{Cvoid}(target); stream=DX.LEGACY_STREAM)
        return target
    end
    f = protocol == DLPACK ? (shared ? export_share : export_move) : shared ? export_share_legacy : export_move_legacy
    return UInt(f(t; stream=on))
end

function give(protocol, s, b::Batch, shared, target)
    T = protocol == ARRAY ? ArrowArray : ArrowDeviceArray
    (shared ? export_share : export_move)(b, Ptr{T}(target), Ptr{ArrowSchema}(target + SCHEMA_AT))
    return target
end

function give(protocol, s, stream::BatchStream, shared, target)
    export_move(stream, Ptr{protocol == STREAM ? ArrowArrayStream : ArrowDeviceArrayStream}(target))
    return target
end

leave(thing, flags) = flags & FORGET == 0 && close(thing)

# ---- what soak.py calls ----

# Nothing may be thrown through foreign frames.
function told(f)
    try
        f()
        return Cint(0)
    catch e
        println(stderr, "Julia: ", sprint(showerror, e, catch_backtrace()))
        return Cint(1)
    end
end

soak_make(protocol::Cint, spec::Ptr{Spec}, n::Int64, out::Ptr{UInt}, flags::Cint) = told() do
    s = unsafe_load(spec)
    for i in 1:n
        thing = make(protocol, s)
        unsafe_store!(out, give(protocol, s, thing, flags & SHARE != 0, unsafe_load(out, i)), i)
        leave(thing, flags)
    end
end

soak_pass(from::Cint, to::Cint, spec::Ptr{Spec}, n::Int64, in::Ptr{UInt}, out::Ptr{UInt}, flags::Cint) = told() do
    s = unsafe_load(spec)
    for i in 1:n
        thing = take(from, s, unsafe_load(in, i))
        from < STREAM && check(s, thing)
        unsafe_store!(out, give(to, s, thing, flags & SHARE != 0, unsafe_load(out, i)), i)
        leave(thing, flags)
    end
end

soak_end(from::Cint, spec::Ptr{Spec}, n::Int64, in::Ptr{UInt}, flags::Cint) = told() do
    s = unsafe_load(spec)
    for i in 1:n
        thing = take(from, s, unsafe_load(in, i))
        check(s, thing)
        leave(thing, flags)
    end
end

# Offers things that must not be taken.
soak_refuse(from::Cint, spec::Ptr{Spec}, n::Int64, in::Ptr{UInt}) = told() do
    s = unsafe_load(spec)
    for i in 1:n
        taken = try
            take(from, s, unsafe_load(in, i))
        catch e
            e isa DevExchangeError || rethrow()
            nothing
        end
        require(taken === nothing, "a struct with an error in it")
    end
end

# Lets tasks run, which deliver releases and answer other threads: for a timer Julia checks its event loop.
soak_yield() = told(() -> wait(Timer(0)))

# Collects garbage and delivers releases; then reports what is outstanding.
soak_settle(outstanding::Ptr{Int64}) = told() do
    GC.gc()
    drain()
    unsafe_store!(outstanding, DX.outstanding() + DX.rooted() + DX.release_failures())
end

# The addresses of the functions, in this order.
const FUNCTIONS = Ptr{Cvoid}[
    @cfunction(soak_make, Cint, (Cint, Ptr{Spec}, Int64, Ptr{UInt}, Cint)),
    @cfunction(soak_pass, Cint, (Cint, Cint, Ptr{Spec}, Int64, Ptr{UInt}, Ptr{UInt}, Cint)),
    @cfunction(soak_end, Cint, (Cint, Ptr{Spec}, Int64, Ptr{UInt}, Cint)),
    @cfunction(soak_refuse, Cint, (Cint, Ptr{Spec}, Int64, Ptr{UInt})),
    @cfunction(soak_yield, Cint, ()),
    @cfunction(soak_settle, Cint, (Ptr{Int64},))]

end
