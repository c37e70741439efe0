//! A column as a tensor, a tensor as a column.

use core::ffi::c_void;

use super::fixed_shape;
use super::{Plan, impossible};
use crate::arrow::{ArrayBuilder, Batch, Column, Type};
use crate::device::Device;
use crate::dlpack::Copying;
use crate::dtype::DType;
use crate::error::{Result, refuse};
use crate::memory::{Owner, entry};
use crate::order::Uses;
use crate::tensor::{Flags, Tensor, TensorDesc};

// ---- column → tensor ----

/// How a column can be had as a tensor. Reads the validity buffer if the number of nulls is not known.
///
/// # Errors
/// `DEVX_DEVICE` if nulls would have to be counted in device memory.
pub fn plan_tensor(column: Column<'_>) -> Result<Plan> {
    let values = innermost(column);
    for level in levels(column) {
        let (ty, nulls) = (level.ty(), level.null_count()?);
        if nulls > 0 {
            return Ok(impossible(format!(
                "{nulls} of {} values of {ty} are null, which a tensor cannot say",
                level.length()
            )));
        }
    }
    Ok(if values.dictionary().is_some() {
        impossible(format!("the {} values are indices into a dictionary", values.ty()))
    } else if let Err(error) = dimensions(column) {
        impossible(error.message())
    } else if values.ty() == Type::Bool {
        Plan::Copy { bytes: values.length() as usize, reason: "bools are bits in Arrow and bytes in DLPack".into() }
    } else if values.ty().dtype().is_none() {
        impossible(format!("{} has no element type in DLPack", values.ty()))
    } else {
        Plan::View
    })
}

/// The column as a tensor: one dimension, and one more for each level of fixed-size lists, or as many as the extension
/// type `arrow.fixed_shape_tensor` says. A view keeps the batch alive and is read-only, as Arrow data is not to be
/// changed.
///
/// # Errors
/// As [`Plan::allow`]; `DEVX_DEVICE` if data would have to be read in device memory.
pub fn tensor(column: Column<'_>, copy: Copying) -> Result<Tensor> {
    let must_copy = plan_tensor(column)?.allow(copy)?;
    let values = innermost(column);
    let Dimensions { shape, strides } = dimensions(column)?;
    if values.ty() == Type::Bool {
        let bytes: Result<Vec<u8>> = (0..values.length()).map(|row| values.bool(row).map(u8::from)).collect();
        return of_bytes(bytes?, &shape, &strides);
    }
    let Some(dtype) = values.ty().dtype() else {
        return refuse!(DEVX_IMPOSSIBLE, "{} has no element type in DLPack", values.ty());
    };
    let width = dtype.element_bytes().unwrap_or(0);
    let desc = TensorDesc {
        data: values.buffers().get(1).copied().unwrap_or(std::ptr::null()).cast_mut(),
        device: column.batch().device(),
        dtype,
        shape: &shape,
        strides: Some(&strides),
        byte_offset: values.offset() as u64 * width as u64,
        flags: Flags::READ_ONLY,
    };
    // SAFETY: the batch describes the memory and, kept alive by the owner, the memory too.
    let mut view = unsafe { Tensor::from_raw_parts(&desc, column.batch().clone().into_owner()) }?;
    view.set_view(column.batch().ready().clone(), Uses::of_batch(column.batch().clone()));
    if must_copy { view.copy() } else { Ok(view) }
}

fn of_bytes(bytes: Vec<u8>, shape: &[i64], strides: &[i64]) -> Result<Tensor> {
    let desc = TensorDesc {
        data: bytes.as_ptr().cast_mut().cast(),
        device: Device::CPU,
        dtype: DType::BOOL,
        shape,
        strides: Some(strides),
        byte_offset: 0,
        flags: Flags::IS_COPIED,
    };
    // SAFETY: the vector has a byte for each element, and its memory does not move while the owner holds it.
    Ok(unsafe { Tensor::from_raw_parts(&desc, Owner::new(bytes)) }?)
}

/// The column and, level by level, the values of its fixed-size lists.
fn levels(column: Column<'_>) -> impl Iterator<Item = Column<'_>> {
    std::iter::successors(Some(column), |level| match level.ty() {
        Type::FixedSizeList(_) => level.child(0),
        _ => None,
    })
}

/// The values below all fixed-size lists.
fn innermost(column: Column<'_>) -> Column<'_> {
    levels(column).last().unwrap_or(column)
}

struct Dimensions {
    shape: Vec<i64>,
    /// In elements.
    strides: Vec<i64>,
}

/// The rows, and for each level of fixed-size lists a dimension, or as many as its extension type says.
fn dimensions(column: Column<'_>) -> Result<Dimensions> {
    // From the innermost level outwards, the last dimension first.
    let (mut shape, mut strides) = (Vec::new(), Vec::new());
    let mut inner = 1_i64;
    let lists: Vec<_> = levels(column).collect();
    for list in lists.into_iter().rev() {
        let Type::FixedSizeList(size) = list.ty() else { continue };
        for (extent, stride) in fixed_shape::of_list(list.field(), size.into())?.into_iter().rev() {
            shape.push(extent);
            strides.push(stride.saturating_mul(inner));
        }
        inner = inner.saturating_mul(size.into());
    }
    shape.push(column.length());
    strides.push(inner);
    shape.reverse();
    strides.reverse();
    Ok(Dimensions { shape, strides })
}

// ---- tensor → column ----

/// How a tensor can be had as a column.
pub fn plan_column(tensor: &Tensor) -> Plan {
    let shape = tensor.shape();
    if let Some(extent) = shape.iter().skip(1).find(|&&extent| i32::try_from(extent).is_err()) {
        return impossible(format!("shape {shape:?}: a fixed-size list has at most {} values, not {extent}", i32::MAX));
    }
    plan_values(tensor, tensor.layout().row_major)
}

/// How the elements of a tensor can be had as values of Arrow, if they lie as they have to or not.
pub(super) fn plan_values(tensor: &Tensor, in_order: bool) -> Plan {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    if shape.is_empty() {
        return impossible("a tensor of no dimensions has no rows");
    }
    if dtype != DType::BOOL && Type::format_of(dtype).is_none() {
        return impossible(format!("{dtype} has no type in Arrow"));
    }
    let layout = tensor.layout();
    if dtype == DType::BOOL {
        return Plan::Copy {
            bytes: layout.elements.div_ceil(8),
            reason: "bools are bytes in DLPack and bits in Arrow".into(),
        };
    }
    if !in_order {
        let reason = format!("strides {:?} of shape {shape:?} are not row-major, as Arrow's are", tensor.strides());
        return Plan::Copy { bytes: layout.bytes, reason };
    }
    Plan::View
}

/// The tensor as a column: its first dimension are the rows, the others fixed-size lists. The result is not a record
/// batch but the column itself. A view shares the tensor.
///
/// # Errors
/// As [`Plan::allow`]; `DEVX_INVALID_TEXT` for a name with a NUL in it.
pub fn column(tensor: &Tensor, name: &str, copy: Copying) -> Result<Batch> {
    let must_copy = plan_column(tensor).allow(copy)?;
    let tensor = if must_copy { tensor.copy()? } else { tensor.clone() };
    let (&rows, lists) = tensor.shape().split_first().unwrap_or((&0, &[]));
    let list = |extent: i64| (format!("+w:{extent}"), None);
    over_values(&tensor, name, rows, lists.iter().map(|&extent| (extent, list(extent))).collect())
}

/// A list type: how many values, its format, and the metadata of an extension type.
pub(super) type ListOf = (i64, (String, Option<fixed_shape::Pairs>));

/// A column of lists over the elements of a tensor in the order in which they lie. Bools are copied into bits, others
/// seen in place.
pub(super) fn over_values(tensor: &Tensor, name: &str, rows: i64, lists: Vec<ListOf>) -> Result<Batch> {
    let is_bool = tensor.dtype() == DType::BOOL;
    let format = if is_bool { Some("b") } else { Type::format_of(tensor.dtype()) };
    let Some(format) = format else {
        return refuse!(DEVX_IMPOSSIBLE, "{} has no type in Arrow", tensor.dtype());
    };
    let (data, owner) = if is_bool {
        let bits = bits_of(tensor);
        (bits.as_ptr().cast::<c_void>(), Owner::new(bits))
    } else {
        (tensor.data().cast_const(), Owner::new(tensor.clone()))
    };
    // Number of elements on each level, the innermost last.
    let mut lengths = vec![rows];
    lengths.extend(lists.iter().scan(rows, |length, (extent, _)| {
        *length = length.saturating_mul(*extent);
        Some(*length)
    }));
    let name_of = |depth: usize| if depth == 0 { name } else { "item" };
    let array_of = |depth: usize, format: &str| {
        let length = lengths.get(depth).copied().unwrap_or(0);
        ArrayBuilder::new(name_of(depth), format, length).flags(0).null_count(0).buffer(std::ptr::null())
    };
    let mut array = array_of(lists.len(), format).buffer(data).owner(owner);
    for (depth, (_, (format, pairs))) in lists.into_iter().enumerate().rev() {
        array = array_of(depth, &format).child(array);
        for (key, value) in pairs.into_iter().flatten() {
            array = array.metadata(key, value);
        }
    }
    // SAFETY: the shape says how many values there are, and the owner keeps them alive.
    let mut column = unsafe { array.build(tensor.device()) }?;
    if !is_bool {
        column.set_view(tensor.ready().clone(), Uses::of_tensor(tensor.clone()));
    }
    Ok(column)
}

/// The elements of a compact tensor of bools, packed.
fn bits_of(tensor: &Tensor) -> Vec<u8> {
    let mut bits = vec![0_u8; tensor.layout().elements.div_ceil(8)];
    for i in 0..tensor.layout().elements {
        // SAFETY: a copy is row-major, with a byte for each element.
        let byte = unsafe { entry(tensor.data().cast::<u8>(), i) };
        if let Some(slot) = bits.get_mut(i / 8).filter(|_| byte != 0) {
            *slot |= 1 << (i % 8);
        }
    }
    bits
}
