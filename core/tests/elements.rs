//! Elements by their Rust type: into a tensor, out of it, and into it again.

use devexchange_core::abi::types::*;
use devexchange_core::{DType, Storable, Tensor, ledger};

#[test]
fn a_refused_vector_is_given_back() {
    let address = |values: &Vec<i32>| values.as_ptr().addr();
    let values = vec![1, 2, 3];
    let was = address(&values);
    let refused = Tensor::from_vec(values, &[2, 2]).expect_err("four elements");
    assert_eq!(refused.error.message(), "shape [2, 2] has 4 elements, the vector has 3");
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
    assert_eq!((bool::STORED_AS, u8::STORED_AS), (DType::BOOL, DType::UINT8));
    let tensor = Tensor::from_vec(vec![true, false, true], &[3]).expect("made");
    assert_eq!((tensor.dtype(), tensor.as_bytes()), (DType::BOOL, Ok(&[1, 0, 1][..])));
    // SAFETY: nobody else uses the elements.
    unsafe { tensor.write_from(&[false, true, true], None) }.expect("written");
    assert_eq!(tensor.as_bytes(), Ok(&[0, 1, 1][..]));
}
