# Another Julia that plays a part, and talks with this one in lines.

struct Peer
    process::Base.Process
end

# Runs a program in another Julia; what it writes to stderr goes where ours does.
function Peer(program::String, arguments...)
    julia = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project())`
    return Peer(open(pipeline(`$julia -e $program $(collect(arguments))`; stderr=stderr), "r+"))
end

hear(p::Peer) = readline(p.process)
tell(p::Peer, line="") = (println(p.process, line); flush(p.process))

# Ends it as the system does, without a chance to give anything back.
function kill_now(p::Peer)
    kill(p.process, 9)
    wait(p.process)
    return nothing
end

# Lets it end; whether it ended well.
function leave(p::Peer)
    close(p.process.in)
    wait(p.process)
    return success(p.process)
end

address_of_test(name) = "@devexchange-julia-$name-$(getpid())"
