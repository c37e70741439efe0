//! Trees of Arrow structs in one slab: how they are laid out and released (C data interface, "Release callback
//! semantics for producers" and "Moving child structures").
//!
//! Each node of an exported tree holds one reference to the slab. Releasing a node gives up its own reference and those
//! of the nodes below it that are still in place. A child that a consumer moved out keeps its own reference, and with
//! it the whole slab.

use core::ffi::c_void;

use super::{MAX_DEPTH, MAX_NODES};
use crate::abi::arrow_data::{ArrowArray, ArrowSchema};
use crate::error::{Result, refuse};
use crate::memory::{Releasable, Slab, Tail, TailSize, collected, entry, repeated, set_entry, vector};

pub(super) type ReleaseFn<N> = unsafe extern "C" fn(*mut N);

/// What `ArrowSchema` and `ArrowArray` have in common.
///
/// # Safety
/// Each accessor is that of the struct's own member.
pub(super) unsafe trait Node: Releasable + Copy {
    /// The struct's name, for messages.
    const NAME: &'static str;
    fn n_children(&self) -> i64;
    fn children(&self) -> *mut *mut Self;
    fn dictionary(&self) -> *mut Self;
    fn private_data(&self) -> *mut c_void;
    fn is_leaf(&self) -> bool {
        self.n_children() | self.dictionary().addr() as i64 == 0
    }
    fn set_below(&mut self, n_children: i64, children: *mut *mut Self, dictionary: *mut Self);
    fn set_release(&mut self, release: ReleaseFn<Self>, private_data: *mut c_void);
}

macro_rules! node {
    ($Struct:ident) => {
        // SAFETY: `release` is the struct's own member.
        unsafe impl Releasable for $Struct {
            fn release(&self) -> Option<ReleaseFn<Self>> {
                self.release
            }
            fn disarm(&mut self) {
                self.release = None;
            }
        }
        // SAFETY: each accessor is the member of its name.
        unsafe impl Node for $Struct {
            const NAME: &'static str = stringify!($Struct);
            fn n_children(&self) -> i64 {
                self.n_children
            }
            fn children(&self) -> *mut *mut Self {
                self.children
            }
            fn dictionary(&self) -> *mut Self {
                self.dictionary
            }
            fn private_data(&self) -> *mut c_void {
                self.private_data
            }
            fn set_below(&mut self, n_children: i64, children: *mut *mut Self, dictionary: *mut Self) {
                (self.n_children, self.children, self.dictionary) = (n_children, children, dictionary);
            }
            fn set_release(&mut self, release: ReleaseFn<Self>, private_data: *mut c_void) {
                (self.release, self.private_data) = (Some(release), private_data);
            }
        }
    };
}
node!(ArrowSchema);
node!(ArrowArray);

/// The nodes below a node, the same for the schema and for every array of it.
///
/// Nodes are numbered level by level, so that the children of a node follow each other, and its dictionary follows
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) first_child: u32,
    /// Number of children and dictionary together, so that one number says whether a node is a leaf.
    below: u32,
    has_dictionary: bool,
}

impl Links {
    /// The links of a leaf.
    pub(super) const NONE: Self = Self { first_child: 0, below: 0, has_dictionary: false };

    /// The links of a node whose children are not numbered yet. The sum saturates: a tree with that many nodes is
    /// refused in any case.
    pub(super) fn new(n_children: u32, has_dictionary: bool) -> Self {
        Self { first_child: 0, below: n_children.saturating_add(has_dictionary.into()), has_dictionary }
    }

    /// The same links, with the number of the first child.
    pub(super) fn numbered(self, first_child: u32) -> Self {
        Self { first_child, ..self }
    }

    pub(crate) fn n_children(self) -> usize {
        self.below() - usize::from(self.has_dictionary)
    }

    pub(crate) fn child(self, index: usize) -> Option<usize> {
        (index < self.n_children()).then_some(self.first_child as usize + index)
    }

    pub(crate) fn dictionary(self) -> Option<usize> {
        self.has_dictionary.then_some(self.first_child as usize + self.n_children())
    }

    /// The number of nodes directly below this one.
    pub(crate) fn below(self) -> usize {
        self.below as usize
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.below == 0
    }
}

/// Room for the nodes of a tree below its root, and for their tables of children; for at most [`MAX_NODES`] nodes.
pub(super) fn room<N: Node>(nodes: usize) -> TailSize {
    TailSize::of::<Placed<N>>(nodes.saturating_sub(1))
}

/// The room for one node: the structs come first, then their entries in tables of children.
#[repr(C)]
struct Placed<N>(N, *mut N);

/// The release callbacks of a tree's nodes. Leaves have their own callback, by which they are recognised.
#[derive(Clone, Copy)]
pub(super) struct Releases<N> {
    leaf: ReleaseFn<N>,
    other: ReleaseFn<N>,
    private_data: *mut c_void,
}

impl<N: Node> Releases<N> {
    /// For a tree in a slab of `H`, in which each node holds a reference.
    pub(super) fn counted<H>(slab: *mut c_void) -> Self {
        Self { leaf: release_leaf::<N, H>, other: release::<N, H>, private_data: slab }
    }

    /// For nodes that live and die with their slab.
    pub(super) fn uncounted() -> Self {
        Self { leaf: release_nothing::<N>, other: release_nothing::<N>, private_data: std::ptr::null_mut() }
    }
}

/// Links nodes into a tree: the root at `root`, the others in a slab's tail. Returns where the others are: node `i` at
/// `i - 1`.
///
/// `fill(i)` returns node `i`, of which everything is used except children and release. `links(i)` says what is below
/// it. From node `leaves_from` on, all nodes are leaves, not counting the root.
///
/// # Safety
/// `tail` has the room that [`room`] gives for this number of nodes, at least one. Their links describe one tree.
/// `root` can be written.
#[inline]
pub(super) unsafe fn build<'a, N: Node>(
    tail: &mut Tail,
    root: *mut N,
    nodes: usize,
    leaves_from: usize,
    mut fill: impl FnMut(usize) -> N,
    links: impl Fn(usize) -> &'a Links,
    release: Releases<N>,
) -> *mut N {
    let below = nodes.saturating_sub(1);
    // Node `k` is at `structs[k - 1]`, and its entry in a table of children at `table[k - 1]`: the children of one node
    // follow each other, so their entries are one table.
    let structs = tail.carve::<Placed<N>>(below).cast::<N>();
    let table = structs.wrapping_add(below).cast::<*mut N>();
    // All nodes are written as leaves first, because nearly all are leaves.
    let mut place = root;
    for i in 0..nodes {
        if i > 0 {
            // SAFETY: within the room for the nodes below the root.
            place = unsafe { structs.add(i - 1) };
            // SAFETY: the table has as many entries as there are structs.
            unsafe { set_entry(table, i - 1, place) };
        }
        let mut leaf = fill(i);
        leaf.set_below(0, std::ptr::null_mut(), std::ptr::null_mut());
        leaf.set_release(release.leaf, release.private_data);
        // SAFETY: the caller's contract for the root, and as above for the others.
        unsafe { place.write(leaf) };
    }
    for i in 0..leaves_from.clamp(1, nodes) {
        let links = links(i);
        if links.is_leaf() {
            continue;
        }
        let (n_children, first) = (links.n_children(), (links.first_child as usize).wrapping_sub(1));
        let children = if n_children == 0 { std::ptr::null_mut() } else { table.wrapping_add(first) };
        let dictionary = links.dictionary().map_or(std::ptr::null_mut(), |k| structs.wrapping_add(k - 1));
        let place = if i == 0 { root } else { structs.wrapping_add(i - 1) };
        // SAFETY: written above.
        let node = unsafe { &mut *place };
        node.set_below(n_children as i64, children, dictionary);
        node.set_release(release.other, release.private_data);
    }
    structs
}

/// The release callback of a node with something below it, in a tree that [`build`] made for a slab of `H`.
///
/// # Safety
/// Called as a release callback: `node` is NULL, released, or a node whose release is this function.
unsafe extern "C" fn release<N: Node, H>(node: *mut N) {
    // SAFETY: a release callback is called with a valid struct.
    let Some(node) = (unsafe { node.as_mut() }) else { return };
    if node.release().is_none() {
        return;
    }
    let slab = node.private_data();
    // SAFETY: the node holds a reference, so the slab and the nodes in it are alive.
    let given_up = unsafe { retire::<N, H>(node, slab) };
    // SAFETY: `retire` counted one reference for each node that it marked.
    unsafe { Slab::<H>::release_raw(slab, given_up) };
}

/// Like [`release`], but for a node with nothing below it.
///
/// # Safety
/// Same as [`release`].
unsafe extern "C" fn release_leaf<N: Node, H>(node: *mut N) {
    // SAFETY: a release callback is called with a valid struct.
    let Some(node) = (unsafe { node.as_mut() }) else { return };
    if node.release().is_none() {
        return;
    }
    node.disarm();
    // SAFETY: this is the node's own reference.
    unsafe { Slab::<H>::release_raw(node.private_data(), 1) };
}

/// Marks a node and those below it that are in place as released. Returns how many of them belong to the slab.
///
/// # Safety
/// `node` is valid, and the slab alive.
#[inline(always)]
unsafe fn retire<N: Node, H>(node: &mut N, slab: *mut c_void) -> usize {
    let (n_children, children, dictionary) = (node.n_children(), node.children(), node.dictionary());
    let leaf: ReleaseFn<N> = release_leaf::<N, H>;
    let is_leaf = |release| std::ptr::fn_addr_eq(release, leaf);
    node.disarm();
    let n_children = usize::try_from(n_children).unwrap_or(0);
    // The node itself and its children, counted as if all were leaves in their places, as nearly all are.
    let mut given_up = 1 + n_children;
    for i in 0..n_children {
        // SAFETY: this is our own table of children, which consumers do not change.
        let child = unsafe { entry(children, i) };
        // SAFETY: as above, so the child is NULL or a node of the slab.
        match unsafe { child.as_mut() } {
            Some(leaf) if leaf.release().is_some_and(is_leaf) && leaf.private_data() == slab => leaf.disarm(),
            // SAFETY: as above.
            _ => given_up = given_up - 1 + unsafe { retire_below::<N, H>(child, slab) },
        }
    }
    if dictionary.is_null() {
        return given_up;
    }
    // SAFETY: this is our own dictionary.
    given_up + unsafe { retire_below::<N, H>(dictionary, slab) }
}

unsafe fn retire_below<N: Node, H>(node: *mut N, slab: *mut c_void) -> usize {
    // SAFETY: the node is NULL or a node of the slab.
    let Some(node) = (unsafe { node.as_mut() }) else { return 0 };
    match node.release() {
        // Moved out, or released on its own: it still holds its own reference, or has given it up.
        None => 0,
        // SAFETY: this is a node of the slab that is in place.
        Some(_) if node.private_data() == slab => unsafe { retire::<N, H>(node, slab) },
        Some(release) => {
            // SAFETY: somebody put a foreign struct into our tree, and this is its own callback.
            unsafe { release(node) };
            0
        }
    }
}

/// The release callback of nodes that live and die with their slab. It only marks the node.
///
/// # Safety
/// Called as a release callback.
unsafe extern "C" fn release_nothing<N: Node>(node: *mut N) {
    // SAFETY: a release callback is called with a valid struct.
    if let Some(node) = unsafe { node.as_mut() } {
        node.disarm();
    }
}

/// Numbers a tree that is given in depth-first order, level by level.
///
/// `below(p)` returns the number of children of node `p`, and whether it has a dictionary. The result has, for each
/// node in level order, its place in the list and its links.
///
/// # Errors
/// `DEVX_INVALID_CHILDREN` if the list is too short or too long, `DEVX_TOO_DEEP`.
pub(super) fn level_order(nodes: usize, below: impl Fn(usize) -> Result<(u32, bool)>) -> Result<Vec<(usize, Links)>> {
    if nodes > MAX_NODES {
        return refuse!(DEVX_TOO_DEEP, "the list has {nodes} nodes: more than {MAX_NODES}");
    }
    // One past the last node of each subtree, computed from the back, where the subtrees below are complete already.
    let mut ends = repeated(0_usize, nodes)?;
    let mut hanging = vector(nodes)?;
    for p in 0..nodes {
        let (n_children, has_dictionary) = below(p)?;
        hanging.push(Links::new(n_children, has_dictionary));
    }
    for p in (0..nodes).rev() {
        let mut end = p + 1;
        for k in 0..hanging.get(p).map_or(0, |links| links.below()) {
            match ends.get(end) {
                Some(&next) => end = next,
                None => {
                    let wanted = hanging.get(p).map_or(0, |links| links.below());
                    return refuse!(
                        DEVX_INVALID_CHILDREN,
                        "node {p} has {wanted} below it, but the list ends after {k}"
                    );
                }
            }
        }
        if let Some(slot) = ends.get_mut(p) {
            *slot = end;
        }
    }
    match ends.first() {
        None => return refuse!(DEVX_INVALID_ARGUMENT, "the list of nodes is empty"),
        Some(&end) if end != nodes => {
            return refuse!(DEVX_INVALID_CHILDREN, "the list has {nodes} nodes, but the tree ends after {end}");
        }
        Some(_) => {}
    }
    // The list itself is the queue of the walk; the third member is the depth.
    let mut order = vector::<(usize, Links, usize)>(nodes)?;
    let links_of = |p: usize| hanging.get(p).copied().unwrap_or(Links::NONE);
    order.push((0, links_of(0), 1));
    let mut i = 0;
    while let Some(&(p, links, depth)) = order.get(i) {
        if depth > MAX_DEPTH {
            return refuse!(DEVX_TOO_DEEP, "node {p} is nested deeper than {MAX_DEPTH}");
        }
        let first_child = order.len() as u32;
        if let Some((_, links, _)) = order.get_mut(i) {
            links.first_child = first_child;
        }
        let mut child = p + 1;
        for _ in 0..links.below() {
            order.push((child, links_of(child), depth + 1));
            child = ends.get(child).copied().unwrap_or(nodes);
        }
        i += 1;
    }
    collected(order.into_iter().map(|(p, links, _)| Ok((p, links))))
}
