//! `devx_ledger_*`: how much is not released yet.

use devexchange_core::ledger;
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{ErrorRecord, LedgerRecord, Status};
use crate::error::{guard, required};

/// Reads the ledger: how much this library has handed out and taken in, and how much of that is not released yet.
#[ffi_export]
fn devx_ledger_read(out: Option<Out<'_, LedgerRecord>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        required(out, "out")?.write(LedgerRecord(ledger::read()));
        Ok(())
    })
}

/// Returns how many objects of all kinds are not released yet; 0 when nothing is outstanding.
#[ffi_export]
fn devx_ledger_outstanding() -> i64 {
    ledger::outstanding()
}
