//! Element types and devices by name.

use devexchange_core::abi::dlpack::DLDataType;
use devexchange_core::abi::types::{DEVX_DEVICE, DEVX_INVALID_DTYPE};
use devexchange_core::{DType, Device};

#[test]
fn every_type_is_found_by_the_name_that_it_is_shown_by() {
    let mut found = 0;
    for code in 0..=u8::MAX {
        for bits in 0..=u8::MAX {
            for lanes in [1, 4, 64] {
                let Ok(dtype) = DType::from_dlpack(DLDataType { code, bits, lanes }) else { continue };
                assert_eq!(dtype.to_string().parse(), Ok(dtype));
                found += 1;
            }
        }
    }
    assert!(found > 90, "{found}");
}

#[test]
fn other_names_are_refused() {
    for name in [
        "",
        "float",
        "float33",
        "int32x0",
        "int32x",
        "int32x4x4",
        "int32x1",
        "int32x04",
        "int32x+4",
        "Float32",
        "code3_64",
        "complex",
    ] {
        let refused = name.parse::<DType>().expect_err(name);
        assert_eq!(refused.status(), DEVX_INVALID_DTYPE);
        assert!(refused.message().contains(&format!("{name:?}")), "{refused}");
        assert!(refused.message().contains("such as float32, int64, bool or uint8x4"), "{refused}");
    }
}

#[test]
fn a_device_is_read_from_its_name() {
    for name in ["cpu", "cpu:0"] {
        assert_eq!(name.parse(), Ok(Device::CPU));
    }
    assert_eq!(Device::CPU.to_string().parse(), Ok(Device::CPU));
    // All that have names are known; for most of them there is no runtime here.
    assert!("maia:3".parse::<Device>().unwrap_err().message().starts_with("device_type is maia"));
    assert_eq!("cpu:1".parse::<Device>().unwrap_err().message(), "device_id is 1: the cpu is 0 or -1");
    for wrong in ["", "CPU", "gpu", "cpu:", "cpu:-1", "cpu:+0", "cpu:0:0", "cpu:99999999999999999999"] {
        let error = wrong.parse::<Device>().unwrap_err();
        assert_eq!(error.status(), DEVX_DEVICE);
        assert!(error.message().contains("not the name of a device"), "{error}");
    }
}
