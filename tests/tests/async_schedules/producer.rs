//! A producer as somebody else would write it: correct, or breaking the contract in one way.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use devexchange_core::abi::arrow_async::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask};
use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::{ARROW_DEVICE_CPU, ArrowDeviceArray};

use crate::Rng;
use crate::batches::{VALUES, type_of_batches};

listed! {
    /// How a producer breaks the contract, or uses its freedom.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Fault in FAULTS {
        None,
        /// `on_schema` before `handler.producer` is set.
        NoProducer,
        /// `producer.request` is NULL.
        NoRequest,
        /// A schema with a format that does not exist.
        BadSchema,
        /// `on_schema` again.
        SchemaTwice,
        /// A task, or the end, before the schema.
        TaskFirst,
        EndFirst,
        /// One batch more than requested.
        TooMany,
        /// A task without `extract_data`.
        NoExtract,
        /// An invalid metadata block.
        BadMetadata,
        /// The end twice; a task, a schema or an error after it.
        EndTwice,
        TaskAfterEnd,
        SchemaAfterEnd,
        ErrorAfterEnd,
        /// Anything but release after an error.
        TaskAfterError,
        EndAfterError,
        ErrorTwice,
        /// Release without an end.
        NoEnd,
        /// `extract_data` fails; `on_error` follows, or not.
        ExtractFails,
        ExtractFailsSilently,
        /// `extract_data` succeeds and gives nothing, or an array of another type.
        ExtractGivesNothing,
        ExtractGivesWrong,
        /// `on_error` because of a cancel, as in Arrow C++, even from within `cancel`.
        ErrorAfterCancel,
        ErrorInCancel,
        /// Release from within `cancel`, or from within `request`.
        ReleaseInCancel,
        ReleaseInRequest,
        /// `on_next_task`, or `on_error`, from within `request`.
        TaskInRequest,
        ErrorInRequest,
        /// Continues after a cancel until everything requested has been sent.
        IgnoresCancel,
        /// Releases twice, or calls after the release, while the reader is still there.
        ReleaseTwice,
        CallAfterRelease,
    }
}

impl Fault {
    /// Whether a user that reads to the end, without cancelling, gets an error.
    pub(crate) fn is_told(self) -> bool {
        use Fault::*;
        !matches!(
            self,
            None | EndTwice
                | TaskAfterEnd
                | SchemaAfterEnd
                | ErrorAfterEnd
                | ErrorAfterCancel
                | ErrorInCancel
                | ReleaseInCancel
                | TaskInRequest
                | IgnoresCancel
                | ReleaseTwice
                | CallAfterRelease
        )
    }
}

struct Sent {
    fault: Fault,
    /// The length of the array, which identifies it.
    length: i64,
    extracted: Cell<u32>,
    with_data: Cell<u32>,
    released: Cell<u32>,
    buffers: [*const c_void; 2],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Schema,
    Tasks,
    Over,
    Released,
}

/// The producer, and the results of its actions.
pub(crate) struct Producer {
    handler: *mut ArrowAsyncDeviceStreamHandler,
    this: ArrowAsyncProducer,
    rng: Rng,
    fault: Fault,
    /// Whether the fault has been committed.
    done: Cell<bool>,
    /// The number of batches that it sends before it ends or fails.
    pub(crate) total: usize,
    pub(crate) fails: bool,
    stage: Cell<Stage>,
    requested: Cell<i64>,
    #[expect(clippy::vec_box, reason = "the tasks point to them")]
    sent: RefCell<Vec<Box<Sent>>>,
    cancels: Cell<u32>,
    in_request: Cell<bool>,
    /// Whether it is in `on_error` or `release`, which call no method of the producer.
    deaf: Cell<bool>,
}

impl Producer {
    /// A producer for a reader's handler.
    pub(crate) fn new(
        handler: *mut ArrowAsyncDeviceStreamHandler,
        rng: Rng,
        fault: Fault,
        total: usize,
        fails: bool,
    ) -> Box<Self> {
        // SAFETY: the reader has just handed it out.
        HANDLER.set(Some(unsafe { *handler }));
        let mut producer = Box::new(Self {
            handler,
            this: ArrowAsyncProducer {
                device_type: ARROW_DEVICE_CPU,
                request: (fault != Fault::NoRequest).then_some(request as _),
                cancel: Some(cancel),
                additional_metadata: null(),
                private_data: null_mut(),
            },
            rng,
            fault,
            done: Cell::new(fault == Fault::NoRequest),
            total,
            fails,
            stage: Cell::new(Stage::Schema),
            requested: Cell::default(),
            sent: RefCell::default(),
            cancels: Cell::default(),
            in_request: Cell::default(),
            deaf: Cell::default(),
        });
        producer.this.private_data = (&raw const *producer).cast_mut().cast();
        producer
    }

    /// Whether it has committed its fault.
    pub(crate) fn has_done_it(&self) -> bool {
        self.done.get()
    }

    /// Whether the handler is released.
    pub(crate) fn is_over(&self) -> bool {
        self.stage.get() == Stage::Released
    }

    /// After the reader is gone, checks that every task was extracted once, whatever became of it.
    pub(crate) fn check_tasks(&self) {
        for sent in self.sent.borrow().iter() {
            assert_eq!(sent.extracted.get(), 1, "task {} of {:?}", sent.length, self.fault);
        }
    }

    /// Checks that no array is released twice, or without having been taken; with nothing kept, all must be released.
    pub(crate) fn check_arrays(&self, kept: bool) {
        for sent in self.sent.borrow().iter() {
            let (released, taken) = (sent.released.get(), sent.with_data.get());
            assert!(released == taken || kept && released < taken, "an array is released once: {released} of {taken}");
        }
    }

    /// Makes one step; `false` if there is nothing to do.
    pub(crate) fn step(&self) -> bool {
        match self.stage.get() {
            Stage::Schema => self.begin(),
            Stage::Tasks => return self.go_on(),
            Stage::Over => self.release(),
            Stage::Released => return false,
        }
        true
    }

    fn misdeed(&self, fault: Fault) -> bool {
        self.fault == fault && !self.done.get()
    }

    fn commit(&self, fault: Fault) -> bool {
        let now = self.misdeed(fault);
        self.done.set(self.done.get() || now);
        now
    }

    fn begin(&self) {
        if self.commit(Fault::TaskFirst) {
            self.send(Fault::None);
            return;
        }
        if self.commit(Fault::EndFirst) {
            self.end();
            return;
        }
        if self.fails && self.rng.one_in(8) {
            self.error(5, Stage::Over);
            return;
        }
        if !self.commit(Fault::NoProducer) {
            // SAFETY: the handler is not released, and the struct lives as long as this.
            unsafe { (*self.handler).producer = (&raw const self.this).cast_mut() };
        }
        let refused = self.schema(self.commit(Fault::BadSchema)) != 0;
        if self.stage.get() == Stage::Schema {
            self.stage.set(if refused { Stage::Over } else { Stage::Tasks });
        }
    }

    fn schema(&self, bad: bool) -> c_int {
        let mut schema = ArrowSchema::RELEASED;
        // SAFETY: there is room.
        unsafe { type_of_batches().export(&mut schema) }.unwrap();
        if bad {
            schema.format = c"?".as_ptr();
        }
        // SAFETY: the handler is not released, or its reader still exists.
        let code = unsafe { ON.on_schema(self.handler, &mut schema) };
        assert!(schema.release.is_none(), "the consumer takes or releases the schema");
        code
    }

    fn go_on(&self) -> bool {
        let sent = self.sent.borrow().len();
        let cancelled = self.cancels.get() > 0;
        if self.fault == Fault::ExtractFails && self.extraction_failed() {
            self.error(6, Stage::Over);
        } else if cancelled && self.commit(Fault::ErrorAfterCancel) {
            self.error(22, Stage::Over);
        } else if cancelled && (self.fault != Fault::IgnoresCancel || self.may_send() <= 0) && self.rng.one_in(2) {
            self.stage.set(Stage::Over);
        } else if self.commit(Fault::SchemaTwice) {
            if self.schema(false) != 0 {
                self.stage.set(Stage::Over);
            }
        } else if self.misdeed(Fault::TooMany) && self.may_send() <= 0 {
            self.done.set(true);
            self.send(Fault::None);
        } else if sent > 0 && self.commit(Fault::NoEnd) {
            self.release();
        } else if sent < self.total && self.may_send() > 0 {
            let fault = [Fault::NoExtract, Fault::BadMetadata].into_iter().find(|fault| self.commit(*fault));
            let in_task = matches!(
                self.fault,
                Fault::ExtractFails
                    | Fault::ExtractFailsSilently
                    | Fault::ExtractGivesNothing
                    | Fault::ExtractGivesWrong
            );
            let fault = fault.or((in_task && self.commit(self.fault)).then_some(self.fault));
            self.send(fault.unwrap_or(Fault::None));
        } else if sent >= self.total {
            self.finish();
        } else {
            return false;
        }
        true
    }

    fn extraction_failed(&self) -> bool {
        let failed =
            |sent: &Sent| sent.fault == Fault::ExtractFails && sent.extracted.get() > 0 && sent.with_data.get() == 0;
        self.sent.borrow().iter().any(|sent| failed(sent))
    }

    fn may_send(&self) -> i64 {
        self.requested.get() - self.sent.borrow().len() as i64
    }

    fn finish(&self) {
        let after_error = matches!(self.fault, Fault::TaskAfterError | Fault::EndAfterError | Fault::ErrorTwice);
        if self.fails || after_error {
            self.error(5, Stage::Over);
        } else {
            self.end();
        }
        self.stage.set(Stage::Over);
        let more =
            [Fault::EndTwice, Fault::TaskAfterEnd, Fault::SchemaAfterEnd, Fault::ErrorAfterEnd].contains(&self.fault);
        self.done.set(self.done.get() || after_error || more);
        match self.fault {
            Fault::EndTwice | Fault::EndAfterError => self.end(),
            Fault::TaskAfterEnd | Fault::TaskAfterError => self.send(Fault::None),
            Fault::SchemaAfterEnd => assert_ne!(self.schema(false), 0),
            Fault::ErrorAfterEnd | Fault::ErrorTwice => self.error(7, Stage::Over),
            _ => {}
        }
    }

    fn send(&self, fault: Fault) {
        if self.cancels.get() > 0 {
            self.commit(Fault::IgnoresCancel);
        }
        let mut sent = self.sent.borrow_mut();
        let length = sent.len() as i64 + 1;
        sent.push(Box::new(Sent {
            fault,
            length,
            extracted: Cell::new(0),
            with_data: Cell::new(0),
            released: Cell::new(0),
            buffers: [null(), VALUES.as_ptr().cast()],
        }));
        let private_data = (&raw const **sent.last().unwrap()).cast_mut().cast();
        if fault == Fault::NoExtract {
            sent.last().unwrap().extracted.set(1);
        }
        drop(sent);
        let extract_data = if fault == Fault::NoExtract { None } else { Some(extract as _) };
        let mut task = ArrowAsyncTask { extract_data, private_data };
        let metadata: *const i32 = if fault == Fault::BadMetadata { &-1 } else { null() };
        // SAFETY: the handler is not released, or its reader still exists.
        let code = unsafe { ON.on_next_task(self.handler, &mut task, metadata.cast()) };
        assert_eq!(code, 0, "a task is never refused");
    }

    fn end(&self) {
        // SAFETY: as above.
        let code = unsafe { ON.on_next_task(self.handler, null_mut(), null()) };
        assert_eq!(code, 0);
        if self.stage.get() == Stage::Tasks {
            self.stage.set(Stage::Over);
        }
    }

    fn error(&self, code: c_int, next: Stage) {
        self.stage.set(next);
        let deaf = self.deaf.replace(true);
        // SAFETY: as above.
        unsafe { ON.on_error(self.handler, code, c"no luck".as_ptr(), null()) };
        self.deaf.set(deaf);
    }

    /// Releases the handler, as its last action.
    pub(crate) fn release(&self) {
        self.stage.set(Stage::Released);
        self.deaf.set(true);
        // SAFETY: as above; called once, unless the reader still exists.
        unsafe { ON.release(self.handler) };
    }

    /// Actions that are survived only if the reader still exists.
    pub(crate) fn after_release(&self) {
        assert!(self.is_over());
        if self.commit(Fault::ReleaseTwice) {
            self.release();
        }
        if self.commit(Fault::CallAfterRelease) {
            match self.rng.below(4) {
                0 => self.send(Fault::None),
                1 => self.end(),
                2 => self.error(9, Stage::Released),
                _ => assert_ne!(self.schema(false), 0),
            }
        }
    }
}

/// The callbacks of the handler, which are the same for every reader, so a producer can remember them.
struct Callbacks;
const ON: Callbacks = Callbacks;

thread_local! {
    static HANDLER: Cell<Option<ArrowAsyncDeviceStreamHandler>> = const { Cell::new(None) };
}

impl Callbacks {
    fn get(&self) -> ArrowAsyncDeviceStreamHandler {
        HANDLER.get().unwrap()
    }
    unsafe fn on_schema(&self, handler: *mut ArrowAsyncDeviceStreamHandler, schema: *mut ArrowSchema) -> c_int {
        // SAFETY: the caller's contract.
        unsafe { self.get().on_schema.unwrap()(handler, schema) }
    }
    unsafe fn on_next_task(
        &self,
        handler: *mut ArrowAsyncDeviceStreamHandler,
        task: *mut ArrowAsyncTask,
        metadata: *const c_char,
    ) -> c_int {
        // SAFETY: the caller's contract.
        unsafe { self.get().on_next_task.unwrap()(handler, task, metadata) }
    }
    unsafe fn on_error(
        &self,
        handler: *mut ArrowAsyncDeviceStreamHandler,
        code: c_int,
        message: *const c_char,
        metadata: *const c_char,
    ) {
        // SAFETY: the caller's contract.
        unsafe { self.get().on_error.unwrap()(handler, code, message, metadata) }
    }
    unsafe fn release(&self, handler: *mut ArrowAsyncDeviceStreamHandler) {
        // SAFETY: the caller's contract.
        unsafe { self.get().release.unwrap()(handler) }
    }
}

unsafe extern "C" fn request(producer: *mut ArrowAsyncProducer, n: i64) {
    // SAFETY: set by `Producer::new`, and the producer outlives the reader.
    let producer = unsafe { &*(*producer).private_data.cast::<Producer>() };
    assert!(n > 0, "request({n})");
    assert!(!producer.deaf.get(), "request after the last word");
    assert_eq!(producer.cancels.get(), 0, "request after cancel");
    assert!(!producer.in_request.replace(true), "request within request");
    producer.requested.set(producer.requested.get().checked_add(n).unwrap());
    if producer.commit(Fault::TaskInRequest) {
        producer.send(Fault::None);
    }
    if producer.commit(Fault::ErrorInRequest) {
        producer.error(8, Stage::Over);
    }
    if producer.commit(Fault::ReleaseInRequest) {
        producer.release();
    }
    producer.in_request.set(false);
}

unsafe extern "C" fn cancel(producer: *mut ArrowAsyncProducer) {
    // SAFETY: as above.
    let producer = unsafe { &*(*producer).private_data.cast::<Producer>() };
    assert!(!producer.deaf.get(), "cancel after the last word");
    producer.cancels.set(producer.cancels.get() + 1);
    assert_eq!(producer.cancels.get(), 1, "cancel is called once");
    if producer.commit(Fault::ErrorInCancel) {
        producer.error(22, Stage::Over);
    }
    if producer.commit(Fault::ReleaseInCancel) {
        producer.release();
    }
}

unsafe extern "C" fn extract(task: *mut ArrowAsyncTask, out: *mut ArrowDeviceArray) -> c_int {
    unsafe extern "C" fn release(array: *mut ArrowArray) {
        // SAFETY: made by `extract`, from a task that outlives its array.
        let sent = unsafe { &*(*array).private_data.cast::<Sent>() };
        sent.released.set(sent.released.get() + 1);
        // SAFETY: as above.
        unsafe { (*array).release = None };
    }
    // SAFETY: made by `Producer::send`; the tasks live as long as the producer.
    let sent = unsafe { &*(*task).private_data.cast::<Sent>() };
    sent.extracted.set(sent.extracted.get() + 1);
    if out.is_null() {
        return 0;
    }
    match sent.fault {
        Fault::ExtractFails | Fault::ExtractFailsSilently => return 5,
        Fault::ExtractGivesNothing => return 0,
        _ => sent.with_data.set(1),
    }
    let n_buffers = if sent.fault == Fault::ExtractGivesWrong { 1 } else { 2 };
    let array = ArrowArray {
        length: sent.length,
        null_count: 0,
        offset: 0,
        n_buffers,
        n_children: 0,
        buffers: sent.buffers.as_ptr().cast_mut(),
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(release),
        private_data: (&raw const *sent).cast_mut().cast(),
    };
    let (device_id, device_type) = (-1, ARROW_DEVICE_CPU);
    // SAFETY: the consumer gives room.
    unsafe { out.write(ArrowDeviceArray { array, device_id, device_type, sync_event: null_mut(), reserved: [0; 3] }) };
    0
}
