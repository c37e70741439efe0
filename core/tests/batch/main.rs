//! Schemas and batches through the Arrow structs: values, slices, ownership of trees.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "a test plays the part of a foreign program")]
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

mod refused;

use core::ffi::c_void;
use std::ffi::CString;
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::types::*;
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::metadata;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::table;
use devexchange_core::{Batch, Column, Device, Owner, Schema};

fn counted() -> (Owner, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let release = move || {
        seen.fetch_add(1, SeqCst);
    };
    (Owner::on_release(release), count)
}

fn address<T>(values: &[T]) -> *const c_void {
    values.as_ptr().cast()
}

/// Rows: (1, "a", [10, 11]), (null, "bc", []), (3, "", [12]).
fn sample() -> (Batch, Arc<AtomicUsize>) {
    static VALID: [u8; 1] = [0b101];
    static NUMBERS: [i32; 3] = [1, -1, 3];
    static TEXT_OFFSETS: [i32; 4] = [0, 1, 3, 3];
    static TEXT: [u8; 3] = *b"abc";
    static LIST_OFFSETS: [i64; 4] = [0, 2, 2, 3];
    static ITEMS: [f64; 3] = [10.0, 11.0, 12.0];
    let schema = Schema::new(&[
        FieldDesc::batch(3),
        FieldDesc::new(c"n", c"i"),
        FieldDesc::new(c"t", c"u"),
        FieldDesc { n_children: 1, ..FieldDesc::new(c"l", c"+L") },
        FieldDesc::new(c"item", c"g"),
    ])
    .unwrap();
    let (owner, released) = counted();
    let node = |null_count, buffers| NodeDesc { length: 3, null_count, offset: 0, buffers };
    let numbers = [address(&VALID), address(&NUMBERS)];
    let texts = [null(), address(&TEXT_OFFSETS), address(&TEXT)];
    let (lists, items) = ([null(), address(&LIST_OFFSETS)], [null(), address(&ITEMS)]);
    let nodes = [node(0, &[null()][..]), node(1, &numbers), node(0, &texts), node(0, &lists), node(0, &items)];
    // SAFETY: the buffers are static and have the rows that the nodes say.
    let batch = unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, owner) }.unwrap();
    (batch, released)
}

/// As polars exports a column of nulls: with the place of a bitmap, which nobody may read.
#[test]
fn null_array_with_the_place_of_a_bitmap() {
    let schema = Schema::new(&[FieldDesc::batch(1), FieldDesc::new(c"z", c"n")]).unwrap();
    let (owner, released) = counted();
    let node = |buffers| NodeDesc { length: 3, null_count: 0, offset: 0, buffers };
    // SAFETY: there are no buffers.
    let made = unsafe { Batch::from_raw_parts(&schema, Device::CPU, &[node(&[null()]), node(&[])], owner) }.unwrap();
    let mut array = ArrowArray::RELEASED;
    // SAFETY: there is room.
    unsafe { made.export(&mut array) }.unwrap();
    // SAFETY: the struct has a child.
    let child = unsafe { &mut **array.children };
    (child.n_buffers, child.buffers) = (1, std::ptr::without_provenance_mut(1));
    // SAFETY: an array of the schema.
    let batch = unsafe { Batch::import(&mut array, &schema) }.unwrap();
    let column = batch.root().child(0).unwrap();
    assert_eq!((column.buffers(), column.to_raw().n_buffers, column.null_count()), (&[][..], 0, Ok(3)));
    // SAFETY: there is room.
    unsafe { batch.export(&mut array) }.unwrap();
    // SAFETY: the struct has a child.
    let child = unsafe { &**array.children };
    assert_eq!((child.n_buffers, child.buffers.is_null(), child.null_count), (0, true, 3));
    // SAFETY: not released yet.
    unsafe { array.release.unwrap()(&mut array) };
    assert_eq!(released.load(SeqCst), 1);
}

/// Checks that the table of a batch agrees with its columns. Returns how many words each column has for itself.
fn check_table(batch: &Batch) -> usize {
    let room = table::room(batch.schema().nodes());
    let mut words = vec![-7; room + 1];
    // SAFETY: there is enough room.
    let own = unsafe { batch.write_table(words.as_mut_ptr()) };
    assert_eq!(words.get(room), Some(&-7));
    let own_place = |k: usize| match own {
        table::VALUES => (k == 6).then_some(0),
        _ => k.checked_sub(table::WIDTH - own),
    };
    let member = |node: usize, k: usize| match (node, own_place(k)) {
        (0, _) => table::WIDTH + k,
        (_, Some(place)) => 2 * table::WIDTH + (node - 1) * own + place,
        (_, None) => k,
    };
    check_row(&|node| std::array::from_fn(|k| *words.get(member(node, k)).unwrap()), 0, batch.root());
    own
}

fn check_row(row_of: &dyn Fn(usize) -> [i64; table::WIDTH], node: usize, column: Column<'_>) {
    let [length, offset, first_below, null_count, counts, buffers @ ..] = row_of(node);
    assert_eq!((length, offset), (column.length(), column.offset()));
    assert_eq!(null_count, column.known_null_count());
    let (all, children) = (column.buffers(), column.field().n_children());
    assert_eq!(counts, all.len() as i64 | (children as i64) << 32);
    let mut expected = [0; 3];
    for (place, &buffer) in expected.iter_mut().zip(all) {
        *place = buffer.addr() as i64;
    }
    if let (true, [.., last]) = (all.len() > 3, &mut expected) {
        *last = all.as_ptr().addr() as i64;
    }
    assert_eq!(buffers, expected);
    let rows = |column: Column<'_>| (column.offset(), column.length());
    let each = (0..children).map(|index| rows(column.child(index).unwrap()));
    assert_eq!(column.children().map(rows).collect::<Vec<_>>(), each.collect::<Vec<_>>());
    let below = column.children().chain(column.dictionary());
    for (node, column) in (first_below as usize..).zip(below) {
        check_row(row_of, node, column);
    }
}

fn check_sample(batch: &Batch) {
    check_table(batch);
    assert_eq!((batch.length(), batch.n_columns(), batch.columns().len()), (3, 3, 3));
    assert!(batch.columns().rev().map(|column| column.field().name()).eq(["l", "t", "n"]));
    let n = batch.column_named("n").unwrap();
    assert_eq!(n.values::<i32>().unwrap(), [1, -1, 3]);
    assert_eq!([0, 1, 2].map(|row| n.is_valid(row).unwrap()), [true, false, true]);
    let t = batch.column(1).unwrap();
    assert_eq!([0, 1, 2].map(|row| t.text(row).unwrap()), ["a", "bc", ""]);
    let texts = t.rows();
    assert_eq!((texts.length(), texts.ty(), texts.column().field().name()), (3, t.ty(), "t"));
    let l = batch.column_named("l").unwrap();
    let lists = [0, 1, 2].map(|row| l.list(row).unwrap().values::<f64>().unwrap());
    assert_eq!(lists, [&[10.0, 11.0][..], &[], &[12.0]]);
}

/// # Safety
/// The same as for a release callback.
unsafe fn release(array: &mut ArrowArray) {
    if let Some(release) = array.release {
        // SAFETY: the caller's contract.
        unsafe { release(array) }
    }
}

#[test]
fn a_batch_goes_out_and_comes_back() {
    let (batch, released) = sample();
    check_sample(&batch);
    let (mut array, mut schema) = (ArrowDeviceArray::RELEASED, ArrowSchema::RELEASED);
    // SAFETY: both have room.
    unsafe { batch.schema().export(&mut schema) }.unwrap();
    // SAFETY: as above.
    unsafe { batch.export_device(&mut array) }.unwrap();
    assert_eq!((array.device_type, array.device_id, array.reserved), (1, -1, [0; 3]));
    assert!(array.sync_event.is_null());
    // SAFETY: just exported, and owned here.
    let imported = unsafe { Schema::import(&mut schema) }.unwrap();
    assert!(schema.release.is_none());
    // SAFETY: as above.
    let imported = unsafe { Batch::import_device(&mut array, &imported) }.unwrap();
    assert!(array.array.release.is_none());
    check_sample(&imported);
    let second = imported.clone();
    drop(imported);
    assert_eq!(released.load(SeqCst), 0);
    std::thread::spawn(move || drop(second)).join().unwrap();
    assert_eq!(released.load(SeqCst), 1);
}

/// Nothing of a copy belongs to the producer: the source is released while the copy is read.
#[test]
fn a_copy_keeps_nothing_of_its_source() {
    let (batch, released) = sample();
    let copy = batch.copy().unwrap();
    let (here, there) = (batch.column(0).unwrap().values::<i32>().unwrap(), copy.column(0).unwrap());
    assert_ne!(here.as_ptr(), there.values::<i32>().unwrap().as_ptr());
    drop(batch);
    assert_eq!(released.load(SeqCst), 1);
    assert_eq!(copy.device(), Device::CPU);
    check_sample(&copy);
}

#[test]
fn children_that_were_moved_out_outlive_their_parent() {
    let (batch, released) = sample();
    let mut root = ArrowArray::RELEASED;
    // SAFETY: there is room.
    unsafe { batch.export(&mut root) }.unwrap();
    // SAFETY: the root has three children, of which the last has one.
    let children = unsafe { std::slice::from_raw_parts(root.children, 3) };
    // SAFETY: as above.
    let (mut text, mut list) = unsafe { (*children[1], *children[2]) };
    // SAFETY: moving is copying and marking.
    unsafe {
        (*children[1]).release = None;
        (*children[2]).release = None;
        release(&mut root);
    }
    assert!(root.release.is_none());
    assert_eq!(released.load(SeqCst), 0);
    // SAFETY: moved out, so owned here; its own child is in place.
    let item = unsafe { &**list.children };
    assert_eq!((text.length, list.length, item.length), (3, 3, 3));
    // SAFETY: moved out, so owned here.
    unsafe { release(&mut text) };
    assert_eq!(released.load(SeqCst), 0);
    // SAFETY: moved out, so owned here; a release can come from any thread, here from this one.
    unsafe { release(&mut list) };
    assert_eq!(released.load(SeqCst), 1);
    // SAFETY: released already: nothing happens.
    unsafe { release(&mut list) };
}

#[test]
fn slices_apply_at_every_level() {
    static NUMBERS: [i16; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    static VALID: [u8; 1] = [0b0111_0110];
    let schema = Schema::new(&[
        FieldDesc::batch(2),
        FieldDesc::new(c"n", c"s"),
        FieldDesc { n_children: 1, ..FieldDesc::new(c"pairs", c"+w:2") },
        FieldDesc::new(c"item", c"s"),
    ])
    .unwrap();
    let nodes = [
        NodeDesc { length: 3, null_count: 0, offset: 1, buffers: &[null()] },
        NodeDesc { length: 5, null_count: 2, offset: 2, buffers: &[address(&VALID), address(&NUMBERS)] },
        NodeDesc { length: 4, null_count: 0, offset: 1, buffers: &[null()] },
        NodeDesc { length: 10, null_count: 0, offset: 1, buffers: &[null(), address(&NUMBERS)] },
    ];
    // SAFETY: the buffers are static and have the rows that the nodes say.
    let batch = unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, Owner::none()) }.unwrap();
    check_table(&batch);
    let n = batch.column_named("n").unwrap();
    assert_eq!(n.values::<i16>().unwrap(), [3, 4, 5]);
    assert_eq!([0, 1, 2].map(|row| n.is_valid(row).unwrap()), [false, true, true]);
    assert_eq!((n.known_null_count(), n.null_count().unwrap()), (-1, 1));
    let pairs = batch.column_named("pairs").unwrap();
    let rows = [0, 1, 2].map(|row| pairs.list(row).unwrap().values::<i16>().unwrap());
    assert_eq!(rows, [[5, 6], [7, 8], [9, 10]]);
    assert_eq!(pairs.child(0).unwrap().values::<i16>().unwrap(), [5, 6, 7, 8, 9, 10]);
}

#[test]
fn a_table_has_what_columns_have_in_common_once() {
    static NUMBERS: [i32; 8] = [0; 8];
    static VALID: [u8; 1] = [0xfe];
    let schema = Schema::new(&[
        FieldDesc::batch(3),
        FieldDesc::new(c"a", c"i"),
        FieldDesc::new(c"b", c"i"),
        FieldDesc::new(c"c", c"u"),
    ])
    .unwrap();
    let numbers = Schema::new(&[FieldDesc::batch(2), FieldDesc::new(c"a", c"i"), FieldDesc::new(c"b", c"f")]).unwrap();
    let (values, more) = ([null(), address(&NUMBERS)], [null(), address(&NUMBERS[1..])]);
    let valid = [address(&VALID), address(&NUMBERS)];
    let text = [address(&VALID), address(&NUMBERS), address(&VALID)];
    let node = |null_count, offset, buffers| NodeDesc { length: 4, null_count, offset, buffers };
    let words = |schema, nodes: &[NodeDesc<'_>]| {
        // SAFETY: the buffers are static and have the rows that the nodes say.
        check_table(&unsafe { Batch::from_raw_parts(schema, Device::CPU, nodes, Owner::none()) }.unwrap())
    };
    let root = |length, offset| NodeDesc { length, null_count: 0, offset, buffers: &[null()][..] };
    let (a, b) = (node(0, 0, &values), node(-1, 0, &more));
    assert_eq!(words(&numbers, &[root(4, 0), a, b]), 1);
    assert_eq!(words(&numbers, &[root(2, 1), a, b]), 1);
    assert_eq!(words(&numbers, &[root(4, 0), node(1, 0, &valid), node(1, 0, &valid)]), 1);
    assert_eq!(words(&numbers, &[root(4, 0), a, node(0, 0, &valid)]), 5);
    assert_eq!(words(&numbers, &[root(4, 0), a, node(1, 0, &valid)]), 5);
    // A difference in one member is noticed even if another member differs in the same way.
    let (one, no_text) = (node(1, 0, &valid), [address(&VALID), address(&NUMBERS), null()]);
    assert_eq!(words(&schema, &[root(4, 0), one, one, node(0, 0, &no_text)]), 5);
    // No rows of a column have no nulls, whatever the whole has.
    assert_eq!(words(&numbers, &[root(0, 1), one, one]), 1);
    assert_eq!(words(&numbers, &[root(4, 0), node(0, 1, &values), node(0, 1, &values)]), 1);
    assert_eq!(words(&schema, &[root(4, 0), a, b, node(1, 0, &text)]), 5);
    assert_eq!(words(&schema, &[root(3, 1), node(1, 0, &valid), b, node(1, 0, &text)]), 5);
    assert_eq!(words(&schema, &[root(4, 0), a, node(0, 2, &values), node(0, 0, &text)]), 8);
}

/// Columns are found by name, however many there are and however often they are searched.
#[test]
fn columns_are_found_by_name() {
    for count in [1, 64, 65, 1000] {
        // Each name except the last appears twice, and the order of the names differs from that of the columns.
        let name = |i: usize| {
            if i + 1 == count { c"last".to_owned() } else { CString::new(format!("ä{}", i / 2 * 7 % count)).unwrap() }
        };
        let names: Vec<_> = (0..count).map(name).collect();
        let fields: Vec<_> = std::iter::once(FieldDesc::batch(count as u32))
            .chain(names.iter().map(|name| FieldDesc::new(name, c"n")))
            .collect();
        let nodes: Vec<_> = std::iter::once(NodeDesc { length: 3, null_count: 0, offset: 0, buffers: &[null()] })
            .chain(names.iter().map(|_| NodeDesc { length: 3, null_count: 3, offset: 0, buffers: &[] }))
            .collect();
        let schema = Schema::new(&fields).unwrap();
        // SAFETY: an array of nulls has no buffers.
        let batch = unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, Owner::none()) }.unwrap();
        let part = batch.slice(1, 1).unwrap();
        let all: Vec<_> = batch.columns().map(|column| column.to_raw().node).collect();
        for _ in 0..2 {
            for name in &names {
                let first = names.iter().position(|other| other == name).unwrap();
                let name = name.to_str().unwrap();
                let (found, seen) = (batch.column_named(name).unwrap(), part.column_named(name).unwrap());
                assert_eq!((found.to_raw().node, found.length(), seen.length()), (all[first], 3, 1), "{name}");
            }
            for name in ["", "a", "ä", "las", "lasts", "zz"] {
                assert!(batch.column_named(name).is_none(), "{name}");
            }
        }
    }
    let (root, _) = sample();
    assert!(root.column(0).unwrap().share().unwrap().column_named("").is_none(), "no record batch");
}

#[test]
fn dictionaries_hang_below_their_indices() {
    static INDICES: [u8; 4] = [1, 0, 1, 9];
    static OFFSETS: [i32; 3] = [0, 3, 7];
    let schema = Schema::new(&[
        FieldDesc::batch(1),
        FieldDesc { has_dictionary: true, ..FieldDesc::new(c"kind", c"C") },
        FieldDesc::new(c"", c"u"),
    ])
    .unwrap();
    let nodes = [
        NodeDesc { length: 4, null_count: 0, offset: 0, buffers: &[null()] },
        NodeDesc { length: 4, null_count: 0, offset: 0, buffers: &[null(), address(&INDICES)] },
        NodeDesc { length: 2, null_count: 0, offset: 0, buffers: &[null(), address(&OFFSETS), address(b"sunrain")] },
    ];
    // SAFETY: the buffers are static and have the rows that the nodes say.
    let batch = unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, Owner::none()) }.unwrap();
    check_table(&batch);
    let kind = batch.column(0).unwrap();
    let words = kind.dictionary().unwrap();
    let read = |row| kind.dictionary_index(row).and_then(|index| words.text(index));
    assert_eq!([0, 1, 2].map(|row| read(row).unwrap()), ["rain", "sun", "rain"]);
    assert_eq!(read(3).unwrap_err().status(), DEVX_OUT_OF_RANGE);

    // An index that does not fit an int64.
    static BEYOND: [u64; 1] = [u64::MAX];
    let schema =
        Schema::new(&[FieldDesc { has_dictionary: true, ..FieldDesc::new(c"kind", c"L") }, FieldDesc::new(c"", c"u")])
            .unwrap();
    let nodes = [NodeDesc { length: 1, null_count: 0, offset: 0, buffers: &[null(), address(&BEYOND)] }, nodes[2]];
    // SAFETY: as above.
    let batch = unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, Owner::none()) }.unwrap();
    let error = batch.root().dictionary_index(0).unwrap_err();
    assert_eq!(error.message(), "column \"kind\": row 0 is index 18446744073709551615 of a dictionary of 2");
    let error = batch.root().values::<f64>().unwrap_err();
    assert_eq!(error.message(), "column \"kind\": the type is uint64, which is not stored as float64");
}

#[test]
fn metadata_survives() {
    let block = metadata::encode(&[(b"ARROW:extension:name", b"geo"), (b"", b"\xff")]).unwrap();
    let field = FieldDesc { metadata: Some(&block), ..FieldDesc::new(c"g", c"z") };
    let schema = Schema::new(&[FieldDesc::batch(1), field]).unwrap();
    let mut raw = ArrowSchema::RELEASED;
    // SAFETY: there is room.
    unsafe { schema.export(&mut raw) }.unwrap();
    drop(schema);
    // SAFETY: just exported, and owned here.
    let schema = unsafe { Schema::import(&mut raw) }.unwrap();
    let pairs: Vec<_> = schema.root().child(0).unwrap().metadata().collect();
    assert_eq!(pairs, [(&b"ARROW:extension:name"[..], &b"geo"[..]), (&b""[..], &b"\xff"[..])]);
}

#[test]
fn a_table_has_the_buffers_of_views_elsewhere() {
    static VIEWS: [u8; 16] = [0; 16];
    static DATA: [u8; 4] = *b"rain";
    static SIZES: [i64; 2] = [4, 4];
    let schema = Schema::new(&[FieldDesc::new(c"v", c"vu")]).unwrap();
    let buffers = [null(), address(&VIEWS), address(&DATA), address(&DATA), address(&SIZES)];
    let nodes = [NodeDesc { length: 1, null_count: -1, offset: 0, buffers: &buffers }];
    // SAFETY: the buffers are static and have the rows that the node says.
    check_table(&unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, Owner::none()) }.unwrap());
}
