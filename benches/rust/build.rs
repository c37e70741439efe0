//! Compiles the harness, which all programs with benches share (benches/c).

fn main() {
    let c = "../c";
    println!("cargo::rerun-if-changed={c}");
    let sources = ["allocations", "bench", "data", "threads"];
    let mut build = cc::Build::new();
    build.std("gnu11").opt_level(2).warnings_into_errors(true);
    build.files(sources.map(|name| format!("{c}/{name}.c")));
    // The linker has to take all objects: nothing in Rust refers to `main` and `malloc`.
    build.link_lib_modifier("+whole-archive");
    build.compile("bench");
}
