//! Memory that structs are made in: it stays where it is, remembers what was in it, and can be put back.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// What Arrow recommends for buffers, so that nothing is misaligned that was not meant to be.
const ALIGN: usize = 64;

struct Room {
    at: NonNull<u8>,
    layout: Layout,
    good: Vec<u8>,
    edited: Vec<u8>,
}

impl Room {
    fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this layout, and zeroed; the arena gives it back only when it goes.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.layout.size()) }
    }
}

/// Rooms that live and go together.
#[derive(Default)]
pub(crate) struct Arena(Vec<Room>);

// SAFETY: an arena is changed by its owner only; the rooms are memory like any other.
unsafe impl Send for Arena {}

impl Arena {
    /// The address of new memory, all zero.
    pub(crate) fn room(&mut self, bytes: usize) -> usize {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).expect("a small size");
        // SAFETY: the size is not zero.
        let at = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).expect("memory");
        self.0.push(Room { at, layout, good: Vec::new(), edited: Vec::new() });
        at.as_ptr().expose_provenance()
    }

    /// The address of new memory with these bytes in it.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> usize {
        let at = self.room(bytes.len());
        write(at, bytes);
        at
    }

    /// The address of a text that ends.
    pub(crate) fn text(&mut self, text: &[u8]) -> usize {
        let mut bytes = text.to_vec();
        bytes.push(0);
        self.store(&bytes)
    }

    /// What is in it now is what was right.
    pub(crate) fn is_good(&mut self) {
        self.0.iter_mut().for_each(|room| room.good = room.bytes().to_vec());
    }

    /// What is in it now is what is given out.
    pub(crate) fn is_edited(&mut self) {
        self.0.iter_mut().for_each(|room| room.edited = room.bytes().to_vec());
    }

    /// Whether it is still as it was given out.
    pub(crate) fn is_untouched(&self) -> bool {
        self.0.iter().all(|room| room.edited == room.bytes())
    }

    /// The word that was at a place when it was given out.
    pub(crate) fn edited_word(&self, at: usize) -> usize {
        let from = |room: &Room| at.checked_sub(room.at.as_ptr().addr());
        let word = self.0.iter().find_map(|room| room.edited.get(from(room)?..)?.first_chunk::<8>());
        usize::from_ne_bytes(*word.expect("a place in the arena"))
    }

    /// Makes it right again.
    pub(crate) fn put_back(&self) {
        for room in &self.0 {
            write(room.at.as_ptr().expose_provenance(), &room.good);
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for room in &self.0 {
            // SAFETY: allocated with this layout.
            unsafe { alloc::dealloc(room.at.as_ptr(), room.layout) }
        }
    }
}

/// Writes to memory of an [`Arena`], or to a struct that a consumer offered.
pub(crate) fn write(at: usize, bytes: &[u8]) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(at);
    // SAFETY: this crate calls it with places that its tables of fields found in rooms that it made itself.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
}

/// The word at a place of an [`Arena`].
pub(crate) fn word(at: usize) -> usize {
    // SAFETY: as for `write`.
    unsafe { std::ptr::with_exposed_provenance::<usize>(at).read_unaligned() }
}

/// An address where reading and writing kill the program: what must not even be looked at lies there.
pub(crate) fn forbidden() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        let (anywhere, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory of the system's choice.
        let page = unsafe { libc::mmap(anywhere, 1 << 16, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED, "no memory");
        page.expose_provenance()
    })
}
