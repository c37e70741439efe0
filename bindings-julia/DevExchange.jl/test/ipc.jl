# Tensors and batches in host memory that processes share. `ipc_on_device.jl` tests device memory.

# Imports everything, prints what it sees, and waits for a line between the steps.
const IMPORTER = """
    using DevExchange
    const DX = DevExchange
    client = IpcClient(ARGS[1])
    t, fixed, b = import_tensor(client, "t"), import_tensor(client, "fixed"), import_batch(client, "b")
    close(client)
    println((collect(t), strides(t), isreadonly(t), collect(fixed), isreadonly(fixed)))
    println((collect(b["n"]), collect(b["s"]), size(b)))
    readline()
    println((t[1, 1], isopen(client)))
    t[1, 2] = 77
    close(t)
    println("closed")
    readline()
    """

@testset "ipc: an importer in another process" begin
    address = address_of_test("importer")
    server = IpcServer(address)
    @test isopen(server) && repr(server) == "IpcServer" && leases(server) == 0
    t = allocate_shared(Float32, (2, 3))
    @test all(iszero, t) && strides(t) == (3, 1) && plan_offer(t).kind === :view
    t .= [1 2 3; 4 5 6]
    offer(server, "t", t)
    # A view of shared memory is shared without a copy, too. A read-only one stays read-only.
    fixed = Tensor(view(t, 2, :); readonly=true)
    @test plan_offer(fixed).kind === :view && offer(server, "fixed", fixed) === nothing
    called = Ref(0)
    b = Batch((n=[1, missing, 3], s=["a", missing, "Zürich"]); release=() -> called[] += 1)
    plan = plan_offer(b)
    @test plan.kind === :copy && plan.copy_bytes > 0 && occursin("this process alone", plan.reason)
    offer(server, "b", b; copy=:if_needed)
    close(b)
    drain()
    # A copy is offered, so the batch's own memory is released.
    @test called[] == 1
    peer = Peer(IMPORTER, address)
    @test hear(peer) == repr((Float32[1 2 3; 4 5 6], (3, 1), false, Float32[4, 5, 6], true))
    @test hear(peer) == repr(([1, missing, 3], ["a", missing, "Zürich"], (3, 2)))
    @test leases(server) == 3
    # Each process sees what the other one writes, also after the offer has ended.
    t[1, 1] = 42
    @test withdraw(server, "t") && !withdraw(server, "t")
    tell(peer)
    @test hear(peer) == repr((42.0f0, false))
    @test hear(peer) == "closed" && t[1, 2] == 77
    @test comes(() -> leases(server) == 2)
    close(t)
    close(fixed)
    # The importer is killed, and its leases end.
    before = outstanding()
    kill_now(peer)
    @test comes(() -> leases(server) == 0) && outstanding() <= before
    close(server)
    close(server)
    @test repr(server) == "IpcServer (closed)" && comes(nothing_left)
end

const EXPORTER = """
    using DevExchange
    server = IpcServer(ARGS[1])
    t = allocate_shared(Int64, 4)
    t .= 1:4
    offer(server, "t", t)
    offer(server, "b", Batch((n=[1.5, 2.5],)); copy=:always)
    println("ready")
    while !eof(stdin)
        readline()
        println((collect(t), leases(server)))
    end
    """

@testset "ipc: an exporter in another process" begin
    address = address_of_test("exporter")
    peer = Peer(EXPORTER, address)
    @test hear(peer) == "ready"
    client = IpcClient(address; timeout=60)
    @test isopen(client) && repr(client) == "IpcClient"
    t, b = import_tensor(client, "t"), import_batch(client, "b")
    @test t isa Tensor{Int64,1} && t == 1:4 && same(b["n"], [1.5, 2.5]) && DX.device(t) == DX.CPU
    t[4] = 44
    tell(peer)
    @test hear(peer) == repr(([1, 2, 3, 44], 2))
    again = import_tensor(client, "t")
    close(again)
    # The tensor moves to another consumer, and its lease lasts until that one releases it.
    handed = export_move(t)
    tell(peer)
    @test hear(peer) == repr(([1, 2, 3, 44], 2))
    dlpack_release(handed)
    close(b)
    said() = (tell(peer); hear(peer))
    @test comes(() -> said() == repr(([1, 2, 3, 44], 0)))
    # Imported memory outlives its exporter, but nothing more can be imported.
    t = import_tensor(client, "t")
    kill_now(peer)
    @test t == [1, 2, 3, 44] && (t[1] = 5; t[1] == 5)
    @test refused(() -> import_tensor(client, "t"), DX.DEVX_CLOSED, "exporter is gone")
    foreach(close, (t, client, client))
    # An exporter that does not answer while it is stopped, and exits while its server is open.
    other = Peer(EXPORTER, address)
    @test hear(other) == "ready"
    stop_now(other)
    @test refused(() -> IpcClient(address; timeout=0.25), DX.DEVX_NOT_READY, "did not answer within 250ms")
    kill(other.process, SIGCONT)
    @test leave(other)
    @test refused(() -> import_tensor(client, "t"), DX.DEVX_CLOSED, "client")
    @test refused(() -> IpcClient(address), DX.DEVX_SYSTEM, "connect") && comes(nothing_left)
end

@testset "ipc: refusals" begin
    address = address_of_test("refusals")
    @test refused(() -> IpcServer(""), DX.DEVX_INVALID_ARGUMENT, "address is \"\"")
    @test refused(() -> IpcServer("@"), DX.DEVX_INVALID_ARGUMENT, "address is \"@\"")
    @test refused(() -> IpcServer("@" * "x"^200), DX.DEVX_INVALID_ARGUMENT, "107 bytes")
    @test refused(() -> IpcServer("a\0b"), DX.DEVX_INVALID_TEXT, "address")
    @test refused(() -> IpcServer("/there/is/no/such/directory"), DX.DEVX_SYSTEM)
    @test refused(() -> IpcClient("@"), DX.DEVX_INVALID_ARGUMENT, "address is \"@\"")
    @test refused(() -> IpcClient(address; timeout=-1), DX.DEVX_INVALID_ARGUMENT, "timeout is -1")
    @test refused(() -> IpcClient(address; timeout=1), DX.DEVX_SYSTEM, "connect")
    server = IpcServer(address)
    @test refused(() -> IpcServer(address), DX.DEVX_SYSTEM)
    client = IpcClient(address; timeout=Inf)
    private, b = Tensor([1, 2]), Batch((n=[1],))
    for x in (private, b)
        @test refused(() -> offer(server, "x", x), DX.DEVX_COPY_REQUIRED, "memory of this process alone")
        @test refused(() -> offer(server, "", x; copy=:always), DX.DEVX_INVALID_ARGUMENT, "name has 0 bytes")
        @test refused(() -> offer(server, "x"^5000, x; copy=:always), DX.DEVX_INVALID_ARGUMENT, "name has 5000 bytes")
        @test refused(() -> offer(server, "a\0b", x; copy=:always), DX.DEVX_INVALID_TEXT, "name")
        @test refused(() -> offer(server, "x", x; copy=9), DX.DEVX_INVALID_ARGUMENT, "copy is 9")
        @test refused(() -> offer(server, "x", x; copy=:perhaps), DX.DEVX_INVALID_ARGUMENT, "copy is :perhaps")
    end
    @test refused(() -> withdraw(server, "a\0b"), DX.DEVX_INVALID_TEXT, "name")
    @test refused(() -> import_tensor(client, "x"), DX.DEVX_INVALID_ARGUMENT, "nothing is offered")
    @test refused(() -> import_batch(client, "a\0b"), DX.DEVX_INVALID_TEXT, "name")
    offer(server, "t", private; copy=:always)
    offer(server, "b", b; copy=:always)
    @test refused(() -> import_batch(client, "t"), DX.DEVX_MISMATCH, "a tensor, not a batch")
    @test refused(() -> import_tensor(client, "b"), DX.DEVX_MISMATCH, "a batch, not a tensor")
    # A tensor that no Julia array can represent is given back at once.
    packed = foreign_tensor(UInt8[1]; dtype=DLDataType(1, 4, 1), shape=Int64[2], strides=Int64[1])[1]
    out = Ref{Ptr{Cvoid}}(C_NULL)
    record = Ref{DX.DevxError}()
    status = ccall(DX.devx_tensor_import[], Int32,
        (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{DX.DevxError}), packed, out, record)
    @test status == 0
    status = ccall(DX.devx_ipc_server_offer_tensor[], Int32,
        (Ptr{Cvoid}, Cstring, Ptr{Cvoid}, Int32, Ptr{DX.DevxError}), server.handle, "packed", out[], 2, record)
    @test status == 0
    DX.release_handle(DX.TAG_TENSOR, out[])
    @test refused(() -> import_tensor(client, "packed"), DX.DEVX_UNSUPPORTED, "dtype is uint4")
    @test comes(() -> leases(server) == 0)
    @test refused(() -> allocate_shared(Int, -1), DX.DEVX_INVALID_SHAPE, "size[1] is -1")
    @test refused(() -> allocate_shared(String, 1), DX.DEVX_UNSUPPORTED, "String")
    @test refused(() -> allocate_shared(RawElement{0x01,0x04,UInt8}, 3), DX.DEVX_UNSUPPORTED, "packed")
    @test size(allocate_shared(Int, (0, 2))) == (0, 2) && size(allocate_shared(Int, 2, 3, 1)) == (2, 3, 1)
    foreach(close, (private, b))
    @test refused(() -> offer(server, "t", private), DX.DEVX_CLOSED, "tensor")
    @test refused(() -> plan_offer(private), DX.DEVX_CLOSED) && refused(() -> plan_offer(b), DX.DEVX_CLOSED)
    close(server)
    for f in (s -> offer(s, "t", private), s -> withdraw(s, "t"), leases)
        @test refused(() -> f(server), DX.DEVX_CLOSED, "server")
    end
    @test refused(() -> import_tensor(client, "t"), DX.DEVX_CLOSED)
    close(client)
    @test comes(nothing_left)
    # An address that is a path is a file, which is removed with the server.
    path = joinpath(mktempdir(), "socket")
    server = IpcServer(path)
    close(IpcClient(path))
    @test ispath(path)
    close(server)
    @test !ispath(path)
end

@testset "ipc: do blocks close" begin
    address, mine, theirs = address_of_test("do"), Ref{Any}(), Ref{Any}()
    t = allocate_shared(Int, 2)
    t .= [3, 4]
    total = IpcServer(address) do server
        mine[] = server
        offer(server, "t", t)
        IpcClient(address; timeout=60) do client
            theirs[] = client
            u = import_tensor(client, "t")
            n = sum(u)
            close(u)
            return n
        end
    end
    @test total == 7 && !isopen(mine[]) && !isopen(theirs[])
    @test_throws ErrorException("in the block") IpcServer(server -> (mine[] = server; error("in the block")), address)
    @test !isopen(mine[]) && refused(() -> IpcClient(identity, address), DX.DEVX_SYSTEM, "connect")
    close(t)
    @test comes(nothing_left)
end

# Closes nothing: the finalizers release everything.
@noinline function forgotten_exchange(address)
    server, client = IpcServer(address), IpcClient(address)
    offer(server, "t", allocate_shared(Int, 4))
    import_tensor(client, "t")
    return nothing
end

# A socket of packets at an abstract address, that takes connections and never answers. Collects garbage while a client waits
# there on another thread, and says whether the client is still connected.
const COLLECTOR = """
    using DevExchange
    Threads.nthreads() == 1 && (println("1 thread"); exit())
    address = codeunits(ARGS[1])
    # Linux: AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC.
    listener = ccall(:socket, Cint, (Cint, Cint, Cint), 1, 5 | 0o4000 | 0o2000000, 0)
    record = [reinterpret(UInt8, UInt16[1]); 0x00; address[2:end]]
    ccall(:bind, Cint, (Cint, Ptr{UInt8}, Cuint), listener, record, length(record)) == 0 || error("bind")
    ccall(:listen, Cint, (Cint, Cint), listener, 1) == 0 || error("listen")
    client = Task() do
        try
            IpcClient(ARGS[1]; timeout=20)
        catch e
            e
        end
    end
    client.sticky = true
    ccall(:jl_set_task_tid, Cvoid, (Any, Cint), client, 1)
    schedule(client)
    accept() = ccall(:accept4, Cint, (Cint, Ptr{Cvoid}, Ptr{Cvoid}, Cint), listener, C_NULL, C_NULL, 0o4000)
    global peer
    while (global peer = accept()) < 0
        sleep(0.01)
    end
    GC.gc()
    # What the client said, then nothing more yet (-1) or the end (0).
    bytes = zeros(UInt8, 4096)
    receive() = ccall(:recv, Cssize_t, (Cint, Ptr{UInt8}, Csize_t, Cint), peer, bytes, length(bytes), 0)
    found = receive()
    while found > 0
        global found = receive()
    end
    ccall(:close, Cint, (Cint,), peer)
    println(found == -1 ? "waits" : "gave up", " ", DevExchange.status_name(fetch(client).status))
    """

@testset "ipc: garbage is collected while a client waits" begin
    said, ended = run_julia(`-e $COLLECTOR $(address_of_test("mute"))`; JULIA_NUM_THREADS=2)
    # Some builds of Julia have no more threads than the machine has processors.
    if said == "1 thread\n"
        @test_skip said
    else
        @test said == "waits DEVX_CLOSED\n" && ended
    end
end

@testset "ipc: many imports, and forgotten ones" begin
    address = address_of_test("many")
    forgotten_exchange(address)
    @test comes(nothing_left) && refused(() -> IpcClient(address), DX.DEVX_SYSTEM)
    # Within one process, where everything can be counted.
    server, client = IpcServer(address), IpcClient(address)
    t, most, files = allocate_shared(Int, 16), Ref(0), length(readdir("/proc/self/fd"))
    b = Batch((n=collect(1:100),))
    offer(server, "b", b; copy=:always)
    for round in 1:10_000
        t[1] = round
        round % 10 == 1 && offer(server, "t", t)
        u = import_tensor(client, "t")
        u[1] == round || (@test u[1] == round)
        close(u)
        round % 10 == 0 && close(import_batch(client, "b"))
        round % 1_000 == 0 || continue
        GC.gc(false)
        most[] = max(most[], outstanding(), leases(server), length(readdir("/proc/self/fd")) - files)
    end
    @test most[] < 100 && comes(() -> leases(server) == 0)
    # From all threads.
    @test on_all_threads() do k
        own = IpcClient(address)
        for round in 1:100
            u = import_tensor(isodd(k) ? own : client, "t")
            u[k] = round
            u[k] == round || return false
            close(u)
        end
        close(own)
        return true
    end
    @test comes(() -> leases(server) == 0) && t[1:min(WORKERS, 16)] == fill(100, min(WORKERS, 16))
    foreach(close, (t, b, client, server))
    @test comes(nothing_left)
end

const IPC_ON_DEVICE = joinpath(@__DIR__, "ipc_on_device.jl")

@testset "ipc: on a device" begin
    directory = place_driver()
    if directory === nothing
        @test_skip place_driver() !== nothing
    else
        output, ended = run_with_driver(directory, `$IPC_ON_DEVICE`)
        counts = match(r"^ipc on a device: (\d+) passed, 0 failed$"m, output)
        ok = ended && counts !== nothing && parse(Int, counts.captures[1]) >= 10
        ok || println(output)
        @test ok
    end
end
