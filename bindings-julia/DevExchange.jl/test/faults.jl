# Runs faults_in_process.jl in a process of its own, in which the library keeps no blocks.

@testset "faults" begin
    program = joinpath(@__DIR__, "faults_in_process.jl")
    julia = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project()) $program`
    output = withenv(() -> read(ignorestatus(julia), String), "DEVEXCHANGE_KEEP_BLOCKS" => "0")
    print(output)
    said = match(r"faults: (\d+) allocations, (\d+) callbacks\n$", output)
    @test said !== nothing && parse(Int, said[1]) > 5000 && parse(Int, said[2]) > 150
end
