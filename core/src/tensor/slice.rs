//! A part of a tensor as a tensor of its own.

use super::{Flags, Tensor, TensorDesc};
use crate::error::{Result, refuse};
use crate::layout;
use crate::memory::collected;
use crate::view::View;

impl Tensor {
    /// Returns a part of the tensor: `length` indices along one dimension, from `offset` on. The part is a tensor of its own
    /// with the same number of dimensions and the same strides. It shares the memory: nothing is copied, and work with the part
    /// ([`Tensor::used_on`]) is work with this tensor.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_RANGE` if there is no such dimension or its extent is too small; `DEVX_IMPOSSIBLE` if the first element
    /// would begin within a byte; `DEVX_OUT_OF_MEMORY`.
    pub fn slice(&self, dimension: i64, offset: i64, length: i64) -> Result<Self> {
        let (shape, strides) = (self.shape(), self.strides());
        let index = usize::try_from(dimension).unwrap_or(usize::MAX);
        let (Some(&extent), Some(&stride)) = (shape.get(index), strides.get(index)) else {
            return refuse!(DEVX_OUT_OF_RANGE, "dimension is {dimension}: the tensor has {}", shape.len());
        };
        if offset < 0 || length < 0 || offset.checked_add(length).is_none_or(|end| end > extent) {
            return refuse!(
                DEVX_OUT_OF_RANGE,
                "offset is {offset} and length is {length}: dimension {dimension} has an extent of {extent}"
            );
        }
        let mut part = collected(shape.iter().map(|&extent| Ok(extent)))?;
        if let Some(extent) = part.get_mut(index) {
            *extent = length;
        }
        // Without elements, strides lead nowhere and can have any value.
        let first = if part.contains(&0) { 0 } else { i128::from(offset) * i128::from(stride) };
        let bits = first * layout::element_bits(self.dtype(), self.flags().has(Flags::SUBBYTE_PADDED));
        if bits % 8 != 0 {
            return refuse!(
                DEVX_IMPOSSIBLE,
                "offset is {offset}: the first element, {} with a stride of {stride}, begins within a byte",
                self.dtype()
            );
        }
        let desc = TensorDesc {
            // This address is within the memory, because the layout of the whole was checked.
            data: self.data().wrapping_byte_offset((bits / 8) as isize),
            device: self.device(),
            dtype: self.dtype(),
            shape: &part,
            strides: Some(strides),
            byte_offset: 0,
            flags: self.flags().shared(),
        };
        // SAFETY: these are elements of this tensor.
        unsafe { self.described_anew(&desc) }
    }

    /// Returns elements of this tensor under another description. They share the tensor's order, and their uses are its uses.
    ///
    /// # Errors
    /// Same as [`Tensor::from_raw_parts`].
    ///
    /// # Safety
    /// All memory that is described belongs to this tensor.
    pub(crate) unsafe fn described_anew(&self, desc: &TensorDesc<'_>) -> Result<Self> {
        let view = View::of_tensor(self);
        // SAFETY: the caller's contract, and the owner keeps the memory alive.
        let mut described = unsafe { Self::from_raw_parts(desc, view.owner()) }?;
        described.set_view(view)?;
        Ok(described)
    }
}
