//! What happens when the JVM loads the library.

use core::ffi::c_void;

use jni::errors::Result;
use jni::exceptions::{
    JClassCircularityError, JClassFormatError, JClassNotFoundException, JExceptionInInitializerError,
    JIllegalArgumentException, JInstantiationException, JLinkageError, JNoClassDefFoundError, JNoSuchFieldError,
    JNoSuchMethodError, JNumberFormatException, JOutOfMemoryError, JSecurityException,
};
use jni::objects::{JClass, JClassLoader, JString, JThread, JThrowable};
use jni::refs::{LoaderContext, Reference};
use jni::sys::{JNI_VERSION_10, JavaVM as RawJavaVM, jint};
use jni::{Env, JavaVM};

/// Called once, by the JVM (JNI specification, "The Invocation API").
#[unsafe(no_mangle)]
unsafe extern "system" fn JNI_OnLoad(vm: *mut RawJavaVM, _: *mut c_void) -> jint {
    // SAFETY: the JVM passes itself.
    let vm = unsafe { JavaVM::from_raw(vm) };
    // A class whose look-up fails here is looked up when it is needed.
    let looked_up = std::panic::catch_unwind(|| vm.attach_current_thread(look_up));
    drop(looked_up);
    JNI_VERSION_10
}

/// Makes the `jni` crate look up the classes that it compares exceptions with. Otherwise it does so at the first
/// exception. If that one says that memory ran out, the look-up fails for the same reason, that exception is compared
/// in turn, and so on until the stack overflows.
fn look_up(env: &mut Env<'_>) -> Result<()> {
    macro_rules! each {
        ($($Class:ident)*) => { $(drop($Class::lookup_class(env, &LoaderContext::None)?);)* };
    }
    each! {
        JThrowable JOutOfMemoryError JClass JClassLoader JThread JString
        JClassCircularityError JClassFormatError JClassNotFoundException JExceptionInInitializerError
        JIllegalArgumentException JInstantiationException JLinkageError JNoClassDefFoundError JNoSuchFieldError
        JNoSuchMethodError JNumberFormatException JSecurityException
    }
    Ok(())
}
