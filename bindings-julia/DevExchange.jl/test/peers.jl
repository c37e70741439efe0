# Other Julia processes: a peer that talks with this process in lines, and a program that runs to its end.

struct Peer
    process::Base.Process
end

# Runs a program in another Julia process, with the stderr of this one.
function Peer(program::String, arguments...)
    julia = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project())`
    return Peer(open(pipeline(`$julia -e $program $(collect(arguments))`; stderr=stderr), "r+"))
end

hear(p::Peer) = readline(p.process)
tell(p::Peer, line="") = (println(p.process, line); flush(p.process))

# Linux's numbers, the same on x86-64 and Arm.
const SIGCONT, SIGSTOP = 18, 19

# Stops the process, until it is continued: the signal only tells one thread to stop the others.
function stop_now(p::Peer)
    kill(p.process, SIGSTOP)
    threads = "/proc/$(getpid(p.process))/task"
    # The name, which may be anything, is in parentheses; the state follows.
    state(thread) = rsplit(read(joinpath(threads, thread, "stat"), String), ") "; limit=2)[2][1]
    timedwait(() -> all(thread -> state(thread) == 'T', readdir(threads)), 120.0)
    return nothing
end

# Kills the process, which has no chance to give anything back.
function kill_now(p::Peer)
    kill(p.process, 9)
    wait(p.process)
    return nothing
end

# Lets the process end. Returns whether it succeeded.
function leave(p::Peer)
    close(p.process.in)
    wait(p.process)
    return success(p.process)
end

address_of_test(name) = "@devexchange-julia-$name-$(getpid())"

# Runs a program in another Julia process. Returns what it wrote to both outputs, and whether it succeeded. After `limit`
# seconds the process is killed, and the error has its output: after an abort in a library, Julia's own handler may hang.
run_julia(program::String; keywords...) = run_julia(`-e $program`; keywords...)
function run_julia(arguments::Cmd; limit=1800.0, environment...)
    pipe, output = Pipe(), IOBuffer()
    pairs = [string(k) => string(v) for (k, v) in environment]
    command = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project()) $arguments`
    process = withenv(pairs...) do
        run(pipeline(command; stdout=pipe, stderr=pipe); wait=false)
    end
    close(pipe.in)
    reading = @async write(output, pipe)
    over() = process_exited(process) && istaskdone(reading)
    in_time = timedwait(over, limit) === :ok
    if !in_time
        kill(process, Base.SIGKILL)
        # A process that it started may still have the pipe open.
        timedwait(over, 10.0)
    end
    said = String(take!(output))
    in_time || error("another Julia was killed after $limit s, and said until then:\n$said")
    return said, success(process)
end

const SIMCUDA = normpath(joinpath(@__DIR__, "..", "..", "..", "tests", "simcuda", "driver"))

# Builds the simulated driver, and returns its directory, or `nothing` without cargo or without the sources of the driver.
function place_driver()
    isfile(joinpath(SIMCUDA, "place.sh")) && Sys.which("cargo") !== nothing || return nothing
    target = get(ENV, "CARGO_TARGET_DIR", "")
    checkout = normpath(joinpath(SIMCUDA, "..", "..", ".."))
    directory = joinpath(isempty(target) ? joinpath(checkout, "target") : joinpath(checkout, target), "simcuda-julia")
    # The build must not load Julia's libraries.
    withenv("LD_LIBRARY_PATH" => nothing) do
        run(`$(joinpath(SIMCUDA, "place.sh")) $directory`)
    end
    return directory
end

# Runs Julia with the driver in this directory.
function run_with_driver(directory, program; environment...)
    path = join((directory, get(ENV, "LD_LIBRARY_PATH", "")), ':')
    return run_julia(program; LD_LIBRARY_PATH=path, SIMCUDA_FATAL="exit", environment...)
end
