//! The `stream` argument of a request (array API, data interchange: semantics of `stream`), and data without a stream.

use devexchange_core::abi::types::DEVX_INVALID_STREAM;
use devexchange_core::order::{Ready, check_stream};
use devexchange_core::{Device, DeviceType};

#[test]
fn each_device_takes_streams_of_its_own() {
    let cuda = [DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED];
    let rocm = [DeviceType::ROCM, DeviceType::ROCM_HOST];
    let (of_cpu, of_rocm) = ("the cpu takes -1", "rocm has 0 for the default stream");
    let (zero, negative) = ("ambiguous on cuda", "neither -1 nor a stream handle");
    for (kinds, taken, refused) in [
        (&[DeviceType::CPU][..], &[-1][..], &[(-2, of_cpu), (0, of_cpu), (1, of_cpu), (i64::MAX, of_cpu)][..]),
        (&cuda, &[-1, 1, 2, 3, i64::MAX], &[(0, zero), (-2, negative), (i64::MIN, negative)]),
        (&rocm, &[-1, 0, 3, i64::MAX], &[(1, of_rocm), (2, of_rocm), (-2, negative)]),
        (&[DeviceType(1000)], &[-1, 0, 1, 2, 3], &[(-2, negative), (i64::MIN, negative)]),
    ] {
        for kind in kinds {
            let device = Device { kind: *kind, id: 0 };
            for stream in taken {
                assert_eq!(check_stream(device, *stream), Ok(()), "{stream} on {device:?}");
            }
            for (stream, why) in refused {
                let error = check_stream(device, *stream).expect_err("not one of its streams");
                assert_eq!(error.status(), DEVX_INVALID_STREAM, "{stream} on {device:?}");
                let text = error.message();
                assert!(text.starts_with(&format!("stream is {stream}: ")) && text.contains(why), "{text}");
            }
        }
    }
}

#[test]
fn host_memory_is_ready() {
    assert!(matches!(Ready::unknown(Device::CPU), Ready::Now));
}
