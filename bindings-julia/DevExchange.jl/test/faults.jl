# Faults, in a process of their own in which the library keeps no memory: see faults_in_process.jl.

@testset "faults" begin
    program = joinpath(@__DIR__, "faults_in_process.jl")
    julia = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project()) $program`
    output = withenv(() -> read(ignorestatus(julia), String), "DEVEXCHANGE_KEEP_BLOCKS" => "0")
    print(output)
    said = match(r"faults: (\d+) allocations, (\d+) callbacks\n$", output)
    @test said !== nothing && parse(Int, said[1]) > 5000 && parse(Int, said[2]) > 150
end
