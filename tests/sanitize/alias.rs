//! Writes past a reference that is still used: a run in Miri must end with a report. No sanitizer has anything to
//! say of it.

fn main() {
    let mut place = 7_u64;
    let first = &raw mut place;
    // SAFETY: alive, and nobody else uses it yet.
    let second = unsafe { &mut *first };
    // SAFETY: none; that is what the tool must find.
    unsafe { *first = 8 };
    *second += 1;
    println!("{place}");
}
