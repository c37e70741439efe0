//! All questions, by theme.

use crate::probe::Probe;

mod capture;
mod context;
mod device;
mod free;
mod handles;
mod host_function;
mod order;
mod pointer;
mod process;
mod size;
mod transfer;

/// Every question, in the order of the table.
pub(crate) fn all() -> impl Iterator<Item = &'static Probe> {
    [
        device::PROBES,
        context::PROBES,
        size::PROBES,
        pointer::PROBES,
        free::PROBES,
        handles::PROBES,
        order::PROBES,
        transfer::PROBES,
        host_function::PROBES,
        capture::PROBES,
        process::PROBES,
    ]
    .into_iter()
    .flatten()
}

/// Plays the part of the other process in a question about two.
pub(crate) fn play(role: &str) {
    match role {
        "export" => pointer::export(),
        other => panic!("no role {other}"),
    }
}
