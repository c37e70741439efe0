//! Filling a block in place.

/// Makes a block with the given number of references. Unlike `Room::fill`, it writes each member of the header directly in
/// place, so that none is moved in memory on the way.
macro_rules! fill_in {
    ($room:expr, $refs:expr, $Header:ident { $($member:ident: $value:expr),* $(,)? }) => {{
        // Fails to compile unless all members are given.
        let _ = |$Header { $($member: _),* }: $Header| ();
        let (room, refs): ($crate::memory::Room<$Header>, usize) = ($room, $refs);
        let header = room.header();
        $(
            let value = $value;
            // SAFETY: the room is for a header of this type.
            let member = unsafe { &raw mut (*header).$member };
            // SAFETY: as above.
            unsafe { member.write(value) };
        )*
        // SAFETY: all members are written.
        unsafe { room.filled(refs) }
    }};
}
pub(crate) use fill_in;
