//! What an element is: code, bits and lanes as in DLPack (`DLDataType`).

use std::fmt;
use std::str::FromStr;

use crate::abi::dlpack::{self as dl, DLDataType};
use crate::abi::types::{DEVX_INVALID_DTYPE, DEVX_UNSUPPORTED};
use crate::error::{Error, Result, refuse, refused};
use crate::text;

/// A checked element type. All elements are in native byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DType {
    code: u8,
    bits: u8,
    lanes: u16,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $code:ident $bits:literal;)*) => {
        impl DType {
            $($(#[$doc])* pub const $name: Self = Self { code: dl::$code as u8, bits: $bits, lanes: 1 };)*
        }
    };
}
dtypes! {
    /// Signed 8-bit integer.
    INT8 = kDLInt 8;
    /// Signed 16-bit integer.
    INT16 = kDLInt 16;
    /// Signed 32-bit integer.
    INT32 = kDLInt 32;
    /// Signed 64-bit integer.
    INT64 = kDLInt 64;
    /// Unsigned 8-bit integer.
    UINT8 = kDLUInt 8;
    /// Unsigned 16-bit integer.
    UINT16 = kDLUInt 16;
    /// Unsigned 32-bit integer.
    UINT32 = kDLUInt 32;
    /// Unsigned 64-bit integer.
    UINT64 = kDLUInt 64;
    /// IEEE half.
    FLOAT16 = kDLFloat 16;
    /// The upper half of an IEEE single.
    BFLOAT16 = kDLBfloat 16;
    /// IEEE single.
    FLOAT32 = kDLFloat 32;
    /// IEEE double.
    FLOAT64 = kDLFloat 64;
    /// Two IEEE singles: real and imaginary part.
    COMPLEX64 = kDLComplex 64;
    /// Two IEEE doubles: real and imaginary part.
    COMPLEX128 = kDLComplex 128;
    /// Float of 8 bits: 3 of the exponent, 4 of the mantissa.
    FLOAT8_E3M4 = kDLFloat8_e3m4 8;
    /// Float of 8 bits: 4 of the exponent, 3 of the mantissa.
    FLOAT8_E4M3 = kDLFloat8_e4m3 8;
    /// Like [`DType::FLOAT8_E4M3FNUZ`], but with a bias of 11.
    FLOAT8_E4M3B11FNUZ = kDLFloat8_e4m3b11fnuz 8;
    /// Like [`DType::FLOAT8_E4M3`], but without infinities.
    FLOAT8_E4M3FN = kDLFloat8_e4m3fn 8;
    /// Like [`DType::FLOAT8_E4M3FN`], but without a negative zero, whose bits are the NaN.
    FLOAT8_E4M3FNUZ = kDLFloat8_e4m3fnuz 8;
    /// Float of 8 bits: 5 of the exponent, 2 of the mantissa.
    FLOAT8_E5M2 = kDLFloat8_e5m2 8;
    /// Like [`DType::FLOAT8_E5M2`], but without infinities, and without a negative zero, whose bits are the NaN.
    FLOAT8_E5M2FNUZ = kDLFloat8_e5m2fnuz 8;
    /// A power of two: 8 bits of the exponent, no sign.
    FLOAT8_E8M0FNU = kDLFloat8_e8m0fnu 8;
    /// Boolean of one byte (Arrow's booleans are bits).
    BOOL = kDLBool 8;
}

impl DType {
    /// Checks a type from outside.
    ///
    /// # Errors
    /// `DEVX_INVALID_DTYPE` for an unknown code, a width that the code does not have, or no lanes; `DEVX_UNSUPPORTED` for
    /// opaque handles, whose meaning DLPack leaves to the two sides.
    #[inline]
    pub fn from_dlpack(dtype: DLDataType) -> Result<Self> {
        let DLDataType { code, bits, lanes } = dtype;
        if !has_width(code, bits) || lanes == 0 {
            return Err(refused(|| invalid(dtype)));
        }
        Ok(Self { code, bits, lanes })
    }

    /// Returns the bytes of an element of the kind that nearly every tensor has: one number of 1, 2, 4 or 8 whole bytes. `None`
    /// for any other type, valid or not.
    #[inline]
    pub(crate) fn plain_bytes(dtype: DLDataType) -> Option<usize> {
        let DLDataType { code, bits, lanes } = dtype;
        let narrowest = match dl::DLDataTypeCode::from(code) {
            dl::kDLInt | dl::kDLUInt => 8,
            dl::kDLFloat => 16,
            _ => return None,
        };
        // One comparison for both bits and lanes: with one lane, `width` is 256 plus the bits.
        let width = u32::from(lanes) << 8 | u32::from(bits);
        let plain = (256 + narrowest..=256 + 64).contains(&width) && bits & (bits - 1) == 0;
        plain.then_some(usize::from(bits / 8))
    }

    /// Makes a type that was checked before.
    #[inline]
    pub(crate) fn checked(DLDataType { code, bits, lanes }: DLDataType) -> Self {
        Self { code, bits, lanes }
    }

    /// Returns the type as DLPack writes it.
    #[inline]
    pub fn to_dlpack(self) -> DLDataType {
        DLDataType { code: self.code, bits: self.bits, lanes: self.lanes }
    }

    /// Returns the bits of one element, all lanes together.
    #[inline]
    pub fn element_bits(self) -> u32 {
        u32::from(self.bits) * u32::from(self.lanes)
    }

    /// Returns the bytes of one element; `None` if elements do not end on byte boundaries.
    #[inline]
    pub fn element_bytes(self) -> Option<usize> {
        let bits = self.element_bits();
        bits.is_multiple_of(8).then_some((bits / 8) as usize)
    }

    /// Returns the alignment in bytes that typed access needs: that of one component.
    #[inline]
    pub fn alignment(self) -> usize {
        let component = match dl::DLDataTypeCode::from(self.code) {
            dl::kDLComplex => self.bits / 2,
            _ => self.bits,
        };
        (usize::from(component) / 8).clamp(1, 16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match dl::DLDataTypeCode::from(self.code) {
            dl::kDLInt => write!(f, "int{}", self.bits)?,
            dl::kDLUInt => write!(f, "uint{}", self.bits)?,
            dl::kDLFloat => write!(f, "float{}", self.bits)?,
            dl::kDLBfloat => write!(f, "bfloat{}", self.bits)?,
            dl::kDLComplex => write!(f, "complex{}", self.bits)?,
            dl::kDLBool => write!(f, "bool")?,
            dl::kDLFloat8_e3m4 => write!(f, "float8_e3m4")?,
            dl::kDLFloat8_e4m3 => write!(f, "float8_e4m3")?,
            dl::kDLFloat8_e4m3b11fnuz => write!(f, "float8_e4m3b11fnuz")?,
            dl::kDLFloat8_e4m3fn => write!(f, "float8_e4m3fn")?,
            dl::kDLFloat8_e4m3fnuz => write!(f, "float8_e4m3fnuz")?,
            dl::kDLFloat8_e5m2 => write!(f, "float8_e5m2")?,
            dl::kDLFloat8_e5m2fnuz => write!(f, "float8_e5m2fnuz")?,
            dl::kDLFloat8_e8m0fnu => write!(f, "float8_e8m0fnu")?,
            dl::kDLFloat6_e2m3fn => write!(f, "float6_e2m3fn")?,
            dl::kDLFloat6_e3m2fn => write!(f, "float6_e3m2fn")?,
            dl::kDLFloat4_e2m1fn => write!(f, "float4_e2m1fn")?,
            code => write!(f, "code{code}_{}", self.bits)?,
        }
        if self.lanes > 1 { write!(f, "x{}", self.lanes) } else { Ok(()) }
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses a name as `Display` writes it, for example `float32`, `bool` or `uint8x4`.
    ///
    /// # Errors
    /// `DEVX_INVALID_DTYPE`.
    fn from_str(name: &str) -> Result<Self> {
        let lanes = || name.rsplit_once('x').and_then(|(one, lanes)| Some((one, lanes.parse().ok()?)));
        match by_name(name, 1).or_else(|| lanes().and_then(|(one, lanes)| by_name(one, lanes))) {
            // `int32x1` and `int32x04` are not how these types are written.
            Some(dtype) if dtype.is_shown_as(name) => Ok(dtype),
            _ => refuse!(
                DEVX_INVALID_DTYPE,
                "dtype is {name:?}: not the name of an element type, such as float32, int64, bool or uint8x4"
            ),
        }
    }
}

impl DType {
    fn is_shown_as(self, name: &str) -> bool {
        text::without(name.as_bytes(), format_args!("{self}")).is_some_and(<[u8]>::is_empty)
    }
}

/// Finds the element type with the scalar that is written as `scalar`.
fn by_name(scalar: &str, lanes: u16) -> Option<DType> {
    let codes = dl::kDLInt..=dl::kDLFloat4_e2m1fn;
    let mut all = codes.flat_map(|code| widths(code).map(move |bits| DType { code, bits, lanes: 1 }));
    let found = all.find(|dtype| dtype.is_shown_as(scalar))?;
    DType::from_dlpack(DLDataType { lanes, ..found.to_dlpack() }).ok()
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a type code has elements of `bits` bits.
#[inline]
fn has_width(code: u8, bits: u8) -> bool {
    match dl::DLDataTypeCode::from(code) {
        dl::kDLInt | dl::kDLUInt => bits.is_power_of_two(),
        dl::kDLFloat => bits.is_power_of_two() && bits >= 16,
        dl::kDLBfloat => bits == 16,
        dl::kDLComplex => bits.is_power_of_two() && bits >= 32,
        dl::kDLBool | dl::kDLFloat8_e3m4..=dl::kDLFloat8_e8m0fnu => bits == 8,
        dl::kDLFloat6_e2m3fn | dl::kDLFloat6_e3m2fn => bits == 6,
        dl::kDLFloat4_e2m1fn => bits == 4,
        _ => false,
    }
}

/// Returns the widths that a type code has, in ascending order.
fn widths(code: u8) -> impl Iterator<Item = u8> + Clone {
    [1, 2, 4, 6, 8, 16, 32, 64, 128].into_iter().filter(move |&bits| has_width(code, bits))
}

/// Says what is wrong with a type.
fn invalid(dtype: DLDataType) -> Error {
    let DLDataType { code, bits, .. } = dtype;
    let widths = || widths(code);
    match dl::DLDataTypeCode::from(code) {
        dl::kDLOpaqueHandle => Error::new(DEVX_UNSUPPORTED, "dtype.code is 3: opaque handles have no meaning"),
        _ if widths().next().is_none() => {
            Error::new(DEVX_INVALID_DTYPE, format_args!("dtype.code is {code}: not a type code of DLPack 1.3"))
        }
        _ if !has_width(code, bits) => {
            let types = widths().map(|bits| DType { code, bits, lanes: 1 });
            let types = fmt::from_fn(|f| f.debug_list().entries(types.clone()).finish());
            Error::new(DEVX_INVALID_DTYPE, format_args!("dtype.bits is {bits}: the types of code {code} are {types:?}"))
        }
        _ => Error::new(DEVX_INVALID_DTYPE, "dtype.lanes is 0: at least 1 is needed"),
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose values are elements: every bit pattern is a value. With the feature `half`, the 16-bit floats of that
/// crate are elements, too.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The type as the protocols name it.
    const DTYPE: DType;
}

/// A Rust type whose values can be stored as elements. Every [`Element`] is one, and so is `bool`: its elements are not read as
/// `bool`, because a producer of another language may have stored bytes other than 0 and 1.
pub trait Storable: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The type as the protocols name it.
    const STORED_AS: DType;
}

impl<T: Element> Storable for T {
    const STORED_AS: DType = T::DTYPE;
}

impl sealed::Sealed for bool {}
impl Storable for bool {
    const STORED_AS: DType = DType::BOOL;
}

macro_rules! elements {
    ($($rust:ty = $name:ident,)*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$name;
        }
    )*};
}
elements! {
    i8 = INT8, i16 = INT16, i32 = INT32, i64 = INT64,
    u8 = UINT8, u16 = UINT16, u32 = UINT32, u64 = UINT64,
    f32 = FLOAT32, f64 = FLOAT64,
}
#[cfg(feature = "half")]
elements! {
    half::f16 = FLOAT16, half::bf16 = BFLOAT16,
}
