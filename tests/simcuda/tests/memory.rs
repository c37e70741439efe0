//! Memory: kinds, addresses, attributes, limits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod world;

use simcuda::{Addr, Attribute, Code, Config, Kind, LEGACY, Mode};
use std::collections::BTreeSet;
use world::World;

#[test]
fn addresses_are_never_used_again_and_have_gaps() {
    let w = World::strict(Mode::Lazy, 1);
    let mut seen = BTreeSet::new();
    for n in [1, 512, 4096, 4097] {
        for _ in 0..50 {
            let (a, p) = (w.dev(n), w.pinned(n));
            assert!(seen.insert(a) && seen.insert(p));
            assert_eq!(a % 512, 0);
            w.mem_free(a).unwrap();
            w.mem_free_host(p).unwrap();
        }
    }
    let all: Vec<u64> = seen.into_iter().collect();
    assert!(all.windows(2).all(|p| p[1] - p[0] >= 2 * 4096));
}

#[test]
fn new_memory_is_poisoned() {
    let w = World::strict(Mode::Lazy, 1);
    assert_eq!(w.peek(w.dev(100), 100).unwrap(), [0xCD; 100]);
    assert_eq!(w.peek(w.pinned(9), 9).unwrap(), [0xCD; 9]);
    let big = w.dev(80 << 20);
    assert_eq!(w.peek(big + (80 << 20) - 4, 4).unwrap(), [0xCD; 4]);
    let plain = World::with(Config { poison: false, ..Config::default() });
    assert_eq!(plain.peek(plain.dev(4), 4).unwrap(), [0; 4]);
}

#[test]
fn sizes_of_nothing() {
    let w = World::strict(Mode::Lazy, 1);
    assert_eq!(w.mem_alloc(0), Err(Code::INVALID_VALUE));
    assert_eq!(w.mem_alloc_managed(0, 1), Err(Code::INVALID_VALUE));
    assert_eq!(w.mem_alloc_async(0, LEGACY), Err(Code::INVALID_VALUE));
    let p = w.mem_alloc_host(0).unwrap();
    w.mem_free_host(p).unwrap();
    w.mem_free(0).unwrap();
    let (a, b) = (w.dev(1), w.dev(1));
    w.memcpy_dtod(a, b, 0, LEGACY).unwrap();
    w.memset_d8(a, 0, 0, LEGACY).unwrap();
    assert_eq!(w.stat("submitted"), Some(0));
}

#[test]
fn memory_runs_out_and_comes_back() {
    let w = World::with(Config { memory: 1 << 20, ..Config::default() });
    let a = w.dev(1 << 19);
    assert_eq!(w.mem_get_info(), Ok((1 << 19, 1 << 20)));
    assert_eq!(w.mem_alloc((1 << 19) + 1), Err(Code::OUT_OF_MEMORY));
    assert_eq!(w.mem_alloc(u64::MAX), Err(Code::OUT_OF_MEMORY));
    w.mem_free(a).unwrap();
    // A free that is still queued is found before giving up.
    let s = w.nb();
    let b = w.mem_alloc_async(1 << 20, s).unwrap();
    w.mem_free_async(b, s).unwrap();
    let c = w.mem_alloc_async(1 << 20, s).unwrap();
    assert_eq!(w.mem_alloc(1), Err(Code::OUT_OF_MEMORY));
    w.mem_free_async(c, s).unwrap();
}

#[test]
fn attributes_of_every_kind() {
    let w = World::strict(Mode::Lazy, 1);
    let s = w.nb();
    let mut own = vec![0u8; 100];
    let at = own.as_mut_ptr() as u64;
    // SAFETY: the vector outlives the registration, which ends below.
    w.mem_host_register(unsafe { Addr::any(at) }, 100, 0).unwrap();
    let (device, pinned, managed) = (w.dev(100), w.pinned(100), w.mem_alloc_managed(100, 1).unwrap());
    let pooled = w.mem_alloc_async(100, s).unwrap();
    let (u, wide) = (Attribute::Unsigned, Attribute::Wide);
    for (address, kind, is_managed, ctx, host) in [
        (device, 2, 0, w.ctx, None),
        (pinned, 1, 0, w.ctx, Some(pinned + 3)),
        (managed, 2, 1, w.ctx, Some(managed + 3)),
        (at, 1, 0, w.ctx, Some(at + 3)),
        (pooled, 2, 0, 0, None),
    ] {
        let inside = address + 3;
        // A pool has reserved more than the allocation takes.
        let beyond = if address == pooled { 4096 } else { 0 };
        assert_eq!(w.pointer_attribute(2, inside), Ok(u(kind)));
        assert_eq!(w.pointer_attribute(8, inside), Ok(u(is_managed)));
        assert_eq!(w.pointer_attribute(1, inside), Ok(wide(ctx)));
        assert_eq!(w.pointer_attribute(9, inside), Ok(Attribute::Signed(0)));
        assert_eq!(w.pointer_attribute(11, inside), Ok(wide(address - beyond)));
        assert_eq!(w.pointer_attribute(12, inside), Ok(wide(100 + 2 * beyond)));
        assert_eq!(w.pointer_attribute(4, inside), host.map(wide).ok_or(Code::INVALID_VALUE));
        assert_eq!(w.mem_address_range(inside), Ok((address, 100)));
    }
    assert_eq!(w.pointer_attribute(99, device), Err(Code::INVALID_VALUE));
    // Unknown, freed, one past the end: an error from the one call, neutral values from the other. No finding, because
    // these calls are how a client finds out.
    w.mem_free(device).unwrap();
    for address in [0, 0x1234, device, pinned + 100, &raw const own as u64] {
        assert_eq!(w.pointer_attribute(2, address), Err(Code::INVALID_VALUE));
        assert_eq!(w.pointer_attributes(&[2, 9, 11, 8], address), Ok(vec![u(0), Attribute::Signed(-2), wide(0), u(0)]));
        assert_eq!(w.mem_address_range(address), Err(Code::NOT_FOUND));
    }
    w.mem_host_unregister(at).unwrap();
}

#[test]
fn registration() {
    let w = World::strict(Mode::Lazy, 1);
    let mut own = vec![1u8; 4096];
    let at = own.as_mut_ptr() as u64;
    // SAFETY: the vector outlives every registration in this test.
    let whole = unsafe { Addr::any(at) };
    // SAFETY: as above.
    let part = unsafe { Addr::any(at + 100) };
    assert_eq!(w.mem_host_unregister(at), Err(Code::HOST_NOT_REGISTERED));
    w.mem_host_register(whole, 4096, 0).unwrap();
    assert_eq!(w.mem_host_register(part, 10, 0), Err(Code::HOST_ALREADY_REGISTERED));
    assert_eq!(w.mem_host_unregister(at + 100), Err(Code::HOST_NOT_REGISTERED));
    assert_eq!(w.mem_host_device_pointer(at + 5, 0), Ok(at + 5));
    assert_eq!(w.mem_host_flags(at), Ok(2));
    w.mem_host_unregister(at).unwrap();
    assert_eq!(w.mem_host_device_pointer(at, 0), Err(Code::INVALID_VALUE));
    w.mem_host_register(part, 10, 2).unwrap();
    assert_eq!(w.mem_host_register(whole, 4096, 0), Err(Code::HOST_ALREADY_REGISTERED));
    w.mem_host_unregister(at + 100).unwrap();
    assert_eq!(w.mem_host_register(whole, 0, 0), Err(Code::INVALID_VALUE));
    assert_eq!(w.mem_host_register(Addr::known(at), 8, 0), Err(Code::INVALID_VALUE));
    assert_eq!(own, [1; 4096]);
}

#[test]
fn a_release_on_a_bare_thread_needs_no_context() {
    let w = World::strict(Mode::Lazy, 1);
    let (a, p, s, e) = (w.dev(8), w.pinned(8), w.nb(), w.event());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(w.mem_alloc(8), Err(Code::INVALID_CONTEXT));
            w.event_record(e, s).unwrap();
            w.event_synchronize(e).unwrap();
            w.mem_free(a).unwrap();
            w.mem_free_host(p).unwrap();
            w.event_destroy(e).unwrap();
            w.stream_destroy(s).unwrap();
        });
    });
}

#[test]
fn fills() {
    let w = World::strict(Mode::Lazy, 1);
    let a = w.dev(16);
    w.memset_d32(a, 0x0102_0304, 4, LEGACY).unwrap();
    w.memset_d8(a + 2, 9, 1, LEGACY).unwrap();
    let mut out = [0; 16];
    w.download(&mut out, a).unwrap();
    assert_eq!(out[..8], [4, 3, 9, 1, 4, 3, 2, 1]);
    assert_eq!(w.memset_d32(a + 2, 0, 1, LEGACY), Err(Code::INVALID_VALUE));
    assert_eq!(w.memset_d32(a, 0, u64::MAX / 2, LEGACY), Err(Code::INVALID_VALUE));
}

#[test]
fn host_memory_where_device_memory_belongs() {
    let w = World::lenient(1);
    let (a, mut own) = (w.dev(16), [0u8; 16]);
    let at = own.as_mut_ptr() as u64;
    assert_eq!(w.memset_d8(at, 0, 16, LEGACY), Err(Code::INVALID_VALUE));
    assert_eq!(w.memcpy_dtod(a, at, 16, LEGACY), Err(Code::INVALID_VALUE));
    assert_eq!(w.memcpy_dtoh(a, a, 16, LEGACY), Err(Code::INVALID_VALUE));
    assert_eq!(w.memcpy_htod(a, at, 16, LEGACY), Err(Code::INVALID_VALUE));
    assert_eq!(w.memcpy_htod(a, 0, 16, LEGACY), Err(Code::INVALID_VALUE));
    assert!(w.take_findings().iter().all(|f| f.kind != Kind::Race));
}

#[test]
fn uninitialised_reads_are_found_byte_by_byte() {
    let w = World::with(Config { initcheck: true, fatal: simcuda::Fatal::Off, ..Config::default() });
    let (a, b, s) = (w.dev(64), w.dev(64), w.nb());
    w.memset_d8_async(a, 1, 10, s).unwrap();
    w.memset_d8_async(a + 20, 1, 44, s).unwrap();
    w.memcpy_dtod_async(b, a, 10, s).unwrap();
    w.memcpy_dtod_async(b, a + 20, 44, s).unwrap();
    assert!(w.findings().is_empty());
    w.memcpy_dtod_async(b, a + 5, 20, s).unwrap();
    let found = w.take_findings();
    assert_eq!(found.len(), 1);
    assert!(found[0].kind == Kind::UninitRead && found[0].message.contains("byte 10 "), "{}", found[0]);
}
