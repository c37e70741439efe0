//! Arrow types as format strings (C data interface, "Data type description").

use crate::dtype::DType;
use crate::error::{Result, refuse};
use crate::text;

/// Unit of a time, timestamp or duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// Seconds.
    Second,
    /// Thousandths of a second.
    Millisecond,
    /// Millionths of a second.
    Microsecond,
    /// Thousand-millionths of a second.
    Nanosecond,
}

impl TimeUnit {
    /// How many of this unit make up a second.
    pub const fn of_second(self) -> i64 {
        10_i64.pow(self.digits() as u32)
    }

    /// Decimal digits after the second.
    pub(crate) const fn digits(self) -> usize {
        match self {
            Self::Second => 0,
            Self::Millisecond => 3,
            Self::Microsecond => 6,
            Self::Nanosecond => 9,
        }
    }

    pub(crate) const fn symbol(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Millisecond => "ms",
            Self::Microsecond => "us",
            Self::Nanosecond => "ns",
        }
    }
}

/// A type of the Arrow columnar format. What else a format string says (a time zone) stays in the string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Type {
    /// No values and no buffers.
    Null,
    /// One bit for each value.
    Bool,
    /// Signed integer of 1, 2, 4 or 8 bytes.
    Int(u8),
    /// Unsigned integer of 1, 2, 4 or 8 bytes.
    UInt(u8),
    /// Floating point number of 2, 4 or 8 bytes.
    Float(u8),
    /// Decimal of 4, 8, 16 or 32 bytes.
    Decimal {
        /// Bytes of a value.
        width: u8,
        /// Decimal digits.
        precision: u8,
        /// Digits after the point.
        scale: i32,
    },
    /// Bytes, with 32-bit offsets.
    Binary,
    /// Bytes, with 64-bit offsets.
    LargeBinary,
    /// UTF-8 text, with 32-bit offsets.
    Utf8,
    /// UTF-8 text, with 64-bit offsets.
    LargeUtf8,
    /// This many bytes for each value.
    FixedSizeBinary(i32),
    /// Days since 1970-01-01, 32-bit.
    Date32,
    /// Milliseconds since 1970-01-01, 64-bit.
    Date64,
    /// Time of day, 32-bit for seconds and milliseconds, 64-bit for the finer units.
    Time(TimeUnit),
    /// Point in time, 64-bit since 1970-01-01 00:00.
    Timestamp(TimeUnit),
    /// Span of time, 64-bit.
    Duration(TimeUnit),
    /// Calendar months, 32-bit.
    IntervalMonths,
    /// Days and milliseconds, 32-bit each.
    IntervalDayTime,
    /// Months and days, 32-bit each, and nanoseconds, 64-bit.
    IntervalMonthDayNano,
    /// A column for each child.
    Struct,
    /// Lists of the child's values, with 32-bit offsets.
    List,
    /// Lists of the child's values, with 64-bit offsets.
    LargeList,
    /// This many of the child's values for each list.
    FixedSizeList(i32),
    /// Bytes; short values are in place, long ones in any of several data buffers.
    BinaryView,
    /// UTF-8 text; short values are in place, long ones in any of several data buffers.
    Utf8View,
    /// Lists of the child's values in any order, with 32-bit offsets and sizes.
    ListView,
    /// Lists of the child's values in any order, with 64-bit offsets and sizes.
    LargeListView,
    /// Lists of keys and values (the child is a struct of both), with 32-bit offsets.
    Map,
    /// A value of one of the children, each of which has as many rows as the union.
    SparseUnion,
    /// A value of one of the children, with a 32-bit offset into that child.
    DenseUnion,
    /// Runs of equal values; the two children hold the end and the value of each run.
    RunEndEncoded,
}

/// What a buffer holds, which decides when it may be NULL and how many bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// One bit for each element: 1 is valid. NULL if there are no nulls.
    Validity,
    /// This many bits for each element; the widest binary has more bits than a `u32` can count.
    Values(u64),
    /// Offsets of this many bytes, one more than there are elements.
    Offsets(u32),
    /// Bytes that the offsets point into; NULL if there are no bytes.
    Data,
    /// Bytes that views point into; [`Buffer::ViewSizes`] gives their number.
    ViewData,
    /// The number of bytes of each [`Buffer::ViewData`], 64-bit; may be NULL if there is no such buffer.
    ///
    /// Producers do not agree on where it lies: Arrow C++ keeps it in host memory even for arrays on a device.
    ViewSizes,
}

impl Buffer {
    /// The size in bytes for a number of elements, if it depends on nothing else.
    pub(crate) fn bytes(self, elements: u64) -> Option<u128> {
        let elements = u128::from(elements);
        match self {
            Self::Validity => Some(elements.div_ceil(8)),
            Self::Values(bits) => Some((elements * u128::from(bits)).div_ceil(8)),
            Self::Offsets(width) => Some((elements + 1) * u128::from(width)),
            Self::Data | Self::ViewData | Self::ViewSizes => None,
        }
    }

    /// Like [`Buffer::bytes`], but for the buffer at `index` of an array. For a buffer of sizes, the index tells how
    /// many there are.
    pub(crate) fn bytes_at(self, index: usize, elements: u64) -> Option<u128> {
        match self {
            // One size for each data buffer; those lie between the views and the sizes.
            Self::ViewSizes => Some(index.saturating_sub(2) as u128 * 8),
            _ => self.bytes(elements),
        }
    }
}

/// The number of children that a type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// Exactly this many.
    Exactly(u32),
    /// Any number.
    Any,
}

const fn fixed(bits: u64) -> Buffers {
    Buffers::Two(Buffer::Values(bits))
}

/// Bits of a view: a length, and either the bytes themselves or their place.
const VIEW_BITS: u64 = 128;

/// The buffers of a type, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// No buffers.
    None,
    /// Validity.
    One,
    /// Validity and one other buffer.
    Two(Buffer),
    /// Validity, offsets of this many bytes, and data.
    Three(u32),
    /// Validity, offsets and sizes: one of each for each element, of this many bits.
    Lists(u64),
    /// Validity, views, any number of data buffers, and their sizes.
    Views,
    /// The type id of each element.
    Sparse,
    /// The type id of each element, and its offset in the child.
    Dense,
}

impl Buffers {
    /// The number of buffers; for [`Buffers::Views`] without the data buffers.
    pub fn count(self) -> usize {
        match self {
            Self::None => 0,
            Self::One | Self::Sparse => 1,
            Self::Two(_) | Self::Dense => 2,
            Self::Three(_) | Self::Lists(_) | Self::Views => 3,
        }
    }

    /// Whether an array of this type can have `n_buffers` buffers.
    pub fn fits(self, n_buffers: i64) -> bool {
        match self {
            Self::Views => (3..=super::MAX_NODES as i64).contains(&n_buffers),
            _ => n_buffers == self.count() as i64,
        }
    }

    /// Whether the first buffer says which elements are valid.
    pub fn has_validity(self) -> bool {
        !matches!(self, Self::None | Self::Sparse | Self::Dense)
    }

    /// What the buffer at `index` holds, for an array with `n_buffers` buffers.
    pub fn get(self, index: usize, n_buffers: usize) -> Option<Buffer> {
        if index >= n_buffers {
            return None;
        }
        match (self, index) {
            (Self::Sparse | Self::Dense, 0) => Some(Buffer::Values(8)),
            (Self::Dense, 1) => Some(Buffer::Values(32)),
            (Self::None | Self::Sparse | Self::Dense, _) => None,
            (_, 0) => Some(Buffer::Validity),
            (Self::Two(buffer), 1) => Some(buffer),
            (Self::Three(width), 1) => Some(Buffer::Offsets(width)),
            (Self::Three(_), 2) => Some(Buffer::Data),
            (Self::Lists(bits), 1 | 2) => Some(Buffer::Values(bits)),
            (Self::Views, 1) => Some(Buffer::Values(VIEW_BITS)),
            (Self::Views, _) if index == n_buffers - 1 => Some(Buffer::ViewSizes),
            (Self::Views, _) => Some(Buffer::ViewData),
            _ => None,
        }
    }
}

impl Type {
    /// Parses a format string.
    ///
    /// # Errors
    /// `DEVX_INVALID_FORMAT` with the string.
    #[inline]
    pub fn parse(format: &str) -> Result<Self> {
        match *format.as_bytes() {
            [letter] if let Some(ty) = of_letter(letter) => Ok(ty),
            _ => Self::parse_long(format),
        }
    }

    fn parse_long(format: &str) -> Result<Self> {
        if let Some(fixed) = of_word(format) {
            return Ok(fixed);
        }
        let parsed = match format.split_once(':') {
            Some(("tss", _)) => Some(Self::Timestamp(TimeUnit::Second)),
            Some(("tsm", _)) => Some(Self::Timestamp(TimeUnit::Millisecond)),
            Some(("tsu", _)) => Some(Self::Timestamp(TimeUnit::Microsecond)),
            Some(("tsn", _)) => Some(Self::Timestamp(TimeUnit::Nanosecond)),
            Some(("w", width)) => count(width).map(Self::FixedSizeBinary),
            Some(("+w", size)) => count(size).map(Self::FixedSizeList),
            Some(("d", parameters)) => decimal(parameters),
            Some(("+us", ids)) => TypeIds::parse(ids).map(|_| Self::SparseUnion),
            Some(("+ud", ids)) => TypeIds::parse(ids).map(|_| Self::DenseUnion),
            _ => None,
        };
        match parsed {
            Some(parsed) => Ok(parsed),
            None => match Self::format_named(format) {
                Some(meant) => refuse!(
                    DEVX_INVALID_FORMAT,
                    "format is {format:?}: not a format string of Arrow, in which {format} is {meant:?}"
                ),
                None => refuse!(DEVX_INVALID_FORMAT, "format is {format:?}: not a format string of Arrow"),
            },
        }
    }

    /// The format string of a type without parameters, by its name.
    fn format_named(name: &str) -> Option<&'static str> {
        const FORMATS: [&str; 21] = [
            "n", "b", "c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g", "z", "Z", "u", "U", "vz", "vu", "tdD",
            "tdm",
        ];
        FORMATS.into_iter().find(|format| {
            let ty = Self::parse(format);
            ty.is_ok_and(|ty| text::without(name.as_bytes(), format_args!("{ty}")).is_some_and(<[u8]>::is_empty))
        })
    }

    /// Whether the type is a date, time, timestamp or duration.
    pub const fn is_temporal(self) -> bool {
        matches!(self, Self::Date32 | Self::Date64 | Self::Time(_) | Self::Timestamp(_) | Self::Duration(_))
    }

    /// The time zone that a format string of this type names; empty if there is none.
    pub(super) fn timezone(self, format: &str) -> &str {
        match self {
            Self::Timestamp(_) => format.get(4..).unwrap_or(""),
            _ => "",
        }
    }

    /// The buffers of an array of this type.
    pub const fn buffers(self) -> Buffers {
        match self {
            Self::Null | Self::RunEndEncoded => Buffers::None,
            Self::Struct | Self::FixedSizeList(_) => Buffers::One,
            Self::Binary | Self::Utf8 => Buffers::Three(4),
            Self::LargeBinary | Self::LargeUtf8 => Buffers::Three(8),
            Self::BinaryView | Self::Utf8View => Buffers::Views,
            Self::List | Self::Map => Buffers::Two(Buffer::Offsets(4)),
            Self::ListView => Buffers::Lists(32),
            Self::LargeListView => Buffers::Lists(64),
            Self::SparseUnion => Buffers::Sparse,
            Self::DenseUnion => Buffers::Dense,
            Self::LargeList => Buffers::Two(Buffer::Offsets(8)),
            Self::Bool => fixed(1),
            _ => match self.byte_width() {
                Some(bytes) => fixed(bytes as u64 * 8),
                None => fixed(0),
            },
        }
    }

    /// The bytes of a value, for types whose values all have the same whole number of bytes.
    pub const fn byte_width(self) -> Option<u32> {
        Some(match self {
            Self::Int(width) | Self::UInt(width) | Self::Float(width) | Self::Decimal { width, .. } => width as u32,
            Self::FixedSizeBinary(width) => width.unsigned_abs(),
            Self::Date32 | Self::Time(TimeUnit::Second | TimeUnit::Millisecond) | Self::IntervalMonths => 4,
            Self::Date64 | Self::Time(_) | Self::Timestamp(_) | Self::Duration(_) | Self::IntervalDayTime => 8,
            Self::IntervalMonthDayNano => 16,
            _ => return None,
        })
    }

    /// The number of buffers of an array of this type if they are those of nearly every column, otherwise 0. Those are:
    /// validity, then a buffer that must be there as soon as there is an element, with a small fixed number of bits for
    /// each, or with offsets and followed by data.
    pub(super) const fn plain_buffers(self) -> u8 {
        match self.buffers() {
            Buffers::Two(Buffer::Values(1..=256)) => 2,
            Buffers::Three(_) => 3,
            _ => 0,
        }
    }

    /// The number of children that a field of this type has.
    pub fn children(self) -> Children {
        match self {
            Self::Struct | Self::SparseUnion | Self::DenseUnion => Children::Any,
            Self::RunEndEncoded => Children::Exactly(2),
            Self::FixedSizeList(_) => Children::Exactly(1),
            list if list.is_list() => Children::Exactly(1),
            _ => Children::Exactly(0),
        }
    }

    /// Whether each value is a range of the child's values that buffers describe: all lists but those of a fixed size.
    pub fn is_list(self) -> bool {
        matches!(self, Self::List | Self::LargeList | Self::ListView | Self::LargeListView | Self::Map)
    }

    /// Whether each value is a value of one of the children, which the type id selects.
    pub fn is_union(self) -> bool {
        matches!(self, Self::SparseUnion | Self::DenseUnion)
    }

    /// Whether the values are text.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Utf8 | Self::LargeUtf8 | Self::Utf8View)
    }

    /// Whether the values can be indices into a dictionary.
    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int(_) | Self::UInt(_))
    }

    /// The element type of a tensor that sees the values as they are. Only numbers have one: DLPack cannot say what a
    /// date or a decimal means.
    #[inline]
    pub fn dtype(self) -> Option<DType> {
        Some(match self {
            Self::Int(1) => DType::INT8,
            Self::Int(2) => DType::INT16,
            Self::Int(4) => DType::INT32,
            Self::Int(8) => DType::INT64,
            Self::UInt(1) => DType::UINT8,
            Self::UInt(2) => DType::UINT16,
            Self::UInt(4) => DType::UINT32,
            Self::UInt(8) => DType::UINT64,
            Self::Float(2) => DType::FLOAT16,
            Self::Float(4) => DType::FLOAT32,
            Self::Float(8) => DType::FLOAT64,
            _ => return None,
        })
    }

    /// The element type as which the values can be read: that of a number itself, or the integer that stores a date, a
    /// time, a duration or a number of months. Other types have none.
    #[inline]
    pub fn storage(self) -> Option<DType> {
        match self {
            Self::Date32 | Self::Time(TimeUnit::Second | TimeUnit::Millisecond) | Self::IntervalMonths => {
                Some(DType::INT32)
            }
            Self::Date64 | Self::Time(_) | Self::Timestamp(_) | Self::Duration(_) => Some(DType::INT64),
            other => other.dtype(),
        }
    }

    /// The format string of a column that sees the elements of a tensor of this type, if there is one.
    pub fn format_of(dtype: DType) -> Option<&'static str> {
        ["c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g"]
            .into_iter()
            .find(|format| format.bytes().next().and_then(of_letter).and_then(Self::dtype) == Some(dtype))
    }
}

fn of_word(format: &str) -> Option<Type> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    Some(match format {
        "tdD" => Type::Date32,
        "tdm" => Type::Date64,
        "tts" => Type::Time(Second),
        "ttm" => Type::Time(Millisecond),
        "ttu" => Type::Time(Microsecond),
        "ttn" => Type::Time(Nanosecond),
        "tDs" => Type::Duration(Second),
        "tDm" => Type::Duration(Millisecond),
        "tDu" => Type::Duration(Microsecond),
        "tDn" => Type::Duration(Nanosecond),
        "tiM" => Type::IntervalMonths,
        "tiD" => Type::IntervalDayTime,
        "tin" => Type::IntervalMonthDayNano,
        "+s" => Type::Struct,
        "+l" => Type::List,
        "+L" => Type::LargeList,
        "vz" => Type::BinaryView,
        "vu" => Type::Utf8View,
        "+vl" => Type::ListView,
        "+vL" => Type::LargeListView,
        "+m" => Type::Map,
        "+r" => Type::RunEndEncoded,
        _ => return None,
    })
}

/// Returns [`Type::plain_buffers`] of the type that a letter stands for; 0 for any other byte.
#[inline]
#[expect(clippy::indexing_slicing, reason = "as many as there are bytes")]
pub(super) fn plain_buffers_of_letter(letter: u8) -> u8 {
    PLAIN_BUFFERS[usize::from(letter)]
}

/// The type that a letter stands for; `Null` for any other byte.
#[inline]
#[expect(clippy::indexing_slicing, reason = "as many as there are bytes")]
pub(super) fn type_of_letter(letter: u8) -> Type {
    TYPES[usize::from(letter)]
}

static PLAIN_BUFFERS: [u8; 256] = letters().1;
static TYPES: [Type; 256] = letters().0;

#[expect(clippy::indexing_slicing, reason = "while compiling")]
const fn letters() -> ([Type; 256], [u8; 256]) {
    let (mut types, mut plain) = ([Type::Null; 256], [0; 256]);
    let mut letter = 0;
    while letter < 256 {
        if let Some(ty) = of_letter(letter as u8) {
            (types[letter], plain[letter]) = (ty, ty.plain_buffers());
        }
        letter += 1;
    }
    (types, plain)
}

/// The type that a letter stands for, if there is one.
const fn of_letter(letter: u8) -> Option<Type> {
    Some(match letter {
        b'n' => Type::Null,
        b'b' => Type::Bool,
        b'c' => Type::Int(1),
        b'C' => Type::UInt(1),
        b's' => Type::Int(2),
        b'S' => Type::UInt(2),
        b'i' => Type::Int(4),
        b'I' => Type::UInt(4),
        b'l' => Type::Int(8),
        b'L' => Type::UInt(8),
        b'e' => Type::Float(2),
        b'f' => Type::Float(4),
        b'g' => Type::Float(8),
        b'z' => Type::Binary,
        b'Z' => Type::LargeBinary,
        b'u' => Type::Utf8,
        b'U' => Type::LargeUtf8,
        _ => return None,
    })
}

/// Parses a number without a sign, as a width or a list size has to be.
fn count(text: &str) -> Option<i32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses `precision,scale` or `precision,scale,bits`.
fn decimal(parameters: &str) -> Option<Type> {
    let mut parts = parameters.split(',');
    let precision = count(parts.next()?)?;
    let scale = parts.next().filter(|scale| !scale.starts_with('+'))?.parse().ok()?;
    let width = match parts.next() {
        None => 16,
        Some(bits) => u8::try_from(count(bits)? / 8).ok().filter(|_| matches!(bits, "32" | "64" | "128" | "256"))?,
    };
    let most = match width {
        4 => 9,
        8 => 18,
        16 => 38,
        _ => 76,
    };
    let precision = u8::try_from(precision).ok().filter(|precision| (1..=most).contains(precision))?;
    parts.next().is_none().then_some(Type::Decimal { width, precision, scale })
}

/// The type ids of a union: which number in its first buffer stands for which child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeIds {
    child_of: [u8; 128],
    count: u32,
}

/// The mark of an id without a child. No child has this number, because there are at most 128 ids.
const NO_CHILD: u8 = u8::MAX;

impl TypeIds {
    /// Parses what follows the colon of a union's format string. Returns `None` if that is not a list of different ids.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut ids = Self { child_of: [NO_CHILD; 128], count: 0 };
        for id in text.split(',').filter(|_| !text.is_empty()) {
            let slot = ids.child_of.get_mut(usize::try_from(count(id).filter(|_| !id.is_empty())?).ok()?)?;
            if *slot != NO_CHILD {
                return None;
            }
            *slot = ids.count as u8;
            ids.count += 1;
        }
        Some(ids)
    }

    /// The number of ids, one for each child.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The child that `id` stands for.
    pub fn child(&self, id: i8) -> Option<usize> {
        let child = *self.child_of.get(usize::try_from(id).ok()?)?;
        (child != NO_CHILD).then_some(child.into())
    }

    /// The id that stands for a child.
    pub fn id(&self, child: usize) -> Option<i8> {
        let id = self.child_of.iter().position(|&of| usize::from(of) == child && of != NO_CHILD)?;
        i8::try_from(id).ok()
    }
}
