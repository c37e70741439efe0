# What the two ends of an asynchronous stream have in common.

# Tells tasks that there may be something new. It is rooted until nobody rings any more, so it must not keep what it
# belongs to.
mutable struct Bell
    rings::Threads.Atomic{Int}
    changed::Threads.Condition
    # What else is to be done at a ring: called with what this refers to, if that is still there.
    answer::Function
    of::WeakRef
end

Bell() = Bell(Threads.Atomic{Int}(0), Threads.Condition(), _ -> nothing, WeakRef(nothing))

# Gives `f` a record whose `wake`, on whatever thread it comes, rings the bell on a task of this module. If `f` throws,
# nothing took the record.
function ringing(f, bell::Bell)
    owned_by_token(bell, (), nothing) do owner, number
        record = Ref(DevxWake(C_NULL, C_NULL, C_NULL))
        status = ccall(devx_julia_wake[], DevxStatus, (UInt64, Ptr{DevxOwner}, Ptr{DevxWake}),
            number | TAG_WAKE, owner, record)
        status == DEVX_OK || throw(DevExchangeError(status, "nobody could be woken"))
        try
            return f(record)
        catch
            ccall(devx_julia_discard_wake[], Cvoid, (Ptr{Cvoid},), record[].context)
            rethrow()
        end
    end
end

# The bell of this number was rung.
function wake_up(number::UInt64)
    root = lock(() -> get(ROOTS, number, nothing), ROOTS_LOCK)
    root === nothing || ring(root.object::Bell)
    return nothing
end

function ring(bell::Bell)
    Threads.atomic_add!(bell.rings, 1)
    lock(() -> notify(bell.changed), bell.changed)
    of = bell.of.value
    of === nothing || bell.answer(of)
    return nothing
end

# Calls `f` again after each ring until it returns true. Only the calling task waits. No lock is held meanwhile.
function wait_until(f, bell::Bell)
    while true
        # Before `f` looks: what changes after that makes the bell ring once more.
        seen = bell.rings[]
        f() && return nothing
        lock(bell.changed) do
            while bell.rings[] == seen
                wait(bell.changed)
            end
        end
    end
end

# Calls `f`; whether it was done, or said that there is nothing yet (`DEVX_NOT_READY`).
function is_ready(f)
    try
        f()
        return true
    catch e
        e isa DevExchangeError && e.status == DEVX_NOT_READY || rethrow()
        return false
    end
end

# Metadata that the C API gives; NULL if there is none.
const MetadataHandle = Handle{TAG_METADATA | TAG_KEPT}

# The pairs of it. The block is given up.
function take_metadata(given::MetadataHandle)
    block = Ref{Ptr{UInt8}}(C_NULL)
    try
        isopen(given) &&
            @checked devx_metadata_block(given::Handle, block::Ptr{Ptr{UInt8}}, C_NULL::Ptr{Csize_t})
        return read_metadata(block[])
    finally
        close(given)
    end
end

# Calls `f` with the address of a block, NULL if there are no pairs.
function with_metadata(f, pairs)
    isempty(pairs) && return f(Ptr{UInt8}(C_NULL))
    block = metadata_block(texts(pairs))
    return GC.@preserve block f(pointer(block))
end
