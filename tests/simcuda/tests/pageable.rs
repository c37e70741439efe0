//! Which copies the host waits for, and when a pageable or pinned source is read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod world;

use simcuda::{Addr, LEGACY, Mode};
use world::{MODES, World};

fn at(slice: &mut [u8]) -> Addr {
    // SAFETY: every slice of these tests lives until its copy is over.
    unsafe { Addr::any(slice.as_mut_ptr() as u64) }
}

#[test]
fn a_pageable_source_is_taken_when_the_call_is_made() {
    for mode in MODES {
        let w = World::strict(mode, 5);
        let (a, s, mut own) = (w.dev(4), w.nb(), [1u8; 4]);
        w.memcpy_htod_async(a, at(&mut own), 4, s).unwrap();
        own = [2; 4];
        w.stream_synchronize(s).unwrap();
        assert_eq!(w.peek(a, 4).unwrap(), [1; 4]);
        assert_eq!(own, [2; 4]);
    }
}

#[test]
fn a_pinned_source_is_read_when_the_copy_runs() {
    let w = World::lenient(5);
    let (a, p, s) = (w.dev(4), w.pinned(4), w.nb());
    w.host_write(p, &[1; 4]).unwrap();
    w.memcpy_htod_async(a, p, 4, s).unwrap();
    w.host_write(p, &[2; 4]).unwrap();
    w.stream_synchronize(s).unwrap();
    assert_eq!(w.peek(a, 4).unwrap(), [2; 4]);
    assert_eq!(w.take_findings().len(), 1);
}

#[test]
fn a_pageable_target_is_filled_when_the_call_returns() {
    for mode in MODES {
        let w = World::strict(mode, 5);
        let (a, s, mut own) = (w.dev(4), w.nb(), [0u8; 4]);
        w.memset_d8_async(a, 3, 4, s).unwrap();
        w.download_async(&mut own, a, s).unwrap();
        assert_eq!(own, [3; 4]);
        // The client may rely on this wait.
        w.mem_free(a).unwrap();
    }
}

#[test]
fn pinned_copies_do_not_wait() {
    let w = World::strict(Mode::Lazy, 5);
    let (a, p, s) = (w.dev(4), w.pinned(4), w.nb());
    w.memcpy_dtoh_async(p, a, 4, s).unwrap();
    w.memcpy_htod_async(a, p, 4, s).unwrap();
    w.memset_d8(a, 1, 4, LEGACY).unwrap_or(());
    assert_eq!(w.stat("executed"), Some(0));
    w.take_findings();
}

#[test]
fn synchronous_copies_wait_as_documented() {
    let w = World::strict(Mode::Lazy, 5);
    let (a, b, p, mut own) = (w.dev(4), w.dev(4), w.pinned(4), [8u8; 4]);
    let pending = || w.stat("submitted").unwrap() - w.stat("executed").unwrap();
    // From pageable memory: the source has been read, but the data has not necessarily arrived.
    w.memcpy_htod(a, at(&mut own), 4, LEGACY).unwrap();
    assert_eq!(pending(), 1);
    // Between devices, and fills: only queued.
    w.memcpy_dtod(b, a, 4, LEGACY).unwrap();
    w.memset_d8(a, 9, 2, LEGACY).unwrap();
    assert_eq!(pending(), 3);
    // To and from pinned memory: over.
    w.memcpy_dtoh(p, b, 4, LEGACY).unwrap();
    assert_eq!((pending(), w.host_read(p, 4).unwrap()), (0, vec![8; 4]));
    w.memcpy_htod(a, p, 4, LEGACY).unwrap();
    assert_eq!(pending(), 0);
    // From host to host: over.
    let mut other = [0u8; 4];
    w.memcpy(at(&mut other), at(&mut own), 4, LEGACY).unwrap();
    assert_eq!((pending(), other), (0, [8; 4]));
    w.memcpy_async(at(&mut other), p, 4, 0).unwrap();
    assert_eq!((pending(), other), (0, [8; 4]));
    // With SYNC_MEMOPS set on the memory, everything.
    w.pointer_set_attribute(6, 1, a).unwrap();
    w.memcpy_dtod(b, a, 4, LEGACY).unwrap();
    assert_eq!(pending(), 0);
}

#[test]
fn the_relaxed_staging_rule_waits() {
    let cfg = simcuda::Config { staged_copies_pend: false, ..simcuda::Config::default() };
    let w = World::with(cfg);
    let (a, b, s) = (w.dev(4), w.dev(4), w.nb());
    w.upload(a, &[1; 4]).unwrap();
    w.memcpy_dtod_async(b, a, 4, s).unwrap();
}

#[test]
fn overlapping_and_unified_copies() {
    let w = World::strict(Mode::Lazy, 5);
    let (a, s) = (w.dev(8), w.nb());
    w.upload_async(a, &[0, 1, 2, 3, 4, 5, 6, 7], s).unwrap();
    w.memcpy_dtod_async(a + 2, a, 6, s).unwrap();
    let p = w.pinned(8);
    w.memcpy_async(p, a, 8, s).unwrap();
    w.stream_synchronize(s).unwrap();
    assert_eq!(w.host_read(p, 8).unwrap(), [0, 1, 0, 1, 2, 3, 4, 5]);
}
