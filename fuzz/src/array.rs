//! Makes descriptions of arrays for a field, with occasional errors.

use arbitrary::{Result, Unstructured};
use devexchange_core::arrow::Type;

use crate::chance;
use crate::field::{Field, Quirk};
use crate::oracle;

/// The memory of a buffer, in an allocation that ends with it, so that the sanitizer reports reads beyond it.
#[derive(Clone, Debug)]
pub struct Buffer {
    memory: Box<[u8]>,
    skew: usize,
}

impl Buffer {
    fn new(bytes: &[u8], skew: usize) -> Self {
        let memory = std::iter::repeat_n(0, skew).chain(bytes.iter().copied()).collect();
        Self { memory, skew }
    }

    /// The content of the buffer, which begins after the bytes that misalign it.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.skew..]
    }
}

/// One array, with its children and its dictionary.
#[derive(Clone, Debug)]
pub struct Array {
    /// Number of elements.
    pub length: i64,
    /// Number of nulls, or −1.
    pub null_count: i64,
    /// Elements to skip.
    pub offset: i64,
    /// Buffers; `None` for NULL.
    pub buffers: Vec<Option<Buffer>>,
    /// A wrong number of buffers; `None` for that of `buffers`.
    pub n_buffers: Option<i64>,
    /// Whether the address of the table of buffers is not NULL.
    pub has_table: bool,
    /// Children.
    pub children: Vec<Array>,
    /// The values of a dictionary.
    pub dictionary: Option<Box<Array>>,
    /// An error in the links to the children.
    pub quirk: Option<Quirk>,
}

const EXTREMES: &[i64] = &[-1, i64::MIN, i64::MAX, 1 << 31, 1 << 48, i64::MAX / 16];
/// The most bytes that a buffer gets, however long the array is.
const MOST_BYTES: u128 = 1024;

impl Array {
    /// Makes an array for a field. Apart from errors, it has at least `least` elements.
    pub fn of(field: &Field, least: i64, u: &mut Unstructured<'_>) -> Result<Self> {
        let format = field.format.as_deref().and_then(|format| std::str::from_utf8(format).ok());
        let ty = format.and_then(|format| Type::parse(format).ok()).unwrap_or(Type::Null);
        let mut length = least.saturating_add(u.int_in_range(0..=9)?);
        let mut offset = if chance(u, 1, 2)? { 0 } else { u.int_in_range(0..=9)? };
        let mut null_count = if chance(u, 1, 2)? { 0 } else { -1 };
        match u.int_in_range(0..=95)? {
            0 => length = *u.choose(EXTREMES)?,
            1 => offset = *u.choose(EXTREMES)?,
            2 => null_count = *u.choose(EXTREMES)?,
            3 => null_count = length,
            4 => length = length.saturating_sub(1),
            _ => {}
        }
        let end = offset.saturating_add(length).max(0);
        let mut children = Vec::new();
        for (k, child) in field.children.iter().enumerate() {
            let least = match ty {
                Type::Struct | Type::SparseUnion => end,
                Type::FixedSizeList(size) => end.saturating_mul(size.into()),
                Type::RunEndEncoded if k == 0 => end.min(1),
                Type::RunEndEncoded => children.first().map_or(0, |ends: &Self| ends.length),
                _ => 0,
            };
            children.push(Self::of(child, least.clamp(0, 1 << 40), u)?);
        }
        if ty == Type::RunEndEncoded && chance(u, 7, 8)? {
            children.iter_mut().take(1).for_each(|ends| ends.grow(end));
        }
        let dictionary = field.dictionary.as_deref().map(|values| Self::of(values, 0, u).map(Box::new)).transpose()?;
        let values = children.first().or(dictionary.as_deref()).map_or(0, |values| values.length.clamp(0, 100));
        let mut buffers = buffers(ty, u128::try_from(end).unwrap_or(0), values, u)?;
        let (mut n_buffers, mut has_table) = (None, true);
        match u.int_in_range(0..=127)? {
            // Not for views: their number of buffers varies, and a consumer has to believe it.
            0 if !matches!(ty, Type::BinaryView | Type::Utf8View) => n_buffers = Some(*u.choose(EXTREMES)?),
            1 => has_table = false,
            2 => drop(buffers.pop()),
            3 => buffers.push(None),
            _ => {}
        }
        let quirk = Quirk::pick(u, children.len())?;
        Ok(Self { length, null_count, offset, buffers, n_buffers, has_table, children, dictionary, quirk })
    }

    /// Makes the values run ends that increase up to `end`.
    fn grow(&mut self, end: i64) {
        let (rows, skipped) = (self.length.clamp(1, 512), self.offset.clamp(0, 512));
        let Some(Some(values)) = self.buffers.get_mut(1) else { return };
        let skew = values.skew;
        let Some(width) = values.bytes().len().checked_div((rows + skipped) as usize) else { return };
        for (row, place) in values.memory[skew..].chunks_mut(width.max(1)).enumerate() {
            let run_end = end.saturating_mul((row as i64 - skipped + 1).max(0)).div_euclid(rows);
            place.copy_from_slice(&run_end.to_ne_bytes()[..place.len().min(8)]);
        }
    }

    /// Whether every consumer must refuse this array.
    pub fn is_wrong(&self) -> bool {
        let below = Quirk::reachable(self.quirk, &self.children).iter().chain(self.dictionary.as_deref());
        self.length < 0
            || self.offset < 0
            || self.quirk.is_some_and(Quirk::is_fatal)
            || below.into_iter().any(Self::is_wrong)
    }
}

/// Makes the buffers of a type for `end` elements. Most offsets and indices are at most `values`, or within the data.
fn buffers(ty: Type, end: u128, values: i64, u: &mut Unstructured<'_>) -> Result<Vec<Option<Buffer>>> {
    let is_view = matches!(ty, Type::BinaryView | Type::Utf8View);
    let count = ty.buffers().count() + if is_view { u.int_in_range(0..=2)? } else { 0 };
    let data_bytes = u.int_in_range(0..=40)?;
    let mut buffers = Vec::new();
    for index in 0..count {
        let needed = oracle::needed(ty, index, count, end).unwrap_or(data_bytes as u128).min(MOST_BYTES) as usize;
        let random = chance(u, 1, 8)?;
        let bytes = match (ty, index) {
            (_, 0) if !ty.buffers().has_validity() => repeated(needed, |all, u| int(all, u, 1, 6), u)?,
            _ if random => any(needed, u)?,
            (Type::Binary | Type::Utf8, 1) => offsets(needed, 4, data_bytes, u)?,
            (Type::LargeBinary | Type::LargeUtf8, 1) => offsets(needed, 8, data_bytes, u)?,
            (Type::List | Type::Map | Type::ListView, 1) => offsets(needed, 4, values, u)?,
            (Type::LargeList | Type::LargeListView, 1) => offsets(needed, 8, values, u)?,
            (Type::DenseUnion | Type::ListView, _) => repeated(needed, |all, u| int(all, u, 4, values.min(3)), u)?,
            (Type::LargeListView, _) => repeated(needed, |all, u| int(all, u, 8, values.min(3)), u)?,
            (Type::Int(width) | Type::UInt(width), 1) => {
                repeated(needed, |all, u| int(all, u, width.into(), values), u)?
            }
            (Type::BinaryView | Type::Utf8View, 1) => {
                repeated(needed, |all, u| view(all, u, count - 3, data_bytes), u)?
            }
            // The sizes of the data buffers, which are all the same.
            _ if is_view && index > 1 && index + 1 == count => {
                data_bytes.to_ne_bytes().into_iter().cycle().take(needed).collect()
            }
            (_, 2) => repeated(needed, letter, u)?,
            _ => any(needed, u)?,
        };
        buffers.push(match u.int_in_range(0..=63)? {
            0..=1 => None,
            2 => Some(Buffer::new(&bytes[..bytes.len().saturating_sub(1)], 0)),
            3 => Some(Buffer::new(&bytes, 1)),
            4..=16 if index == 0 => None,
            _ => Some(Buffer::new(&bytes, 0)),
        });
    }
    Ok(buffers)
}

/// Makes `bytes` bytes by repeated calls of `make`, which appends to the one allocation: there can be thousands of elements.
fn repeated(
    bytes: usize,
    mut make: impl FnMut(&mut Vec<u8>, &mut Unstructured<'_>) -> Result<()>,
    u: &mut Unstructured<'_>,
) -> Result<Vec<u8>> {
    let mut all = Vec::with_capacity(bytes + 16);
    while all.len() < bytes {
        make(&mut all, u)?;
    }
    all.truncate(bytes);
    Ok(all)
}

/// Takes `bytes` bytes from the input; they are zeros once it is used up.
fn any(bytes: usize, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut all = vec![0; bytes];
    u.fill_buffer(&mut all)?;
    Ok(all)
}

/// Appends a number of `width` bytes that is at most `most`.
fn int(all: &mut Vec<u8>, u: &mut Unstructured<'_>, width: usize, most: i64) -> Result<()> {
    all.extend_from_slice(&u.int_in_range(0..=most.max(0))?.to_ne_bytes()[..width]);
    Ok(())
}

fn letter(all: &mut Vec<u8>, u: &mut Unstructured<'_>) -> Result<()> {
    all.push(u.int_in_range(0x20..=0x7e)?);
    Ok(())
}

/// Makes `bytes` bytes of offsets, which never decrease and are at most `most`.
fn offsets(bytes: usize, width: usize, most: i64, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut last = 0_i64;
    repeated(
        bytes,
        |all, u| {
            last = u.int_in_range(last..=most.min(last + 4).max(last))?;
            all.extend_from_slice(&last.to_ne_bytes()[..width]);
            Ok(())
        },
        u,
    )
}

/// Appends a view of up to 20 bytes, which are in the view itself or in one of `buffers` data buffers.
fn view(all: &mut Vec<u8>, u: &mut Unstructured<'_>, buffers: usize, data_bytes: i64) -> Result<()> {
    let length: i32 = u.int_in_range(0..=if buffers == 0 { 12 } else { 20 })?;
    all.extend(length.to_ne_bytes());
    if length <= 12 {
        all.extend(b"abcdefghijkl");
    } else {
        all.extend(b"abcd");
        all.extend((u.choose_index(buffers)? as i32).to_ne_bytes());
        all.extend(u.int_in_range(0..=(data_bytes - i64::from(length)).max(0) as i32)?.to_ne_bytes());
    }
    Ok(())
}
