//! PyTorch on a memory manager: the functions that PyTorch's pluggable allocator calls, and finds by name in this library
//! (`devexchange.torch`).
//!
//! PyTorch calls them on any thread, with and without the GIL. It takes any address that they return for memory, so an error
//! is thrown as a C++ exception, which PyTorch raises as a RuntimeError.

use core::ffi::{c_char, c_int, c_void};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::LazyLock;

use devexchange_core::abi::types::{DEVX_CLOSED, DEVX_INVALID_ARGUMENT, DEVX_OUT_OF_MEMORY};
use devexchange_core::error::caught;
use devexchange_core::fork::{Lock, Locked};
use devexchange_core::manager::Shared;
use devexchange_core::{DType, Device, DeviceType, Error, RawStream, Result, Stream, Tensor, trace};
use pyo3::prelude::*;

use crate::manager::MemoryManager;

/// The one pool: PyTorch has one allocator, and passes its functions nothing that would tell managers apart.
static POOL: LazyLock<Lock<Pool>> = LazyLock::new(Lock::default);

#[derive(Default)]
struct Pool {
    manager: Option<Shared>,
    /// The blocks that PyTorch has, by address.
    blocks: HashMap<usize, Block>,
}

struct Block {
    memory: Tensor,
    /// The streams other than that of the allocation that use the memory until PyTorch frees it (PyTorch's
    /// `Tensor.record_stream`).
    users: Vec<Stream>,
}

/// Locks the pool, also in a child of `fork`, which gives up the blocks that PyTorch had in its parent.
fn pool() -> Locked<'static, Pool> {
    POOL.lock()
}

/// Makes PyTorch allocate from a manager from now on.
#[pyfunction]
pub(crate) fn give_torch(manager: &MemoryManager) -> crate::python::error::Result<()> {
    let manager = manager.get()?;
    let before = pool().manager.replace(manager);
    // Without the lock: dropping the last reference to a manager written in Python makes Python close it.
    drop(before);
    Ok(())
}

/// The number of a PyTorch stream: to PyTorch, NULL is the legacy default stream.
fn number_of(stream: *mut c_void) -> RawStream {
    match stream.expose_provenance() as i64 {
        0 => RawStream::LEGACY,
        // SAFETY: PyTorch never destroys its streams.
        value => unsafe { RawStream::new(value) },
    }
}

fn stream_on(ordinal: c_int, stream: *mut c_void) -> Result<Stream> {
    let device = Device { kind: DeviceType::CUDA, id: ordinal };
    device.stream_with(device, number_of(stream))
}

fn allocate(bytes: isize, ordinal: c_int, stream: *mut c_void) -> Result<*mut c_void> {
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let Some(manager) = pool().manager.clone() else {
        return Err(Error::new(DEVX_CLOSED, "PyTorch was given no manager (devexchange.torch.use)"));
    };
    let stream = stream_on(ordinal, stream)?;
    let device = Device { kind: DeviceType::CUDA, id: ordinal };
    let memory = Tensor::allocate_with(&*manager, device, DType::UINT8, &[bytes as i64], Some(stream))?;
    memory.wait(stream)?;
    let address = memory.data();
    let mut pool = pool();
    let room = pool.blocks.try_reserve(1);
    if room.is_ok() {
        pool.blocks.insert(address.addr(), Block { memory, users: Vec::new() });
    }
    room.map_or_else(|_| Err(no_room()), |()| Ok(address))
}

fn free(address: *mut c_void, ordinal: c_int, stream: *mut c_void) -> Result<()> {
    if address.is_null() {
        return Ok(());
    }
    let stream = stream_on(ordinal, stream)?;
    // Without the lock, because giving memory back may call a manager.
    let block = pool().blocks.remove(&address.addr());
    let Some(Block { memory, users }) = block else {
        return Err(Error::new(
            DEVX_INVALID_ARGUMENT,
            format_args!("ptr is {address:p}: not an address that PyTorch was given"),
        ));
    };
    for user in users {
        memory.clone().release_after(user);
    }
    memory.release_after(stream);
    Ok(())
}

fn record_stream(address: *mut c_void, stream: *mut c_void) -> Result<()> {
    let Some(memory) = pool().blocks.get(&address.addr()).map(|block| block.memory.clone()) else { return Ok(()) };
    let user = memory.stream(number_of(stream))?;
    let mut pool = pool();
    let Some(Block { users, .. }) = pool.blocks.get_mut(&address.addr()) else { return Ok(()) };
    if !users.contains(&user) {
        users.try_reserve(1).map_err(|_| no_room())?;
        users.push(user);
    }
    Ok(())
}

fn no_room() -> Error {
    Error::new(DEVX_OUT_OF_MEMORY, "there is no room to note what PyTorch has")
}

/// Returns the result, or throws its error as a C++ exception. Without the C++ library it returns `instead`.
fn or_throw<T>(instead: T, act: impl FnOnce() -> Result<T>) -> T {
    caught(act).unwrap_or_else(|error| {
        throw(&error);
        instead
    })
}

/// Throws `std::runtime_error` if the C++ library is loaded, as it is in a process with PyTorch.
fn throw(error: &Error) {
    type Thrower = unsafe extern "C-unwind" fn(text: *const c_char) -> !;
    let text = CString::new(error.message().replace('\0', " ")).unwrap_or_default();
    // SAFETY: the name of a library; if it is loaded already, it is only counted.
    let library = unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return trace::say(format_args!("PyTorch gets no memory: {error}"));
    }
    // SAFETY: the library from above, and the name of a function.
    let thrower = unsafe { libc::dlsym(library, c"_ZSt21__throw_runtime_errorPKc".as_ptr()) };
    // SAFETY: a function of that name, if there is one, is of this type (Itanium C++ ABI, mangled names).
    if let Some(thrower) = unsafe { std::mem::transmute::<*mut c_void, Option<Thrower>>(thrower) } {
        // SAFETY: it throws a copy of the text. The caller is C++, and the frames in between may be unwound.
        unsafe { thrower(text.as_ptr()) }
    }
}

/// `void *alloc(ssize_t size, int device, cudaStream_t stream)` of PyTorch's `CUDAPluggableAllocator`.
///
/// # Safety
/// The stream is a PyTorch stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn devexchange_torch_allocate(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    or_throw(std::ptr::null_mut(), || allocate(size, device, stream))
}

/// `void free(void *ptr, ssize_t size, int device, cudaStream_t stream)` of the same.
///
/// # Safety
/// `ptr` is from [`devexchange_torch_allocate`]; all work that uses it is queued on the stream or on the recorded ones.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn devexchange_torch_free(
    ptr: *mut c_void,
    _size: isize,
    device: c_int,
    stream: *mut c_void,
) {
    // PyTorch frees within destructors, which must not throw.
    if let Err(error) = caught(|| free(ptr, device, stream)) {
        trace::say(format_args!("memory of PyTorch's is not given back: {error}"));
    }
}

/// `void record_stream(void *ptr, cudaStream_t stream)` of the same. The memory is then given back only after the work that
/// is queued on that stream, too, when PyTorch frees it.
///
/// # Safety
/// The stream is a PyTorch stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn devexchange_torch_record_stream(ptr: *mut c_void, stream: *mut c_void) {
    or_throw((), || record_stream(ptr, stream));
}
