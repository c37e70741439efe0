# Types that no Julia vector becomes, described by hand and passed through Arrow's structs. Most arrays have an offset.

# Whether an array, exported and imported again, is a column that `check` accepts.
function comes_back(check, array::ArrayBuilder)
    b = returned(Batch(array))
    try
        return check(root(b))
    finally
        close(b)
    end
end

array(format, n, buffers=(); keywords...) = ArrayBuilder("x", format, n, buffers; offset=1, keywords...)

# Views of texts: with the bytes in the view, or at an offset of a data buffer.
in_place(s) = (n = ncodeunits(s); (Int32(n), Tuple(reinterpret(Int32, [codeunits(s); zeros(UInt8, 12 - n)]))...))
elsewhere(n, index, offset) = (Int32(n), Int32(0), Int32(index), Int32(offset))
views(items...) = reinterpret(UInt8, Int32[word for item in items for word in item]) |> collect

const LONG = Vector{UInt8}("a text of more than twelve bytes, and another one that is long")

@testset "types: views" begin
    buffers = (UInt8[0b11011], views(in_place("skipped"), in_place("Zürich"), in_place("null"),
        elsewhere(32, 0, 0), elsewhere(13, 1, 2)), LONG, LONG, Int64[length(LONG), length(LONG)])
    wanted = ["Zürich", missing, String(LONG[1:32]), String(LONG[3:15])]
    @test comes_back(c -> same(c, wanted) && bytes(c, 3) == LONG[1:32], array("vu", 4, buffers))
    @test comes_back(c -> c[1] isa Bytes && same(c, [ismissing(w) ? w : codeunits(w) for w in wanted]),
        array("vz", 4, buffers))
    # All bytes are in the views, so there are no data buffers and no sizes.
    @test comes_back(c -> same(c, ["", "twelve bytes"]), array("vu", 2, (nothing,
        views(in_place("x"), in_place(""), in_place("twelve bytes")), nothing)))
    @test comes_back(isempty, ArrayBuilder("x", "vu", 0, (nothing, nothing, nothing)))
    # Texts without a byte need no data.
    @test comes_back(c -> same(c, ["", missing]), array("u", 2, (UInt8[0b11], zeros(Int32, 4), nothing)))
    # Views outside of the data.
    for (item, parts) in ((elsewhere(-1, 0, 0), ("length -1",)), (elsewhere(13, 2, 0), ("buffer 2", "2")),
            (elsewhere(13, -1, 0), ("buffer -1",)), (elsewhere(13, 0, -1), ("offset -1",)),
            (elsewhere(40, 1, 23), ("40 bytes", "offset 23", "62")), (elsewhere(typemax(Int32), 0, 1), ("62",)))
        b = Batch(array("vu", 1, (nothing, views(item, item), LONG, LONG, Int64[62, 62])))
        @test refused(() -> root(b)[1], DX.DEVX_INVALID_BUFFERS, parts...)
        close(b)
    end
    @test length(LONG) == 62
    b = Batch(array("vu", 1, (nothing, views(in_place(""), elsewhere(13, 0, 0)), nothing, Int64[62])))
    @test refused(() -> root(b)[1], DX.DEVX_INVALID_BUFFERS, "buffers[2]", "NULL")
    close(b)
    @test nothing_left()
end

@testset "types: lists and maps" begin
    child = numbers([10, 20, 30, 40, 50]; offset=0)
    for (format, O) in ("+vl" => Int32, "+vL" => Int64)
        # Lists in any order, some of which share values.
        spans = (UInt8[0b11011], O[0, 3, 0, 0, 1], O[9, 2, 0, 5, 2])
        @test comes_back(array(format, 4, spans; children=[child])) do c
            same(c, [[40, 50], missing, [10, 20, 30, 40, 50], [20, 30]]) && same(children(c)[1], 10:10:50)
        end
        for (start, size) in ((-1, 1), (0, -1), (5, 1), (0, 6), (typemax(O), typemax(O)))
            b = Batch(array(format, 1, (nothing, O[0, start], O[0, size]); children=[child]))
            @test refused(() -> root(b)[1], DX.DEVX_INVALID_BUFFERS, string(start < 0 ? start : size))
            close(b)
        end
    end
    entries = ArrayBuilder("entries", "+s", 3, (nothing,); nullable=false, offset=1, children=[
        ArrayBuilder("key", "u", 4, (nothing, Int32[0, 1, 2, 3, 4], Vector{UInt8}("-aba")); nullable=false),
        ArrayBuilder("value", Float16, 4, (UInt8[0b1011], Float16[0, 1, 2, 3]))])
    made = array("+m", 3, (UInt8[0b1011], Int32[9, 0, 2, 2, 3]); children=[entries], keys_sorted=true)
    @test comes_back(made) do c
        m = c[1]
        DX.keys_sorted(c) && m isa Entries{String,Union{Missing,Float16}} && m isa AbstractDict &&
            collect(keys(m)) == ["a", "b"] && m["a"] === Float16(1) && ismissing(m["b"]) && !haskey(m, "c") &&
            isequal(Dict(m), Dict("a" => Float16(1), "b" => missing)) && get(m, "c", 7) == 7 && ismissing(c[2]) &&
            c[3] == Dict("a" => Float16(3)) && sprint(show, c[3]) == "Entries(\"a\" => Float16(3.0))" &&
            get(() -> 5, c[3], "a") == 3 && get(() -> 5, c[3], "b") == 5 && get(c[3], "b", 6) == 6 &&
            DX.text(c, 3) == "{\"a\": 3}" && length(children(c)[1]) == 3
    end
    # Keys may repeat: the last one counts, as in a `Dict`.
    twice = ArrayBuilder("x", "+m", 1, (nothing, Int32[0, 2]); children=[ArrayBuilder("entries", "+s", 2, (nothing,);
        nullable=false, children=[numbers(Int8[1, 1]; nullable=false), numbers([5, 6])])])
    @test comes_back(c -> c[1][1] == 6 == Dict(c[1])[1] && length(c[1]) == 2, twice)
    # Keys are found as in a `Dict`.
    odd = ArrayBuilder("x", "+m", 1, (nothing, Int32[0, 2]); children=[ArrayBuilder("entries", "+s", 2, (nothing,);
        nullable=false, children=[numbers([NaN, -0.0]; nullable=false), numbers([5, 6])])])
    @test comes_back(c -> c[1][NaN] == Dict(c[1])[NaN] == 5 && !haskey(c[1], 0.0) && c[1][-0.0] == 6, odd)
    @test nothing_left()
end

@testset "types: unions" begin
    texts = ArrayBuilder("t", "u", 3, (UInt8[0b110], Int32[0, 1, 2, 4], Vector{UInt8}("abcd")); offset=0)
    # The type ids are not the numbers of the children.
    ids, offsets = Int8[0, 5, 100, 5, 100], Int32[9, 1, 0, 0, 2]
    dense = array("+ud:5,100", 4, (ids, offsets); children=[numbers([7, 8]; name="n"), texts])
    @test comes_back(dense) do c
        same(c, [8, missing, 7, "cd"]) && eltype(c) == Union{Int,String,Missing} && null_count(c) == 0 &&
            type_ids(c) == [5, 100] && [type_id(c, k) for k in 1:4] == [5, 100, 5, 100] && length(children(c)) == 2 &&
            DX.text(c, 4) == "\"cd\""
    end
    sparse = array("+us:1,0", 2, (Int8[0, 1, 0],); children=[
        ArrayBuilder("item", Int64, 3, (nothing, [6, 7, 8, 9]); offset=1),
        ArrayBuilder("b", "b", 3, (nothing, UInt8[0b101]))])
    @test comes_back(c -> same(c, [8, true]) && same(children(c)[1], [8, 9]), sparse)
    # Within lists and structs, each with an offset.
    lists = array("+l", 2, (nothing, Int32[9, 1, 2, 4]); children=[dense])
    @test comes_back(c -> same(c, [[missing], [7, "cd"]]), lists)
    structs = array("+s", 1, (nothing,); children=[sparse])
    @test comes_back(c -> isequal(c[1], (x=true,)), structs)
    # Unions of many children: at first the element type is a `Union`, then `Any`.
    for n in (9, 40)
        many = ArrayBuilder("x", "+us:" * join(0:n-1, ','), n, (Int8.(0:n-1),);
            children=[isodd(k) ? numbers(fill(Int8(k), n)) : numbers(fill(k / 2, n)) for k in 1:n])
        @test comes_back(c -> same(c, [isodd(k) ? k : k / 2 for k in 1:n]) &&
            (eltype(c) == (n == 9 ? Union{Int8,Float64} : Any)), many)
    end
    @test comes_back(isempty, ArrayBuilder("x", "+ud:", 0, (nothing, nothing)))
    # Wrong type ids and offsets.
    for (id, offset, parts) in ((4, 0, ("type id 4",)), (-1, 0, ("type id -1",)), (5, 2, ("offset 2", "is 2")),
                                (5, -1, ("offset -1",)))
        b = Batch(array("+ud:5,100", 1, (Int8[0, id], Int32[0, offset]); children=dense.children))
        @test refused(() -> root(b)[1], DX.DEVX_INVALID_BUFFERS, parts...)
        close(b)
    end
    b = Batch(dense)
    c = root(b)
    @test_throws BoundsError type_id(c, 0)
    @test_throws BoundsError type_id(c, 5)
    close(b)
    @test refused(() -> type_id(c, 1), DX.DEVX_CLOSED, "batch")
    b = Batch((a=[1],))
    @test refused(() -> type_id(b[1], 1), DX.DEVX_MISMATCH, "\"l\"") && refused(() -> type_ids(b[1]), DX.DEVX_MISMATCH)
    close(b)
    @test nothing_left()
end

@testset "types: runs" begin
    for I in (Int16, Int32, Int64)
        values = array("u", 4, (UInt8[0b110111], Int32[0, 0, 1, 2, 3, 5], Vector{UInt8}("-abcd")))
        ends = ArrayBuilder("run_ends", I, 3, (nothing, I[9, 2, 3, 7]); nullable=false, offset=1)
        # Rows 3 to 6 of 7. The runs are "-", "a" and missing.
        runs = ArrayBuilder("x", "+r", 4; offset=2, children=[ends, values])
        # By index, and in a loop.
        wanted = ["a", missing, missing, missing]
        @test comes_back(c -> same(c, wanted) && isequal([x for x in c], wanted) && isequal(collect(c), wanted) &&
            null_count(c) == 0 && Missing <: eltype(c) && count(_ -> true, c) == 4, runs)
    end
    # Runs that end too early, or whose ends do not ascend.
    short = ArrayBuilder("x", "+r", 3; children=[numbers(Int32[1, 2]; nullable=false), numbers([5, 6])])
    b = Batch(short)
    @test root(b)[1:2] == [5, 6] && refused(() -> root(b)[3], DX.DEVX_INVALID_BUFFERS, "index 2", "2 runs")
    @test refused(() -> collect(root(b)), DX.DEVX_INVALID_BUFFERS, "2 runs")
    close(b)
    for (last, ends) in ((3, Int32[5, 3, 10]), (2, Int32[2, 2, 4]))
        b = Batch(ArrayBuilder("x", "+r", ends[3]; children=[numbers(ends; nullable=false), numbers([5, 6, 7])]))
        @test refused(() -> collect(root(b)), DX.DEVX_INVALID_BUFFERS, "run 2 ends at $last", "before it at $(ends[1])")
        close(b)
    end
    # The same in a slice.
    b = Batch(ArrayBuilder("x", "+r", 10; children=[numbers(Int32[5, 4, 10]; nullable=false), numbers([5, 6, 7])]))
    @test refused(() -> collect(slice(root(b), 4:10)), DX.DEVX_INVALID_BUFFERS, "run 2 ends at 4", "before it at 5")
    close(b)
    @test comes_back(isempty, ArrayBuilder("x", "+r", 0; children=[numbers(Int32[]; nullable=false), numbers(Int[])]))
    # Runs of runs, and lists of them.
    inner = ArrayBuilder("values", "+r", 3; children=[numbers(Int32[1, 3]; nullable=false), numbers([5, 6])])
    outer = array("+r", 3; children=[numbers(Int32[1, 3, 4]; nullable=false), inner])
    @test comes_back(c -> same(c, [6, 6, 6]) && collect(c) == [6, 6, 6], outer)
    @test comes_back(c -> same(c, [[6], [6, 6]]),
        ArrayBuilder("x", "+l", 2, (nothing, Int32[0, 1, 3]); children=[outer]))
    r = RunEndVector([1, 1, 2])
    @test r == [1, 1, 2] && r.ends == Int32[2, 3] && isempty(RunEndVector(Int[]))
    @test RunEndVector([missing, missing]).ends == [2] && RunEndVector([0.0, -0.0, NaN, NaN]).ends == [1, 2, 4]
    @test refused(() -> RunEndVector([1, 2], [1]), DX.DEVX_MISMATCH, "2 ends", "1 values")
    @test refused(() -> RunEndVector([2, 2], [1, 1]), DX.DEVX_OUT_OF_RANGE, "ends at 2")
    @test_throws BoundsError r[0]
    @test_throws BoundsError r[4]
    @test nothing_left()
end

@testset "types: dictionaries of anything" begin
    indices = (UInt8[0b11011], Int8[9, 1, 0, 0, 1])
    check(values, wanted) = comes_back(array("c", 4, indices; dictionary=values)) do c
        same(c, wanted[[2, 3, 1, 2]]) && length(dictionary(c)) == 2
    end
    @test check(array("+l", 2, (nothing, Int32[0, 1, 2, 3]); children=[numbers([1, 2, 3])]), [[2], [3], missing])
    @test check(array("+s", 2, (nothing,); children=[numbers([1, 2, 3]; name="a")]), [(a=2,), (a=3,), missing])
    @test check(array("vu", 2, (nothing, views(in_place("-"), in_place("a"), in_place("b")), nothing)),
        ["a", "b", missing])
    @test check(ArrayBuilder("x", "+r", 2; children=[numbers(Int32[1, 2]; nullable=false), numbers([1.5, 2.5])]),
        [1.5, 2.5, missing])
    @test check(numbers(Float16[0.5, NaN]), [Float16(0.5), Float16(NaN), missing])
    @test nothing_left()
end

# A copy of the vector over a column's memory, which is left to the collector here. (A function, so that nothing else has it.)
@noinline copied(c) = copy(values(c))

# The indices of a dictionary-encoded column are a plain column of integers in every respect.
@testset "types: indices by themselves" begin
    field = Field("d", "c"; ordered=true, metadata=("k" => "v",), dictionary=Field("", "u"; metadata=("k" => "w",)))
    b = Batch(Schema([field]), [Node(4, (nothing,)), Node(4, (nothing, Int8[9, 0, 1, 0, 1]); offset=1),
        Node(2, (nothing, Int32[0, 1, 2], Vector{UInt8}("xy")))])
    c = b["d"]
    i = indices(c)
    @test c == ["x", "y", "x", "y"] && i isa Column{Int8} && copied(i) == [0, 1, 0, 1] && strides(i) == (1,)
    @test DX.type_name(i) == "int8" && summary(i) == "4-element Column of int8" && DX.name(i) == "d"
    @test DX.text(i, 2) == "1" && DX.text(slice(i, 2:3), 1) == "1" && DX.format(i) == "c" && null_count(i) == 0
    @test isempty(DX.metadata(i)) && !DX.ordered(i) && DX.nullable(i) && isempty(children(i))
    @test refused(() -> dictionary(i), DX.DEVX_MISMATCH) && refused(() -> indices(i), DX.DEVX_MISMATCH)
    @test plan_tensor(i).kind === :view && plan_tensor(c).kind === :impossible
    t, part = Tensor(i), share(slice(i, 2:3))
    @test t isa Tensor{Int8,1} && pointer(t) == pointer(i) && root(part) == [1, 0] && pointer(root(part)) == pointer(i) + 1
    s = schema(part)
    @test root(s) == Field("d", "c")
    # The column still has its dictionary.
    whole = share(c)
    @test root(whole) == c == ["x", "y", "x", "y"] && DX.metadata(c) == ["k" => "v"] && DX.ordered(c)
    foreach(close, (b, s, whole))
    @test t == [0, 1, 0, 1] && root(part) == [1, 0]
    @test refused(() -> indices(c), DX.DEVX_CLOSED) && refused(() -> share(i), DX.DEVX_CLOSED) &&
        refused(() -> Tensor(i), DX.DEVX_CLOSED) && refused(() -> DX.text(i, 1), DX.DEVX_CLOSED)
    foreach(close, (t, part))
    for index in (2, -1)
        @test refused(() -> DictionaryVector([0, index], ["x", "y"]), DX.DEVX_OUT_OF_RANGE, "index is $index: ", "2 values")
    end
    for (n, I) in ((128, Int8), (129, Int16), (32768, Int16), (32769, Int32))
        @test eltype(DictionaryVector(1:n).indices) === I
    end
    b = Batch((d=DictionaryVector(["x", missing, "x", "z"]),))
    i = indices(b["d"])
    part = share(slice(i, 1:2))
    @test isequal(collect(i), [0, missing, 0, 1]) && isequal(collect(root(part)), [0, missing]) && DX.text(i, 2) == "null"
    foreach(close, (b, part))
    # What may be missing are the elements, wherever that is stored: here it is a value of the dictionary.
    b = Batch((d=DictionaryVector([0, 1], ["x", missing]), e=DictionaryVector([0, 0], ["x"])))
    @test isequal(b["d"], ["x", missing]) && DX.nullable(b["d"]) && !DX.nullable(b["e"])
    close(b)
    @test nothing_left()
end

@testset "types: values" begin
    d = Decimal{9,2,Int32}(-150)
    @test string(d) == "-1.50" && d == -3 // 2 && Float64(d) == -1.5 && BigFloat(d) == -1.5 && isless(d, 0) && d != 1
    @test d == Decimal{38,1,Int128}(-15) && hash(d) == hash(Decimal{38,1,Int128}(-15)) && isequal(d, -3 // 2)
    @test string(Decimal{9,-3,Int32}(12)) == "12000" && string(Decimal{9,3,Int32}(0)) == "0.000" &&
        string(Decimal{9,2,Int32}(-5)) == "-0.05"
    # As for other numbers, `isless` and `isequal` have an order of their own.
    for zero in (Decimal{9,2,Int32}(0), Decimal{9,2_000_000,Int32}(0))
        @test zero == -0.0 && !isequal(zero, -0.0) && !isequal(-0.0, zero) && isequal(zero, 0.0)
        @test !(zero > -0.0) && !(-0.0 < zero) && zero <= -0.0 && length(unique(Any[zero, 0.0, -0.0])) == 2
        @test !(zero < NaN) && !(NaN < zero) && !(zero >= NaN) && isless(zero, NaN) && zero < 1 && -1.5 < zero
    end
    @test string(Decimal{9,2_000_000_000,Int32}(12)) == "12e-2000000000" && 0 < Decimal{9,2,Int32}(1)
    for x in (0, -1, 1, big(2)^255 - 1, -big(2)^255, -big(10)^60)
        @test BigInt(DX.Int256(x)) == x
    end
    @test_throws InexactError DX.Int256(big(2)^255)
    @test_throws InexactError DX.Int256(-big(2)^255 - 1)
    @test Date(2024, 1, 31) + Dates.CompoundPeriod(MonthDayNano(1, 1, 0)) == Date(2024, 3, 1)
    @test DateTime(2024) + Dates.CompoundPeriod(DayTime(1, 5)) == DateTime(2024, 1, 2, 0, 0, 0, 5)
    @test Dates.CompoundPeriod(MonthDayNano(1, 2, 3)) == Month(1) + Day(2) + Nanosecond(3)
    # Each is one value to broadcasting, and so is what is handed on.
    none = Decimal{9,2,Int32}(0)
    for (x, other) in ((d, none), (DX.Int256(1), DX.Int256(2)), (MonthDayNano(1, 2, 3), MonthDayNano(0, 0, 0)),
                       (DayTime(1, 2), DayTime(0, 0)), (RawElement{0x04,0x10,UInt16}(1), RawElement{0x04,0x10,UInt16}(2)))
        @test ([x, other] .== x) == [true, false]
    end
    rows = Batch((d=[d, none], k=[1, 2]))
    @test (rows[:d] .== d) == [true, false] && (rows[:d] .< none) == [true, false]
    @test getindex.(rows, [:k, :d]) == [rows[:k], rows[:d]]
    tensors = [Tensor([1]), Tensor([2])]
    copies = copy_to.(tensors, DX.CPU)
    @test copies == tensors
    foreach(close, (rows, tensors..., copies...))
    # Values of any type as text.
    b = Batch((a=[1, missing], b=["x\"y", "z"^600],
        c=[(k=[1.5], m=Dict("a" => d)), (k=Float64[], m=Dict{String,typeof(d)}())]))
    @test DX.text(root(b), 1) == "{\"a\": 1, \"b\": \"x\\\"y\", \"c\": {\"k\": [1.5], \"m\": {\"a\": -1.50}}}"
    @test DX.text(b[:b], 2) == repr("z"^600) && DX.text(b[:a], 2) == "null"
    @test repr(b[:a]) == "[1, missing]" && repr((b[:a],)) == "([1, missing],)"
    @test_throws BoundsError DX.text(b[:a], 3)
    times = Batch((d=[Date(2000, 2, 29), missing], t=[DateTime(1969, 12, 31, 23, 59, 59, 5), DateTime(10000)],
        c=[Time(23, 59), Time(0)], s=[Second(-90), Second(0)], k=DictionaryVector([0, 0], ["x"])))
    @test [DX.text(root(times), k) for k in 1:2] == [
        "{\"d\": 2000-02-29, \"t\": 1969-12-31T23:59:59.005, \"c\": 23:59:00.000000000, \"s\": -90 s, \"k\": \"x\"}",
        "{\"d\": null, \"t\": +10000-01-01T00:00:00.000, \"c\": 00:00:00.000000000, \"s\": 0 s, \"k\": \"x\"}"]
    kinds = ["date32", "timestamp(millisecond)", "time(nanosecond)", "duration(second)", "int64 -> utf8"]
    @test DX.type_name.(columns(times)) == kinds
    own = schema(times)
    @test DX.type_name.(DX.fields(own)) == kinds && DX.type_name("tsu:Europe/Berlin") == "timestamp(microsecond, Europe/Berlin)"
    @test occursin("Column of date32", repr("text/plain", times[:d]))
    @test refused(() -> DX.type_name("x:y"), DX.DEVX_INVALID_FORMAT, "\"x:y\"")
    @test refused(() -> DX.type_name("a\0b"), DX.DEVX_INVALID_TEXT, "format")
    d1 = times[:d]
    foreach(close, (own, times))
    @test refused(() -> DX.type_name(d1), DX.DEVX_CLOSED)
    # A decimal alone is shown as in a column.
    for scale in (-129, -128, 0, 128, 129), x in (12, 0, -12)
        decimals = Batch((d=[Decimal{9,scale,Int32}(x)],))
        @test string(decimals[:d][1]) == DX.text(decimals[:d], 1)
        close(decimals)
    end
    shown = repr("text/plain", b)
    @test startswith(shown, "Batch of 2 rows") && occursin("\n {\"a\": 1, ", shown) && !occursin("more", shown)
    # A row is cut off only where space is limited.
    cut = split(repr("text/plain", b; context=IOContext(stdout, :limit => true, :displaysize => (24, 40))), '\n')
    @test all(line -> length(line) == 39 && endswith(line, '…'), cut[2:3]) && occursin("z"^600, shown)
    @test !occursin("Column{", repr("text/plain", b[:c][1].k))
    c = b[:a]
    close(b)
    @test refused(() -> DX.text(c, 1), DX.DEVX_CLOSED) && repr("text/plain", b) == "Batch (closed)"
    b = Batch((a=1:30,))
    @test endswith(repr("text/plain", b), "… and 20 more")
    close(b)
    @test nothing_left()
end

# Three numbers within `levels` lists and structs in turn.
function deep(levels)
    inner = numbers([1, 2, 3]; name="x")
    for k in 1:levels
        inner = isodd(k) ? ArrayBuilder("x", "+l", 2, (nothing, Int32[0, 1, 2]); children=[inner]) :
            ArrayBuilder("x", "+s", 2, (UInt8[0b01],); children=[inner])
    end
    return inner
end

# A number within `levels` maps.
deep_maps(levels) = levels == 0 ? numbers([7]) : ArrayBuilder("x", "+m", 1, (nothing, Int32[0, 1]);
    children=[ArrayBuilder("entries", "+s", 1, (nothing,); nullable=false,
        children=[numbers([1]; name="key", nullable=false), deep_maps(levels - 1)])])

innermost(x) = x isa NamedTuple ? innermost(x.x) : x isa AbstractVector ? innermost(x[1]) : x

@testset "types: deep and wide" begin
    levels = 63
    @test comes_back(deep(levels)) do c
        innermost(c) == 1 && length(repr(typeof(c))) < 5000 && occursin("[1]", repr(c)) &&
            startswith(DX.text(c, 1), "[{")
    end
    @test refused(() -> Batch(deep(64)), DX.DEVX_TOO_DEEP, "64")
    # Maps of unions of runs of lists.
    runs = ArrayBuilder("v", "+r", 2; children=[numbers(Int32[1, 2]; nullable=false),
        ArrayBuilder("l", "+vl", 2, (nothing, Int32[0, 1], Int32[1, 2]); children=[numbers([1, 2, 3])])])
    union = ArrayBuilder("value", "+us:3,4", 2, (Int8[3, 4],); children=[runs, numbers([1.5, 2.5])])
    entries = ArrayBuilder("entries", "+s", 2, (nothing,); nullable=false,
        children=[numbers([10, 20]; name="key", nullable=false), union])
    @test comes_back(ArrayBuilder("x", "+m", 1, (nothing, Int32[0, 2]); children=[entries])) do c
        m = c[1]
        m[10] == [1] && m[20] == 2.5 && DX.text(c, 1) == "{10: [1], 20: 2.5}"
    end
    # Maps of maps.
    @test comes_back(c -> length(repr(typeof(c))) < 5000 && DX.text(c, 1) == "{1: "^8 * "7" * "}"^8, deep_maps(8))
    # In a batch of a thousand columns, rows look their members up.
    b = returned(Batch(["c$k" => (isodd(k) ? [k, missing] : ["a", "b"]) for k in 1:1000]))
    r = root(b)[2]
    @test size(b) == (2, 1000) && length(columns(b)) == 1000 && r isa Row && length(r) == 1000
    @test ismissing(r.c1) && r[:c2] == "b" && r[4] == "b" && keys(r) == keys(b) && length(collect(r)) == 1000
    other = Batch(["d$k" => (isodd(k) ? [k, missing] : ["a", "b"]) for k in 1:1000])
    @test !isequal(r, root(other)[2]) && !isequal(root(other)[1], root(b)[1]) && root(other)[1] != root(b)[1] == root(b)[1]
    close(other)
    push!(keys(r), :more)
    @test length(r) == 1000 && r.c1000 == last(values(r))
    @test isequal(r, root(b)[2]) && !isequal(r, root(b)[1]) && hash(r) == hash(root(b)[2])
    @test startswith(repr(r), "Row(c1 = missing, c2 = \"b\", ") && :c7 in propertynames(r)
    # The members of this row cannot be compared with each other.
    mixed = Batch(["c$k" => (isodd(k) ? [Time(k % 24)] : [DateTime(k)]) for k in 1:40])
    @test hash(root(mixed)[1]) == hash(root(mixed)[1]) != hash(r)
    close(mixed)
    @test_throws KeyError r.nope
    @test_throws BoundsError r[1001]
    close(b)
    @test refused(() -> r.c1, DX.DEVX_CLOSED)
    b = Batch([Symbol("c$k") => [k] for k in 1:40])
    @test NamedTuple(root(b)[1]) == (; (Symbol("c$k") => k for k in 1:40)...)
    close(b)
    # Columns without rows, of each type but dictionaries and runs.
    b = returned(Batch([name => v[1:0] for (name, v) in COLUMNS if !(v isa DictionaryVector || v isa RunEndVector)]))
    @test size(b, 1) == 0 && all(isempty, columns(b)) && isempty(root(b)) && isempty(collect(root(b)))
    close(b)
    @test nothing_left()
end

# Slices of list views, unions and runs as another library makes them, with offsets and lengths at every level.
@testset "types: slices" begin
    inner(n) = numbers(collect(1:n); name="item")
    make() = Batch([
        ArrayBuilder("v", "vu", 6, (nothing, views((in_place(string(k)) for k in 1:6)...), nothing)),
        ArrayBuilder("lv", "+vl", 6, (nothing, Int32[5, 4, 3, 2, 1, 0], Int32[1, 2, 3, 2, 1, 0]); children=[inner(6)]),
        ArrayBuilder("su", "+us:0,1", 6, (Int8[0, 1, 0, 1, 0, 1],); children=[inner(6), numbers(collect(0.5:5.5))]),
        ArrayBuilder("du", "+ud:0,1", 6, (Int8[0, 1, 0, 1, 0, 1], Int32[0, 0, 1, 1, 2, 2]); children=[inner(3),
            numbers([0.5, 1.5, 2.5])]),
        ArrayBuilder("r", "+r", 6; children=[numbers(Int32[1, 4, 6]; nullable=false), numbers([10, 20, 30])]),
    ])
    whole = make()
    wanted = [collect(c) for c in columns(whole)]
    @test wanted[1] == string.(1:6) && wanted[2] == [[6], [5, 6], [4, 5, 6], [3, 4], [2], []] &&
        wanted[3] == [1, 1.5, 3, 3.5, 5, 5.5] && wanted[4] == [1, 0.5, 2, 1.5, 3, 2.5] &&
        wanted[5] == [10, 20, 20, 20, 30, 30]
    for outer in 0:2, own in 0:2
        array, schema = Ref(ArrowArray()), Ref(ArrowSchema())
        b = make()
        export_move(b, array, schema)
        p = at(array)
        for k in 1:5
            set!(unsafe_load(unsafe_load(p).children, k); offset=own, length=6 - own, null_count=-1)
        end
        set!(p; offset=outer, length=6 - own - outer, null_count=0)
        b = import_arrow(array, schema)
        ok = all(k -> same(b[k], wanted[k][1+own+outer:6]) && isequal(collect(b[k]), wanted[k][1+own+outer:6]), 1:5)
        ok || println("slice ", outer, " + ", own, ": ", columns(b))
        @test ok
        close(b)
    end
    close(whole)
    @test nothing_left()
end

# Errors count the rows of the column that is read, wherever they are in the buffers.
@testset "types: rows in errors" begin
    # The third of these values is broken.
    texts(; name="t") = ArrayBuilder(name, "u", 3, (nothing, Int32[0, 0, 1, 0], UInt8['a']))
    three, dictionary = numbers([7, 8, 9]; offset=0), numbers([7, 8])
    data_and_sizes = (LONG, Int64[length(LONG)])
    item(x) = (nothing, views(in_place(""), in_place(""), x), data_and_sizes...)
    ends(numbers...) = ArrayBuilder("run_ends", Int32, length(numbers), (nothing, collect(Int32, numbers)); nullable=false)
    # All of these have an offset of 1, and row 2 is broken.
    for (broken, says) in (
            [array(format, 2, (nothing, O[0, 0, 1, 0], UInt8['a'])) => "the offsets of row 2 are 1 and 0" for
                (format, O) in ("u" => Int32, "U" => Int64, "z" => Int32, "Z" => Int64)]...,
            array("u", 2, (nothing, Int32[0, 0, 0, 1], nothing)) => "row 2 has 1 bytes",
            array("+l", 2, (nothing, Int32[0, 0, 1, 0]); children=[three]) => "the offsets of row 2 are 1 and 0",
            array("+l", 2, (nothing, Int32[0, 0, 1, 9]); children=[three]) => "row 2 is 8 values from 1 on",
            array("+vl", 2, (nothing, Int32[0, 0, -1], Int32[0, 0, 0]); children=[three]) => "row 2 has offset -1",
            array("vu", 2, item(elsewhere(-1, 0, 0))) => "row 2 has length -1",
            array("vu", 2, item(elsewhere(13, 5, 0))) => "row 2 is in data buffer 5",
            array("vz", 2, item(elsewhere(13, 0, 60))) => "row 2 is 13 bytes at offset 60",
            array("vu", 2, (item(elsewhere(13, 0, 0))[1:2]..., nothing, Int64[62])) => "row 2 has 13 bytes",
            array("c", 2, (nothing, Int8[0, 0, 5]); dictionary=dictionary) => "row 2 is index 5",
            array("c", 2, (nothing, Int8[0, 0, 2]); dictionary=texts()) => "row 2 are 1 and 0",
            array("tts", 2, (nothing, Int32[0, 0, -1])) => "row 2 of column",
            array("+ud:0", 2, (Int8[0, 0, 9], Int32[0, 0, 0]); children=[three]) => "row 2 has type id 9",
            array("+ud:0", 2, (Int8[0, 0, 0], Int32[0, 0, 7]); children=[three]) => "row 2 is offset 7",
            array("+ud:0", 2, (Int8[0, 0, 0], Int32[0, 0, 2]); children=[texts()]) => "row 2 are 1 and 0",
            array("+us:" * join(0:8, ','), 2, (Int8[0, 0, 0],); children=[texts() for _ in 0:8]) => "row 2 are 1 and 0",
            array("+s", 2, (nothing,); children=[texts()]) => "row 2 are 1 and 0",
            array("+s", 2, (nothing,); children=[texts(; name="t$k") for k in 1:40]) => "row 2 are 1 and 0",
            array("+r", 2; children=[ends(1, 2), numbers([7, 8])]) => "row 2 has index 2",
            array("+r", 2; children=[ends(1, 2, 3), texts()]) => "row 2 are 1 and 0")
        b = Batch(broken)
        read(x) = x isa DX.Row ? x[1] : x
        status = occursin(r"index 5|of column", says) ? DX.DEVX_OUT_OF_RANGE : DX.DEVX_INVALID_BUFFERS
        c = root(b)
        @test refused(() -> read(c[2]), status, says)
        @test refused(() -> read(slice(c, 2:2)[1]), status, replace(says, "row 2 " => "row 1 "))
        close(b)
    end
    @test nothing_left()
end

@testset "types: times out of range" begin
    function stored(format, numbers)
        schema = Schema(Field("x", format))
        b = Batch(schema, [Node(length(numbers), (nothing, numbers))])
        close(schema)
        return b
    end
    for (format, I, last) in (("tts", Int32, 86_400), ("ttm", Int32, 86_400_000), ("ttu", Int64, 86_400_000_000),
                              ("ttn", Int64, 86_400_000_000_000))
        b = stored(format, I[0, last - 1, -1, last, typemax(I)])
        c = root(b)
        @test c[1] == Time(0) && c[2] > Time(23, 59, 58)
        says(k) = "row $k of column \"x\" is $(I[-1, last, typemax(I)][k-2]), of format \"$format\": no time of day"
        @test all(k -> refused(() -> c[k], DX.DEVX_OUT_OF_RANGE, says(k)), 3:5)
        close(b)
    end
    last = typemax(Int64) - Dates.UNIXEPOCH
    for (format, most, least) in (("tsm:", last, typemin(Int64)), ("tss:", last ÷ 1000, typemin(Int64) ÷ 1000))
        b = stored(format, [most, least, most + 1, typemax(Int64)])
        c = root(b)
        @test c[1] > DateTime(200_000_000) && c[2] < DateTime(-200_000_000)
        says = ": no DateTime"
        @test all(k -> refused(() -> c[k], DX.DEVX_OUT_OF_RANGE, "row $k of column \"x\" is ", says), 3:4)
        close(b)
    end
    b = stored("tss:", [typemin(Int64)])
    @test refused(() -> root(b)[1], DX.DEVX_OUT_OF_RANGE, "is $(typemin(Int64)), of format \"tss:\"")
    close(b)
    @test nothing_left()
end

@testset "types: decimals with too many digits" begin
    most(P) = big(10)^P - 1
    for (P, I) in ((1, Int32), (9, Int32), (18, Int64), (5, Int128), (38, Int128), (40, DX.Int256), (76, DX.Int256))
        D = Decimal{P,2,I}
        good = [D(I(most(P))), D(I(-most(P))), D(I(0))]
        b = Batch((x=good, y=[missing; good[2:3]], z=[(d, d) for d in good], l=[good, D[], good[1:1]]))
        @test same(b["x"], good) && same(b["y"], [missing; good[2:3]]) && same(b["l"][1], good)
        close(b)
        for bad in (most(P) + 1, -most(P) - 1), v in ([good; D(I(bad))], [missing; good[1:2]; D(I(bad))])
            @test refused(() -> Batch((x=v,)), DX.DEVX_OUT_OF_RANGE, "column \"x\": row 4 is $(v[4]), ", " $P digits ")
        end
        over = D(I(most(P) + 1))
        for (v, place) in ([[good[1]], [over]] => "x.item\": row 2 ", [(good[1], over)] => "x.item\": row 2 ",
                [(d=over,)] => "x.d\": row 1 ", DictionaryVector(Int8[0], [over]) => "x\": row 1 ")
            @test refused(() -> Batch((x=v,)), DX.DEVX_OUT_OF_RANGE, "column \"$place")
        end
    end
    # A type with more digits than its integer has is refused.
    for D in (Decimal{10,0,Int32}, Decimal{77,0,DX.Int256}, Decimal{10^9,0,Int64})
        @test refused(() -> Batch((x=[zero(D)],)), DX.DEVX_INVALID_FORMAT, "\"x\"")
    end
    # In each word there are two that differ in nothing above it.
    words = DX.Int256.((-big(2)^255, -big(2)^192, -1, 0, 1, 2, 1 + big(2)^64, big(2)^65, big(2)^128, 1 + big(2)^129,
        big(2)^255 - 1))
    @test all((words[j] < words[k]) == (j < k) for j in eachindex(words), k in eachindex(words))
    @test nothing_left()
end

@testset "types: decimals of any scale" begin
    # A schema may have any scale. Nothing may be computed with so many digits.
    huge(x, scale=-2_000_000_000) = Decimal{38,scale,Int128}(x)
    tiny(x) = huge(x, 2_000_000_000)
    a = huge(1)
    b = Batch([ArrayBuilder("d", "d:38,-2000000000", 1, (nothing, Int128[1]))])
    @test b[:d][1] == a && b[:d][1] != 5 && allunique([b[:d][1], tiny(1)])
    close(b)
    @test a > 5 && a > 1e300 && a > big(10)^5 && a > 7 // 2 && a != Inf && a < Inf && huge(-1) > -Inf && huge(-1) < -1e300
    @test isless(a, NaN) && !isless(NaN, a) && a != NaN && huge(-1) < 0 && -5 < a && a > π
    @test !(a < NaN) && !(NaN < a) && !(a < huge(10, -1_999_999_999)) && !isless(a, huge(10, -1_999_999_999))
    @test 0 < tiny(1) < 1e-300 && tiny(-1) < 0 && tiny(7) < 1 // big(10)^40 && tiny(-1) > -1e-300
    @test tiny(0) == 0 == huge(0) && tiny(0) == huge(0) && !isless(tiny(0), 0.0) && hash(tiny(0)) == hash(0)
    @test a == huge(10, -1_999_999_999) && hash(a) == hash(huge(10, -1_999_999_999)) && a < huge(11, -1_999_999_999)
    @test sort([a, tiny(1), huge(-1), huge(0)]) == [huge(-1), huge(0), tiny(1), a]
    @test Float64(a) == Inf && Float64(huge(-3)) == -Inf && Float64(tiny(5)) === 0.0 && Float32(tiny(-5)) === -0.0f0
    @test Float64(huge(0)) === 0.0 && BigFloat(a) == BigFloat(10)^2_000_000_000
    @test a < 2 * BigFloat(10)^2_000_000_000 && a > BigFloat(10)^2_000_000_000 / 2 && tiny(2) > BigFloat(10)^-2_000_000_000
    # They differ in the last of 38 digits.
    @test huge(Int128(10)^37 + 1, -1_999_999_963) > BigFloat(10)^2_000_000_000 > huge(Int128(10)^37 - 1, -1_999_999_963)
    # On both sides of the largest scale that is computed exactly, a decimal compares like the equal number of Julia.
    for scale in (9_950, 10_000, 10_001, 20_000)
        x, ten = huge(12, -scale), 12 * big(10)^scale
        @test x == ten && x > ten - 1 && x < ten + 1 && huge(12, scale) == 12 // big(10)^scale && x != big(10)^scale
        @test hash(x) == hash(huge(120, 1 - scale)) && x == huge(120, 1 - scale) && isless(x, huge(121, 1 - scale))
        @test !(x < ten) && !(ten < x) && !isless(x, ten) && !isless(ten, x) && hash((x, 1)) == hash((huge(120, 1 - scale), 1))
    end
    @test hash(huge(1, -9_990)) == hash(big(10)^9_990) && hash(huge(10, 9_950)) == hash(1 // big(10)^9_949)
    c(x, scale=2) = Decimal{9,scale,Int32}(x)
    @test c(150) == 1.5 == c(15, 1) && c(-150) < c(-14, 1) < c(-139) && hash(c(150)) == hash(1.5) && c(0) == c(0, -3)
    @test c(-1500) < c(-14, 1) && c(1500) > c(14, 1) && hash((c(150), 2)) == hash((1.5, 2))
    @test all(d -> hash(d, UInt(1)) != hash(d, UInt(2)), (a, tiny(0), huge(12, -9_950), c(150)))
end
