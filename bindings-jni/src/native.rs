//! How native methods are declared, and what they come to.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jni::EnvUnowned;
use jni::sys::jlong;

use crate::error::{Error, Result, Throw};
use crate::foreign;
use crate::handle::give;

/// Declares a native method of `dev.devexchange.Native`. The exported symbol has the signature in it, so that a
/// declaration in Java that differs is an `UnsatisfiedLinkError`, not a wrong call.
macro_rules! native {
    ($($declaration:tt)*) => {
        const _: ::jni::NativeMethod = {
            use $crate::error::Throw;
            ::jni::native_method! {
                java_type = "dev.devexchange.Native",
                error_policy = Throw,
                static extern fn $($declaration)*
            }
        };
    };
}
pub(crate) use native;

/// As [`native!`], for a method that needs nothing of the JVM: the environment is looked at only to throw, which makes a
/// call several times cheaper, and lets Java make it without JNI ([`foreign`]).
macro_rules! plain {
    ($name:ident($($argument:ident: $type:ident),* $(,)?) $(-> $result:ident)?) => {
        const _: ::jni::NativeMethod = {
            fn raw<'l>(
                env: ::jni::EnvUnowned<'l>,
                _: ::jni::objects::JClass<'l>,
                $($argument: ::jni::sys::$type),*
            ) $(-> ::jni::sys::$result)? {
                $crate::native::answer(env, || $name($($argument),*))
            }
            ::jni::native_method! {
                java_type = "dev.devexchange.Native",
                static raw extern fn $name($($argument: $type),*) $(-> $result)?,
                fn = raw,
                // It asks JNI whether the method is static: all are, as a test of the Java part sees.
                abi_check = UnsafeNever,
            }
        };
    };
}
pub(crate) use plain;

/// What a method comes to; an error or a panic is thrown.
#[inline]
pub(crate) fn answer<T: Default>(env: EnvUnowned<'_>, body: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            if env.as_raw().is_null() {
                foreign::forget();
            }
            value
        }
        Ok(Err(error)) => thrown(env, error),
        Err(payload) => thrown(env, Error::Refused(devexchange_core::Error::panicked(payload))),
    }
}

#[cold]
fn thrown<T: Default>(mut env: EnvUnowned<'_>, error: Error) -> T {
    if env.as_raw().is_null() {
        foreign::keep(error);
        return T::default();
    }
    env.with_env(|_| Err(error)).resolve::<Throw>()
}

// What Java asks after calls without JNI.

plain! { foreign_failed() -> jlong }
/// The address of the flag that says whether any call without JNI has failed, a long.
fn foreign_failed() -> Result<jlong> {
    Ok(give(foreign::failed()))
}

plain! { foreign_throw() }
/// Throws what the thread's last such call failed with, if it did.
fn foreign_throw() -> Result<()> {
    foreign::take().map_or(Ok(()), Err)
}
