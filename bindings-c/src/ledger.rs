//! `devx_ledger_*`: how much is not released yet.

use devexchange_core::ledger;
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{ErrorRecord, LedgerRecord, Status};
use crate::error::{guard, required};

/// Reads the ledger: how much this library has handed out and taken in, and how much of that is not released yet. See
/// `devx_ledger_outstanding` for what counts.
#[ffi_export]
fn devx_ledger_read(out: Option<Out<'_, LedgerRecord>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        required(out, "out")?.write(LedgerRecord(ledger::read()));
        Ok(())
    })
}

/// Returns how many releases of all kinds (`devx_ledger`) are still to come; 0 when nothing is outstanding.
///
/// Counted are structs, streams and offers that consumers hold, those taken from producers, owners, also those in a
/// `devx_batch_source` and a `devx_manager_table`, and memory that the library allocated. Handles themselves are not: not a
/// second one of the same thing (`_share`), a schema that was not imported, a tensor or batch without an owner, a manager of
/// the library, an asynchronous reader whose handler nobody has, or a server or client (`devx_ipc_…`).
///
/// In a child of a fork the counts go on from those of its parent, and what the child has to leave to its parent stays counted.
#[ffi_export]
fn devx_ledger_outstanding() -> i64 {
    ledger::outstanding()
}
