# A column of every type that Julia vectors become, and helpers that pass columns through Arrow's structs.

const ROWS = 7
nulls(v) = Union{eltype(v),Missing}[k % 3 == 0 ? missing : v[k] for k in eachindex(v)]

words = ["", "a", "Zürich", "日本", "x"^40, "e", "f"]
dates = [Date(1970), Date(2012, 1, 1), Date(1969, 12, 31), Date(1), Date(2100, 2, 28), Date(2024, 2, 29), Date(1900)]
moments = DateTime.(dates) .+ Millisecond.(1:7)

# A Julia vector for each kind of column, with seven rows. `FORMATS` has the format that each gets.
const COLUMNS = Pair{String,AbstractVector}[
    ["number $T" => T[1, 2, 3, 4, 5, 6, 7] for T in (Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16,
        Float32, Float64)];
    "bool" => [true, false, true, true, false, false, true];
    "bits" => BitVector([true, false, true, true, false, false, true]);
    "utf8" => words;
    "substring" => SubString.(words, 1, 0);
    "binary" => [UInt8.(collect(1:k)) for k in 0:6];
    "date" => dates;
    "timestamp" => moments;
    "time" => Time.(0:6, 59, 1, 2, 3, 4);
    "duration s" => Second.(-3:3);
    "duration ms" => Millisecond.(-3:3);
    "duration us" => Microsecond.(-3:3);
    "duration ns" => Nanosecond.(-3:3);
    "dictionary" => DictionaryVector(["rain", "sun", "rain", "fog", "sun", "rain", "snow"]);
    "struct" => [(a=k, b=string(k)) for k in 1:7];
    "list" => [collect(1:k) for k in 0:6];
    "list of texts" => [words[1:k] for k in 0:6];
    "fixed-size list" => [(k, 2k, 3k) for k in 1.0:7.0];
    "fixed-size list of texts" => [(w, w) for w in words];
    "fixed-size list of nulls" => NTuple{2,Union{Int,Missing}}[(k, iseven(k) ? k : missing) for k in 1:7];
    "fixed-size list of unions" => NTuple{1,Union{Int,Float32}}[(iseven(k) ? k : k + 0.5f0,) for k in 1:7];
    "list of lists" => [[collect(1:j) for j in 1:k] for k in 0:6];
    "struct of lists" => [(l=collect(1:k), f=(k, k + 1)) for k in 0:6];
    "decimal 32" => Decimal{9,2,Int32}.(Int32[0, 1, -1, 150, -99999, 7, 8]);
    "decimal 64" => Decimal{18,-2,Int64}.(1:7);
    "decimal 128" => Decimal{38,10,Int128}.(Int128(10)^30 .* (-3:3));
    "decimal 256" => Decimal{76,3,DX.Int256}.(DX.Int256.(big(10)^70 .* (-3:3)));
    "interval months" => Month.(-3:3);
    "interval day-time" => DayTime.(1:7, -3:3);
    "interval month-day-nano" => MonthDayNano.(1:7, -3:3, 10^12 .* (1:7));
    "map" => [Dict(string(j) => j for j in 1:k) for k in 0:6];
    "map of lists" => [Dict(j => collect(1:j) for j in 1:k) for k in 0:6];
    "union" => Union{Int,String,Date}[1, "two", 3, dates[2], "", 6, dates[3]];
    "union of numbers" => Union{Int,Float32,Date}[1, 2.5f0, dates[1], 4, 5.5f0, dates[2], 7];
    "union of vectors" => Union{Vector{Int},Vector{String}}[isodd(k) ? [k] : ["x"] for k in 1:7];
    "list of unions" => [Union{Bool,String}[isodd(j) ? "x" : true for j in 1:k] for k in 0:6];
    "runs" => RunEndVector(["a", "a", "b", "b", "b", "a", ""]);
    "runs of structs" => RunEndVector([(a=div(k, 3), b="x") for k in 1:7]);
]

# A vector with some values missing, in the same representation.
with_nulls(v) = nulls(v)
with_nulls(v::DictionaryVector) = DictionaryVector(nulls(collect(v)))
with_nulls(v::RunEndVector) = RunEndVector(nulls(collect(v)))

const FORMATS = Dict("number Int8" => "c", "number UInt8" => "C", "number Int16" => "s", "number UInt16" => "S",
    "number Int32" => "i", "number UInt32" => "I", "number Int64" => "l", "number UInt64" => "L",
    "number Float16" => "e", "number Float32" => "f", "number Float64" => "g", "bool" => "b", "bits" => "b",
    "utf8" => "u", "substring" => "u", "binary" => "z", "date" => "tdD", "timestamp" => "tsm:", "time" => "ttn",
    "duration s" => "tDs", "duration ms" => "tDm", "duration us" => "tDu", "duration ns" => "tDn", "dictionary" => "c",
    "struct" => "+s", "list" => "+l", "list of texts" => "+l", "fixed-size list" => "+w:3",
    "fixed-size list of texts" => "+w:2", "fixed-size list of nulls" => "+w:2", "fixed-size list of unions" => "+w:1",
    "list of lists" => "+l", "struct of lists" => "+s",
    "decimal 32" => "d:9,2,32", "decimal 64" => "d:18,-2,64", "decimal 128" => "d:38,10", "decimal 256" => "d:76,3,256",
    "interval months" => "tiM", "interval day-time" => "tiD", "interval month-day-nano" => "tin", "map" => "+m",
    "map of lists" => "+m", "union" => "+ud:0,1,2", "union of numbers" => "+ud:0,1,2",
    "union of vectors" => "+ud:0,1", "list of unions" => "+l", "runs" => "+r", "runs of structs" => "+r")

function move_through_c(batch)
    array, schema = Ref(ArrowDeviceArray()), Ref(ArrowSchema())
    export_move(batch, array, schema)
    return array, schema
end

returned(b::Batch) = (out = move_through_c(b); import_arrow_device(out...))

# A builder for an array of numbers.
numbers(values; name="item", keywords...) =
    ArrayBuilder(name, eltype(values), length(values), (nothing, values); keywords...)
