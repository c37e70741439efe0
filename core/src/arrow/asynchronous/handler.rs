//! The handler that a producer receives: its callbacks take what comes and pass it to the reader's state.

use core::ffi::{c_char, c_int};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::task::Poll;

use super::bell::{Belled, Deadline, Turn};
use super::reading::{Callback, Reading, Work, broken};
use super::task::Task;
use super::{Caller, Home, MetadataBlock, Wake, shielded};
use crate::abi::arrow_async::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask};
use crate::abi::arrow_data::ArrowSchema;
use crate::abi::types::DEVX_OUT_OF_MEMORY;
use crate::arrow::{Schema, release_schema};
use crate::device::DeviceType;
use crate::error::{Error, Result};
use crate::ledger::{Entry, Kind};
use crate::memory::{Slab, TailSize};
use crate::text::{Lossy, bytes};

/// The most bytes of an error text that are read.
const MAX_TEXT: usize = 1 << 16;

/// A task that has come, and its metadata.
pub(super) struct Arrival {
    pub(super) task: Task,
    pub(super) metadata: Option<MetadataBlock>,
}

/// The producer, as it introduced itself in `on_schema`.
pub(super) struct Peer {
    address: *mut ArrowAsyncProducer,
    request: unsafe extern "C" fn(*mut ArrowAsyncProducer, i64),
    cancel: unsafe extern "C" fn(*mut ArrowAsyncProducer),
    pub(super) device_type: DeviceType,
    pub(super) metadata: Option<MetadataBlock>,
    /// The schema of all its arrays.
    pub(super) schema: Schema,
}

type State = Reading<Arrival, Schema>;

/// The state that reader and producer share. The producer holds one reference, which its release of the handler gives
/// back.
pub(super) struct Shared {
    handler: UnsafeCell<ArrowAsyncDeviceStreamHandler>,
    pub(super) state: Belled<State>,
    pub(super) peer: OnceLock<Peer>,
    /// Code and metadata of `on_error`.
    pub(super) producer_error: OnceLock<(i32, Option<MetadataBlock>)>,
    /// Whether the producer's metadata is read, at the place where `abi.h` has it.
    reads_metadata: bool,
    /// Set when the handler is handed out.
    handed_out: OnceLock<Entry>,
    pub(super) home: Home,
}

// SAFETY: the handler is written before it is handed out and then belongs to the producer, which calls one callback at
// a time; the peer's address is only used within the calls that `Reading` allows. The rest synchronises itself.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(super) fn new(limit: i64, reads_metadata: bool, wake: Option<Wake>) -> Result<Slab<Self>> {
        let room = Slab::room(TailSize::default())?;
        let private_data = room.as_raw();
        Ok(room.fill(Self {
            handler: UnsafeCell::new(ArrowAsyncDeviceStreamHandler {
                on_schema: Some(on_schema),
                on_next_task: Some(on_next_task),
                on_error: Some(on_error),
                release: Some(release),
                producer: std::ptr::null_mut(),
                private_data,
            }),
            state: Belled::new(Reading::new(limit), wake),
            peer: OnceLock::new(),
            producer_error: OnceLock::new(),
            reads_metadata,
            handed_out: OnceLock::new(),
            home: Home::here(),
        }))
    }

    /// Returns the handler, with its own reference, the first time.
    pub(super) fn hand_out(shared: &Slab<Self>) -> Option<*mut ArrowAsyncDeviceStreamHandler> {
        let mut first = false;
        shared.header().handed_out.get_or_init(|| {
            first = true;
            Entry::open(Kind::StreamImport)
        });
        first.then(|| {
            // Given back by `release`.
            shared.add_refs(1);
            shared.header().handler.get()
        })
    }

    /// Does everything that follows from earlier steps, with no lock held.
    pub(super) fn settle(&self) {
        self.act(Caller::me(), |_| None, |_| ());
    }

    /// Takes a step, and then does what follows from it with no lock held: drops the task that the step returns, then
    /// whatever else has to be done. When nothing is left to do, takes the last step.
    fn act(&self, me: Caller, step: impl FnOnce(&mut State) -> Option<Arrival>, last: impl FnOnce(&mut State)) {
        let mut turn = self.state.begin();
        if let Some(unwanted) = step(turn.parts().0) {
            turn = turn.aside(|| drop(unwanted));
        }
        loop {
            let (reading, bells) = turn.parts();
            let Some(work) = reading.work(me) else { break };
            turn = match work {
                Work::Drop(tasks) => turn.aside(|| drop(tasks)),
                Work::Wake => match bells.ring() {
                    Some(ring) => turn.aside(|| ring.tell()),
                    None => turn,
                },
                // SAFETY: the producer is known and has not released; release waits for this call.
                Work::Cancel => self.call(turn, false, |peer| unsafe { (peer.cancel)(peer.address) }),
                // SAFETY: as above.
                Work::Request(n) => self.call(turn, true, |peer| unsafe { (peer.request)(peer.address, n) }),
            };
        }
        last(turn.parts().0);
        turn.end();
    }

    /// Calls the producer: its `request` if `request` is true, otherwise its `cancel`.
    fn call<'a>(&self, turn: Turn<'a, State>, request: bool, call: impl FnOnce(&Peer)) -> Turn<'a, State> {
        let mut turn = turn.aside(|| {
            if let Some(peer) = self.peer.get() {
                call(peer);
            }
        });
        let (reading, bells) = turn.parts();
        reading.called(request);
        bells.nudge();
        turn
    }

    /// Returns the state that a handler belongs to, with a new reference, because the last other reference may be given
    /// up within the callback.
    ///
    /// # Safety
    /// `handler` is a handler of this library that is not released, or whose reader still exists.
    unsafe fn held(handler: *mut ArrowAsyncDeviceStreamHandler) -> Slab<Self> {
        // SAFETY: the caller's contract.
        let raw = unsafe { (*handler).private_data };
        // SAFETY: this is the address that `new` wrote; the reference stays with the producer or the reader.
        let theirs = ManuallyDrop::new(unsafe { Slab::from_raw(raw) });
        Slab::clone(&theirs)
    }

    /// Runs the body of a callback that the producer called.
    ///
    /// # Safety
    /// Same as [`Shared::held`].
    unsafe fn callback<R>(
        handler: *mut ArrowAsyncDeviceStreamHandler,
        callback: Callback,
        otherwise: R,
        body: impl FnOnce(&Slab<Self>) -> R,
    ) -> R {
        // SAFETY: the caller's contract.
        let shared = unsafe { Self::held(handler) };
        let me = Caller::me();
        shared.header().state.with(|reading| reading.enter(me, callback));
        let result = shielded(otherwise, || body(&shared));
        shared.header().leave(me, |_| None);
        result
    }

    /// Ends a callback: takes its last step, does what follows from it, and then marks the callback as returned.
    fn leave(&self, me: Caller, step: impl FnOnce(&mut State) -> Option<Arrival>) {
        let left = shielded(false, || {
            self.act(me, step, Reading::leave);
            true
        });
        // A callback that panicked returns, too.
        if !left {
            self.state.with(Reading::leave);
        }
    }

    /// Reads the producer and its schema, and checks both.
    ///
    /// # Safety
    /// `address` is NULL or points to a producer that is valid until the handler is released. `schema` points to a
    /// valid schema, which the consumer may move or release.
    unsafe fn meet(&self, address: *mut ArrowAsyncProducer, schema: *mut ArrowSchema) -> Result<Peer> {
        if address.is_null() {
            return Err(broken("on_schema was called before handler.producer was set"));
        }
        // The fields up to `cancel` lie at the same place in every layout that is in use.
        // SAFETY: the caller's contract.
        let producer = unsafe { &*address };
        let (Some(request), Some(cancel)) = (producer.request, producer.cancel) else {
            return Err(broken("producer.request or producer.cancel is NULL"));
        };
        let block = if self.reads_metadata { producer.additional_metadata } else { std::ptr::null() };
        // SAFETY: the user says that the producer has this layout, and a block is as long as it says.
        let metadata = unsafe { MetadataBlock::copy(block) }.map_err(|error| error.within("producer: "))?;
        let device_type = DeviceType(producer.device_type);
        // SAFETY: the caller's contract.
        let schema = unsafe { Schema::import(schema) }?;
        Ok(Peer { address, request, cancel, device_type, metadata, schema })
    }
}

unsafe extern "C" fn on_schema(handler: *mut ArrowAsyncDeviceStreamHandler, schema: *mut ArrowSchema) -> c_int {
    let body = |held: &Slab<Shared>| {
        let shared = held.header();
        // SAFETY: the producer sets its address before this call.
        let producer = unsafe { (*handler).producer };
        // SAFETY: as above, and it gives a valid schema.
        let found = unsafe { shared.meet(producer, schema) }.map(|peer| {
            let schema = peer.schema.clone();
            // The first producer stays: the state refuses a second schema.
            let _ = shared.peer.set(peer);
            schema
        });
        // SAFETY: as above; a schema that was imported is marked as moved from.
        unsafe { release_schema(schema) };
        let code = match &found {
            Err(error) if error.status() == DEVX_OUT_OF_MEMORY => libc::ENOMEM,
            _ => libc::EINVAL,
        };
        match shared.state.with(|reading| reading.on_schema(found)) {
            Ok(()) => 0,
            Err(unwanted) => {
                drop(unwanted);
                if shared.state.with(|reading| reading.is_cancelled()) { libc::ECANCELED } else { code }
            }
        }
    };
    // SAFETY: a producer passes the handler that it was given.
    unsafe { Shared::callback(handler, Callback::Schema, libc::EIO, body) }
}

/// Always takes the task and returns 0: the specification does not say who owns a refused task, so none is refused.
unsafe extern "C" fn on_next_task(
    handler: *mut ArrowAsyncDeviceStreamHandler,
    task: *mut ArrowAsyncTask,
    block: *const c_char,
) -> c_int {
    let come = || {
        (!task.is_null()).then(|| {
            // SAFETY: the producer passes a task that the consumer may extract.
            let task = unsafe { Task::copy(task) };
            if !task.can_be_extracted() {
                let error = Error::callback(libc::EPROTO, "the producer broke the contract: task.extract_data is NULL");
                return Err((error, None));
            }
            // SAFETY: the block is NULL or valid during the call.
            match unsafe { MetadataBlock::copy(block) } {
                Ok(metadata) => Ok(Arrival { task, metadata }),
                Err(error) => Err((error.within("batch: "), Some(Arrival { task, metadata: None }))),
            }
        })
    };
    // SAFETY: a producer passes the handler that it was given.
    let shared = unsafe { Shared::held(handler) };
    let me = Caller::me();
    // Other callbacks take several turns of the lock; this one takes a single turn.
    shared.header().leave(me, |reading| {
        reading.enter(me, Callback::Task);
        reading.on_next_task(come())
    });
    0
}

unsafe extern "C" fn on_error(
    handler: *mut ArrowAsyncDeviceStreamHandler,
    code: c_int,
    message: *const c_char,
    block: *const c_char,
) {
    let body = |held: &Slab<Shared>| {
        let shared = held.header();
        // SAFETY: the text is NULL or valid during the call.
        let text = unsafe { text(message) }.unwrap_or(Lossy(b"it does not say why"));
        // An error with bad metadata is still that error.
        // SAFETY: as above.
        let metadata = unsafe { MetadataBlock::copy(block) }.unwrap_or(None);
        let _ = shared.producer_error.set((code, metadata));
        let error = Error::callback(code, format_args!("the producer failed with error {code}: {text}"));
        shared.state.with(|reading| reading.on_error(error));
    };
    // SAFETY: a producer passes the handler that it was given.
    unsafe { Shared::callback(handler, Callback::Error, (), body) }
}

/// # Safety
/// `text` is NULL or NUL-terminated, and outlives the result.
unsafe fn text<'a>(text: *const c_char) -> Option<Lossy<'a>> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's contract.
    Some(Lossy(unsafe { bytes(text, MAX_TEXT) }))
}

unsafe extern "C" fn release(handler: *mut ArrowAsyncDeviceStreamHandler) {
    let body = |held: &Slab<Shared>| {
        let shared = held.header();
        if !shared.state.with(|reading| reading.release()) {
            return;
        }
        let me = Caller::me();
        let quiet = |reading: &mut State| if reading.is_quiet(me) { Poll::Ready(()) } else { Poll::Pending };
        let _ = shared.state.wait(&Deadline::never(), quiet);
        // SAFETY: the handler belongs to the producer until this call returns.
        unsafe { (*handler).release = None };
        // SAFETY: this is the reference that `hand_out` left with the producer; the state says that this happens once.
        unsafe { Slab::<Shared>::release_raw(held.as_raw(), 1) };
    };
    // SAFETY: a producer passes the handler that it was given.
    unsafe { Shared::callback(handler, Callback::Release, (), body) }
}
