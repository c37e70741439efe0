# The description of a batch's arrays: fields, described in Julia, and schemas, held by the C API.

"""
    Schema(columns::AbstractVector{Field}; metadata=())
    Schema(root::Field)

A schema: a tree of fields that never changes, and one reference to it. The first form makes the schema of a record
batch, with a root of format `"+s"` and a child for each column; the second form makes the schema of any array.

`close(schema)` gives the reference up; a finalizer does so for a schema that was never closed. Batches and exports that
share the schema stay valid. Two open schemas are equal if their [`root`](@ref)s are.

Throws `DEVX_INVALID_FORMAT`, `DEVX_INVALID_CHILDREN`, `DEVX_MISMATCH`, `DEVX_INVALID_TEXT`, `DEVX_TOO_DEEP`,
`DEVX_UNSUPPORTED` with the field and its value.
"""
struct Schema
    handle::Handle{TAG_SCHEMA}

    Schema(handle::Handle{TAG_SCHEMA}) = new(handle)
end

Schema(columns::AbstractVector{Field}; metadata=()) =
    Schema(Field("", "+s"; nullable=false, children=columns, metadata=metadata))

function Schema(root::Field)
    # Texts and metadata blocks that the records point to.
    kept = Any[]
    records = DevxField[]
    describe!(records, kept, root)
    return Schema(made(Handle{TAG_SCHEMA}) do out
        GC.@preserve kept begin
            @checked devx_schema_create(records::Ptr{DevxField}, length(records)::Csize_t, out::Ptr{Ptr{Cvoid}})
        end
    end)
end

# Depth first: the field, its children each with all fields below it, the values of its dictionary.
function describe!(records, kept, f::Field)
    keep(x) = (push!(kept, x); pointer(x))
    metadata = isempty(f.metadata) ? Ptr{UInt8}(C_NULL) : keep(metadata_block(f.metadata))
    push!(records, DevxField(keep(ctext(f.format, "format")), keep(ctext(f.name, "name")), metadata, f.flags,
        length(f.children), f.dictionary !== nothing))
    foreach(child -> describe!(records, kept, child), f.children)
    f.dictionary === nothing || describe!(records, kept, f.dictionary)
    return nothing
end

# Counts and lengths of 32 bits in native order (C data interface, `ArrowSchema.metadata`).
function metadata_block(pairs)
    io = IOBuffer()
    write(io, Int32(length(pairs)))
    for (key, value) in pairs, text in (key, value)
        write(io, Int32(ncodeunits(text)), text)
    end
    return take!(io)
end

function read_metadata(block::Ptr{UInt8})
    pairs = Pair{String,String}[]
    block == C_NULL && return pairs
    at = block
    number() = (at += 4; Int(unsafe_load(Ptr{Int32}(at - 4))))
    text() = (n = number(); at += n; unsafe_string(at - n, n))
    for _ in 1:number()
        key = text()
        push!(pairs, key => text())
    end
    return pairs
end

"""
    import_schema(source) -> Schema

Imports an Arrow schema from its producer; `source` is a `Ref` or `Ptr` of [`ArrowSchema`](@ref), or a `Ptr{Cvoid}`. On
success the source is moved from (its `release` is NULL) and released once, when the last user is gone; on failure it is
untouched.

Throws `DEVX_NULL_ARGUMENT`, `DEVX_RELEASED` and the statuses of [`Schema`](@ref).
"""
function import_schema(source::Ref{ArrowSchema})
    return Schema(made(Handle{TAG_SCHEMA}) do out
        @checked devx_schema_import(source::Ptr{ArrowSchema}, out::Ptr{Ptr{Cvoid}})
    end)
end

import_schema(source::Ptr{Cvoid}) = import_schema(Ptr{ArrowSchema}(source))

"""
    export_share(s::Schema, target)

Exports a schema to a consumer; you keep the schema. `target` is a `Ref` or `Ptr` of [`ArrowSchema`](@ref); its holder
releases it once ([`arrow_release`](@ref)). What it held before is overwritten, not released. Throws `DEVX_CLOSED`.
"""
function export_share(s::Schema, target::Ref{ArrowSchema})
    @checked devx_schema_export(s.handle::Handle, target::Ptr{ArrowSchema})
    return nothing
end

"""
    export_move(s::Schema, target)

Like [`export_share`](@ref), but also closes the schema.
"""
function export_move(s::Schema, target::Ref{ArrowSchema})
    export_share(s, target)
    close(s)
    return nothing
end

"""
    root(s::Schema) -> Field
    root(b::Batch) -> Column

Returns the root field of a schema, with all fields below it, as plain Julia data; or the whole array of a batch as one
column, which is a column of structs for a record batch.
"""
function root(s::Schema)
    view = Ref(ArrowSchema())
    export_share(s, view)
    try
        return GC.@preserve view read_field(view[])
    finally
        arrow_release(view)
    end
end

function read_field(s::ArrowSchema)
    text(p) = p == C_NULL ? "" : unsafe_string(p)
    children = Field[read_field(unsafe_load(unsafe_load(s.children, k))) for k in 1:s.n_children]
    dictionary = s.dictionary == C_NULL ? nothing : read_field(unsafe_load(s.dictionary))
    return Field(text(s.name), text(s.format), s.flags, read_metadata(s.metadata), children, dictionary)
end

"""
    fields(s::Schema) -> Vector{Field}

Returns the columns that the schema of a record batch describes.
"""
fields(s::Schema) = root(s).children

Base.isopen(s::Schema) = isopen(s.handle)
Base.close(s::Schema) = close(s.handle)

# A closed schema has no fields to compare any more.
Base.:(==)(a::Schema, b::Schema) = a.handle === b.handle || isopen(a) && isopen(b) && root(a) == root(b)
Base.hash(s::Schema, seed::UInt) = isopen(s) ? hash(root(s), seed) : hash(s.handle, seed)

function Base.show(io::IO, s::Schema)
    isopen(s) ? print(io, "Schema(", root(s), ")") : print(io, "Schema (closed)")
end

"""
    arrow_release(x)

Releases an Arrow struct that the caller owns (a `Ref` or `Ptr` of [`ArrowSchema`](@ref), [`ArrowArray`](@ref) or
[`ArrowDeviceArray`](@ref)): calls its `release`, which sets that member to NULL. A struct that was already released or
moved from is left alone, and so is NULL.
"""
function arrow_release(x::Ref{T}) where {T<:Union{ArrowSchema,ArrowArray,ArrowDeviceArray}}
    GC.@preserve x arrow_release(Base.unsafe_convert(Ptr{T}, x))
end

function arrow_release(x::Ptr{T}) where {T<:Union{ArrowSchema,ArrowArray}}
    release = x == C_NULL ? C_NULL : unsafe_load(x).release
    release == C_NULL || ccall(release, Cvoid, (Ptr{T},), x)
    return nothing
end

arrow_release(x::Ptr{ArrowDeviceArray}) = arrow_release(Ptr{ArrowArray}(x))
