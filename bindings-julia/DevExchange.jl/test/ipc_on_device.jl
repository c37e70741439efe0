# Device memory shared between two processes, both on the simulated driver: `ipc.jl` starts this with it in reach.
using DevExchange
using Libdl
using Test

const DX = DevExchange

include("counting.jl")
include("peers.jl")

const DRIVER = Libdl.dlopen("libcuda.so.1")
stat(name) = ccall(Libdl.dlsym(DRIVER, :simcuda_stat), Int64, (Cstring,), name)
const GPU = DX.cuda()

comes(f) = timedwait(f, 60.0; pollint=0.002) === :ok
all_back() = comes(() -> releases_waiting() == 0 && (drain(); outstanding() == 0)) && releases_lost() == 0

# Imports a tensor and a batch, says what it sees, writes, gives back one of them and holds the other.
const IMPORTER = """
    using DevExchange
    const DX = DevExchange
    client = IpcClient(ARGS[1]; timeout=60)
    s = DeviceStream(DX.cuda())
    t, b = import_tensor(client, "t"), import_batch(client, "b")
    println((DX.device(t), read!(zeros(Float32, size(t)), t, s), strides(t)))
    println((collect(b["n"]), collect(b["s"])))
    readline()
    write!(t, Float32[10 20; 30 40], s)
    used_on(t, s)
    close(t)
    println("closed")
    readline()
    """

# Device memory of a manager, offered, imported, written by the other process, and given back when that says so or dies.
function exchange(make)
    before, address = stat("live_device"), address_of_test("device")
    server, manager, s = IpcServer(address), make(), DeviceStream(GPU)
    ordered = make === driver_manager ? nothing : s
    t = allocate(manager, Float32, (2, 2), GPU; stream=ordered)
    write!(t, Float32[1 2; 3 4], s)
    produced_on(t, s)
    plan = plan_offer(t)
    offer(server, "t", t)
    # A batch of the host's beside it.
    small = Batch((n=[1, missing, 3], s=["a", "b", missing]))
    offer(server, "b", small; copy=:always)
    peer = Peer(IMPORTER, address)
    ok = plan.kind === :view && hear(peer) == repr((GPU, Float32[1 2; 3 4], (2, 1)))
    ok &= hear(peer) == repr(([1, missing, 3], ["a", "b", missing])) && leases(server) == 2
    tell(peer)
    ok &= hear(peer) == "closed" && comes(() -> leases(server) == 1)
    ok &= read!(zeros(Float32, 2, 2), t, s) == [10 20; 30 40]
    # Another one, which is killed while it has both.
    other = Peer(IMPORTER, address)
    ok &= hear(other) == repr((GPU, Float32[10 20; 30 40], (2, 1))) && !isempty(hear(other)) && leases(server) == 3
    close(t)
    withdraw(server, "t")
    # Ours is given up, its memory stays for the other one.
    ok &= stat("live_device") > before || ordered !== nothing
    ok &= DX.statistics(manager).bytes == 16
    kill_now(other)
    ok &= comes(() -> leases(server) == 1) && comes(() -> DX.statistics(manager).bytes == 0)
    tell(peer)
    ok &= leave(peer) && comes(() -> leases(server) == 0)
    foreach(close, (server, small, manager))
    ok &= all_back()
    close(s)
    return ok && stat("live_device") == before
end

suite = @testset Counting "ipc on a device" begin
    for make in (driver_manager, () -> pool_manager(shareable=true))
        @test exchange(make)
        @test all_back()
    end
    # What cannot be shared says so.
    s, server = DeviceStream(GPU), IpcServer(address_of_test("refused"))
    pool, managed = pool_manager(), managed_manager()
    of_pool, of_host = allocate(pool, Int, 2, GPU; stream=s), allocate(pool, Int, 2, DX.PINNED)
    of_managed, of_default = allocate(managed, Int, 2, GPU), allocate(Int, 2, GPU; stream=s)
    for t in (of_pool, of_managed, of_host, of_default)
        plan = plan_offer(t)
        @test plan.kind === :impossible && !isempty(plan.reason)
        @test refused(() -> offer(server, "t", t; copy=:if_needed), DX.DEVX_IMPOSSIBLE)
    end
    foreach(close, (of_pool, of_host, of_managed, of_default, pool, managed, server))
    @test all_back() && stat("findings") == 0
    close(s)
end

println("ipc on a device: ", suite.passed, " passed, ", suite.failed, " failed")
exit(suite.failed == 0 ? 0 : 1)
