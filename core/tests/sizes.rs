//! Buffers whose sizes are known: a buffer that is too small for its array is refused, before anything is taken.

use std::ffi::c_void;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use devexchange_core::abi::types::{
    DEVX_INVALID_BUFFERS, DEVX_INVALID_LENGTH, DEVX_MISMATCH, DEVX_NULL_ARGUMENT, DevxNode, DevxStatus,
};
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{ArrayBuilder, Type};
use devexchange_core::{Batch, Device, Owner, Schema};

static MEMORY: [i64; 8] = [0; 8];

/// An array `x` of a format, with buffers of these sizes; a size of −1 means no buffer.
fn array(format: &str, length: i64, sizes: &[i64]) -> ArrayBuilder {
    let mut array = ArrayBuilder::new("x", format, length);
    for &size in sizes {
        array = match usize::try_from(size) {
            Ok(size) => array.sized_buffer(MEMORY.as_ptr().cast(), size),
            Err(_) => array.buffer(null()),
        };
    }
    let items = if format.starts_with("+m") {
        ["k", "v"].into_iter().fold(ArrayBuilder::new("", "+s", 2).flags(0).buffer(null()), |entries, name| {
            let flags = if name == "k" { 0 } else { 2 };
            entries.child(ArrayBuilder::new(name, "c", 2).flags(flags).buffer(null()).buffer(MEMORY.as_ptr().cast()))
        })
    } else {
        ArrayBuilder::new("item", "c", 2).buffer(null()).buffer(MEMORY.as_ptr().cast())
    };
    if format.starts_with('+') { array.child(items) } else { array }
}

fn refusal(array: ArrayBuilder) -> Option<(DevxStatus, String)> {
    // SAFETY: everything that is read exists: zeros of MEMORY, or memory that a test has made.
    let made = unsafe { array.build(Device::CPU) };
    made.err().map(|refused| (refused.error.status(), refused.error.message().to_owned()))
}

/// Formats, the buffer sizes for two elements, and which buffer cannot be a byte smaller.
#[rustfmt::skip]
const TWO: &[(&[&str], &[i64], usize)] = &[
    (&["c", "C", "w:1"], &[-1, 2], 1),
    (&["s", "S", "e"], &[-1, 4], 1),
    (&["w:3"], &[-1, 6], 1),
    (&["i", "I", "f", "tdD", "tts", "ttm", "tiM", "d:9,2,32"], &[-1, 8], 1),
    (&["l", "L", "g", "tdm", "ttu", "ttn", "tss:", "tsn:UTC", "tDs", "tiD", "d:9,2,64"], &[-1, 16], 1),
    (&["tin", "d:38,2", "d:38,2,128"], &[-1, 32], 1),
    (&["d:76,2,256"], &[-1, 64], 1),
    (&["b"], &[-1, 1], 1),
    (&["b"], &[1, 1], 0),
    (&["+s", "+w:1"], &[1], 0),
    (&["u", "z"], &[-1, 12, 0], 1),
    (&["U", "Z"], &[-1, 24, 0], 1),
    (&["vu", "vz"], &[-1, 32, 0], 1),
    (&["vu", "vz"], &[-1, 32, 0, 0, 16], 4),
    (&["+l", "+m"], &[-1, 12], 1),
    (&["+L"], &[-1, 24], 1),
    (&["+vl"], &[-1, 8, 8], 1),
    (&["+vl"], &[-1, 8, 8], 2),
    (&["+vL"], &[-1, 16, 16], 2),
    (&["+ud:0"], &[2, 8], 0),
    (&["+ud:0"], &[2, 8], 1),
    (&["+us:0"], &[2], 0),
];

#[test]
fn every_type_says_how_much_it_takes() {
    for &(formats, sizes, k) in TWO {
        for format in formats {
            assert_eq!(refusal(array(format, 2, sizes)), None, "{format}");
            let mut short = sizes.to_vec();
            short[k] -= 1;
            let (status, message) = refusal(array(format, 2, &short)).unwrap();
            let (has, needed, ty) = (short[k], sizes[k], Type::parse(format).unwrap());
            let says = format!("array \"x\": buffers[{k}] has {has} bytes: offset and length 2 of {ty} take {needed}");
            assert_eq!((status, message), (DEVX_INVALID_BUFFERS, says));
        }
    }
}

#[test]
fn data_ends_where_the_last_offset_or_its_size_says() {
    let texts = |format, offsets: *const i32, bytes, data| {
        let array = ArrayBuilder::new("x", format, 2).buffer(null()).sized_buffer(offsets.cast(), bytes);
        refusal(array.sized_buffer(MEMORY.as_ptr().cast(), data))
    };
    let (narrow, wide) = ([0_i32, 9, 4], [0_i64, 2, 7]);
    // Only the last offset counts: those before it are not read.
    for format in ["u", "z"] {
        assert_eq!(texts(format, narrow.as_ptr(), 12, 4), None);
        let (status, message) = texts(format, narrow.as_ptr(), 12, 3).unwrap();
        let says = "array \"x\": buffers[2] has 3 bytes: by buffers[1] it has 4";
        assert_eq!((status, &*message), (DEVX_INVALID_BUFFERS, says));
    }
    assert_eq!(texts("U", wide.as_ptr().cast(), 24, 7), None);
    assert!(texts("Z", wide.as_ptr().cast(), 24, 6).unwrap().1.ends_with("has 6 bytes: by buffers[1] it has 7"));
    // Offsets need not be aligned.
    let bytes: Vec<u8> = [0; 1].into_iter().chain(narrow.iter().flat_map(|offset| offset.to_ne_bytes())).collect();
    assert!(texts("u", bytes.as_ptr().wrapping_add(1).cast(), 12, 3).is_some());

    let views = |sizes: &[i64; 2], second| {
        let array = ArrayBuilder::new("x", "vu", 2).buffer(null()).sized_buffer(MEMORY.as_ptr().cast(), 32);
        let array = array.buffer(MEMORY.as_ptr().cast()).sized_buffer(MEMORY.as_ptr().cast(), second);
        refusal(array.sized_buffer(sizes.as_ptr().cast(), 16))
    };
    // Only the array states the size of the first buffer.
    assert_eq!(views(&[100, 8], 8), None);
    assert!(views(&[100, 8], 7).unwrap().1.ends_with("buffers[3] has 7 bytes: by buffers[4] it has 8"));
}

#[test]
fn what_lies_before_the_offset_counts() {
    let (status, message) = refusal(array("i", 1, &[-1, 8]).offset(2)).unwrap();
    assert_eq!(status, DEVX_INVALID_BUFFERS);
    assert!(message.ends_with("offset and length 3 of int32 take 12"), "{message}");
}

#[test]
fn an_empty_array_needs_next_to_nothing() {
    assert_eq!(refusal(array("u", 0, &[0, 0, 0])), None);
    assert_eq!(refusal(array("+s", 0, &[0])), None);
    // A copy reads the sizes.
    let (_, message) = refusal(array("vu", 0, &[0, 0, 0, 0, 8])).unwrap();
    assert!(message.ends_with("buffers[4] has 8 bytes: offset and length 0 of utf8_view take 16"), "{message}");
}

#[test]
fn lengths_that_cannot_be_are_refused_as_such() {
    assert_eq!(refusal(array("i", -1, &[-1, 8])).unwrap().0, DEVX_INVALID_LENGTH);
    assert_eq!(refusal(array("i", i64::MAX, &[-1, 8])).unwrap().0, DEVX_INVALID_LENGTH);
}

#[test]
fn sizes_follow_the_nodes_and_the_owner_is_given_back() {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    let coded = FieldDesc { has_dictionary: true, ..FieldDesc::new(c"coded", c"c") };
    let schema = Schema::new(&[FieldDesc::batch(2), coded, FieldDesc::new(c"texts", c"u"), FieldDesc::new(c"n", c"s")]);
    let schema = schema.unwrap();
    let at = MEMORY.as_ptr().cast();
    let node = |length, buffers| NodeDesc { length, null_count: 0, offset: 0, buffers };
    let (none, two, three) = ([null()], [null(), at], [null(), at, null()]);
    let nodes = [node(2, &none[..]), node(2, &two), node(3, &three), node(2, &two)];
    let make = |sizes: &[i64]| {
        let owner = Owner::on_release(|| _ = RELEASED.fetch_add(1, SeqCst));
        // SAFETY: nothing is read.
        unsafe { Batch::from_sized_parts(&schema, Device::CPU, &nodes, sizes, owner) }
    };
    // A missing buffer counts as small enough.
    drop(make(&[0, 0, 2, -1, 16, 0, -1, 4]).map_err(|refused| refused.error).unwrap());
    drop(make(&[]).map_err(|refused| refused.error).unwrap());
    assert_eq!(RELEASED.load(SeqCst), 2);
    for (sizes, status, says) in [
        (&[-1, -1, 1, -1, 16, -1, -1, 4][..], DEVX_INVALID_BUFFERS, "array \"coded\": buffers[1] has 1 bytes"),
        (&[-1, -1, 2, -1, 15, -1, -1, 4], DEVX_INVALID_BUFFERS, "array \"texts\": buffers[1] has 15 bytes"),
        (&[-1, -1, 2, -1, 16, -1, -1, -2], DEVX_INVALID_BUFFERS, "array \"n\": buffers[1] has -2 bytes"),
        (&[-1], DEVX_MISMATCH, "there are 1 sizes, the nodes have 8 buffers in all"),
    ] {
        let released = RELEASED.load(SeqCst);
        let refused = make(sizes).unwrap_err();
        assert_eq!(refused.error.status(), status);
        assert!(refused.error.message().starts_with(says), "{}", refused.error.message());
        assert_eq!(RELEASED.load(SeqCst), released);
        drop(refused);
        assert_eq!(RELEASED.load(SeqCst), released + 1);
    }
}

#[test]
fn records_of_a_producer_in_c_are_checked_and_the_owner_is_given_back() {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    let schema =
        Schema::new(&[FieldDesc::batch(2), FieldDesc::new(c"n", c"i"), FieldDesc::new(c"texts", c"u")]).unwrap();
    let at = MEMORY.as_ptr().cast();
    let (none, two, three) = ([null()], [null(), at], [null(), at, null()]);
    let record = |buffers: &[*const c_void]| DevxNode {
        length: 2,
        null_count: 0,
        offset: 0,
        buffers: buffers.as_ptr(),
        n_buffers: buffers.len() as i64,
    };
    let records = [record(&none), record(&two), record(&three)];
    let make = |records: &[DevxNode], sizes: *const i64| {
        let owner = Owner::on_release(|| _ = RELEASED.fetch_add(1, SeqCst));
        // SAFETY: nothing is read. There is a size for each buffer, or none at all.
        unsafe { Batch::from_records(&schema, Device::CPU, records, sizes, owner) }
    };
    let enough = [-1, -1, 8, -1, 12, -1];
    for sizes in [null(), enough.as_ptr()] {
        let batch = make(&records, sizes).map_err(|refused| refused.error).unwrap();
        assert_eq!(batch.columns().map(|column| column.length()).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(batch.column_named("texts").unwrap().buffers(), three);
    }
    assert_eq!(RELEASED.load(SeqCst), 2);

    let refused = |records: &[DevxNode], sizes, status, says: &str| {
        let released = RELEASED.load(SeqCst);
        let refused = make(records, sizes).unwrap_err();
        assert_eq!((refused.error.status(), refused.error.message()), (status, says));
        assert_eq!(RELEASED.load(SeqCst), released);
        drop(refused);
        assert_eq!(RELEASED.load(SeqCst), released + 1);
    };
    for n_buffers in [-1, i64::MIN, 1_048_577, i64::MAX] {
        let says = format!("nodes[1]: n_buffers is {n_buffers}: it must be between 0 and 1048576");
        refused(&[records[0], DevxNode { n_buffers, ..records[1] }], null(), DEVX_INVALID_BUFFERS, &says);
    }
    let [first, second, third] = records;
    let missing = [first, second, DevxNode { buffers: null(), ..third }];
    refused(&missing, null(), DEVX_NULL_ARGUMENT, "nodes[2]: buffers is NULL with 3 entries");
    let none = [first, second, DevxNode { buffers: null(), n_buffers: 0, ..third }];
    refused(&none, null(), DEVX_INVALID_BUFFERS, "array \"texts\": n_buffers is 0: utf8 has 3");
    refused(&records[..2], null(), DEVX_MISMATCH, "there are 2 nodes, the schema has 3 fields in all");
    let small = [-1, -1, 7, -1, 12, -1];
    let says = "array \"n\": buffers[1] has 7 bytes: offset and length 2 of int32 take 8";
    refused(&records, small.as_ptr(), DEVX_INVALID_BUFFERS, says);
}
