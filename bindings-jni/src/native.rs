//! How native methods are declared, and how their results are returned or thrown.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jni::EnvUnowned;
use jni::sys::jlong;

use crate::error::{Error, Result, Throw};
use crate::foreign;
use crate::handle::give;

/// Declares a native method of `dev.devexchange.Native`. The exported symbol contains the signature, so that a
/// different declaration in Java gives an `UnsatisfiedLinkError`, not a wrong call.
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

/// Same as [`native!`], for a method that needs nothing of the JVM. The environment is used only to throw, which makes
/// a call several times cheaper, and lets Java make it without JNI ([`foreign`]).
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
                // The check asks JNI whether the method is static. All are, as a test of the Java part verifies.
                abi_check = UnsafeNever,
            }
        };
    };
}
pub(crate) use plain;

/// Returns the result of a method; an error or a panic is thrown.
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

// What Java calls after calls without JNI.

plain! { foreign_failed() -> jlong }
/// The address of a long that is not 0 while a thread keeps the error of a call without JNI.
fn foreign_failed() -> Result<jlong> {
    Ok(give(foreign::failed()))
}

plain! { foreign_throw() }
/// Throws the error of the thread's last call without JNI, if it failed.
fn foreign_throw() -> Result<()> {
    foreign::take().map_or(Ok(()), Err)
}
