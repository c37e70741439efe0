//! Host functions in a stream.

use std::ffi::c_void;
use std::sync::mpsc::{Sender, channel};

use devexchange_tests::{cu, cu_ok, sim};

use crate::answer::{Answer, NOT_PERMITTED, SUCCESS, said};
use crate::probe::{Probe, probe};
use crate::scene::N;

/// Other answers of a real driver, which need not notice a forbidden call.
const UNNOTICED: &[&str] = &[SUCCESS, "hangs"];

pub(super) const PROBES: &[Probe] = &[
    probe("host_function.thread", "the thread of a host function", "another one", || {
        let here = std::thread::current().id();
        let there = inside(|| std::thread::current().id());
        if here == there { "the caller's" } else { "another one" }.into()
    }),
    probe("host_function.allocates", "`cuMemAlloc` in a host function", NOT_PERMITTED, || {
        said(inside(|| {
            let mut address = 0_u64;
            cu!("cuMemAlloc_v2", &raw mut address, N)
        }))
    })
    .or(UNNOTICED),
    probe("host_function.queries", "`cuEventQuery` in a host function", NOT_PERMITTED, || {
        let event = sim::event();
        said(inside(move || cu!("cuEventQuery", event)))
    })
    .or(UNNOTICED),
    probe("host_function.asks", "`cuPointerGetAttribute` in a host function", NOT_PERMITTED, || {
        let address = sim::alloc(N);
        said(inside(move || {
            let mut kind = 0_u32;
            cu!("cuPointerGetAttribute", &raw mut kind, 2, address)
        }))
    })
    .or(UNNOTICED),
    probe("host_function.callback", "`cuMemAlloc` in a callback of `cuStreamAddCallback`", NOT_PERMITTED, in_callback)
        .or(UNNOTICED),
    probe("host_function.current", "`cuCtxGetCurrent` in a host function", NOT_PERMITTED, || {
        said(inside(|| {
            let mut context = 0_u64;
            cu!("cuCtxGetCurrent", &raw mut context)
        }))
    })
    .or(UNNOTICED),
    probe("host_function.error_name", "`cuGetErrorName` in a host function", SUCCESS, || {
        said(inside(|| {
            let mut name: *const u8 = std::ptr::null();
            cu!("cuGetErrorName", 1, &raw mut name)
        }))
    }),
    probe("host_function.order", "a host function between two fills", "runs between them", || {
        let (stream, memory) = (sim::stream(), sim::alloc_host(N));
        sim::fill(memory, 1, N, stream);
        let seen = inside_of(stream, move || {
            // SAFETY: the pinned memory is never freed, and the fill before this function is over.
            unsafe { (memory as *const u8).read_volatile() }
        });
        sim::fill(memory, 2, N, stream);
        sim::synchronize(stream);
        // SAFETY: the pinned memory is never freed, and the stream has finished both fills.
        let after = unsafe { (memory as *const u8).read_volatile() };
        if (seen, after) == (1, 2) { "runs between them".into() } else { format!("saw {seen}, then {after}") }
    }),
];

/// The result of `cuMemAlloc` in a callback, which gets more than a host function: stream and status.
fn in_callback() -> Answer {
    extern "C" fn callback(_stream: *mut c_void, _status: u32, data: *mut c_void) {
        let mut address = 0_u64;
        let code = cu!("cuMemAlloc_v2", &raw mut address, N);
        // SAFETY: `data` is a number that is never freed, and it is read only after the stream has finished.
        unsafe { data.cast::<u32>().write(code) };
    }
    let callback: extern "C" fn(*mut c_void, u32, *mut c_void) = callback;
    let (stream, code) = (sim::stream(), Box::into_raw(Box::new(7777_u32)));
    cu_ok!("cuStreamAddCallback", stream, callback as usize, code, 0);
    sim::synchronize(stream);
    // SAFETY: the number is never freed, and the stream has finished.
    said(unsafe { code.read() })
}

type Job<T> = (Box<dyn FnOnce() -> T + Send>, Sender<T>);

extern "C" fn run<T>(data: *mut c_void) {
    // SAFETY: `inside_of` passes the address of a leaked box, and the driver calls this function once.
    let job = unsafe { Box::from_raw(data.cast::<Job<T>>()) };
    let (act, done) = *job;
    let _ = done.send(act());
}

/// The result of `act`, called in a host function.
fn inside<T: Send>(act: impl FnOnce() -> T + Send + 'static) -> T {
    inside_of(sim::stream(), act)
}

fn inside_of<T: Send>(stream: u64, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    let job: Box<Job<T>> = Box::new((Box::new(act), done));
    let run: extern "C" fn(*mut c_void) = run::<T>;
    cu_ok!("cuLaunchHostFunc", stream, run as usize, Box::into_raw(job));
    sim::synchronize(stream);
    result.recv().expect("it has run")
}
