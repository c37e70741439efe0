# Bad input is refused with a status and a message that names the field and the value. Nothing is taken or lost.

# Whether the import of an invalid tensor is refused, and the producer can release the tensor once.
function bad_tensor(status, parts...; array=[1.0, 2.0, 3.0], keywords...)
    before = outstanding()
    p, calls = foreign_tensor(array; keywords...)
    ok = refused(() -> import_dlpack(p), status, parts...)
    ok &= calls[] == 0 && outstanding() == before
    dlpack_release(p)
    return ok && calls[] == 1
end

@testset "refusals: tensors" begin
    null = Ptr{DLManagedTensorVersioned}(C_NULL)
    @test refused(() -> import_dlpack(null), DX.DEVX_NULL_ARGUMENT, "tensor is NULL")
    @test refused(() -> import_dlpack(Tensor{Int,1}, C_NULL), DX.DEVX_NULL_ARGUMENT)
    @test refused(() -> import_dlpack_legacy(C_NULL), DX.DEVX_NULL_ARGUMENT)
    @test dlpack_release(null) === nothing && dlpack_release(Ptr{DLManagedTensor}(C_NULL)) === nothing
    @test dlpack_release(C_NULL) === nothing
    # A pointer to another type is refused before it is read.
    t = Tensor([1.0])
    old, new = export_share_legacy(t), export_share(t)
    @test refused(() -> import_dlpack(old), DX.DEVX_INVALID_ARGUMENT, "Ptr{DLManagedTensor}: `import_dlpack_legacy` ") &&
        refused(() -> import_dlpack_legacy(new), DX.DEVX_INVALID_ARGUMENT, "Ptr{DLManagedTensorVersioned}: `import_dlpack` ")
    for take in (import_dlpack, import_dlpack_legacy, p -> import_dlpack(Tensor{Float64,1}, p))
        @test refused(() -> take(pointer(t)), DX.DEVX_INVALID_ARGUMENT, "source is a Ptr{Float64}: a Ptr{DLManagedTensor")
    end
    close(import_dlpack_legacy(Ptr{Cvoid}(old)))
    dlpack_release(Ptr{Cvoid}(new))
    close(t)
    @test nothing_left()
    @test bad_tensor(DX.DEVX_VERSION, "version is 2.0"; version=(2, 0))
    @test bad_tensor(DX.DEVX_VERSION, "version is 0.8"; version=(0, 8))
    @test bad_tensor(DX.DEVX_INVALID_DTYPE, "dtype.code is 99"; dtype=DLDataType(99, 8, 1))
    @test bad_tensor(DX.DEVX_INVALID_DTYPE, "dtype.bits is 7"; dtype=DLDataType(2, 7, 1))
    @test bad_tensor(DX.DEVX_INVALID_DTYPE, "dtype.lanes is 0"; dtype=DLDataType(2, 64, 0))
    @test bad_tensor(DX.DEVX_UNSUPPORTED, "dtype.code is 3"; dtype=DLDataType(3, 64, 1))
    # Element types that no array of Julia can have: packed ones, and those with too many lanes.
    @test bad_tensor(DX.DEVX_UNSUPPORTED, "dtype is uint4: a Julia array has no packed"; dtype=DLDataType(1, 4, 1))
    @test bad_tensor(DX.DEVX_UNSUPPORTED, "dtype is float4_e2m1fn: "; dtype=DLDataType(17, 4, 1))
    @test bad_tensor(DX.DEVX_UNSUPPORTED, "dtype is int8x1000: ", "more than 64 lanes"; dtype=DLDataType(0, 8, 1000))
    @test bad_tensor(DX.DEVX_INVALID_SHAPE, "shape[1] is -2"; shape=Int64[3, -2], ndim=2, strides=nothing)
    @test bad_tensor(DX.DEVX_INVALID_SHAPE, "shape", "int64"; shape=Int64[1 << 40, 1 << 40], ndim=2, strides=nothing)
    @test bad_tensor(DX.DEVX_INVALID_SHAPE, "bytes"; shape=Int64[1 << 61], strides=nothing)
    @test bad_tensor(DX.DEVX_INVALID_SHAPE, "strides"; shape=Int64[3, 3], ndim=2, strides=Int64[typemax(Int64), 1])
    @test bad_tensor(DX.DEVX_INVALID_SHAPE, "ndim is -1"; ndim=-1)
    @test bad_tensor(DX.DEVX_INVALID_SHAPE, "ndim is 65"; ndim=65)
    @test bad_tensor(DX.DEVX_INVALID_SHAPE, "shape is NULL"; shape=nothing)
    @test bad_tensor(DX.DEVX_INVALID_SHAPE, "byte_offset is $(typemax(UInt64) - 7)"; byte_offset=typemax(UInt64) - 7)
    @test bad_tensor(DX.DEVX_INVALID_ARGUMENT, "byte_offset 4", "aligned"; byte_offset=4)
    @test bad_tensor(DX.DEVX_NULL_ARGUMENT, "data is NULL"; data=C_NULL)
    @test bad_tensor(DX.DEVX_DEVICE, "99"; device=(99, 0))
    @test bad_tensor(DX.DEVX_DEVICE, "device_id is 3"; device=(1, 3))
    # The tensor has another type than the caller names.
    p, calls = foreign_tensor([1.0, 2.0])
    @test refused(() -> import_dlpack(Tensor{Float32,1}, p), DX.DEVX_MISMATCH, "Float64", "ndim 1", "Float32")
    @test refused(() -> import_dlpack(Tensor{Float64,2}, p), DX.DEVX_MISMATCH, "ndim 1")
    @test calls[] == 0
    t = import_dlpack(Tensor{Float64,1}, p)
    close(t)
    @test calls[] == 1
    p, calls = foreign_legacy([1.0, 2.0])
    @test refused(() -> import_dlpack_legacy(Tensor{Int,1}, p), DX.DEVX_MISMATCH)
    dlpack_release(p)
    @test calls[] == 1

    # A construction that fails roots nothing and calls no release.
    called = Ref(0)
    release() = called[] += 1
    data = pointer(kept([1.0, 2.0]))
    @test refused(() -> Tensor(data, (-1,); release=release), DX.DEVX_INVALID_SHAPE, "size[1] is -1: ", "negative")
    @test refused(() -> Tensor(data, (1 << 40, 1 << 40); release=release), DX.DEVX_INVALID_SHAPE)
    @test refused(() -> Tensor(data, (big(2)^64,); release=release), DX.DEVX_OUT_OF_RANGE, "size[1] is $(big(2)^64)")
    @test refused(() -> Tensor(data, (1,); strides=(big(2)^63,)), DX.DEVX_OUT_OF_RANGE, "strides[1] is $(big(2)^63)")
    @test refused(() -> Tensor(data, (1, 2); strides=(1,), release=release), DX.DEVX_INVALID_SHAPE, "1 numbers for 2")
    @test refused(() -> Tensor(data + 1, (1,); release=release), DX.DEVX_INVALID_ARGUMENT, "aligned")
    @test refused(() -> Tensor(Ptr{Float64}(C_NULL), (1,); release=release), DX.DEVX_NULL_ARGUMENT, "data is NULL")
    @test DX.rooted() == 0 && called[] == 0

    # Memory on a device that the host cannot read: every access is refused.
    t = Tensor([1, 2, 3])
    elsewhere = Tensor{Int,1}(t.handle, t.data, t.size, t.strides, t.flags, DLDevice(2, 1))
    for f in (t -> t[1], t -> t[1] = 2, sum, t -> unsafe_wrap(Array, t))
        @test refused(() -> f(elsewhere), DX.DEVX_DEVICE, "cuda:1")
    end
    close(t)

    # A moved tensor.
    t = Tensor([1, 2, 3])
    dlpack_release(export_move(t))
    for f in (t -> t[1], t -> setindex!(t, 1, 1), pointer, share, copy, export_share, export_move, export_share_legacy,
              export_move_legacy, t -> borrow(identity, t), plan_column, Batch, t -> unsafe_wrap(Array, t), sum)
        @test refused(() -> f(t), DX.DEVX_CLOSED, "tensor", "closed")
    end
    @test !isopen(t) && size(t) == (3,) && close(t) === nothing
    @test occursin("closed", sprint(show, MIME"text/plain"(), t))
    @test nothing_left()
end

# Whether the import of a batch that `change(array, schema, column)` made invalid is refused, both structs are unchanged, and
# the producer can release them.
function bad_batch(change, status, parts...; keywords...)
    array, schema, calls, column = foreign_batch(; keywords...)
    change(array, schema, column)
    before = unsafe_load(array)
    schema_before = unsafe_load(schema)
    ok = refused(() -> import_arrow(array, schema), status, parts...)
    ok &= unsafe_load(array) === before && calls[] == 0 && unsafe_load(schema) === schema_before
    arrow_release(schema)
    arrow_release(array)
    return ok && outstanding() == 0
end

nothing_wrong(array, schema, column) = nothing
schema_and_close(b) = close(schema(b))
child_of(p) = unsafe_load(unsafe_load(p).children)

@testset "refusals: batches" begin
    # A valid batch is taken, and each struct is released once.
    array, schema, calls, column = foreign_batch()
    b = import_arrow(array, schema)
    @test b["x"] == [1.0, 2.0, 3.0] && calls[] == 0 && unsafe_load(array).release == C_NULL
    close(b)
    @test calls[] == 2

    # Pointers without a type.
    array, schema, calls, column = foreign_batch()
    b = import_arrow(Ptr{Cvoid}(array), Ptr{Cvoid}(schema))
    @test b["x"] == [1.0, 2.0, 3.0]
    s = Ref(ArrowSchema())
    export_move(DevExchange.schema(b), s)
    taken = GC.@preserve s import_schema(Ptr{Cvoid}(pointer_from_objref(s)))
    out = Ref(ArrowDeviceArray())
    export_share(b, out)
    close(b)
    b = GC.@preserve out import_arrow_device(Ptr{Cvoid}(pointer_from_objref(out)), taken)
    @test b["x"] == [1.0, 2.0, 3.0]
    foreach(close, (b, taken))
    @test calls[] == 2
    @test refused(() -> import_arrow(C_NULL), DX.DEVX_NULL_ARGUMENT) &&
        refused(() -> import_arrow_device(C_NULL), DX.DEVX_NULL_ARGUMENT)

    null_array, null_schema = Ptr{ArrowArray}(C_NULL), Ptr{ArrowSchema}(C_NULL)
    array, schema, calls, column = foreign_batch()
    @test refused(() -> import_arrow(null_array, schema), DX.DEVX_NULL_ARGUMENT, "array is NULL")
    @test refused(() -> import_arrow(array, null_schema), DX.DEVX_NULL_ARGUMENT, "schema is NULL")
    @test refused(() -> import_arrow_device(Ptr{ArrowDeviceArray}(C_NULL), schema), DX.DEVX_NULL_ARGUMENT)
    arrow_release(schema)
    arrow_release(array)
    arrow_release(array)
    arrow_release(null_array)
    @test calls[] == 2
    @test refused(() -> import_arrow(array, schema), DX.DEVX_RELEASED, "schema.release")

    @test bad_batch((a, s, c) -> set!(a; release=C_NULL), DX.DEVX_RELEASED, "array.release")
    @test bad_batch((a, s, c) -> set!(s; release=C_NULL), DX.DEVX_RELEASED, "schema.release")
    for format in ("q", "", "w:-1", "+w:x", "tsx:")
        @test bad_batch(nothing_wrong, DX.DEVX_INVALID_FORMAT, "\"x\"", "format is \"$format\""; format=format)
    end
    @test bad_batch(nothing_wrong, DX.DEVX_INVALID_BUFFERS, "array \"x\"", "n_buffers is 2"; format="vu")
    @test bad_batch((a, s, c) -> set!(child_of(s); format=C_NULL), DX.DEVX_INVALID_FORMAT, "format is NULL")
    @test bad_batch((a, s, c) -> set!(child_of(s); metadata=at(Int32[-1])), DX.DEVX_INVALID_METADATA, "-1")
    @test bad_batch((a, s, c) -> set!(s; n_children=-1), DX.DEVX_INVALID_CHILDREN, "n_children is -1")
    @test bad_batch((a, s, c) -> set!(s; children=C_NULL), DX.DEVX_INVALID_CHILDREN, "children is NULL")
    @test bad_batch((a, s, c) -> set!(child_of(s); release=C_NULL), DX.DEVX_INVALID_CHILDREN, "released")
    @test bad_batch(nothing_wrong, DX.DEVX_INVALID_CHILDREN, "n_children is 0"; format="+l")
    @test bad_batch((a, s, c) -> set!(c; length=-5), DX.DEVX_INVALID_LENGTH, "array \"x\": length is -5")
    @test bad_batch((a, s, c) -> set!(c; offset=-1), DX.DEVX_INVALID_LENGTH, "offset is -1")
    @test bad_batch((a, s, c) -> set!(c; offset=typemax(Int64)), DX.DEVX_INVALID_LENGTH, "$(typemax(Int64))")
    @test bad_batch((a, s, c) -> set!(c; length=1 << 61), DX.DEVX_INVALID_LENGTH, "bytes")
    @test bad_batch((a, s, c) -> set!(c; length=2), DX.DEVX_INVALID_LENGTH, "children[0].length is 2")
    @test bad_batch((a, s, c) -> set!(c; null_count=4), DX.DEVX_INVALID_NULL_COUNT, "null_count is 4")
    @test bad_batch((a, s, c) -> set!(c; null_count=1), DX.DEVX_INVALID_NULL_COUNT, "NULL")
    @test bad_batch((a, s, c) -> set!(c; n_buffers=3), DX.DEVX_INVALID_BUFFERS, "n_buffers is 3")
    @test bad_batch((a, s, c) -> set!(c; buffers=C_NULL), DX.DEVX_INVALID_BUFFERS, "buffers is NULL")
    no_values(a, s, c) = unsafe_store!(unsafe_load(c).buffers, C_NULL, 2)
    @test bad_batch(no_values, DX.DEVX_INVALID_BUFFERS, "buffers[1]")
    @test bad_batch((a, s, c) -> set!(a; n_children=0), DX.DEVX_MISMATCH, "n_children is 0")
    @test bad_batch((a, s, c) -> set!(a; children=C_NULL), DX.DEVX_INVALID_CHILDREN, "children is NULL")
    @test bad_batch((a, s, c) -> set!(c; release=C_NULL), DX.DEVX_INVALID_CHILDREN, "children[0]")
    @test bad_batch((a, s, c) -> set!(c; dictionary=c), DX.DEVX_MISMATCH, "dictionary")
    # A schema that contains itself.
    endless(a, s, c) = (child = child_of(s); set!(child; format=text("+l"), n_children=1, children=at([child])))
    @test bad_batch(endless, DX.DEVX_TOO_DEEP, "64")

    # Wrong devices, and an event on the CPU.
    array, schema, calls, column = foreign_batch()
    for (id, type, event, part) in ((-1, 99, C_NULL, "99"), (7, 1, C_NULL, "device_id is 7"),
                                    (-1, 1, Ptr{Cvoid}(8), "sync_event"))
        d = at(Ref(ArrowDeviceArray(unsafe_load(array), id, type, event, (1, 2, 3))))
        @test refused(() -> import_arrow_device(d, schema), DX.DEVX_DEVICE, part)
        @test unsafe_load(d).array.release != C_NULL && unsafe_load(schema).release != C_NULL && calls[] == 0
    end
    # Device id 0 is the CPU, too, and garbage in `reserved` is ignored.
    d = at(Ref(ArrowDeviceArray(unsafe_load(array), 0, 1, C_NULL, (1, 2, 3))))
    b = import_arrow_device(d, schema)
    @test b["x"] == [1.0, 2.0, 3.0]
    close(b)
    @test nothing_left()

    # NULL outputs, and handles that were moved or closed.
    b = Batch((a=[1, 2],))
    @test refused(() -> export_share(b, null_array), DX.DEVX_NULL_ARGUMENT, "out is NULL")
    @test refused(() -> export_move(b, null_array), DX.DEVX_NULL_ARGUMENT) && isopen(b)
    @test refused(() -> export_share(b, Ref(ArrowArray()), null_schema), DX.DEVX_NULL_ARGUMENT, "schema is NULL")
    room = Ref(ArrowSchema())
    @test refused(() -> export_move(b, null_array, room), DX.DEVX_NULL_ARGUMENT)
    @test room[].release == C_NULL && isopen(b)
    s = Schema(Field[])
    @test refused(() -> export_share(s, null_schema), DX.DEVX_NULL_ARGUMENT)
    close(s)
    array = Ref(ArrowArray())
    export_move(b, array, room)
    for f in (b -> b[1], b -> b["a"], schema_and_close, root, share, b -> export_share(b, Ref(ArrowArray())),
              b -> export_move(b, Ref(ArrowArray())), b -> export_move(b, Ref(ArrowDeviceArray())), keys)
        @test refused(() -> f(b), DX.DEVX_CLOSED, "batch", "closed")
    end
    close(b)
    for f in (root, DX.fields, s -> export_share(s, Ref(ArrowSchema())), s -> Batch(s, [Node(0, (nothing,))]))
        @test refused(() -> f(s), DX.DEVX_CLOSED, "schema")
    end
    arrow_release(array)
    arrow_release(room)
    @test array[].release == C_NULL && nothing_left()
end

@testset "refusals: batches of Julia" begin
    called = Ref(0)
    release() = called[] += 1
    field = Field("x", "g")
    wrong(status, parts...; root=field, nodes) = refused(status, parts...) do
        s = Schema(root)
        try
            Batch(s, nodes; release=release)
        finally
            close(s)
        end
    end
    two = [1.0, 2.0]
    @test wrong(DX.DEVX_INVALID_LENGTH, "length is -1"; nodes=[Node(-1, (nothing, two))])
    @test wrong(DX.DEVX_INVALID_NULL_COUNT, "null_count is 3"; nodes=[Node(2, (nothing, two); null_count=3)])
    @test wrong(DX.DEVX_INVALID_BUFFERS, "n_buffers is 1"; nodes=[Node(2, (two,))])
    @test wrong(DX.DEVX_INVALID_BUFFERS, "buffers[1] is NULL"; nodes=[Node(2, (nothing, nothing))])
    @test wrong(DX.DEVX_INVALID_BUFFERS, "not bits"; nodes=[Node(2, (nothing, ["a", "b"]))])
    @test wrong(DX.DEVX_INVALID_BUFFERS, "side by side"; nodes=[Node(2, (nothing, view(collect(1.0:4), 1:2:4)))])
    @test wrong(DX.DEVX_INVALID_BUFFERS, "neither"; nodes=[Node(2, (nothing, :x))])
    @test wrong(DX.DEVX_MISMATCH, "0"; nodes=Node[])
    @test wrong(DX.DEVX_INVALID_CHILDREN, "n_children is 0"; root=Field("x", "+w:2"), nodes=[Node(1, (nothing,))])
    @test wrong(DX.DEVX_MISMATCH, "index type"; root=Field("x", "g"; dictionary=field), nodes=[Node(1, (nothing,))])
    @test wrong(DX.DEVX_INVALID_TEXT, "NUL"; root=Field("a\0b", "g"), nodes=[Node(1, (nothing,))])
    @test wrong(DX.DEVX_INVALID_TEXT, "name"; root=Field("\xff", "g"), nodes=[Node(1, (nothing,))])
    @test refused(() -> Batch((a=[1, 2], b=[1])), DX.DEVX_INVALID_LENGTH, "\"b\" has length 1", "\"a\" has 2")
    for bad in (Any[1, "a"], Real[1, 2.5], Int128[1, 2], ['a', 'b'], [(1, "a"), (2, "b")], [(), ()], [1im, 2im])
        @test refused(() -> Batch((x=bad,)), DX.DEVX_UNSUPPORTED, "column \"x\"", "no type in Arrow")
    end
    @test refused(() -> Batch((x=Real[1, 2.5],)), DX.DEVX_UNSUPPORTED, "one concrete type")
    @test refused(() -> Batch((x=[1//2],)), DX.DEVX_UNSUPPORTED, "eltype $(Rational{Int})", "as `NamedTuple`s")
    @test refused(() -> Batch((x=['a'],)), DX.DEVX_UNSUPPORTED, "eltype Char", "convert it")
    # The message suggests a conversion, and these conversions work.
    for (bad, what) in ([nothing] => "`replace(column, nothing => missing)`", [1, nothing] => "eltype Nothing",
            [big(1)] => "`Int64`", UInt128[1] => "`Decimal{38,0,Int128}.(column)`", [big(1.5)] => "`Float64`",
            [:a] => "`string.(column)`", [Day(1)] => "`Second`", [Year(1)] => "`Month`", [[1 2]] => "`vec.(column)`",
            [Set([1])] => "`collect.(column)`", Any[1, 2] => "`identity.(column)`",
            [Base.CoreLogging.Debug] => "as `NamedTuple`s", [sin] => "convert it")
        @test refused(() -> Batch((x=bad,)), DX.DEVX_UNSUPPORTED, "column \"x\": eltype ", what)
        @test refused(() -> Field("x", eltype(bad)), DX.DEVX_UNSUPPORTED, "column \"x\": eltype ", what)
    end
    b = Batch((a=replace([1, nothing], nothing => missing), b=Decimal{38,0,Int128}.(big.([1, -2])), c=identity.(Any[1, 2]),
        d=string.([:a, 'b']), e=Second.([Day(1), Week(1)]), f=Month.([Year(1), Year(2)]), g=vec.([[1 2], [3 4]])))
    @test same(b["a"], [1, missing]) && b["b"] == [1, -2] && b["e"] == Second.([86400, 604800]) && b["f"] == Month.([12, 24])
    close(b)
    # The message names the column and the place in it.
    for (bad, place) in ([Any[1]] => "x.item", [(a=1, b='a')] => "x.b", [[(b='a',)]] => "x.item.b", [('a', 'b')] => "x.item",
            Tuple{Any}[(1,)] => "x.item", NTuple{2,Real}[(1, 2.5)] => "x.item", [(1, "a")] => "x", Tuple[(1,), (1, 2)] => "x",
            [Dict("a" => 'b')] => "x.value", RunEndVector(['a']) => "x.values")
        @test refused(() -> Batch((x=bad,)), DX.DEVX_UNSUPPORTED, "column \"$place\": eltype ")
        bad isa RunEndVector || @test refused(() -> Field("x", eltype(bad)), DX.DEVX_UNSUPPORTED, "column \"$place\": ")
    end
    @test refused(() -> Batch((x=Union{Int,Char}[1],)), DX.DEVX_UNSUPPORTED, "column \"x.")
    @test refused(() -> Batch((x=[[Date(10^8)]],)), DX.DEVX_OUT_OF_RANGE, "column \"x.item\"")
    @test refused(() -> Batch((x=[(a=1,), (a="x",)],)), DX.DEVX_UNSUPPORTED, "column \"x\": eltype NamedTuple{(:a,)",
        "one concrete type")
    # The keys of a map are never null.
    @test refused(() -> Batch((x=[Dict(missing => 1, "a" => 2)],)), DX.DEVX_UNSUPPORTED, "column \"x\"", "key missing")
    b = Batch((x=[Dict{Union{Missing,String},Int}("a" => 2)],))
    @test b[:x][1] == Dict("a" => 2) && !DX.nullable(children(children(b[:x])[1])[1])
    close(b)
    # Wrong names, columns and metadata.
    status = DX.DEVX_INVALID_ARGUMENT
    @test refused(() -> Batch(Dict(1 => [1])), status, "the name 1") && refused(() -> Batch(1 => [1]), status, "the name 1")
    @test refused(() -> Batch(Any["a" => [1], 2]), status, "given as 2", "pair")
    for bad in (5, "text", [1, 2], (:a, [1]), [(:a, [1], 2)])
        @test refused(() -> Batch(bad), status, "given as ", "a pair is needed")
    end
    for bad in (nothing, :a, Field("x", Int))
        @test refused(() -> Batch(bad), status, "the columns are given as a $(typeof(bad)): pairs")
    end
    for bad in ("ab" => "cd", Dict("a" => 1), ["a"], "ab", [("a", "b", "c")])
        @test refused(() -> Batch((x=[1],); metadata=bad), status, "metadata has ", "pairs of texts")
    end
    @test Field("x", "i"; metadata=(a="b",) |> pairs).metadata == ["a" => "b"]
    for bad in (5, "text", Dict("a" => 1), [1 2; 3 4], nothing)
        @test refused(() -> Batch((a=[1], x=bad)), DX.DEVX_INVALID_ARGUMENT, "column \"x\" is a $(typeof(bad))", "a vector")
    end
    early = DateTime(Dates.UTM(typemin(Int64)))
    for (bad, what) in (Date(10^8) => "days", Month(1 << 40) => "months", early => "milliseconds")
        @test refused(() -> Batch((x=[bad],)), DX.DEVX_OUT_OF_RANGE, "column \"x\"", "number of $what")
        @test refused(() -> Batch((x=[missing, bad],)), DX.DEVX_OUT_OF_RANGE, "column \"x\"", "number of $what")
    end
    @test refused(() -> DictionaryVector([0, 2], ["a", "b"]), DX.DEVX_OUT_OF_RANGE, "index is 2", "2 values")
    @test refused(() -> Field("x", Char), DX.DEVX_UNSUPPORTED, "\"x\"")

    bytes_at = pointer(kept(zeros(UInt8, 32))) + 1
    b = Batch(Schema(field), [Node(2, (nothing, bytes_at))])
    @test root(b) == [0.0, 0.0] && refused(() -> values(root(b)), DX.DEVX_INVALID_BUFFERS, "aligned")
    close(b)
    @test called[] == 0 && nothing_left()
end

@testset "refusals: wrong columns, names and sources" begin
    z = FromZero([0, 1])
    @test refused(() -> Batch("n" => [1, 2], "z" => z), DX.DEVX_INVALID_ARGUMENT, "column \"z\" has indices", "0:1")
    for f in (() -> DictionaryVector(z), () -> DictionaryVector(z, ["a", "b"]), () -> DictionaryVector([0, 1], z),
              () -> RunEndVector(z), () -> RunEndVector(FromZero([1, 2]), ["a", "b"]), () -> RunEndVector([1, 2], z))
        @test_throws ArgumentError f()
    end
    for f in (x -> Node(x, ()), x -> Node(1, (); null_count=x), x -> Node(1, (); offset=x))
        @test refused(() -> f(big(2)^63), DX.DEVX_OUT_OF_RANGE, " is 9223372036854775808")
    end
    @test refused(() -> Batch((n=[1],); metadata=nothing), DX.DEVX_INVALID_ARGUMENT, "metadata has nothing")
    @test refused(() -> Field("n", "l"; metadata=7), DX.DEVX_INVALID_ARGUMENT, "metadata has 7")
    t = Tensor([1 2; 3 4])
    @test refused(() -> record_batch(t; names=(1, 2)), DX.DEVX_INVALID_ARGUMENT, "the name 1: a text or a symbol")
    named = record_batch(t; names=(:a, "b"))
    s = schema(named)
    @test keys(named) == [:a, :b] && refused(() -> BatchStream(s, s), DX.DEVX_INVALID_ARGUMENT, "source is Schema(")
    foreach(close, (t, named, s))
    @test nothing_left()
end

@testset "refusals: columns that cannot be read" begin
    gone, here = Tensor([1, 2]), Tensor([1, 2])
    there = Tensor{Int,1}(here.handle, here.data, here.size, here.strides, here.flags, DLDevice(2, 1))
    whole = Batch((n=[1, 2], l=[[1], [2]]))
    column, list = whole["n"], whole["l"][1]
    foreach(close, (gone, whole))
    # The column itself cannot be read, or something within it.
    for bad in (gone, view(gone, 2:2), view(gone, [1]), reinterpret(Float64, gone), DictionaryVector(Int8[0, 1], gone), [gone],
            column, view(column, 1:1), list, [list], whole)
        good = fill(1.5, bad isa Batch ? 2 : length(bad))
        @test refused(() -> Batch((a=good, x=bad)), DX.DEVX_CLOSED, "column \"x\": the ", "closed")
    end
    for bad in (there, view(there, 2:2), view(there, [1]), reinterpret(Float64, there), DictionaryVector(Int8[0, 1], there),
            [there])
        good = fill(1.5, length(bad))
        @test refused(() -> Batch((a=good, x=bad)), DX.DEVX_DEVICE, "column \"x\": the memory is on cuda:1", "copy_to")
    end
    close(here)
    @test nothing_left()
end

@testset "refusals: wrong data" begin
    # Wrong data is refused when it is read, with the row that was asked for.
    function broken(f, field, nodes, text, status=DX.DEVX_INVALID_BUFFERS)
        b = Batch(Schema(field), nodes)
        @test refused(() -> f(root(b)), status, text)
        close(b)
    end
    text, reversed = Vector{UInt8}("abc"), "the offsets of row 2 are 3 and 1"
    texts = Node(2, (nothing, Int32[0, 3, 1], text))
    broken(c -> c[2], Field("x", "u"), [texts], reversed)
    broken(c -> bytes(c, 2), Field("x", "z"), [texts], reversed)
    # The message of the library itself.
    broken(c -> DX.text(c, 2), Field("x", "u"), [texts],
        "row 2: column \"x\": the offsets of row 1 are 3 and 1: they must ascend from 0 (rows there are counted from 0)")
    broken(c -> c[1], Field("x", "u"), [Node(1, (nothing, Int32[0, 3, 1], text); offset=1)],
        "the offsets of row 1 are 3 and 1")
    broken(c -> c[1], Field("x", "u"), [texts], "the offsets of row 1 are 0 and 3, those of the column end at 1")
    broken(c -> c[1], Field("x", "u"), [Node(1, (nothing, Int32[0, 3], nothing))],
        "buffers[2] is NULL, but row 1 has 3 bytes")

    entry(n, index, offset) = reinterpret(UInt8, Int32[n, 0, index, offset])
    for (bad, what) in (entry(-1, 0, 0) => "has length -1", entry(20, 1, 0) => "is in data buffer 1",
        entry(20, -1, 0) => "is in data buffer -1", entry(20, 0, 21) => "is 20 bytes at offset 21",
        entry(20, 0, -1) => "is 20 bytes at offset -1")
        views = Node(2, (nothing, [entry(0, 0, 0); bad], zeros(UInt8, 40), [40]))
        broken(c -> c[2], Field("x", "vu"), [views], "the view of row 2 $what")
    end

    missing_data = Node(1, (nothing, entry(20, 0, 0), nothing, [40]))
    broken(c -> c[1], Field("x", "vu"), [missing_data], "buffers[2] is NULL, but row 1 has 20 bytes")

    of_items(format) = Field("x", format; children=[Field("i", "l")])
    items = Node(2, (nothing, [1, 2]))
    broken(c -> c[2], of_items("+l"), [Node(2, (nothing, Int32[0, 0, 3])), items],
        "row 2 is 3 values from 0 on, counted from 0, of a child with length 2")
    broken(c -> c[2], of_items("+vl"), [Node(2, (nothing, Int32[0, 0], Int32[1, -1])), items],
        "row 2 has offset 0 and size -1")
    for id in (4, -1)
        broken(c -> c[2], of_items("+us:3"), [Node(2, (Int8[3, id],)), items], "row 2 has type id $id")
    end
    broken(c -> c[2], of_items("+ud:3"), [Node(2, (Int8[3, 3], Int32[0, 2])), items], "row 2 is offset 2 of child 0")

    # Members of structs, values of dictionaries and values of runs have the row of the column. The items of a list are a column
    # of their own.
    wide = Field("x", "+s"; children=[Field("t$k", "u") for k in 1:40])
    broken(c -> c[2].t40, wide, [Node(2, (nothing,)); fill(texts, 40)], reversed)
    structs = Field("s", "+s"; children=[Field("t", "u")])
    broken(c -> c[2], structs, [Node(2, (nothing,)), texts], reversed)
    broken(c -> c[2][1], Field("x", "+l"; children=[structs]),
        [Node(2, (nothing, Int32[0, 1, 2])), Node(2, (nothing,)), texts], "the offsets of row 1 are 3 and 1")
    encoded(values) = Field("x", "c"; dictionary=Field("", values))
    broken(c -> c[1], encoded("u"), [Node(1, (nothing, Int8[1])), texts], "the offsets of row 1 are 3 and 1")
    for (row, index) in (2 => 2, 3 => -1)
        broken(c -> c[row], encoded("l"), [Node(3, (nothing, Int8[0, 2, -1])), items],
            "row $row is index $index of a dictionary of 2 values", DX.DEVX_OUT_OF_RANGE)
    end
    runs = Field("x", "+r"; children=[Field("run_ends", "i"), Field("values", "u")])
    ends(values, all...) = [Node(3, ()), Node(length(all), (nothing, Int32[all...])), values]
    broken(c -> c[2], runs, ends(texts, 1, 2), reversed)
    broken(c -> c[3], runs, ends(texts, 1, 2), "row 3 has index 2")
    broken(collect, runs, ends(Node(2, (nothing, Int32[0, 1, 3], text)), 1), "row 2 has index 1")
    @test nothing_left()
end

@testset "refusals: texts that are not UTF-8" begin
    for columns in ((c=["ok", "\xff"],), (c=[missing, "\xff"],), Dict("c" => ["ok", SubString("a\xff", 2)]))
        @test refused(() -> Batch(columns), DX.DEVX_INVALID_TEXT, "column \"c\": text 2 is not valid UTF-8")
    end
    @test refused(() -> Batch((l=[["a"], ["b", "\xff"]],)), DX.DEVX_INVALID_TEXT, "text 3 is not valid UTF-8")
    b = Batch((c=[UInt8[0xff]],))
    @test b[1][1] == [0xff]
    close(b)
    @test nothing_left()
end

@testset "refusals: whether a stream is empty" begin
    b, s = Batch((x=[1],)), Schema([Field("x", Int)])
    stream, reader = BatchStream([b], s), AsyncReader()
    for open in (stream, reader)
        @test_throws ArgumentError isempty(open)
    end
    taken = next!(stream)
    @test length(taken) == 1
    foreach(close, (taken, stream, reader, b, s))
    @test nothing_left()
end

@testset "refusals: numbers" begin
    # Numbers that do not fit into the type in C.
    large, own = big(2)^70, Tensor([1.0])
    host, reader = host_only_manager(), AsyncReader(limit=0)
    @test refused(() -> allocate(host, 8, DX.CPU; host_flags=-1), DX.DEVX_OUT_OF_RANGE, "host_flags is -1")
    @test refused(() -> allocate(host, Int, (large,), DX.CPU), DX.DEVX_OUT_OF_RANGE, "size[1] is $large")
    @test refused(() -> DX.initialize(host, 1 << 40), DX.DEVX_OUT_OF_RANGE, "device_id is $(1 << 40)")
    @test refused(() -> DX.cuda(1 << 40), DX.DEVX_OUT_OF_RANGE, "id is $(1 << 40)")
    @test refused(() -> device_count(1 << 40), DX.DEVX_OUT_OF_RANGE, "device_type is $(1 << 40)")
    @test refused(() -> Field("x", "i"; flags=large), DX.DEVX_OUT_OF_RANGE, "flags is $large")
    @test refused(() -> AsyncReader(limit=large), DX.DEVX_OUT_OF_RANGE, "limit is $large")
    @test refused(() -> DX.request(reader, large), DX.DEVX_OUT_OF_RANGE, "n is $large")
    @test refused(() -> export_share(own; max_version=(-1, 0)), DX.DEVX_OUT_OF_RANGE, "max_version[1] is -1")
    @test refused(() -> export_share(own; stream=large), DX.DEVX_OUT_OF_RANGE, "stream is $large")
    @test refused(() -> export_share(own; copy=large), DX.DEVX_OUT_OF_RANGE, "copy is $large")
    for copy in (true, false, "always", nothing)
        @test refused(() -> export_share(own; copy=copy), DX.DEVX_INVALID_ARGUMENT, "copy is $(repr(copy)): neither :never")
    end
    @test refused(() -> export_share_cuda_array(own, C_NULL; max_version=large), DX.DEVX_OUT_OF_RANGE, "max_version")
    @test refused(() -> export_share_cuda_array(own, C_NULL; no_stream=large), DX.DEVX_OUT_OF_RANGE, "no_stream")
    foreach(close, (own, host, reader))
    @test nothing_left()
end

@testset "refusals: callbacks" begin
    schema, before, failed = Schema(Field("x", Int)), outstanding(), DX.release_failures()
    node = Node(1, (nothing, [1]))
    status, array = DX.DEVX_INVALID_ARGUMENT, [1.0]
    for bad in (5, x -> x)
        text = "release is $(repr(bad)): it must be a function without arguments"
        @test refused(() -> Tensor(array; release=bad), status, text)
        @test refused(() -> GC.@preserve(array, Tensor(pointer(array), (1,); release=bad)), status, text)
        @test refused(() -> Batch((x=[1],); release=bad), status, text)
        @test refused(() -> Batch(schema, [Node(1, (nothing,)), node]; release=bad), status, text)
        @test refused(() -> BatchStream(schema, () -> nothing; release=bad), status, text)
        @test refused(() -> MemoryManager(r -> nothing; release=bad), status, text)
        item = ArrayBuilder("item", Int64, 1, (nothing, [1]); release=bad)
        @test refused(() -> Batch(item), status, "release of array \"item\" is $(repr(bad))")
        m = MemoryManager(r -> (pointer(array), DX.CPU, bad))
        @test refused(() -> allocate(m, 8, DX.CPU), status, text)
        close(m)
    end
    @test refused(() -> BatchStream(schema, nothing), status, "source is nothing", "iterated")
    @test refused(() -> BatchStream(schema, x -> x), status, "source is ", "without arguments")
    @test refused(() -> MemoryManager(5), status, "allocate is 5", "MemoryRequest")
    @test refused(() -> MemoryManager(() -> nothing), status, "allocate is ")
    for name in (:initialize, :pin, :memory_info, :ipc_handle, :reset, :trim, :defer_cleanup)
        @test refused(() -> MemoryManager(r -> nothing; (name => 5,)...), status, "$name is 5")
    end
    drain()
    @test outstanding() == before && DX.release_failures() == failed
    close(schema)
    @test nothing_left()
end

@testset "refusals: constructors of handles" begin
    # The error names the constructor that was called, and no function within it.
    for type in (Schema, BatchStream, IpcServer, IpcClient)
        e = try type(3) catch error; error end
        @test e isa MethodError && e.f === type
    end
end
