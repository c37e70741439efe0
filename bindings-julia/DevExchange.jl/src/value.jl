# Values that Julia has no type for. They lie in memory as Arrow has them.

# An integer of 256 bits, two's complement, the lowest word first.
struct Int256
    words::NTuple{4,UInt64}
end

function Int256(x::Integer)
    -big(2)^255 <= x < big(2)^255 || throw(InexactError(:Int256, Int256, x))
    return Int256(ntuple(k -> (BigInt(x) >> 64(k - 1)) % UInt64, 4))
end

Base.zero(::Type{Int256}) = Int256((0, 0, 0, 0))

function Base.BigInt(x::Int256)
    top = BigInt(x.words[4] % Int64)
    return foldl((high, k) -> high << 64 + x.words[k], (3, 2, 1); init=top)
end

"""
    Decimal{P,S,I}(unscaled)

A decimal number of `P` digits, `S` of them after the point (before it, if negative): `unscaled` without its point is an
integer of type `I`, which is `Int32`, `Int64`, `Int128` or `DevExchange.Int256` (`DevExchange.Int256(x)` makes one of
an integer, `BigInt` an integer of it). Vectors of decimals are columns as they lie in memory.

Decimals are compared by value, with each other and with other numbers, and have no arithmetic: `Rational(d)` and
`BigFloat(d)` and `Float64(d)` are numbers that have. `string(d)` is exact.
"""
struct Decimal{P,S,I}
    unscaled::I
end

Base.zero(::Type{Decimal{P,S,I}}) where {P,S,I} = Decimal{P,S,I}(zero(I))

function Base.Rational(d::Decimal{P,S}) where {P,S}
    S > 0 && return BigInt(d.unscaled) // big(10)^S
    return BigInt(d.unscaled) * big(10)^-S // big(1)
end
(::Type{F})(d::Decimal) where {F<:AbstractFloat} = F(Rational(d))

Base.:(==)(a::Decimal{P,S,I}, b::Decimal{P,S,I}) where {P,S,I} = a.unscaled === b.unscaled
Base.:(==)(a::Decimal, b::Decimal) = Rational(a) == Rational(b)
Base.:(==)(a::Decimal, b::Real) = Rational(a) == b
Base.:(==)(a::Real, b::Decimal) = a == Rational(b)
Base.isless(a::Decimal, b::Decimal) = isless(Rational(a), Rational(b))
Base.isless(a::Decimal, b::Real) = isless(Rational(a), b)
Base.isless(a::Real, b::Decimal) = isless(a, Rational(b))
Base.hash(d::Decimal, seed::UInt) = hash(Rational(d), seed)

# Zeros that would be written rather than said.
const MOST_ZEROS = 100

function Base.show(io::IO, d::Decimal{P,S}) where {P,S}
    unscaled = BigInt(d.unscaled)
    abs(S) > MOST_ZEROS && return print(io, unscaled, 'e', -S)
    digits = string(abs(unscaled))
    unscaled < 0 && print(io, '-')
    S <= 0 && return print(io, digits, unscaled == 0 ? "" : '0'^-S)
    digits = lpad(digits, S + 1, '0')
    print(io, digits[1:end-S], '.', digits[end-S+1:end])
end

"""
    DayTime(days, milliseconds)

A span of days and milliseconds, as Arrow's day-time interval: a day need not have 24 hours.
`Dates.CompoundPeriod(span)` is what can be added to a date.
"""
struct DayTime
    days::Int32
    milliseconds::Int32
end

"""
    MonthDayNano(months, days, nanoseconds)

A span of months, days and nanoseconds, as Arrow's month-day-nano interval: none is converted into another.
`Dates.CompoundPeriod(span)` is what can be added to a date.
"""
struct MonthDayNano
    months::Int32
    days::Int32
    nanoseconds::Int64
end

Dates.CompoundPeriod(x::DayTime) = Day(x.days) + Millisecond(x.milliseconds)
Dates.CompoundPeriod(x::MonthDayNano) = Month(x.months) + Day(x.days) + Nanosecond(x.nanoseconds)
