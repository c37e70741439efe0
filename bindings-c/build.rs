//! Gives the shared library its soname: programs ask the loader for `libdevexchange.so.0`,
//! so that a later, incompatible `libdevexchange.so.1` can stand beside it. And has it stay when a plugin that loaded it
//! goes (`dlclose`): what was handed out is released through it, at any later time, and threads of it may be running.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        let major = env!("CARGO_PKG_VERSION_MAJOR");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdevexchange.so.{major}");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
