# Fields of every type, builders of arrays, and batches of batches.
using Logging

@testset "builders: fields" begin
    @test Field("x", Vector{Int}) == list_field("x", Field("item", "l"; nullable=false); nullable=false)
    @test Field("x", Union{Missing,Dict{String,Union{Missing,Int}}}) == map_field("x", String, Union{Missing,Int})
    @test Field("x", NamedTuple{(:a, :b),Tuple{Int,String}}).children ==
        [Field("a", "l"; nullable=false), Field("b", "u"; nullable=false)]
    # Two text types of Julia are one type of Arrow, and so are two types of vectors with the same elements.
    @test Field("x", Union{String,SubString{String}}).format == "u"
    @test Field("x", Union{Vector{Int},UnitRange{Int}}) == Field("x", Vector{Int})
    @test Field("x", NTuple{3,Int8}).format == "+w:3" && Field("x", Decimal{9,2,Int32}).format == "d:9,2,32"
    lists(; keywords...) = list_field("x", Int; keywords...).format
    @test (lists(), lists(large=true), lists(view=true), lists(view=true, large=true)) == ("+l", "+L", "+vl", "+vL")
    @test lists(size=3) == "+w:3"
    u = union_field("u", [Int, Field("t", "vu")]; type_ids=(3, 7))
    @test u.format == "+ud:3,7" && type_ids(u) == [3, 7] && DX.name.(u.children) == ["0", "t"]
    @test union_field("u", []; dense=false).format == "+us:" && isempty(type_ids(union_field("u", [])))
    @test refused(() -> union_field("u", [Int]; type_ids=[1, 2]), DX.DEVX_MISMATCH, "\"u\"", "2 type ids", "1 members")
    @test refused(() -> type_ids(Field("x", "l")), DX.DEVX_MISMATCH, "\"l\"")
    r = run_end_field("r", String; ends=Int16)
    @test r.format == "+r" && r.children[1] == Field("run_ends", "s"; nullable=false) && r.children[2].format == "u"
    # The field of a vector's element type equals the field of its column, whichever values are missing.
    of_types = [column for column in COLUMNS if !(last(column) isa Union{DictionaryVector,RunEndVector})]
    for (name, v) in [of_types; [name => nulls(v) for (name, v) in of_types]; [name => nulls(v)[1:2] for (name, v) in of_types];
            "tuples of unions" => Union{Missing,NTuple{2,Union{Int,String}}}[(1, "a"), missing];
            "structs of structs" =>
                Union{Missing,NamedTuple{(:a,),Tuple{NamedTuple{(:b,),Tuple{Union{Int,Date}}}}}}[(a=(b=1,),), missing]]
        b = Batch((x=v,))
        s = schema(b)
        ok = DX.fields(s) == [Field("x", eltype(v))]
        ok || println(name, ": ", DX.fields(s), " and not ", Field("x", eltype(v)))
        @test ok
        foreach(close, (s, b))
    end
    # A union of text types is one text type.
    @test Field("x", Union{String,SubString{String}}) == Field("x", String; nullable=false)
    # All of these fields, exported and imported again.
    point = extension(Field("p", "w:16"; metadata=("k" => "v",)), "test.point", "{}")
    days = Field("d", "c"; ordered=true, flags=64, dictionary=Field("", "vu"))
    sorted = map_field("m", Int, u; keys_sorted=true, nullable=false)
    all_fields = [u, r, point, days, sorted, struct_field("s", [point]), list_field("l", sorted; view=true)]
    s = Schema(all_fields)
    out = Ref(ArrowSchema())
    export_move(s, out)
    s = import_schema(out)
    @test DX.fields(s) == all_fields
    close(s)
    @test extension_name(point) == "test.point" && extension_metadata(point) == "{}" && extension_name(u) === nothing
    @test extension(point, "other").metadata ==
        ["ARROW:extension:name" => "other", "ARROW:extension:metadata" => "", "k" => "v"]
    # The order of metadata keys means nothing, but that of the values of one key does: the last one counts.
    told(pairs...) = Field("x", "i"; metadata=pairs)
    @test told("a" => "1", "b" => "2") == told("b" => "2", "a" => "1") != told("b" => "1", "a" => "2")
    @test hash(told("a" => "1", "b" => "2")) == hash(told("b" => "2", "a" => "1")) && told("a" => "1") != told()
    @test told("a" => "1", "b" => "", "a" => "2") == told("b" => "", "a" => "1", "a" => "2") !=
        told("b" => "", "a" => "2", "a" => "1")
    key = "ARROW:extension:name"
    @test extension_name(told(key => "test.line", key => "test.point")) == "test.point"
    @test DX.ordered(days) && DX.nullable(days) && !DX.keys_sorted(days) && DX.flags(days) == 64 | 2 | 1
    @test DX.keys_sorted(sorted) && !DX.nullable(sorted) && !DX.nullable(sorted.children[1].children[1])
    # Keys are never null, whatever their own field says.
    @test !DX.nullable(map_field("m", Field("k", "u"), Int).children[1].children[1])
    for (status, part, format, children) in ((DX.DEVX_INVALID_CHILDREN, "int64", "+m", [Field("e", Int)]),
            (DX.DEVX_INVALID_CHILDREN, "1 children", "+m", [struct_field("e", [Field("k", Int)])]),
            (DX.DEVX_INVALID_CHILDREN, "float64", "+r", [Field("e", Float64), Field("v", Int)]),
            (DX.DEVX_INVALID_FORMAT, "\"+us:0,0\"", "+us:0,0", [u, u]),
            (DX.DEVX_INVALID_FORMAT, "\"+ud:128\"", "+ud:128", [u]),
            (DX.DEVX_INVALID_CHILDREN, "2", "+ud:0", [u, u]), (DX.DEVX_INVALID_CHILDREN, "0", "+vl", Field[]))
        @test refused(() -> Schema(Field("bad", format; children=children)), status, part)
    end
    @test nothing_left()
end

@testset "builders: arrays" begin
    # Foreign memory with a release, Julia arrays without one, a dictionary, and metadata.
    called = Symbol[]
    data = Ptr{Int64}(Libc.malloc(24))
    foreach(k -> unsafe_store!(data, 10k, k), 1:3)
    item = ArrayBuilder("item", Int64, 3, (nothing, data); release=() -> (Libc.free(data); push!(called, :item)))
    lists = ArrayBuilder("lists", "+l", 2, (nothing, Int32[0, 1, 3]); children=[item], metadata=("k" => "v",),
        null_count=0)
    words = ArrayBuilder("", "u", 2, (nothing, Int32[0, 1, 2], Vector{UInt8}("ab"));
        release=() -> push!(called, :words))
    coded = ArrayBuilder("coded", Int8, 2, (nothing, Int8[9, 1, 0]); offset=1, dictionary=words, ordered=true)
    @test repr(coded) == "ArrayBuilder(\"coded\", \"c\", 2)"
    b = Batch([lists, coded]; metadata=("of" => "the batch",), release=() -> push!(called, :batch))
    GC.gc()
    @test same(b["lists"], [[10], [20, 30]]) && same(b["coded"], ["b", "a"]) && DX.metadata(b["lists"]) == ["k" => "v"]
    @test DX.metadata(root(b)) == ["of" => "the batch"] && DX.ordered(b["coded"]) && isempty(called)
    @test pointer(children(b["lists"])[1]) == data
    c = returned(b)
    @test same(c["lists"], [[10], [20, 30]]) && isempty(called)
    close(c)
    drain()
    @test sort(called) == [:batch, :item, :words] && nothing_left()

    # A batch without columns, and a batch that is one array.
    b = Batch(ArrayBuilder[]; rows=5)
    @test size(b) == (5, 0)
    close(b)
    b = Batch(ArrayBuilder("n", "n", 4))
    @test size(b) == (4, 0) && all(ismissing, root(b))
    close(b)

    # Wrong input is refused with the field and the value, and no release is called.
    empty!(called)
    release() = push!(called, :released)
    bad(status, array, parts...; keywords...) = refused(() -> Batch(array; keywords...), status, parts...)
    one(format, n, buffers=(); keywords...) = ArrayBuilder("x", format, n, buffers; release=release, keywords...)
    child = numbers([1, 2])
    @test bad(DX.DEVX_INVALID_FORMAT, one("?", 1), "\"x\"", "?")
    @test bad(DX.DEVX_INVALID_LENGTH, one("l", -1, (nothing, [1])), "length is -1")
    @test bad(DX.DEVX_INVALID_LENGTH, one("l", 1, (nothing, [1]); offset=-2), "offset is -2")
    @test bad(DX.DEVX_INVALID_BUFFERS, one("vu", 1, (nothing, [1])), "n_buffers is 2")
    @test bad(DX.DEVX_INVALID_BUFFERS, one("+vl", 1, (nothing, [1]); children=[child]), "n_buffers is 2")
    @test bad(DX.DEVX_INVALID_BUFFERS, one("+vl", 1, (nothing, [1], nothing); children=[child]), "buffers[2] is NULL")
    @test bad(DX.DEVX_INVALID_BUFFERS, one("+ud:0", 1, (nothing, Int32[0]); children=[child]), "buffers[0] is NULL")
    @test bad(DX.DEVX_INVALID_BUFFERS, one("+r", 1, (nothing,); children=[numbers(Int32[1]), child]), "n_buffers is 1")
    @test bad(DX.DEVX_INVALID_LENGTH, one("+us:0", 3, (Int8[0, 0, 0],); children=[child]), "children[0].length is 2")
    @test bad(DX.DEVX_INVALID_LENGTH, one("+r", 1; children=[numbers(Int32[]), child]), "children[0].length is 0")
    @test bad(DX.DEVX_INVALID_LENGTH, one("+r", 1; children=[numbers(Int32[1, 2, 3]), child]),
        "children[1].length is 2")
    @test bad(DX.DEVX_INVALID_NULL_COUNT, one("+us:0", 2, (Int8[0, 0],); children=[child], null_count=1),
        "null_count is 1")
    @test bad(DX.DEVX_MISMATCH, one("g", 1, (nothing, [1.5]); dictionary=child), "index type")
    @test bad(DX.DEVX_DEVICE, one("l", 1, (nothing, [1])), "99"; device=DLDevice(99, 0))
    @test bad(DX.DEVX_INVALID_LENGTH, [one("l", 2, (nothing, [1, 2])), one("l", 1, (nothing, [1]))],
        "children[1].length is 1")
    @test refused(() -> ArrayBuilder("x", Char, 1), DX.DEVX_UNSUPPORTED, "\"x\"")
    drain()
    @test isempty(called) && nothing_left()

    # A release that throws does not keep the others from being called.
    failures = DX.release_failures()
    failing = ArrayBuilder("a", "l", 1, (nothing, [1]); release=() -> error("on purpose"))
    b = Batch([failing, one("l", 1, (nothing, [1]))])
    close(b)
    with_logger(drain, NullLogger())
    @test called == [:released] && DX.release_failures() == failures + 1 && nothing_left()
    # Nor does one that is interrupted. The interrupt is thrown afterwards, and counts as one failure.
    empty!(called)
    interrupted = ArrayBuilder("a", "l", 1, (nothing, [1]); release=() -> throw(InterruptException()))
    b = Batch([interrupted, one("l", 1, (nothing, [1])), one("l", 1, (nothing, [2]))])
    close(b)
    @test_throws InterruptException drain()
    @test called == [:released, :released] && DX.release_failures() == failures + 2 && nothing_left()

    # An array with a release can have one place in one batch. If that batch is refused, the array can be used again.
    empty!(called)
    x, plain = one("l", 1, (nothing, [1])), numbers([1])
    list = ArrayBuilder("list", "+l", 1, (nothing, Int32[0, 1]); children=[x])
    status, text = DX.DEVX_INVALID_ARGUMENT, "array \"x\" is in the tree twice, or in a batch already"
    @test refused(() -> Batch([x, x]), status, text) && refused(() -> Batch([list, list]), status, text)
    @test refused(() -> Batch([x, numbers(Int[])]), DX.DEVX_INVALID_LENGTH)
    b = Batch([plain, list, plain])
    @test refused(() -> Batch(x), status, text) && refused(() -> Batch([list]), status, text)
    c = Batch([plain])
    foreach(close, (b, c))
    drain()
    @test called == [:released] && refused(() -> Batch(x), status, text) && nothing_left()
end

@testset "builders: the size of arrays" begin
    x(format, buffers; keywords...) = ArrayBuilder("x", format, 2, buffers; keywords...)
    # Exactly enough bytes, one byte too few, and an offset beyond the end.
    enough, few = reinterpret(UInt8, [1, 2]), zeros(UInt8, 15)
    close(Batch(x("l", (nothing, enough))))
    @test refused(() -> Batch(x("l", (nothing, few))), DX.DEVX_INVALID_BUFFERS,
        "array \"x\": buffers[1] has 15 bytes: offset and length 2 of int64 take 16")
    @test refused(() -> Batch(x("l", (nothing, enough); offset=1000)), DX.DEVX_INVALID_BUFFERS, "offset and length 1002")
    @test refused(() -> Batch(ArrayBuilder("x", "l", 9, (trues(8), ones(Int, 9)))), DX.DEVX_INVALID_BUFFERS,
        "buffers[0] has 1 bytes", "take 2")
    close(Batch(ArrayBuilder("x", "l", 9, (trues(9), ones(Int, 9)))))
    # A single element has no neighbour to be side by side with.
    b = Batch(ArrayBuilder("x", "l", 1, (nothing, view([7, 8, 9], 2:2:2))))
    @test root(b) == [8]
    close(b)
    # The size of the memory behind a pointer is unknown, so it is not checked.
    GC.@preserve few close(Batch(x("l", (nothing, pointer(few)))))
    # Nested arrays of a batch with a schema are checked, too. Impossible lengths are refused as such.
    s = Schema([list_field("l", Field("i", "c"; dictionary=Field("v", "i")))])
    nodes(values) = [Node(1, (nothing,)), Node(1, (nothing, Int32[0, 1])), Node(1, (nothing, Int8[0])),
        Node(2, (nothing, values))]
    b = Batch(s, nodes(Int32[1, 2]))
    @test b["l"][1] == [1]
    close(b)
    @test refused(() -> Batch(s, nodes(Int32[1])), DX.DEVX_INVALID_BUFFERS, "array \"v\": buffers[1] has 4 bytes", "8")
    close(s)
    @test refused(() -> Batch(ArrayBuilder("x", "i", typemax(Int), (nothing, Int32[1]))), DX.DEVX_INVALID_LENGTH)
    b = Batch(ArrayBuilder("x", "u", 0, (nothing, Int32[], UInt8[])))
    @test isempty(root(b))
    close(b)
    @test nothing_left()
end

@testset "builders: batches of batches" begin
    called = Ref(0)
    release() = called[] += 1
    a = Batch((p=[1, 2], q=["x", missing]); release=release)
    t = Tensor([1.5, 2.5]; release=release)
    c = Batch(t; name="other")
    joined = Batch("a" => a, :t => c)
    again = Batch([a, c] |> list -> ["l" => list[1], "r" => list[2]])
    named = Batch((first=a, second=c))
    foreach(close, (a, t, c))
    drain()
    @test called[] == 0 && keys(joined) == [:a, :t] && joined["t"] == [1.5, 2.5]
    @test isequal(joined["a"][2], (p=2, q=missing))
    @test keys(again) == [:l, :r] && keys(named) == [:first, :second] && pointer(again["r"]) == pointer(named["second"])
    b = returned(joined)
    @test b["t"] == [1.5, 2.5] && same(children(b["a"])[2], ["x", missing])
    foreach(close, (b, again, named))
    drain()
    @test called[] == 2
    two, three = Batch((x=[1, 2],)), Batch((x=[1, 2, 3],))
    @test refused(() -> Batch("a" => two, "b" => three), DX.DEVX_INVALID_LENGTH, "\"b\" has length 3", "2")
    @test refused(() -> Batch("a\0" => two), DX.DEVX_INVALID_TEXT, "a\\0")
    close(three)
    @test refused(() -> Batch("b" => three), DX.DEVX_CLOSED, "column \"b\": the batch")
    with = Batch("a" => two; metadata=["k" => "v"])
    @test DX.metadata(with) == ["k" => "v"] && with["a"][1] == (x=1,)
    close(with)
    @test two["x"] == [1, 2]
    close(two)
    @test nothing_left()
end

# Columns of any type join another batch, also if no Julia vector has the type, or if they are too deep or too wide to be
# copied.
@testset "builders: columns of other batches" begin
    fields = [Field("ts", "tsu:Europe/Berlin"), Field("day", "tdm"), Field("text", "U"),
        extension(Field("id", "l"; nullable=false), "my.type", "p")]
    nodes = [Node(2, (nothing,)), Node(2, (nothing, [1_000_001, 2])), Node(2, (nothing, [0, 86_400_000])),
        Node(2, (nothing, [0, 1, 2], codeunits("ab"))), Node(2, (nothing, [7, 8]))]
    a = Batch(Schema(fields), nodes)
    wide = NamedTuple{Tuple(Symbol("c$k") for k in 1:40)}(ntuple(identity, 40))
    b = Batch((coded=DictionaryVector(["x", missing]), deep=[[[[[[1]]]]], [[[[[2]]]]]], wide=[wide, wide]))
    called = Ref(0)
    m = Batch("t" => a["ts"], "n" => [1, 2], :whole => b, (f => a[f] for f in ("day", "text", "id"))...,
        (f => b[f] for f in (:coded, :deep, :wide))..., "i" => indices(b["coded"]);
        metadata=["k" => "v"], release=() -> called[] += 1)
    s, t = schema(m), schema(a)
    @test keys(m) == [:t, :n, :whole, :day, :text, :id, :coded, :deep, :wide, :i] && root(s).metadata == ["k" => "v"]
    @test DX.fields(s)[4:6] == DX.fields(t)[2:4] && timezone(m["t"]) == "Europe/Berlin" && extension_name(m["id"]) == "my.type"
    @test pointer(m["t"]) == pointer(a["ts"]) && dictionary(m["coded"]) == ["x"] && DX.type_name(m["i"]) == "int8"
    for f in ("deep", "wide")
        @test DX.text(m[f], 2) == DX.text(b[f], 2)
    end
    foreach(close, (a, b, s, t))
    drain()
    @test m["text"] == ["a", "b"] && m["n"] == [1, 2] && m["day"] == Date.(1970, 1, 1:2) && called[] == 0
    close(m)
    drain()
    @test called[] == 1
    # One such column alone, in each form of the constructor, and a part of one.
    a = Batch(Schema(fields), nodes)
    for one in (Batch("x" => a["ts"]), Batch((x=a["ts"],)), Batch(Any["x" => a["ts"]]), Batch(Dict("x" => a["ts"])))
        @test DX.type_name(one["x"]) == "timestamp(microsecond, Europe/Berlin)" && pointer(one["x"]) == pointer(a["ts"])
        close(one)
    end
    part = Batch("x" => slice(a["ts"], 2:2), "y" => ["z"])
    @test part["x"] == [2] && part["y"] == ["z"]
    close(part)
    # A refusal takes nothing and calls no release.
    called[] = 0
    release() = called[] += 1
    @test refused(() -> Batch("x" => a["ts"], "y" => [1]; release=release), DX.DEVX_INVALID_LENGTH, "\"y\" has length 1")
    @test refused(() -> Batch("x" => a["ts"]; release=release), DX.DEVX_INVALID_ARGUMENT, "release is ", "are of batches")
    @test refused(() -> Batch("x" => a["ts"], "y\0" => [1, 2]; release=release), DX.DEVX_INVALID_TEXT)
    @test refused(() -> Batch("x" => a["ts"], "y" => [1, 2]; metadata=7, release=release), DX.DEVX_INVALID_ARGUMENT)
    c = a["ts"]
    close(a)
    @test refused(() -> Batch("y" => [1, 2], "x" => c; release=release), DX.DEVX_CLOSED, "column \"x\": the batch")
    @test nothing_left() && called[] == 0
end

@testset "builders: vectors" begin
    # An element type that Arrow does not have is refused, at any depth.
    for bad in (Any[1, "a"], [Dict{Any,Int}()], [Dict("a" => 'x')], Union{Int,Char}[1, 'a'], [[1, 'a']], [(a='x',)])
        @test refused(() -> Batch((x=bad,)), DX.DEVX_UNSUPPORTED, "no type in Arrow")
    end
    # Columns of these types become columns of another batch.
    first = Batch([name => v for (name, v) in COLUMNS])
    again = Batch([name => b for (name, b) in zip(keys(first), columns(first))])
    @test all(k -> same(again[k], COLUMNS[k].second), eachindex(COLUMNS))
    @test pointer(again["decimal 128"]) == pointer(first["decimal 128"])
    foreach(close, (first, again))
    b = returned(Batch((s=Union{String,SubString{String}}["a", SubString("abc", 2)],
        l=Union{Vector{Int},UnitRange{Int}}[[1], 2:3])))
    @test same(b[:s], ["a", "bc"]) && same(b[:l], [[1], [2, 3]])
    close(b)
    b = returned(Batch((r=RunEndVector(fill(1, 100_000)), s=RunEndVector(1:100_000))))
    @test all(isequal(1), b[:r]) && length(children(b[:r])[1]) == 1 && collect(b[:s]) == 1:100_000
    close(b)
    # Elements that are not side by side are copied.
    b = returned(Batch((s=view(collect(1:6), 1:2:6), r=view([1.5, 2.5, 3.5], 3:-1:1), t=view([(k, -k) for k in 1:5], 1:2:5))))
    @test b[:s] == [1, 3, 5] && b[:r] == [3.5, 2.5, 1.5] && same(b[:t], [(1, -1), (3, -3), (5, -5)])
    close(b)
    # The length of a vector is not always an `Int`.
    b = returned(Batch((u=UInt64(1):UInt64(3), s=["a", "b", "c"])))
    @test b[:u] == 1:3 && same(b[:s], ["a", "b", "c"])
    close(b)
    # Any row of a union can be null.
    v = Union{Missing,Int,String}[missing, 1, "a", missing]
    D = Dict{Int,Union{Missing,Float64}}
    b = returned(Batch((x=v, y=[missing, D(1 => missing), D(2 => 3.5), missing])))
    @test same(b[:x], v) && ismissing(b[:y][1]) && ismissing(b[:y][2][1]) && b[:y][3] == Dict(2 => 3.5)
    @test null_count(b[:x]) == 0 && null_count(b[:y]) == 2
    s = schema(b)
    @test DX.fields(s) == [Field("x", eltype(v)), Field("y", Union{Missing,D})]
    foreach(close, (b, s))
    @test nothing_left()
end
