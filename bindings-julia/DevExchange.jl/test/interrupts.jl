# Interrupts (Ctrl-C) at random moments, and while nothing runs.

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

@testset "interrupts: while nothing runs" begin
    program = joinpath(@__DIR__, "interrupted_waits.jl")
    for threads in (1, 4)
        output, ended = run_julia(`--threads=$threads $program`)
        scenes = ("in_source", "in_manager", "in_put", "behind_calls", "behind_a_channel")
        ok = ended && output == join("$scene: interrupted\n" for scene in scenes)
        ok || println(output)
        @test ok
    end
end
