//! Edits: `children[1].n_buffers = 3`. On the left is the path to a field, on the right its new value:
//!
//! | value | is |
//! |---|---|
//! | `-1`, `0x7f` | a number, of the field's width |
//! | `NULL` | no address |
//! | `forbidden` | an address where reading kills the program: for memory that must not be read |
//! | `"a\xff"` | the address of a NUL-terminated text, with escapes as in Rust |
//! | `"x" * 2000000` | the address of the text repeated, NUL-terminated |
//! | `i32[1, -2]`, `i64[1 * 64]` | the address of numbers, or of one number repeated; also `i8` |
//! | `block[1, 3, "key"]` | the address of 32-bit numbers and texts without a NUL: metadata |
//! | `bytes[64]` | the address of this many zero bytes |
//! | `&children[0]`, `&root` | the address of a struct of the same tree |
//! | `forgetful` | a release that does everything it should, except mark its struct as released |
//! | `device`, `freed` | the address of memory of CUDA device 0, or of such memory that was freed |
//!
//! `+=` adds a number to the present value.

use std::iter::Peekable;
use std::str::Chars;

use crate::cuda;
use crate::layout::{Struct, Type};
use crate::memory::{Arena, forbidden, word, write};
use crate::tree::forgetful;

/// Applies an edit to the struct at `root`.
pub(crate) fn apply(edit: &str, root: usize, layout: &'static Struct, arena: &mut Arena) {
    let wrong = || panic!("the edit {edit:?} is not one");
    let Some((path, value)) = edit.split_once('=') else { return wrong() };
    let (path, add) = match path.trim_end().strip_suffix('+') {
        Some(path) => (path, true),
        None => (path, false),
    };
    let Some((at, ty)) = find(path.trim(), root, layout) else { return wrong() };
    let width = match ty {
        Type::Number(width) => width,
        Type::Inline(_) | Type::Words => return wrong(),
        _ => 8,
    };
    let number = match value.trim() {
        "forgetful" => Some(forgetful(layout) as i128),
        value => parse(value, root, layout, arena),
    };
    let Some(mut number) = number else { return wrong() };
    if add {
        number += word(at) as i128;
    }
    let bits = 8 * width as u32;
    let fits = number >= -(1_i128 << (bits - 1)) && number < 1_i128 << bits;
    assert!(fits, "{edit:?}: the field has {bits} bits");
    write(at, number.to_ne_bytes().get(..width).expect("a number of at most 8 bytes"));
}

/// The value of a text without a path to a field, for example metadata.
pub(crate) fn value(text: &str, arena: &mut Arena) -> usize {
    let layout = &crate::layout::VERSION;
    parse(text, 0, layout, arena).unwrap_or_else(|| panic!("the value {text:?} is not one")) as usize
}

/// Place and type of a field.
fn find(path: &str, root: usize, layout: &'static Struct) -> Option<(usize, Type)> {
    let (mut base, mut layout, mut found) = (root, layout, None);
    for step in path.split('.') {
        if let Some((at, ty)) = found {
            (base, layout) = inside(at, ty)?;
        }
        let (name, index) = match step.strip_suffix(']').and_then(|step| step.split_once('[')) {
            Some((name, index)) => (name, Some(index.parse::<usize>().ok()?)),
            None => (step, None),
        };
        let (offset, ty) = layout.field(name)?;
        let at = base + offset;
        found = Some(match (index, ty) {
            (None, ty) => (at, ty),
            (Some(i), Type::Table(of)) => (word(at) + 8 * i, Type::To(of)),
            (Some(i), Type::Numbers) => (word(at) + 8 * i, Type::Number(8)),
            (Some(i), Type::Pointers) => (word(at) + 8 * i, Type::Pointer),
            (Some(i), Type::Words) => (at + 8 * i, Type::Number(8)),
            _ => return None,
        });
    }
    found
}

fn inside(at: usize, ty: Type) -> Option<(usize, &'static Struct)> {
    match ty {
        Type::To(layout) => Some((word(at), layout)),
        Type::Inline(layout) => Some((at, layout)),
        _ => None,
    }
}

fn parse(value: &str, root: usize, layout: &'static Struct, arena: &mut Arena) -> Option<i128> {
    let address = match value {
        "NULL" => 0,
        "forbidden" => forbidden(),
        "device" => cuda::device_memory(),
        "freed" => cuda::freed_memory(),
        _ => {
            if let Some(path) = value.strip_prefix('&') {
                let place = if path == "root" { Some((root, layout)) } else { to_struct(path, root, layout) };
                place?.0
            } else if value.starts_with('"') {
                arena.text(&text(value)?)
            } else if let Some((kind, items)) = value.strip_suffix(']').and_then(|value| value.split_once('[')) {
                list(kind, items, arena)?
            } else {
                return number(value);
            }
        }
    };
    Some(address as i128)
}

fn to_struct(path: &str, root: usize, layout: &'static Struct) -> Option<(usize, &'static Struct)> {
    let (at, ty) = find(path, root, layout)?;
    inside(at, ty)
}

fn number(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn list(kind: &str, items: &str, arena: &mut Arena) -> Option<usize> {
    let width = match kind {
        "bytes" => return Some(arena.room(items.parse().ok()?)),
        "i8" => 1,
        "i32" | "block" => 4,
        "i64" => 8,
        _ => return None,
    };
    let mut bytes = Vec::new();
    for item in items.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        if item.starts_with('"') {
            bytes.extend(text(item)?);
        } else {
            let (item, times) = item.split_once('*').unwrap_or((item, "1"));
            let number = number(item.trim())?.to_ne_bytes();
            bytes.extend(number.get(..width)?.repeat(times.trim().parse().ok()?));
        }
    }
    Some(arena.store(&bytes))
}

/// `"…"`, or `"…" * n`.
pub(crate) fn text(value: &str) -> Option<Vec<u8>> {
    let mut letters = value.strip_prefix('"')?.chars().peekable();
    let mut bytes = Vec::new();
    loop {
        match letters.next()? {
            '"' => break,
            '\\' => bytes.extend(escaped(&mut letters)?),
            letter => bytes.extend(letter.to_string().bytes()),
        }
    }
    let rest: String = letters.collect();
    match rest.trim().strip_prefix('*') {
        Some(times) => Some(bytes.repeat(times.trim().parse().ok()?)),
        None => rest.trim().is_empty().then_some(bytes),
    }
}

fn escaped(letters: &mut Peekable<Chars<'_>>) -> Option<Vec<u8>> {
    let byte = match letters.next()? {
        'x' => {
            let digits: String = [letters.next()?, letters.next()?].iter().collect();
            u8::from_str_radix(&digits, 16).ok()?
        }
        '0' => 0,
        'n' => b'\n',
        same @ ('"' | '\\') => same as u8,
        _ => return None,
    };
    Some(vec![byte])
}
