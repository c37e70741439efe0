# Device memory that two processes share, each with the simulated driver. `ipc.jl` starts this program.
using DevExchange
using Libdl
using Test

const DX = DevExchange

include("counting.jl")
include("peers.jl")
include("driver.jl")

comes(f) = timedwait(f, 300.0; pollint=0.002) === :ok
all_given_back() = comes(() -> releases_waiting() == 0 && (drain(); outstanding() == 0)) && releases_lost() == 0

# Imports everything, prints what it sees, writes to the tensors, releases them, and keeps the batch.
const IMPORTER = """
    using DevExchange
    const DX = DevExchange
    client = IpcClient(ARGS[1]; timeout=60)
    s = DeviceStream(DX.cuda())
    plain, pooled, b = import_tensor(client, "plain"), import_tensor(client, "pooled"), import_batch(client, "b")
    seen(t) = (DX.device(t), read!(zeros(Float32, size(t)), t, s), strides(t))
    println((seen(plain), seen(pooled)))
    println((collect(b["n"]), collect(b["s"])))
    readline()
    for t in (plain, pooled)
        write!(t, Float32[10 20; 30 40], s)
        used_on(t, s)
        close(t)
    end
    println("closed")
    readline()
    """

said(tensor) = repr(ntuple(_ -> (GPU, tensor, (2, 1)), 2))

# Device memory of two managers is offered, imported and written by other processes, and given back when these release it or
# die.
function exchange()
    before, address = stat("live_device"), address_of_test("device")
    server, s = IpcServer(address), DeviceStream(GPU)
    plain, pooled = driver_manager(), pool_manager(shareable=true)
    tensors = (allocate(plain, Float32, (2, 2), GPU), allocate(pooled, Float32, (2, 2), GPU; stream=s))
    ok = true
    for (name, t) in zip(("plain", "pooled"), tensors)
        write!(t, Float32[1 2; 3 4], s)
        produced_on(t, s)
        ok &= plan_offer(t).kind === :view
        offer(server, name, t)
    end
    # A batch in host memory, too.
    small = Batch((n=[1, missing, 3], s=["a", "b", missing]))
    offer(server, "b", small; copy=:always)
    peer = Peer(IMPORTER, address)
    ok &= hear(peer) == said(Float32[1 2; 3 4])
    ok &= hear(peer) == repr(([1, missing, 3], ["a", "b", missing])) && leases(server) == 3
    tell(peer)
    ok &= hear(peer) == "closed" && comes(() -> leases(server) == 1)
    ok &= all(t -> read!(zeros(Float32, 2, 2), t, s) == [10 20; 30 40], tensors)
    # Another importer is killed while it holds everything.
    other = Peer(IMPORTER, address)
    ok &= hear(other) == said(Float32[10 20; 30 40]) && !isempty(hear(other)) && leases(server) == 4
    foreach(close, tensors)
    foreach(name -> withdraw(server, name), ("plain", "pooled"))
    # This process gives up its tensors, but the memory stays for the other importer.
    in_use() = DX.statistics(plain).bytes + DX.statistics(pooled).bytes
    ok &= in_use() == 32 && stat("live_device") > before
    kill_now(other)
    ok &= comes(() -> leases(server) == 1) && comes(() -> in_use() == 0)
    tell(peer)
    ok &= leave(peer) && comes(() -> leases(server) == 0)
    foreach(close, (server, small, plain, pooled))
    ok &= all_given_back()
    close(s)
    return ok && stat("live_device") == before
end

suite = @testset Counting "ipc on a device" begin
    @test exchange()
    @test all_given_back()
    # Memory that cannot be shared is copied if that is allowed.
    s, server = DeviceStream(GPU), IpcServer(address_of_test("copied"))
    pool, managed = pool_manager(), managed_manager()
    of_pool, of_host = allocate(pool, Int, 2, GPU; stream=s), allocate(pool, Int, 2, DX.PINNED)
    of_managed, of_default = allocate(managed, Int, 2, GPU), allocate(Int, 2, GPU; stream=s)
    for t in (of_pool, of_managed, of_host, of_default)
        plan = plan_offer(t)
        @test plan.kind === :copy && plan.copy_bytes == 16 && !isempty(plan.reason)
        @test refused(() -> offer(server, "t", t; copy=:never), DX.DEVX_COPY_REQUIRED)
        offer(server, "t", t; copy=:if_needed)
    end
    foreach(close, (of_pool, of_host, of_managed, of_default, pool, managed, server))
    @test all_given_back() && stat("findings") == 0
    close(s)
end

println("ipc on a device: ", suite.passed, " passed, ", suite.failed, " failed")
exit(suite.failed == 0 ? 0 : 1)
