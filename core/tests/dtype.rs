//! Element types by name.

use devexchange_core::DType;
use devexchange_core::abi::dlpack::DLDataType;
use devexchange_core::abi::types::DEVX_INVALID_DTYPE;

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
