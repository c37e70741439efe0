//! Tensors through both structs of DLPack: who owns what, when, and what survives.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use devexchange_core::abi::dlpack::*;
use devexchange_core::abi::types::*;
use devexchange_core::dlpack::{self, Copying, Managed, Owned, Request};
use devexchange_core::{
    Batch, DType, Device, DeviceType, Error, Flags, Owner, RawStream, Refused, Tensor, TensorDesc, convert,
};

/// Counts how often its owner was released.
fn counted() -> (Owner, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let release = move || {
        seen.fetch_add(1, SeqCst);
    };
    (Owner::on_release(release), count)
}

fn desc<'a>(data: &mut [f32], shape: &'a [i64]) -> TensorDesc<'a> {
    TensorDesc {
        data: data.as_mut_ptr().cast(),
        device: Device::CPU,
        dtype: DType::FLOAT32,
        shape,
        strides: None,
        byte_offset: 0,
        flags: Flags::default(),
    }
}

fn round_trip<M: Managed>() {
    let mut data = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let address = data.as_mut_ptr();
    let (owner, released) = counted();
    // SAFETY: the array outlives the tensor.
    let tensor = unsafe { Tensor::from_raw_parts(&desc(&mut data, &[2, 3]), owner) }.unwrap();
    let exported: Owned<M> = dlpack::export(tensor.clone(), &Request::default()).unwrap();
    drop(tensor);
    let imported = exported.import().unwrap();
    assert_eq!(imported.data().cast(), address);
    assert_eq!((imported.shape(), imported.strides()), (&[2, 3][..], &[3, 1][..]));
    assert_eq!(imported.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let again: Owned<M> = dlpack::export(imported, &Request::default()).unwrap();
    assert_eq!(released.load(SeqCst), 0);
    drop(again);
    assert_eq!(released.load(SeqCst), 1);
}

#[test]
fn a_round_trip_releases_once() {
    round_trip::<DLManagedTensorVersioned>();
    round_trip::<DLManagedTensor>();
}

/// The first consumer's struct is in the tensor's own block, and after its release the next new one; the others have
/// separate blocks.
#[test]
fn several_consumers_have_a_struct_each() {
    let mut data = [1.0_f32, 2.0];
    let (owner, released) = counted();
    // SAFETY: the array outlives the tensor.
    let tensor = unsafe { Tensor::from_raw_parts(&desc(&mut data, &[2]), owner) }.unwrap();
    let old = Request { max_version: DLPackVersion { major: 1, minor: 0 }, ..Request::default() };
    let new = Request::default();
    let share = |request| dlpack::share::<DLManagedTensorVersioned>(&tensor, request).unwrap().into_raw();
    let give_back = |managed: *mut DLManagedTensorVersioned| {
        // SAFETY: exported below, and given back once.
        drop(unsafe { Owned::from_raw(NonNull::new(managed).unwrap()) });
    };
    let (first, second) = (share(&new), share(&old));
    assert_ne!(first, second);
    // SAFETY: held, and only this consumer uses it.
    let one = unsafe { &mut *first };
    // SAFETY: held.
    let two = unsafe { &*second };
    assert_eq!((one.version.minor, two.version.minor), (3, 0));
    assert_eq!(one.deleter.map(|call| call as usize), two.deleter.map(|call| call as usize));
    // A consumer that changes its struct does not change any other consumer's.
    (one.dl_tensor.ndim, one.dl_tensor.data, one.flags) = (0, std::ptr::null_mut(), 7);
    assert_eq!((two.dl_tensor.data.cast(), two.dl_tensor.ndim, two.flags), (data.as_mut_ptr(), 1, 0));
    assert_eq!(tensor.data().cast(), data.as_mut_ptr());
    give_back(first);
    let third = share(&old);
    assert_eq!(third, first);
    // SAFETY: held.
    let three = unsafe { &*third };
    assert_eq!((three.version.minor, three.dl_tensor.ndim, three.flags), (0, 1, 0));
    assert_eq!(three.dl_tensor.data.cast(), data.as_mut_ptr());
    give_back(second);
    drop(tensor);
    assert_eq!(released.load(SeqCst), 0);
    give_back(third);
    assert_eq!(released.load(SeqCst), 1);
}

#[test]
fn flags_survive_and_the_legacy_struct_refuses_what_it_cannot_say() {
    let mut data = [0.0_f32; 2];
    let flags = Flags::READ_ONLY.with(Flags(1 << 40));
    let described = TensorDesc { flags, ..desc(&mut data, &[2]) };
    // SAFETY: the array outlives the tensor.
    let tensor = unsafe { Tensor::from_raw_parts(&described, Owner::none()) }.unwrap();
    let exported: Owned<DLManagedTensorVersioned> = dlpack::export(tensor.clone(), &Request::default()).unwrap();
    let imported = exported.import().unwrap();
    assert_eq!(imported.flags(), flags);

    let refused = dlpack::export::<DLManagedTensor>(tensor, &Request::default()).unwrap_err();
    assert_eq!(refused.error.status(), DEVX_READ_ONLY);
    let allowed = Request { copy: Copying::IfNeeded, ..Request::default() };
    let copy: Owned<DLManagedTensor> = dlpack::export(refused.returned, &allowed).unwrap();
    let copy = copy.import().unwrap();
    assert_ne!(copy.data(), imported.data());
}

/// Most functions of C take what they are given only if they succeed.
#[test]
fn what_a_consumer_refuses_is_still_owned() {
    /// Takes numbers of so many bits.
    fn consumer(given: *mut DLManagedTensorVersioned, bits: u8) -> Option<Tensor> {
        // SAFETY: valid, and only looked at.
        let dtype = unsafe { (*given).dl_tensor.dtype };
        // SAFETY: the caller gives the tensor up if it is taken.
        (dtype.bits == bits).then(|| unsafe { dlpack::import(given) }.unwrap())
    }
    let (owner, released) = counted();
    let mut data = [1.0_f32, 2.0];
    // SAFETY: the data lives longer than the tensor.
    let tensor = unsafe { Tensor::from_raw_parts(&desc(&mut data, &[2]), owner) }.unwrap();
    let refused: Owned<DLManagedTensorVersioned> = dlpack::share(&tensor, &Request::default()).unwrap();
    assert!(consumer(refused.as_ptr(), 64).is_none());
    drop(refused);
    let taken: Owned<DLManagedTensorVersioned> = dlpack::export(tensor, &Request::default()).unwrap();
    let seen = consumer(taken.as_ptr(), 32).unwrap();
    taken.into_raw();
    assert_eq!((seen.as_slice::<f32>(), released.load(SeqCst)), (Ok(&[1.0, 2.0][..]), 0));
    drop(seen);
    assert_eq!(released.load(SeqCst), 1);
}

#[test]
fn what_a_number_says_of_copies() {
    assert_eq!(Copying::default(), Copying::Never);
    let said =
        [DEVX_COPY_NEVER, DEVX_COPY_IF_NEEDED, DEVX_COPY_ALWAYS].map(|number| Copying::from_raw(number).unwrap());
    assert_eq!(said, [Copying::Never, Copying::IfNeeded, Copying::Always]);
    for number in [-1, 3] {
        let refused = Copying::from_raw(number).unwrap_err();
        assert_eq!(refused.status(), DEVX_INVALID_ARGUMENT);
        assert!(refused.message().starts_with(&format!("copy is {number}: ")), "{refused}");
    }
}

/// A consumer that is told that it has a copy may write it: "solely owned throughout its lifetime by the consumer"
/// (DLPack 1.3, `DLPACK_FLAG_BITMASK_IS_COPIED`).
#[test]
fn only_one_consumer_is_told_that_it_has_a_copy() {
    let flags_of = |owned: Owned<DLManagedTensorVersioned>| owned.import().unwrap().flags();
    let copy = || {
        let copy = Tensor::from_vec(vec![1_i64, 2], &[2]).unwrap().copy().unwrap();
        assert_eq!(copy.flags(), Flags::IS_COPIED);
        copy
    };
    let request = Request::default();
    // A consumer that gets all of it is told, even when it gets it from another consumer.
    let moved: Owned<DLManagedTensorVersioned> = dlpack::export(copy(), &request).unwrap();
    let moved = moved.import().unwrap();
    assert_eq!(moved.flags(), Flags::IS_COPIED);
    assert_eq!(flags_of(dlpack::export(moved, &request).unwrap()), Flags::IS_COPIED);
    // A consumer that shares it with the owner, or with another consumer, is not told.
    let shared = copy();
    assert_eq!(flags_of(dlpack::share(&shared, &request).unwrap()), Flags::default());
    assert_eq!(flags_of(dlpack::export(shared.clone(), &request).unwrap()), Flags::default());
    let held: Owned<DLManagedTensorVersioned> = dlpack::share(&shared, &request).unwrap();
    let last: Owned<DLManagedTensorVersioned> = dlpack::export(shared, &request).unwrap();
    assert_eq!((flags_of(held), flags_of(last)), (Flags::default(), Flags::default()));
    // Nor is one who gets a matrix that was copied out of columns, if others hold parts of it.
    let gathered = || {
        let column =
            |n: i64| convert::column(&Tensor::from_vec(vec![n, n], &[2]).unwrap(), "", Copying::Never).unwrap();
        let columns = (column(1), column(2));
        let table = Batch::of_columns(&[("a", &columns.0), ("b", &columns.1)], None).unwrap();
        convert::matrix(&table, Copying::Always, None).unwrap()
    };
    let matrix = gathered();
    let part = matrix.slice(0, 0, 1).unwrap();
    assert_eq!(
        (flags_of(dlpack::export(matrix, &request).unwrap()), part.flags()),
        (Flags::default(), Flags::default())
    );
    let matrix = gathered();
    let rows = convert::batch(&matrix, &[], Copying::Never).unwrap();
    assert_eq!((flags_of(dlpack::export(matrix, &request).unwrap()), rows.length()), (Flags::default(), 2));
    assert_eq!(flags_of(dlpack::export(gathered(), &request).unwrap()), Flags::IS_COPIED);
    // A copy for this one consumer, of a tensor that stays with its owner.
    let shared = copy();
    let always = Request { copy: Copying::Always, ..request };
    assert_eq!(flags_of(dlpack::share(&shared, &always).unwrap()), Flags::IS_COPIED);
}

#[test]
fn a_borrowed_description_owns_nothing_and_refuses_what_it_cannot_say() {
    let tensor = Tensor::from_vec(vec![1_i64, 2], &[2]).unwrap();
    let lent = dlpack::borrow(&tensor, RawStream::NO_SYNC).unwrap();
    assert_eq!((lent.data, lent.ndim), (tensor.data(), 1));
    assert_eq!(dlpack::borrow(&tensor, handle(7)).unwrap_err().status(), DEVX_INVALID_STREAM);

    let mut data = [0.0_f32; 2];
    let int4 = DType::from_dlpack(DLDataType { code: kDLInt, bits: 4, lanes: 1 }).unwrap();
    for (flags, dtype, status) in
        [(Flags::READ_ONLY, DType::FLOAT32, DEVX_READ_ONLY), (Flags::SUBBYTE_PADDED, int4, DEVX_UNSUPPORTED)]
    {
        let described = TensorDesc { flags, dtype, ..desc(&mut data, &[2]) };
        // SAFETY: the array outlives the tensor.
        let tensor = unsafe { Tensor::from_raw_parts(&described, Owner::none()) }.unwrap();
        let refused = dlpack::borrow(&tensor, RawStream::NO_SYNC).unwrap_err();
        assert_eq!(refused.status(), status);
        // By the names of the constants.
        let name = if flags == Flags::READ_ONLY { "READ_ONLY" } else { "SUBBYTE_PADDED" };
        assert!(refused.message().starts_with(&format!("flags has {name}: ")), "{refused}");
    }
}

#[test]
fn an_export_copies_host_memory_only_and_says_so() {
    let mut data = [0.0_f32; 2];
    let on_device = TensorDesc { device: Device { kind: DeviceType::CUDA, id: 0 }, ..desc(&mut data, &[2]) };
    // SAFETY: nothing is done with the memory.
    let tensor = unsafe { Tensor::from_raw_parts(&on_device, Owner::none()) }.unwrap();
    let always = Request { copy: Copying::Always, ..Request::default() };
    let error = dlpack::share::<DLManagedTensorVersioned>(&tensor, &always).unwrap_err();
    assert_eq!(error.status(), DEVX_DEVICE);
    let says = "device is cuda:0, not host memory: an export copies nothing else; make a copy first (copy_to)";
    assert_eq!(error.message(), says);
}

#[test]
fn versions_are_negotiated() {
    let tensor = Tensor::from_vec(vec![1_i64, 2], &[2]).unwrap();
    for (asked, written) in [((1, 0), (1, 0)), ((1, 1), (1, 1)), ((1, 9), (1, 3)), ((2, 0), (1, 3))] {
        let request = Request { max_version: DLPackVersion { major: asked.0, minor: asked.1 }, ..Request::default() };
        let exported: Owned<DLManagedTensorVersioned> = dlpack::export(tensor.clone(), &request).unwrap();
        let exported = NonNull::new(exported.into_raw()).unwrap();
        // SAFETY: exported just now.
        let version = unsafe { exported.as_ref() }.version;
        assert_eq!((version.major, version.minor), written);
        // SAFETY: owned here, and valid.
        drop(unsafe { Owned::from_raw(exported) });
    }
    let old = Request { max_version: DLPackVersion { major: 0, minor: 8 }, ..Request::default() };
    let refused = dlpack::export::<DLManagedTensorVersioned>(tensor, &old).unwrap_err();
    assert_eq!(refused.error.status(), DEVX_VERSION);
}

/// `DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED` exists since 1.1: a reader of 1.0 would take such elements for packed
/// ones.
#[test]
fn a_reader_of_1_0_is_not_given_padded_elements() {
    let mut data = [1_u8, 2, 3];
    let int4 = DType::from_dlpack(DLDataType { code: kDLInt, bits: 4, lanes: 1 }).unwrap();
    let described = TensorDesc {
        data: data.as_mut_ptr().cast(),
        device: Device::CPU,
        dtype: int4,
        shape: &[3],
        strides: None,
        byte_offset: 0,
        flags: Flags::SUBBYTE_PADDED,
    };
    // SAFETY: the array outlives the tensor.
    let tensor = unsafe { Tensor::from_raw_parts(&described, Owner::none()) }.unwrap();
    let asked = |minor| Request { max_version: DLPackVersion { major: 1, minor }, ..Request::default() };
    let refused = dlpack::share::<DLManagedTensorVersioned>(&tensor, &asked(0)).unwrap_err();
    assert_eq!(refused.status(), DEVX_UNSUPPORTED);
    assert!(refused.message().contains("max_version is 1.0"), "{refused}");
    let refused = dlpack::export::<DLManagedTensorVersioned>(tensor, &asked(0)).unwrap_err();
    let refused = dlpack::export::<DLManagedTensor>(refused.returned, &asked(0)).unwrap_err();
    assert_eq!(refused.error.status(), DEVX_UNSUPPORTED);
    let given: Owned<DLManagedTensorVersioned> = dlpack::export(refused.returned, &asked(1)).unwrap();
    assert_eq!(given.import().unwrap().flags(), Flags::SUBBYTE_PADDED);
    // For elements of whole bytes the flag means nothing.
    let pairs = DType::from_dlpack(DLDataType { lanes: 2, ..int4.to_dlpack() }).unwrap();
    for dtype in [DType::INT8, pairs] {
        let described = TensorDesc { dtype, ..described };
        // SAFETY: as above.
        let whole = unsafe { Tensor::from_raw_parts(&described, Owner::none()) }.unwrap();
        let given: Owned<DLManagedTensorVersioned> = dlpack::export(whole, &asked(0)).unwrap();
        let whole = given.import().unwrap();
        assert_eq!(whole.flags(), Flags::SUBBYTE_PADDED);
        assert!(dlpack::borrow(&whole, RawStream::NO_SYNC).is_ok());
        let given: Owned<DLManagedTensor> = dlpack::export(whole, &asked(0)).unwrap();
        assert_eq!(given.import().unwrap().layout().bytes, 3);
    }
}

/// The type codes after `kDLBool` exist since 1.1, but no reader takes one of them for another type, and PyTorch, which
/// knows them, asks for 1.0.
#[test]
fn a_reader_of_1_0_is_given_elements_whose_code_is_of_1_1() {
    let mut data = [1_u8, 2, 3];
    let dtype = DType::from_dlpack(DLDataType { code: kDLFloat8_e4m3fn, bits: 8, lanes: 1 }).unwrap();
    let (data, shape) = (data.as_mut_ptr().cast(), &[3_i64]);
    let flags = Flags::default();
    let described = TensorDesc { data, device: Device::CPU, dtype, shape, strides: None, byte_offset: 0, flags };
    // SAFETY: the array outlives the tensor.
    let tensor = unsafe { Tensor::from_raw_parts(&described, Owner::none()) }.unwrap();
    let request = Request { max_version: DLPackVersion { major: 1, minor: 0 }, ..Request::default() };
    let given: Owned<DLManagedTensorVersioned> = dlpack::export(tensor, &request).unwrap();
    assert_eq!(given.import().unwrap().dtype(), dtype);
}

/// What a foreign producer keeps for its tensor: also the number of calls of the deleter.
struct Foreign {
    deleted: AtomicUsize,
    shape: [i64; 2],
    data: [f32; 4],
}

unsafe extern "C" fn delete_foreign(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: a deleter is called with a valid tensor.
    let foreign = unsafe { (*managed).manager_ctx }.cast::<Foreign>();
    // SAFETY: the test's `Foreign`, which outlives the tensor.
    unsafe { &*foreign }.deleted.fetch_add(1, SeqCst);
}

/// Calls `test` with a valid tensor of 2 × 2, which `test` may spoil.
fn with_foreign(test: impl FnOnce(&Foreign, *mut DLManagedTensorVersioned)) {
    let foreign = Foreign { deleted: AtomicUsize::new(0), shape: [2, 2], data: [1.0, 2.0, 3.0, 4.0] };
    let dl_tensor = DLTensor {
        data: (&raw const foreign.data).cast_mut().cast(),
        device: DLDevice { device_type: kDLCPU, device_id: 0 },
        ndim: 2,
        dtype: DType::FLOAT32.to_dlpack(),
        shape: foreign.shape.as_ptr().cast_mut(),
        strides: null_mut(),
        byte_offset: 0,
    };
    let mut managed = DLManagedTensorVersioned {
        version: DLPackVersion { major: 1, minor: 1 },
        manager_ctx: (&raw const foreign).cast_mut().cast(),
        deleter: Some(delete_foreign),
        flags: 0,
        dl_tensor,
    };
    test(&foreign, &raw mut managed);
}

#[test]
fn a_foreign_tensor_without_strides_is_row_major() {
    with_foreign(|foreign, address| {
        // SAFETY: valid, and owned by the test.
        let tensor = unsafe { dlpack::import(address) }.unwrap();
        assert_eq!(tensor.strides(), [2, 1]);
        let other = tensor.clone();
        drop(tensor);
        assert_eq!(foreign.deleted.load(SeqCst), 0);
        std::thread::spawn(move || drop(other)).join().unwrap();
        assert_eq!(foreign.deleted.load(SeqCst), 1);
    });
}

/// An import first recognises plain tensors; the result must equal that of the careful reading of the same description.
#[test]
fn what_is_plain_is_read_as_with_care() {
    let device = |id| DLDevice { device_type: kDLCPU, device_id: id };
    // Row-major, column-major, and neither.
    let strides = [[2_i64, 1], [1, 1], [3, 1], [1, 2], [1, 3], [1, 7], [2, 3], [-3, 1]];
    let mut cases = 0;
    for shape in [[1_i64, 2], [2, 1], [1, 1], [2, 3], [3, 2]] {
        for given in strides.iter().map(|two| two.as_ptr().cast_mut()).chain([null_mut()]) {
            for (byte_offset, id, flags) in [(0, 0, 0), (4, -1, DLPACK_FLAG_BITMASK_READ_ONLY), (8, 0, 0)] {
                with_foreign(|foreign, address| {
                    // SAFETY: valid for the test, and nobody else uses it yet.
                    let managed = unsafe { &mut *address };
                    managed.flags = flags;
                    let tensor = &mut managed.dl_tensor;
                    (tensor.shape, tensor.strides) = (shape.as_ptr().cast_mut(), given);
                    (tensor.byte_offset, tensor.device) = (byte_offset, device(id));
                    // SAFETY: valid for the test.
                    let desc = unsafe { dlpack::describe(tensor, Flags(flags)) }.unwrap();
                    // SAFETY: as above.
                    let careful = unsafe { Tensor::from_raw_parts(&desc, Owner::none()) }.unwrap();
                    // SAFETY: valid, and owned by the test.
                    let tensor = unsafe { dlpack::import(address) }.unwrap();
                    let data = (&raw const foreign.data).wrapping_byte_add(byte_offset as usize);
                    assert_eq!(tensor.data(), data.cast_mut().cast());
                    assert_eq!(tensor.data(), careful.data());
                    assert_eq!((tensor.shape(), tensor.layout()), (careful.shape(), careful.layout()));
                    let strides = |tensor: &Tensor| {
                        let both = tensor.shape().iter().zip(tensor.strides());
                        both.filter(|(extent, _)| **extent > 1).map(|(_, stride)| *stride).collect::<Vec<_>>()
                    };
                    assert_eq!(strides(&tensor), strides(&careful));
                    assert_eq!((tensor.device(), tensor.dtype()), (careful.device(), careful.dtype()));
                    assert_eq!((tensor.flags(), tensor.as_dltensor().byte_offset), (careful.flags(), 0));
                    cases += 1;
                });
            }
        }
    }
    assert_eq!(cases, 135);
}

#[test]
fn a_null_deleter_is_legal() {
    with_foreign(|_, address| {
        // SAFETY: valid for the test.
        unsafe { (*address).deleter = None };
        // SAFETY: valid, and owned by the test.
        drop(unsafe { dlpack::import(address) }.unwrap());
    });
}

#[test]
fn a_refused_import_takes_nothing() {
    type Spoil = fn(&mut DLManagedTensorVersioned);
    static NEGATIVE: [i64; 2] = [2, -2];
    static BACKWARDS: [i64; 2] = [-3, -1];
    let cases: [(DevxStatus, &str, Spoil); 15] = [
        (DEVX_VERSION, "version is 2.0", |m| {
            m.version = DLPackVersion { major: 2, minor: 0 };
            // What follows the version then has another layout, so it must not be read.
            m.dl_tensor.ndim = i32::MAX;
            m.dl_tensor.shape = std::ptr::dangling_mut();
        }),
        (DEVX_INVALID_SHAPE, "ndim is -1", |m| m.dl_tensor.ndim = -1),
        (DEVX_INVALID_SHAPE, "ndim is 65", |m| m.dl_tensor.ndim = 65),
        (DEVX_INVALID_SHAPE, "shape is NULL with ndim 2", |m| m.dl_tensor.shape = null_mut()),
        (DEVX_INVALID_SHAPE, "shape[1] is -2", |m| m.dl_tensor.shape = NEGATIVE.as_ptr().cast_mut()),
        (DEVX_NULL_ARGUMENT, "data is NULL", |m| m.dl_tensor.data = null_mut()),
        (DEVX_INVALID_SHAPE, "byte_offset is 18446744073709551615", |m| m.dl_tensor.byte_offset = u64::MAX),
        (DEVX_INVALID_SHAPE, "leaves the address space", |m| {
            m.dl_tensor.data = std::ptr::without_provenance_mut(usize::MAX - 3);
        }),
        (DEVX_INVALID_SHAPE, "leaves the address space", |m| {
            m.dl_tensor.data = std::ptr::without_provenance_mut(4);
            m.dl_tensor.strides = BACKWARDS.as_ptr().cast_mut();
        }),
        (DEVX_INVALID_ARGUMENT, "not aligned to 4 bytes", |m| m.dl_tensor.byte_offset = 2),
        (DEVX_INVALID_DTYPE, "dtype.code is 200", |m| m.dl_tensor.dtype.code = 200),
        (DEVX_INVALID_DTYPE, "33: the types of code 2 are [float16, float32, ", |m| m.dl_tensor.dtype.bits = 33),
        (DEVX_INVALID_DTYPE, "dtype.lanes is 0", |m| m.dl_tensor.dtype.lanes = 0),
        (DEVX_DEVICE, "device_type is 99", |m| m.dl_tensor.device.device_type = 99),
        (DEVX_DEVICE, "device_id is 7", |m| m.dl_tensor.device.device_id = 7),
    ];
    for (status, text, spoil) in cases {
        with_foreign(|foreign, address| {
            // SAFETY: valid for the test, and nobody else uses it yet.
            spoil(unsafe { &mut *address });
            // SAFETY: readable as far as the version requires, and owned by the test.
            let error = unsafe { dlpack::import(address) }.unwrap_err();
            assert_eq!(error.status(), status, "{error}");
            assert!(error.message().contains(text), "{error}");
            assert_eq!(foreign.deleted.load(SeqCst), 0);
        });
    }
    // SAFETY: NULL is refused.
    let error = unsafe { dlpack::import(null_mut::<DLManagedTensor>()) }.unwrap_err();
    assert_eq!((error.status(), error.message()), (DEVX_NULL_ARGUMENT, "tensor is NULL"));
}

#[test]
fn a_refused_owner_comes_back_unreleased() {
    let mut data = [0.0_f32; 2];
    let (owner, released) = counted();
    // SAFETY: refused before anything is read.
    let refused = unsafe { Tensor::from_raw_parts(&desc(&mut data, &[-2]), owner) }.unwrap_err();
    assert_eq!(released.load(SeqCst), 0);
    drop(refused.returned);
    assert_eq!(released.load(SeqCst), 1);
}

fn handle(value: i64) -> RawStream {
    // SAFETY: on the host no stream is used.
    unsafe { RawStream::new(value) }
}

#[test]
fn streams_on_the_cpu() {
    let tensor = Tensor::from_vec(vec![0_u8], &[1]).unwrap();
    for stream in [0, 1, 2, 0x7f00] {
        let request = Request { stream: handle(stream), ..Request::default() };
        let refused = dlpack::export::<DLManagedTensorVersioned>(tensor.clone(), &request).unwrap_err();
        assert_eq!(refused.error.status(), DEVX_INVALID_STREAM);
        assert!(refused.error.message().contains(&stream.to_string()));
    }
}

#[test]
fn the_byte_offset_is_folded_and_empty_tensors_have_no_address() {
    let mut data = [1.0_f32, 2.0, 3.0];
    let address = data.as_mut_ptr();
    let described = TensorDesc { byte_offset: 4, ..desc(&mut data, &[2]) };
    // SAFETY: the array outlives the tensor.
    let tensor = unsafe { Tensor::from_raw_parts(&described, Owner::none()) }.unwrap();
    let view = tensor.as_dltensor();
    assert_eq!((view.data.cast::<f32>(), view.byte_offset), (address.wrapping_add(1), 0));
    // SAFETY: as above.
    let empty = unsafe { Tensor::from_raw_parts(&desc(&mut data, &[3, 0]), Owner::none()) }.unwrap();
    assert!(empty.as_dltensor().data.is_null());
    assert!(!empty.as_dltensor().strides.is_null());
    let scalar = Tensor::from_vec(vec![5_i32], &[]).unwrap();
    assert_eq!(scalar.as_slice::<i32>().unwrap(), [5]);
    assert!(scalar.as_dltensor().shape.is_null());
}

/// For programs with boxed errors: `?` converts a refusal, too, and keeps the reason.
#[test]
fn a_refusal_is_an_error_of_std() {
    fn refused() -> std::result::Result<Tensor, Box<dyn std::error::Error>> {
        let data = std::ptr::null_mut();
        let flags = Flags::default();
        let desc = TensorDesc {
            data,
            device: Device::CPU,
            dtype: DType::INT8,
            shape: &[-1],
            strides: None,
            byte_offset: 0,
            flags,
        };
        // SAFETY: there is no such tensor.
        Ok(unsafe { Tensor::from_raw_parts(&desc, Owner::none()) }?)
    }
    let error = refused().unwrap_err();
    assert_eq!(error.to_string(), "shape[0] is -1: an extent cannot be negative");
    // The text that `main` prints for an error that it returns.
    let error = Error::from(error.downcast::<Refused<Owner>>().map(|refused| *refused).unwrap());
    assert_eq!(format!("{error:?}"), "DEVX_INVALID_SHAPE: shape[0] is -1: an extent cannot be negative");
    assert_eq!(format!("{:?} {:?}", DEVX_INVALID_SHAPE, DevxStatus(7777)), "DEVX_INVALID_SHAPE status 7777");
    let error = Error::driver(DevxStatus(7777), 3, "a new one");
    assert_eq!(format!("{error:?}"), "status 7777: a new one (the driver's code is 3)");
    assert_eq!(error.status().to_string(), "status 7777");
    assert_eq!(format!("{:>12}", DEVX_DEVICE), " DEVX_DEVICE");
}
