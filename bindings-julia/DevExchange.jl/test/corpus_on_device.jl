# The corpus of bad input in a process with a CUDA driver, which `devices.jl` starts.
using DevExchange
using Libdl
using Test

const DX = DevExchange

include("counting.jl")

suite = @testset Counting "the corpus" begin
    include("corpus_cases.jl")
    # Checks that there was a driver: without one, the corpus leaves these cases out.
    @test any(i -> corpus_text(i, "needs") == "cuda", corpus_cases())
end

println("counts: ", suite.passed, " passed, ", suite.failed, " failed")
exit(suite.failed == 0 && suite.passed > 0 ? 0 : 1)
