//! What keeps memory alive: owners, foreign structs with their own release, and reference-counted slabs.
//! Every foreign release is called from here, exactly once.

mod blocks;
mod borrowed;
mod counted;
mod fallible;
mod fill;
mod foreign;
mod held;
mod lazy;
mod nesting;
mod owner;
mod queue;
mod shielded;
mod slab;
mod sorted;
mod table;
#[cfg(test)]
mod tests;

pub use borrowed::Borrowed;
pub(crate) use counted::Weak;
pub use counted::{Counted, CountedRoom};
pub(crate) use fallible::{string, zeros};
pub(crate) use fill::fill_in;
pub(crate) use foreign::{Foreign, Releasable, release, release_given};
pub(crate) use held::held_by_bindings;
pub(crate) use lazy::Lazy;
pub(crate) use owner::InOrder;
pub use owner::Owner;
pub use queue::{ReleaseQueue, Signal};
pub(crate) use shielded::Shielded;
pub(crate) use slab::{Room, Slab, Tail, TailSize};
pub(crate) use sorted::Sorted;
pub(crate) use table::{copy_table, entry, set_entry};
// Public for the bindings, which are built together with this crate. Not part of the API; no version promises it.
#[doc(hidden)]
pub use crate::vacant::Vacant;
#[doc(hidden)]
pub use fallible::{boxed, collected, push, repeated, said, vector};
