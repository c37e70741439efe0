//! Gives things up behind work that is queued.

use crate::error::Result;
use crate::memory::{Owner, Vacant};
use crate::runtime::cuda::lost::{Held, abandon, is_over};
use crate::runtime::cuda::reaper::Later;
use crate::stream::Stream;

/// What can be given up after work.
pub(crate) trait GiveUp: Send + 'static {
    /// Notes what is queued on `stream` until now.
    fn note(&mut self, stream: Stream) -> Result<()>;

    /// Gives it up after what was noted. Returns at once.
    fn give_up(self);

    /// What must not be given up while work goes on that cannot be noted.
    fn keep(self) -> Held;
}

/// Gives something up after what is queued on `stream` until now, or, if that is being captured, until the capture has
/// ended. If that cannot be noted, the host waits for it; if not even that is possible, one reference is never given up.
pub(crate) fn release_behind(mut thing: impl GiveUp, stream: Stream) {
    let Err(error) = thing.note(stream) else { return thing.give_up() };
    if is_over(&error) {
        return thing.give_up();
    }
    if stream.is_capturing() == Ok(true)
        && let Some((later, room)) = Later::new().ok().zip(Vacant::find())
    {
        let release = move || release_behind(thing, stream);
        return later.release_after_capture(stream, Owner::releasing(room, None, release));
    }
    match stream.synchronize() {
        Err(error) if !is_over(&error) => abandon(thing.keep()),
        _ => thing.give_up(),
    }
}
