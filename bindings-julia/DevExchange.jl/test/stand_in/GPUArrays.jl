# A stand-in for GPUArrays.jl, only for the tests of the extension for CUDA.jl. It has what the extension and the stand-in for
# CUDA.jl use, with the names and rules of GPUArrays.jl 10 and 11.
__precompile__(false)

module GPUArrays

export AbstractGPUArray, DataRef, unsafe_free!

abstract type AbstractGPUArray{T,N} <: DenseArray{T,N} end

# What all arrays over the same memory share.
mutable struct Shared{D}
    object::D
    at_the_end::Any
    users::Threads.Atomic{Int}
end

# The reference of one array, which is given up once.
mutable struct DataRef{D}
    shared::Shared{D}
    freed::Bool
end

DataRef(at_the_end, object::D) where {D} =
    DataRef{D}(Shared{D}(object, at_the_end, Threads.Atomic{Int}(1)), false)

function Base.getindex(ref::DataRef)
    ref.freed && throw(ArgumentError("this array was freed"))
    ref.shared.users[] > 0 || throw(ArgumentError("this memory was freed"))
    return ref.shared.object
end

function Base.copy(ref::DataRef{D}) where {D}
    ref.freed && throw(ArgumentError("this array was freed"))
    Threads.atomic_add!(ref.shared.users, 1)
    return DataRef{D}(ref.shared, false)
end

# Finalizers call this, too.
function unsafe_free!(ref::DataRef)
    ref.freed && return nothing
    ref.freed = true
    before = Threads.atomic_sub!(ref.shared.users, 1)
    before > 0 || throw(ArgumentError("this memory was freed"))
    before == 1 && ref.shared.at_the_end(ref.shared.object)
    return nothing
end

end
