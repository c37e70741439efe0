//! The Rust part of a program with benches. `main` and the rest of the harness are in C (`benches/c/bench.h`).

use std::ffi::{CStr, c_char, c_int, c_void};

/// The number of rows of a table (`benches/c/data.h`).
pub const ROWS: usize = 1024;
/// The numbers of columns of the arrays.
pub const ARRAY_WIDTHS: [c_int; 5] = [1, 10, 100, 1000, 10000];
/// The numbers of columns of the batches in streams.
pub const STREAM_WIDTHS: [c_int; 2] = [1, 10];
/// The number of columns of a schema that is exchanged by itself.
pub const SCHEMA_WIDTH: c_int = 1000;
/// The number of columns of a batch that is only read.
pub const READ_WIDTH: c_int = 100;
/// The numbers of columns of the batches in `rust/batch-read`.
pub const RUST_WIDTHS: [c_int; 2] = [1, 100];
/// The shape of the matrix.
pub const SHAPE: [i64; 2] = [2, 3];
/// The strides of the matrix.
pub const STRIDES: [i64; 2] = [3, 1];

unsafe extern "C" {
    static column_values: [i32; ROWS];
    static mut matrix_values: [f32; 6];
    fn bench_add(
        operation: *const c_char,
        size: c_int,
        set_up: extern "C" fn(c_int) -> *mut c_void,
        run: extern "C" fn(*mut c_void, i64),
        tear_down: extern "C" fn(*mut c_void),
    );
    fn add_thread_benches(bench: *const ThreadBench);
}

/// The values that all columns share.
pub fn column() -> &'static [i32; ROWS] {
    // SAFETY: the values are never written.
    unsafe { &column_values }
}

/// The values of the matrix.
pub fn matrix() -> *mut f32 {
    (&raw mut matrix_values).cast()
}

/// The name of an implementation, as C reads it.
#[repr(transparent)]
pub struct Name(*const c_char);

// SAFETY: the pointer is to a constant, which is only read.
unsafe impl Sync for Name {}

impl Name {
    /// Makes a name of a constant.
    pub const fn new(name: &'static CStr) -> Self {
        Self(name.as_ptr())
    }
}

/// An implementation of an operation, with its state.
pub trait Bench: Sized {
    /// Makes the state, for `size` columns.
    fn set_up(size: usize) -> Self;
    /// Does the operation once.
    fn once(&mut self);
}

extern "C" fn set_up<B: Bench>(size: c_int) -> *mut c_void {
    Box::into_raw(Box::new(B::set_up(size as usize))).cast()
}

extern "C" fn run<B: Bench>(state: *mut c_void, times: i64) {
    // SAFETY: `set_up` made the box, and nothing else uses it during this call.
    let bench = unsafe { &mut *state.cast::<B>() };
    for _ in 0..times {
        bench.once();
    }
}

extern "C" fn tear_down<B>(state: *mut c_void) {
    // SAFETY: `set_up` made the box, and nothing uses it after this call.
    drop(unsafe { Box::from_raw(state.cast::<B>()) });
}

/// Adds a bench, whose name gets `/SIZE` unless `size` is 0.
pub fn add<B: Bench>(operation: &'static CStr, size: c_int) {
    // SAFETY: the three functions have the same type of state, and the name is a constant.
    unsafe { bench_add(operation.as_ptr(), size, set_up::<B>, run::<B>, tear_down::<B>) }
}

/// `struct thread_bench` of `benches/c/threads.h`.
#[repr(C)]
pub struct ThreadBench {
    set_up: extern "C" fn(c_int) -> *mut c_void,
    tear_down: extern "C" fn(*mut c_void),
    export_one: extern "C" fn(*mut c_void) -> *mut c_void,
    import_one: extern "C" fn(*mut c_void),
}

/// A producer that exports on one thread what may be imported on another.
pub trait Threads: Bench + Sync {
    /// Exports a tensor.
    fn export(&self) -> *mut c_void;
    /// Imports a tensor that any thread exported, and releases it.
    ///
    /// # Safety
    ///
    /// `handed` comes from `export`, and nothing else uses it.
    unsafe fn import(handed: *mut c_void);
}

extern "C" fn export_one<T: Threads>(state: *mut c_void) -> *mut c_void {
    // SAFETY: `set_up` made the box, and while there are two threads, they only read it.
    unsafe { &*state.cast::<T>() }.export()
}

extern "C" fn import_one<T: Threads>(handed: *mut c_void) {
    // SAFETY: `handed` comes from `export_one`, and is imported once.
    unsafe { T::import(handed) }
}

/// Adds the benches with two threads.
pub fn add_threads<T: Threads>() {
    let bench = ThreadBench {
        set_up: set_up::<T>,
        tear_down: tear_down::<T>,
        export_one: export_one::<T>,
        import_one: import_one::<T>,
    };
    // SAFETY: the four functions have the same type of state, and the struct is never freed.
    unsafe { add_thread_benches(Box::leak(Box::new(bench))) }
}

/// Names the program, and calls the function that adds its benches before `main`.
#[macro_export]
macro_rules! benches {
    ($name:literal, $add:path) => {
        #[allow(non_upper_case_globals, reason = "the name is C's")]
        #[unsafe(no_mangle)]
        #[used]
        static bench_implementation: $crate::Name = $crate::Name::new($name);

        extern "C" fn add_benches() {
            $add();
        }

        #[used]
        #[unsafe(link_section = ".init_array")]
        static ADD_BENCHES: extern "C" fn() = add_benches;
    };
}
