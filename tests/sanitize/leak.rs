//! Leaks memory: the leak sanitizer must report it.

fn main() {
    let mut forgotten = vec![0_u8; 4321];
    println!("{}", std::hint::black_box(&mut forgotten).len());
    std::mem::forget(forgotten);
    // A copy of the address, left in a register or on the stack, would count as a reference.
    std::thread::spawn(|| std::hint::black_box([0_u8; 4096])).join().map_or_else(|_| (), |_| ());
}
