# Foreign producers: structs with callbacks that count their calls. The callbacks are Julia functions, so only Julia threads may
# call them. Tests with foreign threads use exports of the library.

# Keeps structs that C code refers to, what they refer to, and their counters.
const KEPT = Any[]
kept(x) = (push!(KEPT, x); x)
at(x::Ref{T}) where {T} = Base.unsafe_convert(Ptr{T}, kept(x))
at(x::Array) = isempty(x) ? Ptr{eltype(x)}(C_NULL) : pointer(kept(x))

count_call(p::Ptr{Cvoid}) = unsafe_store!(Ptr{Int}(p), unsafe_load(Ptr{Int}(p)) + 1)

function delete_versioned(m::Ptr{DLManagedTensorVersioned})
    # `manager_ctx`, which has the same place in every version.
    count_call(unsafe_load(Ptr{Ptr{Cvoid}}(m + 8)))
    return nothing
end
delete_legacy(m::Ptr{DLManagedTensor}) = (count_call(unsafe_load(m).manager_ctx); nothing)

# A DLPack tensor over an array, and the counter of its deleter's calls. The keywords can make the tensor invalid.
function foreign_tensor(array; version=(1, 3), flags=0, device=(1, 0), dtype=DX.dtype(eltype(array)),
                        shape=Int64[size(array)...], strides=Int64[Base.strides(array)...], ndim=ndims(array),
                        data=Ptr{Cvoid}(pointer(array)), byte_offset=0, deleter=true)
    calls = kept(Ref(0))
    kept(array)
    steps = strides === nothing ? Ptr{Int64}(C_NULL) : at(strides)
    extents = shape === nothing ? Ptr{Int64}(C_NULL) : at(shape)
    tensor = DLTensor(data, DLDevice(device...), ndim, dtype, extents, steps, byte_offset)
    delete = deleter ? @cfunction(delete_versioned, Cvoid, (Ptr{DLManagedTensorVersioned},)) : C_NULL
    return at(Ref(DLManagedTensorVersioned(DX.DLPackVersion(version...), at(calls), delete, flags, tensor))), calls
end

function foreign_legacy(array)
    calls = kept(Ref(0))
    tensor = DLTensor(pointer(kept(array)), DLDevice(1, 0), ndims(array), DX.dtype(eltype(array)),
        at(Int64[size(array)...]), at(Int64[strides(array)...]), 0)
    delete = @cfunction(delete_legacy, Cvoid, (Ptr{DLManagedTensor},))
    return at(Ref(DLManagedTensor(tensor, at(calls), delete))), calls
end

# Changes members of the struct behind a pointer.
function set!(p::Ptr{T}; members...) where {T}
    for (name, value) in members
        k = Base.fieldindex(T, name)
        unsafe_store!(Ptr{fieldtype(T, k)}(p + fieldoffset(T, k)), convert(fieldtype(T, k), value))
    end
    return p
end

function release_schema(p::Ptr{ArrowSchema})
    count_call(unsafe_load(p).private_data)
    set!(p; release=C_NULL)
    return nothing
end

function release_array(p::Ptr{ArrowArray})
    count_call(unsafe_load(p).private_data)
    set!(p; release=C_NULL)
    return nothing
end

children_of(list::Vector{Ptr{T}}) where {T} = isempty(list) ? Ptr{Ptr{T}}(C_NULL) : at(list)
text(s) = s === nothing ? Ptr{UInt8}(C_NULL) : pointer(kept(String(s)))

# A foreign schema and a foreign array of Arrow. All nodes use the same counter. `nothing` is NULL.
function foreign_schema(calls, format; name="", children=Ptr{ArrowSchema}[], dictionary=C_NULL, flags=2,
                        metadata=nothing)
    release = @cfunction(release_schema, Cvoid, (Ptr{ArrowSchema},))
    block = metadata === nothing ? Ptr{UInt8}(C_NULL) : at(metadata)
    return at(Ref(ArrowSchema(text(format), text(name), block, flags, length(children), children_of(children),
        dictionary, release, at(calls))))
end

function foreign_array(calls, length, buffers; null_count=-1, offset=0, children=Ptr{ArrowArray}[], dictionary=C_NULL)
    release = @cfunction(release_array, Cvoid, (Ptr{ArrowArray},))
    table = Ptr{Cvoid}[b === nothing ? C_NULL : Ptr{Cvoid}(at(b)) for b in buffers]
    return at(Ref(ArrowArray(length, null_count, offset, Base.length(buffers), Base.length(children),
        Ptr{Ptr{Cvoid}}(at(table)), children_of(children), dictionary, release, at(calls))))
end

# A record batch of one column of three doubles, and its counter, which is 2 when both structs are released.
function foreign_batch(; values=[1.0, 2.0, 3.0], format="g", name="x")
    calls = Ref(0)
    schema = foreign_schema(calls, "+s"; flags=0, children=[foreign_schema(calls, format; name=name)])
    column = foreign_array(calls, length(values), (nothing, values))
    array = foreign_array(calls, length(values), (nothing,); children=[column])
    return array, schema, calls, column
end

# Calls the deleters of DLPack tensors on foreign threads, one for each tensor, and waits for these threads.
function delete_on_foreign_threads(tensors::Vector{Ptr{DLManagedTensorVersioned}})
    threads = zeros(Culong, length(tensors))
    for (k, tensor) in enumerate(tensors)
        # A deleter has the signature of a thread's function.
        deleter = unsafe_load(tensor).deleter
        status = ccall(:uv_thread_create, Cint, (Ptr{Culong}, Ptr{Cvoid}, Ptr{Cvoid}), Ref(threads, k), deleter, tensor)
        status == 0 || error("no thread: $status")
    end
    join_foreign_threads(threads)
end

function join_foreign_threads(threads)
    for k in eachindex(threads)
        ccall(:uv_thread_join, Cint, (Ptr{Culong},), Ref(threads, k))
    end
end
