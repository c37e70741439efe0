//! The source files that are modelled, with what the models need to use them.

#![expect(dead_code, unreachable_pub, reason = "a model uses a part of what the core uses")]

#[path = "../../../core/src/arrow/batch_stream/alone.rs"]
mod alone;
#[path = "../../../core/src/arrow/asynchronous/bell.rs"]
mod bell;
mod blocks;
#[path = "../../../core/src/memory/counted.rs"]
mod counted;
#[path = "../../../core/src/runtime/cuda/inbox.rs"]
mod inbox;
#[path = "../../../core/src/runtime/cuda/kept.rs"]
mod kept;
#[path = "../../../core/src/memory/lazy.rs"]
mod lazy;
#[path = "../../../bindings-jni/src/linger.rs"]
mod linger;
#[path = "../../../core/src/local/list.rs"]
mod list;
mod nesting;
#[path = "../../../core/src/memory/queue.rs"]
mod queue;
#[path = "../../../core/src/memory/slab.rs"]
mod slab;

use std::task::{Context, Poll};

use devexchange_core::arrow::asynchronous::Wake;
use devexchange_core::memory::boxed;
use loom::sync::atomic::AtomicI64;
use loom::sync::{Condvar, Mutex};

pub(crate) use alone::Alone;
pub(crate) use counted::Counted;
use inbox::New;
pub(crate) use inbox::{Inbox, List as Things, Node};
pub(crate) use kept::Kept;
pub(crate) use lazy::Lazy;
pub(crate) use linger::Taker;
pub(crate) use list::{List, Place};
pub(crate) use queue::{ReleaseQueue, Signal};
pub(crate) use slab::{Slab, TailSize};

/// The wakers of a model do not panic.
fn shielded<R>(_otherwise: R, body: impl FnOnce() -> R) -> R {
    body()
}

/// An empty inbox, like the static of the reaper.
pub(crate) fn inbox<T>() -> Inbox<T> {
    let (arrived, settled) = (Condvar::new(), Condvar::new());
    Inbox { new: Mutex::new(New::NONE), arrived, settled, waiting: AtomicI64::new(0) }
}

/// An empty store, like the static of events.
pub(crate) fn kept<K, T>() -> Kept<K, T> {
    Kept { all: Mutex::new(Vec::new()) }
}

/// A number in place of the state of an asynchronous stream.
pub(crate) struct Bell(bell::Belled<u32>);

impl Bell {
    pub(crate) fn new() -> Self {
        Self(bell::Belled::new(0, None))
    }

    /// Adds one to the state and tells the waiting threads; with `everybody`, also the awaiting tasks.
    pub(crate) fn change(&self, everybody: bool) {
        let ring = self.0.turn(|state, bells| {
            *state += 1;
            if everybody {
                return bells.ring();
            }
            bells.nudge();
            None
        });
        if let Some(ring) = ring {
            ring.tell();
        }
    }

    pub(crate) fn wait(&self, least: u32) -> Poll<u32> {
        self.0.wait(&bell::Deadline::never(), at_least(least))
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>, least: u32) -> Poll<u32> {
        self.0.poll(cx, at_least(least))
    }

    /// Polls for two awaiting callers, each with its own waker, and drops the second. Returns what the first was told; it stays
    /// registered until `then` has returned.
    pub(crate) fn poll_first(
        &self,
        [mut first, mut second]: [Context<'_>; 2],
        least: u32,
        then: impl FnOnce(),
    ) -> Poll<u32> {
        let (mut goes_on, mut gives_up) = (self.0.awaiting(), self.0.awaiting());
        let answer = goes_on.poll(&mut first, at_least(least));
        let _ = gives_up.poll(&mut second, at_least(least));
        drop(gives_up);
        then();
        answer
    }
}

fn at_least(least: u32) -> impl FnMut(&mut u32) -> Poll<u32> {
    move |state| if *state >= least { Poll::Ready(*state) } else { Poll::Pending }
}
