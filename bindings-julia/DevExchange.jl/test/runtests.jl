# The tests of DevExchange.jl. Run them with one thread and with several (JULIA_NUM_THREADS).
using DevExchange
using Dates
using Libdl
using Serialization
using Test

const DX = DevExchange

include("counting.jl")
include("producers.jl")
include("foreign.jl")
include("peers.jl")

suite = @testset Counting "DevExchange" begin
    include("records.jl")
    include("tensors.jl")
    include("batches.jl")
    include("types.jl")
    include("builders.jl")
    include("conversions.jl")
    include("refusals.jl")
    include("corpus_cases.jl")
    include("ownership.jl")
    include("allocations.jl")
    include("threads.jl")
    include("processes.jl")
    include("batch_streams.jl")
    include("async.jl")
    include("managers.jl")
    include("faults.jl")
    include("devices.jl")
    include("cuda_jl.jl")
    include("ipc.jl")
end

println("julia ", VERSION, ", ", Threads.nthreads(), " thread(s), ", DX.library_path())
println("counts: ", suite.passed, " passed, ", suite.failed, " failed, ", suite.skipped, " skipped")
exit(suite.failed == 0 && suite.passed > 0 ? 0 : 1)
