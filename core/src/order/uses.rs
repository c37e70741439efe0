//! Which streams use data, and the release after their work.

use std::sync::{Mutex, PoisonError};

use super::behind::{GiveUp, release_behind};
use crate::device::Device;
use crate::error::Result;
use crate::memory::{InOrder, Lazy, Owner, push};
use crate::runtime::cuda::Event;
use crate::runtime::cuda::copy::Copied;
use crate::runtime::cuda::driver::Driver;
use crate::runtime::cuda::lost::{Held, abandon};
use crate::runtime::cuda::reaper::Later;
use crate::stream::Stream;
use crate::view::Whole;

/// The streams that use the data, as events. Nothing is allocated until a stream is named, and for nearly all host memory
/// none ever is.
#[derive(Default)]
pub(crate) struct Uses(Lazy<Noted>);

struct Noted {
    /// The release that waits for the events; made with the first event.
    later: Mutex<Option<Later>>,
    whose: Whose,
    /// The stream that fills the data, if the memory is given back in the order of another one, but after the last work on
    /// this one.
    filler: Option<Stream>,
}

/// Whose data is used, and therefore what waits until the uses are over.
enum Whose {
    /// The data has its own owner.
    Own,
    /// The producer works on this stream, which has to wait for the uses before it goes on (CUDA Array Interface,
    /// "Synchronization").
    Lent(Stream),
    /// The data is a view. Its uses are uses of the whole, which waits for them.
    View(Whole),
    /// The data is made of several parts, each of which waits for its own uses. No part is itself a view or made of others.
    Parts(Vec<Whole>),
}

impl Uses {
    fn of(whose: Whose) -> Result<Self> {
        Ok(Self(Lazy::new(Noted::of(whose))?))
    }

    /// The uses of data whose producer works on a stream.
    pub(crate) fn lent(producer: Stream) -> Result<Self> {
        Self::of(Whose::Lent(producer))
    }

    pub(crate) fn of_view(whole: Whole) -> Result<Self> {
        Self::of(Whose::View(whole))
    }

    /// The uses of data that is made of other data and keeps that data alive itself: each use is a use of all parts.
    pub(crate) fn of_parts(all: impl Iterator<Item = Whole>) -> Result<Self> {
        let mut parts = Vec::new();
        for mut part in all {
            while let Some(whole) = part.uses().0.made().and_then(Noted::whole).cloned() {
                part = whole;
            }
            match part.uses().parts() {
                [] => push(&mut parts, part)?,
                several => several.iter().try_for_each(|one| push(&mut parts, one.clone()))?,
            }
        }
        // Parts with the same uses need one event between them.
        parts.sort_unstable_by_key(|part| std::ptr::from_ref(part.uses()));
        parts.dedup_by_key(|part| std::ptr::from_ref(part.uses()));
        Self::of(Whose::Parts(parts))
    }

    /// The whole that this data is a view of, if a further view may refer to the whole directly. It may not if this view has
    /// its own filler, whose last work is noted when the view is given up.
    pub(crate) fn whole(&self) -> Option<Whole> {
        self.0.made().filter(|noted| noted.filler.is_none()).and_then(Noted::whole).cloned()
    }

    /// Finds where the uses of this data are noted, and the owner of that data: for a view, both are those of the whole.
    /// This is a loop, because views of views can be any number of levels deep.
    fn noting<'a>(&'a self, owner: Option<&'a Owner>) -> (&'a Self, Option<&'a Owner>) {
        let mut found = (self, owner);
        while let Some(whole) = found.0.0.made().and_then(Noted::whole) {
            found = (whole.uses(), whole.owner());
        }
        found
    }

    fn parts(&self) -> &[Whole] {
        match self.0.made().map(|noted| &noted.whose) {
            Some(Whose::Parts(parts)) => parts,
            _ => &[],
        }
    }

    /// All places where the uses of this data are noted.
    fn all_noting(&self) -> impl Iterator<Item = &Self> {
        let (found, _) = self.noting(None);
        let parts = found.parts();
        parts.is_empty().then_some(found).into_iter().chain(parts.iter().map(Whole::uses))
    }

    /// Says that `filler` fills data of `owner`. Memory that goes back in the order of another stream does so only after the
    /// work that is queued on `filler` when the data is given up. Other owners decide themselves when to release.
    pub(crate) fn filled_on(&mut self, owner: Option<&Owner>, filler: Stream) -> Result<()> {
        let is_elsewhere = self.in_order(owner).is_some_and(|order| order.is_of_other(filler));
        if is_elsewhere {
            // Work that is queued by now is noted at once, so that nothing is missing later and a capture is refused here.
            self.add(filler)?;
        }
        if let Some(noted) = self.0.made_mut() {
            noted.filler = is_elsewhere.then_some(filler);
        }
        Ok(())
    }

    /// How the memory of the data, or of the whole that it is a view of, is given back in the order of streams, if it is.
    pub(crate) fn in_order(&self, owner: Option<&Owner>) -> Option<InOrder> {
        self.noting(owner).1?.in_order()
    }

    /// Changes the events in all places where the uses of this data are noted.
    fn change(&self, mut change: impl FnMut(&mut Vec<Event>) -> Result<()>) -> Result<()> {
        self.all_noting().try_for_each(|uses| uses.0.get(|| Noted::of(Whose::Own))?.change(&mut change))
    }

    /// Notes that the work queued on `stream` until now uses the data.
    pub(crate) fn add(&self, stream: Stream) -> Result<()> {
        stream.require_no_capture()?;
        self.change(|events| {
            // Work on one stream is done in order, so its last event stands for the earlier ones. But a stream may have the
            // handle of another one that was destroyed. So it waits, on the device, for the earlier events.
            let covered =
                events.iter().filter(|earlier| earlier.is_on(stream)).all(|earlier| earlier.wait(stream).is_ok());
            let event = Event::record(stream)?;
            events.retain(|earlier| !covered || !earlier.is_on(stream));
            make_room(events);
            push(events, event)
        })
    }

    /// Notes that the data is used until an event is complete.
    pub(crate) fn add_event(&self, event: Event) -> Result<()> {
        self.change(|events| {
            // Such events may come from any stream, so none replaces another. Complete ones are dropped, or the list
            // would grow without end.
            Event::drop_complete(events);
            push(events, event.clone())
        })
    }

    /// Whether any work was noted; it may still run.
    ///
    /// # Errors
    /// `DEVX_DEVICE` in a child of `fork`.
    pub(crate) fn are_noted(&self) -> Result<bool> {
        self.each(|_| Ok(()))
    }

    /// Makes `stream` wait, on the device, for the work that was noted until now.
    ///
    /// # Errors
    /// Same as [`super::Ready::wait`].
    pub(crate) fn wait(&self, stream: Stream) -> Result<()> {
        let waited = self.each(|event| {
            stream.require_no_capture()?;
            event.wait_unless_gone(stream)
        });
        waited.map(drop)
    }

    /// Calls `act` with every event. Returns whether there are any.
    fn each(&self, act: impl Fn(&Event) -> Result<()>) -> Result<bool> {
        let mut any = false;
        for noted in self.all_noting().filter_map(|uses| uses.0.made()) {
            // A child of `fork` is refused before it waits for the lock, which a thread of its parent may have held.
            Driver::get()?;
            let mut later = noted.later.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(later) = &mut *later else { continue };
            later.events().iter().try_for_each(&act)?;
            any |= !later.events().is_empty();
        }
        Ok(any)
    }

    /// Notes copies on `stream`; even if they failed, some of them may be queued. If they cannot be noted, the host waits for
    /// them; if even that fails, or if they went astray, one reference is never given up.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; then the owner from `keep` is never released.
    pub(crate) fn hold<T>(
        &self,
        device: Device,
        stream: Stream,
        copied: &Copied<T>,
        keep: impl FnOnce() -> Owner,
    ) -> Result<()> {
        if copied.as_ref().is_err_and(|failed| failed.is_astray) {
            // The failure of the copies itself is reported already.
            abandon(keep());
            return Ok(());
        }
        // No stream knows of host memory: its owner could free it during a copy.
        let noted = if device == Device::CPU { stream.synchronize() } else { self.add(stream) };
        noted.or_else(|_| stream.synchronize()).inspect_err(|_| abandon(keep()))
    }

    /// Gives up what `held` returns when all uses are over. If there are none, the caller gives it up at once.
    #[inline]
    pub(crate) fn then_release(&mut self, held: impl FnOnce() -> Held) {
        if self.0.is_made() {
            self.release_noted(held);
        }
    }

    #[cold]
    #[inline(never)]
    fn release_noted(&mut self, held: impl FnOnce() -> Held) {
        if let Some(noted) = self.0.take() {
            noted.release(held);
        }
    }
}

/// Drops complete events before another one makes the list grow. Data that lives long may be used on any number of
/// short-lived streams, those of threads for example.
fn make_room(events: &mut Vec<Event>) {
    /// With fewer events than this, asking the driver does not pay.
    const FEW: usize = 16;
    if events.len() < FEW.max(events.capacity()) {
        return;
    }
    Event::drop_complete(events);
    // So that the driver is not asked again soon if most events are not complete. Without memory for that, one place is
    // enough.
    let _ = events.try_reserve(events.len());
}

impl Noted {
    fn of(whose: Whose) -> Self {
        Self { later: Mutex::default(), whose, filler: None }
    }

    fn whole(&self) -> Option<&Whole> {
        match &self.whose {
            Whose::View(whole) => Some(whole),
            Whose::Own | Whose::Lent(_) | Whose::Parts(_) => None,
        }
    }

    /// Changes the events with the lock held, so that if two threads name one stream, the later event is also noted last.
    fn change(&self, change: impl FnOnce(&mut Vec<Event>) -> Result<()>) -> Result<()> {
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        change(match &mut *later {
            Some(later) => later.events(),
            none => none.insert(Later::new()?).events(),
        })
    }

    /// Gives up what `held` returns when all uses are over, if there are any.
    fn release(self, held: impl FnOnce() -> Held) {
        let Self { later, whose, filler } = self;
        let producer = match (whose, filler) {
            (Whose::View(whole), Some(filler)) => return release_behind(whole, filler),
            (Whose::Parts(parts), Some(filler)) => {
                return parts.into_iter().for_each(|part| release_behind(part, filler));
            }
            (Whose::View(_) | Whose::Parts(_), None) => return,
            (Whose::Lent(producer), _) => Some(producer),
            (Whose::Own, _) => None,
        };
        let later = later.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(mut later) = later.filter(|later| !later.is_empty()) else { return };
        // If the producer's stream cannot wait, the release still does.
        if let Some(producer) = producer.filter(|producer| producer.is_capturing() == Ok(false)) {
            let others = later.events().iter().filter(|event| !event.is_on(producer));
            others.for_each(|event| drop(event.wait(producer)));
        }
        let waiting = Waiting { later, held: held() };
        match filler {
            Some(filler) => release_behind(waiting, filler),
            None => waiting.give_up(),
        }
    }
}

/// A release that waits for work, before a stream or the reaper takes it over.
struct Waiting {
    later: Later,
    held: Held,
}

impl GiveUp for Waiting {
    fn note(&mut self, stream: Stream) -> Result<()> {
        // An event of a capture completes only within its graph.
        stream.require_no_capture()?;
        push(self.later.events(), Event::record(stream)?)
    }

    fn give_up(mut self) {
        // Memory that is given back on a stream waits on that stream, which may be destroyed as soon as this returns.
        if let Some(stream) = self.held.stream().filter(|stream| stream.is_capturing() == Ok(false))
            && self.later.events().iter().all(|event| event.is_on(stream) || event.wait(stream).is_ok())
        {
            return drop(self.held);
        }
        self.later.release(self.held);
    }

    fn keep(self) -> Held {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dtype::DType;
    use crate::error::Error;
    use crate::tensor::{Flags, Tensor, TensorDesc};

    #[test]
    fn uses_of_a_view_that_never_was_keep_nothing() {
        let memory = Arc::new([1_u8]);
        let desc = TensorDesc {
            data: memory.as_ptr().cast_mut().cast(),
            device: Device::CPU,
            dtype: DType::UINT8,
            shape: &[1],
            strides: None,
            byte_offset: 0,
            flags: Flags::READ_ONLY,
        };
        // SAFETY: the owner keeps the memory.
        let tensor = unsafe { Tensor::from_raw_parts(&desc, Owner::new(Arc::clone(&memory))) };
        let uses = Uses::of_view(Whole::Tensor(tensor.map_err(Error::from).expect("a tensor")));
        assert_eq!(Arc::strong_count(&memory), 2);
        drop(uses);
        assert_eq!(Arc::strong_count(&memory), 1);
    }
}
