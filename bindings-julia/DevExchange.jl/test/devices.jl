# CUDA: the errors without a driver, and everything else in a process of its own with the simulated driver.

using Libdl

const ON_DEVICE = joinpath(@__DIR__, "on_device.jl")
const CORPUS_ON_DEVICE = joinpath(@__DIR__, "corpus_on_device.jl")

@testset "devices: without a driver" begin
    info = device_info(DX.CPU)
    @test info.name == "host memory" && info.total_bytes == -1 && device_count(DX.kDLCPU) == 1
    @test refused(() -> device_count(99), DX.DEVX_DEVICE, "99")
    @test refused(() -> DeviceStream(DX.CPU), DX.DEVX_DEVICE, "no streams")
    @test refused(() -> DeviceStream(DX.CPU, 1), DX.DEVX_DEVICE, "no streams")
    @test refused(() -> DeviceStream(DLDevice(99, 0)), DX.DEVX_DEVICE, "99")
    # Memory of the CPU is used like that of any device, but has no streams.
    t = allocate(Float32, (2, 3), DX.CPU)
    t .= 1:2
    @test t == [1 1 1; 2 2 2] && strides(t) == (3, 1) && !isreadonly(t) && check_pointers(t) === nothing
    for f in (() -> wait_on(t, 1), () -> used_on(t, 1), () -> produced_on(t, 1))
        @test refused(f, DX.DEVX_DEVICE, "streams")
    end
    # A copy accepts any stream, wherever the memory is.
    twice = copy_to(t, DX.CPU, 1)
    write!(twice, 2 .* t, 1)
    @test read!(zeros(Float32, 2, 3), twice, 1) == [2 2 2; 4 4 4] && t == [1 1 1; 2 2 2]
    # Elements are taken in order, wherever the indices begin.
    write!(twice, FromZero(Float32[1 2 3; 4 5 6]), 1)
    @test read!(FromZero(zeros(Float32, 2, 3)), twice, 1).array == [1 2 3; 4 5 6]
    close(twice)
    # Arrays with other elements, or with another number of dimensions.
    for f in (array -> read!(array, t, 1), array -> write!(t, array, 1))
        @test refused(() -> f(zeros(2, 3)), DX.DEVX_MISMATCH, "array has eltype Float64", "tensor has eltype Float32")
        @test refused(() -> f(Any[]), DX.DEVX_MISMATCH, "array has eltype Any", "tensor has eltype Float32")
        @test refused(() -> f(zeros(Float32, 6)), DX.DEVX_INVALID_SHAPE, "size (6,)", "size (2, 3)")
    end
    # Memory of the caller, for which -1 also means the CPU.
    own = Tensor(pointer(t), (6,); device=DLDevice(DX.kDLCPU, -1), root=t)
    @test own == [1, 1, 1, 2, 2, 2] && DX.device(own) == DX.CPU
    close(own)
    @test refused(() -> Tensor(pointer(t), (6,); device=DLDevice(99, 0)), DX.DEVX_DEVICE, "99")
    # Handles of streams, as the driver's functions take them.
    @test DX.stream_value(UInt(0)) === Int64(1) && DX.stream_value(UInt(1)) === Int64(1)
    @test DX.stream_value(UInt(0x7fff_0000_1230)) === Int64(0x7fff_0000_1230)
    @test refused(() -> DX.stream_value(UInt(2)), DX.DEVX_INVALID_STREAM, "stream is 2")
    p = export_share(t)
    @test refused(() -> import_dlpack(p; stream=1), DX.DEVX_INVALID_STREAM, "stream is 1")
    dlpack_release(p)
    close(t)
    b = Batch((a=[1],))
    @test refused(() -> wait_on(b, 1), DX.DEVX_DEVICE) && refused(() -> used_on(b, 1), DX.DEVX_DEVICE)
    close(b)
    @test releases_waiting() == 0 && releases_lost() == 0
    if Libdl.dlopen_e("libcuda.so.1") == C_NULL
        for f in (device_count, () -> device_info(DX.cuda()), () -> DeviceStream(DX.cuda()),
                  () -> allocate(Int, 3, DX.cuda()), () -> allocate(Int, 3, DX.PINNED),
                  () -> copy_to([1], DX.cuda(), 1))
            @test refused(f, DX.DEVX_DEVICE, "no CUDA driver")
        end
    else
        @test_skip "there is a CUDA driver" == ""
    end
    @test nothing_left()
end

# These tests run twice, with one thread and with several, and each run has its own schedule.
@testset "devices: with the simulated driver" begin
    directory = place_driver()
    if directory === nothing
        @test_skip place_driver() !== nothing
    else
        schedule = Threads.nthreads() == 1 ? NamedTuple() : (SIMCUDA_MODE="threads",)
        output, ended = run_with_driver(directory, `$ON_DEVICE`; SIMCUDA_DEVICES=2, schedule...)
        counts = match(r"^on a device: (\d+) passed, 0 failed$"m, output)
        ok = ended && counts !== nothing && parse(Int, counts.captures[1]) > 20
        ok || println(output)
        @test ok
        # The corpus of bad input, with the cases that need a driver.
        output, ended = run_with_driver(directory, `$CORPUS_ON_DEVICE`)
        counts = match(r"^counts: (\d+) passed, 0 failed$"m, output)
        ok = ended && counts !== nothing && parse(Int, counts.captures[1]) > 300
        ok || println(output)
        @test ok
        # A driver without devices.
        output, ended = run_with_driver(directory, "using DevExchange; device_count()"; SIMCUDA_DEVICES=0)
        @test !ended && occursin("DEVX_DEVICE", output)
    end
end
