//! Which memory can be freed or registered, and which work a free waits for.

use devexchange_tests::{cu, cu_ok, sim};

use crate::answer::{Answer, INVALID_VALUE, SUCCESS, said};
use crate::probe::{Probe, probe};
use crate::scene::{Gate, N, alloc_async, managed, pageable, returns};

const STRICT: &str = "a client must not rely on the wait, so a free of memory in use is a race; SIMCUDA_FREE=waits";
const REGISTERED: &str = "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED (712)";
const NOT_REGISTERED: &str = "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED (713)";

pub(super) const PROBES: &[Probe] = &[
    probe("free.null", "`cuMemFree(0)`", SUCCESS, || free(0)),
    // Source: driver 590.48, as reported in github.com/lupinemachines/lupine.
    probe("free.null_host", "`cuMemFreeHost(NULL)`", SUCCESS, || free_host(0)),
    probe("free.null_unregister", "`cuMemHostUnregister(NULL)`", INVALID_VALUE, || said(cu!("cuMemHostUnregister", 0))),
    probe("free.null_async", "`cuMemFreeAsync(0)`", INVALID_VALUE, || free_async(0)).or(&[SUCCESS]),
    probe("free.interior", "`cuMemFree` of a pointer into the middle", INVALID_VALUE, || free(sim::alloc(N) + 16)),
    probe("free.twice", "`cuMemFree` twice", INVALID_VALUE, || {
        let address = sim::alloc(N);
        sim::free(address);
        free(address)
    }),
    probe("free.host_memory", "`cuMemFree` of memory that CUDA knows nothing of", INVALID_VALUE, || {
        free(pageable(4096).as_ptr() as u64)
    }),
    probe("free.pinned", "`cuMemFree` of pinned memory", INVALID_VALUE, || free(sim::alloc_host(N))),
    probe("free.managed", "`cuMemFree` of managed memory", SUCCESS, || free(managed())),
    probe("free.pool", "`cuMemFree` of memory of `cuMemAllocAsync`", SUCCESS, || {
        let stream = sim::stream();
        let address = alloc_async(stream);
        sim::synchronize(stream);
        free(address)
    }),
    probe("free.pinned_interior", "`cuMemFreeHost` of a pointer into the middle", INVALID_VALUE, || {
        free_host(sim::alloc_host(N) + 16)
    }),
    probe("free.pinned_twice", "`cuMemFreeHost` twice", INVALID_VALUE, || {
        let address = sim::alloc_host(N);
        cu_ok!("cuMemFreeHost", address);
        free_host(address)
    }),
    probe("free.device_as_pinned", "`cuMemFreeHost` of device memory", INVALID_VALUE, || free_host(sim::alloc(N))),
    probe("free.async_of_plain", "`cuMemFreeAsync` of memory of `cuMemAlloc`", SUCCESS, || free_async(sim::alloc(N)))
        .or(&[INVALID_VALUE]),
    probe("free.async_interior", "`cuMemFreeAsync` of a pointer into the middle", INVALID_VALUE, || {
        free_async(alloc_async(sim::stream()) + 16)
    }),
    probe("free.async_twice", "`cuMemFreeAsync` twice", INVALID_VALUE, || {
        let stream = sim::stream();
        let address = alloc_async(stream);
        cu_ok!("cuMemFreeAsync", address, stream);
        said(cu!("cuMemFreeAsync", address, stream))
    }),
    probe("free.async_pinned", "`cuMemFreeAsync` of pinned memory", INVALID_VALUE, || free_async(sim::alloc_host(N))),
    probe("free.async_managed", "`cuMemFreeAsync` of managed memory", INVALID_VALUE, || free_async(managed())),
    probe("free.async_host", "`cuMemFreeAsync` of memory that CUDA knows nothing of", INVALID_VALUE, || {
        free_async(pageable(4096).as_ptr() as u64)
    }),
    probe("free.async_use_before", "work queued before `cuMemFreeAsync` on the same stream", "sees the memory", || {
        let (stream, copy) = (sim::stream(), sim::alloc(N));
        let gate = Gate::on(stream);
        let address = alloc_async(stream);
        sim::fill(address, 7, N, stream);
        sim::copy(copy, address, N, stream);
        cu_ok!("cuMemFreeAsync", address, stream);
        gate.open();
        let seen = sim::download(copy, N, stream);
        if crate::scene::all(&seen, 7) { "sees the memory" } else { "sees something else" }.into()
    }),
    probe("free.async_use_after", "`cuMemsetD8Async` after `cuMemFreeAsync` on the same stream", INVALID_VALUE, || {
        let stream = sim::stream();
        let address = alloc_async(stream);
        cu_ok!("cuMemFreeAsync", address, stream);
        said(cu!("cuMemsetD8Async", address, 1, N, stream))
    })
    // The pool keeps the memory mapped, and a real driver need not check.
    .or(&[SUCCESS]),
    probe("free.async_other_stream", "`cuMemFreeAsync` on another stream, made to wait by an event", SUCCESS, || {
        let (stream, other, event) = (sim::stream(), sim::stream(), sim::event());
        let address = alloc_async(stream);
        sim::fill(address, 7, N, stream);
        cu_ok!("cuEventRecord", event, stream);
        cu_ok!("cuStreamWaitEvent", other, event, 0);
        let code = cu!("cuMemFreeAsync", address, other);
        sim::synchronize(other);
        said(code)
    }),
    probe("free.waits", "`cuMemFree` while a stream is busy", "waits", || {
        let address = sim::alloc(N);
        busy(move || cu!("cuMemFree_v2", address))
    })
    .simulated("returns at once", STRICT)
    .or(&["returns at once"]),
    probe("free.waits_pinned", "`cuMemFreeHost` while a stream is busy", "waits", || {
        let address = sim::alloc_host(N);
        busy(move || cu!("cuMemFreeHost", address))
    })
    .simulated("returns at once", STRICT)
    .or(&["returns at once"]),
    probe("free.waits_registered", "`cuMemHostUnregister` while a stream is busy", "waits", || {
        let address = pageable(4096).as_ptr() as u64;
        cu_ok!("cuMemHostRegister_v2", address, 4096, 0);
        busy(move || cu!("cuMemHostUnregister", address))
    })
    .simulated("returns at once", STRICT)
    .or(&["returns at once"]),
    probe(
        "free.waits_pool",
        "`cuMemFree` of memory of `cuMemAllocAsync` while a stream is busy",
        "returns at once",
        || {
            let stream = sim::stream();
            let address = alloc_async(stream);
            sim::synchronize(stream);
            busy(move || cu!("cuMemFree_v2", address))
        },
    )
    .or(&["waits"]),
    probe("free.waits_async", "`cuMemFreeAsync` on a stream that is busy", "returns at once", || {
        let stream = sim::stream();
        let address = alloc_async(stream);
        let gate = Gate::on(stream);
        returns(&gate, move || cu!("cuMemFreeAsync", address, stream))
    }),
    probe("free.alloc_waits", "`cuMemAlloc` while a stream is busy", "returns at once", || {
        busy(|| {
            let mut address = 0_u64;
            cu!("cuMemAlloc_v2", &raw mut address, N)
        })
    }),
    probe("free.register_twice", "`cuMemHostRegister` twice", REGISTERED, || {
        let address = pageable(4096).as_ptr();
        cu_ok!("cuMemHostRegister_v2", address, 4096, 0);
        said(cu!("cuMemHostRegister_v2", address, 4096, 0))
    }),
    probe("free.register_pinned", "`cuMemHostRegister` of pinned memory", REGISTERED, || {
        said(cu!("cuMemHostRegister_v2", sim::alloc_host(4096), 4096, 0))
    })
    .or(&[INVALID_VALUE]),
    probe("free.unregister_unknown", "`cuMemHostUnregister` of memory that was not registered", NOT_REGISTERED, || {
        said(cu!("cuMemHostUnregister", pageable(4096).as_ptr()))
    }),
    // Source, also for the next three: driver 590.48, as reported in github.com/lupinemachines/lupine.
    probe("free.unregister_pinned", "`cuMemHostUnregister` of memory of `cuMemHostAlloc`", INVALID_VALUE, || {
        said(cu!("cuMemHostUnregister", sim::alloc_host(4096)))
    }),
    probe("free.register_interior", "`cuMemHostRegister` of a page of memory that is registered", REGISTERED, || {
        let address = pageable(8192).as_ptr() as u64;
        cu_ok!("cuMemHostRegister_v2", address, 8192, 0);
        said(cu!("cuMemHostRegister_v2", address + 4096, 4096, 0))
    }),
    probe("free.register_unaligned", "`cuMemHostRegister` of memory that begins inside of a page", SUCCESS, || {
        said(cu!("cuMemHostRegister_v2", pageable(8192).as_ptr() as u64 + 24, 100, 2))
    }),
    probe("free.host_flags", "`cuMemHostGetFlags` of memory of `cuMemHostAlloc` without flags", "2 (mapped)", || {
        let (mut address, mut flags) = (0_u64, 9_u32);
        cu_ok!("cuMemHostAlloc", &raw mut address, N, 0);
        match cu!("cuMemHostGetFlags", &raw mut flags, address) {
            0 if flags == 2 => "2 (mapped)".into(),
            0 => flags.to_string(),
            code => said(code),
        }
    }),
    probe("free.unregister_interior", "`cuMemHostUnregister` of a pointer into the middle", NOT_REGISTERED, || {
        let address = pageable(8192).as_ptr() as u64;
        cu_ok!("cuMemHostRegister_v2", address, 8192, 0);
        said(cu!("cuMemHostUnregister", address + 4096))
    })
    .or(&[INVALID_VALUE]),
];

fn free(address: u64) -> Answer {
    said(cu!("cuMemFree_v2", address))
}

fn free_host(address: u64) -> Answer {
    said(cu!("cuMemFreeHost", address))
}

fn free_async(address: u64) -> Answer {
    said(cu!("cuMemFreeAsync", address, sim::stream()))
}

/// Whether a call waits for the work of an unrelated stream.
fn busy(act: impl FnOnce() -> u32 + Send + 'static) -> Answer {
    let gate = Gate::on(sim::stream());
    returns(&gate, act)
}
