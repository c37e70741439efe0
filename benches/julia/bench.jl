# The benches of Julia as one program (docs/bench.md): julia bench.jl FLOOR [list]
#
# FLOOR is the library of the C floor. The library that counts allocations must be preloaded.

using DevExchange
using Libdl

const FLOOR = Libdl.dlopen(ARGS[1])
const NOTHING = Libdl.dlsym(FLOOR, :floor_nothing)
const EXPORT = Libdl.dlsym(FLOOR, :export_tensor)
const IMPORT = Libdl.dlsym(FLOOR, :import_tensor)
const RELEASE = Libdl.dlsym(FLOOR, :release_tensor)
const NEW_TABLE = Libdl.dlsym(FLOOR, :new_table)
const EXPORT_ARRAY = Libdl.dlsym(FLOOR, :export_array)
const EXPORT_SCHEMA = Libdl.dlsym(FLOOR, :export_schema)
const IMPORT_SCHEMA = Libdl.dlsym(FLOOR, :import_schema)
const IMPORT_ARRAY = Libdl.dlsym(FLOOR, :import_array)
const VALUES = Libdl.dlsym(FLOOR, :seen_values)
const RELEASE_SEEN = Libdl.dlsym(FLOOR, :release_seen)
const RELEASE_SEEN_SCHEMA = Libdl.dlsym(FLOOR, :release_seen_schema)
const PRODUCER = ccall(Libdl.dlsym(FLOOR, :floor_producer), Ptr{Cvoid}, ())

allocations() = ccall(:bench_allocations, Int64, ())

exported() = ccall(EXPORT, Ptr{Cvoid}, (Ptr{Cvoid},), PRODUCER)

# A held tensor, which is released once: by `close`, or at the latest by the finalizer. `close` leaves the finalizer
# registered, because removing it would cost more than running it with nothing to do.
mutable struct Held
    address::Ptr{Cvoid}
    function Held(address)
        address == C_NULL && error("not imported")
        return finalizer(close, new(address))
    end
end

function Base.close(held::Held)
    address = held.address
    address == C_NULL && return
    held.address = C_NULL
    ccall(RELEASE, Cvoid, (Ptr{Cvoid},), address)
end

# A held table with its schema, released in the same way.
mutable struct HeldTable
    seen::Ptr{Cvoid}
    schema::Ptr{Cvoid}
    function HeldTable(array, schema)
        type = ccall(IMPORT_SCHEMA, Ptr{Cvoid}, (Ptr{ArrowSchema},), schema)
        type == C_NULL && error("no schema imported")
        seen = ccall(IMPORT_ARRAY, Ptr{Cvoid}, (Ptr{ArrowArray}, Ptr{Cvoid}), array, type)
        seen == C_NULL && error("no array imported")
        return finalizer(close, new(seen, type))
    end
end

function Base.close(held::HeldTable)
    seen = held.seen
    seen == C_NULL && return
    held.seen = C_NULL
    ccall(RELEASE_SEEN, Cvoid, (Ptr{Cvoid},), seen)
    ccall(RELEASE_SEEN_SCHEMA, Cvoid, (Ptr{Cvoid},), held.schema)
end

const WIDTHS = (1, 100)
const ROWS = 1024
const TABLES = Dict(n => ccall(NEW_TABLE, Ptr{Cvoid}, (Cint, Ptr{Cvoid}, Cint), n, Libdl.dlsym(FLOOR, :table_format), 1)
                    for n in WIDTHS)
const BATCHES = Dict(n => Batch([string('c', k - 1) => zeros(Int32, ROWS) for k in 1:n]) for n in WIDTHS)
# The sum of the addresses, so that the compiler keeps the reads.
const SINK = Ref(UInt(0))

function floor_call(times)
    for _ in 1:times
        ccall(NOTHING, Cvoid, ())
    end
end

function floor_import(times)
    for _ in 1:times
        close(Held(ccall(IMPORT, Ptr{Cvoid}, (Ptr{Cvoid},), exported())))
    end
end

function floor_batch(times, columns)
    table, array, schema = TABLES[columns], Ref(ArrowArray()), Ref(ArrowSchema())
    for _ in 1:times
        ccall(EXPORT_ARRAY, Cint, (Ptr{Cvoid}, Ptr{ArrowArray}), table, array) == 0 || error("no array exported")
        ccall(EXPORT_SCHEMA, Cint, (Ptr{Cvoid}, Ptr{ArrowSchema}), table, schema) == 0 || error("no schema exported")
        held = HeldTable(array, schema)
        for k in 1:columns
            SINK[] += UInt(ccall(VALUES, Ptr{Cvoid}, (Ptr{Cvoid}, Int64), held.seen, k - 1))
        end
        close(held)
    end
end

# A function that reads one number: `outstanding` adds up the numbers of all threads, which would take most of the time.
function our_call(times)
    for _ in 1:times
        releases_lost()
    end
end

function our_import(times)
    for _ in 1:times
        close(import_dlpack(Tensor{Float32,2}, exported()))
    end
end

function our_round_trip(times)
    tensor = Tensor(zeros(Float32, 3, 2))
    for _ in 1:times
        close(import_dlpack(Tensor{Float32,2}, export_share(tensor)))
    end
    close(tensor)
end

function our_batch(times, columns)
    batch, array, schema = BATCHES[columns], Ref(ArrowArray()), Ref(ArrowSchema())
    for _ in 1:times
        export_share(batch, array, schema)
        seen = import_arrow(array, schema)
        for k in 1:columns
            SINK[] += UInt(pointer(Column{Int32}(seen, k)))
        end
        close(seen)
    end
end

const BENCHES = Pair{Tuple{String,String},Any}[
    ("julia/call", "devexchange") => our_call,
    ("julia/call", "floor") => floor_call,
    ("julia/tensor-import", "devexchange") => our_import,
    ("julia/tensor-import", "floor") => floor_import,
    ("julia/tensor-round-trip", "devexchange") => our_round_trip,
    ("julia/tensor-round-trip", "floor") => floor_import,
]
for columns in WIDTHS
    push!(BENCHES, ("julia/batch-read/$columns", "devexchange") => times -> our_batch(times, columns))
    push!(BENCHES, ("julia/batch-read/$columns", "floor") => times -> floor_batch(times, columns))
end

function measure(run, times)
    before, start = allocations(), time_ns()
    run(times)
    ns = time_ns() - start
    return ns, allocations() - before
end

function serve()
    benches = Dict(BENCHES)
    for (_, run) in BENCHES
        run(1000)
    end
    for line in eachline(stdin)
        operation, implementation, times = split(line, '\t')
        ns, counted = measure(benches[(operation, implementation)], parse(Int, times))
        println(ns, '\t', counted)
        flush(stdout)
    end
    foreach(close, values(BATCHES))
    drain()
    outstanding() == 0 || error("outstanding: $(ledger())")
end

if length(ARGS) > 1
    for ((operation, implementation), _) in BENCHES
        println(operation, '\t', implementation)
    end
else
    serve()
end
