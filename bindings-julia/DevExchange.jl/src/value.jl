# Values for which Julia has no type. In memory they are as Arrow has them.

"""
    Int256(x::Integer)

An integer of 256 bits, as a [`Decimal`](@ref) of up to 76 digits has it: `BigInt(i)` converts it back. It is compared but
has no arithmetic. Throws `InexactError` for a number that it has no room for.
"""
struct Int256
    # Two's complement, the lowest word first.
    words::NTuple{4,UInt64}
end

function Int256(x::Integer)
    -big(2)^255 <= x < big(2)^255 || throw(InexactError(:Int256, Int256, x))
    return Int256(ntuple(k -> (BigInt(x) >> 64(k - 1)) % UInt64, 4))
end

# The sign is in the highest word.
Base.isless(a::Int256, b::Int256) = in_order_of_words(a) < in_order_of_words(b)
in_order_of_words(x::Int256) = (x.words[4] % Int64, x.words[3], x.words[2], x.words[1])

Base.zero(::Type{Int256}) = Int256((0, 0, 0, 0))

function Base.BigInt(x::Int256)
    top = BigInt(x.words[4] % Int64)
    return foldl((high, k) -> high << 64 + x.words[k], (3, 2, 1); init=top)
end

"""
    Decimal{P,S,I}(unscaled)

A decimal number of `P` digits, `S` of them after the point (before it, if negative). `unscaled` is the number without
its point, an integer of type `I`: `Int32`, `Int64`, `Int128` or `DevExchange.Int256` (`DevExchange.Int256(x)` converts
an integer to it, `BigInt` converts back). Vectors of decimals become columns as they are in memory; a value of more
than `P` digits is then refused.

Decimals are compared by value, with each other and with other numbers. They have no arithmetic: convert them with
`Rational(d)`, `BigFloat(d)` or `Float64(d)`. `string(d)` is exact.
"""
struct Decimal{P,S,I}
    unscaled::I
end

Base.zero(::Type{Decimal{P,S,I}}) where {P,S,I} = Decimal{P,S,I}(zero(I))

function Base.Rational(d::Decimal{P,S}) where {P,S}
    S > 0 && return BigInt(d.unscaled) // big(10)^S
    return BigInt(d.unscaled) * big(10)^-S // big(1)
end

# A foreign schema can have any 32-bit scale, and a power of ten with so many digits would take all memory and time.
# Beyond this scale no such number is made.
const MOST_SCALE = 10_000
is_wide(d::Decimal{P,S}) where {P,S} = abs(S) > MOST_SCALE && d.unscaled != zero(d.unscaled)

function (::Type{F})(d::Decimal{P,S}) where {F<:AbstractFloat,P,S}
    is_wide(d) || return F(abs(S) > MOST_SCALE ? 0 : Rational(d))
    F === BigFloat && return BigFloat(BigInt(d.unscaled)) * BigFloat(10)^-S
    # Wider than the range of any float of a fixed size.
    return F(copysign(S < 0 ? Inf : 0.0, sign(BigInt(d.unscaled))))
end

# For a number other than 0, one more than its exponent of ten in scientific notation.
places(d::Decimal{P,S}) where {P,S} = ndigits(BigInt(d.unscaled)) - S
# These are off by one at most.
places(x::Integer) = ndigits(x)
places(x::Rational) = ndigits(numerator(x)) - ndigits(denominator(x))
places(x::AbstractFloat) = ceil(Int, (exponent(x) + 1) * log10(2))
places(x::Real) = places(float(x))

# Compares; the result is -1, 0 or 1.
function order(a::Decimal{P,S}, b::Decimal{Q,R}) where {P,S,Q,R}
    x, y = BigInt(a.unscaled), BigInt(b.unscaled)
    (sign(x) != sign(y) || sign(x) == 0) && return cmp(sign(x), sign(y))
    places(a) == places(b) || return sign(x) * cmp(places(a), places(b))
    # Both have as many places, so the scales differ as the numbers of digits do.
    return S < R ? cmp(x * big(10)^(R - S), y) : cmp(x, y * big(10)^(S - R))
end

# Compares a wide decimal with a number that is not NaN.
function order(a::Decimal, b::Real)
    s = sign(BigInt(a.unscaled))
    (s != sign(b) || isinf(b)) && return cmp(s, isinf(b) ? 2 * sign(b) : sign(b))
    apart = places(a) - places(b)
    abs(apart) > 2 && return Int(s) * sign(apart)
    # A float can be as wide with few digits. Then the decimal is rounded, to more digits than those.
    return b isa AbstractFloat ? cmp(setprecision(() -> BigFloat(a), BigFloat, precision(b) + 64), b) : cmp(Rational(a), b)
end

order(a::Decimal, b::AbstractIrrational) = order(a, float(b))

# A number that compares like the decimal, which must not be wide.
comparable(d::Decimal{P,S}) where {P,S} = abs(S) > MOST_SCALE ? big(0) // big(1) : Rational(d)

Base.:(==)(a::Decimal{P,S,I}, b::Decimal{P,S,I}) where {P,S,I} = a.unscaled === b.unscaled
Base.:(==)(a::Decimal, b::Decimal) = order(a, b) == 0
Base.:(==)(a::Decimal, b::Real) = is_wide(a) ? !isnan(b) && order(a, b) == 0 : comparable(a) == b
Base.:(==)(a::Real, b::Decimal) = b == a
Base.isless(a::Decimal, b::Decimal) = order(a, b) < 0
Base.isless(a::Decimal, b::Real) = is_wide(a) ? isnan(b) || order(a, b) < 0 : isless(comparable(a), b)
Base.isless(a::Real, b::Decimal) = is_wide(b) ? !isnan(a) && order(b, a) > 0 : isless(a, comparable(b))
# Different from `isless`, for which NaN is larger than all numbers and -0.0 is less than 0.
Base.:(<)(a::Decimal, b::Decimal) = order(a, b) < 0
Base.:(<)(a::Decimal, b::Real) = is_wide(a) ? !isnan(b) && order(a, b) < 0 : comparable(a) < b
Base.:(<)(a::Real, b::Decimal) = is_wide(b) ? !isnan(a) && order(b, a) > 0 : a < comparable(b)
Base.isequal(a::Decimal, b::AbstractFloat) = !(iszero(b) && signbit(b)) && a == b
Base.isequal(a::AbstractFloat, b::Decimal) = isequal(b, a)

# The hash of the same Julia number. For decimals of more digits than those have, one that is the same for all equal
# decimals.
function Base.hash(d::Decimal{P,S}, seed::UInt) where {P,S}
    # Small enough, however many zeros there are at the end.
    abs(S) <= MOST_SCALE - 100 && return hash(Rational(d), seed)
    unscaled, scale = BigInt(d.unscaled), Int(S)
    unscaled == 0 && return hash(0, seed)
    while rem(unscaled, 10) == 0
        unscaled, scale = div(unscaled, 10), scale - 1
    end
    abs(scale) > MOST_SCALE && return hash(unscaled, hash(scale, hash(:Decimal, seed)))
    return hash(scale > 0 ? unscaled // big(10)^scale : unscaled * big(10)^-scale // big(1), seed)
end

# The most zeros that are written out, as in the library (`text`).
const MOST_ZEROS = 128

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

A span of days and milliseconds, as in Arrow's day-time interval: a day need not have 24 hours.
`Dates.CompoundPeriod(span)` can be added to a date.
"""
struct DayTime
    days::Int32
    milliseconds::Int32
end

"""
    MonthDayNano(months, days, nanoseconds)

A span of months, days and nanoseconds, as in Arrow's month-day-nano interval: none is converted into another.
`Dates.CompoundPeriod(span)` can be added to a date.
"""
struct MonthDayNano
    months::Int32
    days::Int32
    nanoseconds::Int64
end

Dates.CompoundPeriod(x::DayTime) = Day(x.days) + Millisecond(x.milliseconds)
Dates.CompoundPeriod(x::MonthDayNano) = Month(x.months) + Day(x.days) + Nanosecond(x.nanoseconds)
