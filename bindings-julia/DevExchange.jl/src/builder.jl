# Batches from buffers of a producer, described as a tree.

"""
    ArrayBuilder(name, type, length, buffers=(); children=ArrayBuilder[], dictionary=nothing, release=nothing,
                 null_count=-1, offset=0, nullable=true, ordered=false, keys_sorted=false, flags=0, metadata=())

The description of an array for `Batch`: its type, its buffers, the arrays below it, and who keeps its memory alive. It
is for producers that already have the buffers, on any device; nothing is copied.

`type` is an Arrow format string, or an element type without children. `buffers` are those of the Arrow columnar format
in its order, as for [`Node`](@ref): arrays, which are kept alive, `Ptr`s to memory of the batch's device, or `nothing`.
Validity comes first, `nothing` if there are no nulls; for views the 64-bit sizes of the data buffers come last.
`null_count` -1 means not counted; `offset` elements of every buffer are skipped. `dictionary` describes the values of a
dictionary; the array itself then holds the indices. Flags and metadata are those of [`Field`](@ref).

When nobody uses the batch any more, `release()` of each array that has one is called once, on a task of this module. An
array with a `release` can therefore be used in one batch only, and in one place of it; an array without one can be used
again.

```julia
item = ArrayBuilder("item", Int64, 3, (nothing, pointer); release=() -> Libc.free(pointer))
lists = ArrayBuilder("lists", "+l", 2, (nothing, Int32[0, 1, 3]); children=[item])
batch = Batch([lists])
```

A builder is plain Julia data: nothing is checked or taken before `Batch` makes a batch of it.
"""
struct ArrayBuilder
    field::Field
    node::Node
    children::Vector{ArrayBuilder}
    dictionary::Union{Nothing,ArrayBuilder}
    release::Any
    # 1 once a batch has taken over the call of `release`.
    taken::Threads.Atomic{Int}
end

function ArrayBuilder(name::AbstractString, type, length::Integer, buffers=(); children=ArrayBuilder[],
                      dictionary::Union{Nothing,ArrayBuilder}=nothing, release=nothing, null_count::Integer=-1,
                      offset::Integer=0, keywords...)
    format = type isa Type ? format_of(nonmissing(type), name) : type
    node = Node(length, buffers; null_count=null_count, offset=offset)
    return ArrayBuilder(Field(name, format; keywords...), node, collect(ArrayBuilder, children), dictionary, release,
        Threads.Atomic{Int}(0))
end

Base.show(io::IO, b::ArrayBuilder) =
    print(io, "ArrayBuilder(", repr(b.field.name), ", ", repr(b.field.format), ", ", b.node.length, ')')

"""
    Batch(array::ArrayBuilder; device=DevExchange.CPU)
    Batch(columns::AbstractVector{ArrayBuilder}; rows=nothing, device=DevExchange.CPU, metadata=(), release=nothing)

Makes a batch of arrays that are described by [`ArrayBuilder`](@ref)s: of one array of any type, or a record batch of
columns. `rows` is needed only if there are no columns. Memory of a device other than the CPU is taken to be filled by
work that is queued on the legacy default stream (see [`produced_on`](@ref)). If this throws, no `release` is called.

Throws the errors of [`Schema`](@ref) and `Batch(schema, nodes)`, and `DEVX_INVALID_ARGUMENT` for an array with a
`release` that is in the tree twice, or in a batch already.
"""
function Batch(array::ArrayBuilder; device::DLDevice=CPU)
    nodes, lent = Node[], ArrayBuilder[]
    schema = Schema(describe!(nodes, lent, array))
    taken = ArrayBuilder[]
    try
        foreach(b -> (take(b); push!(taken, b)), lent)
        release = isempty(lent) ? nothing : Releases([b.release for b in lent])
        return Batch(schema, nodes; device=device, release=release)
    catch
        foreach(b -> b.taken[] = 0, taken)
        rethrow()
    finally
        close(schema)
    end
end

# Refuses an array whose release another batch calls.
take(b::ArrayBuilder) = Threads.atomic_cas!(b.taken, 0, 1) == 0 || throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
    "array $(repr(b.field.name)) is in the tree twice, or in a batch already: its release is called once"))

function Batch(columns::AbstractVector{ArrayBuilder}; rows=nothing, device::DLDevice=CPU, metadata=(), release=nothing)
    length = rows !== nothing ? rows : isempty(columns) ? 0 : first(columns).node.length
    return Batch(ArrayBuilder("", "+s", length, (nothing,); children=columns, null_count=0, nullable=false,
        metadata=metadata, release=release); device=device)
end

# Depth first: the array, its children each with all arrays below it, the values of its dictionary. Returns the whole
# field. `lent` gets the arrays that have a release.
function describe!(nodes, lent, b::ArrayBuilder)
    push!(nodes, b.node)
    if b.release !== nothing
        check_callable(b.release, "release of array $(repr(b.field.name))")
        push!(lent, b)
    end
    children = Field[describe!(nodes, lent, child) for child in b.children]
    dictionary = b.dictionary === nothing ? nothing : describe!(nodes, lent, b.dictionary)
    return Field(b.field.name, b.field.format, b.field.flags, b.field.metadata, children, dictionary)
end
