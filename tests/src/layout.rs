//! The layout of the structs of the boundary, and the values of the constants.
//!
//! The numbers come from the Rust compiler. Other languages read the same tables from
//! `tests/layout.txt` and `tests/constants.txt`.

use crate::c::Language;
use core::ffi::CStr;
use devexchange_core::abi::{
    arrow_async, arrow_data, arrow_device, arrow_device_stream, arrow_stream, cuda_array, dlpack, types,
};
use std::fmt::Write as _;

/// A type of a header.
#[derive(Clone, Debug)]
pub struct Record {
    /// The header that declares it.
    pub header: &'static str,
    /// Name in C, without `struct`.
    pub name: String,
    /// Its size in bytes.
    pub size: usize,
    /// Its alignment in bytes.
    pub align: usize,
    /// Name and offset of each field; none if it is not a struct.
    pub fields: Vec<(&'static str, usize)>,
}

/// A constant of a header.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The header that declares it.
    pub header: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its value, as C spells it.
    pub value: String,
}

impl Record {
    fn new<T>(module: &str, name: &str, fields: &[(&'static str, usize)]) -> Self {
        Self {
            header: header(module),
            name: c_name(name),
            size: size_of::<T>(),
            align: align_of::<T>(),
            fields: fields.to_vec(),
        }
    }

    /// The type as C spells it.
    pub fn c_type(&self) -> String {
        if self.name.starts_with("Arrow") && !self.fields.is_empty() {
            format!("struct {}", self.name)
        } else {
            self.name.clone()
        }
    }

    /// Compile-time assertions of the same facts.
    pub fn assertions(&self, language: Language) -> String {
        let align = match language {
            Language::C => "_Alignof",
            Language::Cxx => "alignof",
        };
        let c_type = self.c_type();
        let mut text = language.assertion(&format!("sizeof({c_type}) == {}", self.size));
        text += &language.assertion(&format!("{align}({c_type}) == {}", self.align));
        for (field, offset) in &self.fields {
            text += &language.assertion(&format!("offsetof({c_type}, {field}) == {offset}"));
        }
        text
    }
}

impl Constant {
    /// Compile-time assertions of the same facts.
    pub fn assertions(&self, language: Language) -> String {
        let Self { name, value, .. } = self;
        match (value.starts_with('"'), language) {
            (false, _) => language.assertion(&format!("{name} == {value}")),
            // C cannot read a string at compile time.
            (true, Language::C) => language.assertion(&format!("sizeof({name}) == sizeof({value})")),
            (true, Language::Cxx) => language.assertion(&format!("__builtin_strcmp({name}, {value}) == 0")),
        }
    }
}

/// The includes that the assertions need.
pub const PREAMBLE: &str = "#include <stddef.h>\n#include <stdint.h>\n";

/// The header made from a module of `devexchange_core::abi`.
fn header(module: &str) -> &'static str {
    match module {
        "dlpack" => "dlpack/dlpack.h",
        "arrow_data" => "arrow/c/data.h",
        "arrow_device" => "arrow/c/device.h",
        "arrow_stream" => "arrow/c/stream.h",
        "arrow_device_stream" => "arrow/c/device_stream.h",
        "arrow_async" => "arrow/c/async.h",
        "cuda_array" => "devexchange/cuda_array.h",
        _ => "devexchange/types.h",
    }
}

/// `DevxBatchInfo` is `devx_batch_info`; the names of the standards are the same in Rust and C.
pub fn c_name(name: &str) -> String {
    if !name.starts_with("Devx") {
        return name.to_owned();
    }
    let mut c_name = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !c_name.is_empty() {
            c_name.push('_');
        }
        c_name.push(c.to_ascii_lowercase());
    }
    c_name
}

trait Value {
    fn spelled(&self) -> String;
}

macro_rules! integers {
    ($($Integer:ty)*) => {$(
        impl Value for $Integer {
            fn spelled(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

integers!(u8 i32 u32 i64 u64 usize);

impl Value for types::DevxStatus {
    fn spelled(&self) -> String {
        self.0.to_string()
    }
}

impl Value for &CStr {
    fn spelled(&self) -> String {
        format!("\"{}\"", self.to_string_lossy())
    }
}

/// Lists structs with their fields; a forgotten field does not compile.
macro_rules! records {
    ($($module:ident: $($Name:ident { $($field:tt)* })*;)*) => {
        /// The types of all headers.
        pub fn records() -> Vec<Record> {
            vec![$($(records!(@one $module $Name $($field)*),)*)*]
        }
    };
    (@one $module:ident $Name:ident) => {
        Record::new::<$module::$Name>(stringify!($module), stringify!($Name), &[])
    };
    (@one $module:ident $Name:ident $($field:ident)+) => {{
        const _: fn($module::$Name) = |$module::$Name { $($field: _),+ }| ();
        Record::new::<$module::$Name>(
            stringify!($module),
            stringify!($Name),
            &[$((stringify!($field), core::mem::offset_of!($module::$Name, $field))),+],
        )
    }};
}

macro_rules! constants {
    ($($module:ident: $($NAME:ident)*;)*) => {
        /// The constants of all headers.
        pub fn constants() -> Vec<Constant> {
            vec![$($(Constant {
                header: header(stringify!($module)),
                name: stringify!($NAME),
                value: $module::$NAME.spelled(),
            },)*)*]
        }
    };
}

records! {
    dlpack:
        DLDeviceType {}
        DLPackVersion { major minor }
        DLDevice { device_type device_id }
        DLDataType { code bits lanes }
        DLTensor { data device ndim dtype shape strides byte_offset }
        DLManagedTensor { dl_tensor manager_ctx deleter }
        DLManagedTensorVersioned { version manager_ctx deleter flags dl_tensor }
        DLPackManagedTensorAllocator {}
        DLPackManagedTensorFromPyObjectNoSync {}
        DLPackDLTensorFromPyObjectNoSync {}
        DLPackCurrentWorkStream {}
        DLPackManagedTensorToPyObjectNoSync {}
        DLPackExchangeAPIHeader { version prev_api }
        DLPackExchangeAPI {
            header
            managed_tensor_allocator
            managed_tensor_from_py_object_no_sync
            managed_tensor_to_py_object_no_sync
            dltensor_from_py_object_no_sync
            current_work_stream
        };
    arrow_data:
        ArrowSchema {
            format name metadata flags n_children children dictionary release private_data
        }
        ArrowArray {
            length null_count offset n_buffers n_children buffers children dictionary release
            private_data
        };
    arrow_device:
        ArrowDeviceType {}
        ArrowDeviceArray { array device_id device_type sync_event reserved };
    arrow_stream:
        ArrowArrayStream { get_schema get_next get_last_error release private_data };
    arrow_device_stream:
        ArrowDeviceArrayStream {
            device_type get_schema get_next get_last_error release private_data
        };
    arrow_async:
        ArrowAsyncTask { extract_data private_data }
        ArrowAsyncProducer { device_type request cancel additional_metadata private_data }
        ArrowAsyncDeviceStreamHandler {
            on_schema on_next_task on_error release producer private_data
        };
    cuda_array:
        DevxCudaArray {
            version read_only data ndim shape strides typestr descr mask stream release private_data
        }
        DevxCudaArrayRequest { max_version no_stream stream };
    types:
        DevxStatus {}
        DevxError { status driver_code message }
        DevxOwner { context release }
        DevxWake { context wake release }
        DevxBatchSource { context next release }
        DevxDlpackRequest { max_major max_minor stream copy }
        DevxField { format name metadata flags n_children has_dictionary }
        DevxFieldInfo { format name metadata flags n_children first_child dictionary }
        DevxNode { length null_count offset buffers n_buffers }
        DevxColumn {
            format name metadata flags length null_count offset buffers n_buffers n_children
            has_dictionary node
        }
        DevxBatchInfo { length n_columns n_nodes device_type device_id }
        DevxDeviceInfo { name uuid free_bytes total_bytes driver_version reserved }
        DevxPlan { kind reserved copy_bytes reason }
        DevxMemoryRequest { device_type device_id bytes stream host_flags reserved }
        DevxMemory { address device_type device_id owner }
        DevxMemoryInfo { free_bytes total_bytes }
        DevxIpcHandle { handle offset bytes device_id reserved }
        DevxManagerStatistics { bytes peak_bytes allocations total_allocations total_bytes refused }
        DevxManagerTable {
            version reserved context initialize allocate pin memory_info ipc_handle reset trim defer_cleanup release
        }
        DevxCount { total live }
        DevxLedger {
            tensor_exports tensor_imports batch_exports batch_imports schema_exports schema_imports
            owners stream_exports stream_imports
        };
}

constants! {
    dlpack:
        DLPACK_MAJOR_VERSION DLPACK_MINOR_VERSION DLPACK_FLAG_BITMASK_READ_ONLY
        DLPACK_FLAG_BITMASK_IS_COPIED DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
        kDLCPU kDLCUDA kDLCUDAHost kDLOpenCL kDLVulkan kDLMetal kDLVPI kDLROCM kDLROCMHost kDLExtDev
        kDLCUDAManaged kDLOneAPI kDLWebGPU kDLHexagon kDLMAIA kDLTrn
        kDLInt kDLUInt kDLFloat kDLOpaqueHandle kDLBfloat kDLComplex kDLBool
        kDLFloat8_e3m4 kDLFloat8_e4m3 kDLFloat8_e4m3b11fnuz kDLFloat8_e4m3fn kDLFloat8_e4m3fnuz
        kDLFloat8_e5m2 kDLFloat8_e5m2fnuz kDLFloat8_e8m0fnu
        kDLFloat6_e2m3fn kDLFloat6_e3m2fn kDLFloat4_e2m1fn;
    arrow_data:
        ARROW_FLAG_DICTIONARY_ORDERED ARROW_FLAG_NULLABLE ARROW_FLAG_MAP_KEYS_SORTED
        ARROW_STATISTICS_KEY_AVERAGE_BYTE_WIDTH_EXACT
        ARROW_STATISTICS_KEY_AVERAGE_BYTE_WIDTH_APPROXIMATE
        ARROW_STATISTICS_KEY_DISTINCT_COUNT_EXACT ARROW_STATISTICS_KEY_DISTINCT_COUNT_APPROXIMATE
        ARROW_STATISTICS_KEY_MAX_BYTE_WIDTH_EXACT ARROW_STATISTICS_KEY_MAX_BYTE_WIDTH_APPROXIMATE
        ARROW_STATISTICS_KEY_MAX_VALUE_EXACT ARROW_STATISTICS_KEY_MAX_VALUE_APPROXIMATE
        ARROW_STATISTICS_KEY_MIN_VALUE_EXACT ARROW_STATISTICS_KEY_MIN_VALUE_APPROXIMATE
        ARROW_STATISTICS_KEY_NULL_COUNT_EXACT ARROW_STATISTICS_KEY_NULL_COUNT_APPROXIMATE
        ARROW_STATISTICS_KEY_ROW_COUNT_EXACT ARROW_STATISTICS_KEY_ROW_COUNT_APPROXIMATE;
    arrow_device:
        ARROW_DEVICE_CPU ARROW_DEVICE_CUDA ARROW_DEVICE_CUDA_HOST ARROW_DEVICE_OPENCL
        ARROW_DEVICE_VULKAN ARROW_DEVICE_METAL ARROW_DEVICE_VPI ARROW_DEVICE_ROCM
        ARROW_DEVICE_ROCM_HOST ARROW_DEVICE_EXT_DEV ARROW_DEVICE_CUDA_MANAGED ARROW_DEVICE_ONEAPI
        ARROW_DEVICE_WEBGPU ARROW_DEVICE_HEXAGON;
    cuda_array:
        DEVX_CUDA_ARRAY_VERSION DEVX_CUDA_ARRAY_NO_STREAM DEVX_NO_STREAM_LEGACY_DEFAULT
        DEVX_NO_STREAM_HOST_SYNC DEVX_NO_STREAM_TRUST;
    types:
        DEVX_OK DEVX_NULL_ARGUMENT DEVX_INVALID_ARGUMENT DEVX_RELEASED DEVX_CLOSED
        DEVX_INVALID_FORMAT DEVX_INVALID_DTYPE DEVX_INVALID_SHAPE DEVX_INVALID_LENGTH
        DEVX_INVALID_NULL_COUNT DEVX_INVALID_BUFFERS DEVX_INVALID_CHILDREN DEVX_INVALID_METADATA
        DEVX_MISMATCH DEVX_TOO_DEEP DEVX_VERSION DEVX_DEVICE DEVX_UNSUPPORTED DEVX_COPY_REQUIRED
        DEVX_IMPOSSIBLE DEVX_READ_ONLY DEVX_OUT_OF_MEMORY DEVX_INVALID_TEXT DEVX_OUT_OF_RANGE
        DEVX_INVALID_STREAM DEVX_NOT_READY DEVX_DRIVER DEVX_CALLBACK DEVX_BUSY DEVX_SYSTEM DEVX_PANIC
        DEVX_ERROR_MESSAGE_BYTES DEVX_COPY_NEVER DEVX_COPY_IF_NEEDED DEVX_COPY_ALWAYS
        DEVX_FIELD_ORDERED DEVX_FIELD_NULLABLE DEVX_FIELD_KEYS_SORTED
        DEVX_PLAN_VIEW DEVX_PLAN_COPY DEVX_PLAN_IMPOSSIBLE DEVX_PLAN_REASON_BYTES DEVX_DEVICE_NAME_BYTES
        DEVX_IPC_TIMEOUT_NS DEVX_HOST_PORTABLE DEVX_HOST_MAPPED DEVX_HOST_WRITE_COMBINED DEVX_MANAGER_VERSION;
}

/// The table of all types: `NAME size N align N`, and `NAME.field offset N` for each field.
pub fn table() -> String {
    let mut text = String::new();
    for Record { name, size, align, fields, .. } in records() {
        let _ = writeln!(text, "{name} size {size} align {align}");
        for (field, offset) in fields {
            let _ = writeln!(text, "{name}.{field} offset {offset}");
        }
    }
    text
}

/// The table of all constants: `NAME value V`.
pub fn constant_table() -> String {
    let mut text = String::new();
    for Constant { name, value, .. } in constants() {
        let _ = writeln!(text, "{name} value {value}");
    }
    text
}
