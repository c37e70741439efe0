//! Finds out, without the core, whether an array has all of the memory that a reader may read (Arrow columnar format,
//! "Physical memory layout").

use devexchange_core::arrow::{Field, Type};

use crate::array::Array;

/// The bytes that a buffer must have for `end` elements, including those that the offset skips. `None` for data, whose size
/// is in the offsets or in the buffer of sizes.
pub fn needed(ty: Type, index: usize, buffers: usize, end: u128) -> Option<u128> {
    let fixed = |bits: u128| Some((end * bits).div_ceil(8));
    match (ty, index) {
        // There is a size for each data buffer, even without elements.
        (Type::BinaryView | Type::Utf8View, 2..) if index + 1 == buffers => Some((buffers as u128 - 3) * 8),
        _ if end == 0 => Some(0),
        (Type::Null | Type::RunEndEncoded, _) => Some(0),
        (Type::SparseUnion | Type::DenseUnion, 0) => Some(end),
        (Type::DenseUnion, 1) => Some(end * 4),
        (_, 0) => Some(end.div_ceil(8)),
        (Type::Bool, 1) => fixed(1),
        (Type::Binary | Type::Utf8 | Type::List | Type::Map, 1) => Some((end + 1) * 4),
        (Type::LargeBinary | Type::LargeUtf8 | Type::LargeList, 1) => Some((end + 1) * 8),
        (Type::ListView, _) => Some(end * 4),
        (Type::LargeListView, _) => Some(end * 8),
        (Type::BinaryView | Type::Utf8View, 1) => Some(end * 16),
        (_, 1) => fixed(ty.byte_width().map_or(0, u128::from) * 8),
        _ => None,
    }
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<i64> {
    let bytes = bytes.get(at * width..(at + 1) * width)?;
    Some(if width == 4 {
        i32::from_ne_bytes(bytes.try_into().ok()?).into()
    } else {
        i64::from_ne_bytes(bytes.try_into().ok()?)
    })
}

/// Whether `array` has all of the memory that a reader may read if the array is of type `field`.
pub fn is_readable(field: Field<'_>, array: &Array) -> bool {
    let (ty, count) = (field.ty(), array.buffers.len());
    let Ok(end) = usize::try_from(array.offset.saturating_add(array.length)) else { return false };
    let buffer =
        |index: usize| array.buffers.get(index).and_then(|buffer| buffer.as_ref()).map(|buffer| buffer.bytes());
    let large_enough = (0..count).all(|index| match (buffer(index), needed(ty, index, count, end as u128)) {
        (Some(bytes), Some(needed)) => bytes.len() as u128 >= needed,
        // Validity may be NULL. The import has checked that any other NULL is allowed.
        _ => true,
    });
    let data_is_there = match ty {
        Type::BinaryView | Type::Utf8View => (2..count.saturating_sub(1)).all(|index| {
            let Some(sizes) = buffer(count - 1) else { return true };
            number(sizes, index - 2, 8).is_some_and(|said| said <= buffer(index).map_or(0, <[u8]>::len) as i64)
        }),
        _ if end == 0 => true,
        Type::Binary | Type::Utf8 => offsets_are_within(buffer(1), 4, end, buffer(2).unwrap_or(&[])),
        Type::LargeBinary | Type::LargeUtf8 => offsets_are_within(buffer(1), 8, end, buffer(2).unwrap_or(&[])),
        _ => true,
    };
    let children = field.children().zip(&array.children).all(|(field, child)| is_readable(field, child));
    let dictionary = match (field.dictionary(), &array.dictionary) {
        (Some(field), Some(dictionary)) => is_readable(field, dictionary),
        _ => true,
    };
    large_enough && data_is_there && children && dictionary
}

fn offsets_are_within(offsets: Option<&[u8]>, width: usize, end: usize, data: &[u8]) -> bool {
    let offset = |at| offsets.and_then(|offsets| number(offsets, at, width));
    (0..=end).all(|at| offset(at).is_some_and(|offset| offset <= data.len() as i64))
}
