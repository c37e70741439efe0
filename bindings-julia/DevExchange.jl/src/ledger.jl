# What is not released yet.

"""
    ledger() -> NamedTuple

What the library has handed out and taken in: for each kind how many there were (`total`) and how many are not released
yet (`live`). An exported tree of Arrow arrays counts once; `owners` are the releases that have to be called, one for
each tensor or batch that was made of Julia's memory, and for copies. Streams are exports while a foreign consumer has
one, and imports while a foreign producer's is in use.

The counts are those of the C library in this process, whoever uses it.
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

How many things are not released yet, over all kinds of the [`ledger`](@ref); 0 when everything was given back. What
Julia still has to deliver (see [`drain`](@ref)) is released already as far as this count goes.
"""
outstanding() = Int(ccall(devx_ledger_outstanding[], Int64, ()))

"""
    releases_waiting() -> Int

How many releases wait for work that is queued on a device (see [`used_on`](@ref)).
"""
releases_waiting() = Int(ccall(devx_releases_waiting[], Int64, ()))

"""
    releases_lost() -> Int

How many releases were never called, because the driver could not say whether the work that used the memory is done; and
how much memory, and how many events and streams, the driver did not take back.
"""
releases_lost() = Int(ccall(devx_releases_lost[], Int64, ()))
