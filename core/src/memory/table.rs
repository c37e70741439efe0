//! Tables in foreign structs: an address, and a number of entries that is known from elsewhere.

/// Reads entry `index`.
///
/// # Safety
/// `table` has more than `index` entries.
pub(crate) unsafe fn entry<T: Copy>(table: *const T, index: usize) -> T {
    // SAFETY: the caller's contract.
    let place = unsafe { table.add(index) };
    // SAFETY: as above.
    unsafe { place.read() }
}

/// Writes entry `index`.
///
/// # Safety
/// `table` has room for more than `index` entries.
pub(crate) unsafe fn set_entry<T: Copy>(table: *mut T, index: usize, value: T) {
    // SAFETY: the caller's contract.
    let place = unsafe { table.add(index) };
    // SAFETY: as above.
    unsafe { place.write(value) };
}

/// Copies all entries. Tables are short, so the usual lengths are copied without a call.
///
/// # Safety
/// `to` has room for as many entries, which do not overlap with `from`.
#[inline]
pub(crate) unsafe fn copy_table<T: Copy>(from: &[T], to: *mut T) {
    match *from {
        // SAFETY: the caller's contract.
        [one] => unsafe { to.write(one) },
        // SAFETY: as above.
        [one, two] => unsafe { to.cast::<[T; 2]>().write([one, two]) },
        // SAFETY: as above.
        [one, two, three] => unsafe { to.cast::<[T; 3]>().write([one, two, three]) },
        // SAFETY: as above.
        _ => unsafe { copy_long(from, to) },
    }
}

/// # Safety
/// Same as [`copy_table`].
#[inline(never)]
unsafe fn copy_long<T: Copy>(from: &[T], to: *mut T) {
    // SAFETY: the caller's contract.
    unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) }
}
