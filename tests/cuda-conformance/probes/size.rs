//! Allocations, copies and fills of 0 bytes, and allocations that are too large.

use devexchange_tests::{cu, cu_ok, sim};

use crate::answer::{Answer, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, said};
use crate::probe::{Probe, probe};
use crate::scene::{N, pageable};

/// 32 TiB.
const TOO_MUCH: u64 = 1 << 45;

pub(super) const PROBES: &[Probe] = &[
    probe("size.zero_alloc", "`cuMemAlloc` of 0 bytes", INVALID_VALUE, || alloc(0)),
    probe("size.zero_managed", "`cuMemAllocManaged` of 0 bytes", INVALID_VALUE, || managed(0)),
    probe("size.zero_alloc_host", "`cuMemAllocHost` of 0 bytes", SUCCESS, || {
        let mut address = 0_u64;
        said(cu!("cuMemAllocHost_v2", &raw mut address, 0))
    }),
    probe("size.zero_host_alloc", "`cuMemHostAlloc` of 0 bytes", SUCCESS, || host(0)),
    probe("size.zero_host_free", "`cuMemFreeHost` of what `cuMemHostAlloc` of 0 bytes gave", SUCCESS, || {
        let mut address = 0_u64;
        cu_ok!("cuMemHostAlloc", &raw mut address, 0, 0);
        said(cu!("cuMemFreeHost", address))
    })
    .or(&[INVALID_VALUE]),
    probe("size.zero_register", "`cuMemHostRegister` of 0 bytes", INVALID_VALUE, || {
        said(cu!("cuMemHostRegister_v2", pageable(4096).as_ptr(), 0, 0))
    }),
    probe("size.zero_async", "`cuMemAllocAsync` of 0 bytes", INVALID_VALUE, || alloc_async(0)),
    probe("size.zero_pool", "`cuMemAllocFromPoolAsync` of 0 bytes", INVALID_VALUE, || {
        let (mut pool, mut address) = (0_u64, 0_u64);
        cu_ok!("cuDeviceGetDefaultMemPool", &raw mut pool, 0);
        said(cu!("cuMemAllocFromPoolAsync", &raw mut address, 0, pool, sim::stream()))
    }),
    probe("size.zero_copy", "`cuMemcpyAsync` of 0 bytes", SUCCESS, || {
        let (a, b) = (sim::alloc(N), sim::alloc(N));
        said(cu!("cuMemcpyAsync", a, b, 0, sim::stream()))
    }),
    probe("size.zero_copy_null", "`cuMemcpyAsync` of 0 bytes between NULLs", SUCCESS, || {
        said(cu!("cuMemcpyAsync", 0, 0, 0, sim::stream()))
    })
    .or(&[INVALID_VALUE]),
    probe("size.zero_fill", "`cuMemsetD8Async` of 0 bytes", SUCCESS, || {
        said(cu!("cuMemsetD8Async", sim::alloc(N), 1, 0, sim::stream()))
    }),
    probe("size.huge_alloc", "`cuMemAlloc` of 32 TiB", OUT_OF_MEMORY, || alloc(TOO_MUCH)),
    probe("size.huge_managed", "`cuMemAllocManaged` of 32 TiB", OUT_OF_MEMORY, || managed(TOO_MUCH)),
    probe("size.huge_host", "`cuMemHostAlloc` of 32 TiB", OUT_OF_MEMORY, || host(TOO_MUCH)),
    probe("size.huge_async", "`cuMemAllocAsync` of 32 TiB", OUT_OF_MEMORY, || alloc_async(TOO_MUCH)),
    probe("size.alignment", "addresses of `cuMemAlloc` of 1 byte, three times", "multiples of 256", || {
        let odd = [(); 3].map(|()| sim::alloc(1)).into_iter().find(|address| address % 256 != 0);
        odd.map_or("multiples of 256".into(), |address| format!("{address:#x}"))
    }),
];

fn alloc(bytes: u64) -> Answer {
    let mut address = 0_u64;
    said(cu!("cuMemAlloc_v2", &raw mut address, bytes))
}

fn managed(bytes: u64) -> Answer {
    let mut address = 0_u64;
    said(cu!("cuMemAllocManaged", &raw mut address, bytes, 1))
}

fn host(bytes: u64) -> Answer {
    let mut address = 0_u64;
    said(cu!("cuMemHostAlloc", &raw mut address, bytes, 1))
}

fn alloc_async(bytes: u64) -> Answer {
    let mut address = 0_u64;
    said(cu!("cuMemAllocAsync", &raw mut address, bytes, sim::stream()))
}
