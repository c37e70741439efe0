//! Arrow's trees, made from a node of `bases.toml`: the schema, and the array.

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::{ARROW_DEVICE_CPU, ArrowDeviceArray};

use crate::description::Node;
use crate::edit::value;
use crate::layout::{ARRAY, DEVICE_ARRAY, SCHEMA, Struct};
use crate::memory::{word, write};
use crate::thing::{Record, Thing};

pub(crate) fn schema(node: &Node, edits: &[String]) -> Thing {
    let mut thing = Thing::new(&SCHEMA);
    let root = thing.root;
    fill_schema(&mut thing, root, node);
    thing.spoil(edits)
}

pub(crate) fn array(node: &Node, edits: &[String]) -> Thing {
    let mut thing = Thing::new(&ARRAY);
    let root = thing.root;
    fill_array(&mut thing, root, node);
    thing.spoil(edits)
}

/// The node as a device array of the CPU.
pub(crate) fn device_array(node: &Node, edits: &[String]) -> Thing {
    let mut thing = Thing::new(&DEVICE_ARRAY);
    let root = thing.root;
    fill_array(&mut thing, root, node);
    write(root + std::mem::offset_of!(ArrowDeviceArray, device_id), &(-1_i64).to_ne_bytes());
    write(root + std::mem::offset_of!(ArrowDeviceArray, device_type), &ARROW_DEVICE_CPU.to_ne_bytes());
    thing.spoil(edits)
}

/// Writes a struct to a place in an arena.
pub(crate) fn put<T>(at: usize, value: T) {
    // SAFETY: the place is large enough for the struct that was requested, and aligned for any struct.
    unsafe { std::ptr::with_exposed_provenance_mut::<T>(at).write(value) }
}

/// The address of a table of addresses; NULL for an empty one.
fn table<T>(thing: &mut Thing, places: &[usize]) -> *mut T {
    if places.is_empty() {
        return std::ptr::null_mut();
    }
    let at = thing.arena.room(8 * places.len());
    places.iter().enumerate().for_each(|(i, place)| write(at + 8 * i, &place.to_ne_bytes()));
    std::ptr::with_exposed_provenance_mut(at)
}

fn fill_schema(thing: &mut Thing, at: usize, node: &Node) {
    let below = |thing: &mut Thing, node: &Node| {
        let at = thing.arena.room(SCHEMA.bytes);
        fill_schema(thing, at, node);
        at
    };
    let children: Vec<_> = node.children.iter().map(|child| below(thing, child)).collect();
    let dictionary = node.dictionary.as_ref().map(|node| below(thing, node));
    let private_data = thing.record(children.iter().copied().chain(dictionary).collect());
    let format = std::ptr::with_exposed_provenance(thing.arena.text(node.format.as_bytes()));
    let name = std::ptr::with_exposed_provenance(thing.arena.text(node.name.as_bytes()));
    put(
        at,
        ArrowSchema {
            format,
            name,
            metadata: std::ptr::null(),
            flags: node.flags,
            n_children: children.len() as i64,
            children: table(thing, &children),
            dictionary: std::ptr::with_exposed_provenance_mut(dictionary.unwrap_or(0)),
            release: Some(release_schema),
            private_data,
        },
    );
}

fn fill_array(thing: &mut Thing, at: usize, node: &Node) {
    let below = |thing: &mut Thing, node: &Node| {
        let at = thing.arena.room(ARRAY.bytes);
        fill_array(thing, at, node);
        at
    };
    let children: Vec<_> = node.children.iter().map(|child| below(thing, child)).collect();
    let dictionary = node.dictionary.as_ref().map(|node| below(thing, node));
    let private_data = thing.record(children.iter().copied().chain(dictionary).collect());
    let buffers: Vec<_> = node.buffers.iter().map(|buffer| value(buffer, &mut thing.arena)).collect();
    put(
        at,
        ArrowArray {
            length: node.length,
            null_count: node.null_count,
            offset: node.offset,
            n_buffers: buffers.len() as i64,
            n_children: children.len() as i64,
            buffers: table(thing, &buffers),
            children: table(thing, &children),
            dictionary: std::ptr::with_exposed_provenance_mut(dictionary.unwrap_or(0)),
            release: Some(release_array),
            private_data,
        },
    );
}

/// The release of a layout's struct that does not mark the struct as released.
pub(crate) fn forgetful(layout: &'static Struct) -> usize {
    let array: Release<ArrowArray> = forgetful_array;
    let schema: Release<ArrowSchema> = forgetful_schema;
    if std::ptr::eq(layout, &raw const SCHEMA) { schema as usize } else { array as usize }
}

type Release<T> = unsafe extern "C" fn(*mut T);

macro_rules! releases {
    ($($release:ident, $forgetful:ident of $Struct:ty;)*) => {$(
        /// Releases as a producer should: first what is below and still there, and each part once.
        unsafe extern "C" fn $release(given: *mut $Struct) {
            // SAFETY: a consumer passes the struct that it was given, wherever it has moved it.
            let node = unsafe { &mut *given };
            // SAFETY: every node has a record.
            let record = unsafe { Record::of(node.private_data) };
            for &below in &record.below {
                if word(below + std::mem::offset_of!($Struct, release)) != 0 {
                    // SAFETY: what was not moved out is a struct with this release.
                    unsafe { $release(std::ptr::with_exposed_provenance_mut(below)) }
                }
            }
            node.release = None;
            record.count();
        }

        unsafe extern "C" fn $forgetful(given: *mut $Struct) {
            // SAFETY: the caller's contract.
            let release = unsafe { (*given).release };
            // SAFETY: as above.
            unsafe { $release(given) };
            // SAFETY: as above.
            unsafe { (*given).release = release };
        }
    )*};
}
releases! {
    release_schema, forgetful_schema of ArrowSchema;
    release_array, forgetful_array of ArrowArray;
}
