# The two native libraries: their files, and the functions in them.

# libdevexchange: the C API.
const C_FUNCTIONS = (
    :devx_async_reader_create, :devx_async_reader_handler, :devx_async_reader_next, :devx_async_reader_producer,
    :devx_async_reader_producer_error, :devx_async_reader_release, :devx_async_reader_request,
    :devx_async_reader_schema, :devx_async_writer_create, :devx_async_writer_demand, :devx_async_writer_fail,
    :devx_async_writer_finish, :devx_async_writer_is_cancelled, :devx_async_writer_ready, :devx_async_writer_release,
    :devx_async_writer_send_move, :devx_async_writer_start, :devx_batch_check_pointers, :devx_batch_column,
    :devx_batch_column_named, :devx_batch_columns, :devx_batch_copy, :devx_batch_copy_to, :devx_batch_create_sized,
    :devx_batch_export_move, :devx_batch_export_move_device,
    :devx_batch_export_share, :devx_batch_export_share_device, :devx_batch_get_info, :devx_batch_import,
    :devx_batch_import_device, :devx_batch_import_pair, :devx_batch_import_pair_device, :devx_batch_of_columns,
    :devx_batch_plan_matrix, :devx_batch_produced_on, :devx_batch_release, :devx_batch_root, :devx_batch_schema,
    :devx_batch_share, :devx_batch_slice, :devx_batch_stream_create, :devx_batch_stream_device_type,
    :devx_batch_stream_export,
    :devx_batch_stream_export_device, :devx_batch_stream_import, :devx_batch_stream_import_device,
    :devx_batch_stream_next, :devx_batch_stream_release, :devx_batch_stream_schema, :devx_batch_to_matrix,
    :devx_batch_used_on, :devx_batch_wait, :devx_column_child, :devx_column_dictionary, :devx_column_null_count,
    :devx_column_null_count_on, :devx_column_plan_tensor, :devx_column_share, :devx_column_text, :devx_column_to_tensor,
    :devx_column_values, :devx_cuda_array_import, :devx_cuda_array_release, :devx_device_count, :devx_device_get_info,
    :devx_device_name, :devx_dlpack_release, :devx_dlpack_release_legacy, :devx_dtype_name, :devx_ipc_client_create,
    :devx_ipc_client_import_batch, :devx_ipc_client_import_tensor, :devx_ipc_client_release, :devx_ipc_plan_batch,
    :devx_ipc_plan_tensor, :devx_ipc_server_create, :devx_ipc_server_leases, :devx_ipc_server_offer_batch,
    :devx_ipc_server_offer_tensor, :devx_ipc_server_release, :devx_ipc_server_withdraw, :devx_ledger_outstanding,
    :devx_ledger_read, :devx_manager_allocate, :devx_manager_create, :devx_manager_create_driver,
    :devx_manager_create_host_only, :devx_manager_create_limited, :devx_manager_create_managed,
    :devx_manager_create_pool, :devx_manager_create_shareable_pool, :devx_manager_defer_cleanup,
    :devx_manager_get_statistics, :devx_manager_initialize, :devx_manager_ipc_handle, :devx_manager_memory_info,
    :devx_manager_pin, :devx_manager_release, :devx_manager_reset, :devx_manager_resume_cleanup, :devx_manager_trim,
    :devx_metadata_block, :devx_metadata_release, :devx_releases_lost, :devx_releases_waiting, :devx_schema_create,
    :devx_schema_export, :devx_schema_import, :devx_schema_release, :devx_schema_share, :devx_status_name,
    :devx_stream_close, :devx_stream_create, :devx_stream_hold, :devx_stream_of_device, :devx_stream_synchronize,
    :devx_tensor_allocate, :devx_tensor_allocate_shared, :devx_tensor_allocate_with, :devx_tensor_borrow,
    :devx_tensor_check_pointers, :devx_tensor_copy, :devx_tensor_copy_to, :devx_tensor_create, :devx_tensor_export_move,
    :devx_tensor_export_move_cuda_array, :devx_tensor_export_move_legacy, :devx_tensor_export_share,
    :devx_tensor_export_share_cuda_array, :devx_tensor_export_share_legacy, :devx_tensor_import,
    :devx_tensor_import_legacy, :devx_tensor_import_on, :devx_tensor_import_on_legacy, :devx_tensor_plan_batch,
    :devx_tensor_plan_column, :devx_tensor_plan_fixed_shape_column, :devx_tensor_produced_on, :devx_tensor_read,
    :devx_tensor_release, :devx_tensor_share, :devx_tensor_slice, :devx_tensor_stream, :devx_tensor_to_batch,
    :devx_tensor_to_column, :devx_tensor_to_fixed_shape_column, :devx_tensor_used_on, :devx_tensor_wait,
    :devx_tensor_write, :devx_type_name, :devx_version, :devx_version_string,
)

# libdevexchange_julia: the queue of releases, wakes and requests.
const QUEUE_FUNCTIONS = (
    :devx_julia_queue_start, :devx_julia_register, :devx_julia_cancel, :devx_julia_push, :devx_julia_drain,
    :devx_julia_silence, :devx_julia_thread, :devx_julia_source, :devx_julia_manager, :devx_julia_discard,
    :devx_julia_wake, :devx_julia_discard_wake, :devx_julia_called, :devx_julia_take, :devx_julia_answer,
    :devx_julia_keep, :devx_julia_let_go, :devx_julia_trace, :devx_julia_version,
)

# For each function there is a constant of its name that holds its address, looked up once when the module is loaded. So
# a library that is too old is detected then, and a finalizer never has to look anything up.
for name in (C_FUNCTIONS..., QUEUE_FUNCTIONS...)
    @eval const $name = Ref{Ptr{Cvoid}}(C_NULL)
end

# The version of this package. The C API must have the same major and minor version; the queue, which is private to the
# package, must have the same version.
const PACKAGE_VERSION = v"0.1.0"

const LIBRARY_PATH = Ref("")

"""
    library_path() -> String

Returns the file that the C API was loaded from. The libraries `libdevexchange` and `libdevexchange_julia` are searched
for in this order:

- If the environment variable `DEVEXCHANGE_LIBRARY_DIR` is set, only in that directory.
- In the package's own `lib` directory, which a package from `make dist` has.
- In `target/release` of the checkout that contains this package (`CARGO_TARGET_DIR` is respected).
- Wherever the system's loader looks.
"""
library_path() = LIBRARY_PATH[]

function load_libraries()
    library = open_library("libdevexchange")
    queue = open_library("libdevexchange_julia")
    LIBRARY_PATH[] = Libdl.dlpath(library)
    look_up(library, C_FUNCTIONS)
    look_up(queue, QUEUE_FUNCTIONS)
    version = ccall(devx_version[], UInt32, ())
    found = (Int(version >> 16), Int(version >> 8 & 0xff))
    wanted = (PACKAGE_VERSION.major, PACKAGE_VERSION.minor)
    found == wanted || error("DevExchange: $(library_path()) has version $(join(found, '.')), ",
        "this package needs $(join(map(Int, wanted), '.'))")
    version = VersionNumber(unsafe_string(ccall(devx_julia_version[], Cstring, ())))
    version == PACKAGE_VERSION || error("DevExchange: $(Libdl.dlpath(queue)) has version $version, ",
        "this package needs $PACKAGE_VERSION")
    return nothing
end

function open_library(name)
    file = name * "." * Libdl.dlext
    candidates = library_candidates(file)
    for candidate in candidates
        # A path is only tried if the file exists, so that a file that cannot be loaded reports why.
        if isabspath(candidate)
            isfile(candidate) && return Libdl.dlopen(candidate)
        else
            handle = Libdl.dlopen_e(candidate)
            handle == C_NULL || return handle
        end
    end
    error("DevExchange: $file was not found; looked for ", join(candidates, ", "),
        ". Build it with `cargo build --release -p devexchange-c -p devexchange-julia`, ",
        "or say where it is with the environment variable DEVEXCHANGE_LIBRARY_DIR.")
end

function library_candidates(file)
    directory = get(ENV, "DEVEXCHANGE_LIBRARY_DIR", "")
    isempty(directory) || return [joinpath(abspath(directory), file)]
    package = normpath(joinpath(@__DIR__, ".."))
    candidates = [joinpath(package, "lib", file), file]
    checkout = normpath(joinpath(package, "..", ".."))
    if isfile(joinpath(checkout, "bindings-julia", "Cargo.toml"))
        target = get(ENV, "CARGO_TARGET_DIR", "")
        target = isempty(target) ? joinpath(checkout, "target") : joinpath(checkout, target)
        insert!(candidates, 2, joinpath(target, "release", file))
    end
    return candidates
end

function look_up(library, names)
    for name in names
        address = Libdl.dlsym_e(library, name)
        address == C_NULL && error("DevExchange: $(Libdl.dlpath(library)) has no function $name; ",
            "it is of another version than this package")
        getfield(@__MODULE__, name)[] = address
    end
end
