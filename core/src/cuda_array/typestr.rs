//! Element types as NumPy writes them (`typestr`): numbers in native byte order.

use std::ffi::c_char;
use std::io::Write;

use crate::abi::dlpack::{self as dl, DLDataType};
use crate::dtype::DType;
use crate::error::{Error, Result, refuse};
use crate::text;

/// Longest type string that is read.
const MAX_TYPESTR: usize = 64;

/// # Safety
/// `typestr` is NULL or NUL-terminated, and outlives the result.
pub(super) unsafe fn typestr_of<'a>(typestr: *const c_char) -> Result<&'a str> {
    if typestr.is_null() {
        return refuse!(DEVX_INVALID_DTYPE, "typestr is NULL");
    }
    // SAFETY: the caller's contract.
    let bytes = unsafe { text::bytes(typestr, MAX_TYPESTR) };
    if bytes.len() == MAX_TYPESTR {
        return refuse!(DEVX_INVALID_DTYPE, "typestr has no end within {MAX_TYPESTR} bytes");
    }
    std::str::from_utf8(bytes).map_err(|_| {
        Error::new(crate::abi::types::DEVX_INVALID_DTYPE, format_args!("typestr is not valid UTF-8: {bytes:?}"))
    })
}

/// Returns the element type that a type string of NumPy names.
///
/// # Errors
/// `DEVX_INVALID_DTYPE`; `DEVX_UNSUPPORTED` for another byte order and for types that are not numbers.
pub fn dtype_of(typestr: &str) -> Result<DType> {
    let no_number = || refuse!(DEVX_UNSUPPORTED, "typestr is {typestr:?}: a tensor cannot have such elements");
    let mut letters = typestr.chars();
    let (order, kind, digits) = (letters.next(), letters.next(), letters.as_str());
    let width =
        (!digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())).then(|| digits.parse::<u16>());
    let (Some(order @ ('<' | '>' | '|' | '=')), Some(kind), Some(Ok(width))) = (order, kind, width) else {
        if typestr.get(1..2).is_some_and(|kind| "MmOSUVt".contains(kind)) {
            return no_number();
        }
        return refuse!(
            DEVX_INVALID_DTYPE,
            "typestr is {typestr:?}: it must be a byte order, a kind and a number of bytes"
        );
    };
    let code = match kind {
        'b' => dl::kDLBool,
        'i' => dl::kDLInt,
        'u' => dl::kDLUInt,
        'f' => dl::kDLFloat,
        'c' => dl::kDLComplex,
        'M' | 'm' | 'O' | 'S' | 'U' | 'V' | 't' => return no_number(),
        _ => return refuse!(DEVX_INVALID_DTYPE, "typestr is {typestr:?}: {kind:?} is not a kind of NumPy's"),
    };
    let foreign = if cfg!(target_endian = "little") { '>' } else { '<' };
    if order == foreign && width > 1 {
        return refuse!(DEVX_UNSUPPORTED, "typestr is {typestr:?}: the bytes are not in the order of this machine");
    }
    if order == '|' && width > 1 {
        return refuse!(DEVX_INVALID_DTYPE, "typestr is {typestr:?}: {width} bytes have an order");
    }
    if matches!((kind, width), ('f', 9..) | ('c', 17..)) {
        return refuse!(
            DEVX_UNSUPPORTED,
            "typestr is {typestr:?}: the format of a long double differs between machines"
        );
    }
    let Ok(bits) = u8::try_from(u32::from(width) * 8) else {
        return refuse!(DEVX_INVALID_DTYPE, "typestr is {typestr:?}: there is no such element of {width} bytes");
    };
    let dtype = DLDataType { code, bits, lanes: 1 };
    DType::from_dlpack(dtype).map_err(|error| error.within(format_args!("typestr is {typestr:?}: ")))
}

/// Returns the type string of an element type, with its NUL; `None` if NumPy has none.
pub(super) fn typestr(dtype: DType) -> Option<[u8; 8]> {
    let DLDataType { code, bits, lanes } = dtype.to_dlpack();
    let kind = match dl::DLDataTypeCode::from(code) {
        dl::kDLBool => 'b',
        dl::kDLInt => 'i',
        dl::kDLUInt => 'u',
        dl::kDLFloat => 'f',
        dl::kDLComplex => 'c',
        _ => return None,
    };
    if lanes != 1
        || !matches!((kind, bits), ('b', 8) | ('i' | 'u', 8 | 16 | 32 | 64) | ('f', 16 | 32 | 64) | ('c', 64 | 128))
    {
        return None;
    }
    let order = match bits {
        8 => '|',
        _ if cfg!(target_endian = "little") => '<',
        _ => '>',
    };
    let mut text = [0; 8];
    write!(text.as_mut_slice(), "{order}{kind}{}", bits / 8).ok()?;
    Some(text)
}
