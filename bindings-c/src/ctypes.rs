//! Types whose C definition is in a header made by cbindgen: safer-ffi learns their names here, and never defines them.

use core::ffi::c_char;

use devexchange_core::abi::{
    arrow_async, arrow_data, arrow_device, arrow_device_stream, arrow_stream, cuda_array, dlpack, types,
};

macro_rules! named_in_c {
    ($( $(#[$doc:meta])* $Name:ident($Inner:ty) = $c_name:literal; )*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy)]
        pub(crate) struct $Name(pub(crate) $Inner);

        // SAFETY: `repr(transparent)` over the `repr(C)` type that is `$c_name` in C, as the layout tests check; nothing is
        // promised about its values.
        unsafe impl safer_ffi::layout::CType for $Name {
            type OPAQUE_KIND = safer_ffi::layout::OpaqueKind::Concrete;

            #[safer_ffi::cfg_headers]
            fn short_name() -> String {
                stringify!($Name).into()
            }

            #[safer_ffi::cfg_headers]
            fn define_self__impl(
                _: &dyn safer_ffi::headers::languages::HeaderLanguage,
                _: &mut dyn safer_ffi::headers::Definer,
            ) -> std::io::Result<()> {
                Ok(())
            }

            #[safer_ffi::cfg_headers]
            fn name(_: &dyn safer_ffi::headers::languages::HeaderLanguage) -> String {
                $c_name.into()
            }
        }
        safer_ffi::layout::from_CType_impl_ReprC! { $Name }
    )*};
}

named_in_c! {
    /// `char`.
    Char(c_char) = "char";
    /// `void`, behind pointers only.
    Void(u8) = "void";
    /// `devx_status`.
    Status(types::DevxStatus) = "devx_status";
    /// `devx_error`.
    ErrorRecord(types::DevxError) = "devx_error";
    /// `devx_owner`.
    OwnerRecord(types::DevxOwner) = "devx_owner";
    /// `devx_wake`.
    WakeRecord(types::DevxWake) = "devx_wake";
    /// `devx_batch_source`.
    BatchSourceRecord(types::DevxBatchSource) = "devx_batch_source";
    /// `devx_dlpack_request`.
    RequestRecord(types::DevxDlpackRequest) = "devx_dlpack_request";
    /// `devx_field`.
    FieldRecord(types::DevxField) = "devx_field";
    /// `devx_field_info`.
    FieldInfoRecord(types::DevxFieldInfo) = "devx_field_info";
    /// `devx_node`.
    NodeRecord(types::DevxNode) = "devx_node";
    /// `devx_column`.
    ColumnRecord(types::DevxColumn) = "devx_column";
    /// `devx_batch_info`.
    BatchInfoRecord(types::DevxBatchInfo) = "devx_batch_info";
    /// `devx_device_info`.
    DeviceInfoRecord(types::DevxDeviceInfo) = "devx_device_info";
    /// `devx_plan`.
    PlanRecord(types::DevxPlan) = "devx_plan";
    /// `devx_ledger`.
    LedgerRecord(types::DevxLedger) = "devx_ledger";
    /// `devx_memory_request`.
    MemoryRequestRecord(types::DevxMemoryRequest) = "devx_memory_request";
    /// `devx_memory`.
    MemoryRecord(types::DevxMemory) = "devx_memory";
    /// `devx_ipc_handle`.
    IpcHandleRecord(types::DevxIpcHandle) = "devx_ipc_handle";
    /// `devx_memory_info`.
    MemoryInfoRecord(types::DevxMemoryInfo) = "devx_memory_info";
    /// `devx_manager_table`.
    ManagerTableRecord(types::DevxManagerTable) = "devx_manager_table";
    /// `devx_manager_statistics`.
    StatisticsRecord(types::DevxManagerStatistics) = "devx_manager_statistics";
    /// `devx_cuda_array`.
    CudaArray(cuda_array::DevxCudaArray) = "devx_cuda_array";
    /// `devx_cuda_array_request`.
    CudaArrayRequestRecord(cuda_array::DevxCudaArrayRequest) = "devx_cuda_array_request";
    /// `DLTensor`.
    DlTensor(dlpack::DLTensor) = "DLTensor";
    /// `DLDevice`.
    DlDevice(dlpack::DLDevice) = "DLDevice";
    /// `DLDataType`.
    DlDataType(dlpack::DLDataType) = "DLDataType";
    /// `struct DLManagedTensor`.
    Legacy(dlpack::DLManagedTensor) = "struct DLManagedTensor";
    /// `struct DLManagedTensorVersioned`.
    Versioned(dlpack::DLManagedTensorVersioned) = "struct DLManagedTensorVersioned";
    /// `struct ArrowSchema`.
    ArrowSchema(arrow_data::ArrowSchema) = "struct ArrowSchema";
    /// `struct ArrowArray`.
    ArrowArray(arrow_data::ArrowArray) = "struct ArrowArray";
    /// `struct ArrowDeviceArray`.
    ArrowDeviceArray(arrow_device::ArrowDeviceArray) = "struct ArrowDeviceArray";
    /// `struct ArrowArrayStream`.
    ArrowArrayStream(arrow_stream::ArrowArrayStream) = "struct ArrowArrayStream";
    /// `struct ArrowDeviceArrayStream`.
    ArrowDeviceArrayStream(arrow_device_stream::ArrowDeviceArrayStream) = "struct ArrowDeviceArrayStream";
    /// `struct ArrowAsyncDeviceStreamHandler`.
    AsyncHandler(arrow_async::ArrowAsyncDeviceStreamHandler) = "struct ArrowAsyncDeviceStreamHandler";
}
