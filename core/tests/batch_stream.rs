//! Streams of batches: from Rust and from foreign producers, to Rust and to foreign consumers; ends, errors, releases.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "a test plays the part of a foreign program")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::types::*;
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{release_array, release_device_stream, release_schema, release_stream};
use devexchange_core::{Batch, BatchStream, Device, DeviceType, Error, Owner, Result, Schema};

const CPU: DeviceType = DeviceType::CPU;

// ---- batches ----

fn schema() -> Schema {
    Schema::new(&[FieldDesc::batch(1), FieldDesc::new(c"n", c"i")]).unwrap()
}

/// One column of so many equal numbers, kept alive by the batch; `released` counts.
fn batch(schema: &Schema, value: i32, released: &Arc<AtomicUsize>) -> Batch {
    let values = vec![value; 3];
    let (validity, numbers) = ([null()], [null(), values.as_ptr().cast::<c_void>()]);
    let node = |buffers| NodeDesc { length: 3, null_count: 0, offset: 0, buffers };
    let released = Arc::clone(released);
    let owner = Owner::on_release(move || {
        drop(values);
        released.fetch_add(1, SeqCst);
    });
    unsafe { Batch::from_raw_parts(schema, Device::CPU, &[node(&validity), node(&numbers)], owner) }.unwrap()
}

fn value_of(batch: &Batch) -> i32 {
    batch.column(0).unwrap().values::<i32>().unwrap()[0]
}

/// Batches with the values 0, 1, 2, ...
fn counting(n: i32, released: &Arc<AtomicUsize>) -> BatchStream {
    let (of, released) = (schema(), Arc::clone(released));
    BatchStream::of(&schema(), CPU, (0..n).map(move |value| Ok(batch(&of, value, &released)))).unwrap()
}

#[track_caller]
fn check_error<T: std::fmt::Debug>(result: Result<T>, status: DevxStatus, part: &str) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.status(), status, "{error}");
    assert!(error.message().contains(part), "{:?} lacks {part:?}", error.message());
    error
}

// ---- both kinds of stream, as a foreign program sees them ----

trait Foreign: Sized {
    type Chunk;
    const NAME: &'static str;
    fn get_schema(&mut self, out: *mut ArrowSchema) -> c_int;
    fn get_next(&mut self, out: *mut Self::Chunk) -> c_int;
    fn last_error(&mut self) -> Option<String>;
    fn release(&mut self);
    fn is_released(&self) -> bool;
    fn array(chunk: &mut Self::Chunk) -> &mut ArrowArray;
    fn chunk(array: ArrowArray) -> Self::Chunk;
    fn export(stream: BatchStream) -> Self;
    fn import(&mut self) -> Result<BatchStream>;
    /// A struct whose callbacks do what `Producer` says.
    fn produced(producer: Producer<Self::Chunk>) -> Self;
    fn members(&self) -> [usize; 5];
    /// The next value, `None` at the end, or the code.
    fn pull(&mut self, released: &mut Vec<ArrowArray>) -> std::result::Result<Option<i32>, c_int> {
        let mut chunk = unsafe { MaybeUninit::<Self::Chunk>::zeroed().assume_init() };
        match self.get_next(&mut chunk) {
            0 => {}
            code => return Err(code),
        }
        let array = *Self::array(&mut chunk);
        if array.release.is_none() {
            return Ok(None);
        }
        released.push(array);
        let column = unsafe { **array.children };
        Ok(Some(unsafe { *(*column.buffers.add(1)).cast::<i32>() }))
    }
}

type Step<C> = Box<dyn FnMut(*mut C) -> c_int + Send>;

/// What a foreign producer does.
struct Producer<C> {
    get_schema: Box<dyn FnMut(*mut ArrowSchema) -> c_int + Send>,
    get_next: Step<C>,
    text: *const c_char,
    calls: Arc<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    get_schema: AtomicUsize,
    get_next: AtomicUsize,
    release: AtomicUsize,
}

impl<C> Producer<C> {
    fn new(get_next: impl FnMut(*mut C) -> c_int + Send + 'static) -> (Self, Arc<Calls>) {
        let calls = Arc::new(Calls::default());
        let get_schema = |out| {
            unsafe { schema().export(out) }.unwrap();
            0
        };
        let (get_schema, get_next) = (Box::new(get_schema), Box::new(get_next));
        (Self { get_schema, get_next, text: c"it is on fire".as_ptr(), calls: Arc::clone(&calls) }, calls)
    }
}

macro_rules! foreign {
    ($Struct:ident, $Chunk:ident, $export:ident, $import:ident, |$chunk:ident| $array:expr, |$given:ident| $made:expr
     $(, $device_type:ident)?) => {
        impl Foreign for $Struct {
            type Chunk = $Chunk;
            const NAME: &'static str = stringify!($Struct);
            fn get_schema(&mut self, out: *mut ArrowSchema) -> c_int {
                unsafe { self.get_schema.unwrap()(self, out) }
            }
            fn get_next(&mut self, out: *mut $Chunk) -> c_int {
                unsafe { self.get_next.unwrap()(self, out) }
            }
            fn last_error(&mut self) -> Option<String> {
                let text = unsafe { self.get_last_error.unwrap()(self) };
                (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned())
            }
            fn release(&mut self) {
                if let Some(release) = self.release {
                    unsafe { release(self) }
                    assert!(self.release.is_none());
                }
            }
            fn is_released(&self) -> bool {
                self.release.is_none()
            }
            fn array($chunk: &mut $Chunk) -> &mut ArrowArray {
                $array
            }
            fn chunk($given: ArrowArray) -> $Chunk {
                $made
            }
            fn members(&self) -> [usize; 5] {
                [
                    self.get_schema.map_or(0, |callback| callback as usize),
                    self.get_next.map_or(0, |callback| callback as usize),
                    self.get_last_error.map_or(0, |callback| callback as usize),
                    self.release.map_or(0, |callback| callback as usize),
                    self.private_data as usize,
                ]
            }
            fn export(stream: BatchStream) -> Self {
                let mut out = MaybeUninit::uninit();
                unsafe { stream.$export(out.as_mut_ptr()) }.unwrap();
                unsafe { out.assume_init() }
            }
            fn import(&mut self) -> Result<BatchStream> {
                unsafe { BatchStream::$import(self) }
            }
            fn produced(producer: Producer<$Chunk>) -> Self {
                unsafe extern "C" fn get_schema(stream: *mut $Struct, out: *mut ArrowSchema) -> c_int {
                    let producer = unsafe { &mut *(*stream).private_data.cast::<Producer<$Chunk>>() };
                    producer.calls.get_schema.fetch_add(1, SeqCst);
                    (producer.get_schema)(out)
                }
                unsafe extern "C" fn get_next(stream: *mut $Struct, out: *mut $Chunk) -> c_int {
                    let producer = unsafe { &mut *(*stream).private_data.cast::<Producer<$Chunk>>() };
                    producer.calls.get_next.fetch_add(1, SeqCst);
                    (producer.get_next)(out)
                }
                unsafe extern "C" fn get_last_error(stream: *mut $Struct) -> *const c_char {
                    unsafe { (*(*stream).private_data.cast::<Producer<$Chunk>>()).text }
                }
                unsafe extern "C" fn release(stream: *mut $Struct) {
                    let producer = unsafe { Box::from_raw((*stream).private_data.cast::<Producer<$Chunk>>()) };
                    producer.calls.release.fetch_add(1, SeqCst);
                    unsafe { (*stream).release = None };
                }
                $Struct {
                    $($device_type: 1,)?
                    get_schema: Some(get_schema),
                    get_next: Some(get_next),
                    get_last_error: Some(get_last_error),
                    release: Some(release),
                    private_data: Box::into_raw(Box::new(producer)).cast(),
                }
            }
        }
    };
}
foreign!(ArrowArrayStream, ArrowArray, export, import, |chunk| chunk, |array| array);
foreign!(
    ArrowDeviceArrayStream,
    ArrowDeviceArray,
    export_device,
    import_device,
    |chunk| &mut chunk.array,
    |array| ArrowDeviceArray { array, device_id: -1, device_type: 1, sync_event: null_mut(), reserved: [0; 3] },
    device_type
);

/// Runs a test for both structs.
macro_rules! for_both {
    ($name:ident, $test:ident) => {
        #[test]
        fn $name() {
            $test::<ArrowArrayStream>();
            $test::<ArrowDeviceArrayStream>();
        }
    };
}

/// An array of one column by a foreign producer, with the value in all rows.
fn foreign_array(value: i32, released: &Arc<AtomicUsize>) -> ArrowArray {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let mut out = MaybeUninit::uninit();
    let batch = batch(SCHEMA.get_or_init(schema), value, released);
    unsafe { batch.export(out.as_mut_ptr()) }.unwrap();
    unsafe { out.assume_init() }
}

// ---- there and back ----

fn goes_out_and_comes_back<S: Foreign>() {
    let released = Arc::default();
    let mut exported = S::export(counting(3, &released));
    let stream = exported.import().unwrap();
    assert!(exported.is_released());
    assert_eq!((stream.device_type(), stream.schema().nodes()), (CPU, 2));
    let batches: Vec<_> = stream.batches().map(|batch| batch.unwrap()).collect();
    assert!(stream.next().unwrap().is_none() && stream.next().unwrap().is_none(), "the end stays the end");
    drop(stream);
    assert_eq!(batches.iter().map(value_of).collect::<Vec<_>>(), [0, 1, 2], "batches outlive their stream");
    assert_eq!(released.load(SeqCst), 0);
    std::thread::spawn(move || drop(batches)).join().unwrap();
    assert_eq!(released.load(SeqCst), 3);
}
for_both!(a_stream_goes_out_and_comes_back, goes_out_and_comes_back);

fn consumer_sees_the_end<S: Foreign>() {
    let released = Arc::default();
    let mut stream = S::export(counting(2, &released));
    let mut arrays = Vec::new();
    // A consumer may move the struct.
    let mut moved = unsafe { (&raw mut stream).read() };
    let mut described = unsafe { zeroed() };
    assert_eq!(moved.get_schema(&mut described), 0);
    assert_eq!(moved.get_schema(null_mut()), libc::EINVAL);
    assert_eq!(moved.last_error().as_deref(), Some("out is NULL"));
    assert_eq!(moved.pull(&mut arrays), Ok(Some(0)));
    assert_eq!(moved.last_error(), None, "the last call succeeded");
    assert_eq!(moved.pull(&mut arrays), Ok(Some(1)));
    for _ in 0..3 {
        let mut chunk = S::chunk(arrays[0]);
        assert_eq!(moved.get_next(&mut chunk), 0);
        assert!(S::array(&mut chunk).release.is_none(), "the end is written over whatever was there");
        assert_eq!(moved.last_error(), None);
    }
    moved.release();
    // Schema and arrays do not depend on the stream.
    assert_eq!(unsafe { CStr::from_ptr((**described.children).format) }, c"i");
    unsafe { release_schema(&mut described) };
    assert_eq!(released.load(SeqCst), 0);
    arrays.iter_mut().for_each(|array| unsafe { release_array(array) });
    assert_eq!(released.load(SeqCst), 2);
}
for_both!(a_foreign_consumer_sees_batches_and_the_end, consumer_sees_the_end);

fn released_is_refused<S: Foreign>() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let source = move || {
        seen.fetch_add(1, SeqCst);
        Ok(None)
    };
    let mut stream = S::export(BatchStream::new(&schema(), CPU, source).unwrap());
    assert_eq!(Arc::strong_count(&asked), 2);
    stream.release();
    assert_eq!(Arc::strong_count(&asked), 1, "the source goes with the stream");
    stream.release();
    let mut chunk = S::chunk(unsafe { zeroed() });
    let mut described = unsafe { zeroed() };
    assert_eq!(stream.get_next(&mut chunk), libc::EINVAL);
    assert_eq!(stream.get_schema(&mut described), libc::EINVAL);
    assert_eq!(stream.last_error(), None);
    assert_eq!(asked.load(SeqCst), 0, "nothing was called");
    check_error(stream.import(), DEVX_RELEASED, "stream.release is NULL");
}
for_both!(a_released_stream_is_refused_and_nothing_is_called, released_is_refused);

fn released_in_the_middle<S: Foreign>() {
    let released = Arc::default();
    let mut stream = S::export(counting(5, &released));
    let mut arrays = Vec::new();
    assert_eq!(stream.pull(&mut arrays), Ok(Some(0)));
    let imported = stream.import().unwrap();
    let second = imported.next().unwrap().unwrap();
    drop(imported);
    assert_eq!((value_of(&second), arrays[0].length), (1, 3));
    drop(second);
    unsafe { release_array(&mut arrays[0]) };
    assert_eq!(released.load(SeqCst), 2, "what was not pulled was not made");
}
for_both!(a_stream_may_be_released_in_the_middle, released_in_the_middle);

#[test]
fn a_stream_may_be_released_by_its_own_source() {
    static STREAM: OnceLock<usize> = OnceLock::new();
    let source = || {
        unsafe { release_stream(*STREAM.get().unwrap() as *mut ArrowArrayStream) };
        Ok(None)
    };
    let stream = Box::into_raw(Box::new(ArrowArrayStream::export(BatchStream::new(&schema(), CPU, source).unwrap())));
    STREAM.set(stream as usize).unwrap();
    let mut array = foreign_array(1, &Arc::default());
    let mut before = array;
    assert_eq!(unsafe { (*stream).get_next(&mut array) }, 0);
    assert!(array.release.is_none());
    unsafe { release_array(&mut before) };
    assert!(unsafe { Box::from_raw(stream) }.is_released());
}

#[test]
fn a_refused_export_gives_the_stream_back() {
    let released = Arc::default();
    let refused = unsafe { counting(1, &released).export(null_mut()) }.unwrap_err();
    assert_eq!(refused.error.status(), DEVX_NULL_ARGUMENT);
    let refused = unsafe { refused.returned.export_device(null_mut()) }.unwrap_err();
    assert_eq!(refused.error.message(), "out is NULL");
    assert_eq!(value_of(&refused.returned.next().unwrap().unwrap()), 0);
}

#[test]
fn raw_references_and_clones_share_one_position() {
    let released = Arc::default();
    let stream = counting(3, &released);
    let raw = stream.clone().into_raw();
    let pulled = unsafe { BatchStream::borrow_raw(raw) }.next().unwrap().unwrap();
    assert_eq!((value_of(&pulled), value_of(&stream.next().unwrap().unwrap())), (0, 1));
    drop(stream);
    let stream = unsafe { BatchStream::from_raw(raw) };
    // Exported and kept: two that pull from one source.
    let mut exported = ArrowArrayStream::export(stream.clone());
    assert_eq!(value_of(&stream.next().unwrap().unwrap()), 2);
    assert_eq!(exported.pull(&mut Vec::new()), Ok(None));
    exported.release();
}

// ---- errors ----

#[test]
fn an_error_is_yielded_once_and_stays() {
    let (of, released) = (schema(), Arc::default());
    let asked = Arc::new(AtomicUsize::new(0));
    let (given, seen) = (Arc::clone(&released), Arc::clone(&asked));
    let source = move || match seen.fetch_add(1, SeqCst) {
        0 => Ok(Some(batch(&of, 7, &given))),
        _ => Err(Error::new(DEVX_INVALID_ARGUMENT, "row 3 is bad")),
    };
    let stream = BatchStream::new(&schema(), CPU, source).unwrap();
    let mut batches = stream.batches();
    assert_eq!(value_of(&batches.next().unwrap().unwrap()), 7);
    check_error(batches.next().unwrap(), DEVX_INVALID_ARGUMENT, "row 3 is bad");
    assert!(batches.next().is_none() && batches.next().is_none());
    check_error(stream.next(), DEVX_INVALID_ARGUMENT, "row 3 is bad");
    let again: Vec<_> = (&stream).into_iter().map(|batch| batch.map(drop)).collect();
    assert_eq!(again, [Err(Error::new(DEVX_INVALID_ARGUMENT, "row 3 is bad"))]);
    assert_eq!(asked.load(SeqCst), 2, "the source is not asked again");
    // That a call runs is said of a call on the stream alone.
    let stream = BatchStream::new(&schema(), CPU, || Err(Error::new(DEVX_BUSY, "the inner stream is busy"))).unwrap();
    for _ in 0..2 {
        let error = check_error(stream.next(), DEVX_CALLBACK, "the inner stream is busy");
        assert_eq!(error.errno(), libc::EBUSY);
    }
}

fn consumer_sees_the_error<S: Foreign>() {
    let cases = [
        (DEVX_OUT_OF_MEMORY, libc::ENOMEM),
        (DEVX_UNSUPPORTED, libc::ENOTSUP),
        (DEVX_DRIVER, libc::EIO),
        (DEVX_CALLBACK, libc::EIO),
        (DEVX_MISMATCH, libc::EINVAL),
        // Of the source's own, which is not another call on this stream.
        (DEVX_BUSY, libc::EBUSY),
    ];
    for (status, code) in cases {
        let source = move || Err(Error::new(status, "größer\0 than 4"));
        let mut stream = S::export(BatchStream::new(&schema(), CPU, source).unwrap());
        for _ in 0..2 {
            let mut chunk = S::chunk(foreign_array(1, &Arc::default()));
            assert_eq!(stream.get_next(&mut chunk), code);
            let array = S::array(&mut chunk);
            assert_eq!(array.length, 3, "an output is written on success only");
            unsafe { release_array(array) };
            assert_eq!(stream.last_error().as_deref(), Some("größer? than 4"));
        }
        let text = |stream: &mut S| stream.last_error();
        let mut described = unsafe { zeroed() };
        assert_eq!((stream.get_schema(&mut described), text(&mut stream)), (0, None));
        unsafe { release_schema(&mut described) };
        assert_eq!((stream.get_next(null_mut()), text(&mut stream)), (libc::EINVAL, Some("out is NULL".into())));
        assert_eq!((stream.pull(&mut Vec::new()), text(&mut stream)), (Err(code), Some("größer? than 4".into())));
        stream.release();
    }
}
for_both!(a_foreign_consumer_sees_the_error_again_and_again, consumer_sees_the_error);

fn panic_ends_here<S: Foreign>() {
    struct Bad;
    impl Drop for Bad {
        #[expect(clippy::panic, reason = "that is what is tried")]
        fn drop(&mut self) {
            panic!("while dropping");
        }
    }
    let bad = Bad;
    #[expect(clippy::panic, reason = "that is what is tried")]
    let source = move || {
        let _kept = &bad;
        panic!("nobody expects this")
    };
    let mut stream = S::export(BatchStream::new(&schema(), CPU, source).unwrap());
    for _ in 0..2 {
        assert_eq!(stream.pull(&mut Vec::new()), Err(libc::EIO));
        assert_eq!(stream.last_error().as_deref(), Some("nobody expects this"));
    }
    stream.release();
    assert!(stream.is_released());
}
for_both!(a_panic_of_the_source_or_of_its_drop_ends_here, panic_ends_here);

/// The consumer releases the stream while it is asked for a batch, so the source is dropped when that call ends.
fn release_within_a_call<S: Foreign + 'static>() {
    struct Bad;
    impl Drop for Bad {
        #[expect(clippy::panic, reason = "that is what is tried")]
        fn drop(&mut self) {
            panic!("while dropping");
        }
    }
    struct There<S>(*mut S);
    unsafe impl<S> Send for There<S> {}
    let stream = Box::into_raw(Box::<S>::new_uninit());
    let (bad, there) = (Bad, There(stream.cast::<S>()));
    let source = move || {
        let (_kept, there) = (&bad, &there);
        unsafe { (*there.0).release() };
        Ok(None)
    };
    let stream = unsafe { &mut *stream }.write(S::export(BatchStream::new(&schema(), CPU, source).unwrap()));
    assert_eq!(stream.pull(&mut Vec::new()), Ok(None));
    assert!(stream.is_released());
    drop(unsafe { Box::from_raw(stream) });
}
for_both!(a_panic_of_a_source_released_in_its_own_call_ends_here, release_within_a_call);

#[test]
fn a_batch_of_another_shape_is_refused() {
    let released = Arc::default();
    let of = |fields: &[FieldDesc<'_>]| Schema::new(fields).unwrap();
    let stream_of = |schema: &Schema, batch: Batch| BatchStream::of(schema, CPU, [Ok(batch)]).unwrap();
    // The same shape in another schema, with another flag: fine.
    let required = of(&[FieldDesc::batch(1), FieldDesc { flags: 0, ..FieldDesc::new(c"n", c"i") }]);
    let stream = stream_of(&required, batch(&schema(), 4, &released));
    assert_eq!(value_of(&stream.next().unwrap().unwrap()), 4);
    // With another name a consumer would take one column for another.
    let renamed = of(&[FieldDesc::batch(1), FieldDesc::new(c"m", c"i")]);
    let stream = stream_of(&renamed, batch(&schema(), 4, &released));
    check_error(stream.next(), DEVX_MISMATCH, "column 0 is named \"n\", the stream's \"m\"");
    let other = of(&[FieldDesc::batch(1), FieldDesc::new(c"n", c"f")]);
    let stream = stream_of(&other, batch(&schema(), 4, &released));
    for _ in 0..2 {
        check_error(stream.next(), DEVX_MISMATCH, "field \"n\": the format is \"i\", the stream's is \"f\"");
    }
    let two = of(&[FieldDesc::batch(2), FieldDesc::new(c"n", c"i"), FieldDesc::new(c"o", c"i")]);
    let stream = stream_of(&two, batch(&schema(), 4, &released));
    check_error(stream.next(), DEVX_MISMATCH, "the batch has 1 columns, the stream 2");
    assert_eq!(released.load(SeqCst), 4, "what is refused is released");
}

#[test]
fn a_device_type_without_a_runtime_is_refused() {
    for kind in [99, 10, -3] {
        let (given, kept) = (Arc::new(()), Arc::new(()));
        let moved = Arc::clone(&given);
        let take = || {
            let kept = Arc::clone(&kept);
            move || {
                let _ = (&moved, &kept);
                Ok(None)
            }
        };
        check_error(BatchStream::with(&schema(), DeviceType(kind), take), DEVX_DEVICE, &kind.to_string());
        assert_eq!(Arc::strong_count(&kept), 1, "the source was not made");
        let (producer, calls) = Producer::new(|_| 0);
        let mut stream = ArrowDeviceArrayStream::produced(producer);
        stream.device_type = kind;
        let before = stream.members();
        check_error(stream.import(), DEVX_DEVICE, &kind.to_string());
        assert_eq!((stream.members(), calls.get_schema.load(SeqCst)), (before, 0));
        unsafe { release_device_stream(&mut stream) };
        assert_eq!(calls.release.load(SeqCst), 1);
    }
}

// ---- one call at a time ----

#[test]
fn a_call_within_a_call_is_refused() {
    static STREAM: OnceLock<BatchStream> = OnceLock::new();
    static EXPORTED: OnceLock<usize> = OnceLock::new();
    let asked = AtomicUsize::new(0);
    let source = move || {
        check_error(STREAM.get().unwrap().next(), DEVX_BUSY, "in use by another call");
        let exported = unsafe { &mut *(*EXPORTED.get().unwrap() as *mut ArrowArrayStream) };
        assert_eq!(exported.pull(&mut Vec::new()), Err(libc::EBUSY));
        assert!(exported.last_error().is_some());
        // A consumer would not know what to make of that.
        let mut room = unsafe { MaybeUninit::<ArrowArrayStream>::zeroed().assume_init() };
        let refused = unsafe { STREAM.get().unwrap().clone().export(&mut room) };
        check_error(refused.map_err(|refused| refused.error), DEVX_BUSY, "in use by another call");
        assert!(room.is_released());
        Ok((asked.fetch_add(1, SeqCst) < 2).then(|| batch(&schema(), 1, &Arc::default())))
    };
    STREAM.set(BatchStream::new(&schema(), CPU, source).unwrap()).unwrap();
    let stream = STREAM.get().unwrap();
    let exported = Box::into_raw(Box::new(ArrowArrayStream::export(stream.clone())));
    EXPORTED.set(exported as usize).unwrap();
    // The call that runs goes on, and so does the stream.
    assert!(stream.next().unwrap().is_some() && stream.next().unwrap().is_some() && stream.next().unwrap().is_none());
    unsafe { Box::from_raw(exported) }.release();
}

/// A chain of streams is as deep as a stack can be for sure, whatever each of them has there.
fn too_many_within_each_other<S: Foreign>() {
    let released = Arc::default();
    let through = || (0..64).fold(counting(1, &released), |stream, _| S::export(stream).import().unwrap());
    let (mut refused, asked) = (S::export(through()), through());
    check_error(refused.import(), DEVX_TOO_DEEP, "exported and imported 64 times: that is the most");
    assert!(!refused.is_released());
    refused.release();
    let ask = move || asked.next().map(|batch| value_of(&batch.unwrap()));
    assert_eq!(std::thread::Builder::new().stack_size(512 << 10).spawn(ask).unwrap().join().unwrap(), Ok(0));
}
for_both!(a_chain_of_streams_has_an_end, too_many_within_each_other);

/// However many are being asked at a time, by tasks that share a thread for example: none of them is within another.
fn many_at_a_time<S: Foreign>() {
    let mut streams = (0..200).map(|_| S::export(counting(1, &Arc::default())));
    fn ask<S: Foreign>(streams: &mut dyn Iterator<Item = S>) -> Option<i32> {
        let Some(mut stream) = streams.next() else { return Some(0) };
        let imported = stream.import().unwrap();
        let again = ask(streams).map(|asked| asked + 1);
        imported.next().unwrap().and(again)
    }
    assert_eq!(ask(&mut streams), Some(200));
}
for_both!(streams_that_do_not_ask_each_other_are_no_chain, many_at_a_time);

#[test]
fn a_call_from_another_thread_meanwhile_is_refused() {
    let ((entered, enters), (go_on, waits)) = (channel(), channel());
    let source = move || {
        entered.send(()).unwrap();
        waits.recv().unwrap();
        Ok(Some(batch(&schema(), 5, &Arc::default())))
    };
    let stream = BatchStream::new(&schema(), CPU, source).unwrap();
    let mut exported = ArrowDeviceArrayStream::export(stream.clone());
    std::thread::scope(|scope| {
        let pulling = scope.spawn(|| value_of(&stream.next().unwrap().unwrap()));
        enters.recv().unwrap();
        check_error(stream.next(), DEVX_BUSY, "in use");
        assert_eq!(exported.pull(&mut Vec::new()), Err(libc::EBUSY));
        go_on.send(()).unwrap();
        assert_eq!(pulling.join().unwrap(), 5);
    });
    // It was no error of the stream's.
    go_on.send(()).unwrap();
    let mut arrays = Vec::new();
    assert_eq!(exported.pull(&mut arrays), Ok(Some(5)));
    unsafe { release_array(&mut arrays[0]) };
    exported.release();
}

// ---- foreign producers ----

fn foreign_batches<S: Foreign + 'static>() {
    let released = Arc::default();
    let (given, mut value) = (Arc::clone(&released), 0);
    let (producer, calls) = Producer::<S::Chunk>::new(move |out| {
        value += 1;
        if value <= 3 {
            unsafe { out.write(S::chunk(foreign_array(value, &given))) };
        }
        0
    });
    let mut source = S::produced(producer);
    let stream = source.import().unwrap();
    assert!(source.is_released());
    let batches: Vec<_> = stream.batches().map(|batch| batch.unwrap()).collect();
    assert!(stream.next().unwrap().is_none());
    assert_eq!(calls.get_next.load(SeqCst), 4, "not called again after the end");
    assert_eq!(calls.get_schema.load(SeqCst), 1, "asked once");
    assert_eq!(calls.release.load(SeqCst), 0);
    drop(stream);
    assert_eq!(calls.release.load(SeqCst), 1);
    assert_eq!(batches.iter().map(value_of).collect::<Vec<_>>(), [1, 2, 3]);
    drop(batches);
    assert_eq!(released.load(SeqCst), 3);
}
for_both!(batches_of_a_foreign_producer_outlive_its_stream, foreign_batches);

fn refused_as_a_whole<S: Foreign>() {
    let try_with = |change: &dyn Fn(&mut Producer<S::Chunk>), status, part: &str| {
        let (mut producer, calls) = Producer::<S::Chunk>::new(|_| 0);
        change(&mut producer);
        let mut source = S::produced(producer);
        let before = source.members();
        let error = check_error(source.import(), status, part);
        assert!(source.members() == before, "{}: the struct is untouched", S::NAME);
        assert_eq!(calls.release.load(SeqCst), 0);
        source.release();
        assert_eq!((calls.release.load(SeqCst), calls.get_next.load(SeqCst)), (1, 0));
        error
    };
    static NOT_UTF8: [c_char; 4] = [b'b' as c_char, 0xff_u8 as c_char, b'd' as c_char, 0];
    static LONG: [c_char; 10_000] = [b'x' as c_char; 10_000];
    let error = try_with(&|producer| producer.get_schema = Box::new(|_| libc::ENOENT), DEVX_CALLBACK, "it is on fire");
    assert_eq!(error.errno(), libc::ENOENT);
    assert!(error.message().starts_with("get_schema failed: No such file"), "{error}");
    let failing = |text: *const c_char| {
        move |producer: &mut Producer<S::Chunk>| {
            (producer.get_schema, producer.text) = (Box::new(|_| -77), text);
        }
    };
    let error = try_with(&failing(null()), DEVX_CALLBACK, "get_schema failed");
    assert_eq!(error.errno(), -77);
    try_with(&failing(NOT_UTF8.as_ptr()), DEVX_CALLBACK, "b\u{fffd}d");
    let error = try_with(&failing(LONG.as_ptr()), DEVX_CALLBACK, "xxx");
    assert!(error.message().len() < 5_000, "{}", error.message().len());
    // Success without a schema, and with one that is none.
    try_with(&|producer| producer.get_schema = Box::new(|_| 0), DEVX_RELEASED, "get_schema: schema.release is NULL");
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn release(schema: *mut ArrowSchema) {
        RELEASED.fetch_add(1, SeqCst);
        unsafe { (*schema).release = None };
    }
    let malformed = |out: *mut ArrowSchema| {
        let none = unsafe { zeroed::<ArrowSchema>() };
        unsafe { out.write(ArrowSchema { format: c"?".as_ptr(), release: Some(release), ..none }) };
        0
    };
    let before = RELEASED.load(SeqCst);
    try_with(&|producer| producer.get_schema = Box::new(malformed), DEVX_INVALID_FORMAT, "get_schema: ");
    assert_eq!(RELEASED.load(SeqCst), before + 1, "the schema was given, so it is released");
}
#[test]
fn a_producer_without_a_schema_keeps_its_stream() {
    // One after the other: the releases are counted.
    refused_as_a_whole::<ArrowArrayStream>();
    refused_as_a_whole::<ArrowDeviceArrayStream>();
}

#[test]
fn missing_callbacks_are_refused() {
    check_error(unsafe { BatchStream::import(null_mut()) }, DEVX_NULL_ARGUMENT, "stream is NULL");
    check_error(unsafe { BatchStream::import_device(null_mut()) }, DEVX_NULL_ARGUMENT, "stream is NULL");
    let (producer, calls) = Producer::new(|_| 0);
    let mut source = ArrowArrayStream::produced(producer);
    let whole = source;
    source.get_schema = None;
    check_error(source.import(), DEVX_NULL_ARGUMENT, "stream.get_schema is NULL");
    source = ArrowArrayStream { get_next: None, ..whole };
    check_error(source.import(), DEVX_NULL_ARGUMENT, "stream.get_next is NULL");
    source = ArrowArrayStream { get_last_error: None, ..whole };
    check_error(source.import(), DEVX_NULL_ARGUMENT, "stream.get_last_error is NULL");
    assert_eq!((calls.get_schema.load(SeqCst), calls.release.load(SeqCst)), (0, 0));
    Foreign::release(&mut source);
    assert_eq!(calls.release.load(SeqCst), 1);
}

/// After `good` batches the producer does `bad`; returns the error, which stays, also for a foreign consumer.
fn fails_later<S: Foreign + 'static>(
    good: usize,
    text: *const c_char,
    mut bad: impl FnMut(*mut S::Chunk) -> c_int + Send + 'static,
    code: c_int,
) -> Error {
    let (mut given, released) = (0, Arc::default());
    let to_release = Arc::clone(&released);
    let (mut producer, calls) = Producer::<S::Chunk>::new(move |out| {
        given += 1;
        if given > good {
            return bad(out);
        }
        unsafe { out.write(S::chunk(foreign_array(1, &to_release))) };
        0
    });
    producer.text = text;
    let stream = S::produced(producer).import().unwrap();
    for _ in 0..good {
        assert!(stream.next().unwrap().is_some());
    }
    let error = stream.next().unwrap_err();
    assert_eq!(stream.next().unwrap_err(), error, "the same error again, never the end");
    assert_eq!(calls.get_next.load(SeqCst), good + 1, "not called again after an error");
    // Handed on, the stream fails in the same way.
    let mut exported = S::export(stream);
    for _ in 0..2 {
        assert_eq!(exported.pull(&mut Vec::new()), Err(code));
        assert_eq!(exported.last_error().as_deref(), Some(error.message()));
    }
    exported.release();
    assert_eq!((calls.release.load(SeqCst), released.load(SeqCst)), (1, good));
    error
}

fn errors_of_get_next<S: Foreign + 'static>() {
    let text = c"the disk is gone".as_ptr();
    let error = fails_later::<S>(2, text, |_| libc::ENOSPC, libc::ENOSPC);
    assert_eq!((error.status(), error.errno()), (DEVX_CALLBACK, libc::ENOSPC));
    assert!(error.message().starts_with("get_next failed: ") && error.message().ends_with(": the disk is gone"));
    let error = fails_later::<S>(0, null(), |_| 12345, 12345);
    assert!(error.message().contains("12345"), "{error}");
    static NOT_UTF8: [c_char; 3] = [0xc3_u8 as c_char, b'(' as c_char, 0];
    let error = fails_later::<S>(1, NOT_UTF8.as_ptr(), |_| libc::EIO, libc::EIO);
    assert!(error.message().ends_with(": \u{fffd}("), "{error}");
    // What a failed call left in the output is not ours.
    let released = Arc::default();
    let mut left = foreign_array(1, &released);
    let released_by = left.release;
    let given = left.private_data as usize;
    let error = fails_later::<S>(
        1,
        text,
        move |out| {
            let array = ArrowArray {
                release: released_by,
                private_data: given as *mut c_void,
                ..unsafe { zeroed::<ArrowArray>() }
            };
            unsafe { out.write(S::chunk(array)) };
            libc::EAGAIN
        },
        libc::EAGAIN,
    );
    assert_eq!((error.errno(), released.load(SeqCst)), (libc::EAGAIN, 0));
    unsafe { release_array(&mut left) };
    assert_eq!(released.load(SeqCst), 1);
}
for_both!(an_error_of_get_next_is_never_the_end, errors_of_get_next);

fn malformed_arrays<S: Foreign + 'static>() {
    let check = |status: DevxStatus, part: &str, change: fn(&mut ArrowArray)| {
        let released = Arc::default();
        let given = Arc::clone(&released);
        let bad = move |out: *mut S::Chunk| {
            let mut array = foreign_array(1, &given);
            change(&mut array);
            unsafe { out.write(S::chunk(array)) };
            0
        };
        let error = fails_later::<S>(1, null(), bad, libc::EINVAL);
        assert_eq!(error.status(), status, "{error}");
        assert!(error.message().contains(part) && error.message().starts_with("get_next: "), "{error}");
        assert_eq!(released.load(SeqCst), 1, "it was given to us, so it is released");
    };
    check(DEVX_INVALID_LENGTH, "length is -3", |array| array.length = -3);
    check(DEVX_INVALID_LENGTH, "array \"n\": offset is -1", |array| unsafe { (**array.children).offset = -1 });
    check(DEVX_INVALID_BUFFERS, "array \"n\": n_buffers is 3", |array| unsafe { (**array.children).n_buffers = 3 });
    check(DEVX_INVALID_NULL_COUNT, "null_count is 4", |array| array.null_count = 4);
}
for_both!(a_malformed_array_is_released_and_named, malformed_arrays);

#[test]
fn an_array_on_another_device_than_the_stream_is_refused() {
    let released = Arc::default();
    let given = Arc::clone(&released);
    let elsewhere = move |out: *mut ArrowDeviceArray| {
        let array = ArrowDeviceArrayStream::chunk(foreign_array(1, &given));
        unsafe { out.write(ArrowDeviceArray { device_type: 2, device_id: 0, ..array }) };
        0
    };
    let error = fails_later::<ArrowDeviceArrayStream>(1, null(), elsewhere, libc::EINVAL);
    assert_eq!(error.status(), DEVX_DEVICE);
    assert!(error.message().contains("device_type is cuda (2): the stream's is cpu (1)"), "{error}");
    assert_eq!(released.load(SeqCst), 1);
}
