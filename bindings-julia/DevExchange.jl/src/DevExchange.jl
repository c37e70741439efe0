"""
Hands tensors and record batches between Julia and other runtimes of the process without a copy, through DLPack and the
Arrow C (Device) data interface.

An exchange answers four questions: *what* is it (element type, shape, schema), *where* is it
([`DevExchange.device`](@ref)), *who* keeps it alive, and *when* may it be touched. There are three ways to hand
something over, with these names where the language allows: *share* (the owner is counted), *move* (nothing is counted,
the handle is given up), *borrow* (for the length of one call). An import takes ownership only if it succeeds. The owner
of a thing releases it once, and a foreign release is called exactly once, on whatever thread the last user is.

- [`Tensor`](@ref): arrays in and out as DLPack, with [`import_dlpack`](@ref), [`export_share`](@ref),
  [`export_move`](@ref).
- [`Batch`](@ref), [`Column`](@ref), [`Schema`](@ref): tables in and out as Arrow, with [`import_arrow`](@ref),
  [`import_arrow_device`](@ref); [`ArrayBuilder`](@ref) if you already have the buffers.
- [`BatchStream`](@ref): streams of batches in and out; [`AsyncReader`](@ref), [`AsyncWriter`](@ref): asynchronous
  streams.
- [`plan_tensor`](@ref), [`plan_column`](@ref), [`matrix`](@ref), [`record_batch`](@ref), [`fixed_shape_column`](@ref):
  conversions between tensors and tables.
- [`DeviceStream`](@ref), [`allocate`](@ref), [`copy_to`](@ref), [`used_on`](@ref): memory of a CUDA device, and the
  order of the work there. The driver is loaded when it is first needed; everything else works without one.
- [`import_cuda_array`](@ref), [`export_share_cuda_array`](@ref): tensors as the CUDA Array Interface, a C struct.
- With CUDA.jl loaded: `Tensor(array)` over a `CuArray`, `unsafe_wrap(CuArray, tensor)`, `DeviceStream(CUDA.stream())`.
- [`MemoryManager`](@ref): allocators, those of the library and your own.
- [`IpcServer`](@ref), [`IpcClient`](@ref): tensors and batches shared with other processes.
- [`ledger`](@ref), [`outstanding`](@ref): what is not released yet.

Names that are too common are not exported. They are called as `DevExchange.cuda(0)`, and `?DevExchange.cuda` shows
their documentation: `CPU`, `Int256`, `LEGACY_STREAM`, `MANAGED`, `PER_THREAD_STREAM`, `PINNED`, `buffers`, `cuda`,
`demand`, `device`, `device_name`, `device_type`, `dtype`, `dtype_name`, `fields`, `flags`, `format`, `handler`,
`initialize`, `is_cancelled`, `keys_sorted`, `library_path`, `metadata`, `name`, `nullable`, `ordered`, `producer_error`,
`release_failures`, `request`, `rooted`, `statistics`, `status_name`, `text`, `type_name`.

`close` what you do not need any more; a finalizer closes what was forgotten. Julia code runs on Julia threads only: a
release on another thread puts a number into a native queue, which a task of this module drains. What a package needs
from the start it makes in its `__init__`: nothing can be made while a package is precompiled.

A call that fails throws a [`DevExchangeError`](@ref) with a status, and has changed nothing.
"""
module DevExchange

using Dates
using Libdl
using LinearAlgebra: LinearAlgebra, Adjoint, Transpose
using Serialization: Serialization, AbstractSerializer

export Allocation, ArrayBuilder, ArrowArray, ArrowArrayStream, ArrowAsyncDeviceStreamHandler, ArrowDeviceArray,
    ArrowDeviceArrayStream, ArrowSchema, AsyncReader, AsyncWriter, Batch, BatchStream, Bytes, Column, DLDataType,
    DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, DayTime, Decimal, DevExchangeError, DeviceInfo,
    DeviceStream, DevxCudaArray, DictionaryVector, Entries, Field, IpcClient, IpcServer, MemoryManager, MemoryRequest,
    MonthDayNano, Node, Plan, RawElement, Row, RunEndVector, Schema, Tensor, allocate, allocate_shared, arrow_release,
    borrow, bytes, check_pointers, children, columns, copy_to, cuda_array_release, defer_cleanup, device_count,
    device_info, dictionary, dlpack_release, drain, driver_manager, export_move, export_move_cuda_array,
    export_move_legacy, export_share, export_share_cuda_array, export_share_legacy, extension, extension_metadata,
    extension_name, fixed_shape_column, host_only_manager, import_arrow, import_arrow_device, import_batch,
    import_cuda_array, import_dlpack, import_dlpack_legacy, import_schema, import_tensor, indices, ipc_handle, leases,
    ledger, limited_manager, list_field, managed_manager, map_field, matrix, memory_info, next!, null_count, offer,
    outstanding, pin, plan_batch, plan_column, plan_fixed_shape_column, plan_matrix, plan_offer, plan_tensor,
    pool_manager, produced_on, receive, record_batch, releases_lost, releases_waiting, reset!, root, run_end_field,
    schema, share, slice, struct_field, synchronize, timezone, trim!, type_id, type_ids, union_field, used_on, wait_on,
    withdraw, write!

include("library.jl")
include("types.jl")
include("error.jl")
include("queue.jl")
include("handle.jl")
include("call.jl")
include("dtype.jl")
include("device.jl")
include("stream.jl")
include("tensor.jl")
include("overlap.jl")
include("linear_algebra.jl")
include("device_tensor.jl")
include("dlpack.jl")
include("cuda_array.jl")
include("manager.jl")
include("own_manager.jl")
include("value.jl")
include("layout.jl")
include("field.jl")
include("schema.jl")
include("batch.jl")
include("batch_of_columns.jl")
include("builder.jl")
include("column.jl")
include("views.jl")
include("readers.jl")
include("vector.jl")
include("show.jl")
include("convert.jl")
include("order.jl")
include("batch_stream.jl")
include("async.jl")
include("async_reader.jl")
include("async_writer.jl")
include("ipc.jl")
include("broadcast.jl")
include("ledger.jl")
include("precompile.jl")

function __init__()
    load_libraries()
    # While a package is precompiled there is no event loop to wake, and an open handle would keep the process from
    # ending.
    ccall(:jl_generating_output, Cint, ()) == 0 && start_queue()
    return nothing
end

end
