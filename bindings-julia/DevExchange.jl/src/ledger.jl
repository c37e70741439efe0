# Counts of what is not released yet.

"""
    ledger() -> NamedTuple

Returns what the library has exported and imported: for each kind how many there were (`total`), and how many are not
released yet (`live`). An exported tree of Arrow arrays counts once. `owners` are the releases that have to be called:
one for each tensor or batch over Julia memory, and for memory that the library allocated (copies, for example). A
stream counts as an export while a foreign consumer has it, and as an import while a foreign producer's stream is in
use.

Objects are not counted by themselves: not a second one of the same thing (`share`), a schema that was not imported, a
manager of the library, an asynchronous reader whose handler nobody has, or a server or client. The counts are those of
the C library in this process, including its other users.
"""
function ledger()
    record = Ref{DevxLedger}()
    @checked devx_ledger_read(record::Ptr{DevxLedger})
    l = record[]
    count(c) = (total=c.total, live=c.live)
    return NamedTuple{fieldnames(DevxLedger)}(ntuple(k -> count(getfield(l, k)), fieldcount(DevxLedger)))
end

"""
    outstanding() -> Int

Returns how many releases are still to come, over all kinds of the [`ledger`](@ref); 0 when everything was given back.
Releases that only wait for delivery in Julia (see [`drain`](@ref)) no longer count.
"""
outstanding() = Int(ccall(devx_ledger_outstanding[], Int64, ()))

"""
    releases_waiting() -> Int

Returns how many releases wait for work that is queued on a device (see [`used_on`](@ref)).
"""
releases_waiting() = Int(ccall(devx_releases_waiting[], Int64, ()))

"""
    releases_lost() -> Int

Returns how many releases were never called, because the driver could not say whether the work that used the memory is
done. Memory, events and streams that the driver did not take back count, too.
"""
releases_lost() = Int(ccall(devx_releases_lost[], Int64, ()))
