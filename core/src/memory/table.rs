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
