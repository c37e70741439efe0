# Tensors on devices: allocated there, copied there and back, written and read in the order of a stream.
#
# Memory that is allocated here is compact and row-major, as most of DLPack's users expect. A Julia array is
# column-major. A copy between the two puts the same element at the same index, never the same bytes under another
# index. For two or more dimensions that is a reordering, which the host does.

"""
    allocate(T, dims, device::DLDevice; stream=nothing) -> Tensor{T}

Makes a tensor over new memory of a device, not initialised, with elements of type `T` (one that
[`dtype`](@ref DevExchange.dtype) knows). It is compact and **row-major**: the last index is the fastest, as `strides`
says.

With a `stream`, memory of a CUDA device comes from the device's pool: it is ready for work on that stream, and given
back in its order; the stream may be closed before that. Without a stream the memory can be used at once; that of a CUDA
device counts as filled on the legacy default stream ([`produced_on`](@ref)). Pinned and managed memory is made for the
device of the stream, without a stream for device 0, whatever number `device` has. With `DevExchange.PINNED`,
`DevExchange.MANAGED` and `DevExchange.CPU`, elements can be written and read here at once.

Throws `DEVX_OUT_OF_MEMORY`, `DEVX_INVALID_SHAPE`, `DEVX_DEVICE` (no driver, no such device), `DEVX_INVALID_STREAM` (a
stream of another device), `DEVX_UNSUPPORTED`, `DEVX_DRIVER`.
"""
allocate(::Type{T}, dims::Integer, device::DLDevice; stream=nothing) where {T} =
    allocate(T, (dims,), device; stream=stream)
function allocate(::Type{T}, dims::NTuple{N,Integer}, device::DLDevice; stream=nothing) where {T,N}
    d, extents = memory_dtype(T), Ref(extents_of(dims))
    handle = made(Handle{TAG_TENSOR}) do out
        on_stream(stream) do stream
            GC.@preserve extents begin
                shape = address_of(extents)
                @checked devx_tensor_allocate(device::DLDevice, d::DLDataType, shape::Ptr{Int64}, N::Csize_t,
                    stream::Int64, out::Ptr{Ptr{Cvoid}})
            end
        end
    end
    return adopt_tensor(Tensor{T,N}, handle; ready=true)
end

# The element type of memory that is made here.
function memory_dtype(::Type{T}) where {T}
    d = element_dtype(T)
    d.bits < 8 && throw(DevExchangeError(DEVX_UNSUPPORTED, "eltype is $T: memory for $(dtype_name(d)) would be packed"))
    return d
end

"""
    copy_to(t::Tensor{T,N}, device::DLDevice, stream) -> Tensor{T,N}
    copy_to(array::AbstractArray{T,N}, device::DLDevice, stream) -> Tensor{T,N}

Copies to another device (or the same). The copy is queued on a stream of either device and ready after it: it can be
handed on at once, and the source closed. A copy from or to the CPU is waited for, and one on the CPU can be read.
Between host memory that is not pinned any stream but -1 will do (1 and 2 are those of device 0), and without a driver
nothing is queued. Size and elements stay the same, index by index. A copy from or to the CPU is in compact
**row-major** order; any other copy (pinned and managed memory included) keeps the strides.

For a Julia array of two or more dimensions, which is column-major, this first makes a row-major copy in host memory.
`PermutedDimsArray(array, (2, 1))` and similar arrays, whose memory is row-major, are copied directly.

To copy a part of a tensor on a device, copy a [`slice`](@ref) of it; a column in device memory is copied with its
batch.

Throws `DEVX_OUT_OF_MEMORY`, `DEVX_DEVICE`, `DEVX_INVALID_STREAM`, `DEVX_DRIVER`, `DEVX_UNSUPPORTED` if the stream is
being captured, `DEVX_CLOSED`.
"""
function copy_to(t::Tensor{T,N}, device::DLDevice, stream::AnyStream) where {T,N}
    return adopt_tensor(Tensor{T,N}, made(Handle{TAG_TENSOR}) do out
        in_order(t.handle, stream) do tensor, stream
            @checked devx_tensor_copy_to(tensor::Ptr{Cvoid}, device::DLDevice, stream::Int64, out::Ptr{Ptr{Cvoid}})
        end
    end)
end

function copy_to(array::AbstractArray{T,N}, device::DLDevice, stream::AnyStream) where {T,N}
    require_readable_source(array)
    memory = row_major(array)
    source = Tensor(pointer(memory), size(array); strides=row_major_strides(size(array)), root=memory)
    try
        return copy_to(source, device, stream)
    finally
        close(source)
    end
end

# Refuses an array of memory that cannot be read here, and says what to copy instead.
require_readable_source(array::AbstractArray) = (p = parent(array); p === array || require_readable_source(p))
require_readable_source(t::Tensor) = t.readable ||
    throw(not_copied(t.device, "a part of a tensor is copied as a `slice(tensor, indices...)` of it"))

"""
    read!(array::AbstractArray{T,N}, t::Tensor{T,N}, stream) -> array

Copies all elements of a tensor, wherever it is, into a Julia array of the same size, index by index, in the order of a
stream (within host memory any will do, as for [`copy_to`](@ref)), and waits for them. The tensor must be compact and
row-major. A column-major array of two or more dimensions is filled through a copy in host memory; the memory of
`PermutedDimsArray(matrix, (2, 1))` is row-major and filled directly.

Throws `DEVX_READ_ONLY` for an array that must not be written (of a read-only tensor or a column, or a range),
`DEVX_MISMATCH` for another element type (elements are not converted), `DEVX_INVALID_SHAPE` for another size,
`DEVX_COPY_REQUIRED` for other strides, `DEVX_INVALID_STREAM`, `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
function Base.read!(array::AbstractArray{T,N}, t::Tensor{T,N}, stream::AnyStream) where {T,N}
    write_protected(array) && throw(DevExchangeError(DEVX_READ_ONLY,
        "the array, a $(typeof(array)), must not be written: it is of a column or a read-only tensor, or has no memory"))
    require_same_size(array, t)
    # Foreign bytes can be true without being 1.
    direct = !(T <: Bools) && is_row_major(array)
    memory = direct ? array : Array{T,N}(undef, reverse(size(t)))
    GC.@preserve memory begin
        bytes = pointer(memory)
        in_order(t.handle, stream) do tensor, stream
            @checked devx_tensor_read(
                tensor::Ptr{Cvoid}, bytes::Ptr{Cvoid}, (length(t) * sizeof(T))::Csize_t, stream::Int64)
        end
        T <: Bools && foreach(k -> memory[k] = load_element(pointer(memory), k - 1), eachindex(memory))
    end
    direct || reversed!(array, memory)
    return array
end
Base.read!(array::AbstractArray, t::Tensor, ::AnyStream) = refuse_other(array, t)

"""
    write!(t::Tensor{T,N}, array::AbstractArray{T,N}, stream) -> t

Copies a Julia array of the same size to a tensor on a device, index by index, in the order of a stream, and waits
until the elements are written. The array may be used again when this returns. Nobody else may use the elements of the
tensor meanwhile. The order of elements is that of [`read!`](@ref Base.read!).

Throws the errors of [`read!`](@ref Base.read!), but `DEVX_READ_ONLY` for the tensor.
"""
function write!(t::Tensor{T,N}, array::AbstractArray{T,N}, stream::AnyStream) where {T,N}
    require_same_size(array, t)
    memory = row_major(array)
    GC.@preserve memory begin
        bytes = pointer(memory)
        in_order(t.handle, stream) do tensor, stream
            @checked devx_tensor_write(
                tensor::Ptr{Cvoid}, bytes::Ptr{Cvoid}, (length(t) * sizeof(T))::Csize_t, stream::Int64)
        end
    end
    return t
end
write!(t::Tensor, array::AbstractArray, ::AnyStream) = refuse_other(array, t)

"""
    check_pointers(t::Tensor)
    check_pointers(b::Batch)

Checks with the driver that all the memory of a tensor or batch is where its description says, which no description can
prove. The buffers of a batch are not read. So the bytes that offsets and views point into are not checked: only those
buffers tell how many bytes there are. Nothing is checked for CPU memory. Throws `DEVX_DEVICE` with the driver's answer,
for a batch with the array and the buffer; `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
function check_pointers(t::Tensor)
    @checked devx_tensor_check_pointers(t.handle::Handle)
    return nothing
end

# Refuses an array with another element type or number of dimensions.
function refuse_other(array, t::Tensor)
    eltype(array) === eltype(t) || throw(DevExchangeError(DEVX_MISMATCH,
        "the array has eltype $(eltype(array)), the tensor has eltype $(eltype(t)): elements are not converted"))
    require_same_size(array, t)
end

function require_same_size(array, t::Tensor)
    size(array) == size(t) || throw(DevExchangeError(DEVX_INVALID_SHAPE,
        "the array has size $(size(array)), the tensor has size $(size(t))"))
    return nothing
end

row_major_strides(size::NTuple{N,Integer}) where {N} = reverse(column_major(NTuple{N,Int64}(reverse(size))))

# Whether an array has memory in which its elements are compact and in row-major order.
function is_row_major(array::AbstractArray{T,N}) where {T,N}
    steps = try
        memory_of(array)[2]
    catch e
        e isa DevExchangeError && e.status == DEVX_UNSUPPORTED || rethrow()
        # The array has no memory with strides.
        return false
    end
    compact = row_major_strides(size(array))
    return all(k -> size(array, k) == 1 || steps[k] == compact[k], 1:N)
end

# Memory with the elements of an array in row-major order: the array's own, or new memory.
function row_major(array::AbstractArray{T,N}) where {T,N}
    element_dtype(T)
    return is_row_major(array) ? array : reversed!(Array{T,N}(undef, reverse(size(array))), array)
end

# Copies with the dimensions reversed; `permutedims!` takes neither arrays without dimensions nor indices that begin
# elsewhere.
function reversed!(target::AbstractArray{T,N}, source::AbstractArray{T,N}) where {T,N}
    N <= 1 && return copyto!(target, source)
    Base.has_offset_axes(target, source) || return permutedims!(target, source, N:-1:1)
    flipped = PermutedDimsArray(target, N:-1:1)
    foreach((place, element) -> flipped[place] = element, CartesianIndices(flipped), source)
    return target
end
