//! What a program with benches in Rust is made of; `main` and the rest are those of C (`benches/c/bench.h`).

use std::ffi::{CStr, c_char, c_int, c_void};

/// Rows of the tables, and the values of all columns (`benches/c/data.h`).
pub const ROWS: usize = 1024;
/// How many columns there are.
pub const ARRAY_WIDTHS: [c_int; 5] = [1, 10, 100, 1000, 10000];
/// The same of streams.
pub const STREAM_WIDTHS: [c_int; 2] = [1, 10];
/// The same of a schema by itself.
pub const SCHEMA_WIDTH: c_int = 1000;
/// The same of a batch whose columns are looked at.
pub const READ_WIDTH: c_int = 100;
/// How many columns a batch of Rust's has.
pub const RUST_WIDTHS: [c_int; 2] = [1, 100];
/// The shape of the matrix.
pub const SHAPE: [i64; 2] = [2, 3];
/// And its strides.
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

/// The values of each column, as bytes that nobody frees.
pub fn column() -> &'static [i32; ROWS] {
    // SAFETY: nobody writes them.
    unsafe { &column_values }
}

/// The values of the matrix.
pub fn matrix() -> *mut f32 {
    (&raw mut matrix_values).cast()
}

/// The name of an implementation, as C reads it.
#[repr(transparent)]
pub struct Name(*const c_char);

// SAFETY: it points to a constant.
unsafe impl Sync for Name {}

impl Name {
    /// Of a constant.
    pub const fn new(name: &'static CStr) -> Self {
        Self(name.as_ptr())
    }
}

/// A way of doing an operation: what it works on, and how.
pub trait Bench: Sized {
    /// Makes what is worked on, for so many columns.
    fn set_up(size: usize) -> Self;
    /// Does it once.
    fn once(&mut self);
}

extern "C" fn set_up<B: Bench>(size: c_int) -> *mut c_void {
    Box::into_raw(Box::new(B::set_up(size as usize))).cast()
}

extern "C" fn run<B: Bench>(state: *mut c_void, times: i64) {
    // SAFETY: set_up made it, and nobody else has it meanwhile.
    let bench = unsafe { &mut *state.cast::<B>() };
    for _ in 0..times {
        bench.once();
    }
}

extern "C" fn tear_down<B>(state: *mut c_void) {
    // SAFETY: set_up made it, and this is its end.
    drop(unsafe { Box::from_raw(state.cast::<B>()) });
}

/// Adds a bench, whose name gets `/SIZE` unless that is 0.
pub fn add<B: Bench>(operation: &'static CStr, size: c_int) {
    // SAFETY: the three functions belong together, and the name is a constant.
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

/// Somebody who exports on one thread what is imported on another.
pub trait Threads: Bench + Sync {
    /// Exports.
    fn export(&self) -> *mut c_void;
    /// Imports what another thread exported, and releases it.
    ///
    /// # Safety
    ///
    /// `handed` is what `export` gave, and nobody else's.
    unsafe fn import(handed: *mut c_void);
}

extern "C" fn export_one<T: Threads>(state: *mut c_void) -> *mut c_void {
    // SAFETY: set_up made it, and it is only read while there are threads.
    unsafe { &*state.cast::<T>() }.export()
}

extern "C" fn import_one<T: Threads>(handed: *mut c_void) {
    // SAFETY: it comes from export_one, once.
    unsafe { T::import(handed) }
}

/// Adds the benches of two threads.
pub fn add_threads<T: Threads>() {
    let bench = ThreadBench {
        set_up: set_up::<T>,
        tear_down: tear_down::<T>,
        export_one: export_one::<T>,
        import_one: import_one::<T>,
    };
    // SAFETY: the four functions belong together, and the struct stays.
    unsafe { add_thread_benches(Box::leak(Box::new(bench))) }
}

/// Names the program and lets the function add its benches before `main`.
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
