# A test set that counts, and prints failures as they happen. The sets within it are of the same type. Below it are helpers that
# several files use.

mutable struct Counting <: Test.AbstractTestSet
    description::String
    passed::Int
    failed::Int
    skipped::Int
    started::Float64
end
Counting(description; keywords...) = Counting(description, 0, 0, 0, time())

Test.record(t::Counting, ::Test.Pass) = (t.passed += 1; nothing)
Test.record(t::Counting, r::Test.Broken) = (t.skipped += 1; println("skipped in ", t.description, ": ", r.orig_expr))

function Test.record(t::Counting, r::Union{Test.Fail,Test.Error})
    t.failed += 1
    println("failed in ", t.description, ":\n", r)
end

function Test.record(t::Counting, r::Counting)
    t.passed += r.passed
    t.failed += r.failed
    t.skipped += r.skipped
end

function Test.finish(t::Counting)
    if Test.get_testset_depth() > 0
        Test.record(Test.get_testset(), t)
        # Only for the sets of the files, not for those within.
        if Test.get_testset_depth() == 1
            seconds = round(time() - t.started, digits=1)
            println(rpad(t.description, 44), lpad(t.passed, 6), " passed ", lpad(seconds, 6), " s")
        end
    end
    return t
end

# Whether a call is refused with this status and a message that has all of these parts. If not, prints what happened instead.
function refused(@nospecialize(f), status, @nospecialize(parts...))
    try
        f()
    catch e
        e isa DevExchangeError || rethrow()
        ok = e.status == status && all(part -> occursin(part, e.message), parts)
        ok || println("refused, but with ", sprint(showerror, e))
        return ok
    end
    println("not refused: ", DX.status_name(status), " was expected")
    return false
end

# Whether a column has the values of a vector, element by element. `==` of the two would compile more types.
function same(@nospecialize(column::AbstractVector), @nospecialize(wanted))
    length(column) == length(wanted) || return false
    for k in 1:length(wanted)
        alike(column[k], wanted[k]) || return false
    end
    return true
end
alike(@nospecialize(a), @nospecialize(b)) = isequal(a, b)
# The elements of a column of fixed-size lists are vectors, where Julia's vector had tuples.
alike(@nospecialize(a::AbstractVector), @nospecialize(b)) = b isa Union{AbstractVector,Tuple} && same(a, b)
alike(@nospecialize(a::Tuple), @nospecialize(b)) = length(a) == length(b) && all(k -> alike(a[k], b[k]), 1:length(a))
alike(@nospecialize(a::NamedTuple), @nospecialize(b)) = keys(a) == keys(b) && alike(Tuple(a), Tuple(b))

# Waits until everything is released and Julia keeps nothing alive for others. Says whether that happened.
function nothing_left()
    k, begun = 0, time()
    # Long enough for other threads on a busy machine.
    while time() < begun + 60
        k += 1
        drain()
        outstanding() == 0 && DX.rooted() == 0 && return true
        # Finalizers release what a test left open. It can take several collections, because the exception of a failed call may
        # keep an object until the task drops the exception.
        (k <= 5 || k % 20 == 0) && GC.gc()
        k <= 5 ? yield() : sleep(0.01)
    end
    println("left: ", outstanding(), " outstanding, ", DX.rooted(), " rooted, ", ledger())
    return false
end

# Has every object finalized that nothing refers to, and delivers what finalizers left.
function collect_garbage()
    for _ in 1:3
        GC.gc()
        drain()
    end
end

# An array with first indices of 0, as other packages have them.
struct FromZero{T,N} <: AbstractArray{T,N}
    array::Array{T,N}
end
Base.axes(z::FromZero) = map(r -> Base.IdentityUnitRange(r .- 1), axes(z.array))
Base.size(z::FromZero) = size(z.array)
Base.strides(z::FromZero) = strides(z.array)
Base.dataids(z::FromZero) = Base.dataids(z.array)
Base.unsafe_convert(::Type{Ptr{T}}, z::FromZero{T}) where {T} = pointer(z.array)
Base.getindex(z::FromZero{T,N}, i::Vararg{Int,N}) where {T,N} = z.array[(i .+ 1)...]
Base.setindex!(z::FromZero{T,N}, x, i::Vararg{Int,N}) where {T,N} = (z.array[(i .+ 1)...] = x; z)

const WORKERS = max(4, Threads.nthreads())

# Runs `f(k)` for k in 1:WORKERS on all threads. Returns whether each call returned true.
function on_all_threads(f)
    ok = zeros(Bool, WORKERS)
    Threads.@threads for k in 1:WORKERS
        ok[k] = try
            f(k) === true
        catch e
            Core.println("on a thread: ", sprint(showerror, e, catch_backtrace()))
            false
        end
    end
    return all(ok)
end

# An exception that cannot be shown.
struct Unshown <: Exception end
Base.showerror(::IO, ::Unshown) = error("no")

# Every order of the numbers 1 to n.
orders(n) = n == 0 ? [Int[]] : [insert!(copy(o), k, n) for o in orders(n - 1) for k in 1:n]
