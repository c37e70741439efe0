//! Arrays, schemas and readers of arrow-rs: every type both ways at the same addresses, refusals, readers that fail.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use core::ffi::c_void;
use std::collections::HashMap;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::builder::*;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit, UnionFields, UnionMode};

use devexchange_core::abi::types::*;
use devexchange_core::arrow::builder::ArrayBuilder as OurBuilder;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{Column, Type};
use devexchange_core::{Batch, BatchStream, Device, DeviceType, Error, Owner, Result, ledger};

/// One test at a time, as the ledger counts for the whole process: what a test does not release, it fails for.
struct Alone(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

fn alone() -> Alone {
    static ONE: Mutex<()> = Mutex::new(());
    Alone(ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(ledger::outstanding(), 0);
        }
    }
}

#[track_caller]
fn check_error<T>(result: Result<T>, status: DevxStatus, part: &str) {
    let error = result.map(drop).unwrap_err();
    assert_eq!(error.status(), status, "{error}");
    assert!(error.message().contains(part), "{:?} lacks {part:?}", error.message());
}

// ---- every type ----

fn primitive<T: ArrowPrimitiveType>(data_type: DataType) -> ArrayRef {
    let mut builder = PrimitiveBuilder::<T>::new().with_data_type(data_type);
    builder.append_value(T::Native::ONE);
    builder.append_null();
    builder.append_value(T::Native::ZERO);
    builder.append_value(T::Native::MAX_TOTAL_ORDER);
    builder.append_null();
    builder.append_value(T::Native::MIN_TOTAL_ORDER);
    Arc::new(builder.finish())
}

fn primitives() -> Vec<ArrayRef> {
    macro_rules! of {
        ($($of:ty)*) => { vec![$(primitive::<$of>(<$of>::DATA_TYPE)),*] };
    }
    let mut all = of! {
        Int8Type Int16Type Int32Type Int64Type UInt8Type UInt16Type UInt32Type UInt64Type
        Float16Type Float32Type Float64Type Date32Type Date64Type
        Time32SecondType Time32MillisecondType Time64MicrosecondType Time64NanosecondType
        TimestampSecondType TimestampMillisecondType TimestampMicrosecondType TimestampNanosecondType
        DurationSecondType DurationMillisecondType DurationMicrosecondType DurationNanosecondType
        IntervalYearMonthType IntervalDayTimeType IntervalMonthDayNanoType
    };
    all.extend([
        primitive::<Decimal32Type>(DataType::Decimal32(9, 2)),
        primitive::<Decimal64Type>(DataType::Decimal64(18, -3)),
        primitive::<Decimal128Type>(DataType::Decimal128(38, 10)),
        primitive::<Decimal256Type>(DataType::Decimal256(76, 38)),
        primitive::<TimestampSecondType>(DataType::Timestamp(TimeUnit::Second, Some("+01:00".into()))),
        primitive::<TimestampNanosecondType>(DataType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Zurich".into()))),
    ]);
    all
}

const TEXTS: [Option<&str>; 6] =
    [Some("a"), None, Some(""), Some("a text that is too long for a view"), Some("ä"), Some("another text like that")];

fn texts() -> Vec<ArrayRef> {
    let bytes = || TEXTS.into_iter().map(|text| text.map(str::as_bytes));
    let mut fixed = FixedSizeBinaryBuilder::new(3);
    for value in [Some(b"abc"), None, Some(b"def"), None, None, Some(b"ghi")] {
        match value {
            Some(value) => fixed.append_value(value).unwrap(),
            None => fixed.append_null(),
        }
    }
    vec![
        Arc::new(StringArray::from_iter(TEXTS)),
        Arc::new(LargeStringArray::from_iter(TEXTS)),
        Arc::new(StringViewArray::from_iter(TEXTS)),
        Arc::new(BinaryArray::from_iter(bytes())),
        Arc::new(LargeBinaryArray::from_iter(bytes())),
        Arc::new(BinaryViewArray::from_iter(bytes())),
        Arc::new(fixed.finish()),
    ]
}

fn lists() -> Vec<ArrayRef> {
    const LISTS: [Option<&[Option<i32>]>; 6] =
        [Some(&[Some(1), None]), None, Some(&[]), Some(&[Some(4), Some(5), Some(6)]), Some(&[None]), Some(&[Some(8)])];
    fn list<O: OffsetSizeTrait>() -> ArrayRef {
        let mut builder = GenericListBuilder::<O, _>::new(Int32Builder::new());
        LISTS.into_iter().for_each(|list| builder.append_option(list.map(|list| list.iter().copied())));
        Arc::new(builder.finish())
    }
    fn list_view<O: OffsetSizeTrait>() -> ArrayRef {
        let mut builder = GenericListViewBuilder::<O, _>::new(Int32Builder::new());
        LISTS.into_iter().for_each(|list| builder.append_option(list.map(|list| list.iter().copied())));
        Arc::new(builder.finish())
    }
    let mut fixed = FixedSizeListBuilder::new(Int32Builder::new(), 2);
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for (row, list) in LISTS.into_iter().enumerate() {
        fixed.values().append_slice(&[row as i32, 7]);
        fixed.append(list.is_some());
        for value in list.unwrap_or_default() {
            map.keys().append_value(format!("key {row}"));
            map.values().append_option(*value);
        }
        map.append(list.is_some()).unwrap();
    }
    let (map, fixed) = (Arc::new(map.finish()), Arc::new(fixed.finish()));
    vec![list::<i32>(), list::<i64>(), list_view::<i32>(), list_view::<i64>(), fixed, map]
}

fn dictionaries() -> Vec<ArrayRef> {
    macro_rules! of {
        ($($of:ty)*) => { vec![$(Arc::new(TEXTS.into_iter().collect::<DictionaryArray<$of>>()) as ArrayRef),*] };
    }
    of! { Int8Type Int16Type Int32Type Int64Type UInt8Type UInt16Type UInt32Type UInt64Type }
}

fn runs() -> Vec<ArrayRef> {
    let values = [Some("a"), Some("a"), None, None, Some("b"), Some("b")];
    vec![
        Arc::new(RunArray::<Int16Type>::from_iter(values)),
        Arc::new(RunArray::<Int32Type>::from_iter(values)),
        Arc::new(RunArray::<Int64Type>::from_iter(values)),
    ]
}

fn unions() -> Vec<ArrayRef> {
    [UnionBuilder::new_sparse(), UnionBuilder::new_dense()]
        .into_iter()
        .map(|mut builder| {
            for row in 0..3 {
                builder.append::<Int32Type>("n", row).unwrap();
                builder.append::<Float64Type>("x", f64::from(row)).unwrap();
            }
            builder.append_null::<Int32Type>("n").unwrap();
            Arc::new(builder.build().unwrap()) as ArrayRef
        })
        .collect()
}

fn flat() -> Vec<ArrayRef> {
    let bools = BooleanArray::from(vec![Some(true), None, Some(false), Some(true), None, Some(true)]);
    let mut all: Vec<ArrayRef> = vec![Arc::new(NullArray::new(6)), Arc::new(bools)];
    all.extend([primitives(), texts(), lists(), dictionaries(), runs()].concat());
    all
}

/// Each array of `flat` as a member of a struct, every second struct being null, and each struct in a list.
fn nested() -> Vec<ArrayRef> {
    let structs = |member: &ArrayRef| {
        let mut valid = BooleanBuilder::new();
        valid.append_slice(&[true, false, true, false, true, true]);
        let fields = Fields::from(vec![Field::new("member", member.data_type().clone(), true)]);
        let nulls = valid.finish().values().clone().into();
        Arc::new(StructArray::new(fields, vec![Arc::clone(member)], Some(nulls))) as ArrayRef
    };
    let in_list = |values: ArrayRef| {
        let field = Arc::new(Field::new("item", values.data_type().clone(), true));
        Arc::new(FixedSizeListArray::new(field, 2, values, None)) as ArrayRef
    };
    flat().iter().map(structs).flat_map(|of| [Arc::clone(&of), in_list(of)]).collect()
}

fn all() -> Vec<ArrayRef> {
    [flat(), unions(), nested()].concat()
}

/// The addresses of all buffers that hold something; without validity, which arrow-rs copies for some slices, and
/// without the sizes of views, which it makes for each export.
fn addresses(column: Column<'_>) -> Vec<*const c_void> {
    let ty = column.ty();
    let buffers = column.buffers();
    let first = usize::from(ty.buffers().has_validity());
    let last = buffers.len() - usize::from(matches!(ty, Type::Utf8View | Type::BinaryView));
    let own = if column.length() == 0 { &[] } else { &buffers[first.min(last)..last] };
    let below = column.children().chain(column.dictionary());
    own.iter().copied().chain(below.flat_map(addresses)).collect()
}

fn check_round_trip(array: &ArrayRef) {
    let what = array.data_type();
    let ours = Batch::from_arrow_rs(array).unwrap();
    let root = ours.root();
    assert_eq!((root.length(), root.field().is_nullable()), (array.len() as i64, true), "{what}");
    if !root.ty().is_union() && root.ty() != Type::RunEndEncoded && root.ty() != Type::Null {
        assert_eq!(root.null_count().unwrap(), array.null_count() as i64, "{what}");
    }
    let data = array.to_data();
    if !data.is_empty() {
        let first = usize::from(root.ty().buffers().has_validity());
        for (k, buffer) in data.buffers().iter().enumerate() {
            assert_eq!(root.buffers()[first + k], buffer.as_ptr().cast(), "{what}: buffer {k}");
        }
    }
    let back = ours.to_arrow_rs().unwrap();
    assert_eq!(&back, array, "{what}");
    back.to_data().validate_full().unwrap();
    let again = Batch::from_arrow_rs(&back).unwrap();
    assert_eq!(addresses(again.root()), addresses(root), "{what}");
    let shown = |batch: &Batch| -> Vec<String> {
        (0..batch.length()).map(|row| batch.root().value(row).unwrap().to_string()).collect()
    };
    assert_eq!(shown(&again), shown(&ours), "{what}");
    assert_eq!(format!("{:?}", ours.schema()), format!("{:?}", again.schema()));
}

#[test]
fn every_type_both_ways_without_a_copy() {
    let _alone = alone();
    for array in all() {
        check_round_trip(&array);
    }
}

#[test]
fn slices() {
    let _alone = alone();
    for array in all() {
        for offset in 0..array.len() {
            for length in 0..=array.len() - offset {
                check_round_trip(&array.slice(offset, length));
            }
        }
    }
}

#[test]
fn our_slices_are_theirs() {
    let _alone = alone();
    for array in all() {
        let ours = Batch::from_arrow_rs(&array).unwrap();
        for (offset, length) in
            (0..=array.len()).flat_map(|offset| (0..=array.len() - offset).map(move |n| (offset, n)))
        {
            let what = format!("{} from {offset}, {length} rows", array.data_type());
            let slice = ours.slice(offset as i64, length as i64).unwrap();
            check_rows(&slice, &array.slice(offset, length), &what);
            assert_eq!(format!("{:?}", slice.schema()), format!("{:?}", ours.schema()), "{what}");
            for half in [0, length / 2] {
                let again = slice.slice(half as i64, (length - half) as i64).unwrap();
                check_rows(&again, &array.slice(offset + half, length - half), &what);
            }
        }
    }
}

/// Whether a batch shows what an array of theirs does, as theirs and by itself, at the same addresses as the whole.
fn check_rows(ours: &Batch, theirs: &ArrayRef, what: &str) {
    let back = ours.to_arrow_rs().unwrap();
    assert_eq!(&back, theirs, "{what}");
    back.to_data().validate_full().unwrap();
    let expected = Batch::from_arrow_rs(theirs).unwrap();
    let shown = |batch: &Batch| -> Vec<String> {
        (0..batch.length()).map(|row| batch.root().value(row).unwrap().to_string()).collect()
    };
    assert_eq!(shown(ours), shown(&expected), "{what}");
    let copy = ours.copy().unwrap();
    assert_eq!(shown(&copy), shown(&expected), "{what}, copied");
    copy.to_arrow_rs().unwrap().to_data().validate_full().unwrap();
}

#[test]
fn columns_by_themselves() {
    let _alone = alone();
    let of_six = |array: ArrayRef| (array.len() >= 6).then(|| array.slice(0, 6));
    let columns: Vec<ArrayRef> = all().into_iter().filter_map(of_six).collect();
    let fields: Vec<Field> =
        (0..).zip(&columns).map(|(k, of)| Field::new(format!("c{k}"), of.data_type().clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let theirs = RecordBatch::try_new(schema, columns.clone()).unwrap();
    let whole = Batch::try_from(&theirs).unwrap();
    for (offset, length) in [(0, 6), (1, 4), (3, 0), (5, 1)] {
        let ours = whole.slice(offset, length).unwrap();
        let (offset, length) = (offset as usize, length as usize);
        assert_eq!(RecordBatch::try_from(&ours).unwrap(), theirs.slice(offset, length));
        for (column, array) in ours.columns().zip(&columns) {
            let alone = column.share().unwrap();
            let what = format!("column {} from {offset}, {length} rows", array.data_type());
            assert_eq!(alone.root().field().name(), column.field().name());
            check_rows(&alone, &array.slice(offset, length), &what);
            for child in column.children() {
                let below = child.share().unwrap();
                let expected: Vec<String> =
                    (0..child.length()).map(|row| child.value(row).unwrap().to_string()).collect();
                let shown: Vec<String> =
                    (0..below.length()).map(|row| below.root().value(row).unwrap().to_string()).collect();
                assert_eq!(shown, expected, "{what}");
                below.to_arrow_rs().unwrap().to_data().validate_full().unwrap();
            }
        }
    }
}

#[test]
fn values_are_what_they_were() {
    let _alone = alone();
    let shown = |array: &dyn Array| -> Vec<String> {
        let ours = Batch::from_arrow_rs(array).unwrap();
        (0..ours.length()).map(|row| ours.root().value(row).unwrap().to_string()).collect()
    };
    assert_eq!(shown(&primitive::<Int16Type>(DataType::Int16)), ["1", "null", "0", "32767", "null", "-32768"]);
    assert_eq!(shown(&primitive::<Decimal32Type>(DataType::Decimal32(9, 2)))[..3], ["0.01", "null", "0.00"]);
    for list in &lists()[..4] {
        assert_eq!(shown(list), ["[1, null]", "null", "[]", "[4, 5, 6]", "[null]", "[8]"]);
    }
    for union in unions() {
        assert_eq!(shown(&union)[..3], ["0", "0", "1"], "{}", union.data_type());
    }
    for text in &texts()[..3] {
        assert_eq!(shown(text)[2..5], ["\"\"", "\"a text that is too long for a view\"", "\"ä\""]);
    }
    for run in runs() {
        assert_eq!(shown(&run), ["\"a\"", "\"a\"", "null", "null", "\"b\"", "\"b\""]);
    }
    for dictionary in dictionaries() {
        assert_eq!(shown(&dictionary)[..3], ["\"a\"", "null", "\"\""]);
    }
}

#[test]
fn zero_rows_of_ours_may_come_without_buffers() {
    let _alone = alone();
    let empty = |format, buffers| (0..buffers).fold(OurBuilder::new("c", format, 0), |array, _| array.buffer(null()));
    let list = |format, buffers| empty(format, buffers).child(empty("u", 3));
    let entries = || empty("+s", 1).child(empty("u", 3).flags(0)).child(empty("vu", 4)).flags(0);
    let arrays = [
        empty("n", 0),
        empty("i", 2),
        empty("u", 3),
        empty("Z", 3),
        empty("vu", 3),
        // Data buffers without sizes.
        empty("vz", 5),
        list("+l", 2),
        list("+L", 2),
        list("+vl", 3),
        list("+w:3", 1),
        empty("+m", 2).child(entries()),
        empty("+us:0", 1).child(empty("u", 3)),
        empty("+ud:0", 2).child(empty("u", 3)),
        empty("+r", 0).child(empty("i", 2).flags(0)).child(empty("u", 3)),
        empty("c", 2).dictionary(empty("u", 3)),
    ];
    for array in arrays {
        // SAFETY: there are no values.
        let batch = unsafe { array.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
        let theirs = batch.to_arrow_rs().unwrap();
        theirs.to_data().validate_full().unwrap();
        assert_eq!(theirs.len(), 0);
    }
}

// ---- schemas ----

#[test]
fn schemas_both_ways() {
    let _alone = alone();
    let text = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    let point = [("ARROW:extension:name", "geo.point"), ("ARROW:extension:metadata", "{}"), ("unit", "°")];
    let entries = Fields::from(vec![Field::new("k", DataType::Utf8, false), Field::new("v", DataType::Int8, true)]);
    let map = DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), true);
    let words = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::LargeUtf8));
    let mut fields = vec![
        Field::new("point", DataType::FixedSizeBinary(16), false).with_metadata(text(&point)),
        Field::new("map", map, true),
        Field::new("ordered", words.clone(), true).with_dict_is_ordered(true),
        Field::new("unordered", words, false),
        Field::new("", DataType::Null, true),
    ];
    fields.extend(all().iter().map(|array| Field::new("ä", array.data_type().clone(), true)));
    let theirs = Schema::new_with_metadata(fields, text(&[("of", "all"), ("", "")]));
    let ours = devexchange_core::Schema::try_from(&theirs).unwrap();
    assert_eq!(Schema::try_from(&ours).unwrap(), theirs);

    let root = ours.root();
    assert_eq!((root.name(), root.ty(), root.n_children()), ("", Type::Struct, theirs.fields().len()));
    assert_eq!(root.metadata().count(), 2);
    let field = |index| root.child(index).unwrap();
    assert_eq!(field(0).extension(), Some((&b"geo.point"[..], &b"{}"[..])));
    assert_eq!([0, 1, 2, 3].map(|index| field(index).flags()), [0, 2 | 4, 2 | 1, 0]);
    for (index, theirs) in theirs.fields().iter().enumerate() {
        assert_eq!(&Field::try_from(field(index)).unwrap(), theirs.as_ref());
        let alone = devexchange_core::Schema::try_from(theirs.as_ref()).unwrap();
        assert_eq!(&Field::try_from(alone.root()).unwrap(), theirs.as_ref());
        assert_eq!(alone.root().ty(), field(index).ty());
    }
    let ours = devexchange_core::Schema::try_from(&Schema::empty()).unwrap();
    assert_eq!(Schema::try_from(&ours).unwrap(), Schema::empty());
}

#[test]
fn what_the_other_side_cannot_say_is_refused_by_name() {
    let _alone = alone();
    let parse = |fields: &[FieldDesc<'_>]| devexchange_core::Schema::new(fields).unwrap();
    let list = FieldDesc { n_children: 1, ..FieldDesc::new(c"list", c"+l") };
    let ours = parse(&[FieldDesc::batch(2), FieldDesc::new(c"n", c"i"), list, FieldDesc::new(c"odd", c"+us:")]);
    check_error(Schema::try_from(&ours), DEVX_UNSUPPORTED, "field \"odd\": format is \"+us:\": ");
    check_error(Field::try_from(ours.root().child(1).unwrap()), DEVX_UNSUPPORTED, "field \"odd\"");
    let block = devexchange_core::arrow::metadata::encode(&[(b"k", b"\xff")]).unwrap();
    let bytes = FieldDesc { metadata: Some(&block), ..FieldDesc::new(c"bytes", c"i") };
    check_error(Schema::try_from(&parse(&[FieldDesc::batch(1), bytes])), DEVX_UNSUPPORTED, "field \"bytes\"");
    let number = parse(&[FieldDesc::new(c"n", c"i")]);
    check_error(Schema::try_from(&number), DEVX_MISMATCH, "the array is int32");

    let theirs = Schema::new(vec![Field::new("n", DataType::Int8, true), Field::new("a\0b", DataType::Int8, true)]);
    check_error(devexchange_core::Schema::try_from(&theirs), DEVX_UNSUPPORTED, "field \"a\\0b\": ");
    check_error(devexchange_core::Schema::try_from(theirs.field(1)), DEVX_UNSUPPORTED, "field \"a\\0b\": ");
    let odd = Field::new("odd", DataType::Time32(TimeUnit::Nanosecond), true);
    check_error(devexchange_core::Schema::try_from(&odd), DEVX_UNSUPPORTED, "field \"odd\": ");
    let deep = (0..70).fold(Field::new("x", DataType::Int8, true), |below, _| Field::new_list("l", below, true));
    check_error(devexchange_core::Schema::try_from(&deep), DEVX_TOO_DEEP, "");
}

// ---- record batches ----

fn record_batch(first: i32) -> RecordBatch {
    let metadata = HashMap::from([("made".to_owned(), "by hand".to_owned())]);
    let fields = vec![Field::new("n", DataType::Int32, false), Field::new("t", DataType::Utf8, true)];
    let texts: ArrayRef = Arc::new(StringArray::from_iter([Some("a"), None, Some("c")]));
    let numbers = Arc::new(Int32Array::from_iter_values(first..first + 3));
    RecordBatch::try_new(Arc::new(Schema::new_with_metadata(fields, metadata)), vec![numbers, texts]).unwrap()
}

#[test]
fn record_batches_both_ways() {
    let _alone = alone();
    let theirs = record_batch(1);
    let address = theirs["n"].as_primitive::<Int32Type>().values().as_ptr();
    let ours = Batch::try_from(&theirs).unwrap();
    assert_eq!((ours.length(), ours.n_columns(), ours.device()), (3, 2, Device::CPU));
    let numbers = ours.column_named("n").unwrap().values::<i32>().unwrap();
    assert_eq!((numbers, numbers.as_ptr()), (&[1, 2, 3][..], address));
    let back = RecordBatch::try_from(&ours).unwrap();
    assert_eq!(back, theirs);
    assert_eq!(back.schema(), theirs.schema());
    assert_eq!(back["n"].as_primitive::<Int32Type>().values().as_ptr(), address);
    drop((ours, theirs));
    assert_eq!(back.slice(1, 2)["t"].as_string::<i32>().value(1), "c");

    let sliced = Batch::try_from(&back.slice(1, 2)).unwrap();
    assert_eq!(sliced.column(0).unwrap().values::<i32>().unwrap(), [2, 3]);
    let none = RecordBatch::new_empty(back.schema());
    assert_eq!(RecordBatch::try_from(&Batch::try_from(&none).unwrap()).unwrap(), none);
    let options = RecordBatchOptions::new().with_row_count(Some(5));
    let no_columns = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    assert_eq!(RecordBatch::try_from(&Batch::try_from(&no_columns).unwrap()).unwrap().num_rows(), 5);
}

#[test]
fn an_array_may_get_a_field() {
    let _alone = alone();
    let metadata = HashMap::from([("unit".to_owned(), "m".to_owned())]);
    let field = Field::new("length", DataType::Int16, false).with_metadata(metadata);
    let array = Int16Array::from(vec![1, 2]);
    let ours = Batch::from_arrow_rs_as(&array, &field).unwrap();
    assert_eq!(Field::try_from(ours.schema().root()).unwrap(), field);
    assert_eq!(ours.to_arrow_rs().unwrap().as_ref(), &array as &dyn Array);
    let wrong = field.with_data_type(DataType::Int32);
    check_error(
        Batch::from_arrow_rs_as(&array, &wrong),
        DEVX_MISMATCH,
        "field \"length\": the type is Int32, the array's",
    );
}

/// A union of which arrow-rs is told another order of the fields than it was made with, as `of` wraps it; the rows are all
/// of the second one.
fn fields_in_another_order(of: fn(ArrayRef) -> ArrayRef) -> RecordBatch {
    let type_of = |ids: [i8; 2]| {
        let fields =
            ids.map(|id| Field::new(format!("f{id}"), [DataType::Int8, DataType::Int64][id as usize].clone(), true));
        UnionFields::try_new(ids, fields).unwrap()
    };
    let children: Vec<ArrayRef> = vec![Arc::new(Int8Array::from(vec![1; 4])), Arc::new(Int64Array::from(vec![42; 4]))];
    let made = UnionArray::try_new(type_of([0, 1]), vec![1; 4].into(), None, children).unwrap();
    let turned = new_empty_array(&DataType::Union(type_of([1, 0]), UnionMode::Sparse));
    let batch = RecordBatch::try_from_iter([("u", of(Arc::new(made)))]).unwrap();
    batch.with_schema(RecordBatch::try_from_iter([("u", of(turned))]).unwrap().schema()).unwrap()
}

#[test]
fn a_schema_that_says_something_else_than_the_columns() {
    type Way = (fn(ArrayRef) -> ArrayRef, &'static str);
    let _alone = alone();
    let in_struct = |array: ArrayRef| Arc::new(StructArray::try_from(vec![("m", array)]).unwrap()) as ArrayRef;
    let in_list = |array: ArrayRef| {
        let field = Arc::new(Field::new("item", array.data_type().clone(), true));
        Arc::new(FixedSizeListArray::new(field, 1, array, None)) as ArrayRef
    };
    let in_dictionary = |array: ArrayRef| {
        Arc::new(DictionaryArray::new(Int32Array::from_iter_values(0..array.len() as i32), array)) as ArrayRef
    };
    let ways: [Way; 4] = [(|array| array, "u"), (in_struct, "m"), (in_list, "item"), (in_dictionary, "u")];
    for (of, name) in ways {
        let batch = fields_in_another_order(of);
        let part = &format!("field {name:?}: the type is Union(");
        check_error(Batch::try_from(&batch), DEVX_MISMATCH, part);
        check_error(Batch::from_arrow_rs(&StructArray::from(batch.clone())), DEVX_MISMATCH, part);
        check_error(BatchStream::from_arrow_rs(reader_of(&[batch])).unwrap().next(), DEVX_MISMATCH, part);
    }
    // What only names, metadata and whether there may be nulls tell apart is taken.
    let list = in_list(Arc::new(Int32Array::from(vec![1, 2])));
    let element = Field::new("element", DataType::Int32, true).with_metadata(HashMap::from([("a".into(), "b".into())]));
    let schema = Schema::new(vec![Field::new("l", DataType::FixedSizeList(Arc::new(element), 1), true)]);
    let options = RecordBatchOptions::new().with_match_field_names(false);
    let batch = RecordBatch::try_new_with_options(Arc::new(schema), vec![list], &options).unwrap();
    let ours = Batch::try_from(&batch).unwrap();
    assert_eq!(ours.column(0).unwrap().field().child(0).unwrap().name(), "element");
    assert_eq!(RecordBatch::try_from(&ours).unwrap().schema(), batch.schema());
}

/// A record batch of ours whose rows are sliced at two levels; `released` counts.
fn our_batch(released: &Arc<AtomicUsize>) -> Batch {
    let numbers = vec![0_i32, 1, 2, 3, 4, 5];
    let seen = Arc::clone(released);
    let column = OurBuilder::new("n", "i", 4).offset(1).buffer(null()).buffer(numbers.as_ptr().cast());
    let owner = Owner::on_release(move || {
        drop(numbers);
        seen.fetch_add(1, SeqCst);
    });
    // SAFETY: the owner has the numbers.
    unsafe { OurBuilder::batch(2).offset(1).child(column.owner(owner)).build(Device::CPU) }.unwrap()
}

#[test]
fn memory_is_released_once_by_whoever_is_last() {
    let _alone = alone();
    let released = Arc::new(AtomicUsize::new(0));
    let ours = our_batch(&released);
    let address = ours.column(0).unwrap().values::<i32>().unwrap().as_ptr();
    let theirs = RecordBatch::try_from(&ours).unwrap();
    let twice = RecordBatch::try_from(&ours).unwrap();
    drop((ours, twice));
    let column = Arc::clone(theirs.column(0));
    drop(theirs);
    assert_eq!(column.as_primitive::<Int32Type>().values()[..], [2, 3]);
    assert_eq!(column.as_primitive::<Int32Type>().values().as_ptr(), address);
    assert_eq!((released.load(SeqCst), ledger::read().batch_exports.live), (0, 1));
    std::thread::spawn(move || drop(column)).join().unwrap();
    assert_eq!(released.load(SeqCst), 1);
}

/// A batch of this column is refused as a whole, and nothing of it is kept or lost.
#[track_caller]
fn check_refused(rows: i64, column: OurBuilder, device: Device, status: DevxStatus, part: &str) {
    let released = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&released);
    let owner = Owner::on_release(move || {
        seen.fetch_add(1, SeqCst);
    });
    let rows = OurBuilder::batch(rows).child(column).owner(owner);
    // SAFETY: what is wrong with the buffers is seen before they are read.
    let batch = unsafe { rows.build(device) }.map_err(|refused| refused.error).unwrap();
    check_error(batch.to_arrow_rs(), status, part);
    check_error(RecordBatch::try_from(&batch), status, part);
    assert_eq!(released.load(SeqCst), 0);
    drop(batch);
    assert_eq!(released.load(SeqCst), 1);
}

#[test]
fn only_host_memory() {
    let _alone = alone();
    let numbers = [1_i32, 2];
    let column = || OurBuilder::new("n", "i", 2).buffer(null()).buffer(numbers.as_ptr().cast());
    let cuda = Device { kind: DeviceType::CUDA, id: 0 };
    check_refused(2, column(), cuda, DEVX_DEVICE, "device is cuda:0, not host memory");
}

#[test]
fn data_that_arrow_rs_would_trip_over() {
    let _alone = alone();
    let offsets = [0_i32, 1, -2, 0];
    let large = [0_i64, -3];
    let sizes = [1_i64, -1];
    let (offsets, large, sizes) = (offsets.as_ptr(), large.as_ptr(), sizes.as_ptr());
    let text =
        |format, rows, at: *const c_void| OurBuilder::new("t", format, rows).buffer(null()).buffer(at).buffer(at);
    let check = |rows, column, part| check_refused(rows, column, Device::CPU, DEVX_INVALID_BUFFERS, part);
    check(2, text("u", 2, offsets.cast()), "array \"t\": buffers[1][2] is -2");
    check(1, text("z", 1, offsets.wrapping_byte_add(2).cast()), "array \"t\": buffers[1] is 0x");
    check(1, text("U", 1, large.cast()), "array \"t\": buffers[1][1] is -3");
    check(1, text("Z", 1, large.wrapping_byte_add(4).cast()), "not aligned to 8 bytes");
    let view = text("vu", 1, large.cast()).buffer(large.cast()).buffer(sizes.cast());
    check(1, view, "array \"t\": buffers[4][1] is -1");
    let view = text("vz", 1, large.cast()).buffer(large.wrapping_byte_add(1).cast());
    check(1, view, "array \"t\": buffers[3] is 0x");
    let ends = [0_i32, 1];
    let missing = OurBuilder::new("t", "u", 1).buffer(null()).buffer(ends.as_ptr().cast()).buffer(null());
    check(1, missing, "array \"t\": buffers[2] is NULL, but buffers[1][1] is 1");
    let view = OurBuilder::new("t", "vu", 1).buffer(null()).buffer(large.cast()).buffer(null()).buffer(sizes.cast());
    check(1, view, "array \"t\": buffers[2] is NULL, but buffers[3][0] is 1");
    // As many bits as no usize counts.
    let rows = 0xffff_fffe;
    let wide = OurBuilder::new("w", "w:2147483647", rows).null_count(0).buffer(null()).buffer(large.cast());
    check_refused(rows, wide, Device::CPU, DEVX_PANIC, "a panic on the side of arrow-rs: ");
}

#[test]
fn values_that_are_not_aligned_are_copied() {
    let _alone = alone();
    #[repr(align(16))]
    struct Bytes([u8; 24]);
    let mut bytes = Box::new(Bytes([0; 24]));
    bytes.0[8..].copy_from_slice(&7_i128.to_ne_bytes());
    let column = OurBuilder::new("", "d:5,2", 1).buffer(null()).buffer(bytes.0[8..].as_ptr().cast());
    // SAFETY: the owner has the bytes.
    let batch = unsafe { column.owner(Owner::new(bytes)).build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    assert_eq!(batch.to_arrow_rs().unwrap().as_primitive::<Decimal128Type>().values()[..], [7]);
}

#[test]
fn nulls_where_arrow_rs_has_none() {
    let _alone = alone();
    let (valid, numbers) = ([0b01_u8], [1_i32, 2]);
    let (valid, numbers) = (valid.as_ptr().cast(), numbers.as_ptr().cast());
    let required = OurBuilder::new("n", "i", 2).flags(0).buffer(valid).buffer(numbers);
    // SAFETY: the arrays outlive the batch.
    let batch = unsafe { OurBuilder::batch(2).child(required).build(Device::CPU) }.map_err(|refused| refused.error);
    check_error(RecordBatch::try_from(&batch.unwrap()), DEVX_INVALID_NULL_COUNT, "'n' is declared as non-nullable");
    let column = OurBuilder::new("n", "i", 2).buffer(null()).buffer(numbers);
    let rows = OurBuilder::new("", "+s", 2).buffer(valid).child(column);
    // SAFETY: as above.
    let batch = unsafe { rows.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    check_error(RecordBatch::try_from(&batch), DEVX_INVALID_NULL_COUNT, "null_count is 1: arrow-rs has no null rows");
    assert_eq!(batch.to_arrow_rs().unwrap().null_count(), 1);
    let column = Batch::from_arrow_rs(&Int32Array::from(vec![1])).unwrap();
    check_error(RecordBatch::try_from(&column), DEVX_MISMATCH, "the array is int32: a record batch is a struct");
}

// ---- readers ----

type Item = std::result::Result<RecordBatch, ArrowError>;

/// A reader of what it was made of. An item that is not there is a panic.
struct Items(SchemaRef, std::vec::IntoIter<Option<Item>>);

impl Items {
    fn new(items: impl IntoIterator<Item = Option<Item>>) -> Self {
        Self(record_batch(0).schema(), items.into_iter().collect::<Vec<_>>().into_iter())
    }
}

impl Iterator for Items {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        self.1.next().map(|item| item.unwrap())
    }
}

impl RecordBatchReader for Items {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }
}

#[test]
fn readers_both_ways() {
    let _alone = alone();
    let batches = [1, 4, 7].map(record_batch);
    let address = |batch: &RecordBatch| batch["n"].as_primitive::<Int32Type>().values().as_ptr();
    // Each with a schema of its own, which is equal.
    let stream = BatchStream::from_arrow_rs(Items::new(batches.clone().map(|batch| Some(Ok(batch))))).unwrap();
    assert_eq!((stream.device_type(), stream.schema().root().n_children()), (DeviceType::CPU, 2));
    let first = stream.next().unwrap().unwrap();
    assert_eq!(first.column(0).unwrap().values::<i32>().unwrap().as_ptr(), address(&batches[0]));
    let mut reader = stream.to_arrow_rs().unwrap();
    drop((stream, first));
    assert_eq!(reader.schema(), batches[0].schema());
    let rest: Vec<_> = reader.by_ref().map(|batch| batch.unwrap()).collect();
    assert_eq!(rest, batches[1..]);
    assert_eq!(rest.iter().map(address).collect::<Vec<_>>(), batches[1..].iter().map(address).collect::<Vec<_>>());
    assert!(reader.next().is_none());
    // On another thread, and not to the end.
    let stream = BatchStream::from_arrow_rs(reader_of(&batches)).unwrap();
    let reader = stream.to_arrow_rs().unwrap();
    let take = |mut reader: devexchange_core::arrow_rs::Reader| reader.next().unwrap().unwrap();
    assert_eq!(std::thread::spawn(move || take(reader)).join().unwrap(), batches[0]);
}

fn reader_of(batches: &[RecordBatch]) -> impl RecordBatchReader + Send + 'static {
    let (schema, batches) = (batches[0].schema(), batches.to_vec());
    RecordBatchIterator::new(batches.into_iter().map(Ok), schema)
}

#[test]
fn a_reader_that_fails_in_the_middle() {
    let _alone = alone();
    let io = std::io::Error::from_raw_os_error(5);
    let external = ArrowError::from_external_error("out of ink".into());
    let cases = [
        (ArrowError::ParseError("line 3 is odd".to_owned()), DEVX_CALLBACK, 22, "Parser error: line 3 is odd"),
        (ArrowError::IoError("the disk".to_owned(), io), DEVX_CALLBACK, 5, "Io error: the disk"),
        (ArrowError::MemoryError("none".to_owned()), DEVX_CALLBACK, 12, "Memory or buffer error: none"),
        (ArrowError::NotYetImplemented("x".to_owned()), DEVX_CALLBACK, 95, "Not yet implemented: x"),
        (external, DEVX_CALLBACK, 5, "out of ink"),
        (Error::new(DEVX_CLOSED, "ours").into(), DEVX_CLOSED, 0, "ours"),
    ];
    for (error, status, errno, text) in cases {
        let said = error.to_string();
        let items = [Some(Ok(record_batch(0))), Some(Err(error)), Some(Ok(record_batch(3)))];
        let stream = BatchStream::from_arrow_rs(Items::new(items)).unwrap();
        stream.next().unwrap().unwrap();
        let error = stream.next().unwrap_err();
        assert_eq!((error.status(), error.errno()), (status, errno), "{said}");
        assert!(error.message().contains(text) || error.message().contains(&said), "{error}");
        assert_eq!(stream.next().unwrap_err(), error);
        // It is told once to arrow-rs, and is the same error when it comes back.
        let mut reader = stream.to_arrow_rs().unwrap();
        let told = reader.next().unwrap().unwrap_err();
        assert!(told.to_string().contains(error.message()), "{told}");
        let ArrowError::ExternalError(inner) = told else { unreachable!("{told}") };
        assert_eq!(*inner.downcast::<Error>().unwrap(), error);
        assert!(reader.next().is_none());
    }
}

#[test]
fn a_reader_that_panics() {
    let _alone = alone();
    let stream = BatchStream::from_arrow_rs(Items::new([Some(Ok(record_batch(0))), None])).unwrap();
    stream.next().unwrap().unwrap();
    check_error(stream.next(), DEVX_PANIC, "called `Option::unwrap()` on a `None` value");
    check_error(stream.next(), DEVX_PANIC, "");

    struct NoSchema;
    impl Iterator for NoSchema {
        type Item = Item;
        fn next(&mut self) -> Option<Item> {
            None
        }
    }
    impl RecordBatchReader for NoSchema {
        fn schema(&self) -> SchemaRef {
            unreachable!("nobody knows the schema")
        }
    }
    check_error(BatchStream::from_arrow_rs(NoSchema), DEVX_PANIC, "nobody knows the schema");
}

#[test]
fn batches_of_another_schema() {
    let _alone = alone();
    let fields = |name, number| vec![Field::new(name, number, true), Field::new("t", DataType::Utf8, true)];
    let columns = record_batch(5).columns().to_vec();
    let batch =
        |name, number, columns| RecordBatch::try_new(Arc::new(Schema::new(fields(name, number))), columns).unwrap();
    let renamed = batch("other", DataType::Int32, columns.clone());
    let marked = Schema::new_with_metadata(fields("n", DataType::Int32), [("of".to_string(), "us".to_string())]);
    let marked = RecordBatch::try_new(Arc::new(marked), columns.clone()).unwrap();
    let dates: ArrayRef = Arc::new(columns[0].as_primitive::<Int32Type>().reinterpret_cast::<Date32Type>());
    let columns = vec![dates, Arc::clone(&columns[1])];
    let different = batch("n", DataType::Date32, columns);
    for (second, says) in [
        (different, "field \"n\": the format is \"tdD\", the stream's is \"i\""),
        (renamed, "column 0 is named \"other\", the stream's \"n\""),
    ] {
        let items = Items::new([marked.clone(), second].map(|batch| Some(Ok(batch))));
        let mut reader = BatchStream::from_arrow_rs(items).unwrap().to_arrow_rs().unwrap();
        let first = reader.next().unwrap().unwrap();
        assert_eq!((first.schema(), first.num_rows()), (reader.schema(), 3));
        let error = reader.next().unwrap().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(reader.next().is_none());
    }
}

#[test]
fn a_stream_of_what_is_no_record_batch() {
    let _alone = alone();
    let number = devexchange_core::Schema::new(&[FieldDesc::new(c"n", c"i")]).unwrap();
    let stream = BatchStream::of(&number, DeviceType::CPU, std::iter::empty()).unwrap();
    check_error(stream.to_arrow_rs(), DEVX_MISMATCH, "the array is int32");
}
