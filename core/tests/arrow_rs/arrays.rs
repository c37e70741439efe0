//! Every type both ways, at the same addresses.

use super::*;

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

/// Each array of `flat` as a member of a struct; every second struct is null, and each struct is in a list.
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

pub(super) fn all() -> Vec<ArrayRef> {
    [flat(), unions(), nested()].concat()
}

/// The addresses of all non-empty buffers, except validity, which arrow-rs copies for some slices, and the sizes of
/// views, which it makes for each export.
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

/// Checks that a batch has the same text as an array of arrow-rs, both as arrow-rs's array and by itself, at the same
/// addresses as the whole.
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
        // Data buffers whose sizes are missing.
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
