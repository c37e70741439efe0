//! Each program in `cases/misuse` uses the core in a way that its types forbid, and must fail to compile with the text in the
//! `.stderr` file beside it. `TRYBUILD=overwrite` writes these texts; they are those of the Rust version in `Cargo.toml`.

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("cases/right_use.rs");
    cases.compile_fail("cases/misuse/*.rs");
}
