//! How elements lie in memory: shapes and strides, checked with arithmetic that cannot overflow.
//! Shapes and strides are counted in elements, offsets and sizes in bytes.

use crate::dtype::DType;
use crate::error::{Result, refuse};

/// Most dimensions that a tensor may have.
pub const MAX_NDIM: usize = 64;

/// What a checked shape and its strides amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// Number of elements.
    pub elements: usize,
    /// Bytes of the elements when they are compact; sub-byte elements are rounded up once, over the whole tensor.
    pub bytes: usize,
    /// Byte offset of the lowest element from the first one (negative with negative strides).
    pub lowest: isize,
    /// Byte offset from the first element to the end of the highest one.
    pub end: isize,
    /// Whether the elements are compact and in row-major order.
    pub row_major: bool,
}

/// Checks the number of dimensions in a struct, which may lack the address of its shape.
///
/// # Errors
/// `DEVX_INVALID_SHAPE`.
#[inline]
pub(crate) fn dimensions(ndim: i64, has_shape: bool) -> Result<usize> {
    match usize::try_from(ndim) {
        Ok(0) => Ok(0),
        Ok(ndim) if ndim <= MAX_NDIM && has_shape => Ok(ndim),
        Ok(ndim) if ndim <= MAX_NDIM => refuse!(DEVX_INVALID_SHAPE, "shape is NULL with ndim {ndim}"),
        _ => refuse!(DEVX_INVALID_SHAPE, "ndim is {ndim}: it must be between 0 and {MAX_NDIM}"),
    }
}

/// Checks a shape, and its strides if there are any (without them: compact row-major).
///
/// `padded` says that each sub-byte element has bytes of its own.
///
/// # Errors
/// `DEVX_INVALID_SHAPE` with the dimension and its value, for more than [`MAX_NDIM`] dimensions, and if there is not one stride
/// for each dimension.
pub fn check(dtype: DType, padded: bool, shape: &[i64], strides: Option<&[i64]>) -> Result<Layout> {
    let ndim = shape.len();
    if ndim > MAX_NDIM {
        return refuse!(DEVX_INVALID_SHAPE, "ndim is {ndim}: more than {MAX_NDIM}");
    }
    if let Some(strides) = strides.filter(|strides| strides.len() != ndim) {
        return refuse!(DEVX_INVALID_SHAPE, "there are {} strides for {ndim} dimensions", strides.len());
    }
    let bits = element_bits(dtype, padded);
    let elements = count(shape)?;
    let bytes = bytes_of(i128::from(elements) * bits);
    let Some(compact) = in_address_space(bytes) else {
        return refuse!(
            DEVX_INVALID_SHAPE,
            "shape {shape:?} of {dtype} takes {bytes} bytes: more than can be addressed"
        );
    };
    // An empty tensor addresses nothing, so its strides mean nothing.
    if elements == 0 {
        return Ok(Layout { elements: 0, bytes: 0, lowest: 0, end: 0, row_major: true });
    }
    let Some(strides) = strides else {
        return Ok(Layout {
            elements: elements as usize,
            bytes: compact,
            lowest: 0,
            end: compact as isize,
            row_major: true,
        });
    };
    let (mut low, mut high, mut expected, mut row_major) = (0_i128, 0_i128, 1_i128, true);
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        let reach = i128::from(extent - 1) * i128::from(stride);
        low += reach.min(0);
        high += reach.max(0);
        row_major &= extent == 1 || i128::from(stride) == expected;
        expected *= i128::from(extent);
    }
    // The bits can be more than an i128 counts; saturated, they are still more than can be addressed.
    let (lowest, end) = (low.saturating_mul(bits).div_euclid(8), bytes_of((high + 1).saturating_mul(bits)));
    match (isize::try_from(lowest), isize::try_from(end), isize::try_from(end - lowest)) {
        (Ok(lowest), Ok(end), Ok(_)) => {
            Ok(Layout { elements: elements as usize, bytes: compact, lowest, end, row_major })
        }
        _ => refuse!(
            DEVX_INVALID_SHAPE,
            "strides {strides:?} with shape {shape:?} of {dtype} reach from {lowest} to {end} bytes: more than can be addressed"
        ),
    }
}

/// Writes the strides, in elements, of a compact row-major tensor.
pub fn row_major_strides(shape: &[i64], strides: &mut [i64]) {
    let mut next = 1_i64;
    for (extent, stride) in shape.iter().zip(strides).rev() {
        *stride = next;
        // A zero extent makes the tensor empty; the strides stay those of a tensor with extent 1.
        next = next.wrapping_mul((*extent).max(1));
    }
}

/// Whether the stride along this dimension has any effect: it has none along a single element, or if there are no elements.
pub fn is_stepped(shape: &[i64], dimension: usize) -> bool {
    shape.get(dimension).is_some_and(|&extent| extent > 1) && !shape.contains(&0)
}

/// Returns the bits that one element occupies.
pub(crate) fn element_bits(dtype: DType, padded: bool) -> i128 {
    let bits = i128::from(dtype.element_bits());
    if padded { bytes_of(bits) * 8 } else { bits }
}

fn bytes_of(bits: i128) -> i128 {
    bits.saturating_add(7).div_euclid(8)
}

fn in_address_space(bytes: i128) -> Option<usize> {
    isize::try_from(bytes).ok().and_then(|bytes| usize::try_from(bytes).ok())
}

/// Returns the product of the extents; 0 if one of them is 0, however large the others are.
fn count(shape: &[i64]) -> Result<i64> {
    let mut product = Some(1_i64);
    let mut empty = false;
    for (i, &extent) in shape.iter().enumerate() {
        if extent < 0 {
            return refuse!(DEVX_INVALID_SHAPE, "shape[{i}] is {extent}: an extent cannot be negative");
        }
        empty |= extent == 0;
        product = product.and_then(|p| p.checked_mul(extent));
    }
    match product {
        _ if empty => Ok(0),
        Some(product) => Ok(product),
        None => refuse!(DEVX_INVALID_SHAPE, "shape {shape:?} has more elements than an int64 can count"),
    }
}
