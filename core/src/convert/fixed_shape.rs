//! The extension type `arrow.fixed_shape_tensor`: a column of tensors of one shape (Arrow columnar format, "Canonical
//! extension types", "Fixed shape tensor").

use std::fmt;

use serde_json::Value;

use super::column::{ListOf, over_values, plan_values};
use super::{Plan, impossible};
use crate::arrow::builder::c_formatted;
use crate::arrow::metadata;
use crate::arrow::schema::{EXTENSION_METADATA, EXTENSION_NAME};
use crate::arrow::{Batch, Field};
use crate::dlpack::Copying;
use crate::error::{Result, refuse};
use crate::layout::{self, MAX_NDIM};
use crate::memory::{collected, repeated};
use crate::tensor::Tensor;
use crate::text::Lossy;

const NAME: &[u8] = b"arrow.fixed_shape_tensor";

/// The most bytes of parameters that are read. Parsed JSON takes many times the memory of its text, and a tensor has few
/// dimensions.
const MAX_PARAMETERS: usize = 1 << 16;

/// The dimensions of the values of a fixed-size list, in their logical order: extents, and strides in elements of the
/// list. There is one dimension if the field is not of this extension type.
///
/// # Errors
/// `DEVX_INVALID_METADATA`, with what is wrong with the shape or the permutation, or if there is more than a tensor needs.
pub(super) fn of_list(field: Field<'_>, size: i64) -> Result<Vec<(i64, i64)>> {
    let Some((NAME, parameters)) = field.extension() else { return repeated((size, 1), 1) };
    if parameters.len() > MAX_PARAMETERS {
        return refuse!(
            DEVX_INVALID_METADATA,
            "fixed_shape_tensor has {} bytes of parameters: more than {MAX_PARAMETERS}",
            parameters.len()
        );
    }
    let said = Lossy(parameters);
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
    let mut strides = repeated(0, shape.len())?;
    layout::row_major_strides(&shape, &mut strides);
    let physical = collected(shape.into_iter().zip(strides).map(Ok))?;
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
    collected(permutation.iter().filter_map(|&from| physical.get(from as usize).copied()).map(Ok))
}

/// The numbers of a tensor's inner dimensions in the order in which they lie in memory, the one with the longest stride
/// first; only as many entries count as there are inner dimensions. `None` if the elements do not lie compactly in any
/// order, row after row.
fn order_in_memory(tensor: &Tensor) -> Option<[usize; MAX_NDIM]> {
    let (shape, strides) = (tensor.shape(), tensor.strides());
    let mut all = [0; MAX_NDIM];
    let order = all.get_mut(..shape.len().saturating_sub(1))?;
    order.iter_mut().zip(1..).for_each(|(place, dimension)| *place = dimension);
    let of = |list: &[i64], dimension: usize| list.get(dimension).copied().unwrap_or(0);
    // The stride of a dimension of extent 1 means nothing. In a tensor without elements, no stride does, and the
    // product of its extents may overflow.
    if tensor.layout().row_major {
        return Some(all);
    }
    order.sort_by_key(|&dimension| std::cmp::Reverse(of(strides, dimension)));
    let mut expected = 1_i64;
    for &dimension in order.iter().rev().chain(shape.first().map(|_| &0)) {
        let extent = of(shape, dimension);
        if extent > 1 && of(strides, dimension) != expected {
            return None;
        }
        expected *= extent;
    }
    Some(all)
}

/// How a tensor can become a column of type `arrow.fixed_shape_tensor`.
pub fn plan_fixed_shape_column(tensor: &Tensor) -> Plan {
    let shape = tensor.shape();
    let values = shape.iter().skip(1).try_fold(1_i64, |product, extent| product.checked_mul(*extent));
    if values.is_none_or(|values| i32::try_from(values).is_err()) {
        return impossible(format_args!("shape {shape:?}: a fixed-size list has at most {} values", i32::MAX));
    }
    plan_values(tensor, order_in_memory(tensor).is_some())
}

/// The tensor as a column whose values are tensors: the first dimension becomes the rows, the others become the shape
/// of each value.
///
/// The result is not a record batch but the column itself. A view shares the tensor. Its inner dimensions may lie in
/// memory in any order, which the permutation of the type then says.
///
/// # Errors
/// Same as [`Plan::allow`]; `DEVX_INVALID_TEXT` for a name with a NUL in it; for a copy `DEVX_DEVICE` or `DEVX_NOT_READY` if
/// the host cannot read the data.
pub fn fixed_shape_column(tensor: &Tensor, name: &str, copy: Copying) -> Result<Batch> {
    let must_copy = plan_fixed_shape_column(tensor).allow(copy)?;
    let tensor = if must_copy { tensor.copy()? } else { tensor.clone() };
    let order = order_in_memory(&tensor).unwrap_or([0; MAX_NDIM]);
    let (&rows, inner) = tensor.shape().split_first().unwrap_or((&0, &[]));
    let order = order.get(..inner.len()).unwrap_or_default();
    let extents = order.iter().filter_map(|&dimension| tensor.shape().get(dimension).copied());
    let physical = fmt::from_fn(|f| f.debug_list().entries(extents.clone()).finish());
    // For each logical dimension, its number in memory.
    let of = |dimension| order.iter().position(|&in_memory| in_memory == dimension).unwrap_or(0);
    let permutation = fmt::from_fn(|f| match order.is_sorted() {
        true => Ok(()),
        false => write!(
            f,
            ",\"permutation\":{:?}",
            fmt::from_fn(|f| f.debug_list().entries((1..=order.len()).map(of)).finish())
        ),
    });
    let parameters = c_formatted(format_args!("{{\"shape\":{physical:?}{permutation}}}"))?;
    let pairs = [(EXTENSION_NAME, NAME), (EXTENSION_METADATA, parameters.to_bytes())];
    // Known not to overflow in this order.
    let extent = inner.iter().product();
    let list = ListOf { extent, metadata: Some(metadata::encode(&pairs)?) };
    over_values(&tensor, name, rows, &[list])
}
