//! Foreign producers: structs of the standards over memory of the CUDA driver, with release callbacks that do what the
//! test says.

use std::ffi::c_void;
use std::ptr::{NonNull, null, null_mut};

use devexchange_core::abi::arrow_data::ArrowArray;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::{DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{Batch, Schema};
use devexchange_core::{DType, Device, DeviceType, Flags, Owner, Tensor, TensorDesc};

use crate::sim;

type OnRelease = Box<dyn FnOnce() + Send>;

/// CUDA device 0.
pub const CUDA0: Device = Device { kind: DeviceType::CUDA, id: 0 };

struct Dlpack {
    managed: DLManagedTensorVersioned,
    shape: [i64; 1],
    on_release: Option<OnRelease>,
}

/// A DLPack tensor of bytes, whose deleter calls `on_release`.
pub fn dlpack(
    address: u64,
    bytes: u64,
    device: Device,
    on_release: impl FnOnce() + Send + 'static,
) -> NonNull<DLManagedTensorVersioned> {
    unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
        // SAFETY: given to the consumer by `dlpack`.
        let context = unsafe { (*managed).manager_ctx };
        // SAFETY: made by `dlpack`, deleted once: the tests count it.
        let mut made = unsafe { Box::from_raw(context.cast::<Dlpack>()) };
        if let Some(on_release) = made.on_release.take() {
            on_release();
        }
    }
    let managed = DLManagedTensorVersioned {
        version: DLPackVersion { major: 1, minor: 1 },
        manager_ctx: null_mut(),
        deleter: Some(delete),
        flags: 0,
        dl_tensor: DLTensor {
            data: address as *mut c_void,
            device: DLDevice { device_type: device.kind.0, device_id: device.id },
            ndim: 1,
            dtype: DType::UINT8.to_dlpack(),
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        },
    };
    let made =
        Box::into_raw(Box::new(Dlpack { managed, shape: [bytes as i64], on_release: Some(Box::new(on_release)) }));
    // SAFETY: just made.
    let made = unsafe { &mut *made };
    made.managed.dl_tensor.shape = made.shape.as_mut_ptr();
    made.managed.manager_ctx = std::ptr::from_mut(made).cast();
    // The consumer gets the address of the struct within the box; the address of the box stays the context.
    let context = made.managed.manager_ctx.cast::<Dlpack>();
    // SAFETY: the struct is a part of the box.
    NonNull::from(unsafe { &mut (*context).managed })
}

struct Arrow {
    buffers: [*const c_void; 2],
    event: u64,
    on_release: Option<OnRelease>,
}

/// The schema of the arrays that [`arrow`] makes: one column of bytes.
///
/// # Panics
/// Never.
pub fn bytes_schema() -> Schema {
    Schema::new(&[FieldDesc { flags: 0, ..FieldDesc::new(c"bytes", c"C") }]).expect("a valid schema")
}

/// An Arrow array of bytes that can be used after `event` (0: now), and whose release calls `on_release`.
pub fn arrow(
    address: u64,
    bytes: u64,
    device: Device,
    event: u64,
    on_release: impl FnOnce() + Send + 'static,
) -> ArrowDeviceArray {
    unsafe extern "C" fn release(array: *mut ArrowArray) {
        // SAFETY: a consumer passes the struct that it was given, wherever it has moved it.
        let array = unsafe { &mut *array };
        // SAFETY: made by `arrow`; the release is marked below, so this happens once.
        let mut made = unsafe { Box::from_raw(array.private_data.cast::<Arrow>()) };
        array.release = None;
        if let Some(on_release) = made.on_release.take() {
            on_release();
        }
    }
    let buffers = [null(), address as *const c_void];
    let made = Box::into_raw(Box::new(Arrow { buffers, event, on_release: Some(Box::new(on_release)) }));
    // SAFETY: just made.
    let made = unsafe { &mut *made };
    let array = ArrowArray {
        length: bytes as i64,
        null_count: 0,
        offset: 0,
        n_buffers: 2,
        n_children: 0,
        buffers: made.buffers.as_mut_ptr(),
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(release),
        private_data: null_mut(),
    };
    let sync_event = if event == 0 { null_mut() } else { (&raw mut made.event).cast() };
    let private_data = std::ptr::from_mut(made).cast();
    ArrowDeviceArray {
        array: ArrowArray { private_data, ..array },
        device_id: device.id.into(),
        device_type: device.kind.0,
        sync_event,
        reserved: [0; 3],
    }
}

/// Our own tensor of bytes over memory of the test.
///
/// # Panics
/// If the description is refused.
pub fn tensor(address: u64, bytes: u64, device: Device, on_release: impl FnOnce() + Send + 'static) -> Tensor {
    let shape = [bytes as i64];
    let data = address as *mut c_void;
    let desc = TensorDesc {
        data,
        device,
        dtype: DType::UINT8,
        shape: &shape,
        strides: None,
        byte_offset: 0,
        flags: Flags::default(),
    };
    // SAFETY: the tests allocate this many bytes and free them in `on_release`.
    unsafe { Tensor::from_raw_parts(&desc, Owner::on_release(on_release)) }.expect("a valid tensor")
}

/// The same, filled by work that is queued on a stream.
///
/// # Panics
/// If the description is refused.
pub fn tensor_behind(
    stream: u64,
    address: u64,
    bytes: u64,
    device: Device,
    on_release: impl FnOnce() + Send + 'static,
) -> Tensor {
    let mut tensor = tensor(address, bytes, device, on_release);
    // SAFETY: the test queues that work there.
    unsafe { tensor.produced_on(sim::on(stream)) }.expect("not shared yet");
    tensor
}

/// Our own column of bytes over memory of the test.
///
/// # Panics
/// If the description is refused.
pub fn batch(address: u64, bytes: u64, device: Device, on_release: impl FnOnce() + Send + 'static) -> Batch {
    let buffers = [null(), address as *const c_void];
    let node = NodeDesc { length: bytes as i64, null_count: 0, offset: 0, buffers: &buffers };
    // SAFETY: the tests allocate this many bytes and free them in `on_release`.
    unsafe { Batch::from_raw_parts(&bytes_schema(), device, &[node], Owner::on_release(on_release)) }
        .expect("a valid batch")
}

/// The same, filled by work that is queued on a stream.
///
/// # Panics
/// If the description is refused.
pub fn batch_behind(
    stream: u64,
    address: u64,
    bytes: u64,
    device: Device,
    on_release: impl FnOnce() + Send + 'static,
) -> Batch {
    let mut batch = batch(address, bytes, device, on_release);
    // SAFETY: the test queues that work there.
    unsafe { batch.produced_on(sim::on(stream)) }.expect("not shared yet");
    batch
}
