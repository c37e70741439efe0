//! Our headers can be included alone, twice, and beside the official ones in every order.

use devexchange_tests::c::{
    HEADERS, Language, OFFICIAL_HEADERS, code, compile, include, must_compile, official, ours, words,
};
use devexchange_tests::check_same;
use devexchange_tests::layout::{PREAMBLE, constants, records};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A header by itself, without anything before or after it.
#[test]
fn each_header_stands_alone() {
    for language in Language::ALL {
        for (directory, header) in all() {
            must_compile(language, header, &include(&directory, header));
        }
    }
}

#[test]
fn any_two_headers_in_both_orders_in_c() {
    any_two_headers(Language::C);
}

#[test]
fn any_two_headers_in_both_orders_in_cxx() {
    any_two_headers(Language::Cxx);
}

/// Every header before and after every other, and itself: each then declares everything that it promises.
fn any_two_headers(language: Language) {
    for (directory, header) in all() {
        for (other_directory, other) in all() {
            let text = [
                include(&directory, header),
                include(&other_directory, other),
                PREAMBLE.to_owned(),
                promised(language, header),
                promised(language, other),
            ];
            let what =
                format!("{} and then {}", directory.join(header).display(), other_directory.join(other).display());
            must_compile(language, &what, &text.concat());
        }
    }
}

/// The official headers between ours, once in our order and once in the opposite one.
#[test]
fn official_headers_in_the_middle() {
    let mut official_ones = String::new();
    for header in OFFICIAL_HEADERS {
        official_ones += &include(official(), header);
    }
    for language in Language::ALL {
        for at in 0..=HEADERS.len() {
            let mut lines: Vec<_> = (HEADERS.iter()).map(|header| include(&ours(), header)).collect();
            lines.insert(at, official_ones.clone());
            let promised: String = HEADERS.map(|header| promised(language, header)).concat();
            for reversed in [false, true] {
                if reversed {
                    lines.reverse();
                }
                let text = format!("{}{PREAMBLE}{promised}", lines.concat());
                must_compile(language, &format!("official headers at {at}"), &text);
            }
        }
    }
}

/// The names of DLPack 0.8 and of older versions; other projects have copies of such headers.
const OLDER_DLPACK: &str = "
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#include <stddef.h>
#include <stdint.h>
#define DLPACK_VERSION 80
typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
typedef struct { DLDeviceType device_type; int32_t device_id; } DLDevice;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U } DLDataTypeCode;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
  void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape; int64_t *strides; uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor; void *manager_ctx; void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
#endif
";

/// Our header has all names of this one, so ours can come first. After the old header, C has only what that can
/// declare.
#[test]
fn a_dlpack_of_before_1_0() {
    const LEGACY: &str = "
static inline devx_tensor_t *taken(DLManagedTensor *from) {
  devx_tensor_t *tensor = NULL;
  return devx_tensor_import_legacy(from, &tensor, NULL) == DEVX_OK ? tensor : NULL;
}
static inline void given_up(devx_tensor_t *tensor, struct DLManagedTensorVersioned *handed) {
  devx_tensor_release(&tensor);
  devx_dlpack_release(&handed);
}
";
    let functions = include(&ours(), "devexchange.h");
    for language in Language::ALL {
        must_compile(language, "an older dlpack.h at the end", &[&functions, OLDER_DLPACK, LEGACY].concat());
        must_compile(language, "an older dlpack.h at the beginning", &[OLDER_DLPACK, &functions, LEGACY].concat());
    }
    let classes = include(&ours(), "devexchange.hpp");
    must_compile(Language::Cxx, "an older dlpack.h behind C++", &[&classes, OLDER_DLPACK].concat());
    let errors = compile(Language::Cxx, &[OLDER_DLPACK, &classes].concat()).expect_err("it lacks names");
    assert!(errors.contains("include devexchange.hpp before it"), "{errors}");
}

/// A guard of a standard promises all of its names, and holds no other.
#[test]
fn names_are_those_of_the_official_headers() {
    let dlpack = |directory: &Path| {
        let code = code(&directory.join("dlpack/dlpack.h"));
        names(&code, &["DL", "kDL"])
    };
    check_same(("in our dlpack.h", &dlpack(&ours())), ("in the official one", &dlpack(official())));

    let arrow = |text: &str| names(text, &["Arrow", "ARROW_"]);
    let ours: String = (HEADERS.into_iter())
        .filter(|header| header.starts_with("arrow/"))
        .map(|header| code(&ours().join(header)))
        .collect();
    check_same(
        ("in our arrow headers", &arrow(&ours)),
        ("in the official abi.h", &arrow(&code(&official().join("arrow/c/abi.h")))),
    );
}

/// Every type and macro in a header with a standard's name belongs to the standard.
#[test]
fn canonical_guards_hold_nothing_of_ours() {
    for header in HEADERS.into_iter().filter(|header| !header.starts_with("devexchange")) {
        let code = code(&ours().join(header));
        assert!(!words(&code).any(|word| word.to_ascii_lowercase().starts_with("devx")), "{header}");
        for name in words_after(&code, &["define", "struct", "enum"]) {
            let of_standard = ["DL", "Arrow", "ARROW_"];
            assert!(of_standard.iter().any(|p| name.starts_with(p)), "{header}: {name}");
        }
    }
}

fn all() -> Vec<(PathBuf, &'static str)> {
    let official_ones = OFFICIAL_HEADERS.map(|header| (official().to_owned(), header));
    let ours = HEADERS.map(|header| (ours(), header));
    official_ones.into_iter().chain(ours).collect()
}

/// Assertions about everything that a header declares, itself or through its includes.
fn promised(language: Language, header: &str) -> String {
    let promises = |declared_in: &str| match header {
        "devexchange.h" => true,
        "arrow/c/abi.h" => declared_in.starts_with("arrow/"),
        "arrow/c/device.h" => [header, "arrow/c/data.h"].contains(&declared_in),
        "arrow/c/stream.h" => [header, "arrow/c/data.h"].contains(&declared_in),
        "arrow/c/device_stream.h" | "arrow/c/async.h" => {
            [header, "arrow/c/data.h", "arrow/c/device.h"].contains(&declared_in)
        }
        _ => header == declared_in,
    };
    let records = records().into_iter().filter(|record| promises(record.header));
    let constants = constants().into_iter().filter(|c| promises(c.header));
    records
        .map(|record| record.assertions(language))
        .chain(constants.map(|constant| constant.assertions(language)))
        .collect()
}

/// The words that begin like names of a standard; words after `struct` are also listed with it.
fn names(code: &str, prefixes: &[&str]) -> BTreeSet<String> {
    let of_standard = |word: &str| prefixes.iter().any(|prefix| word.starts_with(prefix));
    let mut names: BTreeSet<_> = (words(code).filter(|word| of_standard(word))).map(str::to_owned).collect();
    for tag in words_after(code, &["struct"]) {
        if of_standard(tag) {
            names.insert(format!("struct {tag}"));
        }
    }
    names
}

/// The words directly after one of some keywords.
fn words_after<'a>(code: &'a str, keywords: &[&str]) -> Vec<&'a str> {
    let spaced: Vec<_> = code.split([' ', '\n', '(', '*', ',', ';']).filter(|w| !w.is_empty()).collect();
    (spaced.windows(2))
        .filter_map(|pair| match pair {
            [keyword, name] if keywords.contains(keyword) => Some(*name),
            _ => None,
        })
        .filter(|name| *name != "{" && *name != ":")
        .collect()
}
