//! The end of a process, `fork`, and errors that break a context.

use std::sync::Mutex;

use devexchange_tests::{cu, cu_ok, sim};

use crate::answer::{Answer, DEINITIALIZED, NOT_INITIALIZED, SUCCESS, all_said, said};
use crate::probe::{ANSWER, Probe, probe};
use crate::scene::{N, start};

const NO_KERNELS: &str = "it runs no kernels; faults are injected instead";
const LATE: &str = "it ends after all exit handlers; a test that needs an earlier end calls `simcuda_deinit`";

pub(super) const PROBES: &[Probe] = &[
    probe(
        "process.exit_handler_early",
        "`cuStreamQuery` in an exit handler that was registered before `cuInit`",
        DEINITIALIZED,
        || {
            at_exit();
            in_exit_handler()
        },
    )
    .simulated(SUCCESS, LATE)
    .or(&[SUCCESS])
    .bare(),
    probe(
        "process.exit_handler_late",
        "`cuStreamQuery` in an exit handler that was registered after `cuInit`",
        SUCCESS,
        || {
            start();
            at_exit();
            in_exit_handler()
        },
    )
    .or(&[DEINITIALIZED])
    .bare(),
    probe(
        "process.fork",
        "`cuInit`, `cuMemAlloc`, `cuStreamQuery`, `cuEventQuery`, `cuMemFree` in a child of `fork`",
        NOT_INITIALIZED,
        || {
            let (stream, event, memory) = (sim::stream(), sim::event(), sim::alloc(N));
            in_fork(&[
                ("cuInit", &|| cu!("cuInit", 0)),
                ("cuMemAlloc", &|| {
                    let mut address = 0_u64;
                    cu!("cuMemAlloc_v2", &raw mut address, N)
                }),
                ("cuStreamQuery", &|| cu!("cuStreamQuery", stream)),
                ("cuEventQuery", &|| cu!("cuEventQuery", event)),
                ("cuMemFree", &|| cu!("cuMemFree_v2", memory)),
            ])
        },
    ),
    probe(
        "process.fork_parent",
        "`cuMemFree` in the parent after a `fork` whose child used the driver",
        SUCCESS,
        || {
            let memory = sim::alloc(N);
            in_fork(&[("cuMemFree", &|| cu!("cuMemFree_v2", memory))]);
            said(cu!("cuMemFree_v2", memory))
        },
    ),
    probe("process.fork_early", "`cuInit` in a child that forked before its parent called it", SUCCESS, || {
        // Loads the driver in the parent.
        assert!(sim::cuda().has("cuInit"));
        in_fork(&[("cuInit", &|| cu!("cuInit", 0))])
    })
    .bare(),
    probe("process.sticky_700", "calls after a kernel wrote to address 0", "CUDA_ERROR_ILLEGAL_ADDRESS (700)", || {
        after_kernel("poke")
    })
    .not_modelled(NO_KERNELS),
    probe("process.sticky_719", "calls after a kernel executed `trap`", "CUDA_ERROR_LAUNCH_FAILED (719)", || {
        after_kernel("fall")
    })
    .not_modelled(NO_KERNELS),
    probe(
        "process.sticky_unaffected",
        "`cuCtxGetCurrent` and `cuGetErrorName` after a kernel wrote to address 0",
        SUCCESS,
        || {
            run_kernel("poke");
            cu!("cuCtxSynchronize");
            let (mut context, mut name): (u64, *const u8) = (0, std::ptr::null());
            all_said(&[
                ("cuCtxGetCurrent", said(cu!("cuCtxGetCurrent", &raw mut context))),
                ("cuGetErrorName", said(cu!("cuGetErrorName", 700, &raw mut name))),
            ])
        },
    )
    .not_modelled(NO_KERNELS),
];

/// The stream that the exit handler asks about.
static STREAM: Mutex<u64> = Mutex::new(0);

extern "C" fn at_the_end() {
    let stream = STREAM.lock().map_or(0, |stream| *stream);
    println!("{ANSWER}{}", said(cu!("cuStreamQuery", stream)));
}

fn at_exit() {
    // SAFETY: the handler uses only things that live as long as the process.
    unsafe { libc::atexit(at_the_end) };
}

/// The answer if the exit handler does not run. The handler prints its own answer, and the last one that is printed counts.
fn in_exit_handler() -> Answer {
    start();
    let stream = sim::stream();
    // Without pending work, the answer depends only on the state of the driver.
    sim::synchronize(stream);
    *STREAM.lock().expect("nobody panicked") = stream;
    "the exit handler did not run".into()
}

type Call<'a> = (&'static str, &'a dyn Fn() -> u32);

/// The results of calls in a child of `fork`.
fn in_fork(calls: &[Call<'_>]) -> Answer {
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: the child only calls the driver, which is the question, and `write`, and ends without running exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for (_, call) in calls {
            let code = call().to_ne_bytes();
            // SAFETY: `code` has four bytes.
            unsafe { libc::write(pipe[1], code.as_ptr().cast(), 4) };
        }
        // SAFETY: `_exit` has no preconditions.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: this function opened the descriptor and does not use it again.
    unsafe { libc::close(pipe[1]) };
    let mut answers = Vec::new();
    for (name, _) in calls {
        let mut code = [0_u8; 4];
        // SAFETY: `code` has room for four bytes.
        let read = unsafe { libc::read(pipe[0], code.as_mut_ptr().cast(), 4) };
        let answer = if read == 4 { said(u32::from_ne_bytes(code)) } else { "the child died".to_owned() };
        answers.push((*name, answer));
    }
    // SAFETY: `child` is a child of this process, and `waitpid` takes NULL for the status.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    all_said(&answers)
}

/// Kernels that fail, for devices of compute capability 7.0 or newer.
const PTX: &str = "\
.version 6.4
.target sm_70
.address_size 64
.visible .entry poke() {
  .reg .b64 %at;
  .reg .b32 %value;
  mov.u64 %at, 0;
  mov.u32 %value, 1;
  st.global.u32 [%at], %value;
  ret;
}
.visible .entry fall() {
  trap;
  ret;
}
\0";

fn run_kernel(name: &str) {
    type Launch = unsafe extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, *const u8, *const u8) -> u32;
    let (mut module, mut function) = (0_u64, 0_u64);
    let name = std::ffi::CString::new(name).expect("no NUL");
    cu_ok!("cuModuleLoadData", &raw mut module, PTX.as_ptr());
    cu_ok!("cuModuleGetFunction", &raw mut function, module, name.as_ptr());
    // SAFETY: `Launch` is the type of this function in `cuda.h`.
    let launch: Launch = unsafe { sim::cuda().function("cuLaunchKernel") };
    // SAFETY: the kernel has no parameters.
    let code = unsafe { launch(function, 1, 1, 1, 1, 1, 1, 0, 0, std::ptr::null(), std::ptr::null()) };
    assert_eq!(code, 0, "cuLaunchKernel");
}

/// The results of calls after a kernel has broken the context.
fn after_kernel(name: &str) -> Answer {
    let (stream, event, memory, pinned) = (sim::stream(), sim::event(), sim::alloc(N), sim::alloc_host(N));
    run_kernel(name);
    let (mut address, mut kind, mut fresh) = (0_u64, 0_u32, 0_u64);
    all_said(&[
        ("cuCtxSynchronize", said(cu!("cuCtxSynchronize"))),
        ("cuStreamSynchronize", said(cu!("cuStreamSynchronize", stream))),
        ("cuEventQuery", said(cu!("cuEventQuery", event))),
        ("cuEventRecord", said(cu!("cuEventRecord", event, stream))),
        ("cuEventCreate", said(cu!("cuEventCreate", &raw mut fresh, 2))),
        ("cuPointerGetAttribute", said(cu!("cuPointerGetAttribute", &raw mut kind, 2, memory))),
        ("cuMemAlloc", said(cu!("cuMemAlloc_v2", &raw mut address, N))),
        ("cuMemFree", said(cu!("cuMemFree_v2", memory))),
        ("cuMemFreeHost", said(cu!("cuMemFreeHost", pinned))),
        ("cuEventDestroy", said(cu!("cuEventDestroy_v2", event))),
        ("cuStreamDestroy", said(cu!("cuStreamDestroy_v2", stream))),
    ])
}
