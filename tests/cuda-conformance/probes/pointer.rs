//! What a driver knows about a pointer.

use std::io::{BufRead, Write};
use std::process::Stdio;

use devexchange_tests::{cu, cu_ok, sim};

use crate::answer::{Answer, INVALID_CONTEXT, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, all_said, said};
use crate::probe::{Probe, again, probe};
use crate::scene::{LEGACY, N, all, alloc_async, managed, pageable, second_context};

const DEVICE: &str = "device memory of device 0, at +0 of 256 bytes, context: the current one";
const OF_POOL: &str = "device memory of device 0, at +0 of 256 bytes, context: none";
const OF_POOL_RANGE: &str = "device memory of device 0, at +4096 of 8448 bytes, context: none";
const POOL_RANGE: &str = "the range is that of `cuMemAddressReserve`, so a client must not rely on it";
/// The call succeeds with a neutral value for each attribute.
const NOTHING: &str = "success: type 0, device -2, managed 0, start NULL, 0 bytes";

pub(super) const PROBES: &[Probe] = &[
    probe("pointer.device", "attributes of device memory", DEVICE, || what_is(sim::alloc(N))),
    probe(
        "pointer.interior",
        "attributes of a pointer into the middle of it",
        "device memory of device 0, at +16 of 256 bytes, context: the current one",
        || what_is(sim::alloc(N) + 16),
    ),
    probe("pointer.past_the_end", "attributes of the first byte after it", INVALID_VALUE, || {
        what_is(sim::alloc(N) + N)
    }),
    probe("pointer.freed", "attributes of it after `cuMemFree`", INVALID_VALUE, || {
        let address = sim::alloc(N);
        sim::free(address);
        what_is(address)
    }),
    probe(
        "pointer.other_context",
        "attributes of memory of a context that is not current",
        "device memory of device 0, at +0 of 256 bytes, context: another one",
        || {
            let address = sim::alloc(N);
            second_context();
            what_is(address)
        },
    ),
    probe(
        "pointer.pinned",
        "attributes of memory of `cuMemHostAlloc`",
        "host memory of device 0, at +0 of 256 bytes, context: the current one",
        || what_is(sim::alloc_host(N)),
    ),
    probe("pointer.pinned_freed", "attributes of it after `cuMemFreeHost`", INVALID_VALUE, || {
        let address = sim::alloc_host(N);
        cu_ok!("cuMemFreeHost", address);
        what_is(address)
    }),
    probe(
        "pointer.registered",
        "attributes of memory of `cuMemHostRegister`, in the middle",
        "host memory of device 0, at +16 of 8192 bytes, context: the current one",
        || {
            let memory = pageable(8192);
            cu_ok!("cuMemHostRegister_v2", memory.as_ptr(), 8192, 0);
            what_is(memory.as_ptr() as u64 + 16)
        },
    ),
    probe("pointer.unregistered", "attributes of it after `cuMemHostUnregister`", INVALID_VALUE, || {
        let memory = pageable(8192);
        cu_ok!("cuMemHostRegister_v2", memory.as_ptr(), 8192, 0);
        cu_ok!("cuMemHostUnregister", memory.as_ptr());
        what_is(memory.as_ptr() as u64)
    }),
    probe(
        "pointer.managed",
        "attributes of managed memory",
        "managed device memory of device 0, at +0 of 256 bytes, context: the current one",
        || what_is(managed()),
    ),
    probe("pointer.host", "attributes of memory that CUDA knows nothing of", INVALID_VALUE, || {
        what_is(pageable(4096).as_ptr() as u64)
    }),
    probe("pointer.null", "attributes of NULL", INVALID_VALUE, || what_is(0)),
    probe("pointer.pool", "attributes of memory of `cuMemAllocAsync`", OF_POOL, || {
        let stream = sim::stream();
        let address = alloc_async(stream);
        sim::synchronize(stream);
        what_is(address)
    })
    .simulated(OF_POOL_RANGE, POOL_RANGE),
    probe("pointer.pool_pending", "the same before the stream got there", OF_POOL, || {
        let stream = sim::stream();
        let _gate = crate::scene::Gate::on(stream);
        what_is(alloc_async(stream))
    })
    .simulated(OF_POOL_RANGE, POOL_RANGE),
    probe(
        "pointer.pool_range",
        "`cuMemGetAddressRange` of a pointer into the middle of it",
        "from the start, 256 bytes",
        || range(alloc_async(sim::stream()), 16),
    ),
    probe(
        "pointer.pool_freed",
        "attributes of it after `cuMemFreeAsync` and the end of the stream",
        INVALID_VALUE,
        || {
            let stream = sim::stream();
            let address = alloc_async(stream);
            cu_ok!("cuMemFreeAsync", address, stream);
            sim::synchronize(stream);
            what_is(address)
        },
    )
    // The pool may keep the memory mapped.
    .or(&[OF_POOL]),
    probe("pointer.pool_handle", "`MEMPOOL_HANDLE` of memory of the default pool", "the default pool", || {
        let stream = sim::stream();
        let (mut pool, mut default) = (0_u64, 1_u64);
        cu_ok!("cuDeviceGetDefaultMemPool", &raw mut default, 0);
        match cu!("cuPointerGetAttribute", &raw mut pool, 17, alloc_async(stream)) {
            0 if pool == default => "the default pool".into(),
            0 => "another pool".into(),
            code => said(code),
        }
    }),
    probe("pointer.pool_handle_none", "`MEMPOOL_HANDLE` of memory of `cuMemAlloc`", "NULL", || {
        let mut pool = 1_u64;
        match cu!("cuPointerGetAttribute", &raw mut pool, 17, sim::alloc(N)) {
            0 if pool == 0 => "NULL".into(),
            0 => "a pool".into(),
            code => said(code),
        }
    }),
    probe("pointer.host_address_device", "`HOST_POINTER` of device memory", INVALID_VALUE, || {
        let mut host = 0_u64;
        said(cu!("cuPointerGetAttribute", &raw mut host, 4, sim::alloc(N)))
    }),
    probe("pointer.device_address_pinned", "`DEVICE_POINTER` of pinned memory", "the same address", || {
        let (mut device, host) = (0_u64, sim::alloc_host(N));
        match cu!("cuPointerGetAttribute", &raw mut device, 3, host) {
            0 if device == host => "the same address".into(),
            0 => "another address".into(),
            code => said(code),
        }
    }),
    probe("pointer.buffer_id", "`BUFFER_ID` of memory that was freed and allocated again", "another number", || {
        let id = |address: u64| {
            let mut id = 0_u64;
            cu_ok!("cuPointerGetAttribute", &raw mut id, 7, address);
            sim::free(address);
            id
        };
        if id(sim::alloc(N)) == id(sim::alloc(N)) { "the same number" } else { "another number" }.into()
    }),
    probe(
        "pointer.all_device",
        "`cuPointerGetAttributes` of device memory",
        "success: type 2, device 0, managed 0, at +0 of 256 bytes",
        || all_of(sim::alloc(N)),
    ),
    probe(
        "pointer.all_interior",
        "`cuPointerGetAttributes` into the middle of it",
        "success: type 2, device 0, managed 0, at +16 of 256 bytes",
        || all_of(sim::alloc(N) + 16),
    ),
    probe("pointer.all_freed", "`cuPointerGetAttributes` of it after `cuMemFree`", NOTHING, || {
        let address = sim::alloc(N);
        sim::free(address);
        all_of(address)
    }),
    probe(
        "pointer.all_pinned",
        "`cuPointerGetAttributes` of pinned memory",
        "success: type 1, device 0, managed 0, at +0 of 256 bytes",
        || all_of(sim::alloc_host(N)),
    ),
    probe(
        "pointer.all_managed",
        "`cuPointerGetAttributes` of managed memory",
        "success: type 2, device 0, managed 1, at +0 of 256 bytes",
        || all_of(managed()),
    ),
    probe("pointer.all_host", "`cuPointerGetAttributes` of memory that CUDA knows nothing of", NOTHING, || {
        all_of(pageable(4096).as_ptr() as u64)
    }),
    probe("pointer.all_null", "`cuPointerGetAttributes` of NULL", NOTHING, || all_of(0)),
    probe(
        "pointer.all_pool",
        "`cuPointerGetAttributes` of memory of `cuMemAllocAsync`",
        "success: type 2, device 0, managed 0, at +0 of 256 bytes",
        || all_of(alloc_async(sim::stream())),
    )
    .simulated("success: type 2, device 0, managed 0, at +4096 of 8448 bytes", POOL_RANGE),
    probe("pointer.all_unknown", "`cuPointerGetAttributes` with attribute 9999", INVALID_VALUE, || {
        let mut value = 0_u64;
        let (attribute, place) = (9999_u32, &raw mut value);
        said(cu!("cuPointerGetAttributes", 1, &raw const attribute, &raw const place, sim::alloc(N)))
    }),
    probe("pointer.range", "`cuMemGetAddressRange` of a pointer into the middle", "from the start, 256 bytes", || {
        range(sim::alloc(N), 16)
    }),
    probe("pointer.range_freed", "`cuMemGetAddressRange` of freed memory", NOT_FOUND, || {
        let address = sim::alloc(N);
        sim::free(address);
        range(address, 0)
    })
    .or(&[INVALID_VALUE]),
    probe("pointer.range_host", "`cuMemGetAddressRange` of memory that CUDA knows nothing of", NOT_FOUND, || {
        range(pageable(4096).as_ptr() as u64, 0)
    })
    .or(&[INVALID_VALUE]),
    probe(
        "pointer.imported",
        "attributes of memory of another process (`cuIpcOpenMemHandle`)",
        "device memory of device 0, at +0 of 256 bytes, context: the current one",
        || imported(what_is),
    )
    .or(&[NOT_SUPPORTED]),
    probe("pointer.imported_closed", "attributes of it after `cuIpcCloseMemHandle`", INVALID_VALUE, || {
        imported(|address| {
            cu_ok!("cuIpcCloseMemHandle", address);
            what_is(address)
        })
    })
    .or(&[NOT_SUPPORTED]),
    probe("pointer.imported_free", "`cuMemFree` of it", INVALID_VALUE, || {
        imported(|address| said(cu!("cuMemFree_v2", address)))
    })
    .or(&[NOT_SUPPORTED]),
    probe(
        "pointer.imported_small",
        "the contents of two small allocations of another process that are open at once",
        "each its own",
        || {
            imported_all(|small: [u64; 2]| match small.map(|address| sim::download(address, N, LEGACY)) {
                [one, two] if all(&one, 1) && all(&two, 2) => "each its own".into(),
                [one, two] => format!("begin with {} and {}", one[0], two[0]),
            })
        },
    )
    .or(&[NOT_SUPPORTED]),
    probe("pointer.imported_by_itself", "`cuIpcOpenMemHandle` in the process that exported", INVALID_CONTEXT, || {
        let mut handle = Handle([0; 64]);
        match cu!("cuIpcGetMemHandle", &raw mut handle, sim::alloc(N)) {
            0 => said(open(handle).0),
            code => said(code),
        }
    })
    .or(&[NOT_SUPPORTED, INVALID_VALUE]),
    probe("pointer.export_pool", "`cuIpcGetMemHandle` of memory of the default pool", INVALID_VALUE, || {
        let mut handle = Handle([0; 64]);
        said(cu!("cuIpcGetMemHandle", &raw mut handle, alloc_async(sim::stream())))
    })
    .or(&[NOT_SUPPORTED]),
];

/// The attributes of a pointer, queried one by one.
fn what_is(address: u64) -> Answer {
    let (mut kind, mut managed, mut device) = (0_u32, 0_u32, -9_i32);
    let (mut start, mut bytes, mut context) = (0_u64, 0_u64, 0_u64);
    let codes = [
        ("type", cu!("cuPointerGetAttribute", &raw mut kind, 2, address)),
        ("managed", cu!("cuPointerGetAttribute", &raw mut managed, 8, address)),
        ("device", cu!("cuPointerGetAttribute", &raw mut device, 9, address)),
        ("start", cu!("cuPointerGetAttribute", &raw mut start, 11, address)),
        ("size", cu!("cuPointerGetAttribute", &raw mut bytes, 12, address)),
        ("context", cu!("cuPointerGetAttribute", &raw mut context, 1, address)),
    ];
    if codes.iter().any(|(_, code)| *code != 0) {
        return all_said(&codes.map(|(name, code)| (name, said(code))));
    }
    let kind = match kind {
        1 => "host".to_owned(),
        2 => "device".to_owned(),
        other => format!("type {other}"),
    };
    let managed = if managed == 0 { "" } else { "managed " };
    let context = match context {
        0 => "none",
        context if context == sim::current() => "the current one",
        _ => "another one",
    };
    let offset = address.wrapping_sub(start).cast_signed();
    format!("{managed}{kind} memory of device {device}, at {offset:+} of {bytes} bytes, context: {context}")
}

/// The attributes of a pointer that the core queries, in a single call like that of the core.
fn all_of(address: u64) -> Answer {
    let (mut kind, mut managed, mut device, mut start, mut bytes) = (9_u32, 9_u32, 9_i32, 9_u64, 9_u64);
    let mut pool = 9_u64;
    let attributes = [2_u32, 8, 9, 11, 12, 17];
    let places: [*mut u8; 6] = [
        (&raw mut kind).cast(),
        (&raw mut managed).cast(),
        (&raw mut device).cast(),
        (&raw mut start).cast(),
        (&raw mut bytes).cast(),
        (&raw mut pool).cast(),
    ];
    let code = cu!("cuPointerGetAttributes", 6, attributes.as_ptr(), places.as_ptr(), address);
    if code != 0 {
        return said(code);
    }
    let place = match start {
        0 => format!("start NULL, {bytes} bytes"),
        _ => format!("at {:+} of {bytes} bytes", address.wrapping_sub(start).cast_signed()),
    };
    // A driver may write `managed` as a boolean of one byte.
    format!("success: type {kind}, device {device}, managed {}, {place}", managed & 0xff)
}

fn range(start: u64, offset: u64) -> Answer {
    let (mut base, mut bytes) = (0_u64, 0_u64);
    match cu!("cuMemGetAddressRange_v2", &raw mut base, &raw mut bytes, start + offset) {
        0 if base == start => format!("from the start, {bytes} bytes"),
        0 => format!("from {:+}, {bytes} bytes", base.wrapping_sub(start).cast_signed()),
        code => said(code),
    }
}

/// `CUipcMemHandle`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Handle([u8; 64]);

fn open(handle: Handle) -> (u32, u64) {
    type Open = unsafe extern "C" fn(*mut u64, Handle, u32) -> u32;
    let mut address = 0_u64;
    // SAFETY: `Open` is the type of this function in `cuda.h`.
    let open: Open = unsafe { sim::cuda().function("cuIpcOpenMemHandle_v2") };
    // SAFETY: the output is a place for an address, and the handle is passed by value.
    (unsafe { open(&raw mut address, handle, 1) }, address)
}

/// Imports memory of another process and asks about it. The other process keeps the memory until there is an answer.
fn imported(ask: impl FnOnce(u64) -> Answer) -> Answer {
    imported_all(|[address]| ask(address))
}

/// Like [`imported`], for several allocations, all of which are open at once.
fn imported_all<const K: usize>(ask: impl FnOnce([u64; K]) -> Answer) -> Answer {
    let mut exporter = again(&sim::cuda().path);
    exporter.args(["--role", "export"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut exporter = exporter.spawn().expect("run this program");
    let mut lines = std::io::BufReader::new(exporter.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut addresses = [0; K];
    let opened = addresses.iter_mut().try_for_each(|address| {
        let line = lines.find_map(|line| Some(line.strip_prefix("handle ")?.to_owned()));
        let line = line.expect("the exporter says something");
        let code = match line.split_once(' ') {
            Some(("0", hex)) => {
                let mut handle = Handle([0; 64]);
                for (at, byte) in handle.0.iter_mut().enumerate() {
                    *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("two digits");
                }
                let code;
                (code, *address) = open(handle);
                code
            }
            other => other.expect("a code").0.parse().expect("a number"),
        };
        if code == 0 { Ok(()) } else { Err(said(code)) }
    });
    let answer = opened.map_or_else(|refused| refused, |()| ask(addresses));
    // The exporter ends with its input.
    drop(exporter.stdin.take());
    let _ = exporter.wait();
    answer
}

/// The other process: exports two allocations, filled with 1 and 2, and keeps them until its input ends.
pub(super) fn export() {
    crate::scene::start();
    for byte in [1, 2] {
        let (mut handle, address) = (Handle([0; 64]), sim::alloc(N));
        sim::fill(address, byte, N, LEGACY);
        sim::synchronize(LEGACY);
        let code = cu!("cuIpcGetMemHandle", &raw mut handle, address);
        let hex: String = handle.0.iter().map(|byte| format!("{byte:02x}")).collect();
        println!("handle {code} {hex}");
    }
    let _ = std::io::stdout().flush();
    let _ = std::io::read_to_string(std::io::stdin());
}
