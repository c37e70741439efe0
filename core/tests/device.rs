//! Devices by number and by name, where there is no driver to ask.

use devexchange_core::abi::types::DEVX_DEVICE;
use devexchange_core::dlpack::Copying;
use devexchange_core::{DType, Device, DeviceType, RawStream, Stream, Tensor, convert};

/// The constants of the official headers (`tests/tests/layout.rs`).
const CONSTANTS: &str = include_str!("../../tests/constants.txt");

/// The device types of DLPack, each with its name. They come before the element types, whose numbers begin again.
fn types() -> impl Iterator<Item = (&'static str, i32)> {
    let constants = CONSTANTS.lines().filter_map(|line| line.strip_prefix("kDL")?.split_once(" value "));
    constants.take_while(|(name, _)| *name != "Int").filter_map(|(name, value)| Some((name, value.parse().ok()?)))
}

#[test]
fn a_type_is_called_as_in_dlpack() {
    let mut known = 0;
    for (name, value) in types() {
        let called = DeviceType(value).name().expect(name);
        assert_eq!(called.replace('_', ""), name.to_lowercase());
        assert_eq!(DeviceType(value).to_string(), format!("{called} ({value})"));
        known += 1;
    }
    assert!(known >= 16, "{known}");
    for value in [i32::MIN, -1, 0, 5, 6, 19, i32::MAX] {
        assert_eq!(DeviceType(value).name(), None);
        assert_eq!(DeviceType(value).to_string(), format!("unknown ({value})"));
    }
}

#[test]
fn a_gpu_is_named_without_a_driver() {
    assert_eq!(Device::cuda(1), Device { kind: DeviceType::CUDA, id: 1 });
    assert_eq!(Device::cuda(1).to_string(), "cuda:1");
}

#[test]
fn the_cpu_is_one_and_others_say_why_they_are_none() {
    for id in [0, -1] {
        assert_eq!(Device::new(DeviceType::CPU, id), Ok(Device::CPU));
    }
    let cuda = [DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED];
    let no_runtime =
        types().map(|(_, value)| DeviceType(value)).filter(|kind| *kind != DeviceType::CPU && !cuda.contains(kind));
    let refusals = [1, -2, i64::MAX]
        .map(|id| (DeviceType::CPU, id, format!("device_id is {id}: the cpu is 0 or -1")))
        .into_iter()
        .chain(no_runtime.map(|kind| (kind, 0, format!("device_type is {kind}: this library has runtimes for"))))
        .chain([0, 99].map(|kind| (DeviceType(kind), 0, format!("device_type is {kind}: not a device type of DLPack"))))
        .chain([(DeviceType::CUDA, 1 << 40, format!("device_id is {}: not the number of a CUDA device", 1_u64 << 40))]);
    for (kind, id, why) in refusals {
        let error = Device::new(kind, id).expect_err(&why);
        assert_eq!(error.status(), DEVX_DEVICE, "{error}");
        assert!(error.message().contains(&why), "{error}");
    }
}

#[test]
fn what_has_no_streams_is_named() {
    let other = Device { kind: DeviceType::ROCM, id: 0 };
    for (device, why) in
        [(Device::CPU, "device is cpu:0, which has no streams"), (other, "neither cpu:0 nor rocm:0 has streams")]
    {
        let why = format!("stream is 1: {why}");
        let error = Device::CPU.stream_with(device, RawStream::LEGACY).expect_err(&why);
        assert_eq!((error.status(), error.message()), (DEVX_DEVICE, &*why));
    }
    let tensor = Tensor::from_vec(vec![1_u8], &[1]).expect("a tensor");
    let refused = tensor.used_on(Stream::legacy(0)).expect_err("not a GPU's");
    assert_eq!((refused.status(), refused.message()), (DEVX_DEVICE, "device is cpu:0, which has no streams"));
}

#[test]
fn the_cpu_says_what_it_is() {
    let info = Device::CPU.info().expect("known");
    let name: Vec<_> = info.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    assert_eq!((name.as_slice(), info.free_bytes, info.total_bytes), (&b"host memory"[..], -1, -1));
    assert_eq!(Device::count(DeviceType::CPU), Ok(1));
    let refused = Device::count(DeviceType::ROCM).expect_err("there is no runtime");
    assert_eq!(
        (refused.status(), refused.message()),
        (DEVX_DEVICE, "device_type is rocm (10): only devices of cpu (1) and cuda (2) can be counted")
    );
    for kind in [DeviceType::ROCM, DeviceType::CUDA_HOST] {
        let refused = Device { kind, id: 0 }.info().expect_err("neither the cpu nor a GPU");
        let why = format!("device is {}:0: it must be cpu or cuda", kind.name().expect("known"));
        assert_eq!((refused.status(), refused.message()), (DEVX_DEVICE, &*why));
    }
}

#[test]
fn a_device_that_was_filled_in_by_hand_is_checked() {
    let allocate = |device| Tensor::allocate(device, DType::INT8, &[3], None);
    let host = allocate(Device { id: -1, ..Device::CPU }).expect("the cpu");
    assert_eq!(host.device(), Device::CPU);
    let (none, stream) = (Device { id: 7, ..Device::CPU }, Stream::legacy(0));
    let column = convert::column(&host, "x", Copying::Never).expect("a view");
    let errors =
        [allocate(none).map(drop), host.copy_to(none, stream).map(drop), column.copy_to(none, stream).map(drop)];
    for error in errors.map(|refused| refused.expect_err("no such device")) {
        assert_eq!((error.status(), error.message()), (DEVX_DEVICE, "device_id is 7: the cpu is 0 or -1"));
    }
}
