//! A struct that is given out, with everything below it, and the number of releases of each part.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::edit::apply;
use crate::layout::{ARRAY, Struct};
use crate::memory::Arena;

/// A part of a thing with its own release; `private_data` points here.
pub(crate) struct Record {
    releases: AtomicU32,
    /// The addresses of the structs that this one releases, as its producer knows them, whatever the struct says.
    pub(crate) below: Vec<usize>,
}

impl Record {
    /// The record behind `private_data`.
    ///
    /// # Safety
    /// The address comes from [`Thing::record`] of a thing that still exists.
    pub(crate) unsafe fn of<'a>(private_data: *mut core::ffi::c_void) -> &'a Self {
        // SAFETY: the caller's contract.
        unsafe { &*private_data.cast_const().cast::<Self>() }
    }

    /// Counts a release.
    pub(crate) fn count(&self) {
        self.releases.fetch_add(1, SeqCst);
    }
}

/// A spoiled struct, and the number of releases of its parts.
pub(crate) struct Thing {
    pub(crate) arena: Arena,
    /// The address of the struct.
    pub(crate) root: usize,
    layout: &'static Struct,
    /// The record of each part, the root's last.
    #[expect(clippy::vec_box, reason = "their addresses are given out")]
    records: Vec<Box<Record>>,
}

impl Thing {
    /// A struct of this layout that is all zero.
    pub(crate) fn new(layout: &'static Struct) -> Self {
        let mut arena = Arena::default();
        let root = arena.room(layout.bytes);
        Self { arena, root, layout, records: Vec::new() }
    }

    /// A new record, as the address for `private_data`.
    pub(crate) fn record(&mut self, below: Vec<usize>) -> *mut core::ffi::c_void {
        let record = Box::new(Record { releases: AtomicU32::new(0), below });
        let at = std::ptr::from_ref(&*record).cast_mut().cast();
        self.records.push(record);
        at
    }

    /// Spoils the struct, which is valid so far.
    pub(crate) fn spoil(mut self, edits: &[String]) -> Self {
        self.arena.is_good();
        for edit in edits {
            apply(edit, self.root, self.layout, &mut self.arena);
        }
        self.arena.is_edited();
        self
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.arena.is_untouched()
    }

    /// Whether an array was given out already released.
    pub(crate) fn is_released(&self) -> bool {
        self.layout.field("array").is_some_and(|(array, _)| {
            let release = ARRAY.field("release").map_or(0, |(release, _)| release);
            self.arena.edited_word(self.root + array + release) == 0
        })
    }

    /// The number of releases of all parts.
    pub(crate) fn all_releases(&self) -> u32 {
        self.records.iter().map(|record| record.releases.load(SeqCst)).sum()
    }

    /// Checks that every part was released this many times.
    pub(crate) fn check(&self, what: &str, times: u32) -> Result<(), String> {
        let counts: Vec<_> = self.records.iter().map(|record| record.releases.load(SeqCst)).collect();
        match counts.iter().all(|count| *count == times) {
            true => Ok(()),
            false => Err(format!("{what}: its parts were released {counts:?} times (the root last), not {times}")),
        }
    }
}
