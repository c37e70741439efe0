//! Writes to a variable through a pointer while a mutable reference to it is in use: Miri must report it. The sanitizers do
//! not detect this.

fn main() {
    let mut place = 7_u64;
    let first = &raw mut place;
    // SAFETY: the variable is alive, and nothing else refers to it yet.
    let second = unsafe { &mut *first };
    // SAFETY: none; the tool must report this.
    unsafe { *first = 8 };
    *second += 1;
    println!("{place}");
}
