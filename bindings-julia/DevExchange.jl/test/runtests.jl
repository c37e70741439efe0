# Runs all tests of DevExchange.jl, or the named ones (`runtests.jl tensors batches`). Tests that depend on threads need two
# runs: with one thread and with several (JULIA_NUM_THREADS). With `julia -O1`, which compiles the tests faster, `allocations`
# only runs if it is named: less optimised code allocates more.
using DevExchange
using Dates
using Libdl
import LinearAlgebra
using Serialization
using Test

const DX = DevExchange

include("counting.jl")
include("broken_logger.jl")
include("producers.jl")
include("foreign.jl")
include("peers.jl")
include("columns.jl")

const FILES = ["records", "tensors", "linear_algebra", "batches", "types", "builders", "conversions", "refusals",
    "corpus_cases", "ownership", "allocations", "threads", "processes", "interrupts", "batch_streams", "async", "managers",
    "faults", "devices", "cuda_jl", "ipc"]
const UNKNOWN = setdiff(ARGS, FILES)
isempty(UNKNOWN) || error("there are no tests $(join(UNKNOWN, ", ")); there are: $(join(FILES, ", "))")
const UNASKED = Base.JLOptions().opt_level < 2 ? setdiff(FILES, ["allocations"]) : FILES

suite = @testset Counting "DevExchange" begin
    for file in FILES
        file in (isempty(ARGS) ? UNASKED : ARGS) && include("$file.jl")
    end
end

println("julia ", VERSION, ", ", Threads.nthreads(), " thread(s), ", DX.library_path())
println("counts: ", suite.passed, " passed, ", suite.failed, " failed, ", suite.skipped, " skipped")
exit(suite.failed == 0 && suite.passed > 0 ? 0 : 1)
