//! What the types of the core refuse, each in a program of its own, with what the compiler says to it: `TRYBUILD=overwrite`
//! writes that anew. The texts are those of the Rust version in `Cargo.toml`.

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("cases/right_use.rs");
    cases.compile_fail("cases/misuse/*.rs");
}
