//! Tensors as columns, columns as tensors: the plan first, then the thing.

use devexchange_core::abi::types::DevxPlan;
use devexchange_core::convert::{self, Plan};
use devexchange_core::dlpack::Copying;
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::{jint, jlong};

use crate::column::view;
use crate::error::{Result, native};
use crate::handle::{batch, give, take, tensor};

native! { column_plan_tensor(batch: jlong, column: jlong, out: jlong) }
/// How a column can be had as a tensor. Nothing is taken.
fn column_plan_tensor<'l>(_: &mut Env<'l>, _: JClass<'l>, handle: jlong, column: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    let plan = convert::plan_tensor(unsafe { view(&batch, column) }?)?;
    // SAFETY: Java gives the address of room for the plan.
    unsafe { write(out, &plan) };
    Ok(())
}

native! { column_to_tensor(batch: jlong, column: jlong, copy: jint) -> jlong }
/// The column as a tensor.
fn column_to_tensor<'l>(_: &mut Env<'l>, _: JClass<'l>, handle: jlong, column: jlong, copy: jint) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    let column = unsafe { view(&batch, column) }?;
    Ok(give(convert::tensor(column, Copying::from_raw(copy)?)?.into_raw()))
}

native! { tensor_plan_column(tensor: jlong, out: jlong) }
/// How a tensor can be had as a column. Nothing is taken.
fn tensor_plan_column<'l>(_: &mut Env<'l>, _: JClass<'l>, handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    // SAFETY: Java gives the address of room for the plan.
    unsafe { write(out, &convert::plan_column(&tensor)) };
    Ok(())
}

native! { tensor_to_column(tensor: jlong, name: JString, copy: jint) -> jlong }
/// The tensor as a column: a batch whose root it is.
fn tensor_to_column<'l>(
    env: &mut Env<'l>,
    _: JClass<'l>,
    handle: jlong,
    name: JString<'l>,
    copy: jint,
) -> Result<jlong> {
    let name = name.try_to_string(env)?;
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    Ok(give(convert::column(&tensor, &name, Copying::from_raw(copy)?)?.into_raw()))
}

/// # Safety
/// `out` is the address of room for the record.
unsafe fn write(out: jlong, plan: &Plan) {
    // SAFETY: the caller's contract.
    unsafe { take::<DevxPlan>(out).write(plan.to_raw()) };
}
