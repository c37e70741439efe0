//! Who keeps memory alive: owners, foreign structs with a release of their own, and reference-counted slabs.
//! Every foreign release is called from here, exactly once.

mod blocks;
mod fill;
mod foreign;
mod lazy;
mod owner;
mod queue;
mod slab;
mod table;
#[cfg(test)]
mod tests;
mod vacant;

pub(crate) use blocks::{Blocks, Returned, free_all};
pub(crate) use fill::fill_in;
pub(crate) use foreign::{Foreign, Releasable, release};
pub(crate) use lazy::Lazy;
pub use owner::Owner;
pub use queue::{ReleaseQueue, Signal};
pub(crate) use slab::{Room, Slab, Tail, TailSize};
pub(crate) use table::{entry, set_entry};
pub use vacant::{Vacant, boxed, collected, push, repeated, vector};
