//! What is not released yet.

use devexchange_core::ledger as core_ledger;
use devexchange_core::runtime;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::class::Class;
use crate::python::error::Result;

static COUNT: Class = Class::new("devexchange._types", "Count");

/// What was handed out and taken in until now, and how much of it is not released yet: a `Count` for each kind.
#[pyfunction]
pub(crate) fn ledger(py: Python<'_>) -> Result<Bound<'_, PyDict>> {
    let read = core_ledger::read();
    let counts = PyDict::new(py);
    for (kind, count) in [
        ("tensor_exports", read.tensor_exports),
        ("tensor_imports", read.tensor_imports),
        ("batch_exports", read.batch_exports),
        ("batch_imports", read.batch_imports),
        ("schema_exports", read.schema_exports),
        ("schema_imports", read.schema_imports),
        ("stream_exports", read.stream_exports),
        ("stream_imports", read.stream_imports),
        ("owners", read.owners),
    ] {
        counts.set_item(kind, COUNT.make(py, (count.total, count.live))?)?;
    }
    Ok(counts)
}

/// How many things are not released yet, over all kinds: 0 when nothing is outstanding.
#[pyfunction]
pub(crate) fn outstanding() -> i64 {
    core_ledger::outstanding()
}

/// How many releases wait for work that is queued on a device (`used_on`).
#[pyfunction]
pub(crate) fn releases_waiting() -> i64 {
    runtime::releases_waiting()
}

/// How many releases were never called, because the driver could not say whether the work that used the memory is done; and
/// how much memory, and how many events and streams, the driver did not take back.
#[pyfunction]
pub(crate) fn releases_lost() -> i64 {
    runtime::releases_lost()
}
