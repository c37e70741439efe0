//! Our side of the exchanges (`../../ours.h`), loaded from its library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use libloading::Library;

/// The library, with its functions.
pub(crate) struct Ours {
    open: unsafe extern "C" fn(*const c_char, *const c_char, *const c_char) -> *mut c_void,
    close: unsafe extern "C" fn(*mut c_void),
    why: unsafe extern "C" fn(*const c_void) -> *const c_char,
    give: unsafe extern "C" fn(*mut c_void, *mut FFI_ArrowArray, *mut FFI_ArrowSchema) -> c_int,
    take: unsafe extern "C" fn(*mut c_void, i64, i64, *mut FFI_ArrowArray, *mut FFI_ArrowSchema) -> c_int,
    give_stream: unsafe extern "C" fn(*mut c_void, c_int, *mut FFI_ArrowArrayStream) -> c_int,
    take_stream: unsafe extern "C" fn(*mut c_void, c_int, *mut FFI_ArrowArrayStream) -> c_int,
    outstanding: unsafe extern "C" fn() -> i64,
    /// The functions above are valid only while this library is loaded.
    _library: Library,
}

/// A case in one layout.
pub(crate) struct Case<'a> {
    ours: &'a Ours,
    it: *mut c_void,
}

macro_rules! find {
    ($library:expr, $name:literal) => {{
        // SAFETY: ours.h declares the function with this type, and `_library` stays loaded as long as `Ours`.
        let function = unsafe { $library.get($name) }?;
        *function
    }};
}

impl Ours {
    pub(crate) fn load(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: the initialisers of the library only set up its own data.
        let library = unsafe { Library::new(path) }?;
        Ok(Self {
            open: find!(library, b"ours_open"),
            close: find!(library, b"ours_close"),
            why: find!(library, b"ours_why"),
            give: find!(library, b"ours_give"),
            take: find!(library, b"ours_take"),
            give_stream: find!(library, b"ours_give_stream"),
            take_stream: find!(library, b"ours_take_stream"),
            outstanding: find!(library, b"ours_outstanding"),
            _library: library,
        })
    }

    /// Ends the process if the case cannot be read.
    pub(crate) fn open(&self, corpus: &Path, name: &str, layout: &str) -> Case<'_> {
        let texts = [corpus.as_os_str().as_encoded_bytes(), name.as_bytes(), layout.as_bytes()]
            .map(|text| CString::new(text).unwrap_or_default());
        let [corpus, name, layout] = &texts;
        // SAFETY: the arguments are three strings that end with NUL.
        Case { ours: self, it: unsafe { (self.open)(corpus.as_ptr(), name.as_ptr(), layout.as_ptr()) } }
    }

    pub(crate) fn outstanding(&self) -> i64 {
        // SAFETY: the function takes no arguments.
        unsafe { (self.outstanding)() }
    }
}

impl Case<'_> {
    fn answer(&self, answer: c_int) -> Result<(), String> {
        if answer != 0 {
            return Ok(());
        }
        // SAFETY: the case is open.
        let why = unsafe { (self.ours.why)(self.it) };
        // SAFETY: the case keeps this string, which ends with NUL, until the next call.
        Err(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned())
    }

    pub(crate) fn give(&self, array: &mut FFI_ArrowArray, schema: &mut FFI_ArrowSchema) -> Result<(), String> {
        // SAFETY: the case is open, and both structs are empty.
        self.answer(unsafe { (self.ours.give)(self.it, array, schema) })
    }

    pub(crate) fn take(
        &self,
        first: i64,
        count: i64,
        array: &mut FFI_ArrowArray,
        schema: &mut FFI_ArrowSchema,
    ) -> Result<(), String> {
        // SAFETY: the case is open, and both structs are valid.
        self.answer(unsafe { (self.ours.take)(self.it, first, count, array, schema) })
    }

    pub(crate) fn give_stream(&self, n: usize, stream: &mut FFI_ArrowArrayStream) -> Result<(), String> {
        // SAFETY: the case is open, and the struct is empty.
        self.answer(unsafe { (self.ours.give_stream)(self.it, n as c_int, stream) })
    }

    pub(crate) fn take_stream(&self, n: usize, stream: &mut FFI_ArrowArrayStream) -> Result<(), String> {
        // SAFETY: the case is open, and the struct is valid.
        self.answer(unsafe { (self.ours.take_stream)(self.it, n as c_int, stream) })
    }
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        // SAFETY: the case is open, and nothing uses it after this.
        unsafe { (self.ours.close)(self.it) }
    }
}
