# The corpus of bad input in a process that has a CUDA driver; `devices.jl` starts it.
using DevExchange
using Libdl
using Test

const DX = DevExchange

include("counting.jl")

suite = @testset Counting "the corpus" begin
    include("corpus_cases.jl")
    # Otherwise there was no driver, and these were the cases of a machine without one.
    @test any(i -> corpus_text(i, "needs") == "cuda", corpus_cases())
end

println("counts: ", suite.passed, " passed, ", suite.failed, " failed")
exit(suite.failed == 0 && suite.passed > 0 ? 0 : 1)
