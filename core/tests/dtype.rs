//! Element types and devices by name.

#![expect(non_upper_case_globals, reason = "the names are those of DLPack")]

use devexchange_core::abi::dlpack::*;
use devexchange_core::abi::types::{DEVX_DEVICE, DEVX_INVALID_DTYPE, DEVX_UNSUPPORTED};
use devexchange_core::{DType, Device};

/// The widths of each type code, according to DLPack's comments on `DLDataTypeCode`, and of plain numbers.
fn widths(code: u8) -> &'static [u8] {
    match code {
        kDLInt | kDLUInt => &[1, 2, 4, 8, 16, 32, 64, 128],
        kDLFloat => &[16, 32, 64, 128],
        kDLBfloat => &[16],
        kDLComplex => &[32, 64, 128],
        kDLBool | kDLFloat8_e3m4..=kDLFloat8_e8m0fnu => &[8],
        kDLFloat6_e2m3fn | kDLFloat6_e3m2fn => &[6],
        kDLFloat4_e2m1fn => &[4],
        _ => &[],
    }
}

#[test]
fn a_type_code_has_some_widths_and_no_others() {
    for code in 0..=u8::MAX {
        for bits in 0..=u8::MAX {
            let given = DLDataType { code, bits, lanes: 1 };
            match DType::from_dlpack(given) {
                Ok(dtype) => {
                    assert!(widths(code).contains(&bits), "{given:?}");
                    let component = if code == kDLComplex { bits / 2 } else { bits };
                    assert_eq!(dtype.alignment(), usize::from(component / 8).max(1), "{given:?}");
                }
                Err(refused) => {
                    assert!(!widths(code).contains(&bits), "{given:?}: {refused}");
                    let opaque = code == kDLOpaqueHandle;
                    assert_eq!(refused.status(), if opaque { DEVX_UNSUPPORTED } else { DEVX_INVALID_DTYPE });
                    let (field, value) = if widths(code).is_empty() { ("code", code) } else { ("bits", bits) };
                    assert!(refused.message().starts_with(&format!("dtype.{field} is {value}")), "{refused}");
                }
            }
        }
    }
}

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
fn constants_are_named_like_their_types() {
    let constants = [
        (DType::COMPLEX64, "complex64"),
        (DType::COMPLEX128, "complex128"),
        (DType::FLOAT8_E3M4, "float8_e3m4"),
        (DType::FLOAT8_E4M3, "float8_e4m3"),
        (DType::FLOAT8_E4M3B11FNUZ, "float8_e4m3b11fnuz"),
        (DType::FLOAT8_E4M3FN, "float8_e4m3fn"),
        (DType::FLOAT8_E4M3FNUZ, "float8_e4m3fnuz"),
        (DType::FLOAT8_E5M2, "float8_e5m2"),
        (DType::FLOAT8_E5M2FNUZ, "float8_e5m2fnuz"),
        (DType::FLOAT8_E8M0FNU, "float8_e8m0fnu"),
        (DType::BOOL, "bool"),
        (DType::BFLOAT16, "bfloat16"),
    ];
    for (dtype, name) in constants {
        assert_eq!((dtype.to_string().as_str(), name.parse()), (name, Ok(dtype)));
        assert_eq!(DType::from_dlpack(dtype.to_dlpack()), Ok(dtype));
    }
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
    // All devices with a name are known; most of them have no runtime here.
    assert!("maia:3".parse::<Device>().unwrap_err().message().starts_with("device_type is maia"));
    assert_eq!("cpu:1".parse::<Device>().unwrap_err().message(), "device_id is 1: the cpu is 0 or -1");
    for wrong in ["", "CPU", "gpu", "cpu:", "cpu:-1", "cpu:+0", "cpu:0:0", "cpu:99999999999999999999"] {
        let error = wrong.parse::<Device>().unwrap_err();
        assert_eq!(error.status(), DEVX_DEVICE);
        assert!(error.message().contains("not the name of a device"), "{error}");
    }
}
