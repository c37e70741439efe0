# The type of an element: Julia types and DLPack's code, bits and lanes.

"""
    RawElement{Code,Bits,U}(bits::U)

The bits of an element for which Julia has no number type: bfloat16, floats of 8 and fewer bits, integers of fewer than
8 bits in a byte each (`DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`), float128. `Code` and `Bits` are those of
`DLDataType`; `U` is the smallest unsigned integer that holds the bits. Read them as `element.bits`.
"""
struct RawElement{Code,Bits,U<:Unsigned}
    bits::U
end

Base.zero(::Type{RawElement{C,B,U}}) where {C,B,U} = RawElement{C,B,U}(zero(U))

# More lanes than this are a mistake, not a vector, and would make a tuple type that takes the compiler minutes.
const MAX_LANES = 64

"""
    dtype(T::Type) -> DLDataType

Returns the DLPack element type of a Julia type: integers, floats and complex numbers of Base, `Bool` (one byte),
[`RawElement`](@ref), and `NTuple`s of these, which are vectors with that many lanes.

To export arrays of your own type, define a method for it; its bits must be those of an element type of DLPack. Throws a
[`DevExchangeError`](@ref) (`DEVX_UNSUPPORTED`) for any other type. A tensor is refused (`DEVX_INVALID_DTYPE`) if the
size of its elements is not that of their element type.
"""
dtype(::Type{T}) where {T} = throw(no_dtype(T))
dtype(::Type{T}) where {T<:Base.BitSigned} = DLDataType(kDLInt, 8 * sizeof(T), 1)
dtype(::Type{T}) where {T<:Base.BitUnsigned} = DLDataType(kDLUInt, 8 * sizeof(T), 1)
dtype(::Type{T}) where {T<:Base.IEEEFloat} = DLDataType(kDLFloat, 8 * sizeof(T), 1)
dtype(::Type{Complex{T}}) where {T<:Base.IEEEFloat} = DLDataType(kDLComplex, 16 * sizeof(T), 1)
dtype(::Type{Bool}) = DLDataType(kDLBool, 8, 1)
function dtype(::Type{RawElement{C,B,U}}) where {C,B,U}
    C isa Integer && 0 <= C <= typemax(UInt8) && B isa Integer && 1 <= B <= typemax(UInt8) && isbitstype(U) ||
        throw(DevExchangeError(DEVX_INVALID_DTYPE,
            "eltype is $(RawElement{C,B,U}): code and bits are numbers that a byte holds, with an integer for the bits"))
    return DLDataType(C, B, 1)
end
# Of these, several other methods would be as specific as each other.
dtype(::Type{Tuple{}}) = throw(no_dtype(Tuple{}))
dtype(::Type{Union{}}) = throw(no_dtype(Union{}))

function dtype(::Type{NTuple{L,T}}) where {L,T}
    lane = dtype(T)
    lane.lanes == 1 && 1 < L <= MAX_LANES || throw(no_dtype("NTuple{$L,$T}"))
    return DLDataType(lane.code, lane.bits, L)
end

no_dtype(T) = DevExchangeError(DEVX_UNSUPPORTED, "eltype is $T: not an element type of DLPack")

# The element type of a tensor: other readers rely on the size that it states.
@inline function element_dtype(::Type{T}) where {T}
    d = dtype(T)
    isbitstype(T) && sizeof(T) == cld(Int(d.bits) * Int(d.lanes), 8) || throw(no_fit(T, d))
    return d
end

@noinline no_fit(@nospecialize(T), d) = DevExchangeError(DEVX_INVALID_DTYPE, "eltype is $T, " *
    (isbitstype(T) ? "of $(sizeof(T)) bytes" : "not of bits") *
    ": its dtype has bits $(d.bits), lanes $(d.lanes), which are $(cld(Int(d.bits) * Int(d.lanes), 8)) bytes")

# Julia's own types, by code and bits.
const NATIVE_TYPES = (Bool, Int8, Int16, Int32, Int64, Int128, UInt8, UInt16, UInt32, UInt64, UInt128, Float16, Float32,
    Float64, ComplexF16, ComplexF32, ComplexF64)
const NATIVE_ELEMENTS = Dict{Tuple{UInt8,UInt8},DataType}(
    (d.code, d.bits) => T for (T, d) in ((T, dtype(T)) for T in NATIVE_TYPES))

# The Julia type of an element with a dtype of DLPack, or `nothing` if none has its layout: packed elements of less than
# a byte, and vectors of more than `MAX_LANES` lanes. For an invalid dtype the result can be either.
function element_type(d::DLDataType, flags::UInt64)
    T = get(NATIVE_ELEMENTS, (d.code, d.bits), nothing)
    if T === nothing
        padded = flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED != 0
        U = d.bits == 128 ? UInt128 : d.bits == 16 ? UInt16 : d.bits == 8 || (d.bits < 8 && padded) ? UInt8 : nothing
        U === nothing && return nothing
        T = RawElement{d.code,d.bits,U}
    end
    d.lanes == 1 && return T
    # Padding rounds up an element with all its lanes, not each lane.
    return d.bits >= 8 && 1 < d.lanes <= MAX_LANES ? NTuple{Int(d.lanes),T} : nothing
end

# Whether the Julia type of an element is `T`. For Julia's own types the table is not needed.
has_elements(::Type{T}, d::DLDataType, flags::UInt64) where {T} = element_type(d, flags) === T
@inline has_elements(::Type{T}, d::DLDataType, ::UInt64) where {T<:Union{NATIVE_TYPES...}} =
    isconcretetype(T) && d === dtype(T)

# The flags that an element type implies.
element_flags(d::DLDataType) = d.bits < 8 ? DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED : UInt64(0)

"""
    dtype_name(d::DLDataType) -> String
    dtype_name(T::Type) -> String

Returns the name of an element type, for example `"float32"`. Throws `DEVX_INVALID_DTYPE` if it is not one of DLPack
1.3, `DEVX_UNSUPPORTED` for opaque handles.
"""
dtype_name(d::DLDataType) = named() do name, room
    @checked devx_dtype_name(d::DLDataType, name::Ptr{UInt8}, room::Csize_t)
end
dtype_name(::Type{T}) where {T} = dtype_name(dtype(T))
