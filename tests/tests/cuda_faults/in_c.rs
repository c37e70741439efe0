//! Tensors and batches, their memory and their order through the C API.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use devexchange as _;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::{DLDataType, DLDevice, DLManagedTensorVersioned};
use devexchange_core::abi::types::{
    DEVX_ERROR_MESSAGE_BYTES, DEVX_OK, DevxDeviceInfo, DevxDlpackRequest, DevxError, DevxStatus,
};
use devexchange_core::arrow::release_array;
use devexchange_core::{DType, Device};
use devexchange_tests::foreign::CUDA0;

use super::N;
use super::scene::{Scene, give_back, unused};

/// Streams that a failed call left with their creator.
pub(super) static UNDESTROYED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

type Handle = *mut c_void;

unsafe extern "C" {
    fn devx_tensor_import_on(
        s: *mut DLManagedTensorVersioned,
        on: i64,
        out: *mut Handle,
        e: *mut DevxError,
    ) -> DevxStatus;
    fn devx_tensor_export_share(
        t: Handle,
        request: *const DevxDlpackRequest,
        out: *mut *mut DLManagedTensorVersioned,
        e: *mut DevxError,
    ) -> DevxStatus;
    fn devx_dlpack_release(t: *mut *mut DLManagedTensorVersioned);
    fn devx_tensor_release(t: *mut Handle);
    fn devx_tensor_allocate(
        device: DLDevice,
        dtype: DLDataType,
        shape: *const i64,
        ndim: usize,
        stream: i64,
        out: *mut Handle,
        e: *mut DevxError,
    ) -> DevxStatus;
    fn devx_tensor_copy_to(t: Handle, device: DLDevice, stream: i64, out: *mut Handle, e: *mut DevxError)
    -> DevxStatus;
    fn devx_tensor_read(t: Handle, into: *mut c_void, bytes: usize, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_write(t: Handle, from: *const c_void, bytes: usize, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_check_pointers(t: Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_wait(t: Handle, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_used_on(t: Handle, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_to_column(t: Handle, name: *const i8, copy: i32, out: *mut Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_check_pointers(b: Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_schema(b: Handle, out: *mut Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_import_device(a: *mut ArrowDeviceArray, s: Handle, out: *mut Handle, e: *mut DevxError)
    -> DevxStatus;
    fn devx_batch_export_share_device(b: Handle, out: *mut ArrowDeviceArray, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_copy_to(b: Handle, device: DLDevice, stream: i64, out: *mut Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_wait(b: Handle, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_used_on(b: Handle, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_release(b: *mut Handle);
    fn devx_schema_release(s: *mut Handle);
    fn devx_stream_create(device: DLDevice, out: *mut i64, e: *mut DevxError) -> DevxStatus;
    fn devx_stream_destroy(device: DLDevice, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_device_count(kind: i32, out: *mut i32, e: *mut DevxError) -> DevxStatus;
    fn devx_device_get_info(device: DLDevice, out: *mut DevxDeviceInfo, e: *mut DevxError) -> DevxStatus;
}

const NO_ERROR: DevxError = DevxError { status: DEVX_OK, driver_code: 0, message: [0; DEVX_ERROR_MESSAGE_BYTES] };

/// Calls a function of the C API with an error record at the end. Returns whether it succeeded.
macro_rules! c {
    ($scene:expr, $function:ident($($argument:expr),*)) => {{
        let mut error = NO_ERROR;
        let status = unsafe { $function($($argument,)* &raw mut error) };
        $scene.note_c(status, &error)
    }};
}

pub(super) fn exchange(scene: &Scene) {
    let (mut tensor, mut batch, mut column, mut schema) = (null_mut(), null_mut(), null_mut(), null_mut());
    let managed = scene.foreign_tensor();
    if !c!(scene, devx_tensor_import_on(managed, scene.stream(), &raw mut tensor)) {
        give_back(managed);
        return unused(scene, &[1]);
    }
    let producer = scene.producer as i64;
    c!(scene, devx_tensor_check_pointers(tensor));
    c!(scene, devx_tensor_wait(tensor, producer));
    let request = DevxDlpackRequest { max_major: 1, max_minor: 3, stream: producer, copy: 0 };
    let mut exported = null_mut();
    if c!(scene, devx_tensor_export_share(tensor, &raw const request, &raw mut exported)) {
        unsafe { devx_dlpack_release(&raw mut exported) };
    }
    c!(scene, devx_tensor_used_on(tensor, scene.stream()));
    if c!(scene, devx_tensor_to_column(tensor, c"x".as_ptr().cast(), 0, &raw mut column)) {
        let mut out = MaybeUninit::<ArrowDeviceArray>::uninit();
        c!(scene, devx_batch_schema(column, &raw mut schema));
        if c!(scene, devx_batch_export_share_device(column, out.as_mut_ptr())) {
            unsafe { release_array(&raw mut (*out.as_mut_ptr()).array) };
        }
        c!(scene, devx_batch_used_on(column, producer));
    }
    let mut array = scene.foreign_array(1, scene.event);
    if c!(scene, devx_batch_import_device(&raw mut array, schema, &raw mut batch)) {
        c!(scene, devx_batch_check_pointers(batch));
        c!(scene, devx_batch_wait(batch, scene.stream()));
        c!(scene, devx_batch_used_on(batch, scene.stream()));
    } else {
        unsafe { release_array(&raw mut array.array) };
    }
    unsafe {
        devx_tensor_release(&raw mut tensor);
        devx_batch_release(&raw mut column);
        devx_batch_release(&raw mut batch);
        devx_schema_release(&raw mut schema);
    }
}

pub(super) fn memory(scene: &Scene) {
    let (cuda, cpu) = (CUDA0.to_dlpack(), Device::CPU.to_dlpack());
    let (shape, mut bytes) = ([N as i64], vec![0_u8; N as usize]);
    let (producer, stream) = (scene.producer as i64, scene.stream());
    let (mut count, mut own) = (0, 0);
    let mut about = MaybeUninit::<DevxDeviceInfo>::uninit();
    c!(scene, devx_device_count(2, &raw mut count));
    c!(scene, devx_device_get_info(cuda, about.as_mut_ptr()));
    if c!(scene, devx_stream_create(cuda, &raw mut own)) && !c!(scene, devx_stream_destroy(cuda, own)) {
        // The stream could not be destroyed: the caller still has it.
        scene.unfreed.lock().expect("not poisoned").push(0);
        UNDESTROYED.lock().expect("not poisoned").push(own as u64);
    }
    for on in [stream, -1] {
        let mut tensor = null_mut();
        if !c!(scene, devx_tensor_allocate(cuda, DType::UINT8.to_dlpack(), shape.as_ptr(), 1, on, &raw mut tensor)) {
            continue;
        }
        c!(scene, devx_tensor_write(tensor, bytes.as_ptr().cast(), bytes.len(), producer));
        c!(scene, devx_tensor_read(tensor, bytes.as_mut_ptr().cast(), bytes.len(), stream));
        for to in [cuda, cpu] {
            let (mut copied, mut column, mut batch) = (null_mut(), null_mut(), null_mut());
            if c!(scene, devx_tensor_copy_to(tensor, to, stream, &raw mut copied)) {
                unsafe { devx_tensor_release(&raw mut copied) };
            }
            if c!(scene, devx_tensor_to_column(tensor, null(), 0, &raw mut column)) {
                if c!(scene, devx_batch_copy_to(column, to, producer, &raw mut batch)) {
                    unsafe { devx_batch_release(&raw mut batch) };
                }
                unsafe { devx_batch_release(&raw mut column) };
            }
        }
        c!(scene, devx_tensor_used_on(tensor, producer));
        unsafe { devx_tensor_release(&raw mut tensor) };
    }
    unused(scene, &[0, 1]);
}
