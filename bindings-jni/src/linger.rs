//! How a thread that takes tokens out of a queue waits for more. Before it sleeps it looks once more, after a while; only
//! while it sleeps for good does a push have to wake it.

use std::time::Duration;

use crate::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence};

/// What those who push tokens know of the thread that takes them out.
pub(crate) struct Taker {
    /// Whether it will look once more without being woken.
    pub(crate) lingers: AtomicBool,
}

impl Taker {
    /// Whether the thread has to be woken. Called after each push.
    pub(crate) fn has_to_be_woken(&self) -> bool {
        // Pairs with the fences in `wait`: either this sees that the thread has to be woken, or the thread sees the pushed
        // token.
        fence(SeqCst);
        !self.lingers.load(Relaxed)
    }

    /// Calls `take` until it has taken something; returns how much. While there is nothing, the thread waits in `park`,
    /// until it is woken: the first time for `linger` at most, if there is such a time.
    pub(crate) fn wait(
        &self,
        mut linger: Option<Duration>,
        mut take: impl FnMut() -> usize,
        park: impl Fn(Option<Duration>),
    ) -> usize {
        // For tokens that were pushed when nobody knew yet whom to wake.
        fence(SeqCst);
        loop {
            let taken = take();
            if taken > 0 {
                return taken;
            }
            let Some(time) = linger.take() else {
                park(None);
                continue;
            };
            self.lingers.store(true, Relaxed);
            park(Some(time));
            self.lingers.store(false, Relaxed);
            fence(SeqCst);
        }
    }
}
