//! Rows and columns of a batch as separate batches, parts of tensors as tensors: their offsets and nulls, what is
//! refused, and what they keep alive. `arrow_rs` checks with arrow-rs that batches of every type hold the right
//! values.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use core::ffi::c_void;
use std::ptr::{NonNull, null};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use devexchange_core::abi::arrow_data::ArrowArray;
use devexchange_core::abi::dlpack::{DLDataType, DLManagedTensor, DLManagedTensorVersioned, kDLInt};
use devexchange_core::abi::types::{
    DEVX_COPY_REQUIRED, DEVX_DEVICE, DEVX_IMPOSSIBLE, DEVX_INVALID_BUFFERS, DEVX_OUT_OF_RANGE,
};
use devexchange_core::arrow::format::{Buffer, Buffers};
use devexchange_core::arrow::{ArrayBuilder, Type, release_array};
use devexchange_core::convert::{Plan, plan_tensor};
use devexchange_core::dlpack::Owned;
use devexchange_core::{Batch, DType, Device, Flags, Owner, Refused, Tensor, TensorDesc, ipc};

static NUMBERS: [i32; 6] = [0, 10, 20, 30, 40, 50];
static VALID: [u8; 1] = [0b10_1101];

fn at<T: Sync>(values: &'static [T]) -> *const c_void {
    values.as_ptr().cast()
}

fn numbers(name: &str, length: i64) -> ArrayBuilder {
    ArrayBuilder::new(name, "i", length).buffer(null()).buffer(at(&NUMBERS)).null_count(0)
}

fn built(array: ArrayBuilder) -> Batch {
    // SAFETY: the buffers are static, with six values each.
    unsafe { array.build(Device::CPU) }.map_err(|refused| refused.error).unwrap()
}

fn shown(batch: &Batch) -> Vec<String> {
    (0..batch.length()).map(|row| batch.root().value(row).unwrap().to_string()).collect()
}

#[test]
fn rows_that_are_not_there_are_refused() {
    let batch = built(ArrayBuilder::batch(4).child(numbers("n", 4)));
    for (offset, length) in [(-1, 2), (0, 5), (1, -1), (3, 2), (5, 0), (1, i64::MAX), (i64::MIN, i64::MIN)] {
        for refused in [batch.slice(offset, length).map(drop), batch.root().slice(offset, length).map(drop)] {
            let error = refused.unwrap_err();
            assert_eq!(error.status(), DEVX_OUT_OF_RANGE);
            let expected = format!("offset is {offset} and length is {length}: there are 4 rows");
            assert_eq!(error.message(), expected);
        }
    }
    // A column of a slice has the rows of the slice.
    let slice = batch.slice(1, 2).unwrap();
    assert_eq!(slice.column(0).unwrap().slice(2, 1).unwrap_err().status(), DEVX_OUT_OF_RANGE);
    assert!(shown(&batch.slice(4, 0).unwrap()).is_empty());
}

#[test]
fn a_record_batch_starts_at_row_0() {
    // As exported by a producer whose batch is itself a slice.
    let batch = built(ArrayBuilder::batch(3).offset(2).child(numbers("n", 6)).child(numbers("m", 6)));
    for (slice, first) in [(batch.slice(0, 3).unwrap(), 2), (batch.slice(1, 2).unwrap(), 3)] {
        assert_eq!(slice.root().offset(), 0);
        for column in slice.columns() {
            assert_eq!((column.offset(), column.length(), column.null_count().unwrap()), (first, slice.length(), 0));
        }
    }
    assert_eq!(shown(&batch.slice(1, 2).unwrap()), ["{\"n\": 30, \"m\": 30}", "{\"n\": 40, \"m\": 40}"]);
}

#[test]
fn nulls_of_some_rows_are_not_known() {
    let column = ArrayBuilder::new("n", "i", 6).buffer(at(&VALID)).buffer(at(&NUMBERS)).null_count(2);
    let group = ArrayBuilder::new("s", "+s", 6).buffer(at(&VALID)).null_count(2).child(column);
    let batch = built(ArrayBuilder::batch(6).child(group));
    let slice = batch.slice(1, 4).unwrap();
    let group = slice.column(0).unwrap();
    assert_eq!((group.known_null_count(), group.null_count().unwrap(), group.offset()), (-1, 2, 1));
    // The validity of a struct is a separate buffer, with a separate offset.
    let alone = group.share().unwrap();
    assert_eq!((alone.root().offset(), alone.length(), alone.n_columns()), (1, 4, 1));
    assert_eq!(shown(&alone), ["null", "{\"n\": 20}", "{\"n\": 30}", "null"]);
    let all = batch.column(0).unwrap().share().unwrap();
    assert_eq!(all.root().known_null_count(), 2);
}

/// Counting nulls needs the host, but not if there are no rows.
#[test]
fn no_rows_of_a_device_have_no_nulls() {
    let values = ArrayBuilder::new("n", "i", 6).buffer(at(&VALID)).buffer(at(&NUMBERS)).null_count(2);
    // SAFETY: nobody reads the buffers, which are in no memory of that device.
    let batch = unsafe { values.build(Device::cuda(0)) }.map_err(|refused| refused.error).unwrap();
    assert_eq!(batch.slice(1, 2).unwrap().root().null_count().unwrap_err().status(), DEVX_DEVICE);
    for start in [0, 3, 6] {
        let none = batch.slice(start, 0).unwrap();
        assert_eq!((none.root().known_null_count(), none.root().null_count().unwrap()), (0, 0));
        assert_eq!(plan_tensor(none.root()).unwrap(), Plan::View);
    }
}

#[test]
fn parts_of_lists() {
    let list = ArrayBuilder::new("l", "+l", 3).buffer(null()).buffer(at(&[0, 2, 2, 6])).child(numbers("item", 6));
    let batch = built(ArrayBuilder::batch(3).child(list));
    let last = batch.column(0).unwrap().list(2).unwrap();
    let item = last.slice(1, 2).unwrap().share().unwrap();
    assert_eq!((item.root().field().name(), shown(&item)), ("item", vec!["30".to_owned(), "40".to_owned()]));
    // A new batch, under other names: some columns of one batch, and some rows.
    let ends = batch.slice(1, 2).unwrap();
    let list = ends.column(0).unwrap().share().unwrap();
    let pair = Batch::of_columns(&[("ends", &list), ("item", &item)], None).unwrap();
    assert_eq!(shown(&pair), ["{\"ends\": [], \"item\": 30}", "{\"ends\": [20, 30, 40, 50], \"item\": 40}"]);
}

/// What lies before a slice is not copied with it, except up to seven more rows of bits.
#[test]
fn a_copy_takes_what_is_seen() {
    static MANY: [i32; 64] = {
        let mut many = [0; 64];
        let mut i = 0;
        while i < 64 {
            many[i] = i as i32;
            i += 1;
        }
        many
    };
    static BITS: [u8; 8] = [0b1010_1010, 0xff, 0, 0b1100_1100, 0b1111_0000, 0b0000_1111, 1, 0x80];
    let plain = || ArrayBuilder::new("n", "i", 64).buffer(null()).buffer(at(&MANY)).null_count(0);
    let columns = [
        plain(),
        ArrayBuilder::new("v", "i", 64).buffer(at(&BITS)).buffer(at(&MANY)),
        ArrayBuilder::new("b", "b", 64).buffer(null()).buffer(at(&BITS)),
        ArrayBuilder::new("s", "+s", 64).buffer(null()).child(plain()),
        ArrayBuilder::new("w", "+s", 64).buffer(at(&BITS)).child(plain()),
        ArrayBuilder::new("f", "+w:1", 64).buffer(at(&BITS)).child(plain()),
    ];
    let whole = built(columns.into_iter().fold(ArrayBuilder::batch(64), ArrayBuilder::child));
    for (start, length) in [(0, 64), (8, 56), (13, 40), (63, 1), (64, 0), (37, 3)] {
        let slice = whole.slice(start, length).unwrap();
        let copy = slice.copy().unwrap();
        assert_eq!(shown(&copy), shown(&slice), "{length} rows from {start}");
        let offsets = |index| {
            let column = copy.column(index).unwrap();
            (column.offset(), column.child(0).map(|child| child.offset()))
        };
        // The offsets are 0, although bits are moved for this, because some consumers ignore offsets.
        assert_eq!([0, 1, 2].map(offsets), [(0, None); 3]);
        assert_eq!([3, 4, 5].map(offsets), [(0, Some(0)); 3]);
        let alone = whole.column(1).unwrap().slice(start, length).unwrap().share().unwrap().copy().unwrap();
        assert_eq!(alone.root().offset(), 0);
    }
}

#[test]
fn memory_is_kept_until_the_last_part_is_gone() {
    let released = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&released);
    let owner = Owner::on_release(move || {
        count.fetch_add(1, SeqCst);
    });
    let batch = built(ArrayBuilder::batch(6).child(numbers("n", 6)).owner(owner));
    let slice = batch.slice(2, 2).unwrap();
    let column = slice.column(0).unwrap().share().unwrap();
    drop((batch, slice));
    assert_eq!(released.load(SeqCst), 0);
    assert_eq!(column.root().values::<i32>().unwrap(), [20, 30]);
    drop(column);
    assert_eq!(released.load(SeqCst), 1);
}

fn tensor(dtype: DType, shape: &[i64], strides: Option<&[i64]>, first: usize, flags: Flags, owner: Owner) -> Tensor {
    let data = NUMBERS.as_ptr().wrapping_add(first).cast_mut().cast();
    let desc = TensorDesc { data, device: Device::CPU, dtype, shape, strides, byte_offset: 0, flags };
    // SAFETY: the tests describe elements of static memory.
    unsafe { Tensor::from_raw_parts(&desc, owner) }.unwrap()
}

fn numbered(tensor: &Tensor) -> Vec<i32> {
    tensor.copy().unwrap().as_slice::<i32>().unwrap().to_vec()
}

#[test]
fn parts_of_a_tensor() {
    let released = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&released);
    let owner = Owner::on_release(move || {
        count.fetch_add(1, SeqCst);
    });
    let whole = tensor(DType::INT32, &[2, 3], None, 0, Flags::READ_ONLY.with(Flags::IS_COPIED), owner);
    let row = whole.slice(0, 1, 1).unwrap();
    let columns = whole.slice(1, 1, 2).unwrap();
    let last = columns.slice(0, 1, 1).unwrap().slice(1, 1, 1).unwrap();
    assert_eq!((row.shape(), numbered(&row)), (&[1, 3][..], vec![30, 40, 50]));
    assert_eq!((columns.shape(), columns.strides()), (&[2, 2][..], &[3, 1][..]));
    assert_eq!(numbered(&columns), [10, 20, 40, 50]);
    assert_eq!((last.shape(), numbered(&last)), (&[1, 1][..], vec![50]));
    // Others hold the memory, too.
    assert_eq!((row.flags(), whole.slice(0, 0, 2).unwrap().data()), (Flags::READ_ONLY, whole.data()));
    let none = whole.slice(1, 3, 0).unwrap();
    assert_eq!((none.shape(), none.layout().elements), (&[2, 0][..], 0));
    drop((whole, row, columns));
    assert_eq!(released.load(SeqCst), 0);
    drop((last, none));
    assert_eq!(released.load(SeqCst), 1);
    // Backwards, and one element repeated.
    let odd = tensor(DType::INT32, &[6, 4], Some(&[-1, 0]), 5, Flags::default(), Owner::none());
    let part = odd.slice(0, 2, 3).unwrap().slice(1, 3, 1).unwrap();
    assert_eq!((part.strides()[0], part.data()), (-1, NUMBERS.as_ptr().wrapping_add(3).cast_mut().cast()));
}

#[test]
fn parts_that_a_tensor_has_not() {
    let whole = tensor(DType::INT32, &[2, 3], None, 0, Flags::default(), Owner::none());
    for (dimension, offset, length, expected) in [
        (2, 0, 1, "dimension is 2: the tensor has 2"),
        (-1, 0, 1, "dimension is -1: the tensor has 2"),
        (0, 2, 1, "offset is 2 and length is 1: dimension 0 has an extent of 2"),
        (1, -1, 1, "offset is -1 and length is 1: dimension 1 has an extent of 3"),
        (1, 0, -1, "offset is 0 and length is -1: dimension 1 has an extent of 3"),
        (1, 1, i64::MAX, "offset is 1 and length is 9223372036854775807: dimension 1 has an extent of 3"),
    ] {
        let error = whole.slice(dimension, offset, length).unwrap_err();
        assert_eq!((error.status(), error.message()), (DEVX_OUT_OF_RANGE, expected));
    }
}

#[test]
fn a_copy_of_rows_has_those_alone() {
    const ROWS: i64 = 100;
    static MANY: [i32; ROWS as usize] = [7; ROWS as usize];
    // The struct's own offset decides which rows it has, and so what is taken of its children.
    let inside = ArrayBuilder::new("n", "i", ROWS).buffer(null()).buffer(at(&MANY)).null_count(0);
    let batch = built(ArrayBuilder::batch(ROWS).child(ArrayBuilder::new("s", "+s", ROWS).buffer(null()).child(inside)));
    // Each buffer takes whole lines of 64 bytes.
    assert!(matches!(ipc::plan_batch(&batch), Plan::Copy { bytes: 448, .. }));
    let rows = batch.slice(50, 10).unwrap();
    assert!(matches!(ipc::plan_batch(&rows), Plan::Copy { bytes: 64, .. }));
    let copy = ipc::copy_batch(&rows).unwrap();
    assert_eq!(shown(&copy), shown(&rows));
    // A child does not claim more than that either; only a consumer would believe it.
    let mut array = ArrowArray::RELEASED;
    // SAFETY: there is room.
    unsafe { copy.export(&mut array) }.unwrap();
    let first_child = |array: &ArrowArray| {
        // SAFETY: the array has one child.
        let children = unsafe { std::slice::from_raw_parts(array.children, 1) };
        // SAFETY: well-formed, and not released yet.
        children.first().map(|&child| unsafe { *child }).unwrap()
    };
    let pair = first_child(&array);
    let inside = first_child(&pair);
    assert_eq!([pair.offset + pair.length, inside.offset + inside.length], [10, 10]);
    // SAFETY: owned here.
    unsafe { release_array(&mut array) };
}

#[test]
fn a_copy_of_texts_begins_with_their_first_offset() {
    static OFFSETS: [i32; 41] = {
        let mut offsets = [0; 41];
        let mut row = 0;
        while row < 40 {
            offsets[row + 1] = offsets[row] + 1 + row as i32 % 2;
            row += 1;
        }
        offsets
    };
    static TEXT: [u8; 60] = *b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ01234567";
    let texts = ArrayBuilder::new("t", "u", 40).buffer(null()).buffer(at(&OFFSETS)).buffer(at(&TEXT));
    let rows = built(ArrayBuilder::batch(40).child(texts)).slice(21, 4).unwrap();
    assert_eq!(shown(&ipc::copy_batch(&rows).unwrap()), shown(&rows));
}

/// A hundred rows, of a hundred values each.
const MANY: i64 = 100;

/// An array of offsets that refer to the same number of bytes or elements in each row.
fn rows_of(name: &str, format: &str, each: i64) -> ArrayBuilder {
    let multiples = (0..=MANY).map(|row| row * each);
    let offsets: Vec<u8> = match Type::parse(format).unwrap().buffers() {
        Buffers::Two(Buffer::Offsets(8)) | Buffers::Three(8) => multiples.flat_map(i64::to_ne_bytes).collect(),
        _ => multiples.flat_map(|offset| (offset as i32).to_ne_bytes()).collect(),
    };
    let array = ArrayBuilder::new(name, format, MANY).buffer(null()).buffer(offsets.as_ptr().cast());
    array.owner(Owner::new(offsets))
}

fn long(name: &str, format: &str) -> ArrayBuilder {
    static TEXT: [u8; 10_000] = [b'x'; 10_000];
    rows_of(name, format, MANY).buffer(at(&TEXT))
}

fn values(format: &str) -> ArrayBuilder {
    static MANY_VALUES: [i32; 10_000] = [7; 10_000];
    static NULLS_IN_FRONT: [u8; 1250] = {
        let mut bits = [0xff; 1250];
        bits[0] = 0b1010_0110;
        bits
    };
    ArrayBuilder::new("item", format, MANY * MANY).buffer(at(&NULLS_IN_FRONT)).buffer(at(&MANY_VALUES)).null_count(4)
}

/// The bytes of a copy in memory that other processes can open; 0 if none is needed.
fn cost(batch: &Batch) -> usize {
    match ipc::plan_batch(batch) {
        Plan::Copy { bytes, .. } => bytes,
        _ => 0,
    }
}

#[test]
fn a_copy_of_a_row_costs_what_the_row_costs() {
    let entries = || {
        let value = rows_of("value", "+l", 0).child(numbers("item", 0));
        ArrayBuilder::new("entries", "+s", MANY).buffer(null()).child(long("key", "u")).child(value)
    };
    let list_of = |format, child| rows_of("x", format, 1).child(child);
    // Each buffer takes whole lines of 64 bytes.
    let (offsets, text, valid, numbers) = (64, 128, 64, 448);
    for (array, expected) in [
        (long("x", "u"), offsets + text),
        (long("x", "z"), offsets + text),
        (long("x", "U"), offsets + text),
        (long("x", "Z"), offsets + text),
        (rows_of("x", "+l", MANY).child(values("i")), offsets + valid + numbers),
        (rows_of("x", "+L", MANY).child(values("i")), offsets + valid + numbers),
        (rows_of("x", "+l", MANY).child(values("b")), offsets + valid + 64),
        (list_of("+l", rows_of("y", "+L", MANY).child(values("i"))), offsets + offsets + valid + numbers),
        (list_of("+L", long("y", "u")), offsets + offsets + text),
        (list_of("+m", entries()), offsets + (offsets + text) + offsets),
        (ArrayBuilder::new("x", "+w:1", MANY).buffer(null()).child(long("y", "U")), offsets + text),
    ] {
        let batch = built(ArrayBuilder::batch(MANY).child(array));
        for row in [0, 50, MANY - 1] {
            let rows = batch.slice(row, 1).unwrap();
            assert_eq!(cost(&rows), expected, "row {row} of {:?}", batch.schema());
            for copy in [rows.copy().unwrap(), ipc::copy_batch(&rows).unwrap()] {
                assert_eq!(shown(&copy), shown(&rows));
            }
        }
        let none = batch.slice(MANY, 0).unwrap();
        // An offset for each array that has any.
        assert!(cost(&none) <= 3 * offsets, "{:?}", batch.schema());
        assert!(shown(&none.copy().unwrap()).is_empty());
    }
}

/// A producer says how many there are in the whole child, which is more than a copy takes.
#[test]
fn nulls_of_a_copied_child_are_its_own() {
    let lists = built(rows_of("x", "+l", MANY).child(values("i")));
    for (row, nulls) in [(0, 4), (1, 0)] {
        let copy = lists.slice(row, 1).unwrap().copy().unwrap();
        let child = copy.root().child(0).unwrap();
        assert_eq!((child.offset(), child.length(), child.null_count().unwrap()), (0, MANY, nulls));
    }
    assert_eq!(lists.copy().unwrap().root().child(0).unwrap().known_null_count(), 4);
}

#[test]
fn offsets_that_cannot_be_are_refused_by_copies() {
    let text = |offsets| ArrayBuilder::new("t", "u", 1).buffer(null()).buffer(offsets).buffer(at(b"abc"));
    let list = |offsets| ArrayBuilder::new("x", "+l", 1).buffer(null()).buffer(offsets);
    let texts = ArrayBuilder::new("t", "u", 2).buffer(null()).buffer(at(&[0_i32, 1000, 3])).buffer(at(b"abc"));
    for (array, said) in [
        (text(at(&[0_i32, -1])), "array \"t\": the last offset is -1: it must not be negative"),
        (text(at(&[-1_i32, 3])), "array \"t\": the first offset is -1 and the last one is 3: they must ascend from 0"),
        (text(at(&[3_i32, 2])), "array \"t\": the first offset is 3 and the last one is 2: they must ascend from 0"),
        (
            list(at(&[i32::MIN, 2])).child(numbers("n", 6)),
            "array \"x\": the first offset is -2147483648 and the last one is 2: they must ascend from 0",
        ),
        (list(at(&[0_i32, 7])).child(numbers("n", 6)), "array \"x\": the last offset is 7: the child has length 6"),
        // Those of the whole child say that there are three bytes.
        (
            list(at(&[0_i32, 1])).child(texts),
            "array \"t\": the offset at 1 is 1000, the last one of the array is 3: they must ascend",
        ),
    ] {
        let batch = built(array);
        for refused in [batch.copy(), ipc::copy_batch(&batch)] {
            let error = refused.unwrap_err();
            assert_eq!((error.status(), error.message()), (DEVX_INVALID_BUFFERS, said));
        }
    }
    // Those in between are not looked at before a row is read.
    let list = ArrayBuilder::new("x", "+l", 2).buffer(null()).buffer(at(&[3_i32, i32::MIN, 6])).child(numbers("n", 6));
    let copy = built(list).copy().unwrap();
    for row in 0..2 {
        assert_eq!(copy.root().list(row).unwrap_err().status(), DEVX_INVALID_BUFFERS);
    }
}

/// The columnar format allows an array without elements to have no offsets. A producer can pass NULL for them, or the
/// address of a vector that has never had memory.
#[test]
fn texts_without_rows_need_no_offsets() {
    for offsets in [null(), NonNull::<i32>::dangling().as_ptr().cast_const().cast()] {
        let texts = ArrayBuilder::new("t", "u", 0).buffer(null()).buffer(offsets).buffer(at(b"never read"));
        let batch = built(ArrayBuilder::batch(0).child(texts));
        for copy in [batch.copy().unwrap(), ipc::copy_batch(&batch).unwrap()] {
            assert_eq!((copy.length(), copy.column(0).unwrap().length()), (0, 0));
        }
    }
}

/// Also of elements that have no type in Rust.
#[test]
fn bytes_of_a_tensor() {
    let with = |dtype, shape: &[i64], flags| tensor(dtype, shape, None, 1, flags, Owner::none());
    let bytes: Vec<_> = NUMBERS.iter().skip(1).flat_map(|number| number.to_ne_bytes()).collect();
    let int4 = DType::from_dlpack(DLDataType { code: kDLInt, bits: 4, lanes: 1 }).unwrap();
    for (tensor, length) in [
        (with(DType::BOOL, &[3], Flags::default()), 3),
        (with(DType::INT32, &[2, 2], Flags::default()), 16),
        (with(int4, &[5], Flags::default()), 3),
        (with(int4, &[5], Flags::SUBBYTE_PADDED), 5),
        (with(DType::INT32, &[0, 2], Flags::default()), 0),
    ] {
        assert_eq!(Some(tensor.as_bytes().unwrap()), bytes.get(..length), "{tensor:?}");
    }
    let apart = tensor(DType::INT32, &[2], Some(&[2]), 0, Flags::default(), Owner::none());
    assert_eq!(apart.as_bytes().unwrap_err().status(), DEVX_COPY_REQUIRED);
}

/// So that `?` can pass them to code that collects errors of all kinds.
#[test]
fn refusals_are_errors_on_any_thread() {
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<Refused<Owned<DLManagedTensor>>>();
    is_error::<Refused<Owned<DLManagedTensorVersioned>>>();
    is_error::<Refused<devexchange_core::cuda_array::Owned>>();
    is_error::<Refused<Box<ArrayBuilder>>>();
    is_error::<Refused<Batch>>();
    is_error::<Refused<Tensor>>();
}

#[test]
fn elements_that_share_bytes() {
    let int4 = DType::from_dlpack(DLDataType { code: kDLInt, bits: 4, lanes: 1 }).unwrap();
    let packed = tensor(int4, &[8], None, 0, Flags::default(), Owner::none());
    assert_eq!(packed.slice(0, 2, 3).unwrap().data(), packed.data().wrapping_byte_add(1));
    let error = packed.slice(0, 3, 3).unwrap_err();
    let expected = "offset is 3: the first element, int4 with a stride of 1, begins within a byte";
    assert_eq!((error.status(), error.message()), (DEVX_IMPOSSIBLE, expected));
    assert_eq!(packed.slice(0, 3, 0).unwrap().layout().elements, 0);
    let padded = tensor(int4, &[8], None, 0, Flags::SUBBYTE_PADDED, Owner::none());
    assert_eq!(padded.slice(0, 3, 3).unwrap().data(), padded.data().wrapping_byte_add(3));
}
