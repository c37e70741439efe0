# Columns converted to tensors, and tensors to columns.

@testset "conversions" begin
    b = Batch((x=[1.5, 2.5, 3.5], i=Int8[1, 2, 3], n=[1, missing, 3], b=[true, false, true], s=["a", "b", "c"],
        d=DictionaryVector(["a", "b", "a"]), t=Date.(2000:2002), v=[(1, 2), (3, 4), (5, 6)],
        w=[((1, 2), (3, 4)) for _ in 1:3]))

    plan = plan_tensor(b[:x])
    @test plan.kind === :view && plan.copy_bytes == 0 && isempty(plan.reason) && sprint(show, plan) == "view"
    t = Tensor(b[:x])
    @test t isa Tensor{Float64,1} && pointer(t) == pointer(b[:x]) && t == b[:x] && isreadonly(t)
    @test refused(() -> t[1] = 0, DX.DEVX_READ_ONLY)
    c = Tensor(b[:x]; copy=:always)
    @test pointer(c) != pointer(t) && c == t && !isreadonly(c)
    # A view of a column becomes a read-only tensor over the memory of the batch.
    r = Tensor(view(b[:x], 2:3))
    @test r == [2.5, 3.5] && isreadonly(r) && pointer(r) == pointer(t) + 8
    # Fixed-size lists become further dimensions, row-major.
    @test plan_tensor(b[:v]).kind === :view && plan_tensor(b[:w]).kind === :view
    v, w = Tensor(b[:v]), Tensor(b[:w])
    @test v == [1 2; 3 4; 5 6] && strides(v) == (2, 1) && pointer(v) == pointer(children(b[:v])[1])
    @test size(w) == (3, 2, 2) && w[3, 2, 1] == 3
    # A member of a column of structs.
    x = Tensor(children(root(b))[1])
    @test pointer(x) == pointer(t)
    close(x)

    plan = plan_tensor(b[:b])
    @test plan.kind === :copy && plan.copy_bytes == 3 && occursin("bits", plan.reason)
    @test occursin("copy of 3 bytes", sprint(show, plan))
    @test refused(() -> Tensor(b[:b]), DX.DEVX_COPY_REQUIRED, "bits", "3 bytes", "; `copy=:if_needed` allows it")
    bools = Tensor(b[:b]; copy=:if_needed)
    @test bools isa Tensor{Bool,1} && bools == [true, false, true]

    for (name, why) in (:n => "null", :s => "utf8", :d => "dictionary", :t => "date32")
        plan = plan_tensor(b[name])
        @test plan.kind === :impossible && occursin(why, plan.reason) && occursin(why, sprint(show, plan))
        @test refused(() -> Tensor(b[name]; copy=:if_needed), DX.DEVX_IMPOSSIBLE, why)
    end
    @test refused(() -> Tensor(b[:x]; copy=9), DX.DEVX_INVALID_ARGUMENT, "copy is 9")

    # Tensors that are views keep the memory.
    x = b[:x]
    close(b)
    @test r == [2.5, 3.5]
    @test t == [1.5, 2.5, 3.5]
    @test refused(() -> plan_tensor(x), DX.DEVX_CLOSED) && refused(() -> Tensor(x), DX.DEVX_CLOSED)
    foreach(close, (t, c, r, v, w, bools))

    # A vector becomes a column as it is. A Julia matrix has the wrong strides, and its transpose has the right ones.
    vector, matrix = Tensor([1.0, 2.0]), Tensor([1 2 3; 4 5 6])
    @test plan_column(vector).kind === :view
    column = Batch(vector; name="x")
    @test size(column) == (2, 0) && DX.name(root(column)) == "x" && pointer(root(column)) == pointer(vector)
    plan = plan_column(matrix)
    @test plan.kind === :copy && plan.copy_bytes == 48 && occursin("strides", plan.reason)
    @test refused(() -> Batch(matrix), DX.DEVX_COPY_REQUIRED, "strides [1, 2]")
    rows = Batch(matrix; copy=:if_needed)
    @test same(root(rows), [[1, 2, 3], [4, 5, 6]])
    transposed = Tensor(PermutedDimsArray([1 2 3; 4 5 6], (2, 1)))
    plain = Batch(transposed)
    @test plan_column(transposed).kind === :view && same(root(plain), [[1, 4], [2, 5], [3, 6]])
    @test pointer(children(root(plain))[1]) == pointer(transposed)
    flags = Tensor([true, false, true])
    @test plan_column(flags).kind === :copy
    bits = Batch(flags; copy=:if_needed)
    @test same(root(bits), [true, false, true])
    scalar, complex = Tensor(fill(1)), Tensor([1.0im])
    @test plan_column(scalar).kind === :impossible && refused(() -> Batch(scalar), DX.DEVX_IMPOSSIBLE, "no dimensions")
    @test plan_column(complex).kind === :impossible && refused(() -> Batch(complex), DX.DEVX_IMPOSSIBLE, "complex128")
    @test refused(() -> Batch(vector; name="a\0b"), DX.DEVX_INVALID_TEXT, "name", "a\\0b")
    close(vector)
    @test root(column) == [1.0, 2.0] && refused(() -> plan_column(vector), DX.DEVX_CLOSED)
    foreach(close, (matrix, column, rows, transposed, plain, flags, bits, scalar, complex))
    @test nothing_left()
end

@testset "matrices and columns of tensors" begin
    m = Float64[1 4; 2 5; 3 6]
    t = Tensor(m)
    @test plan_batch(t).kind === :view
    b = record_batch(t; names=["a", :b])
    @test b[:b] == [4, 5, 6] && pointer(b[:b]) == pointer(m, 4)
    @test refused(() -> record_batch(t; names=["a"]), DX.DEVX_MISMATCH, "1 names for 2 columns")
    @test plan_matrix(b).kind === :view
    back = matrix(b)
    @test back == m && pointer(back) == pointer(m) && isreadonly(back)
    foreach(close, (back, b, t))
    rows = Tensor(PermutedDimsArray(m, (2, 1)))
    @test plan_batch(rows).kind === :copy && refused(() -> record_batch(rows), DX.DEVX_COPY_REQUIRED, "apart")
    b = record_batch(rows; copy=:if_needed)
    @test b[Symbol("2")] == [3, 6]
    foreach(close, (b, rows))
    mixed = Batch((x=[1.0, 2.0], n=[1, 2]))
    @test plan_matrix(mixed).kind === :impossible
    @test refused(() -> matrix(mixed; copy=:if_needed), DX.DEVX_IMPOSSIBLE, "\"n\" is int64")
    close(mixed)

    cube = reshape(collect(Int32, 1:24), 2, 3, 4)
    c = Tensor(PermutedDimsArray(cube, (3, 1, 2)))
    @test plan_column(c).kind === :copy && plan_fixed_shape_column(c).kind === :view
    f = fixed_shape_column(c; name="cube")
    again = Tensor(root(f))
    @test again == c && pointer(again) == pointer(cube) && strides(again) == strides(c)
    foreach(close, (again, f, c))
    @test nothing_left()
end
