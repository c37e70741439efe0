//! The C and C++ compilers, and the headers that they compile.

use crate::root;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The language as which a header is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C11.
    C,
    /// C++17.
    Cxx,
}

impl Language {
    /// Both.
    pub const ALL: [Self; 2] = [Self::C, Self::Cxx];

    /// A compile-time assertion, whose message says what is wrong.
    pub fn assertion(self, condition: &str) -> String {
        let keyword = match self {
            Self::C => "_Static_assert",
            Self::Cxx => "static_assert",
        };
        let message = condition.replace('"', "'").replace('\n', " ");
        format!("{keyword}({condition}, \"{message}\");\n")
    }
}

/// Our headers, in the order in which `devexchange.h` includes them.
pub const HEADERS: [&str; 8] = [
    "dlpack/dlpack.h",
    "arrow/c/data.h",
    "arrow/c/device.h",
    "arrow/c/stream.h",
    "arrow/c/device_stream.h",
    "arrow/c/async.h",
    "devexchange/types.h",
    "devexchange.h",
];

/// The official headers.
pub const OFFICIAL_HEADERS: [&str; 2] = ["dlpack/dlpack.h", "arrow/c/abi.h"];

/// The directory of our headers.
pub fn ours() -> PathBuf {
    root().join("bindings-c/include")
}

/// The directory of the official headers.
///
/// # Panics
/// If they cannot be fetched.
pub fn official() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let script = root().join("scripts/official-headers.sh");
        let output = Command::new("bash").arg(&script).output().expect("run bash");
        assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
        let directory = String::from_utf8(output.stdout).expect("UTF-8");
        PathBuf::from(directory.trim())
    })
}

/// Compiles a text with all warnings as errors, without making an object file.
///
/// # Errors
/// The compiler's messages.
///
/// # Panics
/// If there is no compiler.
pub fn compile(language: Language, text: &str) -> Result<(), String> {
    let (variable, default, arguments) = match language {
        Language::C => ("CC", "cc", ["-std=c11", "-xc"]),
        Language::Cxx => ("CXX", "c++", ["-std=c++17", "-xc++"]),
    };
    let compiler = std::env::var_os(variable).unwrap_or_else(|| default.into());
    let mut child = Command::new(&compiler)
        .args(arguments)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
        .arg("-I")
        .arg(ours())
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", compiler.display()));
    let mut input = child.stdin.take().expect("the input is a pipe");
    // A compiler that gives up early reports the reason itself.
    let _ = input.write_all(text.as_bytes());
    drop(input);
    let output = child.wait_with_output().expect("wait for the compiler");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Compiles a text that must compile.
///
/// # Panics
/// If it does not.
pub fn must_compile(language: Language, what: &str, text: &str) {
    if let Err(errors) = compile(language, text) {
        panic!("{what} as {language:?}:\n{errors}");
    }
}

/// An `#include` of a file by its full path, so that no directories are searched.
pub fn include(directory: &Path, header: &str) -> String {
    format!("#include \"{}\"\n", directory.join(header).display())
}

/// A header without comments.
///
/// # Panics
/// If it cannot be read, or a comment does not end.
pub fn code(file: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("read the header");
    let mut code = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        let (before, comment) = rest.split_at(at);
        code += before;
        let end = if comment.starts_with("//") {
            comment.find('\n').unwrap_or(comment.len())
        } else {
            comment.find("*/").expect("the comment ends") + 2
        };
        rest = comment.split_at(end).1;
    }
    code + rest
}

/// The words of C in a text, in order.
pub fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
