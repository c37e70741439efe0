# Products and factorizations of tensors, as of the arrays that they are over.

# A matrix and a vector in every order and wrapper, also with strides that the BLAS does not take.
row_major(m) = Tensor(PermutedDimsArray(permutedims(m), (2, 1)))
matrices(m) = Any[Tensor(copy(m)), row_major(m), PermutedDimsArray(Tensor(permutedims(m)), (2, 1)),
    Tensor(Matrix(m'))', row_major(m')', transpose(Tensor(permutedims(m))), transpose(row_major(permutedims(m))),
    view(Tensor([m; m]), 1:size(m, 1), :),
    view(Tensor(repeat(m; inner=(2, 1))), 1:2:(2 * size(m, 1)), :), view(Tensor(m[end:-1:1, :]), size(m, 1):-1:1, :)]
vectors(v) = Any[Tensor(copy(v)), view(Tensor(repeat(v; inner=2)), 1:2:(2 * length(v))),
    view(Tensor(reverse(v)), length(v):-1:1)]

# Whether products of all these are right, each with another kind of second factor and of target.
function products_agree(::Type{T}) where {T}
    A, B, x, C, y = rand(T, 3, 4), rand(T, 4, 5), rand(T, 4), rand(T, 3, 5), rand(T, 3)
    agree(target, a, b, wanted, begun) = a * b ≈ wanted &&
        LinearAlgebra.mul!(target, a, b, 2, 0.5f0) === target && target ≈ 2wanted + 0.5f0 * begun
    nth(list, k) = list[mod1(k, length(list))]
    matrix_targets(k) = nth(Any[matrices(C)[1:2]; Any[copy(C)]], k)
    vector_targets(k) = nth(Any[vectors(y); Any[copy(y)]], k)
    plain(m) = Any[m, Matrix(m')', transpose(permutedims(m))]
    ok = true
    for (k, a) in enumerate(matrices(A))
        ok &= agree(matrix_targets(k), a, nth(matrices(B), 3k), A * B, C)
        ok &= agree(matrix_targets(k + 1), a, nth(plain(B), k), A * B, C)
        ok &= agree(vector_targets(k), a, nth(Any[vectors(x); Any[x]], k), A * x, y)
    end
    for (k, b) in enumerate(matrices(B))
        ok &= agree(matrix_targets(k), nth(plain(A), k), b, A * B, C)
    end
    for (k, b) in enumerate(vectors(x))
        ok &= agree(vector_targets(k + 1), nth(plain(A), k), b, A * x, y)
    end
    # A target over a tensor alone.
    ok &= all(c -> LinearAlgebra.mul!(c, A, B) ≈ A * B, matrices(C)[1:2])
    return ok && LinearAlgebra.mul!(Tensor(copy(x)), A', y) ≈ A' * y
end

function unusual_products()
    t = Tensor([1.0 2; 3 4])
    @test t * Tensor([1.0 2; 3 4]; readonly=true) == [7 10; 15 22] && t * [1 2; 3 4] == [7 10; 15 22]
    # Numbers that the BLAS does not have, and nothing to add.
    c = LinearAlgebra.mul!(Tensor([0.0 0; 0 0]), t, t, big(2), 0)
    @test c == [14 20; 30 44] && Tensor(zeros(2, 0)) * Tensor(zeros(0, 3)) == zeros(2, 3)
    @test_throws DimensionMismatch t * zeros(3, 2)
    @test_throws DimensionMismatch LinearAlgebra.mul!(zeros(3), t, [1.0, 2])
    # Targets that the BLAS does not take, and factors in each wrapper.
    for a in (t, t', transpose(t), [1.0 2; 3 4]), b in (t, t', transpose(t), [1.0 2; 3 4])
        a isa Matrix && b isa Matrix && continue
        for target in (zeros(2, 2)', PermutedDimsArray(zeros(2, 2), (2, 1)), Tensor(zeros(2, 2))')
            @test LinearAlgebra.mul!(target, a, b, 2, 1) === target == 2 * Matrix(a) * Matrix(b)
        end
    end
    @test LinearAlgebra.mul!(view([0.0, 0, 0], [1, 3]), t', [1.0, 2]) == [7, 10]
    @test_throws ArgumentError LinearAlgebra.mul!(LinearAlgebra.Diagonal([0.0, 0]), t, t)
    # The target is a factor, too.
    @test LinearAlgebra.mul!(t, t, [1.0 2; 3 4]) === t && t == [7 10; 15 22]
    r = Tensor(zeros(2, 2); readonly=true)
    @test refused(() -> LinearAlgebra.mul!(r, t, t), DX.DEVX_READ_ONLY) && r == zeros(2, 2)
    there = Tensor{Float64,2}(t.handle, t.data, t.size, t.strides, t.flags, DLDevice(2, 1))
    @test refused(() -> there * t, DX.DEVX_DEVICE) && refused(() -> LinearAlgebra.mul!(there, t, t), DX.DEVX_DEVICE)
    close(t)
    @test refused(() -> t * r, DX.DEVX_CLOSED) && refused(() -> LinearAlgebra.mul!(t, r, r), DX.DEVX_CLOSED)
end

@testset "linear algebra: products" begin
    foreach(T -> (@test products_agree(T)), (Float32, ComplexF64))
    unusual_products()
    @test nothing_left()
end

@testset "linear algebra: functions of a matrix" begin
    a = [4.0 1 2; 1 5 3; 2 3 6]
    t = Tensor(copy(a))
    for f in (m -> LinearAlgebra.cholesky(m).U, LinearAlgebra.isposdef, m -> LinearAlgebra.lq(m).L,
              m -> LinearAlgebra.cholesky(LinearAlgebra.Symmetric(m)).U,
              m -> LinearAlgebra.cholesky(LinearAlgebra.Hermitian(m, :L)).U,
              m -> LinearAlgebra.isposdef(LinearAlgebra.Symmetric(m, :L)), m -> LinearAlgebra.lyap(m, m),
              m -> LinearAlgebra.lyap(m, a), m -> LinearAlgebra.sylvester(m, m, m), m -> LinearAlgebra.sylvester(m, a, a),
              m -> LinearAlgebra.svd(m, m).U, m -> LinearAlgebra.svd(a, m).U)
        @test f(t) ≈ f(a)
    end
    @test t == a
    close(t)
    @test nothing_left()
end
