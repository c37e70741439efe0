//! Gives the shared library its soname, by which programs ask the loader for it: `libdevexchange.so.` and the version up
//! to the number that may change the ABI, which before 1.0 is the minor one. In this way, incompatible versions can stand
//! side by side. Also keeps the library loaded when a plugin that loaded it is closed (`dlclose`): what was handed out is
//! released through it at any later time, and its threads may be running.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        let abi = match (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR")) {
            ("0", minor) => format!("0.{minor}"),
            (major, _) => major.to_owned(),
        };
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdevexchange.so.{abi}");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
