//! Tests of the judge: it finds what a consumer can do wrong with a struct, and accepts what the consumer does right.
#![expect(clippy::expect_used, reason = "what only tests call fails by panicking")]

use std::ptr::with_exposed_provenance_mut as address;

use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_corpus::{Case, LANGUAGES, Made, cases};

fn case(name: &str) -> &'static Case {
    cases().iter().find(|case| case.name == name).expect(name)
}

fn schema(made: &mut Made) -> &mut ArrowSchema {
    // SAFETY: a schema that nobody else uses.
    unsafe { &mut *address(made.address()) }
}

fn release(schema: &mut ArrowSchema) {
    let release = schema.release.expect("not released");
    // SAFETY: the struct's own release.
    unsafe { release(schema) };
}

#[test]
fn who_does_it_right_is_content() {
    // Refused: nothing was done.
    let mut made = Made::new(case("schema: n_children is negative"));
    assert_eq!(made.after(true), Ok(()));
    assert_eq!(made.end(), Ok(()));
    // Taken: moved, and released once.
    let mut made = Made::new(case("schema: good"));
    let mut moved = *schema(&mut made);
    schema(&mut made).release = None;
    assert_eq!(made.after(false), Ok(()));
    release(&mut moved);
    assert_eq!(made.end(), Ok(()));
}

#[test]
fn a_release_of_what_was_refused_is_found() {
    let mut made = Made::new(case("schema: format is NULL"));
    release(schema(&mut made));
    assert!(made.after(true).is_err_and(|wrong| wrong.contains("refused, but its release was called")));
}

#[test]
fn a_change_of_what_was_refused_is_found() {
    let mut made = Made::new(case("schema: format is NULL"));
    schema(&mut made).release = None;
    assert_eq!(made.after(true), Err("it was refused, but it was changed".to_owned()));
    // Also far below.
    let mut made = Made::new(case("schema: name of a child is not UTF-8"));
    // SAFETY: the children of this case are valid.
    let child = unsafe { *schema(&mut made).children };
    // SAFETY: as above.
    unsafe { (*child).flags = 77 };
    assert_eq!(made.after(true), Err("it was refused, but it was changed".to_owned()));
}

#[test]
fn an_early_release_of_what_was_taken_is_found() {
    let mut made = Made::new(case("schema: good"));
    release(schema(&mut made));
    assert!(made.after(false).is_err_and(|wrong| wrong.contains("taken, but its release was called")));
}

#[test]
fn what_is_not_released_is_found() {
    let mut made = Made::new(case("schema: good"));
    assert_eq!(made.after(false), Ok(()));
    assert!(made.end().is_err_and(|wrong| wrong.contains("released [0, 0, 0, 0, 0, 0, 0, 0] times")));
}

#[test]
fn what_is_released_twice_is_found() {
    let mut made = Made::new(case("dlpack: good"));
    assert_eq!(made.after(false), Ok(()));
    let tensor = address::<DLManagedTensorVersioned>(made.address());
    // SAFETY: a good tensor.
    let deleter = unsafe { (*tensor).deleter }.expect("a deleter");
    for _ in 0..2 {
        // SAFETY: the second call is the point of the test: this deleter only counts.
        unsafe { deleter(tensor) };
    }
    assert!(made.end().is_err_and(|wrong| wrong.contains("released [2] times")));
}

#[test]
fn a_case_that_nobody_judged_is_found() {
    let made = Made::new(case("schema: good"));
    assert!(made.end().is_err_and(|wrong| wrong.contains("nobody said")));
}

/// A consumer that refuses everything fails, and so does one that accepts everything.
#[test]
fn there_is_good_and_bad_of_every_kind() {
    for case in cases() {
        let of_kind = || cases().iter().filter(|other| other.kind == case.kind);
        assert!(of_kind().any(|other| other.status.is_empty()), "{}: nothing is good", case.kind);
        assert!(of_kind().any(|other| !other.status.is_empty()), "{}: nothing is bad", case.kind);
        assert!(!case.source.is_empty() && !case.languages().is_empty(), "{}", case.name);
    }
}

/// The table of `docs/bad-input.md`; `DEVX_BLESS=1` writes it.
#[test]
fn the_table_of_the_page_is_up_to_date() {
    let page = devexchange_tests::root().join("docs/bad-input.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let (before, rest) = text.split_once(BEGIN).expect("the begin of the table");
    let (_, after) = rest.split_once(END).expect("the end of the table");
    let wanted = format!("{before}{BEGIN}\n{}{END}{after}", table());
    if std::env::var_os("DEVX_BLESS").is_some() {
        std::fs::write(&page, &wanted).expect("written");
    } else {
        assert_eq!(text, wanted, "DEVX_BLESS=1 cargo test -p devexchange-corpus --test judge writes it");
    }
}

const BEGIN: &str = "<!-- the table -->";
const END: &str = "<!-- end of the table -->";

fn table() -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for case in cases() {
        if !kinds.contains(&case.kind.as_str()) {
            kinds.push(&case.kind);
        }
    }
    let mut text = String::from("| what is imported | cases | refused | when read | accepted |");
    LANGUAGES.iter().for_each(|language| text += &format!(" {language} |"));
    text += &format!("\n|---|{}\n", "---:|".repeat(4 + LANGUAGES.len()));
    for kind in kinds.iter().map(|kind| Some(*kind)).chain([None]) {
        let rows: Vec<&Case> = cases().iter().filter(|case| kind.is_none_or(|kind| case.kind == kind)).collect();
        let count = |is: &dyn Fn(&Case) -> bool| rows.iter().filter(|case| is(case)).count();
        let (accepted, read) = (count(&|case| case.status.is_empty()), count(&|case| case.stage == "read"));
        text += &format!("| {} | {} ", kind.map_or("all".into(), |kind| format!("`{kind}`")), rows.len());
        text += &format!("| {} | {read} | {accepted} |", rows.len() - accepted - read);
        for language in LANGUAGES {
            text += &format!(" {} |", count(&|case| case.languages().iter().any(|other| other == language)));
        }
        text += "\n";
    }
    text
}
