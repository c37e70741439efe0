//! The driver calls of the producers and consumers in the tests.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use devexchange_core::{RawStream, Stream};

use crate::{cu, cu_ok};

/// A context by its handle.
pub type Context = u64;

/// The primary context of a device, which the tests keep until the process ends.
///
/// # Panics
/// If the driver fails.
pub fn primary(device: i32) -> Context {
    static PRIMARY: Mutex<Vec<(i32, Context)>> = Mutex::new(Vec::new());
    let mut known = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, context)) = known.iter().find(|(number, _)| *number == device) {
        return *context;
    }
    cu_ok!("cuInit", 0);
    let mut context = 0_u64;
    cu_ok!("cuDevicePrimaryCtxRetain", &raw mut context, device);
    known.push((device, context));
    context
}

/// The context that is current on this thread; 0 for none.
pub fn current() -> Context {
    let mut context = 0_u64;
    cu_ok!("cuCtxGetCurrent", &raw mut context);
    context
}

/// Makes a context current on this thread; 0 for none.
pub fn set_current(context: Context) {
    cu_ok!("cuCtxSetCurrent", context);
}

/// A stream that does not wait for the legacy default stream, of the current context.
pub fn stream() -> u64 {
    let mut stream = 0_u64;
    cu_ok!("cuStreamCreate", &raw mut stream, 1);
    stream
}

/// A stream of device 0 by its number: no test destroys a stream that it gave to the library while it is still needed.
pub fn on(stream: u64) -> Stream {
    on_device(0, stream)
}

/// Like [`on`], with another device named.
///
/// # Panics
/// For 0.
pub fn on_device(ordinal: i32, stream: u64) -> Stream {
    Stream::new(ordinal, raw(stream as i64)).expect("a stream")
}

/// Like [`on`], in the form of a request.
pub fn raw(stream: i64) -> RawStream {
    // SAFETY: as above.
    unsafe { RawStream::new(stream) }
}

/// Destroys a stream.
pub fn destroy(stream: u64) {
    cu_ok!("cuStreamDestroy_v2", stream);
}

/// Waits for a stream.
pub fn synchronize(stream: u64) {
    cu_ok!("cuStreamSynchronize", stream);
}

/// Waits for streams, and destroys them.
pub fn finish<const N: usize>(streams: [u64; N]) {
    streams.into_iter().for_each(synchronize);
    streams.into_iter().for_each(destroy);
}

/// Device memory of the current context's device.
pub fn alloc(bytes: u64) -> u64 {
    let mut address = 0_u64;
    cu_ok!("cuMemAlloc_v2", &raw mut address, bytes);
    address
}

/// Gives work on one device access to the memory of another device's default pool, or takes it away.
pub fn let_at_pool(of: i32, device: i32, allowed: bool) {
    /// `CUmemAccessDesc`: a location (`CU_MEM_LOCATION_TYPE_DEVICE`, its number), and the allowed access.
    #[repr(C)]
    struct Access(u32, i32, u32);
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
    const READ_AND_WRITE: u32 = 3;
    let mut pool = 0_u64;
    cu_ok!("cuDeviceGetDefaultMemPool", &raw mut pool, of);
    let access = Access(1, device, if allowed { READ_AND_WRITE } else { 0 });
    cu_ok!("cuMemPoolSetAccess", pool, &raw const access, 1);
}

/// Frees device memory at once, as bad producers do; the driver's answer is ignored.
pub fn free(address: u64) {
    cu!("cuMemFree_v2", address);
}

/// Pinned host memory.
pub fn alloc_host(bytes: u64) -> u64 {
    let mut address = 0_u64;
    cu_ok!("cuMemHostAlloc", &raw mut address, bytes, 1);
    address
}

/// Queues work that writes: every byte becomes `byte`.
pub fn fill(address: u64, byte: u8, bytes: u64, stream: u64) {
    cu_ok!("cuMemsetD8Async", address, byte, bytes, stream);
}

/// Queues work that reads `from` and writes `to`.
pub fn copy(to: u64, from: u64, bytes: u64, stream: u64) {
    cu_ok!("cuMemcpyDtoDAsync_v2", to, from, bytes, stream);
}

/// The contents of device memory after everything that is queued on `stream`.
pub fn download(address: u64, bytes: u64, stream: u64) -> Vec<u8> {
    let mut data = vec![0_u8; bytes as usize];
    cu_ok!("cuMemcpyDtoHAsync_v2", data.as_mut_ptr(), address, bytes, stream);
    synchronize(stream);
    data
}

/// A new event without timing, of the current context.
pub fn event() -> u64 {
    let mut event = 0_u64;
    cu_ok!("cuEventCreate", &raw mut event, 2);
    event
}

/// Begins to capture what is queued on a stream. Modes: 0 global, 1 thread-local, 2 relaxed.
pub fn begin_capture(stream: u64, mode: u32) {
    cu_ok!("cuStreamBeginCapture_v2", stream, mode);
}

/// Ends a capture and discards the graph; the driver's code says whether the capture was intact.
pub fn end_capture(stream: u64) -> u32 {
    let mut graph = 0_u64;
    let code = cu!("cuStreamEndCapture", stream, &raw mut graph);
    if code == 0 {
        cu_ok!("cuGraphDestroy", graph);
    }
    code
}

/// Queues a function that never returns.
pub fn block_forever(stream: u64) {
    extern "C" fn forever(_: *mut c_void) {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    let forever: extern "C" fn(*mut c_void) = forever;
    cu_ok!("cuLaunchHostFunc", stream, forever as usize, 0);
}
