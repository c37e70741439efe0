//! A schema as a tree: how its fields are numbered and found, and which lists of fields are valid.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use core::ffi::CStr;
use std::ffi::CString;
use std::ptr::null;

use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::types::{DEVX_INVALID_CHILDREN, DEVX_INVALID_METADATA, DEVX_TOO_DEEP, DevxField};
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{ArrayBuilder, BatchStream, MAX_DEPTH, MAX_NODES, metadata};
use devexchange_core::{Batch, Device, DeviceType, Error, Schema, text};

fn field(name: &'static CStr, format: &'static CStr, n_children: u32) -> FieldDesc<'static> {
    FieldDesc { n_children, ..FieldDesc::new(name, format) }
}

/// A struct that holds a list of a struct of two fields, and a number with a dictionary of texts.
fn tree() -> Schema {
    let coded = FieldDesc { has_dictionary: true, ..FieldDesc::new(c"e", c"i") };
    let fields = [
        FieldDesc::batch(3),
        field(c"a", c"+l", 1),
        field(c"b", c"+s", 2),
        field(c"c", c"f", 0),
        field(c"d", c"g", 0),
        coded,
        field(c"texts", c"u", 0),
        field(c"f", c"n", 0),
    ];
    Schema::new(&fields).unwrap()
}

#[test]
fn fields_are_numbered_level_by_level() {
    let schema = tree();
    let names: Vec<_> = (0..schema.nodes()).map(|node| schema.field(node).unwrap().name()).collect();
    assert_eq!(names, ["", "a", "e", "f", "b", "texts", "c", "d"]);
    assert!(schema.field(schema.nodes()).is_none());
    assert!(!schema.root().is_nullable() && schema.field(1).unwrap().is_nullable());
}

#[test]
fn children_and_dictionaries_hang_below_their_field() {
    let schema = tree();
    let below = |node: usize| {
        let field = schema.field(node).unwrap();
        let children: Vec<_> =
            (0..=field.n_children()).map(|index| field.child(index).map(|child| child.node())).collect();
        (children, field.dictionary().map(|values| values.node()))
    };
    assert_eq!(below(0), (vec![Some(1), Some(2), Some(3), None], None));
    assert_eq!(below(1), (vec![Some(4), None], None));
    assert_eq!(below(2), (vec![None], Some(5)));
    assert_eq!(below(3), (vec![None], None));
    assert_eq!(below(4), (vec![Some(6), Some(7), None], None));
}

#[test]
fn a_list_is_one_tree() {
    for (fields, says) in [
        (vec![field(c"", c"+s", 2), field(c"a", c"i", 0)], "node 0 has 2 below it, but the list ends after 1"),
        (vec![field(c"", c"+s", 1), field(c"a", c"i", 0), field(c"b", c"i", 0)], "the tree ends after 2"),
    ] {
        let error = Schema::new(&fields).unwrap_err();
        assert_eq!(error.status(), DEVX_INVALID_CHILDREN);
        assert!(error.message().contains(says), "{error}");
    }
}

#[test]
fn a_tree_has_a_depth_and_no_more() {
    let lists = |depth: usize| {
        let mut fields = vec![field(c"", c"+l", 1); depth - 1];
        fields.push(field(c"", c"i", 0));
        Schema::new(&fields)
    };
    assert_eq!(lists(MAX_DEPTH).unwrap().nodes(), MAX_DEPTH);
    assert_eq!(lists(MAX_DEPTH + 1).unwrap_err().status(), DEVX_TOO_DEEP);
}

/// A foreign schema that releases nothing.
fn foreign(format: &'static CStr, children: &mut [*mut ArrowSchema]) -> ArrowSchema {
    unsafe extern "C" fn release(schema: *mut ArrowSchema) {
        // SAFETY: a release callback is called with a valid struct.
        unsafe { (*schema).release = None };
    }
    ArrowSchema {
        format: format.as_ptr(),
        name: c"".as_ptr(),
        metadata: std::ptr::null(),
        flags: 0,
        n_children: children.len() as i64,
        children: children.as_mut_ptr(),
        dictionary: std::ptr::null_mut(),
        release: Some(release),
        private_data: std::ptr::null_mut(),
    }
}

#[test]
#[cfg_attr(miri, ignore = "a million fields")]
fn a_tree_has_so_many_fields_and_no_more() {
    // A struct with a struct and one more column: what comes after the largest part counts, too.
    let import = |nodes: usize| {
        let mut leaves = vec![foreign(c"i", &mut []); nodes - 3];
        let mut places: Vec<_> = leaves.iter_mut().map(std::ptr::from_mut).collect();
        let mut columns = [foreign(c"+s", &mut places), foreign(c"i", &mut [])];
        let [first, last] = &mut columns;
        let mut places = [std::ptr::from_mut(first), std::ptr::from_mut(last)];
        let mut root = foreign(c"+s", &mut places);
        // SAFETY: a valid tree, which outlives the schema.
        let imported = unsafe { Schema::import(&mut root) };
        assert_eq!(imported.is_ok(), root.release.is_none());
        imported.map(|schema| schema.nodes())
    };
    assert_eq!(import(MAX_NODES).unwrap(), MAX_NODES);
    assert_eq!(import(MAX_NODES + 1).unwrap_err().status(), DEVX_TOO_DEEP);
}

#[test]
fn metadata_is_as_long_as_it_says() {
    let block = metadata::encode(&[(b"key", b"value")]).unwrap();
    let schema = |block: &[u8]| {
        let field = FieldDesc { metadata: Some(block), ..FieldDesc::new(c"x", c"i") };
        // Texts that a reader would run into if it read on.
        Schema::new(&[FieldDesc::batch(2), field, FieldDesc::new(c"a name that is long enough", c"i")])
    };
    assert_eq!(
        schema(&block).unwrap().field(1).unwrap().metadata().collect::<Vec<_>>(),
        [(&b"key"[..], &b"value"[..])]
    );
    let longer = [&block[..], b"!"].concat();
    for wrong in (0..block.len()).map(|end| &block[..end]).chain([&longer[..]]) {
        let error = schema(wrong).unwrap_err();
        assert_eq!(error.status(), DEVX_INVALID_METADATA, "{wrong:?}");
        assert!(error.message().contains("field \"x\""), "{error}");
    }
}

/// The record of an error in C has room for some hundred bytes.
#[test]
fn a_long_name_leaves_room_for_what_is_wrong() {
    let says = |error: Error, why: &str| {
        let shown = text::read(&error.to_raw().message).to_string();
        assert!(shown.contains(why), "{shown}");
    };
    let long = "x".repeat(2000);
    let name = CString::new(long.as_str()).unwrap();
    let (format, name, metadata) = (c"i".as_ptr(), name.as_ptr(), null());
    let field = DevxField { format, name, metadata, flags: 0, n_children: 0, has_dictionary: 0 };
    let negative = (-1_i32).to_ne_bytes();
    for (field, why) in [
        (DevxField { format: null(), ..field }, "format is NULL"),
        (DevxField { metadata: negative.as_ptr().cast(), ..field }, "metadata has -1 pairs"),
        (DevxField { n_children: -1, ..field }, "n_children is -1"),
        (DevxField { has_dictionary: 2, ..field }, "has_dictionary is 2"),
    ] {
        // SAFETY: the texts are NUL-terminated; the metadata ends where its count is found to be wrong.
        says(unsafe { FieldDesc::from_raw(&field) }.unwrap_err(), why);
    }

    let batch = |name: &str, format| {
        let column = ArrayBuilder::new(name, format, 0).buffer(null()).buffer(null());
        // SAFETY: there are no values.
        unsafe { ArrayBuilder::batch(0).child(column).build(Device::CPU) }.map_err(|refused| refused.error)
    };
    says(batch(&format!("{long}\0"), "i").unwrap_err(), "has a NUL byte in it");
    let stream = |given: Batch| {
        let schema = batch(&long, "i").unwrap().schema().clone();
        BatchStream::of(&schema, DeviceType::CPU, [Ok(given)]).unwrap().next().unwrap_err()
    };
    says(stream(batch(&long, "f").unwrap()), "the format is \"f\", the stream's is \"i\"");
    says(stream(batch(&"y".repeat(2000), "i").unwrap()), "the stream's \"xx");
}

#[test]
fn schemas_are_equal_if_all_their_fields_are() {
    let pairs = metadata::encode(&[(b"key", b"value")]).unwrap();
    let column = FieldDesc { metadata: Some(&pairs), ..FieldDesc::new(c"x", c"i") };
    let list = FieldDesc { n_children: 1, ..FieldDesc::new(c"l", c"+l") };
    let indices = FieldDesc { has_dictionary: true, ..FieldDesc::new(c"d", c"c") };
    let (item, words) = (FieldDesc::new(c"item", c"g"), FieldDesc::new(c"", c"u"));
    let whole = [FieldDesc::batch(3), column, list, item, indices, words];
    let schema = Schema::new(&whole).unwrap();
    assert_eq!(schema, schema.clone());
    assert_eq!(schema, Schema::new(&whole).unwrap());
    assert_eq!(
        Schema::new(&[FieldDesc { metadata: None, ..column }]).unwrap(),
        Schema::new(&[FieldDesc { metadata: Some(&metadata::encode(&[]).unwrap()), ..column }]).unwrap(),
        "no pairs are no metadata"
    );

    let other_pairs = metadata::encode(&[(b"key", b"VALUE")]).unwrap();
    let others = [
        (1, FieldDesc { name: c"y", ..column }),
        (1, FieldDesc { format: c"I", ..column }),
        (1, FieldDesc { flags: 0, ..column }),
        (1, FieldDesc { metadata: None, ..column }),
        (1, FieldDesc { metadata: Some(&other_pairs), ..column }),
        (3, FieldDesc { name: c"element", ..item }),
        (5, FieldDesc { format: c"U", ..words }),
    ];
    for (place, field) in others {
        let mut fields = whole;
        fields[place] = field;
        assert_ne!(schema, Schema::new(&fields).unwrap(), "{field:?}");
    }
    let without_dictionary = FieldDesc { has_dictionary: false, ..indices };
    let without = Schema::new(&[FieldDesc::batch(3), column, list, item, without_dictionary]).unwrap();
    assert_ne!(schema, without);
    assert_ne!(schema, Schema::new(&[FieldDesc::batch(2), column, list, item]).unwrap());
}
