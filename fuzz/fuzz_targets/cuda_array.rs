//! Imports structs of the CUDA Array Interface with arbitrary versions, type strings, shapes, masks and streams, over memory of
//! the simulated driver; exports them, imports the exports, and releases everything in an arbitrary order. Each release must be
//! called once, and an import that fails must change nothing.

#![no_main]

use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use devexchange_core::abi::cuda_array::{DEVX_CUDA_ARRAY_NO_STREAM, DevxCudaArray, DevxCudaArrayRequest};
use devexchange_core::cuda_array::{self, Imported, Request};
use devexchange_core::runtime::releases_waiting;
use devexchange_core::{DType, Device, DeviceType, Stream, Tensor, ledger};
use devexchange_fuzz::tensor::Shape;
use devexchange_fuzz::{Releases, chance, init};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: init(), |input: &[u8]| {
    // An input that is used up is no failure.
    let _ = run(&mut Unstructured::new(input));
    settle();
});

const BYTES: usize = 4096;

/// Memory of device 0, which is never released.
fn memory() -> &'static Tensor {
    static MEMORY: OnceLock<Tensor> = OnceLock::new();
    MEMORY.get_or_init(|| {
        let device = Device { kind: DeviceType::CUDA, id: 0 };
        Tensor::allocate(device, DType::UINT8, &[BYTES as i64], None)
            .expect("the simulated driver, see scripts/fuzz.sh")
    })
}

/// Waits for releases that wait for streams, and checks that only [`memory`] is outstanding.
fn settle() {
    static OUTSTANDING: OnceLock<i64> = OnceLock::new();
    memory();
    let outstanding = *OUTSTANDING.get_or_init(ledger::outstanding);
    // The simulated driver does queued work only when it is asked, and then only some of it. Without this call, the thread that
    // releases would sleep many times.
    if releases_waiting() > 0 {
        Stream::legacy(0).synchronize_device().expect("the simulated driver");
    }
    // In most cases there is nothing to wait for, or only for a short time, so the first attempts do not sleep.
    for attempt in 0..10_000 {
        if releases_waiting() == 0 && ledger::outstanding() == outstanding {
            return;
        }
        if attempt < 5000 { std::thread::yield_now() } else { std::thread::sleep(Duration::from_millis(1)) }
    }
    panic!("something was not released: {} waiting, {:?}", releases_waiting(), ledger::read());
}

/// What the producer keeps until the release is called.
struct Private {
    released: Option<Arc<AtomicU32>>,
    _shape: Shape,
    _texts: Vec<CString>,
    mask: Option<Box<DevxCudaArray>>,
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Some(mask) = self.mask.take() {
            // SAFETY: the mask was made by `produce`, and is freed only here, with its array.
            drop(unsafe { Box::from_raw(mask.private_data.cast::<Self>()) });
        }
    }
}

unsafe extern "C" fn release(array: *mut DevxCudaArray) {
    // SAFETY: a release callback is called once, with a struct that `produce` made.
    let array = unsafe { &mut *array };
    // SAFETY: as above.
    let private = unsafe { Box::from_raw(array.private_data.cast::<Private>()) };
    array.release = None;
    if let Some(released) = &private.released {
        released.fetch_add(1, SeqCst);
    }
}

const TYPES: &[&str] =
    &["<f4", "<f8", "|u1", "<i2", "|b1", "<c8", "=i4", ">f4", "<f2", "|V8", "<U3", "<M8[s]", "f4", "<x4"];

/// Makes an array or, without `released`, the mask of an array, which has no release of its own.
fn produce(u: &mut Unstructured<'_>, released: Option<Arc<AtomicU32>>) -> Result<DevxCudaArray> {
    let is_mask = released.is_none();
    let mut typestr = (*u.choose(if is_mask { &["|b1", "|u1", "<f4"] } else { TYPES })?).to_owned();
    if chance(u, 1, 24)? {
        typestr = String::arbitrary(u)?;
    }
    let typestr = CString::new(typestr).unwrap_or_default();
    let width = cuda_array::dtype_of(&typestr.to_string_lossy()).ok().and_then(DType::element_bytes).unwrap_or(1);
    let mut shape = Shape::of(width, u)?;
    if let Some(strides) = &mut shape.strides {
        strides.iter_mut().for_each(|stride| *stride = stride.wrapping_mul(width as i64));
    }
    let offset = usize::try_from(shape.byte_offset).unwrap_or(usize::MAX).min(BYTES);
    let data = match u.int_in_range(0..=31)? {
        0 => null_mut(),
        // Host memory that the device cannot access.
        1 => shape.memory.as_mut_ptr().cast(),
        _ => memory().data().wrapping_byte_add(offset),
    };
    let mut array = DevxCudaArray {
        version: if chance(u, 1, 24)? { i32::arbitrary(u)? } else { u.int_in_range(0..=3)? },
        read_only: u.int_in_range(0..=1)?,
        data,
        ndim: shape.ndim.unwrap_or(shape.extents.len() as i64),
        shape: if chance(u, 1, 48)? { null() } else { shape.extents.as_ptr() },
        strides: shape.strides.as_ref().map_or(null(), |strides| strides.as_ptr()),
        typestr: if chance(u, 1, 48)? { null() } else { typestr.as_ptr() },
        descr: null(),
        mask: null(),
        stream: *u.choose(&[DEVX_CUDA_ARRAY_NO_STREAM, 1, 2, 0])?,
        release: (!is_mask).then_some(release),
        private_data: null_mut(),
    };
    let mask = if chance(u, 1, if is_mask { 48 } else { 4 })? { Some(Box::new(produce(u, None)?)) } else { None };
    array.mask = mask.as_deref().map_or(null(), std::ptr::from_ref);
    array.private_data =
        Box::into_raw(Box::new(Private { released, _shape: shape, _texts: vec![typestr], mask })).cast();
    Ok(array)
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut releases = Releases::default();
    let mut array = produce(u, Some(releases.watch()))?;
    let request = request(u)?;
    // SAFETY: the struct has no padding, so every byte is initialised.
    let bytes = |array: &DevxCudaArray| unsafe {
        std::mem::transmute::<DevxCudaArray, [u8; size_of::<DevxCudaArray>()]>(*array)
    };
    let before = bytes(&array);
    let with_mask = chance(u, 3, 4)?;
    // SAFETY: the struct is valid and ours, and names no stream by a handle.
    match unsafe { cuda_array::import(&raw mut array, &request, with_mask) } {
        Ok(Imported { tensor, mask }) => {
            assert!(array.release.is_none(), "taken, but still the producer's");
            assert!(mask.as_ref().is_none_or(|mask| mask.shape() == tensor.shape()));
            play([Some(tensor), mask].into_iter().flatten().collect(), u)?;
        }
        Err(error) => {
            assert!(!error.message().is_empty());
            assert_eq!(bytes(&array), before, "refused, but not untouched: {error}");
            // SAFETY: the import failed, so the struct is still ours.
            unsafe { cuda_array::release(&raw mut array) };
        }
    }
    settle();
    releases.require(1);
    Ok(())
}

fn request(u: &mut Unstructured<'_>) -> Result<Request> {
    let raw = DevxCudaArrayRequest {
        max_version: u.int_in_range(-1..=4)?,
        no_stream: u.int_in_range(0..=3)?,
        stream: *u.choose(&[DEVX_CUDA_ARRAY_NO_STREAM, 1, 2, 0])?,
    };
    // SAFETY: the stream is not a handle.
    Ok(unsafe { Request::from_raw(&raw) }.unwrap_or_default())
}

/// Exports tensors and imports the exports, and releases everything in an arbitrary order.
fn play(mut held: Vec<Tensor>, u: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..u.int_in_range(0..=5)? {
        if held.is_empty() {
            break;
        }
        let place = u.choose_index(held.len())?;
        let layout = held[place].layout();
        let (low, end) = (layout.lowest, layout.end);
        let first = held[place].data().addr().wrapping_sub(memory().data().addr()) as isize;
        assert!(layout.elements == 0 || (first + low >= 0 && first + end <= BYTES as isize), "beyond the memory");
        if let Ok(owned) = cuda_array::export(held[place].clone(), &request(u)?) {
            let mut array = owned.into_raw();
            // SAFETY: the struct was exported just now, and is ours.
            let again = unsafe { cuda_array::import(&raw mut array, &request(u)?, false) };
            match again {
                Ok(again) => held.push(again.tensor),
                // SAFETY: the import failed, so the struct is still ours.
                Err(_) => unsafe { cuda_array::release(&raw mut array) },
            }
        }
        if chance(u, 1, 3)? {
            held.swap_remove(place);
        }
    }
    while !held.is_empty() {
        let place = u.choose_index(held.len()).unwrap_or(0);
        held.swap_remove(place);
    }
    Ok(())
}
