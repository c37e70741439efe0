# Counts the Julia objects that frequent operations allocate. An unknown type, a `Ref` that a closure captures or a kept error
# record would add some.

# The objects per call of `f`: the least of a few attempts, because a collection during an attempt also counts its finalizers.
function objects(f, rounds=100)
    attempt() = begin
        before = Base.gc_num()
        for _ in 1:rounds
            f()
        end
        Base.gc_alloc_count(Base.GC_Diff(Base.gc_num(), before)) / rounds
    end
    attempt()
    return minimum(attempt() for _ in 1:5)
end

const BOX = Ref{Any}()
boxed(x) = (BOX[] = Ref{Any}(x); nothing)

# Goes through all rows of a column, and counts their members.
function members(c)
    count = 0
    for row in skipmissing(c)
        count += length(row)
    end
    return count
end

# A new handle is two objects: the handle itself and its count.
const PER_HANDLE = 2

@testset "allocations: tensors" begin
    t = Tensor(zeros(Float32, 3, 2))
    # What `objects` itself allocates does not depend on the number of rounds.
    @test objects(() -> nothing) < 1
    @test objects(() -> DX.releases_lost()) < 1
    @test objects(() -> t[1, 2]) < 1
    @test objects(() -> (t[1, 2] = 1.0f0; nothing)) < 1
    @test objects(() -> dlpack_release(export_share(t))) < 1
    @test objects(() -> dlpack_release(export_share_legacy(t))) < 1
    @test objects(() -> close(share(t))) < PER_HANDLE + 1
    @test objects(() -> close(import_dlpack(Tensor{Float32,2}, export_share(t)))) < PER_HANDLE + 1
    @test objects(() -> close(import_dlpack_legacy(Tensor{Float32,2}, export_share_legacy(t)))) < PER_HANDLE + 1
    # Without the type, dispatch at run time also allocates the objects that it passes on.
    @test objects(() -> close(import_dlpack(export_share(t)))) < 20
    # The result, but no object for each element.
    maps = (x -> x .+ 1, x -> x .> 0.5f0, x -> x[x .> 0.5f0], x -> hcat(x, x))
    wide = Tensor(ones(Float32, 100, 100))
    for x in (wide, view(wide, :, 1:50), reshape(wide, 100^2), PermutedDimsArray(wide, (2, 1)), wide')
        foreach(f -> (@test objects(() -> (f(x); nothing)) < 50), maps)
        @test objects(() -> (x .= x .+ 1.0f0; nothing)) < 10
    end
    close(wide)
    # Checks that `objects` counts at all.
    @test objects(() -> boxed(t)) >= 1
    close(t)
    @test nothing_left()
end

@testset "allocations: batches" begin
    b = Batch((a=Int32[1, 2, 3], b=[1.0, missing, 3.0]))
    s = DX.schema(b)
    array = Ref(ArrowArray())
    round() = (export_share(b, array); close(import_arrow(array, s)))
    @test objects(round) < PER_HANDLE + 1
    # A column is one object, because its type is known only at run time.
    @test objects(() -> b[1]) < 3
    @test objects(() -> b[2]) < 3
    # If the caller names the type, there is no object.
    @test objects(() -> Column{Int32}(b, 1)[2]) < 1
    @test objects(() -> Column{Union{Float64,Missing}}(b, 2)[2]) < 1
    c = b[1]
    @test objects(() -> sum(c)) < 1
    @test objects(() -> null_count(c)) < 1
    wide = Batch((n=collect(1:10^4), x=rand(10^4)))
    n = wide["n"]
    maps = (x -> x .+ 1, x -> x .> 5, x -> x[x .> 5], x -> hcat(x, x))
    foreach(f -> (@test objects(() -> (f(n); nothing)) < 50), maps)
    # Rows of several members: no object for each row or member.
    rows = 10^3
    nested = Batch((row=[(a=k, b=2.0, c=Date(k)) for k in 1:rows], map=[Dict(k => 2.0) for k in 1:rows],
        maybe=[k % 2 == 0 ? missing : (a=k, b=true) for k in 1:rows]))
    for c in (nested["row"], nested["map"], nested["maybe"], root(wide))
        @test objects(() -> members(c)) < 50
    end
    foreach(close, (wide, nested))
    close(s)
    close(b)
    @test nothing_left()
end

@testset "allocations: vectors laid out" begin
    # Buffers and their descriptions, but no object for each row.
    rows = 10^3
    some(v) = [k % 7 == 0 ? missing : v[k] for k in eachindex(v)]
    texts = ["text $k" for k in 1:rows]
    structs = [(a=k, b=2.0, c=texts[k]) for k in 1:rows]
    whole = (texts, structs, fill(Date(2000), rows), [[k, k] for k in 1:rows], [Dict(k => 2.0) for k in 1:rows])
    for v in (whole..., some.(whole)...)
        @test objects(() -> close(Batch((v=v,))), 10) < rows / 2
    end
    for v in (texts, some(texts))
        @test objects(() -> (DictionaryVector(v); nothing), 10) < rows / 2
    end
    @test nothing_left()
end
