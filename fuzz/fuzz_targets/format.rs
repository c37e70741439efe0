//! Parses texts that name types: format strings of Arrow, type strings of NumPy, names of element types. A format string must
//! be accepted if and only if a second implementation of the standard accepts it; its schema is exported and imported, and must
//! come back with the same format.

#![no_main]

use std::ffi::CString;

use devexchange_core::arrow::format::{Buffer, Children, Type};
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::{DType, Schema, cuda_array};
use devexchange_fuzz::{balanced, init};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: init(), |text: &str| balanced(|| run(text)));

fn run(text: &str) {
    if let Ok(dtype) = text.parse::<DType>() {
        assert_eq!(dtype.to_string(), text, "a name that is shown otherwise");
        assert_eq!(DType::from_dlpack(dtype.to_dlpack()).ok(), Some(dtype));
    }
    if let Ok(dtype) = cuda_array::dtype_of(text) {
        assert!(dtype.element_bytes().is_some(), "{text:?} is {dtype}");
    }
    let parsed = Type::parse(text);
    assert_eq!(parsed.is_ok(), is_format(text), "{text:?}: {parsed:?}");
    match parsed {
        Err(error) => assert!(error.message().contains("format"), "{error}"),
        Ok(ty) => {
            look_at(ty);
            round_trip(text, ty);
        }
    }
}

fn look_at(ty: Type) {
    assert!(!ty.to_string().is_empty());
    let buffers = ty.buffers();
    assert!(buffers.fits(buffers.count() as i64) && !buffers.fits(-1));
    let kinds: Vec<Buffer> = (0..buffers.count()).filter_map(|index| buffers.get(index, buffers.count())).collect();
    assert_eq!(kinds.len(), buffers.count());
    assert_eq!(kinds.first() == Some(&Buffer::Validity), buffers.has_validity());
    if let Some(dtype) = ty.dtype() {
        assert_eq!(ty.storage(), Some(dtype));
        assert_eq!(Type::format_of(dtype).map(|format| Type::parse(format).ok()), Some(Some(ty)));
    }
}

/// Exports a schema of this type, and imports it again.
fn round_trip(text: &str, ty: Type) {
    let (Ok(format), Ok(unions)) =
        (CString::new(text), u32::try_from(text.split(',').filter(|_| text.len() > 4).count()))
    else {
        return;
    };
    let children = match ty.children() {
        Children::Exactly(count) => count,
        Children::Any if ty.is_union() => unions,
        Children::Any => 1,
    };
    let field = FieldDesc { n_children: children, ..FieldDesc::new(c"x", &format) };
    let mut fields = vec![field];
    for _ in 0..children {
        if ty == Type::Map {
            fields.push(FieldDesc { n_children: 2, ..FieldDesc::new(c"entries", c"+s") });
            fields.push(FieldDesc::new(c"key", c"i"));
        }
        fields.push(FieldDesc::new(c"child", c"i"));
    }
    let schema = Schema::new(&fields).expect("a schema of a type that was read");
    // SAFETY: an all-zero ArrowSchema is a released one.
    let mut exported = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is ours, and released.
    unsafe { schema.export(&raw mut exported) }.expect("exported");
    // SAFETY: the schema was exported just now.
    let again = unsafe { Schema::import(&raw mut exported) }.expect("what this library exported");
    assert_eq!((again.root().format(), again.root().ty()), (text, ty));
}

/// A second implementation of the Arrow C data interface, "Data type description".
fn is_format(text: &str) -> bool {
    let is_number = |text: &str, most: u64| {
        let digits = !text.is_empty() && text.chars().all(|letter| letter.is_ascii_digit());
        digits && text.trim_start_matches('0').len() < 19 && text.parse::<u64>().is_ok_and(|number| number <= most)
    };
    let Some((kind, rest)) = text.split_once(':') else {
        return match text.as_bytes() {
            [letter] => b"nbcCsSiIlLefgzZuU".contains(letter),
            [b't', b'd', unit] => b"Dm".contains(unit),
            [b't', b't' | b'D', unit] => b"smun".contains(unit),
            [b't', b'i', unit] => b"MDn".contains(unit),
            _ => matches!(text, "vz" | "vu" | "+s" | "+l" | "+L" | "+vl" | "+vL" | "+m" | "+r"),
        };
    };
    match kind {
        "tss" | "tsm" | "tsu" | "tsn" => true,
        "w" | "+w" => is_number(rest, i32::MAX as u64),
        "+us" | "+ud" => {
            let mut ids: Vec<&str> = if rest.is_empty() { Vec::new() } else { rest.split(',').collect() };
            let all = ids.iter().all(|id| is_number(id, 127));
            let mut numbers: Vec<u64> = ids.drain(..).filter_map(|id| id.parse().ok()).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            all && numbers.len() == count
        }
        "d" => {
            let parts: Vec<&str> = rest.split(',').collect();
            let most = match parts.get(2) {
                None | Some(&"128") => 38,
                Some(&"32") => 9,
                Some(&"64") => 18,
                Some(&"256") => 76,
                Some(_) => return false,
            };
            let is_scale = parts.get(1).is_some_and(|scale| !scale.starts_with('+') && scale.parse::<i32>().is_ok());
            (2..=3).contains(&parts.len()) && is_number(parts[0], most) && parts[0].parse() != Ok(0) && is_scale
        }
        _ => false,
    }
}
