# Foreign producers and consumers of streams and foreign callers of managers, in C, on threads of their own. This file compiles
# foreign.c and askers.c.

const FOREIGN_LIBRARY = let
    library = joinpath(mktempdir(), "foreign." * Libdl.dlext)
    sources = [joinpath(@__DIR__, "foreign.c"), joinpath(@__DIR__, "askers.c")]
    headers = normpath(joinpath(@__DIR__, "..", "..", "..", "bindings-c", "include"))
    run(`$(get(ENV, "CC", "cc")) -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -fPIC -shared -pthread -I$headers
         -o $library $sources`)
    library
end
const FOREIGN = Libdl.dlopen(FOREIGN_LIBRARY)
foreign(name) = Libdl.dlsym(FOREIGN, name)

foreign_live() = ccall(foreign(:foreign_arrays_live), Clong, ()) + ccall(foreign(:foreign_schemas_live), Clong, ())

# The structs of foreign.c and askers.c, as words that do not move. `word` gives the place of each name.
word(names...) = Dict(name => k for (k, name) in enumerate(names))
const PRODUCER = word(:batches, :fails, :given, :releases, :interrupts)
const PULLER = word(:stream, :most, :batches, :sum, :code, :done, :text)
const ASYNC_PRODUCER = word(:batches, :fails, :schema_first, :sent, :extracted, :most_ahead, :cancels, :done,
    :interrupts)
const ASYNC_CONSUMER =
    word(:at_a_time, :cancels_at, :refuses_at, :batches, :sum, :pairs, :ended, :code, :releases, :text)
const ASKER = word(:manager, :rounds, :bytes, :all, :got, :free_bytes, :total_bytes, :handle_bytes, :code, :done,
    :allocate, :pin, :initialize, :reset, :memory_info, :ipc_handle, :trim, :defer_cleanup, :resume_cleanup, :text)

struct Words
    names::Dict{Symbol,Int}
    memory::Vector{Int64}
end
function Words(names; bytes=8 * (length(names) + 80), values...)
    w = Words(names, kept(zeros(Int64, cld(bytes, 8))))
    foreach(((name, value),) -> w.memory[names[name]] = value, values)
    return w
end
Base.getindex(w::Words, name::Symbol) = w.memory[w.names[name]]
Base.pointer(w::Words) = pointer(w.memory)
said(w::Words) = GC.@preserve w unsafe_string(Ptr{UInt8}(pointer(w.memory, w.names[:text])))

# Waits until `f()` is true. Only the task waits.
comes(f) = timedwait(f, 300.0; pollint=0.002) === :ok

# A foreign stream of `batches` arrays with the numbers 1, 2, ..., as either struct.
function foreign_stream(::Type{ArrowArrayStream}; values...)
    producer, stream = Words(PRODUCER; values...), kept(Ref(ArrowArrayStream()))
    ccall(foreign(:foreign_stream), Cvoid, (Ptr{Cvoid}, Ptr{ArrowArrayStream}), pointer(producer), stream)
    return stream, producer
end
function foreign_stream(::Type{ArrowDeviceArrayStream}; values...)
    producer, stream = Words(PRODUCER; values...), kept(Ref(ArrowDeviceArrayStream()))
    ccall(foreign(:foreign_device_stream), Cvoid, (Ptr{Cvoid}, Ptr{ArrowDeviceArrayStream}), pointer(producer), stream)
    return stream, producer
end

import_any(stream::Ref{ArrowArrayStream}) = import_arrow(stream)
import_any(stream::Ref{ArrowDeviceArrayStream}) = import_arrow_device(stream)

# A foreign consumer of a stream.
function puller(s::BatchStream; most=-1)
    exported = kept(Ref(ArrowArrayStream()))
    export_move(s, exported)
    return Words(PULLER; stream=Int64(UInt(Base.unsafe_convert(Ptr{ArrowArrayStream}, exported))), most=most)
end

pull(p::Words) = ccall(foreign(:foreign_pull), Cint, (Ptr{Cvoid},), pointer(p))
pull_on_thread(p::Words) = ccall(foreign(:foreign_pull_on_thread), Cint, (Ptr{Cvoid},), pointer(p)) == 0
pull_and_join(p::Words) = ccall(foreign(:foreign_pull_and_join), Cint, (Ptr{Cvoid},), pointer(p)) == 0

# A foreign caller of a manager, which must not be closed meanwhile.
function asker(m::MemoryManager; rounds=1, bytes=64, all=0)
    functions = (allocate=DX.devx_manager_allocate, pin=DX.devx_manager_pin, initialize=DX.devx_manager_initialize,
        reset=DX.devx_manager_reset, memory_info=DX.devx_manager_memory_info,
        ipc_handle=DX.devx_manager_ipc_handle, trim=DX.devx_manager_trim,
        defer_cleanup=DX.devx_manager_defer_cleanup, resume_cleanup=DX.devx_manager_resume_cleanup)
    addresses = map(f -> Int64(UInt(f[])), functions)
    manager = Int64(UInt(Base.unsafe_convert(Ptr{Cvoid}, m.handle)))
    a = Words(ASKER; manager=manager, rounds=rounds, all=all, addresses...)
    a.memory[ASKER[:bytes]] = bytes
    return a
end

ask(a::Words) = ccall(foreign(:foreign_ask), Cint, (Ptr{Cvoid},), pointer(a))
ask_on_thread(a::Words) = ccall(foreign(:foreign_ask_on_thread), Cint, (Ptr{Cvoid},), pointer(a)) == 0
ask_and_join(a::Words) = ccall(foreign(:foreign_ask_and_join), Cint, (Ptr{Cvoid},), pointer(a)) == 0

# A foreign producer for a reader.
function foreign_producer(; schema_first=1, values...)
    bytes = ccall(foreign(:foreign_async_producer_bytes), Int64, ())
    return Words(ASYNC_PRODUCER; bytes=bytes, schema_first=schema_first, values...)
end
produce(p::Words, r::AsyncReader) = ccall(foreign(:foreign_produce), Cint,
    (Ptr{Cvoid}, Ptr{ArrowAsyncDeviceStreamHandler}), pointer(p), DX.handler(r)) == 0

# A batch of one number, and the schema of all these batches.
numbered(k) = Batch(NUMBERED, [Node(1, (nothing,); null_count=0), Node(1, (nothing, Int64[k]); null_count=0)])
const NUMBERED = Schema([Field("a", Int64; nullable=false)])
value_of(b::Batch) = (b[:a]::Column{Int64})[1]
taken(b::Batch) = (value = value_of(b); close(b); value)

# Reads a stream until it ends or fails. Returns the numbers, and the error or `nothing`.
function all_of(stream)
    numbers = Int64[]
    try
        for batch in stream
            push!(numbers, taken(batch))
        end
    catch e
        e isa DevExchangeError || rethrow()
        return numbers, e
    end
    return numbers, nothing
end
