//! The ledger: what has not been released yet.

use devexchange_core::ledger as core_ledger;
use devexchange_core::runtime;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::class::Class;
use crate::python::error::Result;

static COUNT: Class = Class::new("devexchange._types", "Count");

/// Returns a `Count` for each kind of thing: how many were handed out or taken in so far, and how many are not released yet.
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

/// Returns how many releases of all kinds are still to come: 0 when nothing is outstanding.
///
/// Counted are structs, streams and offers that consumers hold, those taken from producers, releases of Python objects whose
/// memory is used, and memory that the library allocated. Objects are not counted by themselves: not a second one of the same
/// thing, a schema that was not imported, a manager of the library, an asynchronous reader whose handler nobody has, or a
/// server or client.
#[pyfunction]
pub(crate) fn outstanding() -> i64 {
    core_ledger::outstanding()
}

/// Returns how many releases wait for work that is queued on a device (`used_on`).
#[pyfunction]
pub(crate) fn releases_waiting() -> i64 {
    runtime::releases_waiting()
}

/// Returns how many releases were lost.
///
/// These are releases that were never called, because the driver could not say whether the work that used the memory was
/// done, and allocations, events and streams that the driver did not take back.
#[pyfunction]
pub(crate) fn releases_lost() -> i64 {
    runtime::releases_lost()
}
