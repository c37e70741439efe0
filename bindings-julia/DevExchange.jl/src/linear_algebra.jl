# Linear algebra of tensors with the BLAS, and functions that Julia has only for its own matrices.

# Older versions of Julia support these only for their own matrices; `inv` needs `factorize`, and `pinv` needs `svd`. What
# changes its argument is not here: for that, see `unsafe_wrap`.
for f in (:(Base.exp), :(Base.log), :(Base.sqrt), :(LinearAlgebra.factorize), :(LinearAlgebra.svd), :(LinearAlgebra.lq),
          :(LinearAlgebra.cholesky), :(LinearAlgebra.isposdef))
    @eval $f(t::Tensor{<:Any,2}; keywords...) = $f(copy(t); keywords...)
end
for f in (:cholesky, :isposdef), S in (:Symmetric, :Hermitian)
    @eval LinearAlgebra.$f(s::LinearAlgebra.$S{T,<:Tensor{T,2}}; keywords...) where {T} =
        LinearAlgebra.$f(LinearAlgebra.$S(copy(parent(s)), Symbol(s.uplo)); keywords...)
end
for (f, count) in ((:svd, 2), (:lyap, 2), (:sylvester, 3)), kinds in Iterators.product(fill((:Tensor, :Matrix), count)...)
    names = [:a, :b, :c][1:count]
    arguments = [kind === :Tensor ? :($name::Tensor{T,2}) : :($name::Matrix{T}) for (name, kind) in zip(names, kinds)]
    copies = [:(own($name)) for name in names]
    :Tensor in kinds && @eval LinearAlgebra.$f($(arguments...)) where {T} = LinearAlgebra.$f($(copies...))
end
own(t::Tensor) = copy(t)
own(a::Matrix) = a

# Products. Julia calls the BLAS only for its own arrays, although the functions that do so accept any memory with strides.
const BlasFloat = LinearAlgebra.BlasFloat
const MatrixMemory{T} = Union{Tensor{T,2},PermutedDimsArray{T,2,(2, 1),(2, 1),Tensor{T,2}},
    SubArray{T,2,<:Tensor{T},<:Tuple{Vararg{Union{Int,AbstractRange{Int}}}}}}
const VectorMemory{T} = Union{Tensor{T,1},SubArray{T,1,<:Tensor{T},<:Tuple{Vararg{Union{Int,AbstractRange{Int}}}}}}
const AnyMatrix{T} = Union{StridedMatrix{T},MatrixMemory{T}}
const AnyVector{T} = Union{StridedVector{T},VectorMemory{T}}

# One method for each pair of wrappers, so that none of Julia's is as specific. One argument at least is over a tensor. If that
# is a factor, the target can be any array: Julia compares each of these methods with all methods of `mul!` when the package is
# loaded, with every member of one union for every member of the others, and a third union would take most of that time.
const WRAPPERS = (M -> :($M{T}), M -> :(Adjoint{T,<:$M{T}}), M -> :(Transpose{T,<:$M{T}}))
for a in WRAPPERS
    for (Y, A, X) in ((:AbstractVector, :MatrixMemory, :AnyVector), (:AbstractVector, :StridedMatrix, :VectorMemory),
                      (:VectorMemory, :StridedMatrix, :StridedVector))
        @eval LinearAlgebra.mul!(y::$Y{T}, A::$(a(A)), x::$X{T}, α::Number, β::Number) where {T<:BlasFloat} =
            multiply!(y, A, x, α, β)
    end
    for b in WRAPPERS, (C, A, B) in ((:AbstractMatrix, :MatrixMemory, :AnyMatrix),
                                     (:AbstractMatrix, :StridedMatrix, :MatrixMemory),
                                     (:MatrixMemory, :StridedMatrix, :StridedMatrix))
        @eval LinearAlgebra.mul!(C::$C{T}, A::$(a(A)), B::$(b(B)), α::Number, β::Number) where {T<:BlasFloat} =
            multiply!(C, A, B, α, β)
    end
end

function multiply!(C::AbstractVecOrMat{T}, A, B, α, β) where {T}
    C isa Union{AnyVector{T},AnyMatrix{T}} || return left_to_julia!(C, A, B, α, β)
    write_protected(C) && throw(read_only())
    foreach(require_readable_memory, (C, A, B))
    by, keep = promote(α, β, zero(T))
    # The BLAS may have no numbers for it.
    (!(by isa T) || isempty(A) || isempty(B)) && return left_to_julia!(C, A, B, α, β)
    direct = fits(C) && !Base.mightalias(C, A) && !Base.mightalias(C, B)
    direct && return call_blas!(C, factor(A)..., factor(B)..., by, keep)
    return copyto!(C, call_blas!(Array(C), factor(A)..., factor(B)..., by, keep))
end

# The method of Julia that takes any arrays in these wrappers.
function left_to_julia!(C, A, B, α, β)
    Target, Source = C isa AbstractVector ? (AbstractVector, AbstractVector) : (AbstractMatrix, wrapper(B))
    return invoke(LinearAlgebra.mul!, Tuple{Target,wrapper(A),Source,Number,Number}, C, A, B, α, β)
end
wrapper(::AbstractVecOrMat) = AbstractVecOrMat
wrapper(::Adjoint) = Adjoint{<:Any,<:AbstractVecOrMat}
wrapper(::Transpose) = Transpose{<:Any,<:AbstractVecOrMat}

call_blas!(C::AbstractMatrix, flag_a, A, flag_b, B, α, β) = LinearAlgebra.BLAS.gemm!(flag_a, flag_b, α, A, B, β, C)
call_blas!(y::AbstractVector, flag, A, _, x, α, β) = LinearAlgebra.BLAS.gemv!(flag, α, A, x, β, y)

# Whether the BLAS can take the memory as it is.
fits(a::AbstractMatrix) = stride(a, 1) == 1 && stride(a, 2) >= max(size(a, 1), 1)
fits(a::AbstractVector) = stride(a, 1) > 0

# What the BLAS gets for a factor: how it is flipped (N, T, C), and the memory. A row-major matrix is the transpose of one
# that fits. Anything else is copied, which takes less time than the product.
factor(a::AbstractVector) = ('N', fits(a) ? a : Array(a))
factor(a::AbstractMatrix) = fits(a) ? ('N', a) : flipped(a, 'T', () -> ('N', Array(a)))
factor(a::Transpose) = (p = parent(a); fits(p) ? ('T', p) : flipped(p, 'N', () -> ('T', Array(p))))
factor(a::Adjoint{<:Real}) = factor(transpose(parent(a)))
factor(a::Adjoint) = (p = parent(a); ('C', fits(p) ? p : Array(p)))
flipped(a, flag, otherwise) = (p = PermutedDimsArray(a, (2, 1)); fits(p) ? (flag, p) : otherwise())
