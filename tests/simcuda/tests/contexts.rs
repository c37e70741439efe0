//! Contexts, devices and peers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod world;

use simcuda::{Code, Config, Kind, LEGACY, LiveKind, Mode, Sim};
use world::World;

#[test]
fn the_stack_is_per_thread() {
    let w = World::strict(Mode::Lazy, 1);
    let other = w.ctx_create(0, 1).unwrap();
    assert_eq!((w.ctx_get_current(), w.ctx_device()), (Ok(other), Ok(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!((w.ctx_get_current(), w.ctx_device()), (Ok(0), Err(Code::INVALID_CONTEXT)));
            assert_eq!(w.mem_alloc(1), Err(Code::INVALID_CONTEXT));
        });
    });
    assert_eq!(w.ctx_pop(), Ok(other));
    assert_eq!(w.ctx_get_current(), Ok(w.ctx));
    assert_eq!(w.ctx_device_of(other), Ok(1));
    assert_ne!(w.ctx_id(other).unwrap(), w.ctx_id(0).unwrap());
    w.ctx_set_current(0).unwrap();
    assert_eq!(w.ctx_get_current(), Ok(0));
    w.ctx_destroy(other).unwrap();
}

#[test]
fn primary_contexts_are_counted() {
    let w = World::strict(Mode::Lazy, 1);
    assert_eq!((w.primary_state(0), w.primary_state(1)), (Ok((0, true)), Ok((0, false))));
    assert_eq!(w.primary_retain(0), Ok(w.ctx));
    w.primary_release(0).unwrap();
    let a = w.dev(8);
    w.primary_release(0).unwrap();
    // The last release ends everything in the context; the handle is dead, and a new context has another one.
    assert_eq!(
        (w.mem_alloc(8), w.ctx_synchronize()),
        (Err(Code::CONTEXT_IS_DESTROYED), Err(Code::CONTEXT_IS_DESTROYED))
    );
    assert_eq!(w.pointer_attribute(2, a), Err(Code::INVALID_VALUE));
    let again = w.primary_retain(0).unwrap();
    assert_ne!(again, w.ctx);
    assert!(w.live().iter().all(|l| l.kind == LiveKind::Context));
    w.primary_release(0).unwrap();
}

#[test]
fn a_reset_ends_the_contents_and_keeps_the_count() {
    let w = World::lenient(1);
    let (a, s, e) = (w.dev(8), w.nb(), w.event());
    w.memset_d8_async(a, 1, 8, s).unwrap();
    w.memset_d8_async(a, 1, 8, LEGACY).unwrap();
    w.take_findings();
    w.primary_reset(0).unwrap();
    assert_eq!(w.stream_synchronize(s), Err(Code::INVALID_HANDLE));
    assert_eq!(w.event_query(e), Err(Code::INVALID_HANDLE));
    assert_eq!(w.mem_free(a), Err(Code::INVALID_VALUE));
    assert_eq!(
        w.take_findings().iter().map(|f| f.kind).collect::<Vec<_>>(),
        [Kind::StaleHandle, Kind::StaleHandle, Kind::DoubleFree]
    );
    // A client that retained it still has it, but must retain it anew to go on.
    assert_eq!((w.primary_state(0), w.ctx_get_current()), (Ok((0, false)), Ok(w.ctx)));
    assert_eq!((w.ctx_device(), w.mem_alloc(8)), (Ok(0), Err(Code::CONTEXT_IS_DESTROYED)));
    assert_eq!((w.primary_retain(0), w.primary_state(0)), (Ok(w.ctx), Ok((0, true))));
    w.primary_release(0).unwrap();
    let b = w.dev(8);
    w.memset_d8(b, 1, 8, LEGACY).unwrap();
    w.ctx_synchronize().unwrap();
    w.mem_free(b).unwrap();
    w.primary_release(0).unwrap();
    assert!(w.live().is_empty());
}

#[test]
fn peers() {
    let w = World::strict(Mode::Lazy, 1);
    let other = w.primary_retain(1).unwrap();
    assert_eq!((w.device_can_access_peer(0, 1), w.device_can_access_peer(1, 1)), (Ok(true), Ok(false)));
    assert_eq!(w.ctx_enable_peer(w.ctx, 0), Err(Code::INVALID_DEVICE));
    assert_eq!(w.ctx_disable_peer(other), Err(Code::PEER_NOT_ENABLED));
    w.ctx_enable_peer(other, 0).unwrap();
    assert_eq!(w.ctx_enable_peer(other, 0), Err(Code::PEER_ALREADY_ENABLED));
    w.ctx_disable_peer(other).unwrap();
    assert_eq!(w.ctx_enable_peer(other, 1), Err(Code::INVALID_VALUE));
    let none = World::with(Config { peers: false, ..Config::default() });
    let other = none.primary_retain(1).unwrap();
    assert_eq!(none.device_can_access_peer(0, 1), Ok(false));
    assert_eq!(none.ctx_enable_peer(other, 0), Err(Code::PEER_ACCESS_UNSUPPORTED));
}

#[test]
fn devices_say_what_they_are() {
    let w = World::strict(Mode::Lazy, 1);
    assert_eq!(w.device_count(), Ok(2));
    assert_eq!(w.device_name(1).unwrap(), "Simulated CUDA device 1");
    assert_ne!(w.device_uuid(0).unwrap(), w.device_uuid(1).unwrap());
    assert_eq!(w.device_total_mem(0), Ok(8 << 30));
    assert_eq!((w.device_attribute(75, 0), w.device_attribute(115, 0)), (Ok(9), Ok(1)));
    assert_eq!(w.device_attribute(0, 0), Err(Code::INVALID_VALUE));
    for bad in [-1, 2, i32::MAX] {
        assert_eq!(w.device_get(bad), Err(Code::INVALID_DEVICE));
        assert_eq!(w.device_name(bad), Err(Code::INVALID_DEVICE));
        assert_eq!(w.primary_retain(bad), Err(Code::INVALID_DEVICE));
        assert_eq!(w.primary_release(bad), Err(Code::INVALID_DEVICE));
        assert_eq!(w.ctx_create(0, bad), Err(Code::INVALID_DEVICE));
    }
}

#[test]
fn a_child_after_fork_is_refused() {
    let w = World::strict(Mode::Threads { workers: 2, delay_us: 50 }, 1);
    let s = w.nb();
    // SAFETY: the child calls nothing but the simulator, which must not lock anything, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = Err(Code::NOT_INITIALIZED);
        let right = w.forked()
            && w.init(0) == refused
            && w.device_count() == refused.map(|()| 0)
            && w.stream_synchronize(s) == refused
            && w.primary_release(0) == refused
            && w.mem_free(8) == refused
            && w.findings().is_empty();
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    w.stream_synchronize(s).unwrap();
}

#[test]
fn two_drivers_are_two_worlds() {
    let (a, b) = (World::strict(Mode::Lazy, 1), Sim::new(Config::default()));
    assert_eq!(b.device_count(), Err(Code::NOT_INITIALIZED));
    b.init(0).unwrap();
    assert_eq!(b.ctx_get_current(), Ok(0));
    assert_eq!(b.pointer_attribute(2, a.dev(8)), Err(Code::INVALID_VALUE));
}
