//! When data may be touched, and when it may be released.
//!
//! What a producer queued comes before a consumer's work: the consumer's stream waits on the device, the host never
//! does. What a consumer queued comes before the release: `Uses` keeps an event for each stream that was named, and the
//! release is called when they are complete.

use core::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};
use crate::memory::{InOrder, Lazy, Owner, Vacant, push};
pub use crate::runtime::cuda::NO_SYNC;
use crate::runtime::cuda::copy::Copied;
use crate::runtime::cuda::reaper::{Held, Later};
use crate::runtime::cuda::{Event, ForeignEvent, HeldStream, RawStream, Stream, reaper};
use crate::tensor::Tensor;
use crate::view::Whole;

/// When data may be touched. It cannot be cloned: what the data came with is good as long as the data.
#[derive(Debug)]
pub enum Ready {
    /// Now.
    Now,
    /// After what was queued on the legacy default stream of a device when the data is handed on.
    Legacy(i32),
    /// The same of any stream. See [`Ready::queued`].
    Queued(HeldStream),
    /// After an event.
    After(Event),
    /// After an event of the producer's, which lives as long as the data (Arrow's `sync_event`).
    Foreign(ForeignEvent),
}

impl Ready {
    /// What is right for data of which nothing is known: on a GPU it was queued on the legacy default stream (array API,
    /// `stream=None`; CUDA Array Interface before version 3).
    #[inline]
    pub fn unknown(device: Device) -> Self {
        device.legacy_stream().map_or(Self::Now, |stream| Self::Legacy(stream.ordinal()))
    }

    /// After what was queued on `stream` when the data is handed on. The stream is held until then: who closes it
    /// ([`Stream::close`]) need not know of the data.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn queued(stream: Stream) -> Result<Self> {
        // That one is never destroyed.
        if stream == Stream::legacy(stream.ordinal()) {
            return Ok(Self::Legacy(stream.ordinal()));
        }
        HeldStream::new(stream).map(Self::Queued)
    }

    /// The stream that the data was queued on, if that says when it may be touched.
    pub(crate) fn stream(&self) -> Option<Stream> {
        match self {
            Self::Legacy(ordinal) => Some(Stream::legacy(*ordinal)),
            Self::Queued(queued) => Some(queued.stream()),
            Self::Now | Self::After(_) | Self::Foreign(_) => None,
        }
    }

    /// As [`Ready::unknown`], of memory at an address, whose device may be another one ([`Device::of_stream`]).
    pub(crate) fn unknown_at(device: Device, address: *const c_void) -> Self {
        Self::unknown(device.of_stream(RawStream::LEGACY, || address))
    }

    /// Makes `stream` wait, on the device, until the data may be touched.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; `DEVX_UNSUPPORTED` if the stream is being captured and would have to wait for work outside of it.
    pub fn wait(&self, stream: Stream) -> Result<()> {
        let behind = |queued| {
            if queued == stream {
                return Ok(());
            }
            stream.require_no_capture()?;
            recorded(queued)?.wait(stream)
        };
        match self {
            Self::Now => Ok(()),
            Self::Legacy(ordinal) => behind(Stream::legacy(*ordinal)),
            Self::Queued(queued) => behind(queued.stream()),
            Self::After(event) => {
                stream.require_no_capture()?;
                event.wait(stream)
            }
            Self::Foreign(event) => {
                stream.require_no_capture()?;
                event.wait(stream)
            }
        }
    }

    /// Blocks the host until the data may be touched.
    ///
    /// # Errors
    /// As [`Stream::synchronize`]; `DEVX_UNSUPPORTED` for an event of the producer's.
    pub(crate) fn synchronize(&self) -> Result<()> {
        match self {
            Self::Now => Ok(()),
            Self::Legacy(ordinal) => Stream::legacy(*ordinal).synchronize(),
            Self::Queued(queued) => queued.stream().synchronize(),
            Self::After(event) => event.synchronize(),
            Self::Foreign(_) => refuse!(DEVX_UNSUPPORTED, "the memory is ready after somebody else's event"),
        }
    }

    /// The same once more, for who keeps the data.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Now => Self::Now,
            Self::Legacy(ordinal) => Self::Legacy(*ordinal),
            Self::Queued(stream) => Self::Queued(stream.clone()),
            Self::After(event) => Self::After(event.clone()),
            Self::Foreign(event) => Self::Foreign(event.again()),
        }
    }

    /// What an Arrow `sync_event` holds: the address of an event's handle, or NULL for data that is ready. With it comes the
    /// event, if one had to be recorded; others live as long as the data.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; `DEVX_UNSUPPORTED` if the stream is being captured, as an event in a graph cannot be waited for
    /// outside of it.
    #[inline]
    pub(crate) fn sync_event(&self) -> Result<(*mut c_void, Option<Event>)> {
        if let Self::Now = self { Ok((std::ptr::null_mut(), None)) } else { self.sync_event_later() }
    }

    /// Apart, so that data which is ready pays for nothing of it.
    #[inline(never)]
    fn sync_event_later(&self) -> Result<(*mut c_void, Option<Event>)> {
        let behind = |queued| recorded(queued).map(|event| (event.address(), Some(event)));
        match self {
            Self::Now => Ok((std::ptr::null_mut(), None)),
            Self::Legacy(ordinal) => behind(Stream::legacy(*ordinal)),
            Self::Queued(queued) => behind(queued.stream()),
            Self::After(event) => Ok((event.address(), None)),
            Self::Foreign(event) => Ok((event.address(), None)),
        }
    }

    /// One order out of several: `stream` waits for all of them, and so what is queued there afterwards comes after all.
    ///
    /// # Errors
    /// As [`Ready::wait`].
    pub fn merge<'a>(all: impl IntoIterator<Item = &'a Self>, stream: Stream) -> Result<Self> {
        for one in all {
            one.wait(stream)?;
        }
        Self::queued(stream)
    }

    /// For the host, which does not wait by itself: what is queued may be done, or have been waited for.
    ///
    /// # Errors
    /// `DEVX_NOT_READY`, `DEVX_DRIVER`.
    #[inline]
    pub(crate) fn require_now(&self) -> Result<()> {
        if let Self::Now = self { Ok(()) } else { self.require_done() }
    }

    #[inline(never)]
    fn require_done(&self) -> Result<()> {
        let is_done = match self {
            Self::Now => true,
            Self::Legacy(ordinal) => Stream::legacy(*ordinal).is_done()?,
            Self::Queued(queued) => queued.stream().is_done()?,
            Self::After(event) => event.is_complete()?,
            Self::Foreign(event) => event.is_complete()?,
        };
        if is_done {
            return Ok(());
        }
        match self.stream() {
            Some(stream) => refuse!(
                DEVX_NOT_READY,
                "the data is queued on stream {:#x} of cuda:{}, which is not done: synchronize it first",
                stream.value(),
                stream.ordinal()
            ),
            None => refuse!(DEVX_NOT_READY, "the data comes after an event that is not complete: wait for that first"),
        }
    }
}

/// An event behind what is queued on a stream. One of a capture would draw who waits for it into that.
fn recorded(queued: Stream) -> Result<Event> {
    queued.require_no_capture()?;
    Event::record(queued)
}

/// The streams that use the data, by events. Nothing as long as none was named, as for nearly all that is in host memory.
#[derive(Default)]
pub(crate) struct Uses(Lazy<Noted>);

struct Noted {
    /// The release that waits for the events; made with the first one.
    later: Mutex<Option<Later>>,
    whose: Whose,
    /// Who fills the data, if memory of it is given back in another order: what is queued there in the end comes before that.
    filler: Option<Stream>,
}

/// Whose data is used, and so who waits for the uses to be over.
enum Whose {
    /// It has an owner of its own.
    Own,
    /// Its producer works on a stream, which has to wait for the uses before it goes on (CUDA Array Interface,
    /// "Synchronization").
    Lent(Stream),
    /// It is a view: what uses it uses the whole, which is the one to wait.
    View(Whole),
    /// It is made of several, each of which waits for itself. None of them is a view, or is made of others.
    Parts(Vec<Whole>),
}

impl Uses {
    fn of(whose: Whose) -> Result<Self> {
        Ok(Self(Lazy::new(Noted::of(whose))?))
    }

    /// Of data whose producer works on a stream.
    pub(crate) fn lent(producer: Stream) -> Result<Self> {
        Self::of(Whose::Lent(producer))
    }

    pub(crate) fn of_view(whole: Whole) -> Result<Self> {
        Self::of(Whose::View(whole))
    }

    /// Of data that is made of other data, which it keeps by itself: what uses it uses all of that.
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
        // Those that share memory have one event there.
        parts.sort_unstable_by_key(|part| std::ptr::from_ref(part.uses()));
        parts.dedup_by_key(|part| std::ptr::from_ref(part.uses()));
        Self::of(Whose::Parts(parts))
    }

    /// What the data is a view of, if what is a view of it may as well be one of that. It may not if the view has a filler of its
    /// own, as that is asked for its last work when the view is given up.
    pub(crate) fn whole(&self) -> Option<Whole> {
        self.0.made().filter(|noted| noted.filler.is_none()).and_then(Noted::whole).cloned()
    }

    /// The uses in which those of this data are noted, and the owner of the data that they are of: a view has those of the
    /// whole. In a loop, as there may be any number of views of views.
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

    /// All in which the uses of this data are noted.
    fn all_noting(&self) -> impl Iterator<Item = &Self> {
        let (found, _) = self.noting(None);
        let parts = found.parts();
        parts.is_empty().then_some(found).into_iter().chain(parts.iter().map(Whole::uses))
    }

    /// Says that `filler` fills data of `owner`. Memory that is given back in the order of another stream is so only after
    /// what is queued on `filler` when the data is given up; other owners know by themselves when to.
    pub(crate) fn filled_on(&mut self, owner: Option<&Owner>, filler: Stream) -> Result<()> {
        let is_elsewhere = self.in_order(owner).is_some_and(|order| order.is_of_other(filler));
        if is_elsewhere {
            // What is queued by now is noted at once: so nothing is wanting in the end, and a capture is refused here.
            self.add(filler)?;
        }
        if let Some(noted) = self.0.made_mut() {
            noted.filler = is_elsewhere.then_some(filler);
        }
        Ok(())
    }

    /// How memory of the data, or of what it is a view of, is given back in the order of streams, if it is.
    pub(crate) fn in_order(&self, owner: Option<&Owner>) -> Option<InOrder> {
        self.noting(owner).1?.in_order()
    }

    /// Changes the events of all that this data is of.
    fn change(&self, mut change: impl FnMut(&mut Vec<Event>) -> Result<()>) -> Result<()> {
        self.all_noting().try_for_each(|uses| uses.0.get(|| Noted::of(Whose::Own))?.change(&mut change))
    }

    /// Notes that work which is queued on `stream` until now uses the data.
    pub(crate) fn add(&self, stream: Stream) -> Result<()> {
        stream.require_no_capture()?;
        self.change(|events| {
            // Work on one stream is done in order, so its last event stands for the ones before. But this may be another
            // stream, which was given the handle of one that was destroyed: so it waits, on the device, for what they say.
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
            // Nobody says of such events which stands for which: what is over goes, or there would be ever more.
            Event::drop_complete(events);
            push(events, event.clone())
        })
    }

    /// Whether work was noted, which may still run.
    pub(crate) fn are_noted(&self) -> bool {
        matches!(self.each(|_| Ok(())), Ok(true))
    }

    /// Makes `stream` wait, on the device, for the work that was noted until now.
    ///
    /// # Errors
    /// As [`Ready::wait`].
    pub(crate) fn wait(&self, stream: Stream) -> Result<()> {
        let waited = self.each(|event| {
            stream.require_no_capture()?;
            event.wait(stream)
        });
        waited.map(drop)
    }

    /// Does something with every event; whether there is any.
    fn each(&self, act: impl Fn(&Event) -> Result<()>) -> Result<bool> {
        let mut any = false;
        for noted in self.all_noting().filter_map(|uses| uses.0.made()) {
            let mut later = noted.later.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(later) = &mut *later else { continue };
            later.events().iter().try_for_each(&act)?;
            any |= !later.events().is_empty();
        }
        Ok(any)
    }

    /// Notes copies on `stream`, some of which may be queued also if they failed. If they cannot be noted, the host waits for
    /// them; if not even that is possible, or if they went astray, one reference is never given up.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; then `keep` was lost.
    pub(crate) fn hold<T>(
        &self,
        device: Device,
        stream: Stream,
        copied: &Copied<T>,
        keep: impl FnOnce() -> Owner,
    ) -> Result<()> {
        if copied.as_ref().is_err_and(|failed| failed.is_astray) {
            // That the copies failed is said already.
            reaper::abandon(keep());
            return Ok(());
        }
        // Host memory is known to no stream: its owner would free it under a copy.
        let noted = if device == Device::CPU { stream.synchronize() } else { self.add(stream) };
        noted.or_else(|_| stream.synchronize()).inspect_err(|_| reaper::abandon(keep()))
    }

    /// Gives up what `held` says when all uses are over: at once, by the caller, if there are none.
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

/// Before another event makes the list grow, those that are over go: what is used for long may be so on any number of streams, of
/// threads for example, that are there for a while each.
fn make_room(events: &mut Vec<Event>) {
    /// As many are not worth asking the driver.
    const FEW: usize = 16;
    if events.len() < FEW.max(events.capacity()) {
        return;
    }
    Event::drop_complete(events);
    // So that it is not asked again soon where most go on; without memory for that, one place is enough.
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

    /// Changes the events with the lock held: of two threads that name one stream, the one whose event is the later one is
    /// the last to come.
    fn change(&self, change: impl FnOnce(&mut Vec<Event>) -> Result<()>) -> Result<()> {
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        change(match &mut *later {
            Some(later) => later.events(),
            none => none.insert(Later::new()?).events(),
        })
    }

    /// Gives up what `held` says when all uses are over, if there are any.
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
        // If it cannot wait, the release still does.
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

/// What can be given up after work.
pub(crate) trait GiveUp: Send + 'static {
    /// Notes what is queued on `stream` until now.
    fn note(&mut self, stream: Stream) -> Result<()>;

    /// Gives it up after what was noted. Returns at once.
    fn give_up(self);

    /// What must not be given up while work goes on that cannot be noted.
    fn keep(self) -> Held;
}

/// A release that waits for work, before it is handed to whoever waits.
struct Waiting {
    later: Later,
    held: Held,
}

impl GiveUp for Waiting {
    fn note(&mut self, stream: Stream) -> Result<()> {
        // An event of a capture completes in its graph only.
        stream.require_no_capture()?;
        push(self.later.events(), Event::record(stream)?)
    }

    fn give_up(mut self) {
        // Memory that is given back on a stream waits there: its stream may be destroyed as soon as this returns.
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

/// Gives something up after what is queued on `stream` until now, or, if that is being captured, until the capture has
/// ended. If that cannot be noted, the host waits for it; if not even that is possible, one reference is never given up.
pub(crate) fn release_behind(mut thing: impl GiveUp, stream: Stream) {
    let Err(error) = thing.note(stream) else { return thing.give_up() };
    if reaper::is_over(&error) {
        return thing.give_up();
    }
    if stream.is_capturing() == Ok(true)
        && let Some((later, room)) = Later::new().ok().zip(Vacant::find())
    {
        let release = move || release_behind(thing, stream);
        return later.release_after_capture(stream, Owner::releasing(room, None, release));
    }
    match stream.synchronize() {
        Err(error) if !reaper::is_over(&error) => reaper::abandon(thing.keep()),
        _ => thing.give_up(),
    }
}

/// Checks the `stream` argument of a DLPack request against the device's table
/// (array API, data interchange: semantics of `stream`).
///
/// # Errors
/// `DEVX_INVALID_STREAM` with the value and what the device takes.
#[inline]
pub fn check_stream(device: Device, stream: i64) -> Result<()> {
    if stream == NO_SYNC { Ok(()) } else { check_any_stream(device, stream) }
}

/// The stream that a DLPack request for a tensor asks for; `None` for [`NO_SYNC`].
///
/// # Errors
/// As [`check_stream`].
#[inline]
pub(crate) fn asked(tensor: &Tensor, stream: RawStream) -> Result<Option<Stream>> {
    if stream == RawStream::NO_SYNC {
        return Ok(None);
    }
    check_any_stream(tensor.device(), stream.value())?;
    tensor.device_of(stream).stream(stream).transpose()
}

/// Of any value but [`NO_SYNC`].
fn check_any_stream(device: Device, stream: i64) -> Result<()> {
    match (device.kind, stream) {
        (DeviceType::CPU, _) => {
            refuse!(DEVX_INVALID_STREAM, "stream is {stream}: the cpu takes -1 (no synchronisation) or none")
        }
        (DeviceType::CUDA | DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED, 0) => refuse!(
            DEVX_INVALID_STREAM,
            "stream is 0: ambiguous on cuda; 1 is the legacy default stream, 2 the per-thread one"
        ),
        (DeviceType::ROCM | DeviceType::ROCM_HOST, 1 | 2) => {
            refuse!(DEVX_INVALID_STREAM, "stream is {stream}: rocm has 0 for the default stream, or a handle")
        }
        (_, s) if s < 0 => refuse!(DEVX_INVALID_STREAM, "stream is {stream}: neither -1 nor a stream handle"),
        _ => Ok(()),
    }
}

/// When an array with this `sync_event` may be touched (C Device data interface, synchronization event types).
///
/// # Errors
/// `DEVX_DEVICE` for an event on a device that has none.
///
/// # Safety
/// `sync_event` is NULL, or points to an event handle that lives as long as the result is used.
pub unsafe fn of_sync_event(device: Device, sync_event: *mut c_void) -> Result<Ready> {
    if sync_event.is_null() {
        return Ok(Ready::Now);
    }
    match device.kind {
        DeviceType::CPU => {
            refuse!(DEVX_DEVICE, "sync_event is {sync_event:p}: the cpu has no events, it must be NULL")
        }
        // SAFETY: the caller's contract.
        _ => Ok(Ready::Foreign(unsafe { ForeignEvent::new(sync_event) }?)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dtype::DType;
    use crate::error::Error;
    use crate::tensor::{Flags, TensorDesc};

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
