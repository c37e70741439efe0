//! The meaning of each format string (Arrow C data interface, "Data type description"; columnar format, buffers), and
//! the contents of metadata blocks.

use devexchange_core::abi::types::{DEVX_INVALID_FORMAT, DEVX_INVALID_METADATA as INVALID};
use devexchange_core::arrow::format::{Buffer, Buffers, Children};
use devexchange_core::arrow::metadata::{self, MAX_BYTES, MAX_PAIRS};
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{ArrayBuilder, Schema, TimeUnit, Type, TypeName};
use devexchange_core::{Column, DType, Device, Error, ipc};

use Buffer::{Data, Offsets, Validity, Values, ViewData, ViewSizes};
use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};

const DECIMAL: Type = Type::Decimal { width: 16, precision: 38, scale: -2 };
const SMALL: Type = Type::Decimal { width: 4, precision: 9, scale: 0 };
const MEDIUM: Type = Type::Decimal { width: 8, precision: 18, scale: 3 };
const LARGE: Type = Type::Decimal { width: 32, precision: 76, scale: 9 };

/// A format, its type and displayed name, its buffers, and the element type as which its values can be read.
type Row = (&'static str, Type, &'static str, &'static [Buffer], Option<DType>);

const NUMBERS: [Row; 11] = [
    ("c", Type::Int(1), "int8", &[Validity, Values(8)], Some(DType::INT8)),
    ("C", Type::UInt(1), "uint8", &[Validity, Values(8)], Some(DType::UINT8)),
    ("s", Type::Int(2), "int16", &[Validity, Values(16)], Some(DType::INT16)),
    ("S", Type::UInt(2), "uint16", &[Validity, Values(16)], Some(DType::UINT16)),
    ("i", Type::Int(4), "int32", &[Validity, Values(32)], Some(DType::INT32)),
    ("I", Type::UInt(4), "uint32", &[Validity, Values(32)], Some(DType::UINT32)),
    ("l", Type::Int(8), "int64", &[Validity, Values(64)], Some(DType::INT64)),
    ("L", Type::UInt(8), "uint64", &[Validity, Values(64)], Some(DType::UINT64)),
    ("e", Type::Float(2), "float16", &[Validity, Values(16)], Some(DType::FLOAT16)),
    ("f", Type::Float(4), "float32", &[Validity, Values(32)], Some(DType::FLOAT32)),
    ("g", Type::Float(8), "float64", &[Validity, Values(64)], Some(DType::FLOAT64)),
];

/// Types that are stored as integers but mean something else.
const TIMES: [Row; 15] = [
    ("tdD", Type::Date32, "date32", &[Validity, Values(32)], Some(DType::INT32)),
    ("tdm", Type::Date64, "date64", &[Validity, Values(64)], Some(DType::INT64)),
    ("tts", Type::Time(Second), "time(second)", &[Validity, Values(32)], Some(DType::INT32)),
    ("ttm", Type::Time(Millisecond), "time(millisecond)", &[Validity, Values(32)], Some(DType::INT32)),
    ("ttu", Type::Time(Microsecond), "time(microsecond)", &[Validity, Values(64)], Some(DType::INT64)),
    ("ttn", Type::Time(Nanosecond), "time(nanosecond)", &[Validity, Values(64)], Some(DType::INT64)),
    ("tss:", Type::Timestamp(Second), "timestamp(second)", &[Validity, Values(64)], Some(DType::INT64)),
    ("tsm:UTC", Type::Timestamp(Millisecond), "timestamp(millisecond)", &[Validity, Values(64)], Some(DType::INT64)),
    ("tsu:+01:00", Type::Timestamp(Microsecond), "timestamp(microsecond)", &[Validity, Values(64)], Some(DType::INT64)),
    ("tsn:", Type::Timestamp(Nanosecond), "timestamp(nanosecond)", &[Validity, Values(64)], Some(DType::INT64)),
    ("tDs", Type::Duration(Second), "duration(second)", &[Validity, Values(64)], Some(DType::INT64)),
    ("tDm", Type::Duration(Millisecond), "duration(millisecond)", &[Validity, Values(64)], Some(DType::INT64)),
    ("tDu", Type::Duration(Microsecond), "duration(microsecond)", &[Validity, Values(64)], Some(DType::INT64)),
    ("tDn", Type::Duration(Nanosecond), "duration(nanosecond)", &[Validity, Values(64)], Some(DType::INT64)),
    ("tiM", Type::IntervalMonths, "interval_months", &[Validity, Values(32)], Some(DType::INT32)),
];

const OTHERS: [Row; 30] = [
    ("b", Type::Bool, "bool", &[Validity, Values(1)], None),
    ("d:38,-2", DECIMAL, "decimal128(38, -2)", &[Validity, Values(128)], None),
    ("d:38,-2,128", DECIMAL, "decimal128(38, -2)", &[Validity, Values(128)], None),
    ("d:9,0,32", SMALL, "decimal32(9, 0)", &[Validity, Values(32)], None),
    ("d:18,3,64", MEDIUM, "decimal64(18, 3)", &[Validity, Values(64)], None),
    ("d:76,9,256", LARGE, "decimal256(76, 9)", &[Validity, Values(256)], None),
    ("w:3", Type::FixedSizeBinary(3), "fixed_size_binary(3)", &[Validity, Values(24)], None),
    ("w:0", Type::FixedSizeBinary(0), "fixed_size_binary(0)", &[Validity, Values(0)], None),
    ("tiD", Type::IntervalDayTime, "interval_day_time", &[Validity, Values(64)], None),
    ("tin", Type::IntervalMonthDayNano, "interval_month_day_nano", &[Validity, Values(128)], None),
    ("+us:4", Type::SparseUnion, "sparse_union", &[Values(8)], None),
    ("+ud:4", Type::DenseUnion, "dense_union", &[Values(8), Values(32)], None),
    ("n", Type::Null, "null", &[], None),
    ("z", Type::Binary, "binary", &[Validity, Offsets(4), Data], None),
    ("Z", Type::LargeBinary, "large_binary", &[Validity, Offsets(8), Data], None),
    ("u", Type::Utf8, "utf8", &[Validity, Offsets(4), Data], None),
    ("U", Type::LargeUtf8, "large_utf8", &[Validity, Offsets(8), Data], None),
    ("vz", Type::BinaryView, "binary_view", &[Validity, Values(128), ViewSizes], None),
    ("vu", Type::Utf8View, "utf8_view", &[Validity, Values(128), ViewData, ViewData, ViewSizes], None),
    ("+s", Type::Struct, "struct", &[Validity], None),
    ("+l", Type::List, "list", &[Validity, Offsets(4)], None),
    ("+L", Type::LargeList, "large_list", &[Validity, Offsets(8)], None),
    ("+w:7", Type::FixedSizeList(7), "fixed_size_list(7)", &[Validity], None),
    ("+vl", Type::ListView, "list_view", &[Validity, Values(32), Values(32)], None),
    ("+vL", Type::LargeListView, "large_list_view", &[Validity, Values(64), Values(64)], None),
    ("+m", Type::Map, "map", &[Validity, Offsets(4)], None),
    ("+r", Type::RunEndEncoded, "run_end_encoded", &[], None),
    ("+us:", Type::SparseUnion, "sparse_union", &[Values(8)], None),
    ("+us:0,5,127", Type::SparseUnion, "sparse_union", &[Values(8)], None),
    ("+ud:", Type::DenseUnion, "dense_union", &[Values(8), Values(32)], None),
];

fn all() -> impl Iterator<Item = Row> {
    NUMBERS.into_iter().chain(TIMES).chain(OTHERS)
}

#[test]
fn names_have_the_time_zone() {
    for (format, expected) in [
        ("l", "int64"),
        ("tsn:", "timestamp(nanosecond)"),
        ("tsu:Europe/Berlin", "timestamp(microsecond, Europe/Berlin)"),
        ("tss:ÜTC", "timestamp(second, ÜTC)"),
        ("tiD", "interval_day_time"),
    ] {
        assert_eq!(TypeName::parse(format).unwrap().to_string(), expected, "{format}");
    }
    let error = TypeName::parse("ts:UTC").unwrap_err();
    assert_eq!(error.message(), "format is \"ts:UTC\": not a format string of Arrow");
    for (name, format) in [("int32", "i"), ("float64", "g"), ("utf8", "u"), ("date32", "tdD"), ("binary_view", "vz")] {
        let error = TypeName::parse(name).unwrap_err();
        let expected = format!("format is {name:?}: not a format string of Arrow, in which {name} is {format:?}");
        assert_eq!(error.message(), expected);
    }
}

#[test]
fn each_format_is_one_type_with_its_buffers() {
    for (format, ty, shown, buffers, _) in all() {
        assert_eq!(Type::parse(format), Ok(ty), "{format}");
        assert_eq!(ty.to_string(), shown, "{format}");
        let n = buffers.len();
        let found: Vec<_> = (0..=n).map(|index| ty.buffers().get(index, n)).collect();
        let expected: Vec<_> = buffers.iter().copied().map(Some).chain([None]).collect();
        assert_eq!(found, expected, "{format}");
        assert_eq!(ty.buffers().has_validity(), buffers.first() == Some(&Validity), "{format}");
        let fitting: Vec<_> = (-1..7).filter(|&n| ty.buffers().fits(n)).collect();
        match ty.buffers() {
            Buffers::Views => assert_eq!((fitting, ty.buffers().count()), (vec![3, 4, 5, 6], 3), "{format}"),
            some => assert_eq!((fitting, some.count()), (vec![n as i64], n), "{format}"),
        }
    }
}

#[test]
fn values_of_one_width_have_their_bytes() {
    for (format, ty, _, buffers, storage) in all() {
        let width = match *buffers {
            [Validity, Values(bits)] if ty != Type::Bool => Some(bits as u32 / 8),
            _ => None,
        };
        assert_eq!((ty.byte_width(), ty.storage()), (width, storage), "{format}");
        let is_number = NUMBERS.iter().any(|row| row.0 == format);
        assert_eq!(ty.dtype(), storage.filter(|_| is_number), "{format}");
        assert_eq!(ty.is_integer(), is_number && !["e", "f", "g"].contains(&format), "{format}");
    }
    for (format, .., dtype) in NUMBERS {
        assert_eq!(dtype.and_then(Type::format_of), Some(format));
    }
    assert_eq!(Type::format_of(DType::BOOL), None);
}

#[test]
fn types_have_the_children_that_they_stand_for() {
    for (format, ty, ..) in all() {
        let is_list = ["+l", "+L", "+vl", "+vL", "+m"].contains(&format);
        let is_union = format.starts_with("+u");
        let children = match format {
            "+r" => Children::Exactly(2),
            "+w:7" => Children::Exactly(1),
            _ if is_union || format == "+s" => Children::Any,
            _ => Children::Exactly(is_list.into()),
        };
        assert_eq!(ty.children(), children, "{format}");
        assert_eq!((ty.is_list(), ty.is_union()), (is_list, is_union), "{format}");
        assert_eq!(ty.is_text(), ["u", "U", "vu"].contains(&format), "{format}");
    }
}

#[test]
fn every_other_letter_is_refused() {
    let formats: Vec<_> = all().map(|row| row.0).collect();
    for letter in (0..128_u8).map(char::from) {
        let format = letter.to_string();
        assert_eq!(Type::parse(&format).is_ok(), formats.contains(&format.as_str()), "{format:?}");
    }
}

#[test]
fn a_union_knows_its_children_by_their_ids() {
    let child = |name| FieldDesc::new(name, c"i");
    let union = FieldDesc { n_children: 3, ..FieldDesc::new(c"", c"+us:5,0,127") };
    let schema = Schema::new(&[union, child(c"a"), child(c"b"), child(c"c")]).unwrap();
    let ids = schema.root().type_ids().unwrap();
    assert_eq!(ids.count(), 3);
    assert_eq!([-1, 0, 1, 5, 127].map(|id| ids.child(id)), [None, Some(1), None, Some(0), Some(2)]);
    assert_eq!([0, 1, 2, 3, 255].map(|child| ids.id(child)), [Some(5), Some(0), Some(127), None, None]);
    assert_eq!(schema.field(1).unwrap().type_ids(), None);
}

#[test]
fn pairs_of_metadata_come_in_order() {
    let pairs: [(&[u8], &[u8]); 3] = [(b"key", b"value"), (b"", b"only a value"), (b"only a key", b"")];
    let block = metadata::encode(&pairs).unwrap();
    assert_eq!(block.len(), 4 + 3 * 8 + 3 + 5 + 12 + 10);
    let schema = Schema::new(&[FieldDesc { metadata: Some(&block), ..FieldDesc::batch(0) }]).unwrap();
    let mut read = schema.root().metadata();
    for left in (0..3).rev() {
        assert_eq!((read.next(), read.size_hint()), (Some(pairs[2 - left]), (left, Some(left))));
    }
    assert_eq!(read.next(), None);
}

#[test]
fn metadata_is_as_long_as_it_says() {
    let block = metadata::encode(&[(b"key", b"value")]).unwrap();
    let longer = [&block[..], &[0]].concat();
    assert_eq!(metadata::check_bytes(&block), Ok(()));
    for block in [&[][..], &block[..3], &block[..block.len() - 1], &longer] {
        let error = metadata::check_bytes(block).unwrap_err();
        assert_eq!((error.status(), error.message().contains(&format!(" {} bytes", block.len()))), (INVALID, true));
        assert!(error.message().ends_with("a count, then each key and value behind its length"), "{error}");
    }
}

#[test]
fn there_are_bounds_to_metadata() {
    let pairs = vec![(&[][..], &[][..]); MAX_PAIRS as usize + 1];
    let mut block = metadata::encode(&pairs[1..]).unwrap();
    assert_eq!(metadata::check_bytes(&block), Ok(()));
    assert_eq!(metadata::encode(&pairs).unwrap_err().status(), INVALID);
    block[..4].copy_from_slice(&(MAX_PAIRS + 1).to_ne_bytes());
    block.extend([0; 8]);
    assert_eq!(metadata::check_bytes(&block).unwrap_err().status(), INVALID);

    // One pair: its count, two lengths, and a value that makes the block one byte too large. Hardly any of it is ever
    // touched.
    let mut block = vec![0; MAX_BYTES + 1];
    let length = block.len() - 12;
    assert_eq!(metadata::encode(&[(&[], &block[12..])]).unwrap_err().status(), INVALID);
    block[..4].copy_from_slice(&1_i32.to_ne_bytes());
    block[8..12].copy_from_slice(&(length as i32).to_ne_bytes());
    assert_eq!(metadata::check_bytes(&block).unwrap_err().status(), INVALID);
}

#[test]
fn a_copy_has_all_bytes_of_each_buffer() {
    static VALID: [u8; 2] = [0b1010_1111, 1];
    static NUMBERS: [i32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    static BITS: [u8; 2] = [0b0110_0101, 1];
    static ENDS: [i32; 10] = [0, 1, 2, 3, 3, 3, 4, 4, 4, 6];
    static TEXT: [u8; 6] = *b"abcdef";
    let at = |bytes: *const u8| bytes.cast();
    let column = |name, format| ArrayBuilder::new(name, format, 9).buffer(at(VALID.as_ptr())).null_count(2);
    let batch = ArrayBuilder::batch(9)
        .child(column("numbers", "i").buffer(at(NUMBERS.as_ptr().cast())))
        .child(column("bits", "b").buffer(at(BITS.as_ptr())))
        .child(column("texts", "u").buffer(at(ENDS.as_ptr().cast())).buffer(at(TEXT.as_ptr())));
    // SAFETY: the buffers are static and have nine rows.
    let batch = unsafe { batch.build(Device::CPU) }.map_err(Error::from).unwrap();
    let copy = ipc::copy_batch(&batch).unwrap();
    for (copied, original) in copy.columns().zip(batch.columns()) {
        assert_ne!(copied.buffers()[1], original.buffers()[1]);
        let shown = |column: Column<'_>| (0..9).map(|row| column.value(row).unwrap().to_string()).collect::<Vec<_>>();
        assert_eq!(shown(copied), shown(original));
    }
}

#[test]
fn a_format_is_parsed_or_refused_by_name() {
    let right = "n b c C s S i I l L e f g z Z u U vu vz w:3 w:0 d:5,2 d:5,-2,256 d:9,0,32 tdD tdm tts ttm ttu ttn tss: \
                 tsn:Europe/Zurich tDs tDn tiM tiD tin +s +l +L +w:7 +vl +vL +m +r +us: +us:0 +ud:0,1,127";
    for format in right.split(' ') {
        Type::parse(format).unwrap();
    }
    let wrong = "|x|ii| i|w|w:|w:-1|w:+1|w:99999999999|+w:1.5|d:0,2|d:77,2,256|d:10,2,32|d:19,2,64|d:39,2|d:5|d:5,2,64,1|\
                 d:5,2,24|d:5,2,0128|ts|tsx:|tss|td|ttx|+z|+w|+us|+ud:1,1|+us:-1|+us:128|+ud:0,|+v|vux";
    for format in wrong.split('|') {
        let error = Type::parse(format).unwrap_err();
        assert_eq!(error.status(), DEVX_INVALID_FORMAT, "{format}");
        assert!(error.message().contains(format), "{error}");
    }
}
