//! Makes descriptions of tensors, with occasional errors, and computes without the core which memory they cover.

use arbitrary::{Arbitrary, Result, Unstructured};

use crate::chance;

/// The extents, strides and offset of a tensor, and its memory, in an allocation of exactly that size.
#[derive(Debug)]
pub struct Shape {
    /// Bytes of an element.
    pub width: usize,
    /// Extents.
    pub extents: Vec<i64>,
    /// Distances in elements; `None` for compact row-major.
    pub strides: Option<Vec<i64>>,
    /// Bytes from the start of the memory to the first element.
    pub byte_offset: u64,
    /// The memory.
    pub memory: Box<[u64]>,
    /// A wrong number of dimensions; `None` for the number of extents.
    pub ndim: Option<i64>,
}

const EXTREMES: &[i64] = &[-1, i64::MIN, i64::MAX, 1 << 31, 1 << 62, 0];

impl Shape {
    /// Makes a shape for elements of `width` bytes.
    ///
    /// # Errors
    /// Those of an input that is used up.
    pub fn of(width: usize, u: &mut Unstructured<'_>) -> Result<Self> {
        let ndim = if chance(u, 1, 32)? { u.int_in_range(60..=70)? } else { u.int_in_range(0..=4)? };
        let mut extents = Vec::new();
        for _ in 0..ndim {
            let extreme = chance(u, 1, 40)?;
            let small = if ndim > 4 { 1..=1 } else { 0..=5 };
            extents.push(if extreme { *u.choose(EXTREMES)? } else { u.int_in_range(small)? });
        }
        let mut strides = None;
        if chance(u, 2, 3)? {
            let mut step = 1_i64;
            let mut compact = vec![0; ndim];
            for (place, extent) in compact.iter_mut().zip(&extents).rev() {
                (*place, step) = (step, step.wrapping_mul((*extent).max(1)));
            }
            match u.int_in_range(0..=7)? {
                0 => compact.reverse(),
                1 => compact.iter_mut().for_each(|stride| *stride = stride.wrapping_neg()),
                2 => compact.fill(0),
                3 => compact.iter_mut().for_each(|stride| *stride = stride.wrapping_mul(2)),
                4 => compact = (0..ndim).map(|_| i64::arbitrary(u)).collect::<Result<_>>()?,
                _ => {}
            }
            strides = Some(compact);
        }
        let byte_offset = match u.int_in_range(0..=31)? {
            0 => u64::arbitrary(u)?,
            1..=4 => u.int_in_range(0..=64)?,
            5..=12 => (u.int_in_range(0..=8)? * width) as u64,
            _ => 0,
        };
        let words = u.int_in_range(0..=128)?;
        let memory = (0..words).map(|word| word * 0x0101_0101_0101).collect();
        let ndim = if chance(u, 1, 64)? {
            Some(*u.choose(&[-1, i64::from(i32::MIN), i64::from(i32::MAX), 65])?)
        } else {
            None
        };
        Ok(Self { width, extents, strides, byte_offset, memory, ndim })
    }

    /// The size of the memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.memory)
    }

    /// Whether all elements are within the memory, for elements of whole bytes.
    pub fn is_within(&self) -> bool {
        if self.extents.contains(&0) {
            return true;
        }
        let (mut low, mut high, mut step) = (0_i128, 0_i128, 1_i128);
        for (k, &extent) in self.extents.iter().enumerate().rev() {
            let stride = self.strides.as_ref().map_or(step, |strides| strides[k].into());
            step = step.saturating_mul(extent.into());
            let reach = (i128::from(extent) - 1).saturating_mul(stride);
            if reach < 0 { low = low.saturating_add(reach) } else { high = high.saturating_add(reach) }
        }
        let (width, offset) = (self.width as i128, i128::from(self.byte_offset));
        let first = low.saturating_mul(width).saturating_add(offset);
        let end = high.saturating_add(1).saturating_mul(width).saturating_add(offset);
        first >= 0 && end <= self.bytes() as i128
    }
}
