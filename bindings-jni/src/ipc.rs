//! Tensors and batches shared with other processes of this machine.

use std::time::Duration;

use devexchange_core::abi::types::DevxPlan;
use devexchange_core::dlpack::Copying;
use devexchange_core::ipc::{self, Client, Server};
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::{jint, jlong};

use crate::boxed::{Held, held, hold};
use crate::error::Result;
use crate::handle::{batch, give, take, tensor};
use crate::native::{native, plain};
use crate::tensor::wanted;

impl Held for Server {
    const CLASS: &'static str = "IpcServer";
    const NOUN: &'static str = "server";
}

impl Held for Client {
    const CLASS: &'static str = "IpcClient";
    const NOUN: &'static str = "client";
}

native! { ipc_server_bind(address: JString) -> jlong }
/// Makes a server that listens at an address.
fn ipc_server_bind<'l>(env: &mut Env<'l>, _: JClass<'l>, address: JString<'l>) -> Result<jlong> {
    hold(Server::bind(&address.try_to_string(env)?)?)
}

native! { ipc_server_offer_tensor(server: jlong, name: JString, tensor: jlong, copy: jint) }
/// Offers a tensor, which is shared.
fn ipc_server_offer_tensor<'l>(
    env: &mut Env<'l>,
    _: JClass<'l>,
    server: jlong,
    name: JString<'l>,
    handle: jlong,
    copy: jint,
) -> Result<()> {
    let name = name.try_to_string(env)?;
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    // SAFETY: as above.
    Ok(unsafe { held::<Server>(server) }?.offer_tensor(&name, &tensor, Copying::from_raw(copy)?)?)
}

native! { ipc_server_offer_batch(server: jlong, name: JString, batch: jlong, copy: jint) }
/// Offers a batch, which is shared.
fn ipc_server_offer_batch<'l>(
    env: &mut Env<'l>,
    _: JClass<'l>,
    server: jlong,
    name: JString<'l>,
    handle: jlong,
    copy: jint,
) -> Result<()> {
    let name = name.try_to_string(env)?;
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: as above.
    Ok(unsafe { held::<Server>(server) }?.offer_batch(&name, &batch, Copying::from_raw(copy)?)?)
}

native! { ipc_server_withdraw(server: jlong, name: JString) -> jboolean }
/// Ends an offer; returns whether there was one.
fn ipc_server_withdraw<'l>(env: &mut Env<'l>, _: JClass<'l>, server: jlong, name: JString<'l>) -> Result<bool> {
    let name = name.try_to_string(env)?;
    // SAFETY: Java gives a living handle.
    Ok(unsafe { held::<Server>(server) }?.withdraw(&name)?)
}

plain! { ipc_server_leases(server: jlong) -> jlong }
/// The number of leases that are not released yet.
fn ipc_server_leases(server: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { held::<Server>(server) }?.leases())
}

native! { ipc_client_connect(address: JString, timeout: jlong) -> jlong }
/// Connects to a server, which has `timeout` nanoseconds for each answer.
fn ipc_client_connect<'l>(env: &mut Env<'l>, _: JClass<'l>, address: JString<'l>, timeout: jlong) -> Result<jlong> {
    let address = address.try_to_string(env)?;
    let timeout = Duration::from_nanos(u64::try_from(timeout).unwrap_or(0));
    hold(Client::connect(&address, Some(timeout))?)
}

native! { ipc_client_import_tensor(client: jlong, name: JString) -> jlong }
/// Imports the tensor that is offered under a name.
fn ipc_client_import_tensor<'l>(env: &mut Env<'l>, _: JClass<'l>, client: jlong, name: JString<'l>) -> Result<jlong> {
    let name = name.try_to_string(env)?;
    // SAFETY: Java gives a living handle.
    let client = unsafe { held::<Client>(client) }?;
    // SAFETY: the exporter vouches for the memory, as the Java documentation says.
    Ok(give(unsafe { client.import_tensor(&name) }?.into_raw()))
}

native! { ipc_client_import_batch(client: jlong, name: JString) -> jlong }
/// Imports the batch that is offered under a name.
fn ipc_client_import_batch<'l>(env: &mut Env<'l>, _: JClass<'l>, client: jlong, name: JString<'l>) -> Result<jlong> {
    let name = name.try_to_string(env)?;
    // SAFETY: Java gives a living handle.
    let client = unsafe { held::<Client>(client) }?;
    // SAFETY: the exporter vouches for the memory, as the Java documentation says.
    Ok(give(unsafe { client.import_batch(&name) }?.into_raw()))
}

plain! { tensor_allocate_shared(description: jlong) -> jlong }
/// Makes a tensor over host memory that can be offered without a copy; the device of the description is only checked.
fn tensor_allocate_shared(description: jlong) -> Result<jlong> {
    // SAFETY: Java gives the address of a description that is valid during the call.
    let (_, dtype, shape) = unsafe { wanted(description) }?;
    Ok(give(ipc::allocate_tensor(dtype, shape)?.into_raw()))
}

plain! { ipc_plan_tensor(tensor: jlong, out: jlong) }
/// Says how a tensor can be offered. Nothing is taken.
fn ipc_plan_tensor(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let plan = ipc::plan_tensor(&*unsafe { tensor(handle) }?);
    // SAFETY: Java gives the address of room for the plan.
    unsafe { take::<DevxPlan>(out).write(plan.to_raw()) };
    Ok(())
}

plain! { ipc_plan_batch(batch: jlong, out: jlong) }
/// Says how a batch can be offered. Nothing is taken.
fn ipc_plan_batch(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let plan = ipc::plan_batch(&*unsafe { batch(handle) }?);
    // SAFETY: Java gives the address of room for the plan.
    unsafe { take::<DevxPlan>(out).write(plan.to_raw()) };
    Ok(())
}
