//! Memory of the host that the library makes: copies of tensors, and new memory.

use devexchange_core::abi::dlpack::DLDataType;
use devexchange_core::abi::types::*;
use devexchange_core::dlpack::Copying;
use devexchange_core::{DType, Device, Flags, Owner, Tensor, TensorDesc, convert};

#[test]
fn copies_gather_any_strides() {
    let values: Vec<i16> = (0..24).collect();
    let (shape, strides) = ([2_i64, 3, 2], [-12_i64, 4, 1]);
    let described = TensorDesc {
        data: values.as_ptr().wrapping_add(12).cast_mut().cast(),
        device: Device::CPU,
        dtype: DType::INT16,
        shape: &shape,
        strides: Some(&strides),
        byte_offset: 0,
        flags: Flags::READ_ONLY,
    };
    // SAFETY: all elements are within the vector, which outlives the tensor.
    let tensor = unsafe { Tensor::from_raw_parts(&described, Owner::none()) }.unwrap();
    let copy = tensor.copy().unwrap();
    assert_eq!(copy.as_slice::<i16>().unwrap(), [12, 13, 16, 17, 20, 21, 0, 1, 4, 5, 8, 9]);
    assert_eq!(copy.flags(), Flags::IS_COPIED);
    assert_eq!(tensor.as_slice::<i16>().unwrap_err().status(), DEVX_COPY_REQUIRED);
}

/// A producer can write anything there: NumPy, if built to find consumers that rely on it, writes the largest number.
#[test]
fn a_copy_does_not_mind_strides_along_a_single_element() {
    let values = [1.0_f32, 2.0, 3.0];
    for odd in [i64::MAX, i64::MIN, -1, 0] {
        let strides = [odd, 2, odd];
        let mut data = values;
        let described = TensorDesc {
            data: data.as_mut_ptr().cast(),
            device: Device::CPU,
            dtype: DType::FLOAT32,
            shape: &[1, 2, 1],
            strides: Some(&strides),
            byte_offset: 0,
            flags: Flags::default(),
        };
        // SAFETY: all elements are within the array, which outlives the tensor.
        let tensor = unsafe { Tensor::from_raw_parts(&described, Owner::none()) }.unwrap();
        assert_eq!(tensor.copy().unwrap().as_slice::<f32>().unwrap(), [1.0, 3.0], "{strides:?}");
    }
}

/// "Aligned to 256 bytes as in CUDA" (`DLTensor.data`), whatever code has made the memory. Some consumers copy data that is
/// less aligned.
#[test]
fn new_memory_of_the_host_begins_where_dlpack_has_it() {
    let manager = devexchange_core::manager::Driver::host_only().unwrap();
    let mut kept = Vec::new();
    for length in [1_i64, 3, 5, 16, 17, 100, 1000, 5000, 1 << 20] {
        let shape = [length];
        let new = Tensor::allocate(Device::CPU, DType::UINT8, &shape, None).unwrap();
        let managed = Tensor::allocate_with(&manager, Device::CPU, DType::UINT8, &shape, None).unwrap();
        let copy = new.slice(0, 1, length - 1).unwrap().copy().unwrap();
        let bools = TensorDesc {
            data: new.data(),
            device: Device::CPU,
            dtype: DType::BOOL,
            shape: &shape,
            strides: None,
            byte_offset: 0,
            flags: Flags::default(),
        };
        // SAFETY: as many bytes as bools, kept below.
        let bools = unsafe { Tensor::from_raw_parts(&bools, Owner::new(new.clone())) }.unwrap();
        let bools = convert::column(&bools, "", Copying::IfNeeded).unwrap();
        let bools = convert::tensor(bools.root(), Copying::IfNeeded).unwrap();
        for made in [new, managed, copy, bools] {
            assert_eq!(made.data().addr() % 256, 0, "{made:?}");
            assert!(made.as_bytes().unwrap().iter().all(|byte| *byte == 0), "{made:?}");
            kept.push(made);
        }
    }
}

/// Memory that can be read must be initialised, whatever was in it before.
#[test]
fn new_memory_of_the_host_is_zero() {
    let manager = devexchange_core::manager::Driver::new().unwrap();
    for length in [1_i64, 3, 100, 5000, 1 << 20] {
        for _ in 0..3 {
            drop(std::hint::black_box(vec![0xab_u8; length as usize]));
            let tensor = Tensor::allocate(Device::CPU, DType::UINT8, &[length], None).unwrap();
            assert!(tensor.as_slice::<u8>().unwrap().iter().all(|byte| *byte == 0), "{length}");
            drop(tensor);
            drop(std::hint::black_box(vec![0xab_u8; length as usize]));
            let tensor = Tensor::allocate_with(&manager, Device::CPU, DType::UINT8, &[length], None).unwrap();
            assert!(tensor.as_slice::<u8>().unwrap().iter().all(|byte| *byte == 0), "{length}");
        }
    }
    assert_eq!(
        Tensor::allocate(Device::CPU, DType::UINT8, &[0, 3], None).unwrap().as_slice::<u8>().unwrap(),
        [0_u8; 0]
    );
}

/// The host cannot read or copy device memory; each error says what does.
#[test]
fn what_the_host_cannot_do_with_device_memory_names_the_way() {
    let described = TensorDesc {
        data: std::ptr::dangling_mut::<f32>().cast(),
        device: Device::cuda(0),
        dtype: DType::FLOAT32,
        shape: &[2],
        strides: None,
        byte_offset: 0,
        flags: Flags::default(),
    };
    // SAFETY: nothing is done with the memory.
    let tensor = unsafe { Tensor::from_raw_parts(&described, Owner::none()) }.unwrap();
    let stream = "device is cuda:0, not host memory: name a stream";
    for (error, says) in [
        (tensor.read(&mut [0; 8], None).unwrap_err(), stream),
        // SAFETY: nothing is written.
        (unsafe { tensor.write(&[0; 8], None) }.unwrap_err(), stream),
        (tensor.copy().unwrap_err(), "device is cuda:0, not host memory: copy_to copies it, on a stream"),
    ] {
        assert_eq!((error.status(), error.message()), (DEVX_DEVICE, says));
    }
}

/// Each element has its own byte, so elements share none.
#[test]
fn strided_elements_with_padding_are_copied() {
    let mut data = [0_u8, 1, 2, 3, 4, 5];
    let int4 = DType::from_dlpack(DLDataType { code: 0, bits: 4, lanes: 1 }).unwrap();
    let described = |flags, data: &mut [u8]| TensorDesc {
        data: data.as_mut_ptr().cast(),
        device: Device::CPU,
        dtype: int4,
        shape: &[3, 2],
        strides: Some(&[1, 3]),
        byte_offset: 0,
        flags,
    };
    // SAFETY: the array outlives the tensor.
    let padded =
        unsafe { Tensor::from_raw_parts(&described(Flags::SUBBYTE_PADDED, &mut data), Owner::none()) }.unwrap();
    let copy = padded.copy().unwrap();
    assert_eq!((copy.layout().bytes, copy.layout().row_major), (6, true));
    assert_eq!(copy.flags(), Flags::SUBBYTE_PADDED.with(Flags::IS_COPIED));
    // SAFETY: six elements of a byte each.
    assert_eq!(unsafe { std::slice::from_raw_parts(copy.data().cast::<u8>(), 6) }, [0, 3, 1, 4, 2, 5]);
    // SAFETY: as above.
    let packed = unsafe { Tensor::from_raw_parts(&described(Flags::default(), &mut data), Owner::none()) }.unwrap();
    let error = packed.copy().unwrap_err();
    assert_eq!(error.status(), DEVX_UNSUPPORTED);
    assert!(error.message().contains("a strided tensor of int4 cannot be copied: elements share bytes"), "{error}");
}
