//! Owners and the release queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::types::{DEVX_OUT_OF_MEMORY, DevxOwner};
use devexchange_core::arrow::asynchronous::Wake;
use devexchange_core::arrow::release_stream;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::manager::{Allocated, Manager, Request, Shared, Statistics};
use devexchange_core::memory::{Owner, ReleaseQueue};
use devexchange_core::{BatchStream, DeviceType, Error, Result, Schema};

#[test]
fn a_release_that_panics_ends_there() {
    drop(Owner::on_release(|| panic!("this text is expected in the output")));
}

#[test]
fn a_release_that_panics_with_what_panics_in_turn_ends_there() {
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            panic!("this text is expected in the output, too");
        }
    }
    drop(Owner::on_release(|| std::panic::panic_any(Again)));
}

#[test]
fn a_raw_owner_is_released_once_or_given_back() {
    unsafe extern "C" fn count(context: *mut core::ffi::c_void) {
        // SAFETY: the context is the test's counter.
        unsafe { &*context.cast::<AtomicUsize>() }.fetch_add(1, SeqCst);
    }
    let counter = AtomicUsize::new(0);
    let raw = DevxOwner { context: (&raw const counter).cast_mut().cast(), release: Some(count) };
    // SAFETY: the counter outlives the owner.
    let back = unsafe { Owner::from_raw(raw) }.into_raw();
    assert_eq!(counter.load(SeqCst), 0);
    // SAFETY: as above.
    drop(unsafe { Owner::from_raw(back) });
    assert_eq!(counter.load(SeqCst), 1);
}

#[test]
fn tokens_of_many_threads_come_out_once_and_in_order() {
    const THREADS: u64 = 4;
    const EACH: u64 = 10_000;
    let wakes = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&wakes);
    let queue = ReleaseQueue::new(move || {
        seen.fetch_add(1, SeqCst);
    });
    let pushers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || {
                for i in 0..EACH {
                    // SAFETY: just registered, and given to nobody else.
                    drop(unsafe { Owner::from_raw(queue.register(thread * EACH + i)) });
                }
            })
        })
        .collect();
    let mut next = [0_u64; THREADS as usize];
    let mut tokens = [0_u64; 7];
    while next.iter().sum::<u64>() < THREADS * EACH {
        let taken = queue.drain(&mut tokens);
        for token in &tokens[..taken] {
            let thread = (token / EACH) as usize;
            assert_eq!(token % EACH, next[thread]);
            next[thread] += 1;
        }
    }
    pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    assert_eq!(queue.drain(&mut tokens), 0);
    assert_eq!(wakes.load(SeqCst) as u64, THREADS * EACH);
}

#[test]
fn a_silenced_queue_does_not_wake_and_a_cancelled_token_does_not_come() {
    let wakes = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&wakes);
    let queue = ReleaseQueue::new(move || {
        seen.fetch_add(1, SeqCst);
    });
    let cancelled = queue.register(1);
    // SAFETY: given to nobody.
    unsafe { ReleaseQueue::cancel(cancelled.context) };
    queue.silence();
    queue.push(2);
    let mut tokens = [0; 4];
    assert_eq!((queue.drain(&mut tokens), tokens[0]), (1, 2));
    assert_eq!(wakes.load(SeqCst), 0);
}

#[test]
fn a_wake_that_panics_ends_there() {
    let queue = ReleaseQueue::new(|| panic!("this text is expected in the output"));
    queue.push(1);
    // SAFETY: just registered, and given to nobody else.
    drop(unsafe { Owner::from_raw(queue.register(2)) });
    queue.signal(3).unwrap().push();
    let mut tokens = [0; 4];
    assert_eq!((queue.drain(&mut tokens), tokens), (3, [1, 2, 3, 0]));
}

#[test]
fn a_queue_is_empty_when_all_is_delivered() {
    let queue = ReleaseQueue::new(|| {});
    assert!(queue.is_empty());
    queue.push(1);
    queue.push(2);
    assert!(!queue.is_empty());
    let mut token = [0];
    // The second token is no longer in the list that is pushed to.
    assert_eq!((queue.drain(&mut token), token), (1, [1]));
    assert!(!queue.is_empty());
    assert_eq!((queue.drain(&mut token), token), (1, [2]));
    assert!(queue.is_empty());
}

/// A consumer in another language may be the one that gives it up, and cannot catch a panic.
#[test]
fn what_a_program_gave_may_panic_in_its_drop() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("this text is expected in the output: in a drop");
        }
    }
    struct Kept(Panics);
    impl std::fmt::Debug for Kept {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_tuple("Kept").field(&size_of_val(&self.0)).finish()
        }
    }
    // SAFETY: there is no memory.
    unsafe impl Manager for Kept {
        fn allocate(&self, _: &Request) -> Result<Allocated> {
            Err(Error::new(DEVX_OUT_OF_MEMORY, "there is none"))
        }

        fn statistics(&self) -> Statistics {
            Statistics::default()
        }
    }

    let schema = Schema::new(&[FieldDesc::new(c"n", c"i")]).expect("a schema");
    let held = Panics;
    let source = move || {
        let _held = &held;
        Ok(None)
    };
    let stream = BatchStream::new(&schema, DeviceType::CPU, source).expect("a stream");
    let mut exported = ArrowArrayStream::RELEASED;
    // SAFETY: there is room.
    unsafe { stream.export(&mut exported) }.expect("exported");
    // SAFETY: exported just now, and not used afterwards.
    unsafe { release_stream(&mut exported) };

    let held = Panics;
    let wake = Wake::new(move || {
        let _held = &held;
        panic!("this text is expected in the output: in a wake callback");
    });
    let wake = wake.expect("a callback");
    wake.call();
    drop(wake);

    drop(Shared::new(Kept(Panics)).expect("a manager"));
}
