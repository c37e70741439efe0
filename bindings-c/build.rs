//! Gives the shared library its soname: programs ask the loader for `libdevexchange.so.0`,
//! so that a later, incompatible `libdevexchange.so.1` can stand beside it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        let major = env!("CARGO_PKG_VERSION_MAJOR");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdevexchange.so.{major}");
    }
}
