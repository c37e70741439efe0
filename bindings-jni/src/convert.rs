//! Conversions of tensors to columns and batches and back, each with its plan.

use devexchange_core::abi::types::DevxPlan;
use devexchange_core::convert::{self, Plan};
use devexchange_core::dlpack::Copying;
use devexchange_core::{Batch, Tensor};
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::{jint, jlong};

use crate::column::view;
use crate::error::Result;
use crate::handle::{batch, give, take, tensor};
use crate::native::{native, plain};
use crate::stream::optional;

plain! { column_plan_tensor(batch: jlong, column: jlong, out: jlong) }
/// Says how a column can become a tensor. Nothing is taken.
fn column_plan_tensor(handle: jlong, column: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    let plan = convert::plan_tensor(unsafe { view(&batch, column) }?)?;
    // SAFETY: Java gives the address of room for the plan.
    unsafe { write(out, &plan) };
    Ok(())
}

plain! { column_to_tensor(batch: jlong, column: jlong, copy: jint) -> jlong }
/// Makes a tensor from the column.
fn column_to_tensor(handle: jlong, column: jlong, copy: jint) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    let column = unsafe { view(&batch, column) }?;
    Ok(give(convert::tensor(column, Copying::from_raw(copy)?)?.into_raw()))
}

plain! { tensor_plan_column(tensor: jlong, out: jlong) }
/// Says how a tensor can become a column. Nothing is taken.
fn tensor_plan_column(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle and the address of room for the plan.
    unsafe { plan_of_tensor(handle, out, convert::plan_column) }
}

native! { tensor_to_column(tensor: jlong, name: JString, copy: jint) -> jlong }
/// Makes a column from the tensor: a batch whose root is the column.
fn tensor_to_column<'l>(
    env: &mut Env<'l>,
    _: JClass<'l>,
    handle: jlong,
    name: JString<'l>,
    copy: jint,
) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    unsafe { to_column(env, handle, name, copy, convert::column) }
}

plain! { tensor_plan_fixed_shape_column(tensor: jlong, out: jlong) }
/// Says how a tensor can become a column of tensors. Nothing is taken.
fn tensor_plan_fixed_shape_column(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle and the address of room for the plan.
    unsafe { plan_of_tensor(handle, out, convert::plan_fixed_shape_column) }
}

native! { tensor_to_fixed_shape_column(tensor: jlong, name: JString, copy: jint) -> jlong }
/// Makes a column of tensors from the tensor: a batch whose root is the column.
fn tensor_to_fixed_shape_column<'l>(
    env: &mut Env<'l>,
    _: JClass<'l>,
    handle: jlong,
    name: JString<'l>,
    copy: jint,
) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    unsafe { to_column(env, handle, name, copy, convert::fixed_shape_column) }
}

/// # Safety
/// `handle` is that of a tensor.
unsafe fn to_column<'l>(
    env: &mut Env<'l>,
    handle: jlong,
    name: JString<'l>,
    copy: jint,
    convert: fn(&Tensor, &str, Copying) -> devexchange_core::Result<Batch>,
) -> Result<jlong> {
    let name = name.try_to_string(env)?;
    // SAFETY: the caller's contract.
    let tensor = unsafe { tensor(handle) }?;
    Ok(give(convert(&tensor, &name, Copying::from_raw(copy)?)?.into_raw()))
}

plain! { tensor_plan_batch(tensor: jlong, out: jlong) }
/// Says how a matrix can become a record batch. Nothing is taken.
fn tensor_plan_batch(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle and the address of room for the plan.
    unsafe { plan_of_tensor(handle, out, convert::plan_batch) }
}

native! { tensor_to_batch(tensor: jlong, names: JString, count: jint, copy: jint) -> jlong }
/// Makes a record batch from the matrix. `names` are `count` names with a NUL between them.
fn tensor_to_batch<'l>(
    env: &mut Env<'l>,
    _: JClass<'l>,
    handle: jlong,
    names: JString<'l>,
    count: jint,
    copy: jint,
) -> Result<jlong> {
    let names = names.try_to_string(env)?;
    let names: Vec<&str> = if count == 0 { Vec::new() } else { names.split('\0').collect() };
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    Ok(give(convert::batch(&tensor, &names, Copying::from_raw(copy)?)?.into_raw()))
}

plain! { batch_plan_matrix(batch: jlong, out: jlong) }
/// Says how a record batch can become a matrix. Nothing is taken.
fn batch_plan_matrix(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let plan = convert::plan_matrix(&*unsafe { batch(handle) }?)?;
    // SAFETY: Java gives the address of room for the plan.
    unsafe { write(out, &plan) };
    Ok(())
}

plain! { batch_to_matrix(batch: jlong, copy: jint, stream: jlong) -> jlong }
/// Makes a matrix from the record batch; `stream` may be 0.
fn batch_to_matrix(handle: jlong, copy: jint, stream: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives a living handle, or none.
    let stream = unsafe { optional(stream, |number| batch.stream(number)) }?;
    Ok(give(convert::matrix(&batch, Copying::from_raw(copy)?, stream)?.into_raw()))
}

/// # Safety
/// `handle` is that of a tensor, `out` the address of room for the record.
unsafe fn plan_of_tensor(handle: jlong, out: jlong, plan: fn(&Tensor) -> Plan) -> Result<()> {
    // SAFETY: the caller's contract.
    let tensor = unsafe { tensor(handle) }?;
    // SAFETY: as above.
    unsafe { write(out, &plan(&tensor)) };
    Ok(())
}

/// # Safety
/// `out` is the address of room for the record.
unsafe fn write(out: jlong, plan: &Plan) {
    // SAFETY: the caller's contract.
    unsafe { take::<DevxPlan>(out).write(plan.to_raw()) };
}
