//! Foreign trees of Arrow structs: the number of their nodes, and checks of their shape.

use std::mem::MaybeUninit;

use super::tree::Node;
use super::{MAX_DEPTH, MAX_NODES};
use crate::error::{Result, refuse};
use crate::memory::entry;

/// The nodes of a foreign tree.
#[derive(Clone, Copy)]
pub(super) struct Count {
    pub(super) nodes: usize,
    /// Whether each struct below the root lies behind the one before it. If so, no struct is in the tree twice.
    pub(super) ascending: bool,
    last: usize,
}

/// Counts the nodes of a foreign tree and checks its shape.
///
/// # Errors
/// `DEVX_INVALID_CHILDREN`, and `DEVX_TOO_DEEP`, which also ends a cycle.
///
/// # Safety
/// `root` is valid, and so are the children and dictionaries that its tree says it has.
pub(super) unsafe fn count<N: Node>(root: *const N) -> Result<Count> {
    // SAFETY: the caller's contract.
    let root = unsafe { &*root };
    // SAFETY: as above.
    unsafe { count_below(root, 1, Count { nodes: 1, ascending: true, last: 0 }) }
}

/// Counts what is below a node. `count` includes the node itself and all its siblings already.
///
/// # Safety
/// Same as [`count`].
unsafe fn count_below<N: Node>(node: &N, depth: usize, count: Count) -> Result<Count> {
    if depth == MAX_DEPTH && !node.is_leaf() {
        return refuse!(DEVX_TOO_DEEP, "{} is nested deeper than {MAX_DEPTH}", N::NAME);
    }
    let Count { nodes, mut ascending, mut last } = count;
    let n_children = node.n_children();
    // All children are counted before one of them is looked at, so that a false count ends here, not in a long walk.
    let mut nodes = match usize::try_from(n_children) {
        Ok(n) if nodes + n <= MAX_NODES => nodes + n,
        Ok(_) => {
            return refuse!(
                DEVX_TOO_DEEP,
                "n_children is {n_children}: {} would have more than {MAX_NODES} nodes",
                N::NAME
            );
        }
        Err(_) => return refuse!(DEVX_INVALID_CHILDREN, "n_children is {n_children}: it must not be negative"),
    };
    let children = node.children();
    if n_children > 0 && children.is_null() {
        return refuse!(DEVX_INVALID_CHILDREN, "children is NULL with n_children {n_children}");
    }
    for i in 0..n_children as usize {
        // SAFETY: the table has `n_children` entries.
        let child = unsafe { entry(children, i) };
        // SAFETY: a child that is not NULL is valid.
        let Some(child) = (unsafe { child.as_ref() }) else {
            return refuse!(DEVX_INVALID_CHILDREN, "children[{i}] is NULL");
        };
        if child.release().is_none() {
            return refuse!(DEVX_INVALID_CHILDREN, "children[{i}] is released or was moved out");
        }
        let place = std::ptr::from_ref(child).addr();
        ascending &= last < place;
        last = place;
        // A leaf, as nearly every child is, has nothing to check here.
        if !child.is_leaf() {
            // SAFETY: as above.
            Count { nodes, ascending, last } =
                unsafe { count_below(child, depth + 1, Count { nodes, ascending, last }) }
                    .map_err(|error| if depth < 8 { error.within(format_args!("children[{i}]: ")) } else { error })?;
        }
    }
    // SAFETY: a dictionary that is not NULL is valid.
    match unsafe { node.dictionary().as_ref() } {
        None => Ok(Count { nodes, ascending, last }),
        Some(dictionary) if dictionary.release().is_none() => {
            refuse!(DEVX_INVALID_CHILDREN, "dictionary is released or was moved out")
        }
        Some(dictionary) => {
            let place = std::ptr::from_ref(dictionary).addr();
            let count = Count { nodes: nodes + 1, ascending: ascending && last < place, last: place };
            // SAFETY: as above.
            unsafe { count_below(dictionary, depth + 1, count) }
                .map_err(|error| if depth < 8 { error.within("dictionary: ") } else { error })
        }
    }
}

/// Returns a node whose struct is elsewhere in the tree, too, so that both parents would release it.
///
/// `place(i)` is the address of the struct of node `i`. Producers lay structs out in order, or nearly; then this is one
/// walk. `scratch` is as long as there are nodes.
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
    // SAFETY: the loop above wrote every element.
    let sorted = unsafe { &mut *(std::ptr::from_mut(scratch) as *mut [usize]) };
    sorted.sort_unstable();
    let twice = sorted.windows(2).find_map(|pair| match *pair {
        [left, right] => (left == right).then_some(left),
        _ => None,
    })?;
    (1..nodes).find(|&i| place(i).addr() == twice)
}
