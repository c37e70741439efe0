//! Trees of Arrow structs in one slab: counted, laid out, released (C data interface, "Release callback
//! semantics for producers" and "Moving child structures").
//!
//! Each node of an exported tree holds one reference to the slab. Releasing a node gives up its own and
//! those of the nodes below it that are still in place; a child that a consumer moved out keeps its own,
//! and with it the whole slab.

use core::ffi::c_void;
use std::mem::MaybeUninit;

use super::{MAX_DEPTH, MAX_NODES};
use crate::abi::arrow_data::{ArrowArray, ArrowSchema};
use crate::error::{Result, refuse};
use crate::memory::{Releasable, Slab, Tail, TailSize, entry, set_entry};

pub(super) type ReleaseFn<N> = unsafe extern "C" fn(*mut N);

/// What `ArrowSchema` and `ArrowArray` have in common.
///
/// # Safety
/// The accessors are those of the struct's own members.
pub(super) unsafe trait Node: Releasable + Copy {
    /// The struct's name, for messages.
    const NAME: &'static str;
    fn n_children(&self) -> i64;
    fn children(&self) -> *mut *mut Self;
    fn dictionary(&self) -> *mut Self;
    fn private_data(&self) -> *mut c_void;
    fn is_leaf(&self) -> bool {
        self.n_children() == 0 && self.dictionary().is_null()
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

/// Counts the nodes of a foreign tree and checks what its shape can get wrong.
///
/// # Errors
/// `DEVX_RELEASED`, `DEVX_INVALID_CHILDREN` and `DEVX_TOO_DEEP` (which is where a cycle ends).
///
/// # Safety
/// `root` is valid, and so are the children and dictionaries that its tree says it has.
pub(super) unsafe fn count<N: Node>(root: *const N) -> Result<usize> {
    let mut nodes = 0;
    // SAFETY: the caller's contract.
    unsafe { count_below(root, 1, &mut nodes) }?;
    Ok(nodes)
}

unsafe fn count_below<N: Node>(node: *const N, depth: usize, nodes: &mut usize) -> Result<()> {
    // SAFETY: valid by the contract of `count`.
    let node = unsafe { &*node };
    *nodes += 1;
    if depth > MAX_DEPTH {
        return refuse!(DEVX_TOO_DEEP, "{} is nested deeper than {MAX_DEPTH}", N::NAME);
    }
    let n_children = node.n_children();
    // What is still to come is at least the children, so a count that lies ends here, not in a long walk.
    match usize::try_from(n_children) {
        Ok(n) if *nodes + n <= MAX_NODES => {}
        Ok(_) => {
            return refuse!(
                DEVX_TOO_DEEP,
                "n_children is {n_children}: {} would have more than {MAX_NODES} nodes",
                N::NAME
            );
        }
        Err(_) => return refuse!(DEVX_INVALID_CHILDREN, "n_children is {n_children}"),
    }
    if n_children > 0 && node.children().is_null() {
        return refuse!(DEVX_INVALID_CHILDREN, "children is NULL with n_children {n_children}");
    }
    for i in 0..n_children as usize {
        // SAFETY: the table has `n_children` entries.
        let child = unsafe { entry(node.children(), i) };
        // SAFETY: a child that is not NULL is valid.
        match unsafe { child.as_ref() } {
            None => return refuse!(DEVX_INVALID_CHILDREN, "children[{i}] is NULL"),
            Some(child) if child.release().is_none() => {
                return refuse!(DEVX_INVALID_CHILDREN, "children[{i}] is released or was moved out");
            }
            // A leaf, which nearly every child is, has nothing to get wrong here.
            Some(child) if child.is_leaf() && depth < MAX_DEPTH => *nodes += 1,
            // SAFETY: as above.
            Some(child) => unsafe { count_below(child, depth + 1, nodes) }
                .map_err(|error| if depth < 8 { error.within(format_args!("children[{i}]: ")) } else { error })?,
        }
    }
    // SAFETY: a dictionary that is not NULL is valid.
    match unsafe { node.dictionary().as_ref() } {
        None => Ok(()),
        Some(dictionary) if dictionary.release().is_none() => {
            refuse!(DEVX_INVALID_CHILDREN, "dictionary is released or was moved out")
        }
        // SAFETY: as above.
        Some(dictionary) => unsafe { count_below(dictionary, depth + 1, nodes) }
            .map_err(|error| if depth < 8 { error.within("dictionary: ") } else { error }),
    }
}

/// A node whose struct stands elsewhere in the tree too, so that both parents would release it.
///
/// `place(i)` is where the struct of node `i` is. Producers lay structs out in order, or nearly: then this is one walk.
/// `scratch` is as long as there are nodes.
pub(super) fn standing_twice<N>(
    scratch: &mut [MaybeUninit<usize>],
    place: impl Fn(usize) -> *const N,
) -> Option<usize> {
    let nodes = scratch.len();
    let root = place(0).addr();
    let (mut last, mut ascending, mut descending, mut again) = (None, true, true, None);
    for i in 1..nodes {
        let address = place(i).addr();
        if address == root {
            again = again.or(Some(i));
        }
        ascending &= last.is_none_or(|last| last < address);
        descending &= last.is_none_or(|last| last > address);
        last = Some(address);
    }
    if again.is_some() || ascending || descending {
        return again;
    }
    for (i, slot) in scratch.iter_mut().enumerate() {
        slot.write(place(i).addr());
    }
    // SAFETY: all of it was written in the line above.
    let sorted = unsafe { &mut *(std::ptr::from_mut(scratch) as *mut [usize]) };
    sorted.sort_unstable();
    let twice = sorted.windows(2).find_map(|pair| match *pair {
        [left, right] => (left == right).then_some(left),
        _ => None,
    })?;
    (1..nodes).find(|&i| place(i).addr() == twice)
}

/// Where the nodes of a tree hang: the same for the schema and for every array of it.
///
/// Nodes are numbered level by level, so that the children of a node follow each other, and then its dictionary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) first_child: u32,
    pub(crate) n_children: u32,
    pub(crate) has_dictionary: bool,
}

impl Links {
    /// Nothing hangs there.
    pub(super) const NONE: Self = Self { first_child: 0, n_children: 0, has_dictionary: false };

    pub(crate) fn child(self, index: usize) -> Option<usize> {
        (index < self.n_children as usize).then_some(self.first_child as usize + index)
    }

    pub(crate) fn dictionary(self) -> Option<usize> {
        self.has_dictionary.then_some((self.first_child + self.n_children) as usize)
    }

    /// How many nodes hang directly below this one.
    pub(crate) fn below(self) -> usize {
        self.n_children as usize + usize::from(self.has_dictionary)
    }
}

/// Room for the nodes of a tree below its root, and for their tables of children.
pub(super) fn room<N: Node>(size: TailSize, nodes: usize) -> Result<TailSize> {
    size.and::<N>(nodes.saturating_sub(1))?.and::<*mut N>(nodes.saturating_sub(1))
}

/// Links nodes in a slab's tail into a tree.
///
/// `links` says what hangs below each node; `fill(i)` is node `i` without its children and release. Returns the root, which
/// is not in the slab: it is the consumer's, or the header's.
///
/// # Safety
/// `tail` has the room of [`room`] for as many nodes as there are links, which describe one tree.
pub(super) unsafe fn build<N: Node>(
    tail: &mut Tail,
    mut links: impl ExactSizeIterator<Item = Links>,
    fill: impl Fn(usize) -> N,
    release: ReleaseFn<N>,
    private_data: *mut c_void,
) -> N {
    let below = links.len().saturating_sub(1);
    let (structs, table) = (tail.carve::<N>(below), tail.carve::<*mut N>(below));
    let mut root = MaybeUninit::<N>::uninit();
    let (mut i, mut place, mut now) = (0, root.as_mut_ptr(), links.next().unwrap_or(Links::NONE));
    loop {
        let mut node = fill(i);
        node.set_release(release, private_data);
        if now.below() == 0 {
            node.set_below(0, std::ptr::null_mut(), std::ptr::null_mut());
        } else {
            // Node `k` is at `structs[k - 1]`, and its entry in a table of children at `table[k - 1]`: the
            // children of one node follow each other, so their entries are one table.
            let first = (now.first_child as usize).wrapping_sub(1);
            let children = if now.n_children == 0 { std::ptr::null_mut() } else { table.wrapping_add(first) };
            let dictionary = now.dictionary().map_or(std::ptr::null_mut(), |k| structs.wrapping_add(k - 1));
            node.set_below(now.n_children.into(), children, dictionary);
        }
        // SAFETY: the root, or within the room for the nodes below it; not initialised yet.
        unsafe { place.write(node) };
        // Not more than there is room for, whatever the iterator does.
        match links.next() {
            Some(next) if i < below => now = next,
            // SAFETY: written in the first round.
            _ => return unsafe { root.assume_init() },
        }
        // SAFETY: as above.
        place = unsafe { structs.add(i) };
        // SAFETY: the table has as many entries as there are structs.
        unsafe { set_entry(table, i, place) };
        i += 1;
    }
}

/// The release callback of every node of a tree that [`build`] made for a slab of `H`.
///
/// # Safety
/// As a release callback: `node` is NULL, released, or a node whose release is this one.
pub(super) unsafe extern "C" fn release<N: Node, H>(node: *mut N) {
    // SAFETY: a release callback is called with a valid struct.
    let Some(node) = (unsafe { node.as_mut() }) else { return };
    if node.release().is_none() {
        return;
    }
    let slab = node.private_data();
    // SAFETY: the node holds a reference, so the slab and the nodes in it are alive.
    let given_up = unsafe { retire(node, slab) };
    // SAFETY: `retire` counted one reference for each node that it marked.
    unsafe { Slab::<H>::release_raw(slab, given_up) };
}

/// Marks a node and those below it that are in place as released; returns how many of them are the slab's.
///
/// # Safety
/// `node` is valid, and the slab alive.
unsafe fn retire<N: Node>(node: &mut N, slab: *mut c_void) -> usize {
    let (n_children, children, dictionary) = (node.n_children(), node.children(), node.dictionary());
    node.disarm();
    let mut given_up = 1;
    for i in 0..usize::try_from(n_children).unwrap_or(0) {
        // SAFETY: our own table of children, which consumers do not change.
        let child = unsafe { entry(children, i) };
        // SAFETY: as above, so NULL or a node of the slab.
        given_up += match unsafe { child.as_mut() } {
            // A leaf in its place, which nearly every child is.
            Some(leaf) if leaf.is_leaf() && leaf.release().is_some() && leaf.private_data() == slab => {
                leaf.disarm();
                1
            }
            // SAFETY: as above.
            _ => unsafe { retire_below(child, slab) },
        };
    }
    // SAFETY: our own dictionary, if any.
    given_up + unsafe { retire_below(dictionary, slab) }
}

unsafe fn retire_below<N: Node>(node: *mut N, slab: *mut c_void) -> usize {
    // SAFETY: NULL or a node of the slab.
    let Some(node) = (unsafe { node.as_mut() }) else { return 0 };
    match node.release() {
        // Moved out or released on its own: it holds, or has given up, its own reference.
        None => 0,
        // SAFETY: a node of the slab that is in place.
        Some(_) if node.private_data() == slab => unsafe { retire(node, slab) },
        Some(release) => {
            // SAFETY: somebody put a struct of theirs into our tree; theirs is the callback.
            unsafe { release(node) };
            0
        }
    }
}

/// Release callback of nodes that live and die with the slab they are in: nothing to do but the mark.
///
/// # Safety
/// As a release callback.
pub(super) unsafe extern "C" fn release_nothing<N: Node>(node: *mut N) {
    // SAFETY: a release callback is called with a valid struct.
    if let Some(node) = unsafe { node.as_mut() } {
        node.disarm();
    }
}

/// Numbers a tree, given in depth-first order, level by level.
///
/// `below(p)` says how many children node `p` has, and whether a dictionary. Returns, for each node in level
/// order, its place in the list and its links.
///
/// # Errors
/// `DEVX_INVALID_CHILDREN` if the list is too short or too long, `DEVX_TOO_DEEP`.
pub(super) fn level_order(nodes: usize, below: impl Fn(usize) -> Result<(u32, bool)>) -> Result<Vec<(usize, Links)>> {
    if nodes > MAX_NODES {
        return refuse!(DEVX_TOO_DEEP, "the list has {nodes} nodes: more than {MAX_NODES}");
    }
    // One past the last node of each subtree, found from the back, where subtrees are complete already.
    let mut ends = vec![0_usize; nodes];
    let mut hanging = Vec::with_capacity(nodes);
    for p in 0..nodes {
        let (n_children, has_dictionary) = below(p)?;
        hanging.push(Links { first_child: 0, n_children, has_dictionary });
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
    let mut order: Vec<(usize, Links, usize)> = Vec::with_capacity(nodes);
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
    Ok(order.into_iter().map(|(p, links, _)| (p, links)).collect())
}
