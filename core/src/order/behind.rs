//! Gives things up after work that is queued.

use crate::error::Result;
use crate::memory::{Owner, Vacant};
use crate::runtime::cuda::lost::{Held, abandon, is_over};
use crate::runtime::cuda::reaper::Later;
use crate::stream::Stream;

/// Something that can be given up after queued work.
pub(crate) trait GiveUp: Send + 'static {
    /// Notes the work that is queued on `stream` until now.
    fn note(&mut self, stream: Stream) -> Result<()>;

    /// Gives it up after the noted work. Returns at once.
    fn give_up(self);

    /// Returns what must not be given up while work that cannot be noted still runs.
    fn keep(self) -> Held;
}

/// Gives `thing` up after the work that is queued on `stream` until now, or, if the stream is being captured, until the
/// capture has ended, or, in a host function of the driver, until somewhat later. If the work cannot be noted, the host waits
/// for it; if even that fails, one reference is never given up.
pub(crate) fn release_behind(mut thing: impl GiveUp, stream: Stream) {
    let Err(error) = thing.note(stream) else { return thing.give_up() };
    if is_over(&error) {
        return thing.give_up();
    }
    if stream.takes_no_release()
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
