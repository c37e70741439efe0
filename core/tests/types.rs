//! Every type of Arrow: parsed, checked, read value by value, sliced at every level, and refused if not well-formed.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use core::ffi::{CStr, c_void};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use devexchange_core::abi::arrow_data::ArrowArray;
use devexchange_core::abi::types::*;
use devexchange_core::arrow::schema::{EXTENSION_METADATA, EXTENSION_NAME};
use devexchange_core::arrow::{ArrayBuilder, MAX_DEPTH, Type, Value};
use devexchange_core::{Batch, Device, Owner, Result};

/// A tree of fields and arrays that a test writes down in one place.
struct Node {
    format: &'static CStr,
    name: &'static CStr,
    length: i64,
    null_count: i64,
    offset: i64,
    buffers: Vec<*const c_void>,
    children: Vec<Node>,
    dictionary: Option<Box<Node>>,
}

fn node(format: &'static CStr, length: i64, buffers: Vec<*const c_void>) -> Node {
    Node { format, name: c"", length, null_count: -1, offset: 0, buffers, children: Vec::new(), dictionary: None }
}

impl Node {
    fn child(mut self, child: Node) -> Self {
        self.children.push(child);
        self
    }

    fn slice(mut self, offset: i64, length: i64) -> Self {
        (self.offset, self.length) = (offset, length);
        self
    }

    fn named(self, name: &'static CStr) -> Self {
        Self { name, ..self }
    }

    fn builder(&self) -> ArrayBuilder {
        let text = |text: &'static CStr| text.to_str().unwrap();
        let array = ArrayBuilder::new(text(self.name), text(self.format), self.length);
        let array = array.null_count(self.null_count).offset(self.offset);
        let array = self.buffers.iter().fold(array, |array, &buffer| array.buffer(buffer));
        let array = self.children.iter().fold(array, |array, child| array.child(child.builder()));
        match &self.dictionary {
            Some(dictionary) => array.dictionary(dictionary.builder()),
            None => array,
        }
    }

    fn batch(&self) -> Result<Batch> {
        // SAFETY: the buffers are static.
        Ok(unsafe { self.builder().build(Device::CPU) }?)
    }

    fn refusal(&self) -> (DevxStatus, String) {
        let error = self.batch().unwrap_err();
        (error.status(), error.message().to_owned())
    }
}

/// Static memory with these values.
fn at<T: Copy + 'static, const N: usize>(values: [T; N]) -> *const c_void {
    /// Keeps them reachable, so that a leak checker does not report them.
    static KEPT: std::sync::Mutex<Vec<AtomicPtr<c_void>>> = std::sync::Mutex::new(Vec::new());
    let kept = Box::leak(Box::new(values)).as_mut_ptr().cast();
    KEPT.lock().unwrap().push(AtomicPtr::new(kept));
    kept
}

/// The text of all rows, after a round trip through the Arrow structs.
fn shown(node: &Node) -> Vec<String> {
    let batch = node.batch().unwrap();
    let mut exported = ArrowArray::RELEASED;
    // SAFETY: there is room for an array.
    unsafe { batch.clone().export(&raw mut exported) }.map_err(|refused| refused.error).unwrap();
    // SAFETY: exported just now.
    let back = unsafe { Batch::import(&raw mut exported, batch.schema()) }.unwrap();
    let column = back.root();
    (0..column.length()).map(|row| column.value(row).unwrap().to_string()).collect()
}

fn view(length: i32, rest: [u8; 12]) -> [u8; 16] {
    let mut view = [0; 16];
    view[..4].copy_from_slice(&length.to_ne_bytes());
    view[4..].copy_from_slice(&rest);
    view
}

fn long_view(length: i32, prefix: [u8; 4], buffer: i32, offset: i32) -> [u8; 16] {
    let mut rest = [0; 12];
    rest[..4].copy_from_slice(&prefix);
    rest[4..8].copy_from_slice(&buffer.to_ne_bytes());
    rest[8..].copy_from_slice(&offset.to_ne_bytes());
    view(length, rest)
}

fn views() -> Node {
    let short = view(2, *b"hi\0\0\0\0\0\0\0\0\0\0");
    let first = long_view(15, *b"a te", 0, 1);
    let second = long_view(13, *b"anot", 1, 0);
    let data = (at(*b"?a text of many."), at(*b"another text!"));
    let views = at([short, first, second, view(0, [0; 12])]);
    node(c"vu", 4, vec![at([0b1111_u8]), views, data.0, data.1, at([16_i64, 13])])
}

fn numbers(length: i64) -> Node {
    node(c"i", length, vec![null(), at([10_i32, 11, 12, 13, 14, 15])])
}

#[test]
fn texts_in_views() {
    let views = views();
    assert_eq!(shown(&views), ["\"hi\"", "\"a text of many.\"", "\"another text!\"", "\"\""]);
    assert_eq!(shown(&views.slice(2, 2)), ["\"another text!\"", "\"\""]);
}

/// Only the last offset states the number of bytes.
#[test]
fn offsets_beyond_the_last_one() {
    let texts = |offsets: [i32; 3]| node(c"u", 2, vec![null(), at(offsets), at(*b"ab")]);
    let read = |node: Node, row| node.batch().unwrap().root().bytes(row).map(<[u8]>::to_vec);
    assert_eq!(read(texts([0, 1, 2]), 1).unwrap(), *b"b");
    for (row, says) in [
        (0, "the offsets of row 0 are 0 and 1000000000, those of the column end at 2"),
        (1, "the offsets of row 1 are 1000000000 and 2: they must ascend from 0"),
    ] {
        let error = read(texts([0, 1_000_000_000, 2]), row).unwrap_err();
        assert_eq!((error.status(), error.message()), (DEVX_INVALID_BUFFERS, says));
    }
    assert_eq!(read(texts([0, 2, -1]), 0).unwrap_err().status(), DEVX_INVALID_BUFFERS);
    assert_eq!(read(texts([0, 2, 1]).slice(0, 1), 0).unwrap(), *b"ab", "of a slice the last one is its own");
}

#[test]
fn views_that_point_nowhere() {
    for (wrong, says) in [
        (long_view(15, *b"a te", 2, 1), "buffer 2, offset 1: there are 2 data buffers"),
        (long_view(15, *b"a te", -1, 1), "buffer -1"),
        (long_view(15, *b"a te", 0, 2), "15 bytes at offset 2 of data buffer 0, which has 16"),
        (long_view(15, *b"a te", 0, -2), "offset -2"),
        (view(-1, [0; 12]), "length -1"),
    ] {
        let mut views = views();
        views.buffers[1] = at([wrong]);
        let batch = views.slice(0, 1).batch().unwrap();
        let error = batch.root().value(0).unwrap_err();
        assert_eq!(error.status(), DEVX_INVALID_BUFFERS);
        assert!(error.message().contains(says), "{}", error.message());
    }
    let mut views = views();
    views.buffers.pop();
    views.buffers.push(null());
    assert!(views.refusal().1.contains("buffers[4] is NULL"), "{:?}", views.refusal());
    views.buffers.truncate(2);
    assert!(views.refusal().1.contains("n_buffers is 2: utf8_view has at least 3"), "{:?}", views.refusal());
    // No data buffer needs no size.
    views.buffers.push(null());
    assert_eq!(shown(&views.slice(0, 1)), ["\"hi\""]);
}

#[test]
fn lists_of_all_kinds() {
    let offsets = [0_i32, 2, 2, 5];
    let list = node(c"+l", 3, vec![null(), at(offsets)]).child(numbers(6));
    assert_eq!(shown(&list), ["[10, 11]", "[]", "[12, 13, 14]"]);
    assert_eq!(shown(&list.slice(2, 1)), ["[12, 13, 14]"]);
    // Views may overlap and come in any order.
    let list = node(c"+vl", 3, vec![at([0b101_u8]), at([4_i32, 99, 0]), at([2_i32, 99, 5])]).child(numbers(6));
    assert_eq!(shown(&list), ["[14, 15]", "null", "[10, 11, 12, 13, 14]"]);
    let list = node(c"+vL", 2, vec![null(), at([1_i64, 0]), at([1_i64, 2])]).child(numbers(6).slice(2, 4));
    assert_eq!(shown(&list), ["[13]", "[12, 13]"]);
    let list = node(c"+vL", 1, vec![null(), at([5_i64]), at([2_i64])]).child(numbers(6));
    let error = list.batch().unwrap().root().value(0).unwrap_err();
    assert!(error.message().contains("5..7 of a child with length 6"), "{}", error.message());
    let list = node(c"+vL", 1, vec![null(), at([5_i64]), at([i64::MAX])]).child(numbers(6));
    let error = list.batch().unwrap().root().value(0).unwrap_err();
    assert_eq!(error.message(), "row 0 is 5..9223372036854775812 of a child with length 6");
    let list = node(c"+vl", 1, vec![null(), at([-1_i32]), at([1_i32])]).child(numbers(6));
    assert!(list.batch().unwrap().root().value(0).unwrap_err().message().contains("offset -1 and size 1"));
    let list = node(c"+w:2", 2, vec![null()]).slice(1, 1).child(numbers(4));
    assert_eq!(shown(&list), ["[12, 13]"]);
}

#[test]
fn values_are_compared() {
    let offsets = [0_i32, 2, 4, 4, 5];
    let list = || node(c"+l", 4, vec![at([0b1011_u8]), at(offsets)]).child(numbers(6));
    let of = |node: &Node| node.batch().unwrap();
    let (one, other) = (of(&list()), of(&list()));
    for row in 0..4 {
        for at in 0..4 {
            let same = one.root().value(row).unwrap() == other.root().value(at).unwrap();
            assert_eq!(same, row == at, "{row} {at}");
        }
    }
    let members = |name| node(c"+s", 2, vec![null()]).child(numbers(2).named(name));
    let (one, other) = (of(&members(c"a")), of(&members(c"b")));
    let value = |batch: &Batch, row| batch.root().value(row).map(|value| value == one.root().value(0).unwrap());
    assert_eq!((value(&one, 0), value(&one, 1), value(&other, 0)), (Ok(true), Ok(false), Ok(false)));
    let map = |keys| {
        let entries = node(c"+s", 3, vec![null()]).child(numbers(3).named(keys)).child(numbers(3).named(c"v"));
        of(&node(c"+m", 2, vec![null(), at([0_i32, 2, 3])]).child(entries))
    };
    let (one, other) = (map(c"k"), map(c"key"));
    let entries = |batch: &Batch, row| batch.root().value(row).map(|value| value == one.root().value(0).unwrap());
    assert_eq!((entries(&other, 0), entries(&other, 1)), (Ok(true), Ok(false)));
    let floats = of(&node(c"g", 2, vec![null(), at([f64::NAN, 1.5])]));
    let float = |row| floats.root().value(row).unwrap();
    assert!(float(1) == float(1) && float(0) != float(0) && float(0) != Value::Null);
    assert!(Value::Int(1) != Value::UInt(1) && Value::Text("a") == Value::Text("a") && Value::Null == Value::Null);
    assert!(Value::Bool(true) != Value::Bool(false) && Value::Binary(b"a") != Value::Binary(b"b"));
    let interval = |days| Value::Interval { months: 1, days, nanoseconds: 2 };
    assert!(interval(1) == interval(1) && interval(1) != interval(2));
}

#[test]
fn maps() {
    let keys = node(c"u", 3, vec![null(), at([0_i32, 1, 2, 3]), at(*b"abc")]).named(c"key");
    let entries = node(c"+s", 3, vec![null()]).child(keys).child(numbers(3).named(c"value"));
    let map = node(c"+m", 2, vec![null(), at([0_i32, 2, 3])]).child(entries);
    assert_eq!(shown(&map), ["{\"a\": 10, \"b\": 11}", "{\"c\": 12}"]);
    let map = node(c"+m", 0, vec![null(), null()]).child(numbers(3));
    assert_eq!(map.refusal().0, DEVX_INVALID_CHILDREN);
    assert!(map.refusal().1.contains("children[0] of map is int32"), "{:?}", map.refusal());
}

#[test]
fn unions() {
    let ids = [5_i8, 7, 5, 7];
    let text = || node(c"u", 4, vec![null(), at([0_i32, 1, 2, 3, 4]), at(*b"wxyz")]);
    let sparse = node(c"+us:5,7", 4, vec![at(ids)]).child(numbers(4)).child(text());
    assert_eq!(shown(&sparse), ["10", "\"x\"", "12", "\"z\""]);
    assert_eq!(shown(&sparse.slice(1, 2)), ["\"x\"", "12"]);
    let dense = node(c"+ud:5,7", 4, vec![at(ids), at([1_i32, 0, 0, 3])]).child(numbers(2)).child(text());
    assert_eq!(shown(&dense), ["11", "\"w\"", "10", "\"z\""]);
    assert_eq!(shown(&dense.slice(3, 1)), ["\"z\""]);
    let batch =
        node(c"+ud:5,7", 4, vec![at(ids), at([1_i32, 0, 0, 3])]).child(numbers(2)).child(text()).batch().unwrap();
    let (id, child, row) = batch.root().union_value(3).unwrap();
    assert_eq!((id, child.ty(), row), (7, Type::Utf8, 3));
    assert_eq!((batch.root().null_count().unwrap(), batch.root().is_valid(0).unwrap()), (0, true));

    let dense = node(c"+ud:5,7", 4, vec![at(ids), at([2_i32, 0, 0, 3])]).child(numbers(2)).child(text());
    let error = dense.batch().unwrap().root().value(0).unwrap_err();
    assert!(error.message().contains("offset 2 of child 0, whose length is 2"), "{}", error.message());
    let sparse = node(c"+us:5,6", 4, vec![at(ids)]).child(numbers(4)).child(text());
    let error = sparse.batch().unwrap().root().value(1).unwrap_err();
    assert!(error.message().contains("type id 7: \"+us:5,6\" has none"), "{}", error.message());
    let sparse = node(c"+us:5,7", 4, vec![at(ids)]).child(numbers(3)).child(text());
    assert_eq!(sparse.refusal().0, DEVX_INVALID_LENGTH);
    let sparse = node(c"+us:5,7", 4, vec![at(ids)]).child(numbers(4));
    assert!(sparse.refusal().1.contains("n_children is 1: \"+us:5,7\" has 2 type ids"), "{:?}", sparse.refusal());
    let nulls = Node { null_count: 1, ..node(c"+us:", 4, vec![at(ids)]) };
    assert_eq!(nulls.refusal().0, DEVX_INVALID_NULL_COUNT);
    for wrong in [c"+us:1,1", c"+ud:-1", c"+us:128", c"+us:1,", c"+ud:a", c"+us"] {
        assert_eq!(node(wrong, 0, vec![null()]).refusal().0, DEVX_INVALID_FORMAT, "{wrong:?}");
    }
}

#[test]
fn texts_are_shown_as_json_writes_them() {
    let text = *b"a\"b\\c\nd\x01\xc3\xa4";
    let texts = || node(c"u", 1, vec![null(), at([0_i32, text.len() as i32]), at(text)]);
    assert_eq!(shown(&texts()), [r#""a\"b\\c\nd\u0001ä""#]);
    // What cannot be shown does not hide the rest.
    let bad = node(c"u", 1, vec![null(), at([0_i32, 1]), at(*b"\xff")]);
    let row = node(c"+s", 1, vec![null()]).child(bad.named(c"bad")).child(numbers(1).named(c"good"));
    assert_eq!(shown(&row), [r#"{"bad": <column "bad": row 0 is not valid UTF-8: "�">, "good": 10}"#]);
    // Nor does it take more memory than there is: a row can have gigabytes.
    let long = [0xff_u8; 1 << 16];
    let bad = node(c"u", 1, vec![null(), at([0_i32, 1 << 16]), at(long)]).batch().unwrap();
    let said = bad.root().text(0).unwrap_err();
    assert_eq!(said.message(), format!("row 0 is not valid UTF-8: \"{}\"", "�".repeat(256)));
}

#[test]
fn columns_of_another_type_are_named() {
    let (words, numbers) = (views().named(c"words").batch().unwrap(), numbers(1).named(c"numbers").batch().unwrap());
    let said = words.root().fixed(0).unwrap_err();
    let why = "column \"words\": the type is utf8_view, whose values are not a fixed number of bytes";
    assert_eq!((said.status(), said.message()), (DEVX_MISMATCH, why));
    let said = numbers.root().text(0).unwrap_err();
    assert_eq!((said.status(), said.message()), (DEVX_MISMATCH, "column \"numbers\": the type is int32, not text"));
    let coded = Node { dictionary: Some(Box::new(views())), ..node(c"s", 1, vec![null(), at([2_i16])]) };
    assert_eq!(coded.batch().unwrap().root().field().type_name().to_string(), "int16 -> utf8_view");
}

#[test]
fn runs() {
    let values = || node(c"u", 3, vec![at([0b101_u8]), at([0_i32, 1, 1, 2]), at(*b"ab")]).named(c"values");
    let runs = |ends: Node| node(c"+r", 6, vec![]).child(ends.named(c"run_ends")).child(values());
    let ends = node(c"s", 3, vec![null(), at([2_i16, 3, 6])]);
    let all = ["\"a\"", "\"a\"", "null", "\"b\"", "\"b\"", "\"b\""];
    assert_eq!(shown(&runs(ends)), all);
    let batch = runs(node(c"s", 3, vec![null(), at([2_i16, 3, 6])])).batch().unwrap();
    assert_eq!([0, 1, 2, 3, 5].map(|row| batch.root().run(row)), [0, 0, 1, 2, 2].map(Ok));
    assert_eq!(shown(&runs(node(c"i", 3, vec![null(), at([2_i32, 3, 6])])).slice(1, 3)), all[1..4]);
    assert_eq!(shown(&runs(node(c"l", 3, vec![null(), at([2_i64, 3, 9])])).slice(3, 3)), all[3..]);
    let short = runs(node(c"l", 3, vec![null(), at([2_i64, 3, 4])]));
    let error = short.batch().unwrap().root().value(4).unwrap_err();
    assert!(error.message().contains("row 4 with offset 0 is behind the end of all 3 runs"), "{}", error.message());
    let wrong = runs(node(c"f", 3, vec![null(), at([2_f32, 3.0, 4.0])]));
    assert!(wrong.refusal().1.contains("children[0] of run_end_encoded is float32"), "{:?}", wrong.refusal());
    let wrong = runs(node(c"i", 4, vec![null(), at([2_i32, 3, 4, 5])]));
    assert!(wrong.refusal().1.contains("children[1].length is 3"), "{:?}", wrong.refusal());
    let wrong = runs(node(c"i", 0, vec![null(), null()]));
    assert!(wrong.refusal().1.contains("children[0].length is 0"), "{:?}", wrong.refusal());
    let wrong = runs(Node { null_count: 1, ..node(c"i", 3, vec![at([0b011_u8]), at([2_i32, 3, 4])]) });
    assert_eq!(wrong.refusal().0, DEVX_INVALID_NULL_COUNT);
}

#[test]
fn decimals_and_intervals() {
    let d = |format, bytes: *const c_void, n| shown(&node(format, n, vec![null(), bytes]));
    assert_eq!(d(c"d:5,2,32", at([12345_i32, -5, 0]), 3), ["123.45", "-0.05", "0.00"]);
    assert_eq!(d(c"d:18,0,64", at([i64::MIN, 7]), 2), ["-9223372036854775808", "7"]);
    assert_eq!(d(c"d:38,3", at([i128::MAX, -1]), 2), ["170141183460469231731687303715884105.727", "-0.001"]);
    assert_eq!(d(c"d:5,-2", at([123_i128, 0]), 2), ["12300", "0"]);
    // Scales whose full text would take gigabytes.
    assert_eq!(d(c"d:5,-2147483648", at([-123_i128, 0]), 2), ["-123e2147483648", "0e2147483648"]);
    assert_eq!(d(c"d:5,2147483647", at([123_i128]), 1), ["123e-2147483647"]);
    let two_to_the_255 = at([0_u128, 1 << 127]);
    let digits = "-57896044618658097711785492504343953926634992332820282019728792003956564819968";
    assert_eq!(d(c"d:76,0,256", two_to_the_255, 1), [digits]);
    assert_eq!(d(c"tiM", at([14_i32]), 1), ["14 months 0 days 0 ns"]);
    assert_eq!(d(c"tiD", at([3_i32, -2]), 1), ["0 months 3 days -2000000 ns"]);
    assert_eq!(d(c"tin", at([1_u64 | 2 << 32, 3]), 1), ["1 months 2 days 3 ns"]);
    assert_eq!(d(c"w:3", at(*b"abcdef"), 2), ["0x616263", "0x646566"]);
    assert_eq!(d(c"C", at([255_u8]), 1), ["255"]);
    assert_eq!(d(c"tdD", at([-1_i32]), 1), ["1969-12-31"]);
}

#[test]
fn a_number_has_the_digits_of_its_own_type() {
    let d = |format, bytes: *const c_void, n| shown(&node(format, n, vec![null(), bytes])).join(" ");
    assert_eq!(d(c"f", at([0.1_f32, -1.0, 1.5, 16_777_216.0, f32::NAN]), 5), "0.1 -1 1.5 16777216 NaN");
    assert_eq!(d(c"g", at([0.1_f64, f64::from(0.1_f32), -0.0]), 3), "0.1 0.10000000149011612 -0");
    // Half precision is shown as single precision. Every number of it is widened exactly.
    assert_eq!(d(c"e", at([0x3c00_u16, 0xc000, 0x7c00, 0xfc00, 0x7e00]), 5), "1 -2 inf -inf NaN");
    assert_eq!(d(c"e", at([1_u16, 0x3ff, 0x2e66, 0x7bff]), 4), "0.000000059604645 0.00006097555 0.099975586 65504");
    let third = 0x555 as f32 * 2_f32.powi(-12);
    assert_eq!(d(c"e", at([0x3555_u16]), 1), third.to_string());
}

#[test]
fn dictionaries_of_anything() {
    let words = node(c"vu", 2, vec![null(), at([view(1, *b"x\0\0\0\0\0\0\0\0\0\0\0"), view(0, [0; 12])]), null()]);
    let lists = node(c"+l", 2, vec![null(), at([0_i32, 1, 2])]).child(words);
    let indices = |dictionary: Node| Node {
        dictionary: Some(Box::new(dictionary)),
        ..node(c"c", 3, vec![at([0b011_u8]), at([1_i8, 0, 99])])
    };
    assert_eq!(shown(&indices(lists)), ["[\"\"]", "[\"x\"]", "null"]);
    // A dictionary whose values are indices into another one.
    let inner = indices(numbers(2)).slice(0, 2);
    assert_eq!(shown(&indices(inner)), ["10", "11", "null"]);
    assert_eq!(indices(node(c"+r", 1, vec![])).refusal().0, DEVX_INVALID_CHILDREN);
}

#[test]
fn sixty_four_levels() {
    let nested = |levels: usize| (1..levels).fold(numbers(1), |below, _| node(c"+s", 1, vec![null()]).child(below));
    let deepest = nested(MAX_DEPTH);
    assert!(shown(&deepest)[0].ends_with(&format!("10{}", "}".repeat(MAX_DEPTH - 1))));
    assert_eq!(nested(MAX_DEPTH + 1).refusal().0, DEVX_TOO_DEEP);
}

#[test]
fn a_million_levels_are_refused_and_given_up() {
    // Miri searches all memory again and again, and its stack never ends: fewer levels test as much.
    const LEVELS: usize = if cfg!(miri) { 1_000 } else { 1_000_000 };
    let deeper: [fn(ArrayBuilder, ArrayBuilder) -> ArrayBuilder; 2] = [ArrayBuilder::child, ArrayBuilder::dictionary];
    for (deeper, released) in deeper.into_iter().zip([AtomicUsize::new(0), AtomicUsize::new(0)].map(Arc::new)) {
        let counts = Arc::clone(&released);
        let leaf = ArrayBuilder::new("", "i", 0).owner(Owner::on_release(move || {
            counts.fetch_add(1, SeqCst);
        }));
        let deep = (0..LEVELS).fold(leaf, |below, _| deeper(ArrayBuilder::new("", "+s", 0), below));
        // SAFETY: the refused array is not read.
        let refused = unsafe { deep.build(Device::CPU) }.unwrap_err();
        assert_eq!(refused.error.status(), DEVX_TOO_DEEP);
        let message = format!("the arrays are nested {} deep: deeper than 64", LEVELS + 1);
        assert_eq!(refused.error.message(), message);
        assert!(format!("{:?}", refused.returned).contains("\"+s\""));
        assert_eq!(released.load(SeqCst), 0);
        drop(refused);
        assert_eq!(released.load(SeqCst), 1);
    }
}

#[test]
fn nothing_at_all() {
    let empty = |format, n| shown(&node(format, 0, vec![null(); n])).len();
    for (format, n) in [(c"n", 0), (c"vu", 3), (c"vz", 3), (c"u", 3), (c"d:76,0,256", 2), (c"w:0", 2), (c"+us:", 1)] {
        assert_eq!(empty(format, n), 0, "{format:?}");
    }
    assert_eq!(shown(&node(c"+s", 3, vec![null()])), ["{}"; 3]);
    assert_eq!(shown(&node(c"n", 2, vec![])), ["null"; 2]);
    assert_eq!(shown(&node(c"w:0", 2, vec![null(), null()])), ["0x"; 2]);
}

#[test]
fn extension_types_and_flags() {
    let plain = || ArrayBuilder::new("p", "g", 0).buffer(null()).buffer(null());
    let point = plain().metadata(EXTENSION_NAME, "geo.point").metadata(EXTENSION_METADATA, "{}").flags(7);
    // SAFETY: there are no values.
    let build = |array: ArrayBuilder| unsafe { array.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    let twice = ["geo.line", "geo.point"].into_iter().fold(plain(), |array, name| array.metadata(EXTENSION_NAME, name));
    let (point, plain, twice) = (build(point), build(plain()), build(twice));
    assert_eq!(point.schema().root().extension(), Some((&b"geo.point"[..], &b"{}"[..])));
    assert_eq!((point.schema().root().flags(), plain.schema().root().extension()), (7, None));
    // The last value of a repeated key counts.
    assert_eq!(twice.schema().root().extension(), Some((&b"geo.point"[..], &b""[..])));
}

fn counted(count: &Arc<AtomicUsize>) -> Owner {
    let seen = Arc::clone(count);
    Owner::on_release(move || {
        seen.fetch_add(1, SeqCst);
    })
}

#[test]
fn a_builder_gives_everything_back_or_nothing() {
    let released = Arc::new(AtomicUsize::new(0));
    let column =
        |format| ArrayBuilder::new("c", format, 2).buffer(null()).buffer(at([1_i32, 2])).owner(counted(&released));
    let wrong = ArrayBuilder::batch(2).child(column("i")).child(column("wrong"));
    // SAFETY: the buffers are static.
    let refused = unsafe { wrong.build(Device::CPU) }.unwrap_err();
    assert_eq!((refused.error.status(), released.load(SeqCst)), (DEVX_INVALID_FORMAT, 0));
    drop(refused);
    assert_eq!(released.load(SeqCst), 2);
    let right = ArrayBuilder::batch(2).child(column("i")).child(column("f")).child(column("I"));
    // SAFETY: as above.
    let batch = unsafe { right.build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    assert_eq!((batch.n_columns(), released.load(SeqCst)), (3, 2));
    drop(batch);
    assert_eq!(released.load(SeqCst), 5);
    // SAFETY: as above.
    let nul = unsafe { ArrayBuilder::new("a\0b", "i", 0).build(Device::CPU) }.unwrap_err();
    assert_eq!(nul.error.status(), DEVX_INVALID_TEXT);
}

#[test]
fn batches_of_columns() {
    let released = Arc::new(AtomicUsize::new(0));
    let text = views().batch().unwrap();
    let plain = ArrayBuilder::new("", "i", 4).offset(1).buffer(null()).buffer(at([0_i32, 1, 2, 3, 4]));
    // SAFETY: the buffers are static.
    let plain = unsafe { plain.owner(counted(&released)).build(Device::CPU) }.map_err(|refused| refused.error).unwrap();
    let batch = Batch::of_columns(&[("n", &plain), ("t", &text)], None).unwrap();
    drop((plain, text));
    assert_eq!(batch.root().value(1).unwrap().to_string(), "{\"n\": 2, \"t\": \"a text of many.\"}");
    assert_eq!(released.load(SeqCst), 0);
    let again = Batch::of_columns(&[("whole", &batch)], None).unwrap();
    drop(batch);
    assert_eq!(again.column(0).unwrap().child(0).unwrap().values::<i32>().unwrap(), [1, 2, 3, 4]);
    let short = numbers(3).batch().unwrap();
    let error = Batch::of_columns(&[("whole", &again), ("n", &short)], None).unwrap_err();
    assert_eq!(error.status(), DEVX_INVALID_LENGTH);
    assert_eq!(error.to_string(), "column \"n\" has length 3, the first one has 4");
    drop(again);
    assert_eq!(released.load(SeqCst), 1);
    assert_eq!(Batch::of_columns(&[], None).unwrap_err().status(), DEVX_INVALID_ARGUMENT);
}
