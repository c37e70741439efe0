//! Gives the library the soname under which clients look for the CUDA driver, and keeps it loaded: its threads may
//! outlive a client's `dlclose`.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The table of entry points refers to this library's own functions, whatever else is loaded under the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
