//! Memory pools.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod world;

use simcuda::{Attribute, Code, Config, Fatal, HANDLE_TYPE_FD, Kind, LiveKind, Mode, PoolProps};
use world::{MODES, World};

const THRESHOLD: u32 = 4;
const RESERVED: u32 = 5;
const USED: u32 = 7;
const USED_HIGH: u32 = 8;

#[test]
fn the_default_pool_is_current_until_another_is() {
    let w = World::strict(Mode::Lazy, 1);
    let pool = w.default_pool(0).unwrap();
    assert_eq!((w.device_pool(0), w.default_pool(0)), (Ok(pool), Ok(pool)));
    assert_ne!(w.default_pool(1), Ok(pool));
    let mine = w.pool_create(PoolProps::default()).unwrap();
    assert_eq!(w.set_device_pool(1, mine), Err(Code::INVALID_DEVICE));
    w.set_device_pool(0, mine).unwrap();
    let s = w.nb();
    let a = w.mem_alloc_async(100, s).unwrap();
    assert_eq!(w.pointer_attribute(17, a), Ok(Attribute::Wide(mine)));
    assert_eq!(w.pool_attribute(mine, USED), Ok(100));
    assert_eq!(w.pool_destroy(pool), Err(Code::INVALID_VALUE));
    // Destroyed with memory in use: the memory stays, the device goes back to the default.
    w.pool_destroy(mine).unwrap();
    assert_eq!(w.device_pool(0), Ok(pool));
    w.memset_d8_async(a, 1, 100, s).unwrap();
    w.mem_free_async(a, s).unwrap();
    w.stream_synchronize(s).unwrap();
    assert!(w.live().iter().all(|l| !matches!(l.kind, LiveKind::Device | LiveKind::Pool)));
}

#[test]
fn frees_count_when_they_run() {
    let w = World::strict(Mode::Lazy, 1);
    let (s, pool) = (w.nb(), w.default_pool(0).unwrap());
    let a = w.mem_alloc_async(1000, s).unwrap();
    let b = w.mem_alloc_from_pool(24, pool, s).unwrap();
    w.pool_set_attribute(pool, THRESHOLD, 512).unwrap();
    w.mem_free_async(a, s).unwrap();
    w.mem_free_async(b, s).unwrap();
    assert_eq!(w.pool_attribute(pool, USED), Ok(1024));
    w.stream_synchronize(s).unwrap();
    assert_eq!((w.pool_attribute(pool, USED), w.pool_attribute(pool, USED_HIGH)), (Ok(0), Ok(1024)));
    assert_eq!(w.pool_attribute(pool, RESERVED), Ok(512));
    w.pool_trim(pool, 100).unwrap();
    assert_eq!(w.pool_attribute(pool, RESERVED), Ok(100));
    w.pool_set_attribute(pool, USED_HIGH, 0).unwrap();
    assert_eq!(w.pool_attribute(pool, USED_HIGH), Ok(0));
    assert_eq!(w.pool_set_attribute(pool, USED, 0), Err(Code::INVALID_VALUE));
    w.pool_set_attribute(pool, 1, 0).unwrap();
    assert_eq!((w.pool_attribute(pool, 1), w.pool_attribute(pool, 2)), (Ok(0), Ok(1)));
    assert_eq!(w.pool_attribute(pool, 99), Err(Code::INVALID_VALUE));
}

#[test]
fn limits_and_access() {
    let w = World::strict(Mode::Lazy, 1);
    let pool = w.pool_create(PoolProps { max_size: 100, ..PoolProps::default() }).unwrap();
    let s = w.nb();
    let a = w.mem_alloc_from_pool(60, pool, s).unwrap();
    assert_eq!(w.mem_alloc_from_pool(60, pool, s), Err(Code::OUT_OF_MEMORY));
    w.mem_free_async(a, s).unwrap();
    assert_eq!((w.pool_access(pool, 0), w.pool_access(pool, 1)), (Ok(3), Ok(0)));
    w.pool_set_access(pool, &[(1, 1)]).unwrap();
    assert_eq!(w.pool_access(pool, 1), Ok(1));
    assert_eq!(w.pool_set_access(pool, &[(0, 0)]), Err(Code::INVALID_VALUE));
    assert_eq!(w.pool_set_access(pool, &[(1, 2)]), Err(Code::INVALID_VALUE));
    assert_eq!(w.pool_create(PoolProps { device: 9, ..PoolProps::default() }), Err(Code::INVALID_DEVICE));
}

#[test]
fn memory_outlives_the_queue_of_its_users() {
    for mode in MODES {
        for seed in 0..20 {
            let w = World::strict(mode, seed);
            let (s, t) = (w.nb(), w.nb());
            let a = w.mem_alloc_async(64, s).unwrap();
            w.memset_d8_async(a, 5, 64, s).unwrap();
            w.order(s, t);
            let (p, mut out) = (w.pinned(64), [0; 64]);
            w.memcpy_dtoh_async(p, a, 64, t).unwrap();
            w.order(t, s);
            w.mem_free_async(a, s).unwrap();
            w.download_async(&mut out[..0], p, t).unwrap_or(());
            w.stream_synchronize(t).unwrap();
            out.copy_from_slice(&w.host_read(p, 64).unwrap());
            assert_eq!(out, [5; 64]);
        }
    }
}

#[test]
fn pools_are_shared() {
    let (w, other) = (World::strict(Mode::Lazy, 1), World::lenient(1));
    let plain = w.default_pool(0).unwrap();
    assert_eq!(w.pool_export(plain, HANDLE_TYPE_FD, 0), Err(Code::INVALID_VALUE));
    let pool = w.pool_create(PoolProps { handle_types: HANDLE_TYPE_FD, ..PoolProps::default() }).unwrap();
    assert_eq!(w.pool_create(PoolProps { handle_types: 2, ..PoolProps::default() }), Err(Code::NOT_SUPPORTED));
    let fd = w.pool_export(pool, HANDLE_TYPE_FD, 0).unwrap();
    let imported = other.pool_import(fd, HANDLE_TYPE_FD, 0).unwrap();
    assert_eq!(other.pool_import(fd, 2, 0), Err(Code::INVALID_VALUE));
    let s = w.nb();
    let a = w.mem_alloc_from_pool(16, pool, s).unwrap();
    w.memset_d8_async(a, 6, 16, s).unwrap();
    w.stream_synchronize(s).unwrap();
    let b = other.pool_import_pointer(imported, w.pool_export_pointer(a).unwrap()).unwrap();
    assert_eq!(other.peek(b, 16).unwrap(), [6; 16]);
    assert_eq!(other.mem_alloc_from_pool(16, imported, other.nb()), Err(Code::INVALID_VALUE));
    assert_eq!(w.pool_export_pointer(a + 1), Err(Code::INVALID_VALUE));
    assert_eq!(w.pool_import_pointer(pool, w.pool_export_pointer(a).unwrap()), Err(Code::INVALID_VALUE));
    let before = other.mem_get_info();
    other.mem_free(b).unwrap();
    assert_eq!(other.mem_get_info(), before);
    other.mem_free(b).unwrap_err();
    assert_eq!(other.take_findings().iter().map(|f| f.kind).collect::<Vec<_>>(), [Kind::DoubleFree]);
}

/// A stream of another device can access plain memory, and pool memory only if the pool gives that device access;
/// between devices there is the copy that names both.
#[test]
fn copies_of_a_pool_on_another_device() {
    let w = World::with(Config { fatal: Fatal::Off, pools_have_reach: true, ..Config::new(Mode::Lazy, 1) });
    let (s, pool) = (w.nb(), w.default_pool(0).unwrap());
    let (of_pool, plain, host) = (w.mem_alloc_async(8, s).unwrap(), w.mem_alloc(8).unwrap(), w.pinned(8));
    w.memset_d8_async(of_pool, 5, 8, s).unwrap();
    w.memset_d8_async(plain, 5, 8, s).unwrap();
    w.stream_synchronize(s).unwrap();
    let other = w.primary_retain(1).unwrap();
    w.ctx_set_current(other).unwrap();
    let (t, there) = (w.nb(), w.mem_alloc(8).unwrap());
    assert_eq!(w.memcpy_async(there, plain, 8, t), Ok(()));
    for to in [there, host] {
        assert_eq!(w.memcpy_async(to, of_pool, 8, t), Err(Code::INVALID_VALUE));
    }
    w.memcpy_peer_async(there, other, of_pool, w.ctx, 8, t).unwrap();
    w.pool_set_access(pool, &[(1, 3)]).unwrap();
    w.memcpy_async(host, of_pool, 8, t).unwrap();
    w.stream_synchronize(t).unwrap();
    assert_eq!(w.host_read(host, 8).unwrap(), [5; 8]);
}
