# Exchanges with two devices, as far as the simulated driver models two. Included by `on_device.jl`.

const OTHER_GPU = DX.cuda(1)

# Queues a copy with the driver itself, as a consumer would queue a kernel.
function queue_copy(to, from, bytes, stream)
    code = ccall(driver(:cuMemcpyAsync), Cint, (UInt64, UInt64, Csize_t, Ptr{Cvoid}),
        UInt64(UInt(pointer(to))), UInt64(UInt(pointer(from))), bytes, Ptr{Cvoid}(UInt(stream.value)))
    return code == 0
end

# Copies to the other device and back, on streams of both.
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

# A consumer on the other device works after the producer, and the release comes after the consumer's work.
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

# Calls `f` while the other device is the driver's current one, as a consumer does that works on a default stream there.
function on_the_other_device(f)
    context, popped = Ref{Ptr{Cvoid}}(C_NULL), Ref{Ptr{Cvoid}}(C_NULL)
    code = ccall(driver(:cuDevicePrimaryCtxRetain), Cint, (Ptr{Ptr{Cvoid}}, Cint), context, 1)
    code |= ccall(driver(:cuCtxPushCurrent_v2), Cint, (Ptr{Cvoid},), context[])
    code == 0 || error("the other device is not there: $code")
    result = f()
    code = ccall(driver(:cuCtxPopCurrent_v2), Cint, (Ptr{Ptr{Cvoid}},), popped)
    code |= ccall(driver(:cuDevicePrimaryCtxRelease_v2), Cint, (Cint,), 1)
    code == 0 && popped[] == context[] || error("its context is not current any more: $code")
    return result
end

# A column over foreign memory, which counts its release.
function foreign_column(memory, place, called)
    schema = Schema(Field("x", "g"))
    b = Batch(schema, [Node(3, (nothing, memory); null_count=0)]; device=place, release=() -> called[] += 1)
    close(schema)
    return b
end

# A default stream that is named with its device is that of this device, wherever the data is: for a wait, a release, an export
# and an import.
function on_a_default_stream_of_the_other_device()
    s, there = DeviceStream(GPU), DeviceStream(OTHER_GPU)
    legacy = DeviceStream(OTHER_GPU, DX.LEGACY_STREAM)
    source = copy_to([1.0, 2.0, 3.0], GPU, s)
    memory, over = copy_to(source, GPU, s), allocate(Float64, 3, OTHER_GPU; stream=legacy)
    called = Ref(0)
    b = foreign_column(pointer(memory), GPU, called)
    produced_on(b, s)
    wait_on(b, legacy)
    gate = on_the_other_device() do
        gate = hold_up(legacy)
        queue_copy(over, memory, 24, legacy) || error("no copy")
        gate
    end
    used_on(b, legacy)
    close(b)
    drain()
    sleep(0.02)
    ok = called[] == 0
    let_go(gate)
    ok &= releases_done() && called[] == 1
    # The same stream for an import, and in the request of an export.
    on_the_other_device(() -> queue_copy(memory, over, 24, legacy)) || error("no copy")
    used_on(over, legacy)
    exported = import_dlpack(export_share(memory; stream=-1); stream=legacy)
    back = copy_to(exported, GPU, s)
    ok &= read!(zeros(3), back, s) == [1, 2, 3]
    asked = import_dlpack(export_share(back; stream=legacy); stream=-1)
    on_the_other_device(() -> queue_copy(over, asked, 24, legacy)) || error("no copy")
    used_on(asked, legacy)
    ok &= read!(zeros(3), over, legacy) == [1, 2, 3]
    # Memory of a device cannot be allocated in the order of another device's default stream.
    ok &= refused(() -> allocate(Float64, 3, GPU; stream=legacy), DX.DEVX_INVALID_STREAM, "cuda:1")
    pool = pool_manager()
    ok &= refused(() -> allocate(pool, Float64, 3, GPU; stream=legacy), DX.DEVX_INVALID_STREAM, "cuda:1")
    foreach(close, (source, memory, over, exported, back, asked, pool))
    ok &= releases_done()
    foreach(close, (s, there, legacy))
    return ok
end

# Pinned memory for the other device: default streams are those of that device, by number and with the kind of memory.
function pinned_for_the_other_device()
    ok = true
    for stream in (DX.LEGACY_STREAM, DeviceStream(DX.PINNED, DX.LEGACY_STREAM))
        called, address = Ref(0), Ref{Ptr{Cvoid}}(C_NULL)
        there = on_the_other_device() do
            code = ccall(driver(:cuMemHostAlloc), Cint, (Ptr{Ptr{Cvoid}}, Csize_t, Cuint), address, 24, 1)
            code == 0 || error("no memory: $code")
            copy_to([1.0, 2.0, 3.0], OTHER_GPU, DeviceStream(OTHER_GPU, DX.LEGACY_STREAM))
        end
        b = foreign_column(Ptr{Float64}(address[]), DX.PINNED, called)
        t = Tensor(root(b))
        gate = on_the_other_device() do
            gate = hold_up((value=DX.LEGACY_STREAM,))
            queue_copy(t, there, 24, (value=DX.LEGACY_STREAM,)) || error("no copy")
            gate
        end
        used_on(there, DX.LEGACY_STREAM)
        used_on(t, stream)
        let_go(gate)
        ready = synchronize(t, stream)
        whole = synchronize(b, stream)
        ok &= ready == [1, 2, 3] && root(whole) == [1, 2, 3]
        foreach(close, (t, ready, whole, there, b))
        ok &= releases_done() && called[] == 1
        ok &= ccall(driver(:cuMemFreeHost), Cint, (Ptr{Cvoid},), address[]) == 0
    end
    return ok
end

# If memory belongs to no device, a manager in Julia is asked for memory of the stream's device.
function asked_for_the_device_of_the_stream()
    s, legacy = DeviceStream(OTHER_GPU), DeviceStream(OTHER_GPU, DX.LEGACY_STREAM)
    asked = DX.DLDevice[]
    m = MemoryManager() do request
        push!(asked, request.device)
        throw(DevExchangeError(DX.DEVX_OUT_OF_MEMORY, "there is none"))
    end
    ok = true
    for kind in (DX.PINNED, DX.MANAGED), stream in (s, legacy)
        ok &= refused(() -> allocate(m, Float64, 3, kind; stream=stream), DX.DEVX_OUT_OF_MEMORY, "there is none")
        ok &= pop!(asked) == DX.DLDevice(kind.device_type, 1)
    end
    close(m)
    ok &= releases_done()
    foreach(close, (s, legacy))
    return ok
end

const SCENARIOS_OF_TWO = (tensors_between_devices, batches_between_devices, used_on_the_other_device,
                          on_a_default_stream_of_the_other_device, pinned_for_the_other_device,
                          asked_for_the_device_of_the_stream)
