//! Filling a block in place.

/// Makes a block with so many references, as `Room::fill`; but each member of the header is written where it belongs, so
/// that none is moved about in memory on the way.
macro_rules! fill_in {
    ($room:expr, $refs:expr, $Header:ident { $($member:ident: $value:expr),* $(,)? }) => {{
        // All members there are.
        let _ = |$Header { $($member: _),* }: $Header| ();
        let (room, refs): ($crate::memory::Room<$Header>, usize) = ($room, $refs);
        let header = room.header();
        $(
            let value = $value;
            // SAFETY: the room is for such a header.
            let member = unsafe { &raw mut (*header).$member };
            // SAFETY: as above.
            unsafe { member.write(value) };
        )*
        // SAFETY: all members are written.
        unsafe { room.filled(refs) }
    }};
}
pub(crate) use fill_in;
