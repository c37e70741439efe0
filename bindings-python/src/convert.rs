//! Tensors as columns, columns as tensors: the plan first, then the thing.

use devexchange_core::convert::{self, Plan};
use devexchange_core::dlpack::Copying;
use devexchange_core::{Column, Tensor as CoreTensor};
use pyo3::prelude::*;

use crate::batch::RecordBatch;
use crate::error::Result;
use crate::python::Class;
use crate::tensor::Tensor;

static PLAN: Class = Class::new("devexchange._types", "Plan");

/// True for always, False for never, None for where it is needed.
fn copying(copy: Option<bool>) -> Copying {
    match copy {
        Some(true) => Copying::Always,
        Some(false) => Copying::Never,
        None => Copying::IfNeeded,
    }
}

fn plan(py: Python<'_>, plan: Plan) -> Result<Bound<'_, PyAny>> {
    Ok(match plan {
        Plan::View => PLAN.make(py, ("view", 0, ""))?,
        Plan::Copy { bytes, reason } => PLAN.make(py, ("copy", bytes, reason))?,
        Plan::Impossible { reason } => PLAN.make(py, ("impossible", 0, reason))?,
    })
}

pub(crate) fn plan_column<'py>(py: Python<'py>, tensor: &CoreTensor) -> Result<Bound<'py, PyAny>> {
    plan(py, convert::plan_column(tensor))
}

pub(crate) fn column(tensor: &CoreTensor, name: &str, copy: Option<bool>) -> Result<RecordBatch> {
    Ok(RecordBatch::new(convert::column(tensor, name, copying(copy))?))
}

pub(crate) fn plan_tensor<'py>(py: Python<'py>, column: Column<'_>) -> Result<Bound<'py, PyAny>> {
    plan(py, convert::plan_tensor(column)?)
}

pub(crate) fn tensor(column: Column<'_>, copy: Option<bool>) -> Result<Tensor> {
    Ok(Tensor::new(convert::tensor(column, copying(copy))?))
}
