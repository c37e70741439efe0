//! Tensors as columns and batches, and back: for each conversion, first its plan and then the conversion itself.

use devexchange_core::arrow::MAX_NODES;
use devexchange_core::convert::{self, Plan};
use devexchange_core::dlpack::Copying;
use devexchange_core::{Batch, Column, RawStream, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PySequence, PyString};

use crate::copy;
use crate::order::raw_stream;
use crate::python::argument;
use crate::python::class::Class;
use crate::python::error::{Result, refuse, wrong_type};

static PLAN: Class = Class::new("devexchange._types", "Plan");

/// Translates `copy`: True means always, False never, None only if needed.
pub(crate) fn copying(copy: Option<bool>) -> Copying {
    match copy {
        Some(true) => Copying::Always,
        Some(false) => Copying::Never,
        None => Copying::IfNeeded,
    }
}

pub(crate) fn plan(py: Python<'_>, plan: Plan) -> Result<Bound<'_, PyAny>> {
    Ok(match plan {
        Plan::View => PLAN.make(py, ("view", 0, ""))?,
        Plan::Copy { bytes, reason } => PLAN.make(py, ("copy", bytes, reason))?,
        Plan::Impossible { reason } => PLAN.make(py, ("impossible", 0, reason))?,
        other => return refuse!(DEVX_UNSUPPORTED, "the plan is {other}: Python has no name for it"),
    })
}

pub(crate) fn plan_column<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>> {
    plan(py, convert::plan_column(tensor))
}

pub(crate) fn column(py: Python<'_>, tensor: &Tensor, name: &str, copy: Option<bool>) -> Result<Batch> {
    Ok(py.detach(|| convert::column(tensor, name, copying(copy)))?)
}

pub(crate) fn plan_tensor<'py>(py: Python<'py>, column: Column<'_>) -> Result<Bound<'py, PyAny>> {
    plan(py, convert::plan_tensor(column)?)
}

pub(crate) fn tensor(py: Python<'_>, column: Column<'_>, copy: Option<bool>) -> Result<Tensor> {
    Ok(py.detach(|| convert::tensor(column, copying(copy)))?)
}

pub(crate) fn plan_matrix<'py>(py: Python<'py>, batch: &Batch) -> Result<Bound<'py, PyAny>> {
    plan(py, convert::plan_matrix(batch)?)
}

pub(crate) fn matrix(py: Python<'_>, batch: &Batch, copy: Option<bool>, stream: Option<RawStream>) -> Result<Tensor> {
    let value = raw_stream::of_copy(stream);
    let _hold = raw_stream::hold(value)?;
    let matrix = py.detach(|| {
        let is_without = copy::is_without_stream(batch.device(), batch.device(), stream);
        let stream = (!is_without).then(|| batch.stream(value)).transpose()?;
        convert::matrix(batch, copying(copy), stream)
    });
    Ok(matrix?)
}

pub(crate) fn plan_batch<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>> {
    plan(py, convert::plan_batch(tensor))
}

pub(crate) fn batch(
    py: Python<'_>,
    tensor: &Tensor,
    names: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> Result<Batch> {
    let names = match (names, tensor.shape()) {
        (Some(names), &[_, columns]) => names_of(names, columns)?,
        // The conversion refuses a tensor that is not a matrix.
        _ => Vec::new(),
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(py.detach(|| convert::batch(tensor, &names, copying(copy)))?)
}

/// Reads the names for a number of columns.
fn names_of(names: &Bound<'_, PyAny>, columns: i64) -> Result<Vec<String>> {
    let Some(sequence) = names.cast::<PySequence>().ok().filter(|_| !names.is_instance_of::<PyString>()) else {
        return wrong_type!("names is {names:?}: a sequence of str was expected");
    };
    // No batch has more columns.
    let most = usize::try_from(columns).unwrap_or(0).min(MAX_NODES);
    match argument::entries(sequence, most, |name| Ok(argument::text(&name, "names has")?.to_owned()))? {
        Some(names) => Ok(names),
        None => refuse!(DEVX_MISMATCH, "there are more than {most} names for {columns} columns"),
    }
}

pub(crate) fn plan_fixed_shape_column<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>> {
    plan(py, convert::plan_fixed_shape_column(tensor))
}

pub(crate) fn fixed_shape_column(py: Python<'_>, tensor: &Tensor, name: &str, copy: Option<bool>) -> Result<Batch> {
    Ok(py.detach(|| convert::fixed_shape_column(tensor, name, copying(copy)))?)
}
