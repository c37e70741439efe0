//! Shapes and strides against a slow, obvious computation.

use devexchange_core::abi::dlpack::DLDataType;
use devexchange_core::abi::types::{DEVX_INVALID_DTYPE, DEVX_INVALID_SHAPE};
use devexchange_core::layout::{MAX_NDIM, check, is_stepped, row_major_strides};
use devexchange_core::{DType, DType as D, Device, Flags, Owner, Tensor, TensorDesc};

/// A small generator of reproducible numbers, so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn in_range(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low + 1) as u64) as i64
    }
}

/// The offsets, in elements, of every element.
fn offsets(shape: &[i64], strides: &[i64]) -> Vec<i64> {
    let mut all = vec![0];
    for (extent, stride) in shape.iter().zip(strides) {
        all = all.iter().flat_map(|base| (0..*extent).map(move |i| base + i * stride)).collect();
    }
    all
}

#[test]
fn extents_are_those_of_the_elements() {
    let mut numbers = Numbers(0x5eed);
    for _ in 0..5_000 {
        let ndim = numbers.in_range(0, 4) as usize;
        let shape: Vec<i64> = (0..ndim).map(|_| numbers.in_range(0, 4)).collect();
        let strides: Vec<i64> = (0..ndim).map(|_| numbers.in_range(-9, 9)).collect();
        let layout = check(D::INT16, false, &shape, Some(&strides)).unwrap();
        let all = offsets(&shape, &strides);
        assert_eq!(layout.elements, all.len(), "{shape:?} {strides:?}");
        if let (Some(low), Some(high)) = (all.iter().min(), all.iter().max()) {
            assert_eq!(layout.lowest as i64, low * 2, "{shape:?} {strides:?}");
            assert_eq!(layout.end as i64, high * 2 + 2, "{shape:?} {strides:?}");
            let compact: Vec<i64> = (0..all.len() as i64).collect();
            assert_eq!(layout.row_major, all == compact, "{shape:?} {strides:?}");
        }
    }
}

#[test]
fn every_dimension_has_a_stride() {
    for (shape, strides, says) in [
        (&[2, 3][..], &[1][..], "there are 1 strides for 2 dimensions"),
        (&[2], &[3, 1], "there are 2 strides for 1 dimensions"),
        (&[0, 3], &[], "there are 0 strides for 2 dimensions"),
        (&[1; MAX_NDIM + 1], &[1; MAX_NDIM + 1], "ndim is 65: more than 64"),
    ] {
        let error = check(D::UINT8, false, shape, Some(strides)).unwrap_err();
        assert_eq!((error.status(), error.message()), (DEVX_INVALID_SHAPE, says));
    }
    assert_eq!(check(D::UINT8, false, &[1; MAX_NDIM], Some(&[1; MAX_NDIM])).unwrap().elements, 1);
}

/// Plain tensors are read in a quicker way. The numbers behind the slice would make one, so nobody may look at them.
#[test]
fn every_dimension_of_a_description_has_a_stride() {
    let strides = [3, 1, 1];
    for given in [&strides[..0], &strides[..1], &strides] {
        let desc = TensorDesc {
            data: [0_u8; 6].as_mut_ptr().cast(),
            device: Device::CPU,
            dtype: D::UINT8,
            shape: &[2, 3],
            strides: Some(given),
            byte_offset: 0,
            flags: Flags::default(),
        };
        // SAFETY: nothing is done with the memory.
        let refused = unsafe { Tensor::from_raw_parts(&desc, Owner::none()) }.unwrap_err();
        let says = format!("there are {} strides for 2 dimensions", given.len());
        assert_eq!((refused.error.status(), refused.error.message()), (DEVX_INVALID_SHAPE, &*says));
    }
}

#[test]
fn row_major_strides_are_row_major() {
    for shape in [&[][..], &[5], &[2, 3, 4], &[1, 1, 7], &[3, 0, 2]] {
        let mut strides = vec![0; shape.len()];
        row_major_strides(shape, &mut strides);
        assert!(check(D::FLOAT64, false, shape, Some(&strides)).unwrap().row_major, "{shape:?}");
    }
}

#[test]
fn sub_byte_sizes_round_once_over_the_tensor() {
    let int4 = DType::from_dlpack(devexchange_core::abi::dlpack::DLDataType { code: 0, bits: 4, lanes: 1 }).unwrap();
    assert_eq!(check(int4, false, &[3, 3], None).unwrap().bytes, 5);
    assert_eq!(check(int4, true, &[3, 3], None).unwrap().bytes, 9);
}

#[test]
fn nothing_overflows() {
    let huge = i64::MAX;
    for (shape, strides) in [
        (vec![huge, 2], None),
        (vec![huge], None),
        (vec![1 << 32, 1 << 32], None),
        (vec![2, 2], Some(vec![huge, 1])),
        (vec![3], Some(vec![i64::MIN])),
        // Each end can be addressed from the first element, but the distance between the ends is too large.
        (vec![2, 2], Some(vec![1 << 59, -(1 << 59)])),
        (vec![2, 2], Some(vec![(1 << 60) - 2, 1 - (1 << 60)])),
    ] {
        let error = check(D::INT64, false, &shape, strides.as_deref()).unwrap_err();
        assert_eq!(error.status(), DEVX_INVALID_SHAPE, "{shape:?} {strides:?}: {error}");
    }
    let error = check(D::INT8, false, &[4, -1], None).unwrap_err();
    assert_eq!(error.message(), "shape[1] is -1: an extent cannot be negative");
}

#[test]
fn an_empty_tensor_may_have_any_extents_and_strides() {
    // Even where the product of the other extents is too large to be counted, before the zero or after it.
    for shape in [[0, i64::MAX, i64::MAX], [i64::MAX, 0, i64::MAX], [i64::MAX, i64::MAX, 0]] {
        let layout = check(D::INT64, false, &shape, Some(&[i64::MAX, i64::MIN, 1])).unwrap();
        assert_eq!((layout.elements, layout.bytes), (0, 0), "{shape:?}");
    }
}

#[test]
fn strides_lead_nowhere_along_one_element_and_among_none() {
    let stepped = |shape: [i64; 3]| [0, 1, 2, 3].map(|dimension| is_stepped(&shape, dimension));
    assert_eq!(stepped([2, 1, 3]), [true, false, true, false]);
    assert_eq!(stepped([2, 0, 3]), [false; 4]);
}

#[test]
fn every_element_type_is_found_by_its_name() {
    let mut found = 0;
    for (code, bits) in (0..=u8::MAX).flat_map(|code| (0..=u8::MAX).map(move |bits| (code, bits))) {
        if let Ok(dtype) = DType::from_dlpack(DLDataType { code, bits, lanes: 1 }) {
            assert_eq!(dtype.to_string().parse::<DType>(), Ok(dtype));
            found += 1;
        }
    }
    assert!(found > 30, "{found}");
    for name in ["", "float", "float33", "Float32", " float32", "float32\0"] {
        let error = name.parse::<DType>().expect_err("no name");
        assert_eq!(error.status(), DEVX_INVALID_DTYPE);
        assert!(error.message().contains(&format!("dtype is {name:?}")), "{error}");
    }
}
