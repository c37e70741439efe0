//! Columns as tensors and tensors as columns: the plan, and that the conversion keeps to it.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use core::ffi::c_void;
use std::ptr::null;

use devexchange_core::abi::types::*;
use devexchange_core::arrow::ArrayBuilder;
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::schema::{EXTENSION_METADATA, EXTENSION_NAME};
use devexchange_core::convert::{
    Plan, batch, column, fixed_shape_column, matrix, plan_batch, plan_column, plan_fixed_shape_column, plan_matrix,
    plan_tensor, tensor,
};
use devexchange_core::dlpack::Copying;
use devexchange_core::{Batch, DType, Device, Flags, Owner, Schema, Tensor, TensorDesc};

fn single(fields: &[FieldDesc<'_>], nodes: &[NodeDesc<'_>]) -> Batch {
    let schema = Schema::new(fields).unwrap();
    // SAFETY: the tests give static buffers with as many rows as the nodes state.
    unsafe { Batch::from_raw_parts(&schema, Device::CPU, nodes, Owner::none()) }.unwrap()
}

fn reason(plan: Plan) -> String {
    match plan {
        Plan::View => "view".into(),
        Plan::Copy { reason, .. } | Plan::Impossible { reason } => reason.into_owned(),
        other => other.to_string(),
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
    assert_eq!(reason(plan), "1 of 4 values of int32 are null, which a tensor cannot express");
    let error = tensor(batch.root(), Copying::IfNeeded).unwrap_err();
    let said = "column \"v\": 1 of 4 values of int32 are null, which a tensor cannot express";
    assert_eq!((error.status(), error.message()), (DEVX_IMPOSSIBLE, said));

    let nodes = [NodeDesc { length: 4, null_count: 0, offset: 0, buffers: &[null(), values] }];
    let dates = single(&[FieldDesc::new(c"d", c"tdD")], &nodes);
    let plan = plan_tensor(dates.root()).unwrap();
    assert_eq!(plan.to_string(), "impossible: date32 has no element type in DLPack");

    // Filling in the nulls would not give a tensor either, so the error does not name them.
    let nodes = [NodeDesc { length: 4, null_count: -1, offset: 0, buffers: &with_nulls }];
    let dates = single(&[FieldDesc::new(c"d", c"tdD")], &nodes);
    assert_eq!(reason(plan_tensor(dates.root()).unwrap()), "date32 has no element type in DLPack");
}

#[test]
fn bools_of_no_rows_need_no_buffer() {
    let nodes = [NodeDesc { length: 0, null_count: 0, offset: 0, buffers: &[null(); 2] }];
    let copy = tensor(single(&[FieldDesc::new(c"b", c"b")], &nodes).root(), Copying::IfNeeded).unwrap();
    assert_eq!((copy.dtype(), copy.shape()), (DType::BOOL, &[0][..]));
}

#[test]
fn bools_are_copied_only_if_the_caller_says_so() {
    static BITS: [u8; 1] = [0b1010];
    let nodes = [NodeDesc { length: 3, null_count: 0, offset: 1, buffers: &[null(), BITS.as_ptr().cast()] }];
    let batch = single(&[FieldDesc::new(c"b", c"b")], &nodes);
    let shown = plan_tensor(batch.root()).unwrap().to_string();
    assert_eq!(shown, "copy of 3 bytes: bools are bits in Arrow and bytes in DLPack");
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
    // A tensor has no nulls, at no depth.
    for column in [root, root.child(0).unwrap(), root.child(0).unwrap().child(0).unwrap()] {
        assert_eq!(column.field().raw().flags, 0);
    }
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
    assert_eq!((bytes, &*reason), (48, "strides [1, 3] of shape [3, 2] are not row-major, as Arrow's are"));
    assert_eq!(column(&transposed, "t", Copying::Never).unwrap_err().status(), DEVX_COPY_REQUIRED);
    let copied = column(&transposed, "t", Copying::IfNeeded).unwrap();
    assert_eq!(copied.root().child(0).unwrap().values::<i64>().unwrap(), [0, 3, 1, 4, 2, 5]);
}

/// A view of a host tensor that outlives it.
fn seen(of: &Tensor, shape: &[i64], strides: &[i64]) -> Tensor {
    let desc = devexchange_core::TensorDesc {
        data: of.data(),
        device: Device::CPU,
        dtype: of.dtype(),
        shape,
        strides: Some(strides),
        byte_offset: 0,
        flags: Flags::default(),
    };
    // SAFETY: the tests give strides within the tensor.
    unsafe { Tensor::from_raw_parts(&desc, Owner::none()) }.unwrap()
}

fn elements(tensor: &Tensor) -> Vec<i32> {
    tensor.copy().unwrap().as_slice::<i32>().unwrap().to_vec()
}

#[test]
fn tensors_of_one_shape() {
    let cube = Tensor::from_vec((0..24_i32).collect(), &[2, 3, 4]).unwrap();
    assert_eq!(plan_fixed_shape_column(&cube), Plan::View);
    let made = fixed_shape_column(&cube, "cube", Copying::Never).unwrap();
    let field = made.schema().root();
    assert_eq!((field.name(), field.format(), made.length()), ("cube", "+w:12", 2));
    assert_eq!(field.extension(), Some((&b"arrow.fixed_shape_tensor"[..], &b"{\"shape\":[3, 4]}"[..])));
    let back = tensor(made.root(), Copying::Never).unwrap();
    assert_eq!((back.shape(), back.strides(), back.data()), (&[2, 3, 4][..], &[12, 4, 1][..], cube.data()));

    // Values whose dimensions lie in another order are viewed in place, too, and the result records the order.
    let turned = seen(&cube, &[2, 4, 3], &[12, 1, 4]);
    let made = fixed_shape_column(&turned, "turned", Copying::Never).unwrap();
    let (_, parameters) = made.schema().root().extension().unwrap();
    assert_eq!(parameters, b"{\"shape\":[3, 4],\"permutation\":[1, 0]}");
    let back = tensor(made.root(), Copying::Never).unwrap();
    assert_eq!((back.shape(), back.strides(), back.data()), (turned.shape(), turned.strides(), cube.data()));

    // The stride of a dimension of extent 1 means nothing.
    for stride in [0, 1, 77] {
        let flat = seen(&cube, &[6, 1, 4], &[4, stride, 1]);
        let made = fixed_shape_column(&flat, "flat", Copying::Never).unwrap();
        let (_, parameters) = made.schema().root().extension().unwrap();
        assert_eq!(parameters, b"{\"shape\":[1, 4]}");
        let turned = seen(&cube, &[2, 4, 1, 3], &[12, 1, stride, 4]);
        let made = fixed_shape_column(&turned, "turned", Copying::Never).unwrap();
        let back = tensor(made.root(), Copying::Never).unwrap();
        assert_eq!((back.shape(), elements(&back)), (turned.shape(), elements(&turned)));
    }

    // Three dimensions, turned round: the permutation is not its own inverse.
    let four = Tensor::from_vec((0..24_i32).collect(), &[1, 2, 3, 4]).unwrap();
    let turned = seen(&four, &[1, 4, 2, 3], &[24, 1, 12, 4]);
    let made = fixed_shape_column(&turned, "", Copying::Never).unwrap();
    let (_, parameters) = made.schema().root().extension().unwrap();
    assert_eq!(parameters, b"{\"shape\":[2, 3, 4],\"permutation\":[2, 0, 1]}");
    let back = tensor(made.root(), Copying::Never).unwrap();
    assert_eq!((back.shape(), back.strides()), (turned.shape(), turned.strides()));

    // Every other row.
    let apart = seen(&cube, &[2, 3, 2], &[12, 4, 2]);
    assert_eq!(fixed_shape_column(&apart, "", Copying::Never).unwrap_err().status(), DEVX_COPY_REQUIRED);
    let copied = tensor(fixed_shape_column(&apart, "", Copying::IfNeeded).unwrap().root(), Copying::Never).unwrap();
    assert_eq!((copied.shape(), elements(&copied)), (apart.shape(), elements(&apart)));

    for shape in [&[3][..], &[0, 3, 4], &[2, 0, 4], &[3, 1, 1]] {
        let size = shape.iter().product::<i64>();
        let odd = Tensor::from_vec((0..size as i32).collect(), shape).unwrap();
        let made = fixed_shape_column(&odd, "", Copying::Never).unwrap();
        assert_eq!(tensor(made.root(), Copying::Never).unwrap().shape(), shape);
        let made = column(&odd, "", Copying::Never).unwrap();
        assert_eq!((made.length(), tensor(made.root(), Copying::Never).unwrap().shape()), (shape[0], shape));
    }
}

#[test]
fn an_empty_tensor_of_huge_extents_becomes_a_column() {
    let far = 1 << 40;
    for strides in [None, Some(&[1, 1, 8, 4][..]), Some(&[far, 1, far, far][..])] {
        let shape = &[2, 0, far, far];
        let flags = Flags::default();
        let (data, device, dtype, byte_offset) = (std::ptr::null_mut(), Device::CPU, DType::INT32, 0);
        let empty = TensorDesc { data, device, dtype, shape, strides, byte_offset, flags };
        // SAFETY: there are no elements.
        let empty = unsafe { Tensor::from_raw_parts(&empty, Owner::none()) }.unwrap();
        let made = fixed_shape_column(&empty, "empty", Copying::Never).unwrap();
        assert_eq!((made.length(), made.schema().root().format()), (2, "+w:0"));
    }
}

#[test]
fn tensor_columns_that_contradict_themselves() {
    let of = |parameters: &str| {
        let values = ArrayBuilder::new("item", "i", 0).buffer(null()).buffer(null());
        let list = ArrayBuilder::new("", "+w:6", 0).buffer(null()).child(values);
        let list = list.metadata(EXTENSION_NAME, "arrow.fixed_shape_tensor").metadata(EXTENSION_METADATA, parameters);
        // SAFETY: there are no values.
        let made = unsafe { list.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
        plan_tensor(made.root()).unwrap()
    };
    assert_eq!(of("{\"shape\": [2, 3], \"dim_names\": [\"a\", \"b\"]}"), Plan::View);
    assert_eq!(of("{\"shape\": [6], \"permutation\": null}"), Plan::View);
    for (parameters, says) in [
        ("", "there is no shape"),
        ("[1]", "there is no shape"),
        ("{\"shape\": 6}", "there is no shape"),
        ("{\"shape\": [2, \"3\"]}", "there is no shape"),
        ("{\"shape\": [2, 2]}", "has shape [2, 2], but lists of 6 values"),
        ("{\"shape\": [-2, -3]}", "has shape [-2, -3]"),
        ("{\"shape\": [9223372036854775807, 9]}", "but lists of 6 values"),
        ("{\"shape\": [2, 3], \"permutation\": [0]}", "permutation [0] of 2 dimensions"),
        ("{\"shape\": [2, 3], \"permutation\": [1, 1]}", "permutation [1, 1] of 2 dimensions"),
    ] {
        let said = reason(of(parameters));
        assert!(said.contains(says), "{parameters}: {said}");
    }
    // Longer than any tensor needs: the parser would take some fifty times as much memory, and fail without it.
    let long = |dimensions: usize| format!("{{\"shape\": [{}6]}}", "1,".repeat(dimensions));
    assert!(reason(of(&long(32_000))).contains("there are 32002 dimensions"));
    let said = reason(of(&long(33_000)));
    assert_eq!(said, "fixed_shape_tensor has 66014 bytes of parameters: more than 65536");
}

#[test]
fn columns_of_a_matrix() {
    let whole = Tensor::from_vec((0..6_i32).collect(), &[2, 3]).unwrap();
    // Column-major: two columns of three values each.
    let tall = seen(&whole, &[3, 2], &[1, 3]);
    assert_eq!(plan_batch(&tall), Plan::View);
    let table = batch(&tall, &["a", "b"], Copying::Never).unwrap();
    assert_eq!(table.column_named("b").unwrap().values::<i32>().unwrap(), [3, 4, 5]);
    assert_eq!(plan_matrix(&table).unwrap(), Plan::View);
    let back = matrix(&table, Copying::Never, None).unwrap();
    assert_eq!((back.shape(), back.strides(), back.data()), (&[3, 2][..], &[1, 3][..], whole.data()));
    assert!(back.flags().has(Flags::READ_ONLY));
    // A matrix of some rows begins where they begin.
    let some = matrix(&table.slice(1, 2).unwrap(), Copying::Never, None).unwrap();
    assert_eq!((some.shape(), some.strides()), (&[2, 2][..], &[1, 3][..]));
    assert_eq!(elements(&some), [1, 4, 2, 5]);
    // One row is one value of each column, wherever the values are.
    assert_eq!(plan_batch(&seen(&whole, &[1, 3], &[3, 1])), Plan::View);

    // Row-major needs a copy.
    let error = batch(&whole, &[], Copying::Never).unwrap_err();
    assert_eq!(error.status(), DEVX_COPY_REQUIRED);
    let table = batch(&whole, &[], Copying::IfNeeded).unwrap();
    assert_eq!((table.n_columns(), table.column(2).unwrap().field().name()), (3, "2"));
    assert_eq!(table.column(2).unwrap().values::<i32>().unwrap(), [2, 5]);

    // Columns of different tensors.
    let (first, second) = (column(&tall_one(1), "", Copying::Never), column(&tall_one(7), "", Copying::Never));
    let (first, second) = (first.unwrap(), second.unwrap());
    let far = Batch::of_columns(&[("x", &second), ("y", &first), ("z", &second)], None).unwrap();
    let Plan::Copy { bytes, reason } = plan_matrix(&far).unwrap() else { panic!("columns in one place") };
    assert_eq!((bytes, reason.contains("equal distances")), (36, true));
    assert_eq!(matrix(&far, Copying::Never, None).unwrap_err().status(), DEVX_COPY_REQUIRED);
    let copied = matrix(&far, Copying::IfNeeded, None).unwrap();
    assert_eq!((copied.shape(), elements(&copied)), (&[3, 3][..], vec![7, 1, 7, 8, 2, 8, 9, 3, 9]));
    drop((first, second, far));
    assert_eq!(elements(&copied), [7, 1, 7, 8, 2, 8, 9, 3, 9]);

    // One column begins within the other; a producer can do this, but a matrix must not.
    let long = Tensor::from_vec((0..4000_i32).collect(), &[4000]).unwrap();
    let at = |first, rows| column(&long.slice(0, first, rows).unwrap(), "", Copying::Never).unwrap();
    let pair = |first, second| Batch::of_columns(&[("a", &first), ("b", &second)], None).unwrap();
    let within = pair(at(0, 2), at(1, 2));
    let begins = "each column begins 4 bytes after the one before it, which has 8 bytes";
    assert_eq!(self::reason(plan_matrix(&within).unwrap()), begins);
    // The memory between two columns belongs to somebody else, unless they are columns of one tensor or of one copy.
    assert_eq!(plan_matrix(&pair(at(0, 2), at(2, 2))).unwrap(), Plan::View);
    let apart = pair(at(0, 2), at(3, 2));
    let between = "there are 4 bytes between the columns, which may belong to somebody else";
    assert_eq!(self::reason(plan_matrix(&apart).unwrap()), between);
    let copied = apart.copy().unwrap();
    assert_eq!((plan_matrix(&copied), plan_matrix(&copied.slice(1, 1).unwrap())), (Ok(Plan::View), Ok(Plan::View)));
    assert_eq!(elements(&matrix(&copied, Copying::Never, None).unwrap()), [0, 3, 1, 4]);
    let wide = batch(&seen(&long, &[2, 3], &[1, 1000]), &[], Copying::Never).unwrap();
    let back = matrix(&wide, Copying::Never, None).unwrap();
    assert_eq!((back.strides(), elements(&back)), (&[1, 1000][..], vec![0, 1000, 2000, 1, 1001, 2001]));

    assert_eq!(batch(&whole, &["one"], Copying::IfNeeded).unwrap_err().status(), DEVX_MISMATCH);
    let cube = Tensor::from_vec(vec![0_i32; 8], &[2, 2, 2]).unwrap();
    assert!(self::reason(plan_batch(&cube)).contains("two dimensions"));
    let empty = Tensor::from_vec(Vec::<i32>::new(), &[0, 3]).unwrap();
    let table = batch(&empty, &[], Copying::Never).unwrap();
    assert_eq!(matrix(&table, Copying::Never, None).unwrap().shape(), [0, 3]);
    // A tensor without elements: its strides mean nothing, and its extents can be anything.
    let table = batch(&seen(&whole, &[0, 3], &[1, i64::MAX / 2]), &[], Copying::Never).unwrap();
    assert_eq!((table.n_columns(), table.length()), (3, 0));
    assert!(self::reason(plan_batch(&seen(&whole, &[0, i64::MAX], &[1, 1]))).contains("fewer than 1048576 columns"));
    assert!(self::reason(plan_batch(&seen(&whole, &[2, 1 << 20], &[1, 0]))).contains("fewer than 1048576 columns"));
    assert_eq!(
        batch(&seen(&whole, &[0, i64::MAX], &[1, 1]), &[], Copying::Always).unwrap_err().status(),
        DEVX_IMPOSSIBLE
    );
}

fn tall_one(from: i32) -> Tensor {
    Tensor::from_vec((from..from + 3).collect(), &[3]).unwrap()
}

#[test]
fn what_is_no_matrix() {
    let plan = |columns: &[(&str, &Batch)]| reason(plan_matrix(&Batch::of_columns(columns, None).unwrap()).unwrap());
    let ints = column(&tall_one(1), "", Copying::Never).unwrap();
    let floats = column(&Tensor::from_vec(vec![0.0_f64; 3], &[3]).unwrap(), "", Copying::Never).unwrap();
    assert_eq!(plan(&[("n", &ints), ("x", &floats)]), "column \"x\" is float64, the first one is int32");
    static BITS: [u8; 1] = [0b110];
    static VALUES: [i32; 3] = [1, 2, 3];
    let holes = ArrayBuilder::new("", "i", 3).buffer(BITS.as_ptr().cast()).buffer(VALUES.as_ptr().cast());
    // SAFETY: the buffers are static.
    let holes = unsafe { holes.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    assert_eq!(
        plan(&[("n", &ints), ("h", &holes)]),
        "1 values of column \"h\" are null, which a tensor cannot express"
    );
    let dates = ArrayBuilder::new("", "tdD", 3).buffer(BITS.as_ptr().cast()).buffer(VALUES.as_ptr().cast());
    // SAFETY: the buffers are static.
    let dates = unsafe { dates.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    assert_eq!(plan(&[("n", &holes), ("d", &dates)]), "column \"d\" is date32, the first one is int32");
    let keys = || ArrayBuilder::new("", "i", 3).buffer(null()).buffer(VALUES.as_ptr().cast());
    // SAFETY: the buffers are static.
    let coded = unsafe { keys().dictionary(keys()).build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    for columns in [&[("c", &coded)][..], &[("n", &ints), ("c", &coded)]] {
        assert_eq!(plan(columns), "the int32 values of column \"c\" are indices into a dictionary");
    }
    // SAFETY: there are no columns.
    let none = unsafe { ArrayBuilder::batch(3).build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    assert_eq!(reason(plan_matrix(&none).unwrap()), "the batch has no columns, so the matrix would have no dtype");
    assert_eq!(reason(plan_matrix(&ints).unwrap()), "the array is int32 and has no columns: only a record batch has");
}

/// Addresses are not read here: any number can stand there.
#[test]
fn columns_may_be_any_distance_apart() {
    let plan = |starts: &[usize]| {
        let column = |&start: &usize| {
            let values = std::ptr::without_provenance::<i64>(start).cast();
            ArrayBuilder::new("", "l", 2).buffer(null()).buffer(values).null_count(0)
        };
        let table = starts.iter().map(column).fold(ArrayBuilder::batch(2), ArrayBuilder::child);
        // SAFETY: the values are not read.
        let table = unsafe { table.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
        plan_matrix(&table).unwrap()
    };
    let half = 1 << 63;
    for starts in [[16, half, 32], [half, 16, half - 16], [half - 16, half, half + 32], [half, 8, 16]] {
        assert!(reason(plan(&starts)).contains("equal distances"), "{starts:x?}");
    }
    assert_eq!(plan(&[half - 16, half, half + 16]), Plan::View);
    assert!(reason(plan(&[32, 16])).contains("begins -16 bytes after the one before it, which has 16 bytes"));
    let largest = "there are 9223372036854775791 bytes between the columns";
    assert!(reason(plan(&[16, half + 15])).contains(largest));
}

#[test]
fn null_rows_are_no_rows_of_a_matrix() {
    static BITS: [u8; 1] = [0b101];
    static VALUES: [i32; 3] = [1, 2, 3];
    let column = ArrayBuilder::new("n", "i", 3).buffer(null()).buffer(VALUES.as_ptr().cast()).null_count(0);
    let rows = ArrayBuilder::new("", "+s", 3).buffer(BITS.as_ptr().cast()).child(column);
    // SAFETY: the buffers are static.
    let rows = unsafe { rows.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    assert_eq!(reason(plan_matrix(&rows).unwrap()), "1 of 3 rows are null, which a tensor cannot express");
    assert_eq!(matrix(&rows, Copying::IfNeeded, None).unwrap_err().status(), DEVX_IMPOSSIBLE);
}

#[test]
fn values_that_are_not_aligned_are_copied() {
    #[repr(align(4))]
    struct Aligned([u8; 33]);
    static BYTES: Aligned = {
        let mut bytes = [0; 33];
        let mut i = 0;
        while i < 8 {
            let [a, b, c, d] = (10 * i as i32).to_ne_bytes();
            (bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3], bytes[4 * i + 4]) = (a, b, c, d);
            i += 1;
        }
        Aligned(bytes)
    };
    let ints = |name, length, at: usize| {
        let values = BYTES.0.as_ptr().wrapping_add(1 + 4 * at).cast();
        ArrayBuilder::new(name, "i", length).buffer(null()).buffer(values).null_count(0)
    };
    // SAFETY: the buffers are static.
    let made = |array: ArrayBuilder| unsafe { array.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();

    let lists = made(ArrayBuilder::new("", "+w:2", 3).buffer(null()).offset(1).child(ints("item", 8, 0)));
    let Plan::Copy { bytes, reason } = plan_tensor(lists.root()).unwrap() else { panic!("seen where they are") };
    assert_eq!((bytes, reason.ends_with("are not aligned to 4 bytes")), (24, true), "{reason}");
    assert_eq!(tensor(lists.root(), Copying::Never).unwrap_err().status(), DEVX_COPY_REQUIRED);
    for copy in [Copying::IfNeeded, Copying::Always] {
        let copied = tensor(lists.root(), copy).unwrap();
        assert_eq!((copied.shape(), copied.flags()), (&[3, 2][..], Flags::IS_COPIED));
        assert_eq!(copied.as_slice::<i32>().unwrap(), [20, 30, 40, 50, 60, 70]);
    }

    let table = made(ArrayBuilder::batch(4).child(ints("a", 4, 0)).child(ints("b", 4, 4)));
    let Plan::Copy { bytes, reason } = plan_matrix(&table).unwrap() else { panic!("seen where they are") };
    assert_eq!((bytes, reason.ends_with("are not aligned to 4 bytes")), (32, true), "{reason}");
    assert_eq!(matrix(&table, Copying::Never, None).unwrap_err().status(), DEVX_COPY_REQUIRED);
    let copied = matrix(&table, Copying::IfNeeded, None).unwrap();
    assert_eq!(elements(&copied), [0, 40, 10, 50, 20, 60, 30, 70]);

    // Without values, there is nothing to be aligned.
    let none = made(ints("", 0, 0));
    assert!(none.root().values::<i32>().unwrap().is_empty());
    assert_eq!(plan_tensor(none.root()).unwrap(), Plan::View);
    assert_eq!(tensor(none.root(), Copying::Never).unwrap().shape(), [0]);
    let none = made(ArrayBuilder::batch(0).child(ints("a", 0, 0)));
    assert_eq!(plan_matrix(&none).unwrap(), Plan::View);
    assert_eq!(matrix(&none, Copying::Never, None).unwrap().shape(), [0, 1]);
}

#[test]
fn what_is_too_much_for_a_tensor_is_impossible() {
    static VALUES: [i64; 1] = [1];
    let of = |dimensions: usize| {
        let values = ArrayBuilder::new("item", "l", 1).buffer(null()).buffer(VALUES.as_ptr().cast());
        let list = ArrayBuilder::new("", "+w:1", 1).buffer(null()).child(values);
        let parameters = format!("{{\"shape\":{:?}}}", vec![1; dimensions]);
        let list = list.metadata(EXTENSION_NAME, "arrow.fixed_shape_tensor").metadata(EXTENSION_METADATA, parameters);
        // SAFETY: the value is static.
        unsafe { list.build(Device::CPU) }.map_err(|refused| refused.error).unwrap()
    };
    assert_eq!(plan_tensor(of(63).root()).unwrap(), Plan::View);
    assert_eq!(tensor(of(63).root(), Copying::Never).unwrap().shape(), [1; 64]);
    let said = reason(plan_tensor(of(64).root()).unwrap());
    assert!(said.contains("there are 65 dimensions: a tensor has at most 64"), "{said}");
    assert_eq!(tensor(of(64).root(), Copying::IfNeeded).unwrap_err().status(), DEVX_IMPOSSIBLE);

    // Each column alone can be addressed, but all together cannot.
    let rows = 1 << 59;
    let column = || ArrayBuilder::new("", "l", rows).buffer(null()).buffer(VALUES.as_ptr().cast()).null_count(0);
    let table = (0..4).fold(ArrayBuilder::batch(rows), |table, _| table.child(column()));
    // SAFETY: the values are not read.
    let table = unsafe { table.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    let said = reason(plan_matrix(&table).unwrap());
    assert!(said.contains("more than can be addressed"), "{said}");
    assert_eq!(matrix(&table, Copying::IfNeeded, None).unwrap_err().status(), DEVX_IMPOSSIBLE);
}

#[test]
fn an_empty_tensor_with_more_lists_than_can_be_counted_is_no_column() {
    let none = Tensor::from_vec(Vec::<i32>::new(), &[0]).unwrap();
    let far = 1 << 30;
    let empty = seen(&none, &[far, far, far, 0], &[1, 1, 1, 1]);
    let said = reason(plan_column(&empty));
    assert!(said.ends_with("there are more lists than an int64 can count"), "{said}");
    assert_eq!(column(&empty, "", Copying::Always).unwrap_err().status(), DEVX_IMPOSSIBLE);
    let empty = seen(&none, &[far, far, 0, far], &[1, 1, 1, 1]);
    assert_eq!(plan_column(&empty), Plan::View);
    let made = column(&empty, "", Copying::Never).unwrap();
    assert_eq!(tensor(made.root(), Copying::Never).unwrap().shape(), [far, far, 0, far]);
}
