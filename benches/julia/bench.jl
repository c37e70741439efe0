# The operations of Julia as a program with benches (docs/bench.md): julia bench.jl FLOOR [list]
#
# FLOOR is the library of the floor in C. Another one, which counts allocations, is loaded before all others.

using DevExchange
using Libdl

const FLOOR = Libdl.dlopen(ARGS[1])
const NOTHING = Libdl.dlsym(FLOOR, :floor_nothing)
const EXPORT = Libdl.dlsym(FLOOR, :export_tensor)
const IMPORT = Libdl.dlsym(FLOOR, :import_tensor)
const RELEASE = Libdl.dlsym(FLOOR, :release_tensor)
const PRODUCER = ccall(Libdl.dlsym(FLOOR, :floor_producer), Ptr{Cvoid}, ())

allocations() = ccall(:bench_allocations, Int64, ())

exported() = ccall(EXPORT, Ptr{Cvoid}, (Ptr{Cvoid},), PRODUCER)

# Released once, by `close` or at the latest by the finalizer; a finalizer that is taken back costs more than one that
# finds nothing to do.
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

function our_call(times)
    for _ in 1:times
        outstanding()
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

const BENCHES = [
    ("julia/call", "devexchange") => our_call,
    ("julia/call", "floor") => floor_call,
    ("julia/tensor-import", "devexchange") => our_import,
    ("julia/tensor-import", "floor") => floor_import,
    ("julia/tensor-round-trip", "devexchange") => our_round_trip,
    ("julia/tensor-round-trip", "floor") => floor_import,
]

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
