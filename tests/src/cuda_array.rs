//! A foreign producer of CUDA arrays: the C struct of the interface over memory of the CUDA driver.

use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use devexchange_core::abi::cuda_array::{DEVX_CUDA_ARRAY_NO_STREAM, DevxCudaArray};

/// The data that an array points to.
pub struct Producer {
    /// The shape that the array states.
    pub shape: Vec<i64>,
    /// Room for strides, which an array does not have at first.
    pub strides: Vec<i64>,
    typestr: CString,
    mask: Option<Box<DevxCudaArray>>,
    /// The number of releases of the array.
    pub released: Arc<AtomicU32>,
    /// What its release does.
    pub on_release: Option<Box<dyn FnOnce() + Send>>,
}

unsafe extern "C" fn give_up(array: *mut DevxCudaArray) {
    // SAFETY: a consumer passes the struct that it was given, wherever it has moved it.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: made by `produce`; the release is marked above, so this happens once.
    let mut producer = unsafe { Box::from_raw(array.private_data.cast::<Producer>()) };
    if let Some(on_release) = producer.on_release.take() {
        on_release();
    }
    producer.released.fetch_add(1, SeqCst);
}

/// A compact array of version 3 without a stream, whose release calls `on_release`.
///
/// # Panics
/// If there is a NUL in `typestr`.
pub fn produce(data: u64, typestr: &str, shape: &[i64], on_release: impl FnOnce() + Send + 'static) -> DevxCudaArray {
    let producer = Box::new(Producer {
        shape: shape.to_vec(),
        strides: Vec::new(),
        typestr: CString::new(typestr).expect("no NUL"),
        mask: None,
        released: Arc::default(),
        on_release: Some(Box::new(on_release)),
    });
    DevxCudaArray {
        version: 3,
        read_only: 0,
        data: std::ptr::with_exposed_provenance_mut(data as usize),
        ndim: shape.len() as i64,
        shape: producer.shape.as_ptr(),
        strides: null(),
        typestr: producer.typestr.as_ptr(),
        descr: null(),
        mask: null(),
        stream: DEVX_CUDA_ARRAY_NO_STREAM,
        release: Some(give_up),
        private_data: Box::into_raw(producer).cast(),
    }
}

/// The data that an array of [`produce`] points to, as long as the array is not released.
pub fn state<'a>(array: &DevxCudaArray) -> &'a mut Producer {
    // SAFETY: made by `produce`, and nobody else uses it meanwhile.
    unsafe { &mut *array.private_data.cast::<Producer>() }
}

/// Gives an array a mask that belongs to it.
pub fn keep_mask(array: &mut DevxCudaArray, mask: DevxCudaArray) {
    let mask = DevxCudaArray { release: None, ..mask };
    array.mask = &raw const **state(array).mask.insert(Box::new(mask));
}

/// A mask like an array itself, but of booleans at `data`.
pub fn mask_of(array: &DevxCudaArray, data: u64) -> DevxCudaArray {
    DevxCudaArray {
        data: std::ptr::with_exposed_provenance_mut(data as usize),
        typestr: c"|b1".as_ptr(),
        private_data: null_mut(),
        ..*array
    }
}
