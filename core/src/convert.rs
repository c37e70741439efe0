//! A tensor as a column and a column as a tensor: what can be seen without a copy, what needs one, what cannot be.
//! The plan can be asked for before anything is taken.

use core::ffi::c_void;
use std::ffi::{CStr, CString};
use std::fmt;

use crate::abi::types::{DEVX_PLAN_COPY, DEVX_PLAN_IMPOSSIBLE, DEVX_PLAN_REASON_BYTES, DEVX_PLAN_VIEW, DevxPlan};
use crate::arrow::batch::NodeDesc;
use crate::arrow::schema::FieldDesc;
use crate::arrow::{Batch, Column, Schema, Type};
use crate::dlpack::Copying;
use crate::dtype::DType;
use crate::error::{Error, Result, refuse};
use crate::layout::MAX_NDIM;
use crate::memory::{Owner, entry};
use crate::order::Uses;
use crate::tensor::{Flags, Tensor, TensorDesc};
use crate::text;

/// How a conversion can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The same memory, seen differently.
    View,
    /// Only with a copy.
    Copy {
        /// Bytes that the copy writes.
        bytes: usize,
        /// Why a view is not possible.
        reason: String,
    },
    /// Not at all.
    Impossible {
        /// Why.
        reason: String,
    },
}

impl Plan {
    /// Whether the conversion may go on under this policy, and whether it has to copy.
    ///
    /// # Errors
    /// `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE`, with the reason.
    pub fn allow(self, policy: Copying) -> Result<bool> {
        match (self, policy) {
            (Self::Impossible { reason }, _) => Err(Error::new(crate::abi::types::DEVX_IMPOSSIBLE, reason)),
            (Self::Copy { bytes, reason }, Copying::Never) => {
                refuse!(DEVX_COPY_REQUIRED, "{reason}: a copy of {bytes} bytes is needed, which was not allowed")
            }
            (Self::View, Copying::Never | Copying::IfNeeded) => Ok(false),
            _ => Ok(true),
        }
    }
}

impl Plan {
    /// As the C record.
    pub fn to_raw(&self) -> DevxPlan {
        let (kind, copy_bytes, why) = match self {
            Self::View => (DEVX_PLAN_VIEW, 0, ""),
            Self::Copy { bytes, reason } => (DEVX_PLAN_COPY, *bytes as i64, reason.as_str()),
            Self::Impossible { reason } => (DEVX_PLAN_IMPOSSIBLE, 0, reason.as_str()),
        };
        let mut reason = [0; DEVX_PLAN_REASON_BYTES];
        text::fill(why, &mut reason);
        DevxPlan { kind, reserved: 0, copy_bytes, reason }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::View => f.write_str("view"),
            Self::Copy { bytes, reason } => write!(f, "copy of {bytes} bytes: {reason}"),
            Self::Impossible { reason } => write!(f, "impossible: {reason}"),
        }
    }
}

fn impossible(reason: impl Into<String>) -> Plan {
    Plan::Impossible { reason: reason.into() }
}

// ---- column → tensor ----

/// How a column can be had as a tensor. Reads the validity buffer if the number of nulls is not known.
///
/// # Errors
/// `DEVX_DEVICE` if nulls would have to be counted in device memory.
pub fn plan_tensor(column: Column<'_>) -> Result<Plan> {
    let (values, _) = innermost(column);
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
    } else if values.ty() == Type::Bool {
        Plan::Copy { bytes: values.length() as usize, reason: "bools are bits in Arrow and bytes in DLPack".into() }
    } else if values.ty().dtype().is_none() {
        impossible(format!("{} has no element type in DLPack", values.ty()))
    } else {
        Plan::View
    })
}

/// The column as a tensor: one dimension, and one more for each level of fixed-size lists. A view keeps the batch
/// alive and is read-only, as Arrow data is not to be changed.
///
/// # Errors
/// As [`Plan::allow`]; `DEVX_DEVICE` if data would have to be read in device memory.
pub fn tensor(column: Column<'_>, copy: Copying) -> Result<Tensor> {
    let must_copy = plan_tensor(column)?.allow(copy)?;
    let (values, shape) = innermost(column);
    if values.ty() == Type::Bool {
        let bytes: Result<Vec<u8>> = (0..values.length()).map(|row| values.bool(row).map(u8::from)).collect();
        return of_bytes(bytes?, DType::BOOL, &shape);
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
        strides: None,
        byte_offset: values.offset() as u64 * width as u64,
        flags: Flags::READ_ONLY,
    };
    // SAFETY: the batch describes the memory and, kept alive by the owner, the memory too.
    let mut view = unsafe { Tensor::from_raw_parts(&desc, column.batch().clone().into_owner()) }?;
    view.set_view(column.batch().ready().clone(), Uses::OfBatch(column.batch().clone()));
    if must_copy { view.copy() } else { Ok(view) }
}

fn of_bytes(bytes: Vec<u8>, dtype: DType, shape: &[i64]) -> Result<Tensor> {
    let desc = TensorDesc {
        data: bytes.as_ptr().cast_mut().cast(),
        device: crate::device::Device::CPU,
        dtype,
        shape,
        strides: None,
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

/// The values below all fixed-size lists, and the shape that they have.
fn innermost(column: Column<'_>) -> (Column<'_>, Vec<i64>) {
    let mut shape = vec![column.length()];
    let mut values = column;
    for level in levels(column) {
        values = level;
        if let Type::FixedSizeList(size) = level.ty() {
            shape.push(size.into());
        }
    }
    (values, shape)
}

// ---- tensor → column ----

/// How a tensor can be had as a column.
pub fn plan_column(tensor: &Tensor) -> Plan {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    let is_bool = dtype == DType::BOOL;
    if shape.is_empty() {
        return impossible("a tensor of no dimensions has no rows");
    }
    if let Some(extent) = shape.iter().skip(1).find(|&&extent| i32::try_from(extent).is_err()) {
        return impossible(format!("shape {shape:?}: a fixed-size list has at most {} values, not {extent}", i32::MAX));
    }
    if !is_bool && Type::format_of(dtype).is_none() {
        return impossible(format!("{dtype} has no type in Arrow"));
    }
    let layout = tensor.layout();
    if is_bool {
        return Plan::Copy {
            bytes: layout.elements.div_ceil(8),
            reason: "bools are bytes in DLPack and bits in Arrow".into(),
        };
    }
    if !layout.row_major {
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
    let Ok(name) = CString::new(name) else {
        return refuse!(DEVX_INVALID_TEXT, "name {name:?} has a NUL byte in it");
    };
    let tensor = if must_copy { tensor.copy()? } else { tensor.clone() };
    if tensor.dtype() == DType::BOOL {
        return with_bits(&tensor, &name);
    }
    let Some(format) = Type::format_of(tensor.dtype()) else {
        return refuse!(DEVX_IMPOSSIBLE, "{} has no type in Arrow", tensor.dtype());
    };
    let format = CString::new(format).unwrap_or_default();
    let data = tensor.data().cast_const();
    let mut column = assemble(
        &tensor,
        &name,
        &format,
        data,
        Owner::on_release({
            let keep = tensor.clone();
            move || drop(keep)
        }),
    )?;
    column.set_view(tensor.ready().clone(), Uses::OfTensor(tensor));
    Ok(column)
}

fn with_bits(tensor: &Tensor, name: &CStr) -> Result<Batch> {
    let mut bits = vec![0_u8; tensor.layout().elements.div_ceil(8)];
    for i in 0..tensor.layout().elements {
        // SAFETY: a copy is row-major, with a byte for each element.
        let byte = unsafe { entry(tensor.data().cast::<u8>(), i) };
        if let Some(slot) = bits.get_mut(i / 8).filter(|_| byte != 0) {
            *slot |= 1 << (i % 8);
        }
    }
    let data = bits.as_ptr().cast::<c_void>();
    assemble(tensor, name, c"b", data, Owner::new(bits))
}

/// A column over row-major values.
fn assemble(tensor: &Tensor, name: &CStr, format: &CStr, data: *const c_void, owner: Owner) -> Result<Batch> {
    let shape = tensor.shape();
    let mut lists = Vec::with_capacity(MAX_NDIM);
    for extent in shape.iter().skip(1) {
        lists.push(CString::new(format!("+w:{extent}")).unwrap_or_default());
    }
    let mut fields = Vec::with_capacity(shape.len());
    let mut nodes = Vec::with_capacity(shape.len());
    let (validity, values) = ([std::ptr::null()], [std::ptr::null(), data]);
    let mut length = shape.first().copied().unwrap_or(0);
    for (depth, list) in lists.iter().enumerate() {
        let name = if depth == 0 { name } else { c"item" };
        fields.push(FieldDesc { flags: 0, n_children: 1, ..FieldDesc::new(name, list) });
        nodes.push(NodeDesc { length, null_count: 0, offset: 0, buffers: &validity });
        length = length.saturating_mul(shape.get(depth + 1).copied().unwrap_or(0));
    }
    let name = if lists.is_empty() { name } else { c"item" };
    fields.push(FieldDesc { flags: 0, ..FieldDesc::new(name, format) });
    nodes.push(NodeDesc { length, null_count: 0, offset: 0, buffers: &values });
    let schema = Schema::new(&fields)?;
    // SAFETY: the shape says how many values there are, and the owner keeps them alive.
    Ok(unsafe { Batch::from_raw_parts(&schema, tensor.device(), &nodes, owner) }?)
}
