//! Copies and fills: when the call returns, which memory it takes, and which bytes arrive.

use devexchange_tests::{cu, cu_ok, sim};

use crate::answer::{Answer, INVALID_VALUE, SUCCESS, said, skipped};
use crate::probe::{Probe, probe};
use crate::scene::{Gate, LEGACY, N, all, blocking_stream, devices, elsewhere, pageable, returns, waits};

const SMALL: usize = 32 << 10;
const LARGE: usize = 4 << 20;
const AT_THE_CALL: &str = "as at the call";

pub(super) const PROBES: &[Probe] = &[
    probe(
        "transfer.pageable_source_small",
        "`cuMemcpyHtoDAsync` of 32 KiB pageable memory that is changed when it has returned",
        AT_THE_CALL,
        || changed_source(SMALL),
    ),
    probe("transfer.pageable_source_large", "the same of 4 MiB", AT_THE_CALL, || changed_source(LARGE)),
    probe(
        "transfer.pageable_upload_small",
        "`cuMemcpyHtoDAsync` of 32 KiB pageable memory on a busy stream",
        "returns at once",
        || upload(pageable(SMALL)),
    )
    .or(&["waits"]),
    probe("transfer.pageable_upload_large", "the same of 4 MiB", "returns at once", || upload(pageable(LARGE)))
        .or(&["waits"]),
    probe("transfer.pinned_upload", "the same of 4 MiB pinned memory", "returns at once", || upload(pinned(LARGE))),
    probe("transfer.pageable_download", "`cuMemcpyDtoHAsync` to pageable memory on a busy stream", "waits", || {
        let (gate, call) = download(pageable(SMALL));
        waits(&gate, call)
    }),
    probe("transfer.pinned_download", "the same to pinned memory", "returns at once", || {
        let (gate, call) = download(pinned(SMALL));
        returns(&gate, call)
    }),
    probe("transfer.any_download", "`cuMemcpyAsync` from device to pageable memory on a busy stream", "waits", || {
        let (stream, to, from) = (sim::stream(), pageable(SMALL).as_ptr() as u64, sim::alloc(SMALL as u64));
        let gate = Gate::on(stream);
        waits(&gate, move || cu!("cuMemcpyAsync", to, from, SMALL, stream))
    }),
    probe(
        "transfer.sync_fill",
        "`cuMemsetD8` of device memory, while a blocking stream is busy",
        "returns at once",
        || {
            let address = sim::alloc(N);
            let gate = Gate::on(blocking_stream());
            returns(&gate, move || cu!("cuMemsetD8_v2", address, 1, N))
        },
    )
    .or(&["waits"]),
    probe("transfer.sync_copy", "`cuMemcpyDtoD`, while a blocking stream is busy", "returns at once", || {
        let (to, from) = (sim::alloc(N), sim::alloc(N));
        let gate = Gate::on(blocking_stream());
        returns(&gate, move || cu!("cuMemcpyDtoD_v2", to, from, N))
    })
    .or(&["waits"]),
    probe("transfer.sync_download", "`cuMemcpyDtoH`, while a blocking stream is busy", "waits", || {
        let (to, from) = (pageable(SMALL).as_ptr() as u64, sim::alloc(N));
        let gate = Gate::on(blocking_stream());
        waits(&gate, move || cu!("cuMemcpyDtoH_v2", to, from, N))
    }),
    probe(
        "transfer.sync_download_apart",
        "`cuMemcpyDtoH`, while a non-blocking stream is busy",
        "returns at once",
        || {
            let (to, from) = (pageable(SMALL).as_ptr() as u64, sim::alloc(N));
            let gate = Gate::on(sim::stream());
            returns(&gate, move || cu!("cuMemcpyDtoH_v2", to, from, N))
        },
    ),
    probe("transfer.context_synchronize", "`cuCtxSynchronize`, while a non-blocking stream is busy", "waits", || {
        let gate = Gate::on(sim::stream());
        waits(&gate, || cu!("cuCtxSynchronize"))
    }),
    probe("transfer.past_the_end", "`cuMemsetD8Async` of one byte more than was allocated", INVALID_VALUE, || {
        said(cu!("cuMemsetD8Async", sim::alloc(1 << 20), 1, (1 << 20) + 1, sim::stream()))
    })
    // A real driver may recognise only unmapped memory.
    .or(&["success"]),
    probe("transfer.freed", "`cuMemsetD8Async` of memory that was freed", INVALID_VALUE, || {
        let address = sim::alloc(N);
        sim::free(address);
        said(cu!("cuMemsetD8Async", address, 1, N, sim::stream()))
    }),
    probe(
        "transfer.host_as_device",
        "`cuMemcpyDtoDAsync` from memory that CUDA knows nothing of",
        INVALID_VALUE,
        || {
            let (to, from) = (sim::alloc(N), pageable(SMALL).as_ptr());
            said(cu!("cuMemcpyDtoDAsync_v2", to, from, N, sim::stream()))
        },
    ),
    probe(
        "transfer.unaligned_fill",
        "`cuMemsetD32Async` at an address that is no multiple of 4",
        INVALID_VALUE,
        || said(cu!("cuMemsetD32Async", sim::alloc(N) + 2, 1, 4, sim::stream())),
    ),
    probe(
        "transfer.plain_to_another_device",
        "`cuMemcpyAsync` of memory of `cuMemAlloc` to another device, on a stream of that one",
        SUCCESS,
        || to_another_device(false, "cuMemcpyAsync"),
    ),
    // Source: NVIDIA's answer to bug 3446335, as reported by others: the peer functions copy pool memory to another device.
    probe(
        "transfer.pool_to_another_device",
        "the same of memory of `cuMemAllocAsync`, of a pool to which no other device has access",
        INVALID_VALUE,
        || to_another_device(true, "cuMemcpyAsync"),
    )
    .or(&[SUCCESS]),
    probe("transfer.pool_to_another_device_by_peer", "the same by `cuMemcpyPeerAsync`", SUCCESS, || {
        to_another_device(true, "cuMemcpyPeerAsync")
    }),
    probe(
        "transfer.plain_to_another_device_by_peer",
        "`cuMemcpyPeerAsync` of memory of `cuMemAlloc`, on a stream of the device that it is copied to",
        SUCCESS,
        || to_another_device(false, "cuMemcpyPeerAsync"),
    ),
    probe(
        "transfer.pool_let",
        "`cuMemcpyAsync` of memory of `cuMemAllocAsync` to another device that has access to the pool",
        SUCCESS,
        || {
            if devices() < 2 {
                return skipped("one device only");
            }
            let mut can = 0_i32;
            cu_ok!("cuDeviceCanAccessPeer", &raw mut can, 1, 0);
            if can == 0 {
                return skipped("the devices are no peers");
            }
            sim::let_at_pool(0, 1, true);
            to_another_device(true, "cuMemcpyAsync")
        },
    ),
    probe(
        "transfer.pool_download_elsewhere",
        "`cuMemcpyDtoHAsync` of memory of `cuMemAllocAsync` on a stream of another device",
        INVALID_VALUE,
        || {
            if devices() < 2 {
                return skipped("one device only");
            }
            let (from, to) = (from_pool(), pinned(N as usize));
            sim::set_current(sim::primary(1));
            said(cu!("cuMemcpyDtoHAsync_v2", to.as_ptr(), from, N, sim::stream()))
        },
    )
    .or(&[SUCCESS]),
];

/// Memory of the default pool, filled with 7.
fn from_pool() -> u64 {
    let (mut address, stream) = (0_u64, sim::stream());
    cu_ok!("cuMemAllocAsync", &raw mut address, N, stream);
    cu_ok!("cuMemsetD8Async", address, 7, N, stream);
    sim::synchronize(stream);
    address
}

/// The result of a copy from device 0 to device 1, with a note if other bytes arrive.
fn to_another_device(of_pool: bool, function: &str) -> Answer {
    if devices() < 2 {
        return skipped("one device only");
    }
    let here = sim::primary(0);
    let from = if of_pool { from_pool() } else { sim::alloc(N) };
    if !of_pool {
        cu_ok!("cuMemsetD8_v2", from, 7, N);
        cu_ok!("cuCtxSynchronize");
    }
    let there = sim::primary(1);
    sim::set_current(there);
    let (to, stream) = (sim::alloc(N), sim::stream());
    let code = match function {
        "cuMemcpyPeerAsync" => cu!("cuMemcpyPeerAsync", to, there, from, here, N, stream),
        _ => cu!("cuMemcpyAsync", to, from, N, stream),
    };
    if code == 0 && !all(&sim::download(to, N, stream), 7) {
        return "success, and the bytes are others".into();
    }
    said(code)
}

fn pinned(bytes: usize) -> &'static mut [u8] {
    let at = sim::alloc_host(bytes as u64);
    // SAFETY: the driver allocated this many bytes of host memory, which is never freed.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, bytes) }
}

fn upload(source: &'static [u8]) -> Answer {
    let (stream, to) = (sim::stream(), sim::alloc(source.len() as u64));
    let gate = Gate::on(stream);
    returns(&gate, move || cu!("cuMemcpyHtoDAsync_v2", to, source.as_ptr(), source.len(), stream))
}

/// A call that queues a download, and the gate on its stream.
fn download(target: &'static [u8]) -> (Gate, impl FnOnce() -> u32 + Send + 'static) {
    let (stream, from) = (sim::stream(), sim::alloc(target.len() as u64));
    let call = move || cu!("cuMemcpyDtoHAsync_v2", target.as_ptr(), from, target.len(), stream);
    (Gate::on(stream), call)
}

/// The bytes that arrive from pageable memory that is changed as soon as the call has returned. If the call does not wait, that
/// is before the stream runs the copy.
fn changed_source(bytes: usize) -> Answer {
    let (stream, to) = (sim::stream(), sim::alloc(bytes as u64));
    let source = pageable(bytes);
    source.fill(1);
    let gate = Gate::on(stream);
    let from = source.as_ptr() as u64;
    let call = elsewhere(move || cu_ok!("cuMemcpyHtoDAsync_v2", to, from, bytes, stream));
    if call.recv_timeout(std::time::Duration::from_millis(150)).is_err() {
        gate.open();
        call.recv().expect("the call returns");
    }
    source.fill(2);
    gate.open();
    sim::synchronize(stream);
    let seen = sim::download(to, bytes as u64, LEGACY);
    if all(&seen, 1) { AT_THE_CALL } else { "as it was changed" }.into()
}
