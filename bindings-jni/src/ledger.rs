//! The counts of what is not released yet.

use devexchange_core::abi::types::DevxLedger;
use devexchange_core::ledger;
use jni::sys::jlong;

use crate::error::Result;
use crate::handle::take;
use crate::native::plain;

plain! { ledger_read(out: jlong) }
fn ledger_read(out: jlong) -> Result<()> {
    // SAFETY: Java gives the address of room for the record.
    unsafe { take::<DevxLedger>(out).write(ledger::read()) };
    Ok(())
}

plain! { ledger_outstanding() -> jlong }
fn ledger_outstanding() -> Result<jlong> {
    Ok(ledger::outstanding())
}
