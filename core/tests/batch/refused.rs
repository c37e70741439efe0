//! Refused input, which stays with its owner.

use core::ffi::CStr;
use std::ptr::null;
use std::sync::atomic::Ordering::SeqCst;

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::types::*;
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::{Batch, Device, Owner, Schema};

use super::{address, counted, release, sample};

#[test]
fn an_array_that_does_not_fit_is_refused_and_stays_with_its_owner() {
    type Spoil = fn(&mut ArrowArray);
    /// The address of the first column.
    fn child(root: &ArrowArray) -> *mut ArrowArray {
        // SAFETY: the sample has three columns.
        unsafe { *root.children }
    }
    fn first(root: &mut ArrowArray) -> &mut ArrowArray {
        // SAFETY: only the root refers to the child.
        unsafe { &mut *child(root) }
    }
    let cases: [(DevxStatus, &str, Spoil); 18] = [
        (DEVX_INVALID_LENGTH, "length is -5", |a| a.length = -5),
        (DEVX_INVALID_LENGTH, "offset is -1", |a| a.offset = -1),
        (DEVX_INVALID_LENGTH, "more than an int64", |a| a.offset = i64::MAX),
        (DEVX_INVALID_LENGTH, "array \"n\": buffers[1] would have", |a| first(a).length = i64::MAX / 2),
        (DEVX_INVALID_LENGTH, "children[0].length is 2", |a| first(a).length = 2),
        (DEVX_INVALID_NULL_COUNT, "null_count is 4 with length 3", |a| first(a).null_count = 4),
        (DEVX_INVALID_NULL_COUNT, "null_count is -2", |a| first(a).null_count = -2),
        (DEVX_INVALID_LENGTH, "offset 4611686018427387904 and length 4611686018427387904", |a| {
            (first(a).offset, first(a).length) = (1 << 62, 1 << 62);
        }),
        (DEVX_INVALID_BUFFERS, "n_buffers is 3: int32 has 2", |a| first(a).n_buffers = 3),
        (DEVX_INVALID_BUFFERS, "n_buffers is 3: int32 has 2", |a| {
            (first(a).n_buffers, first(a).n_children) = (3, 1);
        }),
        (DEVX_INVALID_BUFFERS, "n_buffers is -1", |a| first(a).n_buffers = -1),
        (DEVX_INVALID_BUFFERS, "buffers is NULL", |a| first(a).buffers = std::ptr::null_mut()),
        (DEVX_MISMATCH, "n_children is 2: the schema has 3", |a| a.n_children = 2),
        (DEVX_MISMATCH, "n_children is 2147483648", |a| a.n_children = 1 << 31),
        (DEVX_INVALID_CHILDREN, "children is NULL", |a| a.children = std::ptr::null_mut()),
        (DEVX_INVALID_CHILDREN, "children[0] is released", |a| first(a).release = None),
        (DEVX_MISMATCH, "there is a dictionary", |a| first(a).dictionary = child(a)),
        (DEVX_RELEASED, "array.release is NULL", |a| a.release = None),
    ];
    for (status, text, spoil) in cases {
        let (batch, released) = sample();
        let schema = batch.schema().clone();
        let mut array = ArrowArray::RELEASED;
        // SAFETY: there is room.
        unsafe { batch.export(&mut array) }.unwrap();
        let whole = array;
        // SAFETY: the first of three children.
        let first_child = unsafe { **array.children };
        spoil(&mut array);
        // SAFETY: its fault can be detected.
        let error = unsafe { Batch::import(&mut array, &schema) }.unwrap_err();
        assert_eq!(error.status(), status, "{text}: {error}");
        assert!(error.message().contains(text), "{text}: {error}");
        assert_eq!(released.load(SeqCst), 0);
        array = whole;
        // SAFETY: the same struct as before.
        unsafe { **array.children = first_child };
        // SAFETY: still owned here.
        unsafe { release(&mut array) };
        assert_eq!(released.load(SeqCst), 1);
    }
}

#[test]
fn children_may_stand_anywhere_but_each_once() {
    static VALUES: [[i32; 1]; 4] = [[0], [1], [2], [3]];
    let fields = [c"a", c"b", c"c", c"d"].map(|name| FieldDesc::new(name, c"i"));
    let schema = Schema::new(&[&[FieldDesc::batch(4)], &fields[..]].concat()).unwrap();
    let buffers = VALUES.each_ref().map(|values| [null(), address(values)]);
    let column = |buffers| NodeDesc { length: 1, null_count: 0, offset: 0, buffers };
    let nodes: Vec<_> = [&[null()][..]].into_iter().chain(buffers.iter().map(|b| &b[..])).map(column).collect();
    // Which array is in which place, and the name of the first place with an array that appears twice.
    let orders = [
        ([0, 1, 2, 3], None),
        ([3, 2, 1, 0], None),
        ([2, 0, 3, 1], None),
        ([2, 0, 3, 0], Some("b")),
        ([0, 1, 1, 2], Some("b")),
        ([3, 2, 0, 0], Some("c")),
        ([1, 1, 1, 1], Some("a")),
    ];
    for (order, wrong) in orders {
        let (owner, released) = counted();
        // SAFETY: the buffers are static and have the rows that the nodes say.
        let batch = unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, owner) }.unwrap();
        let mut array = ArrowArray::RELEASED;
        // SAFETY: there is room.
        unsafe { batch.export(&mut array) }.unwrap();
        let table = array.children;
        // SAFETY: the root has four children, in a table that only its consumer and its release look at.
        let whole = unsafe { std::slice::from_raw_parts(table, 4) }.to_vec();
        let put = |children: &[_]| {
            // SAFETY: as above.
            unsafe { table.copy_from_nonoverlapping(children.as_ptr(), 4) };
        };
        put(&order.map(|i| whole[i]));
        // SAFETY: a valid array, owned here.
        match unsafe { Batch::import(&mut array, &schema) } {
            Ok(imported) => {
                assert_eq!(wrong, None, "{order:?}");
                let first = |column: devexchange_core::arrow::Column<'_>| column.values::<i32>().unwrap()[0] as usize;
                assert!(imported.columns().map(first).eq(order));
            }
            Err(error) => {
                let name = wrong.unwrap_or_else(|| panic!("{order:?}: {error}"));
                let text = format!("array \"{name}\": the struct stands in the tree twice");
                assert!(error.message().contains(&text), "{order:?}: {error}");
                put(&whole);
                // SAFETY: still owned here.
                unsafe { release(&mut array) };
            }
        }
        assert_eq!(released.load(SeqCst), 1, "{order:?}");
    }
}

#[test]
fn a_list_of_fields_that_is_no_tree_is_refused() {
    let batch = |n| FieldDesc::batch(n);
    let leaf = FieldDesc::new(c"x", c"i");
    let refused = |fields: &[FieldDesc<'_>]| Schema::new(fields).unwrap_err();
    assert_eq!(refused(&[]).status(), DEVX_INVALID_ARGUMENT);
    assert_eq!(refused(&[batch(2), leaf]).message(), "node 0 has 2 below it, but the list ends after 1");
    assert_eq!(refused(&[batch(1), leaf, leaf]).message(), "the list has 3 nodes, but the tree ends after 2");
    assert_eq!(refused(&[FieldDesc { n_children: 1, ..leaf }, leaf]).status(), DEVX_INVALID_CHILDREN);
    let text = FieldDesc { has_dictionary: true, ..FieldDesc::new(c"k", c"u") };
    assert_eq!(refused(&[text, leaf]).status(), DEVX_MISMATCH);
    let list = FieldDesc { n_children: 1, ..FieldDesc::new(c"l", c"+l") };
    let deep: Vec<_> = std::iter::repeat_n(list, 64).chain([leaf]).collect();
    assert_eq!(refused(&deep).status(), DEVX_TOO_DEEP);
    Schema::new(deep.get(1..).unwrap()).unwrap();
}

#[test]
fn foreign_schemas_that_never_end_are_refused() {
    unsafe extern "C" fn nothing(_: *mut ArrowSchema) {}
    let mut schema = ArrowSchema::RELEASED;
    schema.format = c"+l".as_ptr();
    schema.release = Some(nothing);
    // From here on this is the only pointer to it.
    let own = &raw mut schema;
    let mut children = [own];
    // SAFETY: owned here, and nobody reads it.
    unsafe { ((*own).n_children, (*own).children) = (1, children.as_mut_ptr()) };
    // SAFETY: valid, although it is its own child.
    let error = unsafe { Schema::import(own) }.unwrap_err();
    assert_eq!(error.status(), DEVX_TOO_DEEP);
    schema.n_children = 1 << 31;
    // SAFETY: the count is refused before the table is read.
    assert_eq!(unsafe { Schema::import(&mut schema) }.unwrap_err().status(), DEVX_TOO_DEEP);
    schema.n_children = -1;
    // SAFETY: as above.
    let error = unsafe { Schema::import(&mut schema) }.unwrap_err();
    assert_eq!((error.status(), error.message()), (DEVX_INVALID_CHILDREN, "n_children is -1: it must not be negative"));
    assert!(schema.release.is_some());
}

#[test]
fn texts_of_foreign_schemas_are_checked() {
    unsafe extern "C" fn nothing(_: *mut ArrowSchema) {}
    let refused = |format: Option<&'static CStr>, name: Option<&'static CStr>, metadata: Option<&'static [i32]>| {
        let mut schema = ArrowSchema::RELEASED;
        schema.format = format.map_or(null(), CStr::as_ptr);
        schema.name = name.map_or(null(), CStr::as_ptr);
        schema.metadata = metadata.map_or(null(), |block| block.as_ptr().cast());
        schema.release = Some(nothing);
        // SAFETY: valid.
        unsafe { Schema::import(&mut schema) }.map(|schema| schema.nodes()).map_err(|error| error.status())
    };
    assert_eq!(refused(None, None, None), Err(DEVX_INVALID_FORMAT));
    assert_eq!(refused(Some(c"\xff"), None, None), Err(DEVX_INVALID_TEXT));
    assert_eq!(refused(Some(c"i"), Some(c"caf\xe9"), None), Err(DEVX_INVALID_TEXT));
    assert_eq!(refused(Some(c"i"), None, Some(&[-1])), Err(DEVX_INVALID_METADATA));
    assert_eq!(refused(Some(c"i"), None, Some(&[1, -4])), Err(DEVX_INVALID_METADATA));
    assert_eq!(refused(Some(c"i"), None, Some(&[1, i32::MAX])), Err(DEVX_INVALID_METADATA));
    assert_eq!(refused(Some(c"i"), None, Some(&[i32::MAX])), Err(DEVX_INVALID_METADATA));
    assert_eq!(refused(Some(c"i"), Some(c"café"), Some(&[0])), Ok(1));
}

#[test]
fn devices_are_normalised_or_refused() {
    let schema = Schema::new(&[FieldDesc::new(c"x", c"n")]).unwrap();
    let import = |device_type, device_id, event: usize| {
        let nodes = [NodeDesc { length: 2, null_count: 2, offset: 0, buffers: &[] }];
        // SAFETY: there are no buffers.
        let batch = unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, Owner::none()) }.unwrap();
        let mut array = ArrowDeviceArray::RELEASED;
        // SAFETY: there is room.
        unsafe { batch.export_device(&mut array) }.unwrap();
        (array.device_type, array.device_id, array.reserved) = (device_type, device_id, [-1; 3]);
        array.sync_event = std::ptr::without_provenance_mut(event);
        // SAFETY: just exported, and owned here.
        let result = unsafe { Batch::import_device(&mut array, &schema) };
        // SAFETY: owned here if it was refused, released otherwise.
        unsafe { release(&mut array.array) };
        result.map(|batch| batch.device()).map_err(|error| error.status())
    };
    assert_eq!(import(1, -1, 0), Ok(Device::CPU));
    assert_eq!(import(1, 0, 0), Ok(Device::CPU));
    assert_eq!(import(1, 1, 0), Err(DEVX_DEVICE));
    assert_eq!(import(1, 0, 8), Err(DEVX_DEVICE));
    assert_eq!(import(2, 1 << 20, 0), Err(DEVX_DEVICE));
    assert_eq!(import(99, 0, 0), Err(DEVX_DEVICE));
}
