//! Checks that the committed headers are what the sources generate (`DEVX_BLESS=1` rewrites them).
//!
//! cbindgen writes the data layouts, one header from each file of `core/src/abi`; safer-ffi writes
//! the functions. The C of both is correct, but not nice: the code besides the two calls puts
//! declarations into the order of the source, and comments into the terms of C.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};
use devexchange as _; // Links the exports, which safer-ffi finds at run time.
use std::collections::BTreeMap;
use std::path::Path;

const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
const ABI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src/abi");

/// Columns of a line in a header.
const WIDTH: usize = 100;

/// A header that cbindgen writes.
struct Layout {
    path: &'static str,
    guard: &'static str,
    title: &'static str,
    source: &'static str,
    /// Sources of the types that `source` uses.
    uses: &'static [&'static str],
    /// Included before the guard opens. Within its guard, a header with a standard's name must hold
    /// nothing but the standard, or a program with the official header would miss something.
    includes: &'static [&'static str],
    style: Style,
}

const LAYOUTS: [Layout; 8] = [
    Layout {
        path: "dlpack/dlpack.h",
        guard: "DLPACK_DLPACK_H_",
        title: "DLPack 1.3. Takes the place of the official header, which has the same guard and the same names.",
        source: "dlpack.rs",
        uses: &[],
        includes: &["<stddef.h>", "<stdint.h>"],
        style: Style::Both,
    },
    Layout {
        path: "arrow/c/data.h",
        guard: "ARROW_C_DATA_INTERFACE",
        title: "Arrow C data interface. May be used together with the official arrow/c/abi.h.",
        source: "arrow_data.rs",
        uses: &[],
        includes: &["<stdint.h>"],
        style: Style::Tag,
    },
    Layout {
        path: "arrow/c/device.h",
        guard: "ARROW_C_DEVICE_DATA_INTERFACE",
        title: "Arrow C device data interface. May be used together with the official arrow/c/abi.h.",
        source: "arrow_device.rs",
        uses: &["arrow_data.rs"],
        includes: &["<stdint.h>", "\"arrow/c/data.h\""],
        style: Style::Tag,
    },
    Layout {
        path: "arrow/c/stream.h",
        guard: "ARROW_C_STREAM_INTERFACE",
        title: "Arrow C stream interface. May be used together with the official arrow/c/abi.h.",
        source: "arrow_stream.rs",
        uses: &["arrow_data.rs"],
        includes: &["\"arrow/c/data.h\""],
        style: Style::Tag,
    },
    Layout {
        path: "arrow/c/device_stream.h",
        guard: "ARROW_C_DEVICE_STREAM_INTERFACE",
        title: "Arrow C device stream interface. May be used together with the official arrow/c/abi.h.",
        source: "arrow_device_stream.rs",
        uses: &["arrow_data.rs", "arrow_device.rs"],
        includes: &["\"arrow/c/data.h\"", "\"arrow/c/device.h\""],
        style: Style::Tag,
    },
    Layout {
        path: "arrow/c/async.h",
        guard: "ARROW_C_ASYNC_STREAM_INTERFACE",
        title: "Arrow C asynchronous device stream interface (experimental in Arrow). May be used together with the official arrow/c/abi.h.",
        source: "arrow_async.rs",
        uses: &["arrow_data.rs", "arrow_device.rs"],
        includes: &["<stdint.h>", "\"arrow/c/data.h\"", "\"arrow/c/device.h\""],
        style: Style::Tag,
    },
    Layout {
        path: "devexchange/cuda_array.h",
        guard: "DEVEXCHANGE_CUDA_ARRAY_H_",
        title: "devexchange: the CUDA Array Interface as a C struct. Needs nothing else of this library.",
        source: "cuda_array.rs",
        uses: &[],
        includes: &["<stdint.h>"],
        style: Style::Both,
    },
    Layout {
        path: "devexchange/types.h",
        guard: "DEVEXCHANGE_TYPES_H_",
        title: "devexchange: the plain records of the C API.",
        source: "types.rs",
        uses: &[],
        includes: &["<stddef.h>", "<stdint.h>"],
        style: Style::Both,
    },
];

/// Open sets are integers in Rust; DLPack's header says `enum`.
const ENUMS: [&str; 2] = ["DLDeviceType", "DLDataTypeCode"];

/// Types without a tag in DLPack's header: `struct DLTensor` is not a name there.
const TAGLESS: [&str; 6] = ["DLPackVersion", "DLDeviceType", "DLDevice", "DLDataTypeCode", "DLDataType", "DLTensor"];

/// DLPack's macros for compilers, which cannot come from Rust constants.
const DLPACK_MACROS: &str = "\
/** C linkage, in C and in C++. */
#ifdef __cplusplus
#define DLPACK_EXTERN_C extern \"C\"
#else
#define DLPACK_EXTERN_C
#endif

/** Marks functions of a Windows DLL; DLPACK_EXPORTS is defined where the DLL is built. */
#ifdef _WIN32
#ifdef DLPACK_EXPORTS
#define DLPACK_DLL __declspec(dllexport)
#else
#define DLPACK_DLL __declspec(dllimport)
#endif
#else
#define DLPACK_DLL
#endif

";

#[test]
fn layout_headers_are_up_to_date() {
    for layout in &LAYOUTS {
        check(layout.path, &layout.text());
    }
}

#[test]
fn function_header_is_up_to_date() {
    check("devexchange.h", &functions().expect("writing to memory does not fail"));
}

/// Compares the text with the committed file, or writes that.
fn check(path: &str, text: &str) {
    assert!(text.is_ascii(), "{path}: some compilers do not read UTF-8; see `ascii` in this file");
    let file = Path::new(INCLUDE).join(path);
    if std::env::var_os("DEVX_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().expect("a file is in a directory")).expect("mkdir");
        std::fs::write(&file, text).expect("write the header");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    let line = (committed.lines().zip(text.lines())).position(|(old, new)| old != new);
    assert!(
        committed == text,
        "bindings-c/include/{path} is not what the sources say (from line {}).\n\
         If the change is meant: DEVX_BLESS=1 cargo test -p devexchange-c --test headers",
        line.map_or(committed.lines().count().min(text.lines().count()), |at| at) + 1,
    );
}

impl Layout {
    fn text(&self) -> String {
        let own = items(self.source);
        let mut declarations = self.declarations(&own);
        for (item, value) in own.iter().filter_map(|item| Some((item, item.string()?))) {
            let docs: String = item.docs.iter().map(|line| format!(" *{line}\n")).collect();
            let text = format!("/**\n{docs} */\n#define {} \"{value}\"", item.name);
            declarations.insert(item.name.clone(), text);
        }
        let in_order = own.iter().filter(|item| item.of_enum().is_none()).map(|item| {
            let text = declarations.get(&item.name);
            let text = text.unwrap_or_else(|| panic!("{}: no {}", self.path, item.name));
            (item.apart, text.as_str())
        });
        let mut body = arranged(in_order);
        let mut head = "";
        if self.guard == "DLPACK_DLPACK_H_" {
            body = as_dlpack(body);
            head = DLPACK_MACROS;
        }
        let Self { guard, source, .. } = self;
        let title = wrapped(
            &format!(
                "{} Generated by cbindgen from core/src/abi/{source} \
                 (DEVX_BLESS=1 cargo test -p devexchange-c). Do not edit.",
                self.title
            ),
            " * ",
        );
        let includes: String = (self.includes.iter()).map(|name| format!("#include {name}\n")).collect();
        format!(
            "/*\n{title} */\n{includes}\n#ifndef {guard}\n#define {guard}\n\n{head}\
             #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{body}\n\
             #ifdef __cplusplus\n}} /* extern \"C\" */\n#endif\n\n#endif /* {guard} */\n"
        )
    }

    /// What cbindgen makes of each item, by name.
    fn declarations(&self, own: &[Item]) -> BTreeMap<String, String> {
        let mut config = Config {
            language: Language::C,
            cpp_compat: true,
            no_includes: true,
            usize_is_size_t: true,
            documentation_style: DocumentationStyle::Doxy,
            style: self.style,
            line_length: WIDTH,
            ..Config::default()
        };
        // cbindgen leaves out what no function uses, and it sees no functions.
        config.export.include = own.iter().map(|item| item.name.clone()).collect();
        let mut builder = Builder::new().with_config(config);
        for source in self.uses.iter().chain([&self.source]) {
            let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{source}", self.guard.to_lowercase()));
            std::fs::write(&copy, for_cbindgen(&items(source))).expect("write a copy");
            builder = builder.with_src(copy);
        }
        let mut text = Vec::new();
        builder.generate().expect("cbindgen").write(&mut text);
        let text = String::from_utf8(text).expect("UTF-8");
        text.trim()
            .split("\n\n")
            .map(|declaration| (declared_name(declaration), declaration.trim().to_owned()))
            .collect()
    }
}

/// A public item of a source.
struct Item {
    name: String,
    /// Lines of its documentation, without the slashes.
    docs: Vec<String>,
    /// The item with attributes, without documentation.
    text: String,
    /// A blank line stands before it.
    apart: bool,
}

impl Item {
    fn of_enum(&self) -> Option<&'static str> {
        let is = |name: &&str| (self.text).contains(&format!("pub const {}: {name} =", self.name));
        ENUMS.into_iter().find(is)
    }

    fn value(&self) -> &str {
        let (_, value) = self.text.split_once('=').expect("a constant has a value");
        value.trim().trim_end_matches(';')
    }

    /// The text of a constant that is a C string; cbindgen does not know such constants.
    fn string(&self) -> Option<&str> {
        self.text.contains(": &CStr =").then(|| self.value().trim_start_matches("c\"").trim_end_matches('"'))
    }

    fn rust_docs(&self) -> String {
        let docs = self.docs.iter();
        docs.map(|line| format!("///{line}\n")).collect()
    }
}

/// The public items of a file that rustfmt has formatted, under their C names.
fn items(source: &str) -> Vec<Item> {
    let text = std::fs::read_to_string(Path::new(ABI).join(source)).expect("read the source");
    let mut items = Vec::new();
    let mut docs = Vec::new();
    let mut code = String::new();
    let mut name = None;
    let mut apart = true;
    for line in in_c(&ascii(&text)).lines() {
        if name.is_none() {
            if let Some(doc) = line.strip_prefix("///") {
                docs.push(doc.to_owned());
                continue;
            } else if let Some(item) = line.strip_prefix("pub ") {
                let after = item.split_once(' ').map_or("", |(_keyword, rest)| rest);
                name = Some(after.chars().take_while(|c| is_word(*c)).collect());
            } else if !line.starts_with("#[") {
                docs.clear();
                code.clear();
                apart = line.is_empty();
                continue;
            }
        }
        code.push_str(line);
        code.push('\n');
        if line == "}" || line.ends_with(';') {
            items.push(Item {
                name: name.take().expect("only public items get here"),
                docs: std::mem::take(&mut docs),
                text: std::mem::take(&mut code).trim_end().to_owned(),
                apart,
            });
            apart = false;
        }
    }
    items
}

/// The items as Rust that cbindgen understands: enumerations written as such, no strings.
fn for_cbindgen(items: &[Item]) -> String {
    let mut text = String::new();
    for item in items {
        if ENUMS.contains(&item.name.as_str()) {
            text += &item.rust_docs();
            text += &format!("#[repr(C)]\npub enum {} {{\n", item.name);
            for variant in items.iter().filter(|v| v.of_enum() == Some(&item.name)) {
                text += &variant.rust_docs();
                text += &format!("{} = {},\n", variant.name, variant.value());
            }
            text += "}\n";
        } else if item.string().is_none() && item.of_enum().is_none() {
            text += &item.rust_docs();
            text += &item.text;
            text.push('\n');
        }
    }
    text
}

/// The name that a C declaration declares.
fn declared_name(declaration: &str) -> String {
    let line =
        (declaration.lines()).find(|line| !line.starts_with("/*") && !line.starts_with(" *")).unwrap_or_default();
    let from = if let Some(macro_name) = line.strip_prefix("#define ") {
        macro_name
    } else if let Some((_, function_pointer)) = line.split_once("(*") {
        function_pointer
    } else {
        let head = line.trim_end_matches(" {");
        head.rsplit(' ').next().unwrap_or_default()
    };
    from.chars().take_while(|c| is_word(*c)).collect()
}

/// One text, with short comments on one line and groups of macros without gaps.
fn arranged<'a>(declarations: impl IntoIterator<Item = (bool, &'a str)>) -> String {
    let mut text = String::new();
    let mut last_was_short = false;
    for (apart, declaration) in declarations {
        let declaration = set_comments(declaration);
        let short = declaration.lines().count() == 2 && declaration.contains("\n#define ");
        if !text.is_empty() && (apart || !short || !last_was_short) {
            text.push('\n');
        }
        text += &declaration;
        text.push('\n');
        last_was_short = short;
    }
    text
}

/// Sets comments anew: on one line if they fit there, and without lines that are too long.
fn set_comments(text: &str) -> String {
    let mut set = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let indent = " ".repeat(line.len() - line.trim_start().len());
        if line.trim_start() != "/**" {
            set += &format!("{line}\n");
            continue;
        }
        let comment = lines.by_ref().map(str::trim_start).take_while(|line| *line != "*/");
        let words: Vec<_> = comment.map(|line| line.trim_start_matches('*').trim_start()).collect();
        match words.as_slice() {
            [words] if indent.len() + words.len() + "/**  */".len() <= WIDTH => {
                set += &format!("{indent}/** {words} */\n");
            }
            _ => {
                set += &format!("{indent}/**\n");
                for paragraph in words.split_inclusive(|line| line.is_empty()) {
                    set += &set_paragraph(paragraph, &format!("{indent} * "));
                }
                set += &format!("{indent} */\n");
            }
        }
    }
    set.trim_end().to_owned()
}

/// Keeps the lines of a paragraph if all of them fit, because they may be broken on purpose.
fn set_paragraph(lines: &[&str], prefix: &str) -> String {
    let fits = |line: &&str| prefix.len() + line.len() <= WIDTH;
    if lines.iter().all(fits) {
        return lines.iter().map(|line| format!("{}\n", format!("{prefix}{line}").trim_end())).collect();
    }
    let (words, end) = match lines {
        [words @ .., ""] => (words, format!("{}\n", prefix.trim_end())),
        words => (words, String::new()),
    };
    wrapped(&words.join(" "), prefix) + &end
}

/// Changes cbindgen's text where DLPack's header differs: no tags for some types, an underlying type
/// for the device type in C++, `unsigned long` flags.
fn as_dlpack(mut text: String) -> String {
    for name in TAGLESS {
        for keyword in ["struct", "enum"] {
            text = text
                .replace(&format!("{keyword} {name} {{"), &format!("{keyword} {{"))
                .replace(&format!("{keyword} {name} "), &format!("{name} "));
        }
    }
    let (before, device_type) = (text.split_once("typedef enum {\n")).expect("the device type");
    format!("{before}#ifdef __cplusplus\ntypedef enum : int32_t {{\n#else\ntypedef enum {{\n#endif\n{device_type}")
        .replace("(1 << ", "(1UL << ")
}

/// The text of `devexchange.h`.
fn functions() -> std::io::Result<String> {
    const GUARD: &str = "DEVEXCHANGE_DEVEXCHANGE_H_";
    let mut text = Vec::new();
    safer_ffi::headers::builder().with_banner("").with_guard(GUARD).to_writer(&mut text).generate()?;
    let text = String::from_utf8(text).map_err(std::io::Error::other)?;
    assert!(!text.contains("<No documentation available>"), "a function of bindings-c/src has no documentation");
    let signed_byte = text.split(|c| !is_word(c)).any(|word| word == "int8_t");
    assert!(!signed_byte, "Rust's `c_char` comes out as a number: write `safer_ffi::c_char`");

    // Types before functions, and only declarations: the frame is written below.
    let (mut types, mut functions) = (Vec::new(), Vec::new());
    for declaration in in_c(&ascii(&text)).split("\n\n") {
        let declaration = declaration.trim();
        let (docs, code) = match declaration.split_once("*/\n") {
            Some((docs, code)) => (docs, code),
            None => ("", declaration),
        };
        if code.is_empty() || code.starts_with('#') || code.starts_with('}') {
            continue;
        }
        let text = format!("{}{}", comment(docs), prototype(code));
        if code.starts_with("typedef ") {
            types.push(text);
        } else {
            functions.push(text);
        }
    }
    types.append(&mut functions);
    let body = arranged(types.iter().map(|text| (true, text.as_str())));
    let includes: String = (LAYOUTS.iter()).map(|layout| format!("#include \"{}\"\n", layout.path)).collect();
    Ok(format!(
        "/*\n * devexchange: the functions of the C API. Generated by safer-ffi from bindings-c/src\n \
         * (DEVX_BLESS=1 cargo test -p devexchange-c). Do not edit.\n *\n{}\n */\n\
         #ifndef {GUARD}\n#define {GUARD}\n\n\
         #include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n{includes}\n\
         /** The version of this header, {}, as a number like that of devx_version(). */\n\
         #define DEVEXCHANGE_VERSION {:#08x}\n\n\
         #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n\
         /** Not defined if a dlpack/dlpack.h from before DLPack 1.0 was included first. */\n\
         struct DLManagedTensorVersioned;\n\n{body}\n\
         #ifdef __cplusplus\n}} /* extern \"C\" */\n#endif\n\n#endif /* {GUARD} */\n",
        conventions(),
        env!("CARGO_PKG_VERSION"),
        version_number()
    ))
}

/// The conventions in the documentation of the crate.
fn conventions() -> String {
    let lines = include_str!("../src/lib.rs").lines().map_while(|line| line.strip_prefix("//!"));
    lines.skip(2).map(|line| format!(" *{line}")).collect::<Vec<_>>().join("\n")
}

/// The version as a number, like that of `devx_version`.
fn version_number() -> u32 {
    let parts = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse::<u32>().expect("a number"));
    parts.fold(0, |number, part| number << 8 | part)
}

/// A comment as cbindgen writes it, without the markup of Rust's documentation.
fn comment(docs: &str) -> String {
    let mut text = String::from("/**\n");
    for line in docs.lines().skip(1).filter(|line| line.trim() != "") {
        let words = line.trim().trim_start_matches('*').trim();
        match words {
            "# Safety" => text += " * What the caller promises:\n",
            "" if text.ends_with(":\n") => {}
            "" => text += " *\n",
            _ if words.starts_with("# ") => text += &format!(" * {}:\n", words.trim_start_matches("# ")),
            _ => text += &format!(" * {}\n", words.replace("[`", "`").replace("`]", "`")),
        }
    }
    text += " */\n";
    text
}

/// A declaration in the usual spacing, on one line if it fits, otherwise with a line per parameter.
fn prototype(code: &str) -> String {
    let words: Vec<_> = code.split_whitespace().collect();
    let line = words.join(" ").replacen(" (", "(", 1).replace("( ", "(").replace("* *", "**").replace("* ", "*");
    let Some((head, parameters)) = line.split_once('(').filter(|_| line.len() > WIDTH) else {
        return line;
    };
    let mut text = format!("{head}(\n    ");
    let mut depth = 0;
    for c in parameters.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        match c {
            ' ' if text.ends_with(",\n    ") => {}
            ',' if depth == 0 => text += ",\n    ",
            _ => text.push(c),
        }
    }
    text
}

/// Turns names of Rust records into names of C: `DevxBatchInfo` becomes `devx_batch_info`.
fn in_c(text: &str) -> String {
    let mut renamed = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("Devx") {
        let (before, name) = rest.split_at(at);
        let end = name.find(|c| !is_word(c)).unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        renamed += before;
        for (at, c) in name.chars().enumerate() {
            if c.is_ascii_uppercase() && at > 0 {
                renamed.push('_');
            }
            renamed.push(c.to_ascii_lowercase());
        }
        rest = after;
    }
    renamed + rest
}

/// Turns the signs that our comments use into ASCII, which every compiler reads.
fn ascii(text: &str) -> String {
    (text.replace('…', "...").replace(['−', '–'], "-"))
        .replace('→', "->")
        .replace('×', "x")
        .replace('≥', ">=")
        .replace('≤', "<=")
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Lines of words that fit.
fn wrapped(text: &str, prefix: &str) -> String {
    let mut lines = String::new();
    let mut line = prefix.trim_end().to_owned();
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            lines += &line;
            lines.push('\n');
            line = prefix.trim_end().to_owned();
        }
        line.push(' ');
        line += word;
    }
    lines + &line + "\n"
}
