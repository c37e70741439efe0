//! Schemas and record batches, and what is refused.

use super::arrays::all;
use super::*;

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

/// A union that `of` wraps, for which arrow-rs is told another order of the fields than the one that it was made with;
/// all rows have the second field.
fn fields_in_another_order(of: &dyn Fn(ArrayRef) -> ArrayRef) -> RecordBatch {
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
    type Way<'a> = (&'a dyn Fn(ArrayRef) -> ArrayRef, &'static str);
    let _alone = alone();
    let in_struct = |array: ArrayRef| Arc::new(StructArray::try_from(vec![("m", array)]).unwrap()) as ArrayRef;
    let item = |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), true));
    let in_fixed_lists = |array: ArrayRef| Arc::new(FixedSizeListArray::new(item(&array), 1, array, None)) as ArrayRef;
    // A list for each row.
    let one_by_one = |rows: usize| ListArray::from_iter_primitive::<Int8Type, _, _>(vec![Some([Some(0)]); rows]);
    let in_lists = |array: ArrayRef| {
        let offsets = one_by_one(array.len()).offsets().clone();
        Arc::new(ListArray::new(item(&array), offsets, array, None)) as ArrayRef
    };
    let in_map = |array: ArrayRef| {
        let offsets = one_by_one(array.len()).offsets().clone();
        let keys = Arc::new(StringArray::from(vec!["k"; array.len()])) as ArrayRef;
        let values = Field::new("values", array.data_type().clone(), true);
        let fields = Fields::from(vec![Field::new("keys", DataType::Utf8, false), values]);
        let field = Arc::new(Field::new("entries", DataType::Struct(fields.clone()), false));
        let entries = StructArray::new(fields, vec![keys, array], None);
        Arc::new(MapArray::new(field, offsets, entries, None, false)) as ArrayRef
    };
    let in_dictionary = |array: ArrayRef| {
        Arc::new(DictionaryArray::new(Int32Array::from_iter_values(0..array.len() as i32), array)) as ArrayRef
    };
    let ways: [Way<'_>; 6] = [
        (&|array| array, "u"),
        (&in_struct, "m"),
        (&in_fixed_lists, "item"),
        (&in_lists, "item"),
        (&in_map, "values"),
        (&in_dictionary, "u"),
    ];
    for (of, name) in ways {
        let batch = fields_in_another_order(of);
        let part = &format!("field {name:?}: the type is Union(");
        check_error(Batch::try_from(&batch), DEVX_MISMATCH, part);
        check_error(Batch::from_arrow_rs(&StructArray::from(batch.clone())), DEVX_MISMATCH, part);
        check_error(BatchStream::from_arrow_rs(reader_of(&[batch])).unwrap().next(), DEVX_MISMATCH, part);
    }
    // A difference only in names, metadata or nullability is accepted.
    let list = in_fixed_lists(Arc::new(Int32Array::from(vec![1, 2])));
    let element = Field::new("element", DataType::Int32, true).with_metadata(HashMap::from([("a".into(), "b".into())]));
    let schema = Schema::new(vec![Field::new("l", DataType::FixedSizeList(Arc::new(element), 1), true)]);
    let options = RecordBatchOptions::new().with_match_field_names(false);
    let batch = RecordBatch::try_new_with_options(Arc::new(schema), vec![list], &options).unwrap();
    let ours = Batch::try_from(&batch).unwrap();
    assert_eq!(ours.column(0).unwrap().field().child(0).unwrap().name(), "element");
    assert_eq!(RecordBatch::try_from(&ours).unwrap().schema(), batch.schema());
    let field = Field::new("f", DataType::Int8, true);
    let fields_of = |field: &Field| UnionFields::try_new([0], [field.clone()]).unwrap();
    let values = vec![Arc::new(Int8Array::from(vec![1, 2])) as ArrayRef];
    let union = UnionArray::try_new(fields_of(&field), vec![0; 2].into(), None, values).unwrap();
    let batch = RecordBatch::try_from_iter([("u", Arc::new(union) as ArrayRef)]).unwrap();
    let named = field.with_metadata(HashMap::from([("a".into(), "b".into())]));
    let schema = Schema::new(vec![Field::new("u", DataType::Union(fields_of(&named), UnionMode::Sparse), false)]);
    let batch = batch.with_schema(Arc::new(schema)).unwrap();
    assert_eq!(RecordBatch::try_from(&Batch::try_from(&batch).unwrap()).unwrap().schema(), batch.schema());
}

/// Our record batch with rows sliced at two levels; `released` counts its releases.
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

/// A batch with this column must be refused as a whole, with nothing of it kept or lost.
#[track_caller]
fn check_refused(rows: i64, column: OurBuilder, device: Device, status: DevxStatus, part: &str) {
    let released = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&released);
    let owner = Owner::on_release(move || {
        seen.fetch_add(1, SeqCst);
    });
    let rows = OurBuilder::batch(rows).child(column).owner(owner);
    // SAFETY: the fault of the buffers is noticed before they are read.
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
    // More bits than a usize can count.
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

/// Decimals of 256 bits begin at multiples of 16 bytes in Rust, too.
#[test]
fn wide_decimals_that_are_not_aligned_are_copied() {
    let _alone = alone();
    type Wide = <Decimal256Type as ArrowPrimitiveType>::Native;
    #[repr(align(16))]
    struct Bytes([u8; 40]);
    for at in [0, 8] {
        let mut bytes = Box::new(Bytes([0; 40]));
        bytes.0[at..at + 32].copy_from_slice(&Wide::from_i128(7).to_le_bytes());
        let first = bytes.0[at..].as_ptr();
        let column = OurBuilder::new("", "d:5,2,256", 1).buffer(null()).buffer(first.cast());
        // SAFETY: the owner has the bytes.
        let batch = unsafe { column.owner(Owner::new(bytes)).build(Device::CPU) }.map_err(|refused| refused.error);
        let theirs = batch.unwrap().to_arrow_rs().unwrap();
        let values = theirs.as_primitive::<Decimal256Type>().values();
        assert_eq!((values[0], values.as_ptr().cast() == first), (Wide::from_i128(7), at == 0));
    }
}

/// The error says what helps.
#[test]
fn a_copy_has_offsets_that_are_aligned() {
    let _alone = alone();
    let mut bytes = vec![0_u8; 17];
    let odd = usize::from(bytes.as_ptr().addr().is_multiple_of(2));
    for (place, offset) in [0_i32, 1, 3].into_iter().enumerate() {
        bytes[odd + 4 * place..][..4].copy_from_slice(&offset.to_ne_bytes());
    }
    let text = OurBuilder::new("t", "u", 2).buffer(null()).buffer(bytes[odd..].as_ptr().cast());
    // SAFETY: the owner has the offsets, and the text is static.
    let batch = unsafe { text.buffer(b"abc".as_ptr().cast()).owner(Owner::new(bytes)).build(Device::CPU) };
    let batch = batch.map_err(|refused| refused.error).unwrap();
    check_error(batch.to_arrow_rs(), DEVX_INVALID_BUFFERS, "copy the batch first (copy)");
    let theirs = batch.copy().unwrap().to_arrow_rs().unwrap();
    assert_eq!(theirs.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), Some("bc")]);
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
