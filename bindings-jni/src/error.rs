//! Why a call is refused, and the one place where an error or a panic becomes an exception.

use std::any::Any;
use std::fmt;

use devexchange_core::abi::types::DEVX_CALLBACK;
use jni::errors::{Error as JniError, ErrorPolicy, JniError as JniCode, Result as JniResult};
use jni::exceptions::JOutOfMemoryError;
use jni::objects::{JString, JThrowable};
use jni::refs::{LoaderContext, Reference};
use jni::strings::JNIString;
use jni::{Env, jni_sig, jni_str};

/// Why a call is refused: the core's reason, or trouble with the JVM.
#[derive(Debug)]
pub(crate) enum Error {
    Refused(devexchange_core::Error),
    Jni(JniError),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Jni(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<devexchange_core::Error> for Error {
    fn from(error: devexchange_core::Error) -> Self {
        Self::Refused(error)
    }
}

impl From<JniError> for Error {
    fn from(error: JniError) -> Self {
        Self::Jni(error)
    }
}

impl<T> From<devexchange_core::Refused<T>> for Error {
    fn from(refused: devexchange_core::Refused<T>) -> Self {
        Self::Refused(refused.error)
    }
}

/// `Err` with a status constant of `devexchange_core::abi::types` and a formatted text.
macro_rules! refuse {
    ($status:ident, $($text:tt)*) => {
        Err($crate::error::Error::Refused(devexchange_core::Error::new(
            devexchange_core::abi::types::$status,
            format_args!($($text)*),
        )))
    };
}
pub(crate) use refuse;

/// Throws `dev.devexchange.DevExchangeException(int status, int driverCode, String message)`.
#[derive(Debug)]
pub(crate) enum Throw {}

impl Throw {
    fn throw(env: &mut Env<'_>, error: &devexchange_core::Error) {
        // A pending exception says more than a new one about it would.
        if env.exception_check() {
            return;
        }
        let thrown = Self::exception(env, error).and_then(|exception| env.throw(exception));
        // `JavaException` means that the exception was thrown. Any other error was an exception, too, which the `jni`
        // crate has caught.
        if !matches!(thrown, Err(JniError::JavaException)) {
            Self::throw_out_of_memory(env, format_args!("no exception could be made to say: {error}"));
        }
    }

    /// Throws an `OutOfMemoryError`, which needs no memory: the JVM keeps one ready.
    fn throw_out_of_memory(env: &mut Env<'_>, why: fmt::Arguments<'_>) {
        let class = JOutOfMemoryError::lookup_class(env, &LoaderContext::None).map(|class| env.new_local_ref(&**class));
        if let Ok(Ok(class)) = class {
            // As in `throw`, an error means that it was thrown.
            drop(env.throw_new(&class, JNIString::from(why.to_string())));
        }
    }

    fn exception<'l>(env: &mut Env<'l>, error: &devexchange_core::Error) -> JniResult<JThrowable<'l>> {
        let message = JString::from_str(env, error.message())?;
        // Not by its name, which would ask the thread's class loader, and that may have another class of this name.
        // `FindClass` asks the loader of the class whose native method this is.
        let class = env.find_class(jni_str!("dev/devexchange/DevExchangeException"))?;
        let exception = env.new_object(
            &class,
            jni_sig!((status: jint, driver_code: jint, message: JString) -> void),
            &[error.status().0.into(), error.driver_code().into(), (&message).into()],
        )?;
        env.cast_local::<JThrowable>(exception)
    }
}

impl<T: Default> ErrorPolicy<T, Error> for Throw {
    type Captures<'unowned: 'native, 'native> = ();

    fn on_error<'unowned: 'native, 'native>(env: &mut Env<'unowned>, (): &mut (), error: Error) -> JniResult<T> {
        match error {
            Error::Refused(error) => Self::throw(env, &error),
            Error::Jni(JniError::JniCall(JniCode::NoMemory)) => {
                Self::throw_out_of_memory(env, format_args!("a native method has no memory"));
            }
            Error::Jni(error) => {
                let text = format_args!("a call of the JVM failed: {error}");
                Self::throw(env, &devexchange_core::Error::new(DEVX_CALLBACK, text));
            }
        }
        Ok(T::default())
    }

    fn on_panic<'unowned: 'native, 'native>(
        env: &mut Env<'unowned>,
        (): &mut (),
        payload: Box<dyn Any + Send>,
    ) -> JniResult<T> {
        Self::throw(env, &devexchange_core::Error::panicked(payload));
        Ok(T::default())
    }
}
