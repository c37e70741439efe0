//! Compiles the part that all programs with benches have (benches/c).

fn main() {
    let c = "../c";
    println!("cargo::rerun-if-changed={c}");
    let sources = ["allocations", "bench", "data", "threads"];
    let mut build = cc::Build::new();
    build.std("gnu11").opt_level(2).warnings_into_errors(true);
    build.files(sources.map(|name| format!("{c}/{name}.c")));
    // `main` and `malloc` are in there, which nobody asks for by name.
    build.link_lib_modifier("+whole-archive");
    build.compile("bench");
}
