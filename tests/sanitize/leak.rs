//! Forgets memory: a run with the leak sanitizer must end with a report.

fn main() {
    let mut forgotten = vec![0_u8; 4321];
    println!("{}", std::hint::black_box(&mut forgotten).len());
    std::mem::forget(forgotten);
    // What is left in registers and on the stack would count as a reference.
    std::thread::spawn(|| std::hint::black_box([0_u8; 4096])).join().map_or_else(|_| (), |_| ());
}
