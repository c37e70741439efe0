//! Reads memory that was freed: a run with the address sanitizer must end with a report.

fn main() {
    let place = Box::into_raw(Box::new(7_u64));
    // SAFETY: from a box, and freed here only.
    drop(unsafe { Box::from_raw(place) });
    // SAFETY: none; that is what the tool must find.
    let freed = unsafe { std::ptr::read_volatile(place) };
    println!("{freed}");
}
