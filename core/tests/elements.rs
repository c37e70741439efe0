//! Elements by their Rust type: into a tensor, out of it, and into it again.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::abi::types::*;
use devexchange_core::dlpack::{self, Request};
use devexchange_core::{DType, Flags, Owner, Storable, Tensor, TensorDesc, ledger};

/// Runs tests one at a time: the ledger belongs to the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_refused_vector_is_given_back() {
    let _alone = alone();
    let address = |values: &Vec<i32>| values.as_ptr().addr();
    let values = vec![1, 2, 3];
    let was = address(&values);
    let refused = Tensor::from_vec(values, &[2, 2]).expect_err("four elements");
    assert_eq!(refused.error.message(), "shape [2, 2] has 4 elements, there are 3 values");
    assert_eq!((refused.error.status(), address(&refused.returned)), (DEVX_INVALID_SHAPE, was));
    let refused = Tensor::from_vec(refused.returned, &[-3]).expect_err("a negative extent");
    assert_eq!((refused.error.status(), address(&refused.returned)), (DEVX_INVALID_SHAPE, was));
    let tensor = Tensor::from_vec(refused.returned, &[3]).expect("three elements");
    assert_eq!((tensor.data().addr(), tensor.as_slice::<i32>()), (was, Ok(&[1, 2, 3][..])));
    drop(tensor);
    assert_eq!(ledger::outstanding(), 0);
}

#[test]
fn elements_are_read_and_written_by_their_type() {
    let _alone = alone();
    let tensor = Tensor::from_vec(vec![1.5_f32, 2.5, 3.5, 4.5], &[2, 2]).expect("made");
    assert_eq!(tensor.read_vec::<f32>(None), Ok(vec![1.5, 2.5, 3.5, 4.5]));
    // SAFETY: nobody else uses the elements.
    unsafe { tensor.write_from(&[5.0_f32, 6.0, 7.0, 8.0], None) }.expect("written");
    assert_eq!(tensor.read_vec::<f32>(None), Ok(vec![5.0, 6.0, 7.0, 8.0]));

    assert_eq!(tensor.read_vec::<i32>(None).expect_err("floats").message(), "dtype is float32, not int32");
    // SAFETY: as above.
    let refused = unsafe { tensor.write_from(&[1_i32; 4], None) }.expect_err("floats");
    assert_eq!((refused.status(), refused.message()), (DEVX_MISMATCH, "dtype is float32, not int32"));
    // SAFETY: as above.
    let refused = unsafe { tensor.write_from(&[1.0_f32; 3], None) }.expect_err("too few");
    assert_eq!(
        (refused.status(), refused.message()),
        (DEVX_INVALID_ARGUMENT, "there are 12 bytes, the elements are 16")
    );
    let column = tensor.slice(1, 0, 1).expect("a column");
    assert_eq!(column.read_vec::<f32>(None).expect_err("strided").status(), DEVX_COPY_REQUIRED);
    let empty = Tensor::from_vec(Vec::<u64>::new(), &[0, 3]).expect("made");
    assert_eq!(empty.read_vec::<u64>(None), Ok(Vec::new()));
}

/// A byte of a producer may be neither 0 nor 1, so booleans go in and not out.
#[test]
fn booleans_are_stored() {
    let _alone = alone();
    assert_eq!((bool::STORED_AS, u8::STORED_AS), (DType::BOOL, DType::UINT8));
    let tensor = Tensor::from_vec(vec![true, false, true], &[3]).expect("made");
    assert_eq!((tensor.dtype(), tensor.as_bytes()), (DType::BOOL, Ok(&[1, 0, 1][..])));
    // SAFETY: nobody else uses the elements.
    unsafe { tensor.write_from(&[false, true, true], None) }.expect("written");
    assert_eq!(tensor.as_bytes(), Ok(&[0, 1, 1][..]));
}

#[test]
fn a_program_shares_what_it_goes_on_reading() {
    let _alone = alone();
    let values: Arc<[f32]> = Arc::new([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let tensor = Tensor::from_shared(Arc::clone(&values), &[2, 3]).expect("made");
    assert_eq!((tensor.data().addr(), tensor.dtype()), (values.as_ptr().addr(), DType::FLOAT32));
    assert_eq!((tensor.shape(), tensor.flags(), ledger::outstanding()), (&[2, 3][..], Flags::READ_ONLY, 1));

    // A consumer is told that it must not write; one that could not be told is refused.
    let legacy = dlpack::share::<DLManagedTensor>(&tensor, &Request::default()).expect_err("has no flags");
    assert_eq!(legacy.status(), DEVX_READ_ONLY);
    let seen = dlpack::export::<DLManagedTensorVersioned>(tensor, &Request::default()).expect("exported").import();
    let mut seen = seen.expect("imported");
    // SAFETY: nothing is written.
    let refused = unsafe { seen.as_mut_slice::<f32>() }.expect_err("read-only");
    assert_eq!((refused.status(), seen.as_slice::<f32>()), (DEVX_READ_ONLY, Ok(&*values)));
    assert_eq!(Arc::strong_count(&values), 2);
    drop(seen);
    assert_eq!((Arc::strong_count(&values), ledger::outstanding()), (1, 0));
}

#[test]
fn values_are_shared_wherever_they_lie() {
    let _alone = alone();
    /// Has its values within itself, so that they move with it.
    struct Inline {
        values: [u16; 4],
        _held: Arc<()>,
    }
    impl Deref for Inline {
        type Target = [u16];
        fn deref(&self) -> &[u16] {
            &self.values
        }
    }
    let held = Arc::new(());
    let inline = Tensor::from_shared(Inline { values: [1, 2, 3, 4], _held: Arc::clone(&held) }, &[4]).expect("made");
    let moved = std::thread::spawn(move || inline.as_slice::<u16>().map(<[u16]>::to_vec)).join().expect("read");
    assert_eq!((moved, Arc::strong_count(&held)), (Ok(vec![1, 2, 3, 4]), 1));

    static PRIMES: [u64; 3] = [2, 3, 5];
    let of_static = Tensor::from_shared(&PRIMES, &[3]).expect("made");
    assert_eq!(of_static.as_slice::<u64>(), Ok(&PRIMES[..]));
    let of_vector = Tensor::from_shared(Arc::new(vec![true, false]), &[2]).expect("made");
    assert_eq!((of_vector.dtype(), of_vector.as_bytes()), (DType::BOOL, Ok(&[1, 0][..])));
    let none = Tensor::from_shared(Arc::<[i8]>::from([]), &[0, 2]).expect("made");
    assert_eq!(none.as_slice::<i8>(), Ok(&[][..]));

    // What is refused comes back as it was.
    let weak = |values: &Arc<Vec<i32>>| -> Weak<Vec<i32>> { Arc::downgrade(values) };
    let values = Arc::new(vec![1, 2, 3]);
    let seen = weak(&values);
    let refused = Tensor::from_shared(values, &[2]).expect_err("three values");
    assert_eq!(refused.error.message(), "shape [2] has 2 elements, there are 3 values");
    assert_eq!((refused.error.status(), &*refused.returned), (DEVX_INVALID_SHAPE, &vec![1, 2, 3]));
    assert_eq!(seen.strong_count(), 1);
    drop(refused);
    assert_eq!(seen.strong_count(), 0);
}

#[test]
fn elements_are_written_in_place() {
    let _alone = alone();
    let mut tensor = Tensor::from_vec(vec![1_i32, 2, 3, 4], &[2, 2]).expect("made");
    // SAFETY: nobody else uses the elements.
    unsafe { tensor.as_mut_slice::<i32>() }.expect("a slice").iter_mut().for_each(|value| *value *= 10);
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[10, 20, 30, 40][..]));
    // SAFETY: nothing is written.
    let refused = unsafe { tensor.as_mut_slice::<f32>() }.expect_err("integers");
    assert_eq!(refused.status(), DEVX_MISMATCH);
    let mut column = tensor.slice(1, 0, 1).expect("a column");
    // SAFETY: as above.
    assert_eq!(unsafe { column.as_mut_slice::<i32>() }.expect_err("strided").status(), DEVX_COPY_REQUIRED);
    let mut empty = Tensor::from_vec(Vec::<u64>::new(), &[0]).expect("made");
    // SAFETY: there are no elements.
    assert_eq!(unsafe { empty.as_mut_slice::<u64>() }, Ok(&mut [][..]));
}

#[test]
fn one_element_is_read_whatever_the_strides() {
    let _alone = alone();
    let mut values: Vec<i16> = (0..6).collect();
    // Column-major, and its rows backwards.
    let desc = TensorDesc {
        data: values.as_mut_ptr().wrapping_add(1).cast(),
        device: devexchange_core::Device::CPU,
        dtype: DType::INT16,
        shape: &[2, 3],
        strides: Some(&[-1, 2]),
        byte_offset: 0,
        flags: Flags::default(),
    };
    // SAFETY: the values live as long as the owner.
    let tensor = unsafe { Tensor::from_raw_parts(&desc, Owner::new(values)) }.expect("made");
    let all =
        [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]].map(|index| tensor.element::<i16>(&index).expect("there"));
    assert_eq!(all, [1, 3, 5, 0, 2, 4]);
    for (index, status, text) in [
        (&[0][..], DEVX_INVALID_ARGUMENT, "there are 1 indices for 2 dimensions"),
        (&[2, 0], DEVX_OUT_OF_RANGE, "index[0] is 2: the extent is 2"),
        (&[0, -1], DEVX_OUT_OF_RANGE, "index[1] is -1: the extent is 3"),
    ] {
        let refused = tensor.element::<i16>(index).expect_err(text);
        assert_eq!((refused.status(), refused.message()), (status, text));
    }
    assert_eq!(tensor.element::<u16>(&[0, 0]).expect_err("signed").status(), DEVX_MISMATCH);
    let one = Tensor::from_vec(vec![7.5_f64], &[]).expect("made");
    assert_eq!(one.element::<f64>(&[]), Ok(7.5));
    // Strides mean nothing where there are no elements.
    let none = TensorDesc { shape: &[5, 0], strides: Some(&[i64::MAX, 1]), ..desc };
    // SAFETY: there are no elements.
    let none = unsafe { Tensor::from_raw_parts(&none, Owner::none()) }.expect("made");
    assert_eq!(none.element::<i16>(&[4, 0]).expect_err("none").message(), "index[1] is 0: the extent is 0");
}
