//! Our reader, and a producer as somebody else would write it: by the letter, or breaking it in one way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::task::Poll;

use devexchange_core::abi::arrow_async::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask};
use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::{ARROW_DEVICE_CPU, ArrowDeviceArray};
use devexchange_core::abi::types::DEVX_CLOSED;
use devexchange_core::arrow::asynchronous::{AsyncReader, ReaderOptions, Wake};
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::{Batch, Schema};

use crate::{Rng, STEPS, explore};

/// How a producer breaks the contract, or uses what it leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
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
    /// One more than requested.
    TooMany,
    /// A task without `extract_data`.
    NoExtract,
    /// A metadata block that cannot be.
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
    /// `on_error` because of a cancel, as Arrow C++ has it, also from within `cancel`.
    ErrorAfterCancel,
    ErrorInCancel,
    /// Release from within `cancel`, or from within `request`.
    ReleaseInCancel,
    ReleaseInRequest,
    /// `on_next_task`, or `on_error`, from within `request`.
    TaskInRequest,
    ErrorInRequest,
    /// Goes on after a cancel until all is sent that was requested.
    IgnoresCancel,
    /// Releases twice, or calls after the release, while the reader is still there.
    ReleaseTwice,
    CallAfterRelease,
}

const FAULTS: [Fault; 31] = {
    use Fault::*;
    [
        None,
        NoProducer,
        NoRequest,
        BadSchema,
        SchemaTwice,
        TaskFirst,
        EndFirst,
        TooMany,
        NoExtract,
        BadMetadata,
        EndTwice,
        TaskAfterEnd,
        SchemaAfterEnd,
        ErrorAfterEnd,
        TaskAfterError,
        EndAfterError,
        ErrorTwice,
        NoEnd,
        ExtractFails,
        ExtractFailsSilently,
        ExtractGivesNothing,
        ExtractGivesWrong,
        ErrorAfterCancel,
        ErrorInCancel,
        ReleaseInCancel,
        ReleaseInRequest,
        TaskInRequest,
        ErrorInRequest,
        IgnoresCancel,
        ReleaseTwice,
        CallAfterRelease,
    ]
};

impl Fault {
    /// Whether a user who reads to the end, and does not cancel, is told.
    fn is_told(self) -> bool {
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

static VALUES: [u8; 16] = [7; 16];

struct Sent {
    fault: Fault,
    /// Arrays have this length, so that they can be told apart.
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

struct Producer {
    handler: *mut ArrowAsyncDeviceStreamHandler,
    this: ArrowAsyncProducer,
    rng: Rng,
    fault: Fault,
    /// The misdeed is done.
    done: Cell<bool>,
    total: usize,
    fails: bool,
    stage: Cell<Stage>,
    requested: Cell<i64>,
    #[expect(clippy::vec_box, reason = "the tasks point to them")]
    sent: RefCell<Vec<Box<Sent>>>,
    extract_failed: Cell<bool>,
    cancels: Cell<u32>,
    in_request: Cell<bool>,
    /// In `on_error` or `release`, which call no method of the producer.
    deaf: Cell<bool>,
}

impl Producer {
    /// Makes one step; `false` if there is nothing to do.
    fn step(&self) -> bool {
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
        // SAFETY: the handler is not released, or its reader is still there.
        let code = unsafe { ON.on_schema(self.handler, &mut schema) };
        assert!(schema.release.is_none(), "the consumer takes or releases the schema");
        code
    }

    fn go_on(&self) -> bool {
        let sent = self.sent.borrow().len();
        let cancelled = self.cancels.get() > 0;
        if self.extract_failed.get() && self.fault == Fault::ExtractFails {
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
        // SAFETY: the handler is not released, or its reader is still there.
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

    fn release(&self) {
        self.stage.set(Stage::Released);
        self.deaf.set(true);
        // SAFETY: as above; called once, unless the reader is still there.
        unsafe { ON.release(self.handler) };
    }

    /// What only a reader that is still there survives.
    fn after_release(&self) {
        assert!(self.stage.get() == Stage::Released);
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

/// The callbacks of the handler, which are the same for every reader: a producer may remember them.
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
    // SAFETY: set by `schedule`, and the producer outlives the reader.
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
        // SAFETY: made by `extract`, of a task that outlives its array.
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

thread_local!(static TYPE: Schema = Schema::new(&[FieldDesc::new(c"bytes", c"C")]).unwrap());

/// Made once, so that the ledger does not count it: it was not handed to anybody.
pub(crate) fn type_of_batches() -> Schema {
    TYPE.with(Schema::clone)
}

/// What the user of the reader does and sees.
struct User {
    reader: RefCell<Option<Arc<AsyncReader>>>,
    rng: Rng,
    manual: bool,
    cancels: bool,
    /// Once in so many wakes, the user does something within the callback.
    in_wake: usize,
    depth: Cell<u32>,
    cancelled: Cell<bool>,
    kept: RefCell<Vec<Batch>>,
    seen: RefCell<Vec<i64>>,
    errors: Cell<u32>,
    ended: Cell<bool>,
}

struct Woken(*const User);
// SAFETY: the schedules run on one thread.
unsafe impl Send for Woken {}
// SAFETY: as above.
unsafe impl Sync for Woken {}

impl Woken {
    fn wake(&self) {
        // SAFETY: the user outlives the reader.
        let user = unsafe { &*self.0 };
        if user.in_wake > 0 && user.depth.get() < 3 && user.rng.one_in(user.in_wake) {
            user.depth.set(user.depth.get() + 1);
            user.act();
            user.depth.set(user.depth.get() - 1);
        }
    }
}

impl User {
    fn reader(&self) -> Option<Arc<AsyncReader>> {
        self.reader.borrow().clone()
    }

    fn act(&self) {
        let Some(reader) = self.reader() else { return };
        match self.rng.below(24) {
            0 if self.cancels => {
                self.cancelled.set(true);
                reader.cancel();
            }
            1 if self.cancels => {
                self.cancelled.set(true);
                let given_up = self.reader.borrow_mut().take();
                drop(given_up);
            }
            2..=8 if self.manual => reader.request(self.rng.choose(&[1, 1, 2, 3])).unwrap(),
            9 => assert!(reader.request(self.rng.choose(&[0, -1, i64::MIN])).is_err()),
            10 => {
                // Of an error before the schema, whoever asks for that is told, and no one else.
                if matches!(reader.try_schema(), Poll::Ready(Err(error)) if error.status() != DEVX_CLOSED) {
                    self.errors.set(1);
                }
            }
            11 => self.kept.borrow_mut().clear(),
            _ => {
                self.take(&reader);
            }
        }
    }

    /// Whether there was something.
    fn take(&self, reader: &AsyncReader) -> bool {
        let depth = self.depth.get();
        match reader.try_batch() {
            Poll::Pending => false,
            Poll::Ready(None) => {
                self.ended.set(true);
                false
            }
            Poll::Ready(Some(Ok((batch, _)))) => {
                // A batch that was taken within a callback of this very call is seen first.
                if depth == 0 && self.in_wake == 0 {
                    assert!(!self.ended.get() && self.errors.get() == 0, "a batch after the end");
                }
                self.seen.borrow_mut().push(batch.length());
                assert_eq!(batch.root().values::<u8>().unwrap()[0], 7);
                self.kept.borrow_mut().push(batch);
                true
            }
            Poll::Ready(Some(Err(error))) => {
                assert_ne!(error.message(), "");
                self.errors.set(self.errors.get() + 1);
                true
            }
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    done: u32,
    told: u32,
    clean: u32,
    stopped: u32,
    cancelled: u32,
}

#[test]
fn reader_against_any_producer() {
    let tally: RefCell<BTreeMap<Fault, Tally>> = RefCell::default();
    type_of_batches();
    explore("reader", |seed| schedule(seed, &mut tally.borrow_mut()));
    if std::env::var_os("DEVX_ASYNC_SEED").is_some() || std::env::var_os("DEVX_ASYNC_SCHEDULES").is_some() {
        return;
    }
    for fault in FAULTS {
        let tally = tally.borrow();
        let Tally { done, told, clean, stopped, cancelled } = tally[&fault];
        assert!(done > 50 || fault == Fault::None, "{fault:?} was hardly done: {:?}", tally[&fault]);
        assert!(
            told + clean > 50 && stopped > 50 && cancelled > 50,
            "{fault:?} was hardly explored: {:?}",
            tally[&fault]
        );
    }
}

fn schedule(seed: u64, tally: &mut BTreeMap<Fault, Tally>) {
    let rng = Rng::new(seed);
    let fault = rng.choose(&FAULTS);
    let user = Box::new(User {
        reader: RefCell::default(),
        rng: Rng::new(seed ^ 0xabcd),
        manual: rng.one_in(2),
        cancels: rng.one_in(3),
        in_wake: rng.choose(&[0, 1, 4]),
        depth: Cell::default(),
        cancelled: Cell::default(),
        kept: RefCell::default(),
        seen: RefCell::default(),
        errors: Cell::default(),
        ended: Cell::default(),
    });
    let options =
        ReaderOptions { limit: if user.manual { 0 } else { rng.choose(&[1, 2, 5]) }, abi_h_metadata: rng.one_in(2) };
    let woken = Woken(&raw const *user);
    let reader = AsyncReader::new(options, Some(Wake::new(move || woken.wake()).unwrap())).unwrap();
    let handler = reader.handler().unwrap();
    assert!(reader.handler().is_err());
    // SAFETY: handed out just now.
    HANDLER.set(Some(unsafe { *handler }));
    user.reader.replace(Some(Arc::new(reader)));
    let mut producer = Box::new(Producer {
        handler,
        this: ArrowAsyncProducer {
            device_type: ARROW_DEVICE_CPU,
            request: (fault != Fault::NoRequest).then_some(request as _),
            cancel: Some(cancel),
            additional_metadata: null(),
            private_data: null_mut(),
        },
        rng: Rng::new(seed ^ 0x1234),
        fault,
        done: Cell::new(fault == Fault::NoRequest),
        total: rng.below(7) + 1,
        fails: rng.one_in(5),
        stage: Cell::new(Stage::Schema),
        requested: Cell::default(),
        sent: RefCell::default(),
        extract_failed: Cell::default(),
        cancels: Cell::default(),
        in_request: Cell::default(),
        deaf: Cell::default(),
    });
    producer.this.private_data = (&raw const *producer).cast_mut().cast();
    // A producer that stops does so for good.
    let stops_at = if rng.one_in(4) { rng.below(14) } else { usize::MAX };
    let reads_on = rng.one_in(2);

    let mut steps = 0;
    let mut idle = 0;
    for turn in 0.. {
        assert!(turn < STEPS, "there is no end to it");
        let failed = producer.sent.borrow().iter().any(|sent| {
            matches!(sent.fault, Fault::ExtractFails) && sent.extracted.get() > 0 && sent.with_data.get() == 0
        });
        producer.extract_failed.set(failed);
        let produces = rng.one_in(2);
        if produces && steps < stops_at {
            steps += usize::from(producer.step());
        } else if turn < 30 {
            user.act();
        }
        // Then somebody who reads on wants all that comes.
        if turn >= 30 {
            let Some(reader) = user.reader().filter(|_| reads_on) else { break };
            let _ = reader.request(1).map_err(|error| panic!("{error}"));
            let took = user.take(&reader);
            let stepped = steps < stops_at && producer.step();
            steps += usize::from(stepped);
            idle = if took || stepped { 0 } else { idle + 1 };
            if idle > 20 {
                break;
            }
        }
    }

    let read_all = user.reader().is_some() && reads_on && stops_at == usize::MAX;
    if read_all {
        assert!(producer.stage.get() == Stage::Released, "a producer that moves releases: {fault:?} idle {idle}");
        assert!(user.ended.get(), "a producer that moves comes to an end");
        if user.reader().is_some() {
            producer.after_release();
        }
    }
    assert!(user.errors.get() <= 1, "an error is told once");
    assert!(user.seen.borrow().is_sorted_by(|a, b| a < b) || user.in_wake > 0, "in order: {:?}", user.seen);
    let entry = tally.entry(fault).or_default();
    entry.done += u32::from(producer.done.get());
    if user.cancelled.get() {
        entry.cancelled += 1;
    } else if stops_at != usize::MAX {
        entry.stopped += 1;
    } else if read_all {
        let expected = producer.done.get() && fault.is_told() || producer.fails;
        let nested = fault == Fault::TaskInRequest;
        if !nested {
            assert_eq!(user.errors.get() == 1, expected, "{fault:?} told: {}", user.errors.get());
        }
        if user.errors.get() == 0 {
            entry.clean += 1;
            assert!(user.seen.borrow().len() >= producer.total, "all batches come");
        } else {
            entry.told += 1;
        }
    }

    // Whoever is left goes, in any order; a producer that stopped is ended by its owner.
    let reader_first = rng.one_in(2);
    if reader_first {
        user.reader.take();
    }
    if reader_first {
        check_tasks(&producer);
    }
    if producer.stage.get() != Stage::Released {
        producer.release();
    }
    user.reader.take();
    check_tasks(&producer);
    let kept = user.kept.take();
    for sent in producer.sent.borrow().iter() {
        assert!(sent.released.get() <= sent.with_data.get());
    }
    drop(kept);
    for sent in producer.sent.borrow().iter() {
        assert_eq!(sent.released.get(), sent.with_data.get(), "an array is released once");
    }
}

/// With the reader gone, every task was extracted once, whatever became of it.
fn check_tasks(producer: &Producer) {
    for sent in producer.sent.borrow().iter() {
        assert_eq!(sent.extracted.get(), 1, "task {} of {:?}", sent.length, producer.fault);
    }
}
