//! Conversions of tensors to columns.

use core::ffi::c_void;

use super::{Plan, impossible, in_words};
use crate::arrow::batch::NodeDesc;
use crate::arrow::bitmap;
use crate::arrow::builder::{c_formatted, terminated};
use crate::arrow::schema::{FieldDesc, Schema};
use crate::arrow::{Batch, Type};
use crate::dlpack::Copying;
use crate::dtype::DType;
use crate::error::{Result, refuse};
use crate::memory::{Owner, collected, repeated, vector};
use crate::tensor::Tensor;
use crate::view::View;

/// How a tensor can become a column.
pub fn plan_column(tensor: &Tensor) -> Plan {
    let shape = tensor.shape();
    if let Some(extent) = shape.iter().skip(1).find(|&&extent| i32::try_from(extent).is_err()) {
        return impossible(format_args!(
            "shape {shape:?}: a fixed-size list has at most {} values, not {extent}",
            i32::MAX
        ));
    }
    // Possible only for a tensor without elements, whose extents can be anything.
    if shape.iter().try_fold(1_i64, |lists, extent| lists.checked_mul(*extent)).is_none() {
        return impossible(format_args!("shape {shape:?}: there are more lists than an int64 can count"));
    }
    plan_values(tensor, tensor.layout().row_major)
}

/// How the elements of a tensor can become values of Arrow. `in_order` says whether they lie in memory as they have to.
pub(super) fn plan_values(tensor: &Tensor, in_order: bool) -> Plan {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    if shape.is_empty() {
        return impossible(format_args!("a tensor of no dimensions has no rows"));
    }
    if dtype != DType::BOOL && Type::format_of(dtype).is_none() {
        return impossible(format_args!("{dtype} has no type in Arrow"));
    }
    let layout = tensor.layout();
    let plan = if dtype == DType::BOOL {
        Plan::Copy { bytes: layout.elements.div_ceil(8), reason: "bools are bytes in DLPack and bits in Arrow".into() }
    } else if !in_order {
        let reason = in_words(format_args!(
            "strides {:?} of shape {shape:?} are not row-major, as Arrow's are",
            tensor.strides()
        ));
        Plan::Copy { bytes: layout.bytes, reason }
    } else {
        Plan::View
    };
    plan.by_the_host(tensor.device())
}

/// The tensor as a column: the first dimension becomes the rows, the others become fixed-size lists.
///
/// The result is not a record batch but the column itself. A view shares the tensor.
///
/// # Errors
/// Same as [`Plan::allow`]; `DEVX_INVALID_TEXT` for a name with a NUL in it; for a copy `DEVX_DEVICE` or `DEVX_NOT_READY` if
/// the host cannot read the data.
pub fn column(tensor: &Tensor, name: &str, copy: Copying) -> Result<Batch> {
    let must_copy = plan_column(tensor).allow(copy)?;
    let tensor = if must_copy { tensor.copy()? } else { tensor.clone() };
    let (&rows, lists) = tensor.shape().split_first().unwrap_or((&0, &[]));
    let lists = collected(lists.iter().map(|&extent| Ok(ListOf { extent, metadata: None })))?;
    over_values(&tensor, name, rows, &lists)
}

/// A list type: the number of values, and the metadata of an extension type.
pub(super) struct ListOf {
    pub(super) extent: i64,
    pub(super) metadata: Option<Vec<u8>>,
}

/// A column of lists over the elements of a tensor in the order in which they lie in memory. Bools are copied into
/// bits; other elements are seen in place.
pub(super) fn over_values(tensor: &Tensor, name: &str, rows: i64, lists: &[ListOf]) -> Result<Batch> {
    let is_bool = tensor.dtype() == DType::BOOL;
    let format = if is_bool { Some("b") } else { Type::format_of(tensor.dtype()) };
    let Some(format) = format else {
        return refuse!(DEVX_IMPOSSIBLE, "{} has no type in Arrow", tensor.dtype());
    };
    let view = (!is_bool).then(|| View::of_tensor(tensor));
    let (data, owner) = if let Some(view) = &view {
        (tensor.data().cast_const(), view.owner())
    } else {
        let bits = bits_of(tensor)?;
        (bits.as_ptr().cast::<c_void>(), Owner::try_new(bits)?)
    };
    let name = terminated("name", name)?;
    let formats = collected(lists.iter().map(|list| c_formatted(format_args!("+w:{}", list.extent))))?;
    let values = terminated("format", format)?;
    let (mut fields, mut nodes) = (vector(lists.len() + 1)?, vector(lists.len() + 1)?);
    let (validity, buffers) = ([std::ptr::null()], [std::ptr::null(), data]);
    let mut length = rows;
    for (depth, format) in formats.iter().chain([&values]).enumerate() {
        let name = if depth == 0 { name.as_c_str() } else { c"item" };
        let list = lists.get(depth);
        let metadata = list.and_then(|list| list.metadata.as_deref());
        fields.push(FieldDesc {
            flags: 0,
            metadata,
            n_children: list.is_some().into(),
            ..FieldDesc::new(name, format)
        });
        let buffers: &[_] = if list.is_some() { &validity } else { &buffers };
        nodes.push(NodeDesc { length, null_count: 0, offset: 0, buffers });
        length = length.saturating_mul(list.map_or(1, |list| list.extent));
    }
    let schema = Schema::new(&fields)?;
    // SAFETY: the shape says how many values there are, and the owner keeps them alive.
    let mut column = unsafe { Batch::from_raw_parts(&schema, tensor.device(), &nodes, owner) }?;
    if let Some(view) = view {
        column.set_view(view)?;
    }
    Ok(column)
}

/// The elements of a compact tensor of bools, packed into bits.
fn bits_of(tensor: &Tensor) -> Result<Vec<u8>> {
    let mut bits = repeated(0_u8, tensor.layout().elements.div_ceil(8))?;
    bitmap::pack(tensor.as_bytes()?, &mut bits);
    Ok(bits)
}
