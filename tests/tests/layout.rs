//! The structs of the boundary have the memory layout of the standards, and keep it.
//!
//! Rust states the layout; C and C++ compilers check it against our headers and the official ones.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use devexchange_tests::c::{
    HEADERS, Language, OFFICIAL_HEADERS, code, compile, include, must_compile, official, ours, words,
};
use devexchange_tests::layout::{PREAMBLE, Record, c_name, constant_table, constants, records, table};
use devexchange_tests::{check_committed, check_same, root};
use std::collections::BTreeSet;

/// `INSTA_UPDATE=always` writes the snapshots, `DEVX_BLESS=1` the text files.
#[test]
fn layout_is_as_committed() {
    insta::assert_snapshot!("layout", table());
    check_committed("layout.txt", &table());
}

#[test]
fn constants_are_as_committed() {
    insta::assert_snapshot!("constants", constant_table());
    check_committed("constants.txt", &constant_table());
}

#[test]
fn tables_are_complete() {
    let mut declared = BTreeSet::new();
    for file in std::fs::read_dir(root().join("core/src/abi")).expect("the sources") {
        let text = std::fs::read_to_string(file.expect("a source").path()).expect("read");
        for line in text.lines() {
            let mut item = words(line);
            if line.starts_with("pub ")
                && let (Some("const" | "struct" | "type"), Some(name)) = (item.nth(1), item.next())
            {
                declared.insert(c_name(name));
            }
        }
    }
    // A C enumeration whose values are stored in a `uint8_t`; no struct holds one.
    assert!(declared.remove("DLDataTypeCode"));
    // The opaque type of a handle: it has no layout.
    assert!(declared.remove("devx_batch"));
    let mut listed: BTreeSet<_> = records().into_iter().map(|record| record.name).collect();
    listed.extend(constants().into_iter().map(|constant| constant.name.to_owned()));
    check_same(("in core/src/abi", &declared), ("in tests/src/layout.rs", &listed));
}

#[test]
fn our_headers_say_the_same() {
    for language in Language::ALL {
        let mut text = PREAMBLE.to_owned();
        for header in HEADERS {
            text += &include(&ours(), header);
        }
        text += &assertions(language, |_| true);
        must_compile(language, "layout of our headers", &text);
    }
}

#[test]
fn official_headers_say_the_same() {
    for language in Language::ALL {
        let mut text = PREAMBLE.to_owned();
        for header in OFFICIAL_HEADERS {
            text += &include(official(), header);
        }
        text += &assertions(language, |header| !header.starts_with("devexchange/"));
        must_compile(language, "layout of the official headers", &text);
    }
}

/// The type of each field and of each function pointer is the official header's type, not merely one of the same size.
#[test]
fn official_headers_have_our_types() {
    let mut text = PREAMBLE.to_owned();
    for header in OFFICIAL_HEADERS {
        text += &include(official(), header);
    }
    let mut checked = 0;
    for header in HEADERS.into_iter().filter(|header| !header.starts_with("devexchange")) {
        let code = code(&ours().join(header));
        for record in records().iter().filter(|record| record.header == header) {
            for (what, declaration, name) in declarations(&code, record) {
                let pointer = replaced(&declaration, &name, "(*)");
                text += &Language::C.assertion(&format!("_Generic({what}, {pointer}: 1, default: 0)"));
                checked += 1;
            }
        }
    }
    must_compile(Language::C, "types of the official headers", &text);
    assert!(checked > 80, "only {checked} types were looked at");
}

#[test]
fn a_wrong_number_does_not_compile() {
    for language in Language::ALL {
        let header = include(official(), "dlpack/dlpack.h");
        let tensor = records().into_iter().find(|r| r.name == "DLTensor");
        let mut tensor = tensor.expect("a record");
        let with = |record: &Record| compile(language, &format!("{PREAMBLE}{header}{}", record.assertions(language)));
        assert!(with(&tensor).is_ok());
        tensor.fields.last_mut().expect("a field").1 += 8;
        assert!(with(&tensor).is_err());
    }
}

fn assertions(language: Language, header: impl Fn(&str) -> bool) -> String {
    let records = records().into_iter().filter(|record| header(record.header));
    let constants = constants().into_iter().filter(|c| header(c.header));
    records
        .map(|record| record.assertions(language))
        .chain(constants.map(|constant| constant.assertions(language)))
        .collect()
}

/// For each field of a struct in a header: a C expression of the type "pointer to the field", the field's declaration
/// and its name. For a type that is not a struct, the same for the type itself.
fn declarations(code: &str, record: &Record) -> Vec<(String, String, String)> {
    let c_type = record.c_type();
    if record.fields.is_empty() {
        let declares = |text: &&str| {
            text.contains(&format!("(*{})", record.name))
                || (text.ends_with(&format!(" {}", record.name)) && !text.contains('}'))
        };
        let typedef =
            (code.split(';').map(str::trim)).filter_map(|text| Some(text.rsplit_once("typedef ")?.1)).find(declares);
        // An enumeration is checked by its values.
        return typedef
            .map(|text| (format!("({c_type} *)0"), text.to_owned(), record.name.clone()))
            .into_iter()
            .collect();
    }
    let body = if let Some((before, _)) = code.split_once(&format!("}} {};", record.name)) {
        before.rsplit_once("{\n")
    } else {
        let (_, after) = (code.split_once(&format!("struct {} {{", record.name)))
            .unwrap_or_else(|| panic!("no struct {}", record.name));
        after.split_once("};").map(|(body, after)| (after, body))
    };
    let (_, body) = body.expect("a struct has braces");
    let fields: Vec<_> = body.split(';').map(str::trim).filter(|f| !f.is_empty()).collect();
    assert_eq!(fields.len(), record.fields.len(), "{}", record.name);
    (fields.into_iter().zip(&record.fields))
        .map(|(declaration, (name, _))| {
            let what = format!("&(({c_type} *)0)->{name}");
            (what, declaration.to_owned(), (*name).to_owned())
        })
        .collect()
}

/// The declaration with another text in the place of the declared name.
fn replaced(declaration: &str, name: &str, with: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let at = (declaration.match_indices(name).map(|(at, _)| at)).find(|&at| {
        let (before, after) = declaration.split_at(at);
        !before.ends_with(is_word) && !after.trim_start_matches(name).starts_with(is_word)
    });
    let at = at.unwrap_or_else(|| panic!("no {name} in {declaration}"));
    let (before, after) = declaration.split_at(at);
    format!("{before}{with}{}", after.strip_prefix(name).unwrap_or_default())
}
