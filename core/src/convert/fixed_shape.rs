//! The extension type `arrow.fixed_shape_tensor`: a column of tensors of one shape (Arrow columnar format, "Canonical
//! extension types", "Fixed shape tensor").

use std::fmt::Write;

use serde_json::Value;

use super::column::{over_values, plan_values};
use super::{Plan, impossible};
use crate::arrow::schema::{EXTENSION_METADATA, EXTENSION_NAME};
use crate::arrow::{Batch, Field};
use crate::dlpack::Copying;
use crate::error::{Result, refuse};
use crate::layout;
use crate::tensor::Tensor;

const NAME: &[u8] = b"arrow.fixed_shape_tensor";

/// Metadata of a field.
pub(super) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The dimensions of the values of a fixed-size list, in the order in which they are meant: extents, and strides in
/// elements of the list. One dimension if the field is not of this extension type.
///
/// # Errors
/// `DEVX_INVALID_METADATA` with what is wrong about the shape or the permutation.
pub(super) fn of_list(field: Field<'_>, size: i64) -> Result<Vec<(i64, i64)>> {
    let Some((NAME, parameters)) = field.extension() else { return Ok(vec![(size, 1)]) };
    let said = String::from_utf8_lossy(parameters);
    let list = |key: &str| -> Option<Option<Vec<i64>>> {
        match serde_json::from_slice::<Value>(parameters).ok()?.get(key) {
            None | Some(Value::Null) => Some(None),
            Some(value) => Some(Some(value.as_array()?.iter().map(Value::as_i64).collect::<Option<_>>()?)),
        }
    };
    let (Some(Some(shape)), Some(permutation)) = (list("shape"), list("permutation")) else {
        return refuse!(
            DEVX_INVALID_METADATA,
            "fixed_shape_tensor has parameters {said}: there is no shape of numbers"
        );
    };
    let product = shape.iter().try_fold(1_i64, |product, extent| product.checked_mul(*extent).filter(|_| *extent >= 0));
    if product != Some(size) {
        return refuse!(DEVX_INVALID_METADATA, "fixed_shape_tensor has shape {shape:?}, but lists of {size} values");
    }
    let mut strides = vec![0; shape.len()];
    layout::row_major_strides(&shape, &mut strides);
    let physical: Vec<(i64, i64)> = shape.into_iter().zip(strides).collect();
    let Some(permutation) = permutation else { return Ok(physical) };
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..physical.len() as i64) {
        return refuse!(
            DEVX_INVALID_METADATA,
            "fixed_shape_tensor has permutation {permutation:?} of {} dimensions",
            physical.len()
        );
    }
    Ok(permutation.iter().filter_map(|&from| physical.get(from as usize).copied()).collect())
}

/// The inner dimensions of a tensor as they lie in memory: their numbers, the one with the longest stride first. `None` if
/// the elements do not lie compactly in any order, row after row.
fn order_in_memory(tensor: &Tensor) -> Option<Vec<usize>> {
    let (shape, strides) = (tensor.shape(), tensor.strides());
    let mut order: Vec<usize> = (1..shape.len()).collect();
    let of = |list: &[i64], dimension: usize| list.get(dimension).copied().unwrap_or(0);
    order.sort_by_key(|&dimension| std::cmp::Reverse((of(strides, dimension), of(shape, dimension) > 1)));
    let mut expected = 1_i64;
    for &dimension in order.iter().rev().chain(shape.first().map(|_| &0)) {
        let extent = of(shape, dimension);
        if tensor.layout().elements > 0 && extent > 1 && of(strides, dimension) != expected {
            return None;
        }
        expected = expected.checked_mul(extent.max(1))?;
    }
    Some(order)
}

/// How a tensor can be had as a column of type `arrow.fixed_shape_tensor`.
pub fn plan_fixed_shape_column(tensor: &Tensor) -> Plan {
    let shape = tensor.shape();
    let values = shape.iter().skip(1).try_fold(1_i64, |product, extent| product.checked_mul(*extent));
    if values.is_none_or(|values| i32::try_from(values).is_err()) {
        return impossible(format!("shape {shape:?}: a fixed-size list has at most {} values", i32::MAX));
    }
    plan_values(tensor, order_in_memory(tensor).is_some())
}

/// The tensor as a column whose values are tensors: its first dimension are the rows, the others the shape of each value.
/// The result is not a record batch but the column itself. A view shares the tensor; inner dimensions may lie in any order,
/// which the type's permutation then says.
///
/// # Errors
/// As [`Plan::allow`]; `DEVX_INVALID_TEXT` for a name with a NUL in it.
pub fn fixed_shape_column(tensor: &Tensor, name: &str, copy: Copying) -> Result<Batch> {
    let must_copy = plan_fixed_shape_column(tensor).allow(copy)?;
    let tensor = if must_copy { tensor.copy()? } else { tensor.clone() };
    let order = order_in_memory(&tensor).unwrap_or_default();
    let rows = tensor.shape().first().copied().unwrap_or(0);
    let physical: Vec<i64> = order.iter().filter_map(|&dimension| tensor.shape().get(dimension).copied()).collect();
    let mut parameters = format!("{{\"shape\":{physical:?}");
    if !order.is_sorted() {
        // For each dimension as it is meant, which one it is in memory.
        let of = |dimension| order.iter().position(|&in_memory| in_memory == dimension).unwrap_or(0);
        let permutation: Vec<usize> = (1..=order.len()).map(of).collect();
        let _ = write!(parameters, ",\"permutation\":{permutation:?}");
    }
    parameters.push('}');
    let size = physical.iter().product();
    let pairs = vec![(EXTENSION_NAME.to_vec(), NAME.to_vec()), (EXTENSION_METADATA.to_vec(), parameters.into_bytes())];
    over_values(&tensor, name, rows, vec![(size, (format!("+w:{size}"), Some(pairs)))])
}
