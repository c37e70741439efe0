# The extension for CUDA.jl with a stand-in for CUDA.jl, in processes of their own with the simulated driver.

const ON_CUDA_JL = joinpath(@__DIR__, "on_cuda_jl.jl")
const WITH_STAND_IN = """
    using DevExchange, Libdl
    const DX = DevExchange
    include($(repr(joinpath(@__DIR__, "stand_in", "load.jl"))))
    values = Float32[1, 2, 3, 4]
    s = DeviceStream(DX.cuda())
    """

@testset "CUDA.jl: with a stand-in" begin
    directory = place_driver()
    if directory === nothing
        @test_skip place_driver() !== nothing
    else
        schedule = Threads.nthreads() == 1 ? NamedTuple() : (SIMCUDA_MODE="threads",)
        output, ended = run_with_driver(directory, `$ON_CUDA_JL`; SIMCUDA_DEVICES=2, schedule...)
        counts = match(r"^on CUDA.jl: (\d+) passed, 0 failed$"m, output)
        ok = ended && counts !== nothing && parse(Int, counts.captures[1]) > 50
        ok || println(output)
        @test ok
        # The program in the guide.
        guide = read(normpath(joinpath(@__DIR__, "..", "..", "..", "docs", "guide.md")), String)
        program = match(r"^## Arrays of CUDA.jl.*?^```julia\n(.*?)^```"ms, guide).captures[1]
        output, ended = run_with_driver(directory, WITH_STAND_IN * program)
        ended && output == "sum 21.0\n" || println(output)
        @test ended && output == "sum 21.0\n"
        # Julia exits while an array is in use. The simulated driver fails the process if the memory is freed too early.
        output, ended = run_with_driver(directory, WITH_STAND_IN * """
            t = copy_to(values, DX.cuda(), s)
            a = unsafe_wrap(CuArray, t)
            close(t)
            b = copy(a)
            """; SIMCUDA_MODE="lazy")
        ended || println(output)
        @test ended
        # Another thread cannot name the stream that used this array last. So its memory is never given back, and this is
        # logged.
        output, ended = run_with_driver(directory, WITH_STAND_IN * """
            t = copy_to(values, DX.cuda(), s)
            a = unsafe_wrap(CuArray, t)
            close(t)
            stream!(() -> pointer(a), per_thread_stream())
            CUDA.unsafe_free!(a)
            a = nothing
            drain()
            GC.gc()
            drain()
            println("failures ", DX.release_failures(), ", outstanding ", outstanding())
            """)
        @test ended && occursin("stream is 2", output) && occursin("failures 1, outstanding 1\n", output)
    end
end
