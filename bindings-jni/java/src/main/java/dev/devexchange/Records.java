package dev.devexchange;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The C structs that cross the boundary: those of the standards and the records of {@code devexchange/types.h}. Members
 * are listed as in C, and laid out by C's rules for machines with 64-bit pointers. A test compares the result with the
 * table that is checked against the C compiler.
 */
final class Records {
    /** A struct: its members, in order. */
    static final class Struct {
        private final Map<String, Integer> offsets = new LinkedHashMap<>();
        private int end;
        private int align = 1;

        private Struct() {}

        /** The offset of a member in bytes. */
        int at(String member) {
            return offsets.get(member);
        }

        /** The size of the struct in bytes, including padding at the end. */
        int size() {
            return roundUp(end, align);
        }

        int align() {
            return align;
        }

        Map<String, Integer> offsets() {
            return offsets;
        }

        private Struct add(int bytes, int alignment, String... members) {
            for (String member : members) {
                int offset = roundUp(end, alignment);
                offsets.put(member, offset);
                end = offset + bytes;
            }
            align = Math.max(align, alignment);
            return this;
        }

        private Struct i8(String... members) {
            return add(1, 1, members);
        }

        private Struct i16(String... members) {
            return add(2, 2, members);
        }

        private Struct i32(String... members) {
            return add(4, 4, members);
        }

        private Struct i64(String... members) {
            return add(8, 8, members);
        }

        private Struct pointers(String... members) {
            return add(8, 8, members);
        }

        private Struct array(int count, int bytes, String member) {
            return add(count * bytes, bytes, member);
        }

        private Struct structs(Struct type, String... members) {
            return add(type.size(), type.align, members);
        }

        private static int roundUp(int bytes, int alignment) {
            return (bytes + alignment - 1) / alignment * alignment;
        }
    }

    /** Every struct by its name in C. */
    static final Map<String, Struct> ALL = new LinkedHashMap<>();

    // dlpack.h

    static final Struct DL_VERSION = struct("DLPackVersion").i32("major", "minor");
    static final Struct DL_DEVICE = struct("DLDevice").i32("device_type", "device_id");
    static final Struct DL_DATA_TYPE = struct("DLDataType").i8("code", "bits").i16("lanes");
    static final Struct DL_TENSOR = struct("DLTensor")
            .pointers("data")
            .structs(DL_DEVICE, "device")
            .i32("ndim")
            .structs(DL_DATA_TYPE, "dtype")
            .pointers("shape", "strides")
            .i64("byte_offset");
    static final Struct DL_MANAGED =
            struct("DLManagedTensor").structs(DL_TENSOR, "dl_tensor").pointers("manager_ctx", "deleter");
    static final Struct DL_MANAGED_VERSIONED = struct("DLManagedTensorVersioned")
            .structs(DL_VERSION, "version")
            .pointers("manager_ctx", "deleter")
            .i64("flags")
            .structs(DL_TENSOR, "dl_tensor");
    static final Struct DL_API_HEADER =
            struct("DLPackExchangeAPIHeader").structs(DL_VERSION, "version").pointers("prev_api");

    static {
        struct("DLPackExchangeAPI")
                .structs(DL_API_HEADER, "header")
                .pointers(
                        "managed_tensor_allocator",
                        "managed_tensor_from_py_object_no_sync",
                        "managed_tensor_to_py_object_no_sync",
                        "dltensor_from_py_object_no_sync",
                        "current_work_stream");
    }

    // arrow/c/abi.h

    static final Struct ARROW_SCHEMA = struct("ArrowSchema")
            .pointers("format", "name", "metadata")
            .i64("flags", "n_children")
            .pointers("children", "dictionary", "release", "private_data");
    static final Struct ARROW_ARRAY = struct("ArrowArray")
            .i64("length", "null_count", "offset", "n_buffers", "n_children")
            .pointers("buffers", "children", "dictionary", "release", "private_data");
    static final Struct ARROW_DEVICE_ARRAY = struct("ArrowDeviceArray")
            .structs(ARROW_ARRAY, "array")
            .i64("device_id")
            .i32("device_type")
            .pointers("sync_event")
            .array(3, 8, "reserved");

    static final Struct ARROW_STREAM = struct("ArrowArrayStream")
            .pointers("get_schema", "get_next", "get_last_error", "release", "private_data");
    static final Struct ARROW_DEVICE_STREAM = struct("ArrowDeviceArrayStream")
            .i32("device_type")
            .pointers("get_schema", "get_next", "get_last_error", "release", "private_data");

    static {
        struct("ArrowAsyncTask").pointers("extract_data", "private_data");
        struct("ArrowAsyncProducer")
                .i32("device_type")
                .pointers("request", "cancel", "additional_metadata", "private_data");
        struct("ArrowAsyncDeviceStreamHandler")
                .pointers("on_schema", "on_next_task", "on_error", "release", "producer", "private_data");
    }

    // devexchange/cuda_array.h

    static final Struct CUDA_ARRAY = struct("devx_cuda_array")
            .i32("version", "read_only")
            .pointers("data")
            .i64("ndim")
            .pointers("shape", "strides", "typestr", "descr", "mask")
            .i64("stream")
            .pointers("release", "private_data");
    static final Struct CUDA_ARRAY_REQUEST =
            struct("devx_cuda_array_request").i32("max_version", "no_stream").i64("stream");

    // devexchange/types.h

    static final Struct OWNER = struct("devx_owner").pointers("context", "release");

    static {
        struct("devx_error").i32("status", "driver_code").array(496, 1, "message");
        struct("devx_wake").pointers("context", "wake", "release");
        struct("devx_batch_source").pointers("context", "next", "release");
        struct("devx_memory").pointers("address").i32("device_type", "device_id").structs(OWNER, "owner");
        struct("devx_manager_table")
                .i32("version", "reserved")
                .pointers("context", "initialize", "allocate", "pin", "memory_info", "ipc_handle")
                .pointers("reset", "trim", "defer_cleanup", "release");
    }

    static final Struct MEMORY_REQUEST = struct("devx_memory_request")
            .i32("device_type", "device_id")
            .i64("bytes", "stream")
            .i32("host_flags", "reserved");
    static final Struct MEMORY_INFO = struct("devx_memory_info").i64("free_bytes", "total_bytes");
    static final Struct IPC_HANDLE = struct("devx_ipc_handle")
            .array(64, 1, "handle")
            .i64("offset", "bytes")
            .i32("device_id", "reserved");
    static final Struct MANAGER_STATISTICS = struct("devx_manager_statistics")
            .i64("bytes", "peak_bytes", "allocations", "total_allocations", "total_bytes", "refused");
    static final Struct DLPACK_REQUEST =
            struct("devx_dlpack_request").i32("max_major", "max_minor").i64("stream").i32("copy");
    static final Struct FIELD = struct("devx_field")
            .pointers("format", "name", "metadata")
            .i64("flags", "n_children", "has_dictionary");
    static final Struct FIELD_INFO = struct("devx_field_info")
            .pointers("format", "name", "metadata")
            .i64("flags", "n_children", "first_child", "dictionary");
    static final Struct NODE =
            struct("devx_node").i64("length", "null_count", "offset").pointers("buffers").i64("n_buffers");
    static final Struct COLUMN = struct("devx_column")
            .pointers("format", "name", "metadata")
            .i64("flags", "length", "null_count", "offset")
            .pointers("buffers")
            .i64("n_buffers", "n_children", "has_dictionary", "node");
    static final Struct BATCH_INFO =
            struct("devx_batch_info").i64("length", "n_columns", "n_nodes").i32("device_type", "device_id");
    static final Struct DEVICE_INFO = struct("devx_device_info")
            .array(128, 1, "name")
            .array(16, 1, "uuid")
            .i64("free_bytes", "total_bytes")
            .i32("driver_version", "reserved");
    static final Struct PLAN =
            struct("devx_plan").i32("kind", "reserved").i64("copy_bytes").array(240, 1, "reason");
    static final Struct COUNT = struct("devx_count").i64("total", "live");
    static final Struct LEDGER = struct("devx_ledger")
            .structs(
                    COUNT,
                    "tensor_exports",
                    "tensor_imports",
                    "batch_exports",
                    "batch_imports",
                    "schema_exports",
                    "schema_imports",
                    "owners",
                    "stream_exports",
                    "stream_imports");

    private Records() {}

    private static Struct struct(String name) {
        Struct struct = new Struct();
        ALL.put(name, struct);
        return struct;
    }
}
