# Two devices in one exchange, as far as the simulated driver shows two. Included by `on_device.jl`.

const OTHER_GPU = DX.cuda(1)

# A copy that is queued on a stream by the driver itself, as a consumer's kernel would be.
function queue_copy(to, from, bytes, stream)
    code = ccall(driver(:cuMemcpyDtoDAsync_v2), Cint, (UInt64, UInt64, Csize_t, Ptr{Cvoid}),
        UInt64(UInt(pointer(to))), UInt64(UInt(pointer(from))), bytes, Ptr{Cvoid}(UInt(stream.value)))
    return code == 0
end

# To the other device and back, on streams of either.
function tensors_between_devices()
    streams = (DeviceStream(GPU), DeviceStream(OTHER_GPU))
    a = Float32[10i + j for i in 1:3, j in 1:4]
    ok = true
    for there in streams, back in streams
        t = copy_to(PermutedDimsArray(permutedims(a), (2, 1)), GPU, streams[1])
        over = copy_to(t, OTHER_GPU, there)
        close(t)
        again = copy_to(over, GPU, back)
        ok &= DX.device(over) == OTHER_GPU && DX.device(again) == GPU
        ok &= check_pointers(over) === nothing && check_pointers(again) === nothing
        close(over)
        ok &= read!(zeros(Float32, 3, 4), again, streams[1]) == a
        close(again)
    end
    ok &= releases_done()
    foreach(close, streams)
    return ok
end

function batches_between_devices()
    streams = (DeviceStream(GPU), DeviceStream(OTHER_GPU))
    wanted = (n=[1, missing, 3], t=["Zürich", missing, ""])
    host = Batch(wanted)
    here = copy_to(host, GPU, streams[1])
    close(host)
    there = copy_to(here, OTHER_GPU, streams[2])
    close(here)
    ok = DX.device(there) == OTHER_GPU
    back = copy_to(there, DX.CPU, streams[2])
    close(there)
    ok &= all(same(back[k], column) for (k, column) in enumerate(wanted))
    close(back)
    ok &= releases_done()
    foreach(close, streams)
    return ok
end

# A consumer that works on the other device comes after the producer, and the release after the consumer.
function used_on_the_other_device()
    streams = (DeviceStream(GPU), DeviceStream(OTHER_GPU))
    source = copy_to([1.0, 2.0, 3.0], GPU, streams[1])
    memory = copy_to(source, GPU, streams[1])
    called = Ref(0)
    schema = Schema(Field("x", "g"))
    b = Batch(schema, [Node(3, (nothing, pointer(memory)); null_count=0)]; device=GPU, release=() -> called[] += 1)
    close(schema)
    produced_on(b, streams[1])
    array, fields = Ref(ArrowDeviceArray()), Ref(ArrowSchema())
    export_move(b, array, fields)
    ok = array[].sync_event != C_NULL
    imported = import_arrow_device(array, fields)
    target = allocate(Float64, 3, OTHER_GPU; stream=streams[2])
    wait_on(imported, streams[2])
    gate = hold_up(streams[2])
    ok &= queue_copy(target, memory, 24, streams[2])
    used_on(imported, streams[2])
    used_on(memory, streams[2])
    close(imported)
    close(memory)
    drain()
    ok &= called[] == 0
    let_go(gate)
    ok &= releases_done() && called[] == 1
    ok &= read!(zeros(3), target, streams[2]) == [1, 2, 3]
    foreach(close, (source, target))
    ok &= releases_done()
    foreach(close, streams)
    return ok
end

const SCENARIOS_OF_TWO = (tensors_between_devices, batches_between_devices, used_on_the_other_device)
