//! Columns as tensors and tensors as columns: the plan, and that it is kept.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use core::ffi::c_void;
use std::ptr::null;

use devexchange_core::abi::types::*;
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::convert::{Plan, column, plan_column, plan_tensor, tensor};
use devexchange_core::dlpack::Copying;
use devexchange_core::{Batch, Device, Flags, Owner, Schema, Tensor};

fn single(fields: &[FieldDesc<'_>], nodes: &[NodeDesc<'_>]) -> Batch {
    let schema = Schema::new(fields).unwrap();
    // SAFETY: the tests give static buffers with the rows that the nodes say.
    unsafe { Batch::from_raw_parts(&schema, Device::CPU, nodes, Owner::none()) }.unwrap()
}

fn reason(plan: Plan) -> String {
    match plan {
        Plan::View => "view".into(),
        Plan::Copy { reason, .. } | Plan::Impossible { reason } => reason,
    }
}

#[test]
fn numbers_are_seen_in_place() {
    static VALUES: [f64; 5] = [0.0, 1.0, 2.0, 3.0, 4.0];
    let buffers = [null(), VALUES.as_ptr().cast::<c_void>()];
    let nodes = [NodeDesc { length: 3, null_count: 0, offset: 2, buffers: &buffers }];
    let batch = single(&[FieldDesc::new(c"v", c"g")], &nodes);
    assert_eq!(plan_tensor(batch.root()).unwrap(), Plan::View);
    let view = tensor(batch.root(), Copying::Never).unwrap();
    drop(batch);
    assert_eq!(view.data().cast_const().cast::<f64>(), VALUES.as_ptr().wrapping_add(2));
    assert_eq!(view.as_slice::<f64>().unwrap(), [2.0, 3.0, 4.0]);
    assert!(view.flags().has(Flags::READ_ONLY));
}

#[test]
fn what_a_tensor_cannot_say_is_impossible() {
    static BITS: [u8; 1] = [0b1011];
    static VALUES: [i32; 4] = [1, 2, 3, 4];
    let values = VALUES.as_ptr().cast::<c_void>();
    let with_nulls = [BITS.as_ptr().cast(), values];
    let nodes = [NodeDesc { length: 4, null_count: -1, offset: 0, buffers: &with_nulls }];
    let batch = single(&[FieldDesc::new(c"v", c"i")], &nodes);
    let plan = plan_tensor(batch.root()).unwrap();
    assert_eq!(reason(plan), "1 of 4 values of int32 are null, which a tensor cannot say");
    let error = tensor(batch.root(), Copying::IfNeeded).unwrap_err();
    assert_eq!(error.status(), DEVX_IMPOSSIBLE);

    let nodes = [NodeDesc { length: 4, null_count: 0, offset: 0, buffers: &[null(), values] }];
    let dates = single(&[FieldDesc::new(c"d", c"tdD")], &nodes);
    assert_eq!(reason(plan_tensor(dates.root()).unwrap()), "date32 has no element type in DLPack");
}

#[test]
fn bools_are_copied_only_if_the_caller_says_so() {
    static BITS: [u8; 1] = [0b1010];
    let nodes = [NodeDesc { length: 3, null_count: 0, offset: 1, buffers: &[null(), BITS.as_ptr().cast()] }];
    let batch = single(&[FieldDesc::new(c"b", c"b")], &nodes);
    let error = tensor(batch.root(), Copying::Never).unwrap_err();
    assert_eq!(error.status(), DEVX_COPY_REQUIRED);
    let bytes = tensor(batch.root(), Copying::IfNeeded).unwrap();
    assert_eq!(bytes.dtype().to_string(), "bool");
    let back = column(&bytes, "b", Copying::IfNeeded).unwrap();
    assert_eq!([0, 1, 2].map(|row| back.root().bool(row).unwrap()), [true, false, true]);
    assert_eq!(column(&bytes, "b", Copying::Never).unwrap_err().status(), DEVX_COPY_REQUIRED);
}

#[test]
fn dimensions_are_fixed_size_lists() {
    let matrix = Tensor::from_vec((0..24_u16).collect(), &[4, 3, 2]).unwrap();
    assert_eq!(plan_column(&matrix), Plan::View);
    let lists = column(&matrix, "m", Copying::Never).unwrap();
    let root = lists.root();
    assert_eq!((root.field().name(), root.field().format(), root.length()), ("m", "+w:3", 4));
    let row = root.list(2).unwrap().list(1).unwrap();
    assert_eq!(row.values::<u16>().unwrap(), [14, 15]);
    let back = tensor(root, Copying::Never).unwrap();
    assert_eq!((back.shape(), back.data()), (&[4, 3, 2][..], matrix.data()));
}

#[test]
fn strides_need_a_copy() {
    let matrix = Tensor::from_vec((0..6_i64).collect(), &[2, 3]).unwrap();
    let desc = devexchange_core::TensorDesc {
        data: matrix.data(),
        device: Device::CPU,
        dtype: matrix.dtype(),
        shape: &[3, 2],
        strides: Some(&[1, 3]),
        byte_offset: 0,
        flags: Flags::default(),
    };
    // SAFETY: the transposed view of a tensor that outlives it.
    let transposed = unsafe { Tensor::from_raw_parts(&desc, Owner::none()) }.unwrap();
    let Plan::Copy { bytes, reason } = plan_column(&transposed) else { panic!("strided") };
    assert_eq!((bytes, reason.as_str()), (48, "strides [1, 3] of shape [3, 2] are not row-major, as Arrow's are"));
    assert_eq!(column(&transposed, "t", Copying::Never).unwrap_err().status(), DEVX_COPY_REQUIRED);
    let copied = column(&transposed, "t", Copying::IfNeeded).unwrap();
    assert_eq!(copied.root().child(0).unwrap().values::<i64>().unwrap(), [0, 3, 1, 4, 2, 5]);
}
