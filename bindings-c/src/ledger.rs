//! `devx_ledger_*`: what is not released yet.

use devexchange_core::ledger;
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{ErrorRecord, LedgerRecord, Status};
use crate::error::{guard, required};

/// Reads the ledger: what this library handed out and took in, and how much of it is not released yet.
#[ffi_export]
fn devx_ledger_read(out: Option<Out<'_, LedgerRecord>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        required(out, "out")?.write(LedgerRecord(ledger::read()));
        Ok(())
    })
}

/// How many things are not released yet, over all kinds; 0 when nothing is outstanding.
#[ffi_export]
fn devx_ledger_outstanding() -> i64 {
    ledger::outstanding()
}
