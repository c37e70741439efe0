# Interrupts (Ctrl-C) at random moments.

@testset "interrupts" begin
    program = joinpath(@__DIR__, "interrupted.jl")
    output, ended = run_julia(`--threads=1 $program 300`)
    for scene in ("managers", "sources", "foreign_consumers", "batches", "deliveries")
        ok = occursin("$scene: interrupted, 0 lost, 0 outstanding, 0 rooted\n", output)
        ok || println(output)
        @test ok
    end
    @test ended
end
