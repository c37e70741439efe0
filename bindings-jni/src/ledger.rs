//! What is not released yet.

use devexchange_core::abi::types::DevxLedger;
use devexchange_core::ledger;
use jni::Env;
use jni::objects::JClass;
use jni::sys::jlong;

use crate::error::{Result, native};
use crate::handle::take;

native! { ledger_read(out: jlong) }
fn ledger_read<'l>(_: &mut Env<'l>, _: JClass<'l>, out: jlong) -> Result<()> {
    // SAFETY: Java gives the address of room for the record.
    unsafe { take::<DevxLedger>(out).write(ledger::read()) };
    Ok(())
}

native! { ledger_outstanding() -> jlong }
fn ledger_outstanding<'l>(_: &mut Env<'l>, _: JClass<'l>) -> Result<jlong> {
    Ok(ledger::outstanding())
}
