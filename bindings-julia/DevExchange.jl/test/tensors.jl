# Tensors, exported to DLPack and imported from it.

# What the consumer of an export sees.
struct Seen
    version::Tuple{Int,Int}
    flags::UInt64
    dtype::DLDataType
    device::DLDevice
    shape::Vector{Int64}
    strides::Vector{Int64}
    data::Ptr{Cvoid}
    byte_offset::UInt64
end

function see(p::Ptr{DLManagedTensorVersioned})
    m = unsafe_load(p)
    return see(m.dl_tensor, (m.version.major, m.version.minor), m.flags)
end
see(p::Ptr{DLManagedTensor}) = see(unsafe_load(p).dl_tensor, (0, 0), UInt64(0))
see(t::DLTensor, version, flags) = Seen(version, flags, t.dtype, t.device,
    [unsafe_load(t.shape, k) for k in 1:t.ndim], [unsafe_load(t.strides, k) for k in 1:t.ndim], t.data, t.byte_offset)

# Exports and imports an array: same memory, same elements, same type.
function round_trip(array::AbstractArray{T,N}) where {T,N}
    t = Tensor(array)
    p = export_share(t)
    seen = see(p)
    u = import_dlpack(p)
    ok = u isa Tensor{T,N} && size(u) == size(array) && isequal(collect(u), collect(array)) &&
        seen.dtype == DX.dtype(T) && seen.shape == collect(size(array)) && seen.byte_offset == 0 &&
        seen.device == DX.CPU && seen.version == (1, 3) &&
        (isempty(array) ? seen.data == C_NULL : seen.data == pointer(array) == pointer(u)) &&
        (isempty(array) || seen.strides == collect(strides(array)) == collect(strides(u)))
    close(u)
    close(t)
    return ok
end

const NATIVE = (Int8, Int16, Int32, Int64, Int128, UInt8, UInt16, UInt32, UInt64, UInt128, Float16, Float32, Float64,
    ComplexF16, ComplexF32, ComplexF64, Bool)
sample(::Type{Bool}) = [true false true; false true true]
sample(::Type{T}) where {T} = T[1 2 3; 4 5 6]

using SparseArrays, Statistics

@testset "tensors: element types" begin
    for T in NATIVE
        @test round_trip(sample(T))
    end
    raw(code, bits, U) = RawElement{code,bits,U}[RawElement{code,bits,U}(U(k)) for k in 1:3]
    # bfloat16, the floats of 8 bits, float128.
    @test round_trip(raw(0x04, 0x10, UInt16))
    for code in 0x07:0x0e
        @test round_trip(raw(code, 0x08, UInt8))
    end
    @test round_trip(raw(0x02, 0x80, UInt128))
    # Elements with lanes.
    @test round_trip([(1.0f0, 2.0f0, 3.0f0, 4.0f0), (5.0f0, 6.0f0, 7.0f0, 8.0f0)])
    # Types of less than a byte, with a byte for each element, as the flag says.
    for (code, bits) in ((0x00, 0x01), (0x00, 0x02), (0x01, 0x04), (0x0f, 0x06), (0x10, 0x06), (0x11, 0x04))
        elements = raw(code, bits, UInt8)
        t = Tensor(elements)
        @test DX.flags(t) == DX.DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
        p = export_share(t)
        @test see(p).flags == DX.DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
        u = import_dlpack(p)
        @test u == elements && u[2].bits == 0x02
        close(u)
        @test refused(() -> export_share_legacy(t), DX.DEVX_UNSUPPORTED, "SUBBYTE")
        close(t)
    end
    t = Tensor([1.0f0])
    @test DX.dtype(t) == DLDataType(2, 32, 1)
    close(t)
    # In a foreign bool, any byte but 0 is true.
    p, calls = foreign_tensor(UInt8[0, 1, 255]; dtype=DX.dtype(Bool))
    t = import_dlpack(p)
    @test t isa Tensor{Bool,1} && collect(t) == [false, true, true] && count(t) == 2
    close(t)
    @test calls[] == 1
    # The same for each lane of a vector of bools.
    p, calls = foreign_tensor(UInt8[0, 1, 2, 254]; dtype=DX.dtype(NTuple{2,Bool}), shape=Int64[2])
    t = import_dlpack(p)
    @test t isa Tensor{NTuple{2,Bool},1} && collect(t) == [(false, true), (true, true)]
    @test refused(() -> unsafe_wrap(Array, t), DX.DEVX_COPY_REQUIRED, "Bool")
    close(t)
    @test calls[] == 1
    @test nothing_left()
end

@testset "tensors: shapes and strides" begin
    a = reshape(collect(1.0:60.0), 3, 4, 5)
    @test round_trip(a)
    t = Tensor(a)
    p = export_share(t)
    @test see(p).shape == [3, 4, 5] && see(p).strides == [1, 3, 12]
    dlpack_release(p)
    close(t)
    @test round_trip(fill(7))
    @test round_trip(zeros(3, 0, 2)) && round_trip(Int32[])
    @test round_trip(view(a, 1:2:3, :, 2)) && round_trip(view(a, :, 4:-1:2, 1)) && round_trip(view(a, 2, 3, :))
    @test round_trip(view(a, 2, 2, 2))
    @test round_trip(PermutedDimsArray(a, (3, 1, 2)))
    @test round_trip(reinterpret(Int64, a)) && round_trip(reinterpret(ComplexF64, reshape(a, 6, 10)))
    @test round_trip(reshape(a, ntuple(k -> k <= 3 ? size(a, k) : 1, 10)))
    @test refused(() -> Tensor(1:3), DX.DEVX_UNSUPPORTED, "UnitRange", "collect")
    @test refused(() -> Tensor(view([1, 2, 3], [1, 3])), DX.DEVX_UNSUPPORTED, "SubArray")
    @test refused(() -> Tensor(trues(3)), DX.DEVX_UNSUPPORTED, "the array is a $BitVector")
    @test refused(() -> Tensor(adjoint([1.0+2im 3; 4 5])), DX.DEVX_UNSUPPORTED, "Adjoint")
    @test refused(() -> Tensor(["a"]), DX.DEVX_UNSUPPORTED, "eltype is String")
    @test refused(() -> Tensor([1, missing]), DX.DEVX_UNSUPPORTED, "eltype is Union{Missing")
    @test refused(() -> Tensor(Union{}[]), DX.DEVX_UNSUPPORTED, "eltype is Union{}")

    # The dimensions of a row-major producer keep their order. NULL strides are row-major, too (DLPack before 1.2).
    memory = collect(1:6)
    for steps in (Int64[3, 1], nothing)
        p, calls = foreign_tensor(memory; shape=Int64[2, 3], ndim=2, strides=steps)
        t = import_dlpack(p)
        @test t == [1 2 3; 4 5 6] && strides(t) == (3, 1)
        @test refused(() -> unsafe_wrap(Array, t), DX.DEVX_COPY_REQUIRED, "(3, 1)")
        close(t)
        @test calls[] == 1
    end
    p, calls = foreign_tensor(memory; shape=Int64[3], ndim=1, strides=Int64[-2], byte_offset=40)
    t = import_dlpack(p)
    @test t == [6, 4, 2] && pointer(t) == pointer(memory, 6)
    close(t)
    p, calls = foreign_tensor(memory; shape=Int64[2, 3], ndim=2, strides=Int64[0, 1])
    t = import_dlpack(p)
    @test t == [1 2 3; 1 2 3]
    close(t)
    # A tensor without a deleter.
    p, calls = foreign_tensor(memory; deleter=false)
    t = import_dlpack(p)
    @test sum(t) == 21
    close(t)
    @test calls[] == 0
    dlpack_release(p)
    # The legacy struct.
    p, calls = foreign_legacy(memory)
    t = import_dlpack_legacy(Tensor{Int,1}, p)
    @test t == memory && !isreadonly(t)
    close(t)
    @test calls[] == 1
    @test nothing_left()
end

# An Array over compact memory keeps that memory. (A function, so that the garbage collector can free the array.)
@noinline function wraps_transposed()
    p, calls = foreign_tensor(collect(1.0:6.0); shape=Int64[2, 3], ndim=2, strides=Int64[3, 1])
    t = import_dlpack(p)
    w = unsafe_wrap(Array, Tensor(PermutedDimsArray(t, (2, 1))))
    close(t)
    collect_garbage()
    return calls[] == 0 && w == [1 4; 2 5; 3 6] && pointer(w) == t.data
end

@noinline function wraps(a)
    t = Tensor(a)
    w = unsafe_wrap(Array, t)
    ok = w isa Matrix{Float64} && pointer(w) == pointer(a)
    close(t)
    collect_garbage()
    ok &= DX.rooted() == 1 && outstanding() == 1
    w[1] = 5
    # An array made from it holds on as well.
    flat = vec(w)
    w = nothing
    collect_garbage()
    ok &= DX.rooted() == 1 && outstanding() == 1
    flat[2] = 6
    return ok && a[1] == 5.0 && a[2] == 6.0
end

@testset "tensors: as arrays" begin
    a = reshape(collect(1.0:12.0), 3, 4)
    t = Tensor(a)
    @test t isa AbstractArray{Float64,2} && eltype(t) == Float64 && ndims(t) == 2 && length(t) == 12
    @test t[2, 3] == 8.0 && t[8] == 8.0 && t[end] == 12.0 && t[:, 2] == a[:, 2] && t[CartesianIndex(1, 2)] == 4.0
    @test sum(t) == sum(a) && t * ones(4) == a * ones(4) && t .+ 1 == a .+ 1 && maximum(t; dims=1) == maximum(a; dims=1)
    @test similar(t) isa Matrix{Float64} && Array(t) isa Matrix{Float64} && Array(t) !== a
    t[2, 3] = 80
    @test a[2, 3] == 80.0
    t .= 0
    @test iszero(a)
    @test_throws BoundsError t[4, 1]
    @test_throws BoundsError t[0]
    @test_throws BoundsError t[1, 5] = 1
    @test occursin("3×4 Tensor{Float64", sprint(show, MIME"text/plain"(), t))
    close(t)
    @test wraps(a) && nothing_left()
    @test wraps_transposed() && nothing_left()
    b = Tensor([true, false])
    @test refused(() -> unsafe_wrap(Array, b), DX.DEVX_COPY_REQUIRED, "Bool")
    close(b)
    e = Tensor(zeros(0, 3))
    @test size(unsafe_wrap(Array, e)) == (0, 3)
    close(e)
    @test refused(() -> unsafe_wrap(Array, e), DX.DEVX_CLOSED, "tensor")
    # Read-only.
    r = Tensor([1, 2]; readonly=true)
    @test isreadonly(r) && r[1] == 1
    @test refused(() -> r[1] = 3, DX.DEVX_READ_ONLY, "READ_ONLY")
    @test refused(() -> fill!(r, 0), DX.DEVX_READ_ONLY)
    part = Tensor(view(r, 1:1))
    @test isreadonly(part) && part == [1]
    close(part)
    close(r)
    # The bytes of a text, which must not be written.
    r = Tensor(codeunits("text"))
    @test isreadonly(r) && r == b"text"
    close(r)
    # Tensors of a pointer and a size.
    memory = [1, 2, 3, 4, 5, 6]
    p = Tensor(pointer(memory), (2, 3); root=memory)
    q = Tensor(pointer(memory), (2, 3); strides=(3, 1), root=memory)
    @test p == [1 3 5; 2 4 6] && q == [1 2 3; 4 5 6]
    close(p)
    close(q)
    @test nothing_left()
end

@testset "tensors: parts" begin
    called = Ref(0)
    a = reshape(collect(1.0:24.0), 2, 3, 4)
    t = Tensor(a; release=() -> called[] += 1)
    for indices in ((1:2, 2:3, :), (:, :, 4:4), (2:2, 1:1, 2:4), (:, 3:2, :), (:, :, :), (:, 99:98, 1:1))
        part = slice(t, indices...)
        @test part isa Tensor{Float64,3} && part == a[indices...] && (isempty(part) || strides(part) == strides(t))
        back = import_dlpack(export_move(part))
        @test back == a[indices...]
        close(back)
    end
    for indices in ((0:1, :, :), (:, 1:4, :), (:, :, 5:5))
        @test_throws BoundsError slice(t, indices...)
    end
    @test_throws MethodError slice(t, 1:2)
    middle = slice(t, 2:2, :, :)
    last = slice(middle, :, 3:3, 4:4)
    foreach(close, (t, middle))
    @test refused(() -> slice(t, :, :, :), DX.DEVX_CLOSED)
    drain()
    @test last[1] == 24.0 && called[] == 0
    close(last)
    drain()
    @test called[] == 1
    whole = Tensor([1, 2]; readonly=true)
    r = slice(whole, 2:2)
    close(whole)
    @test isreadonly(r) && r == [2]
    close(r)
    drain()
    @test nothing_left()
end

@testset "tensors: versions, flags, copies" begin
    t = Tensor([1.0 2; 3 4])
    for (asked, given) in ((1, 0) => (1, 0), (1, 2) => (1, 2), (1, 3) => (1, 3), (1, 9) => (1, 3), (2, 0) => (1, 3),
                           v"1.1" => (1, 1))
        p = export_share(t; max_version=asked)
        @test see(p).version == given
        dlpack_release(p)
    end
    @test refused(() -> export_share(t; max_version=(0, 8)), DX.DEVX_VERSION, "max_version is 0.8")
    @test refused(() -> export_move(t; max_version=(0, 8)), DX.DEVX_VERSION) && isopen(t)
    for wrong in (1, 1.0, "1.0", (1,), (1.0, 0), nothing)
        @test refused(() -> export_share(t; max_version=wrong), DX.DEVX_INVALID_ARGUMENT,
            "max_version is $(repr(wrong)): a pair")
    end
    @test refused(() -> export_share(t; stream=0), DX.DEVX_INVALID_STREAM, "stream is 0")
    dlpack_release(export_share(t; stream=nothing))
    @test refused(() -> export_share(t; copy=:maybe), DX.DEVX_INVALID_ARGUMENT, ":maybe")
    @test refused(() -> export_share(t; copy=7), DX.DEVX_INVALID_ARGUMENT, "copy is 7")

    # A copy is row-major, and a flag says that it is a copy.
    p = export_share(t; copy=:always)
    @test see(p).flags == DX.DLPACK_FLAG_BITMASK_IS_COPIED && see(p).strides == [2, 1] && see(p).data != pointer(t)
    u = import_dlpack(Tensor{Float64,2}, p)
    @test u == t && DX.flags(u) == DX.DLPACK_FLAG_BITMASK_IS_COPIED
    close(u)
    c = copy_to(t, DX.CPU)
    @test c isa Tensor{Float64,2} && c == t && strides(c) == (2, 1)
    @test DX.flags(c) == DX.DLPACK_FLAG_BITMASK_IS_COPIED
    @test refused(() -> copy_to(t, DX.cuda(0)), DX.DEVX_DEVICE, "device is cuda:0", "stream")
    c[1, 1] = 9
    @test t[1, 1] == 1.0
    close(c)

    # The producer's flags survive, also unknown bits.
    p, calls = foreign_tensor([1, 2]; flags=UInt64(1) | UInt64(1) << 40)
    r = import_dlpack(p)
    @test isreadonly(r) && DX.flags(r) == UInt64(1) | UInt64(1) << 40
    p = export_share(r)
    @test see(p).flags == DX.flags(r)
    dlpack_release(p)
    @test refused(() -> export_share_legacy(r), DX.DEVX_READ_ONLY, "READ_ONLY")
    @test refused(() -> export_move_legacy(r), DX.DEVX_READ_ONLY) && isopen(r)
    l = export_share_legacy(r; copy=:if_needed)
    @test see(l).shape == [2] && see(l).data != pointer(r)
    dlpack_release(l)
    close(r)
    @test calls[] == 1

    l = export_share_legacy(t)
    @test see(l).data == pointer(t) && see(l).strides == [1, 2]
    u = import_dlpack_legacy(l)
    @test u == t
    close(u)
    l = export_move_legacy(t)
    @test !isopen(t)
    dlpack_release(l)
    @test nothing_left()
end

@testset "tensors: writes to memory that is read" begin
    a = collect(1:6)
    tensors = [Tensor(view(a, 2:4)), Tensor(view(a, 5:-1:3))]
    part, backwards = tensors
    view(a, 3:5) .= part
    @test a == [1, 2, 2, 3, 4, 6]
    view(part, 2:3) .= view(a, 1:2)
    @test a == [1, 2, 1, 2, 4, 6]
    view(part, 2:3) .= view(part, 1:2)
    @test a == [1, 2, 2, 1, 4, 6]
    part .= backwards
    @test a == [1, 4, 1, 2, 4, 6]
    backwards .= reshape(view(a, 1:3), 3)
    @test a == [1, 4, 1, 4, 1, 6]
    # Memory that does not overlap, an array without memory, and a tensor without elements.
    @test !Base.mightalias(part, view(copy(a), 2:4)) && !Base.mightalias(view(a, 1:3), Tensor([1]))
    @test !Base.mightalias(part, 1:3) && !Base.mightalias(Tensor(Int[]), a)
    # Up to the last byte, on both sides.
    front = unsafe_wrap(Array, pointer(a), 3)
    for k in 1:6, t in (Tensor(view(a, k:6)), Tensor(view(a, 6:-1:k)))
        @test Base.mightalias(front, t) == Base.mightalias(t, front) == (k <= 3)
        u = Tensor(view(a, 1:3))
        @test Base.mightalias(t, u) == Base.mightalias(u, t) == (k <= 3)
        foreach(close, (t, u))
    end
    # Of other types of arrays only `dataids` is known.
    @test Base.mightalias(FromZero(a), Tensor(a)) && !Base.mightalias(FromZero([1]), Tensor(a))
    # A view counts as its whole parent.
    @test Base.mightalias(view(a, 6:6), part) && !Base.mightalias(view(part, 1:1), copy(a))
    # Tensors in any wrapper, on either side. These two views overlap.
    lines = (view(a, 1:4), view(a, 2:5))
    square_of(t) = reshape(t, 2, 2)
    wraps = [t -> PermutedDimsArray(square_of(t), (2, 1)), t -> transpose(square_of(t)), t -> square_of(t)',
        square_of, t -> reinterpret(Int64, t), t -> view(PermutedDimsArray(square_of(t), (2, 1)), :, :),
        t -> reshape(view(square_of(t), 2:-1:1, :), 4), t -> PermutedDimsArray(transpose(square_of(t)), (2, 1))]
    for wrap in wraps, (to, from) in (lines, reverse(lines)), mixed in 1:3
        a .= 1:6
        t, u = Tensor(to), Tensor(from)
        # Both sides are tensors, or one of them.
        target, source = wrap(mixed == 2 ? to : t), wrap(mixed == 3 ? from : u)
        # For wrappers of its own arrays, Julia does not always detect the overlap.
        mixed == 2 && target isa PermutedDimsArray && (target = wrap(t))
        mixed == 3 && (source = reshape(from, size(target)))
        wanted = collect(source)
        target .= source
        @test target == wanted
        # A part, copied to another place.
        a .= 1:6
        wanted = copyto!(collect(target), 2, collect(source), 1, 3)
        @test copyto!(target, 2, source, 1, 3) === target && target == wanted
        foreach(close, (t, u))
    end
    for (to, from, count) in ((3, 1, 4), (1, 3, 4), (2, 1, 5), (1, 1, 6), (4, 4, 0))
        a .= 1:6
        t = Tensor(a)
        @test copyto!(t, to, t, from, count) == copyto!(collect(1:6), to, collect(1:6), from, count)
        close(t)
    end
    # A column of a tensor has the tensor's memory, and that of the array.
    for (write, wanted) in ((c -> view(t, 2:6) .= view(c, 1:5), [1, 1, 2, 3, 4, 5]), (c -> t .= view(c, 6:-1:1), 6:-1:1),
                            (c -> copyto!(t, view(c, 6:-1:1)), 6:-1:1), (c -> copyto!(t, 2, c, 1, 5), [1, 1, 2, 3, 4, 5]),
                            (c -> reshape(t, 2, 3) .= transpose(reshape(c, 3, 2)), [1, 4, 2, 5, 3, 6]),
                            (c -> t[2:6] = DX.slice(c, 1:5), [1, 1, 2, 3, 4, 5]), (c -> a .= view(c, 6:-1:1), 6:-1:1))
        a .= 1:6
        t = Tensor(a)
        whole = Batch(t)
        write(root(whole))
        @test a == wanted && Base.mightalias(t, root(whole)) && !Base.mightalias(t, root(copy(whole)))
        foreach(close, (t, whole))
    end
    # In more wrappers than `OfTensor` knows.
    a .= 1:6
    t = Tensor(a)
    deep = reinterpret(Int64, view(transpose(PermutedDimsArray(transpose(reshape(t, 2, 3)), (2, 1))), 3:-1:1, 2:-1:1))
    @test !(deep isa DX.OfTensor)
    t .= reshape(deep, 6)
    @test a == [6, 4, 2, 5, 3, 1]
    close(t)
    t = Tensor(a)
    for f in (() -> copyto!(t, 3, t, 1, 5), () -> copyto!(t, 1, t, 3, 5), () -> copyto!(t, 1, [1], 1, 2))
        @test_throws BoundsError f()
    end
    @test_throws ArgumentError copyto!(t, 1, t, 1, -1)
    close(t)
    a .= 1:6
    t = Tensor(reshape(a, 2, 3))
    PermutedDimsArray(view(t, :, 1:2), (2, 1)) .= view(t, :, 2:3)
    @test a == [3, 5, 4, 6, 5, 6]
    x = view(t, :, 1:2)
    x .= PermutedDimsArray(view(reshape(a, 2, 3), :, 1:2), (2, 1))
    @test a == [3, 4, 5, 6, 5, 6]
    # With axes that do not begin at 1.
    axis = Base.IdentityUnitRange(2:3)
    view(t, 1, axis) .= view(t, 2, axis) .+ view(t, 1, axis)
    @test a == [3, 4, 11, 6, 11, 6]
    close(t)
    foreach(close, tensors)
end

# Otherwise each element would be looked up at run time: what is copied is known only then.
@testset "tensors: known types of what is read" begin
    t = Tensor(reshape(collect(1.0:6.0), 2, 3))
    b = Batch((a=[1.0, 2.0],))
    parts = (t, view(t, :, 2:3), view(t, 1, :), reshape(t, 6), view(reshape(t, 6), 2:3), PermutedDimsArray(t, (2, 1)), t',
        transpose(t), reinterpret(Int64, t), b["a"], view(b["a"], 1:1))
    for source in parts, target in (zeros(2, 3), t, view(t, :, 1:2), t')
        @test (@inferred Base.unalias(target, source)) == source
        @test (@inferred Base.Broadcast.broadcast_unalias(target, source)) == source
    end
    foreach(source -> (@test Base.Broadcast.broadcast_unalias(nothing, source) === source), parts)
    # In the order of the elements, too.
    apart = Base.unalias(t, PermutedDimsArray(t, (2, 1)))
    @test [apart[k] for k in 1:6] == [1, 3, 5, 2, 4, 6] && [Base.unalias([1], t)[k] for k in 1:6] == 1:6
    @test_throws BoundsError apart[7]
    @test_throws BoundsError apart[1, 3]
    foreach(close, (t, b))
    @test nothing_left()
end

# Closes a tensor when it is converted to a number.
struct Closing
    tensor::Tensor
end
Base.convert(::Type{Float64}, c::Closing) = (close(c.tensor); 1.0)

# Element types of the user's own: a correct one and a wrong one.
struct Pixel
    r::UInt8
    g::UInt8
    b::UInt8
end
struct Wrong
    x::UInt16
end
DX.dtype(::Type{Pixel}) = DLDataType(DX.kDLUInt, 8, 3)
DX.dtype(::Type{Wrong}) = DLDataType(DX.kDLUInt, 8, 1)

# A tensor that is closed or on a device can still be shown.
@testset "tensors: unreadable ones are shown" begin
    t = Tensor(reshape(collect(1:6), 2, 3))
    there = Tensor{Int,2}(t.handle, t.data, t.size, t.strides, t.flags, DLDevice(2, 1))
    wraps = (identity, t -> view(t, 1:1, :), t -> view(t, 1, 2), t -> reshape(t, 6), adjoint, transpose,
        t -> PermutedDimsArray(t, (2, 1)), t -> reinterpret(UInt64, t), t -> view(reshape(t', 6), 2:3))
    texts(x) = (repr(x), string(x), repr("text/plain", x))
    for wrap in wraps
        # As Julia shows an array in the same wrapper.
        a, x = wrap(collect(t)), wrap(t)
        @test repr(x) == repr(a) && endswith(repr("text/plain", x), split(repr("text/plain", a), ":\n"; limit=2)[end])
        x = wrap(there)
        @test all(isequal(summary(x) * " on cuda:1"), texts(x)) && repr((x,)) == "($(repr(x)),)"
        @test occursin(" on cuda:1", repr("text/plain", Any[x]))
    end
    close(t)
    for wrap in wraps
        x = wrap(t)
        @test all(isequal(summary(x) * " (closed)"), texts(x))
    end
    b = Batch((n=[1, 2],))
    x = view(b["n"], 2:2)
    @test repr(x) == "[2]" && repr("text/plain", x) == "1-element view(Column of int64, 2:2) with eltype Int64:\n 2"
    close(b)
    @test all(isequal("1-element view(Column (closed), 2:2) with eltype Int64"), texts(x))
    @test nothing_left()
end

@testset "tensors: beside the packages that come with Julia" begin
    ours(pair) = any(m -> m.module === DevExchange, pair)
    ambiguous = filter(ours, Test.detect_ambiguities(DevExchange, Base, SparseArrays, Statistics))
    # Shortened, because the types of wrapped tensors are long.
    foreach(((a, b),) -> println(first(string(a), 300), "\n  ", first(string(b), 300)), ambiguous)
    @test isempty(ambiguous)
    t = Tensor(zeros(2, 3))
    s = sparse([1.0 0 2; 0 3 0])
    PermutedDimsArray(t, (2, 1)) .= s'
    @test t == s && t + s == 2s && t * s' == s * s'
    @test copyto!(PermutedDimsArray(t, (2, 1)), sparse([1 0; 0 4; 5 0])) == [1 0; 0 4; 5 0] && t == [1 0 5; 0 4 0]
    @test copyto!(t, s) == s && copyto!(zeros(2, 3), t) == s && sparse(t) == s && mean(t) == 1 && mean(t; dims=1) == [0.5 1.5 1]
    close(t)
    @test nothing_left()
end

# What Julia makes of a tensor is an array, which nobody has to close.
@testset "tensors: copies that Julia makes" begin
    @test nothing_left()
    t, a = Tensor([4.0 3.0; 2.0 1.0]), [4.0 3.0; 2.0 1.0]
    @test copy(t) isa Matrix{Float64} && copy(t) == a && copy(view(t, 2:-1:1, :)) isa Matrix{Float64}
    for f in (t -> t \ [1, 2], LinearAlgebra.inv, LinearAlgebra.det, LinearAlgebra.svdvals, LinearAlgebra.rank,
              LinearAlgebra.pinv, exp, t -> LinearAlgebra.lu(t).U)
        @test f(t) ≈ f(a)
    end
    close(t)
    drain()
    @test outstanding() == 0
    # Also if the source has to be copied before it is overwritten.
    moves = (t -> (@views t[2:6] .= t[1:5]), t -> (t .= view(t, 6:-1:1)), t -> copyto!(t, t))
    for move in moves
        a = collect(1.0:6.0)
        t, b = Tensor(a), collect(1.0:6.0)
        move(t)
        move(b)
        close(t)
        drain()
        @test outstanding() == 0 && a == b
    end
end

@testset "tensors: made by conversion" begin
    a = [1.0 2; 3 4]
    for make in (() -> convert(Tensor{Float64,2}, a), () -> convert(Tensor{Float64}, a),
                 () -> Tensor{Float64,2}(a; readonly=true))
        t = make()
        @test t isa Tensor{Float64,2} && pointer(t) == pointer(a)
        close(t)
    end
    @test_throws MethodError convert(Tensor{Float32,2}, a)
    t = Tensor(FromZero(a))
    @test axes(t) == (1:2, 1:2) && t == a && convert(Tensor{Float64,2}, t) === t
    close(t)
    @test nothing_left()
end

@testset "tensors: elements of a user's own" begin
    t = allocate(Float64, 2, DX.CPU)
    @test refused(() -> t[1] = Closing(t), DX.DEVX_CLOSED, "tensor") && !isopen(t)
    @test round_trip([RawElement{0x04,0x10,UInt16}(7)]) && round_trip([RawElement{0x00,0x04,UInt8}(7)])
    t = Tensor([Pixel(1, 2, 3)])
    u = import_dlpack(export_share(t))
    @test u[1] === (0x01, 0x02, 0x03)
    foreach(close, (t, u))
    # A consumer goes by the size that the element type states.
    status = DX.DEVX_INVALID_DTYPE
    @test refused(() -> Tensor([RawElement{4,16,UInt64}(1)]), status, "8 bytes", "bits 16, lanes 1", "2 bytes")
    @test refused(() -> Tensor([RawElement{0,4,UInt16}(1)]), status, "2 bytes", "bits 4")
    @test refused(() -> Tensor([(RawElement{0,4,UInt8}(1), RawElement{0,4,UInt8}(2))]), status, "lanes 2")
    @test refused(() -> Tensor([Wrong(1)]), status, "Wrong, of 2 bytes", "1 bytes")
    @test refused(() -> allocate(Wrong, 3, DX.CPU), status) && refused(() -> Tensor(Ptr{Wrong}(8), (1,)), status)
    for T in (RawElement{4,256,UInt8}, RawElement{-1,8,UInt8}, RawElement{:x,8,UInt8}, RawElement{4,0,UInt8})
        @test refused(() -> DX.dtype(T), status, "eltype is $T") && refused(() -> Tensor(Ptr{T}(8), (1,)), status)
    end
    # Arrays without dimensions, from each order into the other.
    @test DX.row_major(falses())[] === false && DX.reversed!(trues(), fill(false))[] === false
    @test DX.write_protected(1:3) && DX.write_protected(reshape(1:4, 2, 2)) && !DX.write_protected([1])
    t = Tensor([1, 2])
    @test refused(() -> read!(1:2, t, 1), DX.DEVX_READ_ONLY, "UnitRange")
    close(t)
    @test nothing_left()
end
