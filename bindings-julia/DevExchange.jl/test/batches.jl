# Batches, exported to Arrow's structs and imported from them.

@testset "batches: every type" begin
    for (suffix, change) in ("" => identity, " with nulls" => with_nulls)
        columns = [name * suffix => change(v) for (name, v) in COLUMNS]
        b = Batch(columns)
        @test size(b) == (ROWS, length(columns)) && keys(b) == Symbol.(first.(columns))
        @test length(values(b)) == length(columns) && first.(collect(pairs(b))) == keys(b)
        table = (; pairs(b)...)
        @test collect(keys(table)) == keys(b) && [typeof(c) for c in table] == typeof.(values(b))
        array, schema = move_through_c(b)
        @test array[].device_type == 1 && array[].device_id == -1 && array[].sync_event == C_NULL
        @test array[].array.n_children == length(columns) && array[].reserved == (0, 0, 0)
        imported = import_arrow_device(array, schema)
        @test array[].array.release == C_NULL && schema[].release == C_NULL
        for (k, (name, wanted)) in enumerate(columns)
            c = imported[k]
            @test DX.name(c) == name && DX.format(c) == FORMATS[COLUMNS[k].first]
            ok = same(c, wanted) && (Missing <: eltype(c)) == (suffix != "")
            ok || println(name, ": ", typeof(c))
            @test ok
        end
        close(imported)
    end
    @test nothing_left()
end

# Slices at every level: of the whole batch, and of each column by itself.
@testset "batches: slices" begin
    for change in (identity, with_nulls)
        columns = [name => change(v) for (name, v) in COLUMNS]
        for (outer, inner) in ((2, 0), (0, 1), (2, 1))
            b = Batch(columns)
            array, schema = Ref(ArrowArray()), Ref(ArrowSchema())
            export_move(b, array, schema)
            p = at(array)
            n = ROWS - outer - inner - 1
            for k in 1:length(columns)
                child = unsafe_load(unsafe_load(p).children, k)
                offset = unsafe_load(child).offset
                set!(child; offset=offset + inner, length=ROWS - inner, null_count=-1)
            end
            set!(p; offset=outer, length=n, null_count=0)
            imported = import_arrow(array, schema)
            @test size(imported, 1) == n
            for (k, (name, wanted)) in enumerate(columns)
                ok = same(imported[k], wanted[outer+inner+1:outer+inner+n])
                ok || println(name, " from ", outer, " + ", inner, ": ", typeof(imported[k]))
                @test ok
            end
            close(imported)
        end
    end
    @test nothing_left()
end

@testset "batches: parts" begin
    for change in (identity, with_nulls)
        columns = [name => change(v) for (name, v) in COLUMNS]
        whole = Batch(columns)
        for rows in (1:ROWS, 2:ROWS-1, 3:3, 2:1, ROWS+5:ROWS+4)
            part = slice(whole, rows)
            again = slice(part, 1:length(rows) ÷ 2)
            @test size(part) == (length(rows), length(columns)) && size(again, 1) == length(rows) ÷ 2
            for (k, (name, wanted)) in enumerate(columns)
                alone = share(slice(whole[k], rows))
                ok = same(part[k], wanted[rows]) && same(root(alone), wanted[rows]) &&
                    same(slice(whole[k], rows), wanted[rows]) &&
                    same(again[k], wanted[rows][1:length(rows)÷2]) && DX.name(root(alone)) == name
                ok || println(name, ", rows ", rows, ": ", typeof(part[k]))
                @test ok
                close(alone)
            end
            foreach(close, (part, again))
        end
        for rows in (0:2, 1:ROWS+1, -1:-1)
            @test_throws BoundsError slice(whole, rows)
            @test_throws BoundsError slice(whole[1], rows)
        end
        column = whole[1]
        close(whole)
        for f in (() -> slice(whole, 1:1), () -> slice(column, 1:1), () -> share(column))
            @test refused(f, DX.DEVX_CLOSED)
        end
    end
    @test nothing_left()
end

# Columns come from anything that iterates pairs, in its order, and it is iterated only once.
@testset "batches: columns from pairs" begin
    list = ["b" => [1, 2], :a => ["x", "y"]]
    vectors = (b=[1, 2], a=["x", "y"])
    once = Channel{Any}(channel -> foreach(pair -> put!(channel, pair), list))
    for columns in (vectors, pairs(vectors), list, Any[list...], Tuple(list), (pair for pair in list), view(list, :),
            Iterators.filter(pair -> true, list), zip(["b", "a"], vectors), once, reshape(list, 1, 2))
        b = Batch(columns; metadata=("k" => "v",))
        @test keys(b) == [:b, :a] && same(b[1], [1, 2]) && same(b[2], ["x", "y"]) && DX.metadata(b) == ["k" => "v"]
        again = Batch(pairs(b))
        @test keys(again) == keys(b) && pointer(again[1]) == pointer(b[1])
        foreach(close, (b, again))
    end
    for columns in (Dict(list), Dict{String,Any}("b" => [1, 2], "a" => ["x", "y"]))
        b = Batch(columns)
        @test sort(keys(b)) == [:a, :b] && same(b["a"], ["x", "y"])
        close(b)
    end
    for columns in ([], (), Dict(), NamedTuple(), Pair{Symbol,Batch}[], (k => [1] for k in 1:0))
        b = Batch(columns)
        @test size(b) == (0, 0)
        close(b)
    end
    @test nothing_left()
end

# A batch of some columns and some rows of another one copies nothing, and keeps the memory until it is released.
@testset "batches: exported parts" begin
    called = Ref(0)
    whole = Batch((n=[1, 2, 3, 4], t=["a", missing, "c", "d"], x=[0.5, 1.5, 2.5, 3.5]); release=() -> called[] += 1)
    address = DX.buffers(whole["x"])[2]
    rows = slice(whole, 2:3)
    columns = [name => share(rows[name]) for name in ("t", "x")]
    some = Batch(columns)
    foreach(close, (whole, rows, last.(columns)...))
    array, schema = move_through_c(some)
    @test array[].array.offset == 0
    b = import_arrow_device(array, schema)
    @test same(b["t"], [missing, "c"]) && b["x"] == [1.5, 2.5] && DX.buffers(b["x"])[2] == address
    drain()
    @test called[] == 0
    close(b)
    drain()
    @test called[] == 1
    @test nothing_left()
end

# A batch of one array of a type that no Julia vector becomes, described by hand, with an offset of 1.
hand_made(format, n, buffers; children=Field[], nodes=Node[], dictionary=nothing) =
    Batch(Schema(Field("x", format; children=children, dictionary=dictionary)), [Node(n, buffers; offset=1); nodes])

@testset "batches: described by hand" begin
    made(f, arguments...; keywords...) = (b = hand_made(arguments...; keywords...); ok = f(root(b)); close(b); ok)
    offsets32, offsets64 = Int32[0, 1, 3, 3, 6], Int64[0, 1, 3, 3, 6]
    validity = UInt8[0b1011]
    @test made(c -> same(c, ["bc", missing, "def"]), "u", 3, (validity, offsets32, "abcdef" |> codeunits |> collect))
    @test made(c -> same(c, ["bc", "", "def"]), "U", 3, (nothing, offsets64, Vector{UInt8}("abcdef")))
    @test made(c -> same(c, [b"bc", b"", b"def"]) && String(c[1]) == "bc" && String(c[2]) == "", "Z", 3,
        (nothing, offsets64, Vector{UInt8}("abcdef")))
    @test made(c -> same(c, [b"cd", b"ef"]) && eltype(c) == Bytes, "w:2", 2, (nothing, Vector{UInt8}("abcdef")))
    @test made(c -> same(c, [Date(1970, 1, 2), Date(1969, 12, 31)]), "tdm", 2,
        (nothing, Int64[0, 86_400_000, -86_400_000]))
    @test made(c -> same(c, [Time(0, 1), Time(23, 59, 59)]), "tts", 2, (nothing, Int32[0, 60, 86_399]))
    @test made(c -> same(c, [Time(0, 0, 0, 60)]), "ttm", 1, (nothing, Int32[0, 60]))
    @test made(c -> same(c, [Time(0, 0, 0, 0, 60)]), "ttu", 1, (nothing, Int64[0, 60]))
    @test made(c -> same(c, [DateTime(1970, 1, 1, 0, 1)]) && timezone(c) == "", "tss:", 1, (nothing, Int64[0, 60]))
    @test made(c -> same(c, [DateTime(1970, 1, 1, 0, 1)]) && timezone(c) == "Europe/Zurich", "tsm:Europe/Zurich", 1,
        (nothing, Int64[0, 60_000]))
    @test made(c -> same(c, [60]) && timezone(c) == "UTC", "tsu:UTC", 1, (nothing, Int64[0, 60]))
    @test made(c -> same(c, [60]), "tsn:", 1, (nothing, Int64[0, 60]))
    @test made(c -> same(c, [Month(5)]), "tiM", 1, (nothing, Int32[0, 5]))
    @test made(c -> same(c, [DayTime(3, 4)]), "tiD", 1, (nothing, Int32[1, 2, 3, 4]))
    @test made(c -> same(c, [MonthDayNano(3, 4, 5)]), "tin", 1, (nothing, Int64[1, 2, 3 + (4 << 32), 5]))
    @test made(c -> same(c, [12345 // 100]) && eltype(c) == Decimal{10,2,Int128}, "d:10,2", 1,
        (nothing, Int128[1, 12345]))
    @test made(c -> BigInt(c[1].unscaled) == 1 + sum(k * big(2)^(64k) for k in 1:3), "d:60,2,256", 1,
        (nothing, UInt64[0, 0, 0, 0, 1, 1, 2, 3]))
    @test made(c -> same(c, [missing, missing]) && eltype(c) == Missing, "n", 2, ())
    # A list of large lists of numbers; each level has an offset.
    item = Field("item", "+L"; children=[Field("item", "l")])
    inner = [Node(4, (nothing, Int64[9, 0, 2, 2, 3, 5]); offset=1), Node(5, (nothing, collect(0:5)); offset=1)]
    @test made(c -> same(c, [[[], [3]], [], [[4, 5]]]) && same(children(c)[1], [[1, 2], [], [3], [4, 5]]), "+l", 3,
        (nothing, Int32[9, 1, 3, 3, 4]); children=[item], nodes=inner)
    # Fixed-size lists of structs with nulls.
    pair = Field("item", "+s"; children=[Field("a", "i"), Field("b", "b")])
    inner = [Node(6, (UInt8[0b1110111],); offset=1), Node(7, (UInt8[0b0111111], Int32[0, 1, 2, 3, 4, 5, 6])),
             Node(7, (nothing, UInt8[0b0101010]))]
    wanted = [(missing, (a=4, b=false)), ((a=5, b=true), (a=missing, b=false))]
    @test made("+w:2", 2, (nothing,); children=[pair], nodes=inner) do c
        same([Tuple(row) for row in c], wanted) && same(children(c)[1], [wanted[1]..., wanted[2]...])
    end
    # Dictionaries: nulls among the indices and among the values, and every type of index.
    for I in (Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64)
        values = [Node(2, (UInt8[0b01], Int32[0, 1, 1], Vector{UInt8}("a")))]
        format, buffers = DX.format_of(I, ""), (UInt8[0b1011], I[9, 1, 0, 0])
        @test made(format, 3, buffers; dictionary=Field("", "u"), nodes=values) do c
            same(c, [missing, missing, "a"]) && same(indices(c), [1, missing, 0]) &&
                eltype(indices(c)) == Union{I,Missing} && same(dictionary(c), ["a", missing])
        end
    end
    # Repeated names and an empty one.
    columns = [Field("a", "l"), Field("a", "l"), Field("", "l")]
    b = Batch(Schema(columns), [Node(1, (nothing,)), (Node(1, (nothing, [k])) for k in 1:3)...])
    @test root(b)[1] === (1, 2, 3) && b["a"] == [1] && keys(b) == [:a, :a, Symbol("")]
    @test_throws ErrorException NamedTuple(b)
    close(b)
    @test nothing_left()
end

# These are functions, so that the garbage collector can free what they use when they return.
@noinline function columns_without_a_copy()
    numbers, flags, times, vectors = [1.5, 2.5, 3.5], BitVector([1, 0, 1]), Time.(1:3), [(1, 2), (3, 4), (5, 6)]
    part = view(collect(1:9), 4:6)
    array, schema = move_through_c(Batch((numbers=numbers, flags=flags, times=times, vectors=vectors, part=part)))
    address(k, i) = unsafe_load(unsafe_load(unsafe_load(array[].array.children, k)).buffers, i)
    @test address(1, 2) == pointer(numbers) && address(1, 1) == C_NULL
    @test address(2, 2) == pointer(flags.chunks)
    @test address(3, 2) == pointer(times)
    @test address(5, 2) == pointer(part)
    b = import_arrow_device(array, schema)
    @test DX.buffers(b[:numbers]) == [C_NULL, pointer(numbers)] && length(DX.buffers(root(b))) == 1
    @test pointer(b[:numbers]) == pointer(numbers) && strides(b[:numbers]) == (1,)
    @test pointer(children(b[:vectors])[1]) == pointer(vectors) && same(b[:flags], flags)
    # A column of a batch becomes a column of another batch without a copy, and so does a tensor.
    t = Tensor([7, 8, 9])
    again = Batch("x" => b[:numbers], "t" => t)
    @test pointer(again[1]) == pointer(numbers) && pointer(again["t"]) == pointer(t)
    @test refused(() -> b[:nope], DX.DEVX_OUT_OF_RANGE, "nope")
    v = values(again[1])
    @test v isa Vector{Float64} && pointer(v) == pointer(numbers)
    w = unsafe_wrap(Array, again[1])
    @test w isa Vector{Float64} && pointer(w) == pointer(numbers)
    @test refused(() -> unsafe_wrap(Array, b[:flags]), DX.DEVX_COPY_REQUIRED, "eltype is Bool", "collect(column)")
    gaps = Batch((x=[1.5, missing],))
    @test refused(() -> unsafe_wrap(Array, gaps[:x]), DX.DEVX_COPY_REQUIRED, "eltype is Union{Missing, Float64}")
    close(gaps)
    # Elements that are not aligned are copied to memory that is.
    bytes = collect(0x01:0x21)
    for (T, width) in ((Int16, 2), (Int32, 4), (Float64, 8), (NTuple{2,Float32}, 4))
        vector = reinterpret(T, view(bytes, 2:17))
        laid = Batch((v=vector,))
        seen = T <: Tuple ? children(laid[:v])[1] : laid[:v]
        @test seen == collect(Iterators.flatten(vector)) && UInt(pointer(seen)) % width == 0
        close(laid)
    end
    # The new batch keeps the memory of its columns, and the vector of its values keeps it, too.
    foreach(close, (b, t))
    @test again["x"] == numbers && again["t"] == [7, 8, 9] && refused(() -> b[1], DX.DEVX_CLOSED)
    close(again)
    collect_garbage()
    @test outstanding() > 0 && v == numbers
end

@noinline function texts_as_bytes()
    b = Batch((s=["Zürich", missing], z=[b"12", b"3"], n=[1, 2]))
    @test bytes(b[:s], 1) == codeunits("Zürich") && bytes(b[:z], 2) == b"3" && isempty(bytes(b[:s], 2))
    @test pointer(bytes(b[:z], 2)) == pointer(bytes(b[:z], 1)) + 2
    @test refused(() -> bytes(b[:n], 1), DX.DEVX_MISMATCH, "format is \"l\"")
    @test_throws BoundsError bytes(b[:s], 3)
    two, column = bytes(b[:z], 1), b[:z]
    # A tensor over the bytes keeps their memory, which must not be written.
    t = Tensor(two)
    close(b)
    @test isreadonly(t) && t == b"12"
    close(t)
    for f in (() -> two[1], () -> pointer(two), () -> bytes(column, 1), () -> DX.text(column, 1), () -> DX.name(column),
              () -> DX.format(column), () -> DX.metadata(column), () -> DX.buffers(column))
        @test refused(f, DX.DEVX_CLOSED, "batch")
    end
end

@testset "batches: zero copy" begin
    columns_without_a_copy()
    texts_as_bytes()
    @test nothing_left()
end

@testset "batches: copies" begin
    b = Batch((a=[1, 2, 3], b=["x", "yz", missing]))
    c = copy(b)
    @test pointer(c[:a]) != pointer(b[:a])
    close(b)
    @test c[:a] == [1, 2, 3] && isequal(collect(c[:b]), ["x", "yz", missing])
    @test refused(() -> copy(b), DX.DEVX_CLOSED)
    close(c)
    @test nothing_left()
end

@testset "batches: as tables and vectors" begin
    b = Batch((a=[1, 2, 3], b=["x", missing, "z"]); metadata=("source" => "test",))
    wide = Batch((Symbol("c$k") => [k] for k in 1:22)...)
    @test occursin(r"rows: c1 \(int64\), .*, c20 \(int64\), … and 2 more$", sprint(show, wide))
    close(wide)
    @test sprint(show, b) == "Batch of 3 rows: a (int64), b (utf8)" && haskey(b, :a) && !haskey(b, "c")
    @test length(columns(b)) == 2 && b[end][1] == "x" && size(b, 2) == 2
    @test length(b) == length(keys(b)) == 2 && !isempty(b) && b[begin] == b[1] && haskey(b, 2) && !haskey(b, 3)
    @test get(b, :a, nothing) == get(b, "a", nothing) == get(() -> 5, b, 1) == [1, 2, 3]
    @test get(b, "c", nothing) === nothing && get(b, 3, 7) == 7 && get(() -> 5, b, :c) == 5
    for none in ("a\0", "a\xff", "", SubString("abc", 2, 3), nothing, 1.5, 0)
        @test !haskey(b, none) && get(b, none, 7) == 7
    end
    @test haskey(b, SubString("abc", 1, 1)) && get(b, SubString("ab", 2), 7) === b["b"]
    table = NamedTuple(b)
    @test keys(table) == (:a, :b) && table.a == [1, 2, 3] && table.b[3] == "z"
    same_columns = Batch(name => b[name] for name in (:a, :b))
    @test isequal(NamedTuple(same_columns), table) && ismissing(NamedTuple(same_columns) == table) && same_columns != b
    close(same_columns)
    @test b[:a] isa Column{Int} && b[:b] isa Column{Union{String,Missing}} && b[:a] isa AbstractVector{Int}
    @test sum(b[:a]) == 6 && collect(skipmissing(b[:b])) == ["x", "z"] && b[:a][2:3] == [2, 3]
    @test values(b[:b]) === b[:b] && findfirst(==(2), b[:a]) == 2
    @test root(b)[3] == (a=3, b="z") && isequal(root(b)[2], (a=2, b=missing))
    @test_throws BoundsError b[:a][4]
    @test_throws BoundsError b[:b][0]
    @test refused(() -> b[3], DX.DEVX_OUT_OF_RANGE, "column is 3") && refused(() -> b[0], DX.DEVX_OUT_OF_RANGE)
    # Columns of a type that the caller names.
    c = @inferred Column{Int}(b, 1)
    @test c isa Column{Int} && typeof(c) === typeof(b[1]) && c == b[:a] && pointer(c) == pointer(b[:a])
    @test Column{Int}(b, :a) == b[:a] == Column{Int}(b, "a")
    c = @inferred Column{Union{Int,Missing}}(b, 1)
    @test c isa Column{Union{Int,Missing}} && c == [1, 2, 3]
    @test refused(() -> Column{Int32}(b, 1), DX.DEVX_MISMATCH, "column is 1: its format is \"l\": not a Column{Int32}")
    @test refused(() -> Column{Float64}(b, "b"), DX.DEVX_MISMATCH, "column is \"b\": its format is \"u\"")
    @test refused(() -> Column{Int}(b, 3), DX.DEVX_OUT_OF_RANGE, "column is 3")
    @test refused(() -> Column{Missing}(b, 1), DX.DEVX_MISMATCH)
    @test refused(() -> Column{Union{Int,Int32}}(b, 1), DX.DEVX_MISMATCH)
    @test refused(() -> indices(b[:a]), DX.DEVX_MISMATCH) && refused(() -> dictionary(b[:a]), DX.DEVX_MISMATCH)
    @test DX.device(b) == DX.CPU
    s = schema(b)
    @test DX.metadata(b) == DX.metadata(s) == root(s).metadata == ["source" => "test"]
    @test DX.fields(s)[1] == Field("a", "l"; nullable=false)
    @test DX.fields(s)[2] == Field("b", Union{String,Missing}) && occursin("Field(\"a\", \"l\")", sprint(show, s))
    same_fields, other = schema(b), Schema(DX.fields(s))
    @test s == same_fields && isequal(s, same_fields) && hash(s) == hash(same_fields) && s != other
    foreach(close, (s, same_fields, other))
    @test s == s && s != same_fields && hash(s) isa UInt
    @test !isopen(s) && sprint(show, s) == "Schema (closed)"
    open = schema(b)
    @test open != s && s != open && !isequal(open, s)
    close(open)
    second = share(b)
    c = second[:a]
    close(b)
    @test refused(() -> Column{Int}(b, 1), DX.DEVX_CLOSED, "batch")
    @test sprint(show, b) == "Batch (closed)" && c[1] == 1
    close(second)
    @test refused(() -> c[1], DX.DEVX_CLOSED, "batch") && refused(() -> sum(c), DX.DEVX_CLOSED)
    @test occursin("closed", sprint(show, MIME"text/plain"(), c))
    # Numbers, some of which are missing.
    holes = Batch((a=[1.0, missing, 3.0],))
    @test (@inferred Column{Union{Float64,Missing}}(holes, 1)) isa typeof(holes[1])
    @test isequal(Column{Union{Float64,Missing}}(holes, :a), [1.0, missing, 3.0])
    @test refused(() -> Column{Float64}(holes, 1), DX.DEVX_MISMATCH, "\"g\", and it may have nulls: not a Column{")
    close(holes)
    # The indices of a dictionary are not the column's numbers.
    coded = Batch((d=DictionaryVector(["x", "y", "x"]),))
    @test refused(() -> Column{Int8}(coded, 1), DX.DEVX_MISMATCH, "format is \"c\"")
    close(coded)
    # Columns without rows, and a batch without columns.
    e = Batch((a=Int[], s=String[], m=Union{Missing,Int}[], l=Vector{Int}[]))
    @test size(e) == (0, 4) && isempty(e[:a]) && isempty(e[:s]) && isempty(values(e[:a])) && eltype(e[:m]) == Int
    close(e)
    n = Batch(NamedTuple())
    @test size(n) == (0, 0) && isempty(n) && NamedTuple(n) === NamedTuple()
    close(n)
    # Metadata, flags and names of a schema survive an export and an import.
    f = Field("värld", "c"; flags=DX.DEVX_FIELD_ORDERED | 64, metadata=("k" => "v", "" => "ü"),
        dictionary=Field("", "+s"; children=[Field("a", "tsn:UTC"), Field("b", "w:3")]))
    s = Schema([f])
    exported = Ref(ArrowSchema())
    export_move(s, exported)
    back = import_schema(exported)
    @test DX.fields(back) == [f] && exported[].release == C_NULL
    close(back)
    @test nothing_left()
end

@testset "batches: closed objects are shown" begin
    b = Batch((n=[1, 2], s=["x", "y"], z=[b"1", b"2"], m=[Dict("a" => 1), Dict("b" => 2)],
        w=[NamedTuple{Tuple(Symbol("c$k") for k in 1:40)}(ntuple(identity, 40)) for _ in 1:2]))
    n, one, m, w = b["n"], b["z"][1], b["m"][1], b["w"][1]
    mistakes = map(x -> try x[99]; nothing catch e; e end, (n, one, w, b["m"]))
    @test repr(one) == "UInt8[0x31]" && repr("text/plain", one) == "1-element Bytes:\n 0x31"
    @test occursin("\"a\" => 1", repr("text/plain", m))
    close(b)
    # An error shows the object that it is about, possibly after a `finally` has closed the object.
    @test all(e -> e isa BoundsError && occursin("at index [99]", sprint(showerror, e)), mistakes)
    @test summary(n) == "2-element Column (closed)" && occursin("Column (closed)", summary(view(n, 1:1)))
    for (x, shown) in (n => "Column of 2 rows (closed)", one => "1-element Bytes (closed)",
                       m => "Entries of 1 keys (closed)", w => "Row of 40 members (closed)")
        @test repr(x) == string(x) == repr("text/plain", x) == shown && repr((x,)) == "($shown,)"
        @test occursin("(closed)", repr("text/plain", Any[x]))
    end
    @test nothing_left()
end
