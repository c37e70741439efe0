//! A producer like those of other libraries: every struct of a tree has its own allocation and its own release, which is
//! counted. The release frees the texts and buffers, so that the sanitizer reports later reads of them.

use core::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};

use crate::Releases;
use crate::array::{Array, Buffer};
use crate::field::{Field, Quirk};

type Release<S> = unsafe extern "C" fn(*mut S);

/// The members that `ArrowSchema` and `ArrowArray` have in common.
pub trait Struct: Copy {
    /// The release callback.
    fn release(&mut self) -> &mut Option<Release<Self>>;
    /// The producer's data.
    fn private_data(&mut self) -> &mut *mut c_void;
    /// The number and the table of the children.
    fn children(&mut self) -> (&mut i64, &mut *mut *mut Self);
    /// The dictionary.
    fn dictionary(&mut self) -> &mut *mut Self;
}

macro_rules! is_struct {
    ($Struct:ident) => {
        impl Struct for $Struct {
            fn release(&mut self) -> &mut Option<Release<Self>> {
                &mut self.release
            }
            fn private_data(&mut self) -> &mut *mut c_void {
                &mut self.private_data
            }
            fn children(&mut self) -> (&mut i64, &mut *mut *mut Self) {
                (&mut self.n_children, &mut self.children)
            }
            fn dictionary(&mut self) -> &mut *mut Self {
                &mut self.dictionary
            }
        }
    };
}
is_struct!(ArrowSchema);
is_struct!(ArrowArray);

/// What a struct owns until it is released.
struct Private<S> {
    released: Arc<AtomicU32>,
    /// The children and the dictionary. The release frees them, after it has released those that were not moved out.
    below: Vec<*mut S>,
    table: Vec<*mut S>,
    buffers: Vec<*const c_void>,
    _memory: Vec<Buffer>,
    _texts: Vec<Box<[u8]>>,
}

unsafe extern "C" fn release<S: Struct>(node: *mut S) {
    // SAFETY: a release callback is called with a struct that is not released.
    let node = unsafe { &mut *node };
    // SAFETY: made by `link`, and taken back only here.
    let private = unsafe { Box::from_raw(node.private_data().cast::<Private<S>>()) };
    for &child in &private.below {
        // SAFETY: made by `add` for this struct, and freed only here.
        let mut child = unsafe { Box::from_raw(child) };
        if let Some(release) = *child.release() {
            // SAFETY: the child has a callback, so it is not released.
            unsafe { release(&raw mut *child) };
        }
    }
    private.released.fetch_add(1, SeqCst);
    *node.release() = None;
}

/// A tree of structs for a consumer.
#[derive(Debug)]
pub struct Given<S: Struct> {
    /// The struct that the consumer gets.
    pub root: Box<S>,
    nodes: Vec<*mut S>,
    releases: Releases,
}

impl<S: Struct> Given<S> {
    fn new(empty: S) -> Self {
        let mut root = Box::new(empty);
        let nodes = vec![&raw mut *root];
        Self { root, nodes, releases: Releases::default() }
    }

    /// All bytes of all structs, which an import that fails must not change. Nothing may be released yet.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.nodes.len() * size_of::<S>());
        for node in &self.nodes {
            // SAFETY: nothing is released, so every node is allocated, and these structs have no padding.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(node.cast::<u8>(), size_of::<S>()) });
        }
        bytes
    }

    /// Releases the root if no consumer took it, and checks that each struct was released once.
    ///
    /// # Panics
    /// Unless each struct was released once.
    pub fn finish(mut self) {
        if let Some(release) = *self.root.release() {
            // SAFETY: the root has a callback, so it is not released, and still ours.
            unsafe { release(&raw mut *self.root) };
        }
        self.releases.require(1);
    }

    /// Links a node to its children and its dictionary, with the error of `quirk`, and sets its release.
    fn link(&mut self, node: *mut S, mut private: Private<S>, dictionary: Option<*mut S>, quirk: Option<Quirk>) {
        private.table = private.below.clone();
        private.below.extend(dictionary);
        let mut count = private.table.len() as i64;
        match quirk {
            Some(Quirk::ChildReleased(k)) => {
                // SAFETY: the child was made just now, and no consumer has it yet.
                let child = unsafe { &mut *private.table[k] };
                if let Some(release) = *child.release() {
                    // SAFETY: the child has a callback, so it is not released.
                    unsafe { release(child) };
                }
            }
            Some(Quirk::ChildNull(k)) => private.table[k] = null_mut(),
            Some(Quirk::ChildTwice) => private.table[1] = private.table[0],
            Some(Quirk::ChildIsRoot) => private.table[0] = self.nodes[0],
            Some(Quirk::NoTable) => private.table.clear(),
            Some(Quirk::Count(said)) => count = said,
            None => {}
        }
        let table = if private.table.is_empty() { null_mut() } else { private.table.as_mut_ptr() };
        // SAFETY: the node was made by us, and no consumer has it yet.
        let node = unsafe { &mut *node };
        let (n_children, children) = node.children();
        (*n_children, *children) = (count, table);
        *node.dictionary() = dictionary.unwrap_or(null_mut());
        *node.release() = Some(release::<S>);
        *node.private_data() = Box::into_raw(Box::new(private)).cast();
    }

    fn private(&mut self) -> Private<S> {
        Private {
            released: self.releases.watch(),
            below: Vec::new(),
            table: Vec::new(),
            buffers: Vec::new(),
            _memory: Vec::new(),
            _texts: Vec::new(),
        }
    }

    fn add(&mut self, empty: S) -> *mut S {
        let node = Box::into_raw(Box::new(empty));
        self.nodes.push(node);
        node
    }

    /// Leaves all structs but the root out of `bytes`, because some of them are freed already.
    fn forget(&mut self, gone: bool) {
        if gone {
            self.nodes.truncate(1);
        }
    }
}

/// Makes the structs of a schema.
pub fn schema(field: &Field) -> Given<ArrowSchema> {
    let mut given = Given::new(ArrowSchema::RELEASED);
    let root = given.nodes[0];
    fill_schema(&mut given, root, field);
    given
}

fn fill_schema(given: &mut Given<ArrowSchema>, node: *mut ArrowSchema, field: &Field) {
    let mut private = given.private();
    let mut below = |field: &Field| {
        let child = given.add(ArrowSchema::RELEASED);
        fill_schema(given, child, field);
        child
    };
    private.below = field.children.iter().map(&mut below).collect();
    let dictionary = field.dictionary.as_deref().map(below);
    let mut text = |text: &Option<Vec<u8>>, end: &[u8]| -> *const c_char {
        let Some(text) = text else { return null() };
        let text: Box<[u8]> = text.iter().chain(end).copied().collect();
        let address = text.as_ptr().cast();
        private._texts.push(text);
        address
    };
    let (format, name, metadata) = (text(&field.format, &[0]), text(&field.name, &[0]), text(&field.metadata, &[]));
    // SAFETY: the node was made by us, and no consumer has it yet.
    unsafe { node.write(ArrowSchema { format, name, metadata, flags: field.flags, ..ArrowSchema::RELEASED }) };
    given.link(node, private, dictionary, field.quirk);
    given.forget(matches!(field.quirk, Some(Quirk::ChildReleased(_))));
}

/// Makes the structs of an array.
pub fn array(array: &Array) -> Given<ArrowArray> {
    let mut given = Given::new(ArrowArray::RELEASED);
    let root = given.nodes[0];
    fill_array(&mut given, root, array);
    given
}

fn fill_array(given: &mut Given<ArrowArray>, node: *mut ArrowArray, array: &Array) {
    let mut private = given.private();
    let mut below = |array: &Array| {
        let child = given.add(ArrowArray::RELEASED);
        fill_array(given, child, array);
        child
    };
    private.below = array.children.iter().map(&mut below).collect();
    let dictionary = array.dictionary.as_deref().map(below);
    for buffer in &array.buffers {
        let buffer = buffer.clone();
        private.buffers.push(buffer.as_ref().map_or(null(), |buffer| buffer.bytes().as_ptr().cast()));
        private._memory.extend(buffer);
    }
    let has_table = array.has_table && !private.buffers.is_empty();
    let filled = ArrowArray {
        length: array.length,
        null_count: array.null_count,
        offset: array.offset,
        n_buffers: array.n_buffers.unwrap_or(array.buffers.len() as i64),
        buffers: if has_table { private.buffers.as_mut_ptr() } else { null_mut() },
        ..ArrowArray::RELEASED
    };
    // SAFETY: the node was made by us, and no consumer has it yet.
    unsafe { node.write(filled) };
    given.link(node, private, dictionary, array.quirk);
    given.forget(matches!(array.quirk, Some(Quirk::ChildReleased(_))));
}
