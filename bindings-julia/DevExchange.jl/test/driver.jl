# The simulated driver, for tests in a process of their own: its counters, work that waits, and the checks at the end.

const DRIVER = Libdl.dlopen("libcuda.so.1")
driver(name) = Libdl.dlsym(DRIVER, name)
# A counter of the simulated driver. The driver of a GPU has none.
stat(name) = ccall(driver(:simcuda_stat), Int64, (Cstring,), name)

const GPU = DX.cuda()

# Queues work that waits for a semaphore, which `let_go` posts.
function hold_up(stream)
    gate = Libc.malloc(64)
    ccall(:sem_init, Cint, (Ptr{Cvoid}, Cint, Cuint), gate, 0, 0)
    code = ccall(driver(:cuLaunchHostFunc), Cint, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}),
        Ptr{Cvoid}(UInt(stream.value)), cglobal(:sem_wait), gate)
    code == 0 || error("the work could not be queued: $code")
    return gate
end
let_go(gate) = ccall(:sem_post, Cint, (Ptr{Cvoid},), gate)

# Waits until no release waits for work on a stream. Another thread calls these releases.
releases_done() = timedwait(() -> releases_waiting() == 0, 300.0; pollint=0.001) === :ok && drain() >= 0

# Waits until at most n streams are left. That thread also destroys closed streams, after the releases that waited for them.
streams_left(n) = timedwait(() -> stat("live_streams") <= n, 300.0; pollint=0.001) === :ok

all_back() = releases_done() && nothing_left() && releases_lost() == 0 && stat("findings") == 0

# Tests scenarios on several schedules of the simulated driver, or on that of SIMCUDA_MODE.
function on_every_schedule(scenarios)
    schedules = haskey(ENV, "SIMCUDA_MODE") ? [(ENV["SIMCUDA_MODE"], seed) for seed in 1:4] :
        [[("lazy", seed) for seed in 1:8]; [("adversarial", seed) for seed in 1:4]]
    for (mode, seed) in schedules
        ccall(driver(:simcuda_seed), Cint, (Cstring, UInt64), mode, seed)
        for scenario in scenarios
            ok = scenario()
            ok || println(scenario, " with schedule ", mode, " ", seed)
            @test ok
        end
        @test all_back()
    end
end
