//! The library itself: its version, and names of statuses and types.

use core::ffi::CStr;

use devexchange_core::abi::dlpack::DLDataType;
use devexchange_core::abi::types::DevxStatus;
use devexchange_core::arrow::TypeName;
use devexchange_core::memory::said;
use devexchange_core::{DType, DeviceType, error, trace};
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::{jboolean, jint};

use crate::error::Result;
use crate::memory::string;
use crate::native::{native, plain};

native! { version() -> JString }
fn version<'l>(env: &mut Env<'l>, _: JClass<'l>) -> Result<JString<'l>> {
    Ok(JString::from_str(env, env!("CARGO_PKG_VERSION"))?)
}

native! { status_name(status: jint) -> JString }
/// The name of a status; null for a number without a meaning.
fn status_name<'l>(env: &mut Env<'l>, _: JClass<'l>, status: jint) -> Result<JString<'l>> {
    name(env, error::status_name(DevxStatus(status)).map(CStr::to_string_lossy))
}

native! { device_type_name(device_type: jint) -> JString }
/// The name of a device type; null for a number without one.
fn device_type_name<'l>(env: &mut Env<'l>, _: JClass<'l>, device_type: jint) -> Result<JString<'l>> {
    name(env, DeviceType(device_type).name())
}

native! { dtype_name(code: jint, bits: jint, lanes: jint) -> JString }
/// The name of an element type; null for a type that DLPack does not have.
fn dtype_name<'l>(env: &mut Env<'l>, _: JClass<'l>, code: jint, bits: jint, lanes: jint) -> Result<JString<'l>> {
    let dtype = match (u8::try_from(code), u8::try_from(bits), u16::try_from(lanes)) {
        (Ok(code), Ok(bits), Ok(lanes)) => DType::from_dlpack(DLDataType { code, bits, lanes }).ok(),
        _ => None,
    };
    name(env, dtype.map(|dtype| dtype.to_string()))
}

native! { type_name(format: JString) -> JString }
/// The name of the Arrow type that a format string stands for.
fn type_name<'l>(env: &mut Env<'l>, _: JClass<'l>, format: JString<'l>) -> Result<JString<'l>> {
    let format = format.try_to_string(env)?;
    let name = TypeName::parse(&format)?;
    string(env, &said(format_args!("{name}"))?)
}

fn name<'l>(env: &mut Env<'l>, name: Option<impl AsRef<str>>) -> Result<JString<'l>> {
    match name {
        Some(name) => Ok(JString::from_str(env, name)?),
        None => Ok(JString::default()),
    }
}

plain! { tracing() -> jboolean }
/// Whether the trace is on.
fn tracing() -> Result<jboolean> {
    Ok(trace::enabled())
}

native! { panic(text: JString) }
#[expect(clippy::panic, reason = "so that the tests can see what becomes of a panic")]
fn panic<'l>(env: &mut Env<'l>, _: JClass<'l>, text: JString<'l>) -> Result<()> {
    panic!("{}", text.try_to_string(env)?)
}
