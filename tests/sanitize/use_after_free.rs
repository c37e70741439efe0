//! Reads memory after it was freed: the address sanitizer must report it.

fn main() {
    let place = Box::into_raw(Box::new(7_u64));
    // SAFETY: the pointer is from a box, which is freed only here.
    drop(unsafe { Box::from_raw(place) });
    // SAFETY: none; the tool must report this.
    let freed = unsafe { std::ptr::read_volatile(place) };
    println!("{freed}");
}
