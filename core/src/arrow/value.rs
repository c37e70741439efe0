//! The value of one row, whatever its type: for readers that look at a few rows, and for showing rows to people. Whole
//! columns are read through [`Column::values`] and its neighbours.

use std::ffi::CStr;
use std::fmt;

use super::column::{Column, Rows};
use super::format::Type;
pub use super::temporal::Temporal;
use crate::error::Result;

/// One value in host memory.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Value<'a> {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A floating point number of single precision, or of half precision, which is widened exactly.
    Float32(f32),
    /// A floating point number of double precision.
    Float64(f64),
    /// A decimal.
    Decimal(Decimal<'a>),
    /// A date, time, timestamp or duration.
    Temporal(Temporal),
    /// A span of the calendar. Its parts are not converted into each other.
    Interval {
        /// Calendar months.
        months: i32,
        /// Days.
        days: i32,
        /// Nanoseconds.
        nanoseconds: i64,
    },
    /// Text.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
    /// The values of a list.
    List(Column<'a>),
    /// The entries of a map: a struct of keys and values.
    Map(Column<'a>),
    /// A row of a struct.
    Struct(Column<'a>, i64),
}

/// A decimal as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal<'a> {
    /// The number without its decimal point: two's complement in native byte order, of 4, 8, 16 or 32 bytes.
    pub unscaled: &'a [u8],
    /// Digits after the point.
    pub scale: i32,
}

/// The most zeros with which a decimal is shown. The scale in a format string can ask for any number of them.
const MOST_ZEROS: u32 = 128;

impl<'a> Rows<'a> {
    /// See [`Column::value`].
    ///
    /// # Errors
    /// Same as [`Column::value`].
    pub fn value(&self, row: i64) -> Result<Value<'a>> {
        match self.resolve(row)? {
            Some((rows, row)) => rows.stored(row),
            None => Ok(Value::Null),
        }
    }

    /// See [`Column::stored`].
    ///
    /// # Errors
    /// Same as [`Column::stored`].
    pub fn stored(&self, row: i64) -> Result<Value<'a>> {
        Ok(match self.ty() {
            Type::Bool => Value::Bool(self.bool(row)?),
            Type::Float(width) => float(width, unsigned(self.fixed(row)?)),
            Type::UInt(_) => Value::UInt(unsigned(self.fixed(row)?)),
            Type::Decimal { scale, .. } => Value::Decimal(Decimal { unscaled: self.fixed(row)?, scale }),
            ty @ (Type::IntervalMonths | Type::IntervalDayTime | Type::IntervalMonthDayNano) => {
                interval(ty, self.fixed(row)?)
            }
            Type::FixedSizeBinary(_) | Type::Binary | Type::LargeBinary | Type::BinaryView => {
                Value::Binary(self.bytes(row)?)
            }
            Type::Utf8 | Type::LargeUtf8 | Type::Utf8View => Value::Text(self.text(row)?),
            Type::Struct => Value::Struct(self.column(), row),
            Type::Map => Value::Map(self.list(row)?),
            ty if ty.is_temporal() => Value::Temporal(Temporal {
                number: signed(self.fixed(row)?),
                ty,
                has_zone: !self.column().field().timezone().is_empty(),
            }),
            ty if ty.is_list() || matches!(ty, Type::FixedSizeList(_)) => Value::List(self.list(row)?),
            _ => Value::Int(signed(self.fixed(row)?)),
        })
    }
}

/// Reads an integer of 1, 2, 4 or 8 bytes.
fn unsigned(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        _ => bytes.try_into().map_or(0, u64::from_ne_bytes),
    }
}

fn signed(bytes: &[u8]) -> i64 {
    let missing = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (unsigned(bytes) << missing).cast_signed() >> missing
}

fn float<'a>(width: u8, bits: u64) -> Value<'a> {
    match width {
        2 => Value::Float32(half(bits as u16)),
        4 => Value::Float32(f32::from_bits(bits as u32)),
        _ => Value::Float64(f64::from_bits(bits)),
    }
}

/// Widens a number of half precision (IEEE 754 binary16).
fn half(bits: u16) -> f32 {
    /// A constant, because `powi` may round.
    const UNIT: f32 = 1.0 / (1_u32 << 24) as f32;
    let (exponent, fraction) = (u32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * UNIT,
        0x1f if fraction == 0.0 => f32::INFINITY,
        0x1f => f32::NAN,
        _ => (fraction + 1024.0) * UNIT * (1_u32 << (exponent - 1)) as f32,
    };
    if bits >> 15 == 1 { -size } else { size }
}

fn interval<'a>(ty: Type, bytes: &[u8]) -> Value<'a> {
    let part = |at: usize, width: usize| signed(bytes.get(at..at + width).unwrap_or_default());
    let (months, days, nanoseconds) = match ty {
        Type::IntervalMonths => (part(0, 4), 0, 0),
        Type::IntervalDayTime => (0, part(0, 4), part(4, 4) * 1_000_000),
        _ => (part(0, 4), part(4, 4), part(8, 8)),
    };
    Value::Interval { months: months as i32, days: days as i32, nanoseconds }
}

/// Values are equal if they are of one kind and say the same: decimals with the same digits and scale, lists and maps with
/// equal values in the same order, structs with equal members of the same names in the same order. What cannot be read is
/// equal to nothing, and neither is NaN.
impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Int(one), Self::Int(other)) => one == other,
            (Self::UInt(one), Self::UInt(other)) => one == other,
            (Self::Float32(one), Self::Float32(other)) => one == other,
            (Self::Float64(one), Self::Float64(other)) => one == other,
            (Self::Decimal(one), Self::Decimal(other)) => one == other,
            (Self::Temporal(one), Self::Temporal(other)) => one == other,
            (Self::Interval { months, days, nanoseconds }, Self::Interval { months: m, days: d, nanoseconds: n }) => {
                (months, days, nanoseconds) == (m, d, n)
            }
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::Binary(one), Self::Binary(other)) => one == other,
            (Self::List(one), Self::List(other)) => {
                one.length() == other.length() && (0..one.length()).all(|row| is_same((one, row), (other, row)))
            }
            // What keys and values are called means nothing.
            (Self::Map(one), Self::Map(other)) => {
                one.length() == other.length() && (0..one.length()).all(|row| are_same((one, row), (other, row)))
            }
            (Self::Struct(one, row), Self::Struct(other, at)) => {
                are_same((one, row), (other, at)) && one.children().map(raw_name).eq(other.children().map(raw_name))
            }
            _ => false,
        }
    }
}

fn raw_name<'a>(member: Column<'a>) -> &'a CStr {
    member.field().raw_name()
}

/// Whether the members of two structs have equal values.
fn are_same((one, row): (Column<'_>, i64), (other, at): (Column<'_>, i64)) -> bool {
    one.children().len() == other.children().len()
        && one.children().zip(other.children()).all(|(one, other)| is_same((one, row), (other, at)))
}

fn is_same((one, row): (Column<'_>, i64), (other, at): (Column<'_>, i64)) -> bool {
    matches!((one.value(row), other.value(at)), (Ok(one), Ok(other)) if one == other)
}

/// How a value is shown:
/// * numbers plainly, with the fewest digits that tell them from others of their type (half precision as single);
///   decimals of a very large scale with an exponent;
/// * dates and times as in ISO 8601 ([`Temporal`]);
/// * text in quotes as in JSON, bytes as `0x…`;
/// * lists as `[…]`, structs as `{"name": …}`, maps as `{key: …}`.
///
/// A value that cannot be read is shown as the reason in angle brackets.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::UInt(value) => value.fmt(f),
            Self::Float32(value) => value.fmt(f),
            Self::Float64(value) => value.fmt(f),
            Self::Decimal(value) => value.fmt(f),
            Self::Temporal(value) => value.fmt(f),
            Self::Interval { months, days, nanoseconds } => write!(f, "{months} months {days} days {nanoseconds} ns"),
            Self::Text(text) => quote(text, f),
            Self::Binary(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::List(values) => {
                f.write_str("[")?;
                separated(0..values.length(), f, |row, f| show(values, row, f))?;
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("{")?;
                let (keys, values) = (entries.child(0), entries.child(1));
                separated(0..entries.length(), f, |row, f| {
                    keys.map_or(Ok(()), |keys| show(keys, row, f))?;
                    f.write_str(": ")?;
                    values.map_or(Ok(()), |values| show(values, row, f))
                })?;
                f.write_str("}")
            }
            Self::Struct(column, row) => {
                f.write_str("{")?;
                separated(column.children(), f, |child, f| {
                    quote(child.field().name(), f)?;
                    f.write_str(": ")?;
                    show(child, row, f)
                })?;
                f.write_str("}")
            }
        }
    }
}

fn separated<T>(
    items: impl Iterator<Item = T>,
    f: &mut fmt::Formatter<'_>,
    write: impl Fn(T, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write(item, f)?;
    }
    Ok(())
}

fn show(column: Column<'_>, row: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match column.value(row) {
        Ok(value) => write!(f, "{value}"),
        Err(error) => write!(f, "<{error}>"),
    }
}

fn quote(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    let mut rest = text;
    while let Some(place) = rest.find(|character| character < ' ' || character == '"' || character == '\\') {
        let (plain, others) = rest.split_at(place);
        f.write_str(plain)?;
        let mut others = others.chars();
        match others.next() {
            Some('\n') => f.write_str("\\n")?,
            Some(mark @ ('"' | '\\')) => write!(f, "\\{mark}")?,
            Some(control) => write!(f, "\\u{:04x}", u32::from(control))?,
            None => {}
        }
        rest = others.as_str();
    }
    f.write_str(rest)?;
    f.write_str("\"")
}

impl fmt::Display for Decimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes: Vec<u8> = self.unscaled.to_vec();
        if cfg!(target_endian = "big") {
            bytes.reverse();
        }
        let negative = bytes.last().is_some_and(|&top| top >= 0x80);
        if negative {
            let mut carry = true;
            for byte in &mut bytes {
                let (flipped, over) = (!*byte).overflowing_add(carry.into());
                (*byte, carry) = (flipped, over);
            }
        }
        // Digits from the last to the first, by dividing by ten.
        let mut digits = Vec::new();
        while bytes.iter().any(|&byte| byte != 0) {
            let mut rest = 0;
            for byte in bytes.iter_mut().rev() {
                let value = rest << 8 | u32::from(*byte);
                (*byte, rest) = ((value / 10) as u8, value % 10);
            }
            digits.push(b'0' + rest as u8);
        }
        // Very many zeros would say no more than an exponent does.
        let shown = if self.scale.unsigned_abs() > MOST_ZEROS { 0 } else { self.scale };
        let after = usize::try_from(shown).unwrap_or(0);
        let before = usize::try_from(-shown).unwrap_or(0);
        if !digits.is_empty() {
            digits.splice(0..0, std::iter::repeat_n(b'0', before));
        }
        while digits.len() <= after {
            digits.push(b'0');
        }
        let mut text: Vec<u8> = Vec::with_capacity(digits.len() + 2);
        text.extend(negative.then_some(b'-'));
        for (left, digit) in digits.iter().enumerate().rev() {
            text.push(*digit);
            if left == after && after > 0 {
                text.push(b'.');
            }
        }
        f.write_str(&String::from_utf8_lossy(&text))?;
        if shown == self.scale { Ok(()) } else { write!(f, "e{}", -i64::from(self.scale)) }
    }
}
