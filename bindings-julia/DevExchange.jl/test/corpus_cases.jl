# Runs every case of the corpus of bad input.
include("corpus.jl")

@testset "the corpus of bad input" begin
    for i in corpus_cases()
        @test corpus_case(i)
    end
end
