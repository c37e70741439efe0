//! Imports `DLManagedTensorVersioned` and `DLManagedTensor`; copies the tensors, converts them to batches and back, exports
//! them in both structs, imports the exports, and releases everything in an arbitrary order. Each deleter must be called once,
//! an import that fails must change nothing, and a copy must have the elements of its tensor.

#![no_main]

use core::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use arbitrary::{Arbitrary, Result, Unstructured};
use devexchange_core::abi::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use devexchange_core::dlpack::{self, Copying, Managed, Owned, Request};
use devexchange_core::{Batch, DType, Flags, RawStream, Tensor, convert};
use devexchange_fuzz::tensor::Shape;
use devexchange_fuzz::{Releases, balanced, chance, init};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: init(), |input: &[u8]| {
    // An input that is used up is no failure.
    let _ = balanced(|| run(&mut Unstructured::new(input)));
});

/// What the producer keeps until the deleter is called.
struct Private {
    deleted: Arc<AtomicU32>,
    _shape: Shape,
}

/// A struct of DLPack, as the producer makes it.
trait Foreign: Managed + Copy {
    fn new(tensor: DLTensor, version: DLPackVersion, flags: Flags, context: *mut c_void) -> Self;
    fn context(&self) -> *mut c_void;
}

unsafe extern "C" fn delete<M: Foreign>(managed: *mut M) {
    // SAFETY: a deleter is called once, with a struct that `import` below made.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: as above.
    let private = unsafe { Box::from_raw(managed.context().cast::<Private>()) };
    private.deleted.fetch_add(1, SeqCst);
}

impl Foreign for DLManagedTensor {
    fn new(dl_tensor: DLTensor, _: DLPackVersion, _: Flags, manager_ctx: *mut c_void) -> Self {
        Self { dl_tensor, manager_ctx, deleter: Some(delete::<Self>) }
    }

    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }
}

impl Foreign for DLManagedTensorVersioned {
    fn new(dl_tensor: DLTensor, version: DLPackVersion, flags: Flags, manager_ctx: *mut c_void) -> Self {
        Self { version, manager_ctx, deleter: Some(delete::<Self>), flags: flags.0, dl_tensor }
    }

    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut releases = Releases::default();
    let mut held = Vec::new();
    for _ in 0..u.int_in_range(1..=2)? {
        let taken = if chance(u, 1, 3)? {
            import::<DLManagedTensor>(u, &mut releases)?
        } else {
            import::<DLManagedTensorVersioned>(u, &mut releases)?
        };
        held.extend(taken.map(|(tensor, may_be)| (Held::Tensor(tensor), may_be)));
    }
    play(held, u)?;
    releases.require(1);
    Ok(())
}

/// Makes a struct and imports it. Returns the tensor, and whether all of its elements may be read.
fn import<M: Foreign>(u: &mut Unstructured<'_>, releases: &mut Releases) -> Result<Option<(Tensor, bool)>> {
    let dtype = match u.int_in_range(0..=7)? {
        0 => DLDataType { code: u8::arbitrary(u)?, bits: u8::arbitrary(u)?, lanes: u16::arbitrary(u)? },
        1 => DLDataType {
            code: u.int_in_range(0..=18)?,
            bits: *u.choose(&[1, 2, 4, 6, 8])?,
            lanes: u.int_in_range(0..=4)?,
        },
        _ => DLDataType {
            code: u.int_in_range(0..=2)?,
            bits: *u.choose(&[8, 16, 32, 64])?,
            lanes: u.int_in_range(1..=2)?,
        },
    };
    let bits = usize::from(dtype.bits) * usize::from(dtype.lanes);
    let mut shape = Shape::of((bits / 8).max(1), u)?;
    let device = match u.int_in_range(0..=15)? {
        0 => DLDevice { device_type: i32::arbitrary(u)?, device_id: i32::arbitrary(u)? },
        1 => DLDevice { device_type: u.int_in_range(1..=18)?, device_id: 0 },
        _ => DLDevice { device_type: 1, device_id: 0 },
    };
    let flags = Flags(if chance(u, 1, 8)? { u64::arbitrary(u)? } else { u.int_in_range(0..=3)? });
    let version = if chance(u, 1, 16)? {
        DLPackVersion { major: u32::arbitrary(u)?, minor: u32::arbitrary(u)? }
    } else {
        DLPackVersion { major: 1, minor: u.int_in_range(0..=4)? }
    };
    let no_data = chance(u, 1, 24)?;
    let readable = shape.is_within() && bits > 0 && bits.is_multiple_of(8) && !no_data;
    let tensor = DLTensor {
        data: if no_data { std::ptr::null_mut() } else { shape.memory.as_mut_ptr().cast() },
        device,
        ndim: shape.ndim.map_or(shape.extents.len() as i32, |ndim| ndim as i32),
        dtype,
        shape: if chance(u, 1, 48)? { std::ptr::null_mut() } else { shape.extents.as_mut_ptr() },
        strides: shape.strides.as_mut().map_or(std::ptr::null_mut(), |strides| strides.as_mut_ptr()),
        byte_offset: shape.byte_offset,
    };
    let said =
        (shape.extents.clone(), shape.strides.clone(), tensor.data.wrapping_byte_add(shape.byte_offset as usize));
    let deleted = releases.watch();
    let private = Box::into_raw(Box::new(Private { deleted: Arc::clone(&deleted), _shape: shape }));
    let managed = Box::into_raw(Box::new(M::new(tensor, version, flags, private.cast())));
    // SAFETY: the struct was made just now.
    let before = unsafe { bytes_of(managed) };
    let imported = if chance(u, 1, 8)? {
        let stream = *u.choose(&[-1, 0, 1, 2, 77, i64::MIN])?;
        // SAFETY: this target runs without a driver, so nothing uses the stream.
        let stream = unsafe { RawStream::new(stream) };
        // SAFETY: the struct was made just now, and is ours.
        unsafe { dlpack::import_on(managed, Some(stream)) }
    } else {
        // SAFETY: as above.
        unsafe { dlpack::import(managed) }
    };
    Ok(match imported {
        Ok(tensor) => {
            assert_eq!(deleted.load(SeqCst), 0, "deleted while it is used");
            assert_eq!(tensor.shape(), said.0);
            let empty = tensor.layout().elements == 0;
            assert_eq!(tensor.data(), if empty { std::ptr::null_mut() } else { said.2 });
            if let Some(strides) = said.1.filter(|_| !tensor.layout().row_major) {
                // The stride of a dimension of one element is never used, and may differ.
                let stepped = |strides: &[i64]| {
                    let long = strides.iter().zip(&said.0).filter(|(_, extent)| **extent > 1);
                    long.map(|(stride, _)| *stride).collect::<Vec<_>>()
                };
                assert_eq!(stepped(tensor.strides()), stepped(&strides));
            }
            Some((tensor, readable))
        }
        Err(error) => {
            assert!(!error.message().is_empty());
            assert_eq!(deleted.load(SeqCst), 0, "refused, but deleted");
            // SAFETY: the import failed, so the struct is still ours.
            assert_eq!(unsafe { bytes_of(managed) }, before, "refused, but not untouched");
            let managed = NonNull::new(managed).expect("an address");
            // SAFETY: as above; dropping it calls the deleter.
            drop(unsafe { Owned::from_raw(managed) });
            None
        }
    })
}

/// All bytes of a struct of DLPack, which has no padding.
///
/// # Safety
/// `managed` is valid.
unsafe fn bytes_of<M>(managed: *const M) -> Vec<u8> {
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(managed.cast::<u8>(), size_of::<M>()) }.to_vec()
}

enum Held {
    Tensor(Tensor),
    Batch(Batch),
    Legacy(Owned<DLManagedTensor>),
    Versioned(Owned<DLManagedTensorVersioned>),
}

/// The most bytes that are copied. With a stride of 0, a copy can be much larger than the memory.
const MOST: usize = 1 << 16;

/// Takes an arbitrary number of steps, and then releases everything in an arbitrary order.
fn play(mut held: Vec<(Held, bool)>, u: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..u.int_in_range(0..=12)? {
        if held.is_empty() {
            break;
        }
        let place = u.choose_index(held.len())?;
        let (what, may_be) = held.swap_remove(place);
        match what {
            Held::Tensor(tensor) => {
                let small = tensor.layout().bytes <= MOST;
                let more = with_tensor(&tensor, may_be && small, u)?;
                held.extend(more.map(|more| (more, may_be)));
                if chance(u, 3, 4)? {
                    held.push((Held::Tensor(tensor), may_be));
                }
            }
            Held::Batch(batch) => {
                let tensor = match batch.column(0) {
                    Some(column) => convert::tensor(column, Copying::Never),
                    None => convert::tensor(batch.root(), Copying::Never),
                };
                held.extend(tensor.ok().map(|tensor| (Held::Tensor(tensor), may_be)));
            }
            Held::Legacy(owned) => held.extend(owned.import().ok().map(|tensor| (Held::Tensor(tensor), may_be))),
            Held::Versioned(owned) => held.extend(owned.import().ok().map(|tensor| (Held::Tensor(tensor), may_be))),
        }
    }
    while !held.is_empty() {
        let place = u.choose_index(held.len()).unwrap_or(0);
        held.swap_remove(place);
    }
    Ok(())
}

fn with_tensor(tensor: &Tensor, may_be: bool, u: &mut Unstructured<'_>) -> Result<Option<Held>> {
    tensor.check_pointers().expect("nothing to check on the host");
    let copying = if may_be { Copying::IfNeeded } else { Copying::Never };
    let request = Request {
        max_version: DLPackVersion { major: u.int_in_range(0..=2)?, minor: u.int_in_range(0..=9)? },
        // SAFETY: this target runs without a driver, so nothing uses the stream.
        stream: if chance(u, 1, 8)? { unsafe { RawStream::new(i64::arbitrary(u)?) } } else { RawStream::NO_SYNC },
        copy: if may_be { *u.choose(&[Copying::Never, Copying::IfNeeded, Copying::Always])? } else { Copying::Never },
    };
    Ok(match u.int_in_range(0..=8)? {
        0 => Some(Held::Tensor(tensor.clone())),
        1 => dlpack::export(tensor.clone(), &request).ok().map(Held::Legacy),
        2 => dlpack::export(tensor.clone(), &request).ok().map(Held::Versioned),
        3 if may_be => {
            let copy = tensor.copy().expect("a copy of host memory");
            assert_eq!((copy.shape(), copy.dtype()), (tensor.shape(), tensor.dtype()));
            assert!(copy.layout().row_major && copy.flags().has(Flags::IS_COPIED));
            assert_eq!(elements(&copy), elements(tensor), "other elements");
            Some(Held::Tensor(copy))
        }
        4 if may_be => {
            if let Ok(values) = tensor.as_slice::<f32>() {
                std::hint::black_box(values.iter().sum::<f32>());
            }
            if let Ok(values) = tensor.as_slice::<u8>() {
                std::hint::black_box(values.iter().fold(0_u8, |sum, value| sum.wrapping_add(*value)));
            }
            None
        }
        5 => convert::column(tensor, "x", copying).ok().map(Held::Batch),
        6 => convert::batch(tensor, &["a", "b", "c"][..u.int_in_range(0..=3)?], copying).ok().map(Held::Batch),
        7 => convert::fixed_shape_column(tensor, "x", copying).ok().map(Held::Batch),
        _ => {
            if let Ok(described) = dlpack::borrow(tensor, request.stream) {
                assert_eq!(DType::from_dlpack(described.dtype).ok(), Some(tensor.dtype()));
                assert!(described.byte_offset == 0 && usize::try_from(described.ndim) == Ok(tensor.shape().len()));
            }
            drop((convert::plan_column(tensor), convert::plan_batch(tensor), convert::plan_fixed_shape_column(tensor)));
            None
        }
    })
}

/// The bytes of all elements, the last index changing first. All of them must be readable.
fn elements(tensor: &Tensor) -> Vec<u8> {
    let width = tensor.dtype().element_bytes().expect("whole bytes");
    let (shape, strides) = (tensor.shape(), tensor.strides());
    let mut all = Vec::new();
    for number in 0..tensor.layout().elements {
        let (mut rest, mut at) = (number as i64, 0);
        for (extent, stride) in shape.iter().zip(strides).rev() {
            at += rest % extent * stride;
            rest /= extent;
        }
        let first = tensor.data().cast::<u8>().wrapping_offset(at as isize * width as isize);
        // SAFETY: all elements are readable.
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(first, width) });
    }
    all
}
