# Julia in arrays.py: reads arrays through the elements of their columns, and hands them back.
module Arrays

using DevExchange
using Dates
const DX = DevExchange

# The text of each value, as in arrays.py.
said(::Missing) = "null"
said(x::Bool) = string(x)
said(x::Integer) = string(BigInt(x))
said(x::AbstractFloat) = string('f', string(reinterpret(UInt64, Float64(x)); base=16, pad=16))
said(x::Decimal{P,S}) where {P,S} = "d$(BigInt(x.unscaled))e$(-S)"
said(x::Date) = "D$(Dates.value(x - Date(1970)))"
said(x::DateTime) = "T$(Dates.value(x - DateTime(1970)))"
said(x::Time) = "t$(Dates.value(x))"
said(x::Union{Second,Millisecond,Microsecond,Nanosecond}) = "P$(BigInt(Dates.value(x)) * nanoseconds(typeof(x)))"
said(x::MonthDayNano) = "i$(x.months),$(x.days),$(x.nanoseconds)"
said(x::AbstractString) = "s" * bytes2hex(collect(codeunits(x)))
said(x::Bytes) = "x" * bytes2hex(collect(x))
said(x::AbstractVector) = "[" * said_of(x) * "]"
said(x::DX.Entries) = "(" * join((said(key) * "=" * said(value) for (key, value) in x), ',') * ")"
said(x::Union{NamedTuple,Tuple,Row}) = "{" * said_of(values(x)) * "}"
said_of(values) = join(map(said, collect(Any, values)), ',')

nanoseconds(::Type{T}) where {T<:Period} = Dates.value(Nanosecond(T(1)))

require(fact, what) = fact || error(what)

# The contents of each kind of batch: the given array, a copy of it, an array made of Julia's values, and one made of
# pairs of these values.
const GIVEN, COPIED, MADE, PAIRED = 0, 1, 2, 3

function handed_back(b, c, how)
    how == GIVEN && return share(b)
    how == COPIED && return copy(b)
    pair(x) = (x, x)
    return Batch(["x" => how == MADE ? collect(c) : NTuple{2,eltype(c)}[pair(x) for x in c]])
end

function read_rows(b)
    c = root(b)
    rows = [said(x) for x in c]
    require(rows == [said(c[k]) for k in 1:length(c)], "an index and a loop say other things")
    require(all(x -> x isa eltype(c), c), "a value is no $(eltype(c))")
    require([hash(x) for x in c] == [hash(c[k]) for k in 1:length(c)], "a hash changes")
    repr("text/plain", c)
    return rows
end

# The rows, or the reason why no array is made of them.
function exchange(array, schema, out, out_schema, how)
    b = import_arrow(array, schema)
    try
        rows = read_rows(b)
        given = handed_back(b, root(b), how)
        how == COPIED && require(read_rows(given) == rows, "a copy says other things")
        export_move(given, out, out_schema)
        return join(rows, '\n')
    finally
        close(b)
    end
end

const answer = Ref("")

# Returns 0; 1 if Julia has no type for the values that Arrow has; 2 for an error. Nothing may be thrown through foreign
# frames.
function taken(array::Ptr{ArrowArray}, schema::Ptr{ArrowSchema}, out::Ptr{ArrowArray}, out_schema::Ptr{ArrowSchema}, how::Cint)
    try
        answer[] = exchange(array, schema, out, out_schema, how)
        return Cint(0)
    catch e
        answer[] = sprint(showerror, e, catch_backtrace())
        return Cint(how >= MADE && e isa DevExchangeError && e.status == DX.DEVX_UNSUPPORTED ? 1 : 2)
    end
end

heard() = Cstring(pointer(answer[]))
settled() = (answer[] = ""; GC.gc(); drain(); Int64(outstanding()))

const FUNCTIONS = Ptr{Cvoid}[
    @cfunction(taken, Cint, (Ptr{ArrowArray}, Ptr{ArrowSchema}, Ptr{ArrowArray}, Ptr{ArrowSchema}, Cint)),
    @cfunction(heard, Cstring, ()), @cfunction(settled, Int64, ())]

end
