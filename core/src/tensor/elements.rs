//! Elements by their Rust type: tensors over values of a program, and the elements of tensors on the host.

use std::ops::Deref;

use super::{Flags, Tensor, TensorDesc};
use crate::device::Device;
use crate::dtype::{Element, Storable};
use crate::error::{Refused, Result, refuse};
use crate::layout;
use crate::memory::{Owner, Vacant};

impl Tensor {
    /// Creates a row-major host tensor over a vector. Elements of `bool` can be created, but are read as bytes
    /// ([`Tensor::as_bytes`]).
    ///
    /// # Errors
    /// `DEVX_INVALID_SHAPE` if the number of elements in the shape is not the vector's, `DEVX_OUT_OF_MEMORY`. The vector is
    /// given back.
    pub fn from_vec<T: Storable>(mut values: Vec<T>, shape: &[i64]) -> std::result::Result<Self, Refused<Vec<T>>> {
        let (first, length) = (values.as_mut_ptr(), values.len());
        match described_over(first, length, shape, Flags::default()).and_then(|tensor| Ok((tensor, Vacant::new()?))) {
            Ok((mut tensor, room)) => {
                tensor.adopt(Owner::keeping(room, values));
                Ok(tensor)
            }
            Err(error) => Err(Refused { error, returned: values }),
        }
    }

    /// Creates a read-only, row-major host tensor over elements that the program itself goes on reading: those of an `Arc<[T]>`
    /// or `Arc<Vec<T>>`, of static data, of a memory map. `values` is kept until nobody uses the tensor any more, and then
    /// dropped, on any thread. Nothing is copied.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use devexchange_core::Tensor;
    ///
    /// let weights: Arc<[f32]> = Arc::new([0.5, 1.0, 1.5, 2.0]);
    /// let tensor = Tensor::from_shared(Arc::clone(&weights), &[2, 2])?;
    /// assert_eq!(tensor.data().addr(), weights.as_ptr().addr());
    /// # Ok::<(), devexchange_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Tensor::from_vec`]. The values are given back.
    pub fn from_shared<T, V>(values: V, shape: &[i64]) -> std::result::Result<Self, Refused<V>>
    where
        T: Storable,
        V: Deref<Target: AsRef<[T]>> + Send + 'static,
    {
        let room = match Vacant::new() {
            Ok(room) => room,
            Err(error) => return Err(Refused { error, returned: values }),
        };
        let owner = Owner::keeping(room, values);
        // SAFETY: the owner keeps a value of this type, where it stays until the owner is dropped. Nobody changes it there, so
        // that what it lends stays as it is.
        let kept = unsafe { &*owner.kept::<V>() };
        let elements: &[T] = (**kept).as_ref();
        match described_over(elements.as_ptr(), elements.len(), shape, Flags::READ_ONLY) {
            Ok(mut tensor) => {
                tensor.adopt(owner);
                Ok(tensor)
            }
            // SAFETY: the same value, which nobody refers to.
            Err(error) => Err(Refused { error, returned: unsafe { owner.into_kept() } }),
        }
    }

    /// Like [`Tensor::as_slice`], but to write the elements.
    ///
    /// # Errors
    /// Those of [`Tensor::as_slice`]; `DEVX_READ_ONLY`.
    ///
    /// # Safety
    /// As long as the result lives, nobody else uses the elements: no other clone or view of the tensor, no consumer, no queued
    /// work.
    pub unsafe fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.require_writable()?;
        let elements = self.as_slice::<T>()?.len();
        if elements == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as for `as_slice`; by the caller's contract nobody else uses the elements.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data().cast::<T>(), elements) })
    }

    /// Returns one element of a host tensor, whatever the strides are. `index` has a number for each dimension, counted from 0.
    /// The elements do not change meanwhile, as for [`Tensor::as_slice`].
    ///
    /// # Errors
    /// `DEVX_MISMATCH` for another element type, `DEVX_INVALID_ARGUMENT` for another number of indices, `DEVX_OUT_OF_RANGE`,
    /// `DEVX_DEVICE` for device memory, `DEVX_NOT_READY`.
    pub fn element<T: Element>(&self, index: &[i64]) -> Result<T> {
        self.require_elements::<T>()?;
        self.require_host()?;
        let (shape, strides) = (self.shape(), self.strides());
        if index.len() != shape.len() {
            return refuse!(DEVX_INVALID_ARGUMENT, "there are {} indices for {} dimensions", index.len(), shape.len());
        }
        let mut offset = 0_i64;
        for (k, ((i, extent), stride)) in index.iter().zip(shape).zip(strides).enumerate() {
            if !(0..*extent).contains(i) {
                return refuse!(DEVX_OUT_OF_RANGE, "index[{k}] is {i}: the extent is {extent}");
            }
            // Nothing overflows within the layout, which was checked; without elements, a later index is out of range.
            offset = i.wrapping_mul(*stride).wrapping_add(offset);
        }
        // SAFETY: the element is in the memory that the layout spans.
        let element = unsafe { self.data().cast::<T>().offset(offset as isize) };
        // SAFETY: as for `as_slice`.
        Ok(unsafe { element.read() })
    }
}

/// Describes `length` values as a tensor without an owner yet.
fn described_over<T: Storable>(first: *const T, length: usize, shape: &[i64], flags: Flags) -> Result<Tensor> {
    let dtype = T::STORED_AS;
    let elements = layout::check(dtype, false, shape, None)?.elements;
    if elements != length {
        return refuse!(DEVX_INVALID_SHAPE, "shape {shape:?} has {elements} elements, there are {length} values");
    }
    let data = first.cast_mut().cast();
    Tensor::describe(&TensorDesc { data, device: Device::CPU, dtype, shape, strides: None, byte_offset: 0, flags })
}
