//! Names of types for people, in errors and where schemas are shown.

use std::fmt::{self, Write};

use super::format::Type;
use crate::error::Result;

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(width) => write!(f, "int{}", u32::from(*width) * 8),
            Self::UInt(width) => write!(f, "uint{}", u32::from(*width) * 8),
            Self::Float(width) => write!(f, "float{}", u32::from(*width) * 8),
            Self::Decimal { width, precision, scale } => {
                write!(f, "decimal{}({precision}, {scale})", u32::from(*width) * 8)
            }
            other => write!(SnakeCase::new(f), "{other:?}"),
        }
    }
}

/// The name of the type that a format string stands for, for people: the name of the [`Type`], with the time zone of a
/// timestamp.
#[derive(Clone, Copy, Debug)]
pub struct TypeName<'a> {
    ty: Type,
    timezone: &'a str,
}

impl<'a> TypeName<'a> {
    /// # Errors
    /// Same as [`Type::parse`].
    pub fn parse(format: &'a str) -> Result<Self> {
        Ok(Self::of(Type::parse(format)?, format))
    }

    /// The name of `ty`, of which `format` is a format string.
    pub(super) fn of(ty: Type, format: &'a str) -> Self {
        Self { ty, timezone: ty.timezone(format) }
    }
}

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty {
            Type::Timestamp(unit) if !self.timezone.is_empty() => {
                write!(SnakeCase::new(f), "timestamp({unit:?}, ")?;
                write!(f, "{})", self.timezone)
            }
            ty => ty.fmt(f),
        }
    }
}

/// Writes the name of a variant as the name of its type: `LargeUtf8` as `large_utf8`.
struct SnakeCase<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    within_name: bool,
}

impl<'a, 'b> SnakeCase<'a, 'b> {
    fn new(f: &'a mut fmt::Formatter<'b>) -> Self {
        Self { f, within_name: false }
    }
}

impl fmt::Write for SnakeCase<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if self.within_name && letter.is_ascii_uppercase() {
                self.f.write_char('_')?;
            }
            self.f.write_char(letter.to_ascii_lowercase())?;
            self.within_name = letter.is_ascii_alphanumeric();
        }
        Ok(())
    }
}
