# What both ends of an asynchronous stream have in common.

# Tells tasks that there may be something new. A bell is rooted until nobody can ring it any more, so it must not keep
# its owner alive.
mutable struct Bell
    rings::Threads.Atomic{Int}
    changed::Threads.Condition
    # What else to do at a ring: called with the object that `of` refers to, if it still exists.
    answer::Function
    of::WeakRef
end

Bell() = Bell(Threads.Atomic{Int}(0), Threads.Condition(), _ -> nothing, WeakRef(nothing))

# Gives `f` a record whose `wake`, on whatever thread it is called, rings the bell on a task of this module. If `f`
# throws, nothing took the record.
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

# Rings the bell with this number.
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

# Calls `f` again after each ring until it returns true. Only the calling task waits; no lock is held meanwhile.
function wait_until(f, bell::Bell)
    while true
        # Read before `f` looks: a later change rings the bell once more.
        seen = bell.rings[]
        f() && return nothing
        lock(bell.changed) do
            while bell.rings[] == seen
                wait(bell.changed)
            end
        end
    end
end

# Calls `f`. Returns whether it succeeded; false means that there is nothing yet (`DEVX_NOT_READY`).
function is_ready(f)
    try
        f()
        return true
    catch e
        e isa DevExchangeError && e.status == DEVX_NOT_READY || rethrow()
        return false
    end
end

# Metadata from the C API; NULL if there is none.
const MetadataHandle = Handle{TAG_METADATA | TAG_KEPT}

# Returns its pairs and gives up the block.
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

# Calls `f` with the address of a block; NULL if there are no pairs.
function with_metadata(f, pairs)
    isempty(pairs) && return f(Ptr{UInt8}(C_NULL))
    block = metadata_block(texts(pairs))
    return GC.@preserve block f(pointer(block))
end
