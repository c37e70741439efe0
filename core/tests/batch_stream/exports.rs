//! Streams made in Rust, to Rust and to foreign consumers.

use std::iter::FusedIterator;

use super::foreign::*;
use super::*;

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
    // A consumer can move the struct.
    let mut moved = unsafe { (&raw mut stream).read() };
    let mut described = ArrowSchema::RELEASED;
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
    let mut chunk = S::chunk(ArrowArray::RELEASED);
    let mut described = ArrowSchema::RELEASED;
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
    assert_eq!(unsafe { ArrowArrayStream::next_at(stream, &mut array) }, 0);
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
    // Exported and kept: two streams that pull from one source.
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
    // `DEVX_BUSY` means a second call on the stream itself, so a source's own `DEVX_BUSY` becomes `DEVX_CALLBACK`.
    let stream = BatchStream::new(&schema(), CPU, || Err(Error::new(DEVX_BUSY, "the inner stream is busy"))).unwrap();
    for _ in 0..2 {
        let error = check_error(stream.next(), DEVX_CALLBACK, "the inner stream is busy");
        assert_eq!(error.errno(), libc::EBUSY);
    }
}

#[test]
fn a_stream_becomes_an_iterator_of_its_own() {
    fn remaining(stream: BatchStream) -> impl FusedIterator<Item = Result<Batch>> + Send + 'static {
        stream.into_iter()
    }
    let released = Arc::default();
    let stream = counting(3, &released);
    assert_eq!(value_of(&stream.next().unwrap().unwrap()), 0);
    let mut batches = remaining(stream.clone());
    let values: Vec<_> = batches.by_ref().map(|batch| value_of(&batch.unwrap())).collect();
    assert_eq!((values, released.load(SeqCst)), (vec![1, 2], 3));
    assert!(batches.next().is_none() && stream.next().unwrap().is_none());

    let failing = BatchStream::new(&schema(), CPU, || Err(Error::new(DEVX_INVALID_ARGUMENT, "row 3 is bad"))).unwrap();
    let again: Vec<_> = failing.into_iter().map(|batch| batch.map(drop)).collect();
    assert_eq!(again, [Err(Error::new(DEVX_INVALID_ARGUMENT, "row 3 is bad"))]);
}

fn consumer_sees_the_error<S: Foreign>() {
    let cases = [
        (DEVX_OUT_OF_MEMORY, libc::ENOMEM),
        (DEVX_UNSUPPORTED, libc::ENOTSUP),
        (DEVX_DRIVER, libc::EIO),
        (DEVX_CALLBACK, libc::EIO),
        (DEVX_MISMATCH, libc::EINVAL),
        // A status of the source itself, which does not mean another call on this stream.
        (DEVX_BUSY, libc::EBUSY),
    ];
    let text = "größer\0 than 4";
    let of_status = cases.map(|(status, code)| (Error::new(status, text), code));
    // And an error that names its code.
    for (error, code) in of_status.into_iter().chain([(Error::callback(libc::ENOSPC, text), libc::ENOSPC)]) {
        let source = move || Err(error.clone());
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
        let mut described = ArrowSchema::RELEASED;
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

/// The consumer releases the stream during its call for a batch, so the source is dropped when that call ends.
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
    let stream = stream.cast::<S>();
    unsafe { stream.write(S::export(BatchStream::new(&schema(), CPU, source).unwrap())) };
    let mut chunk = unsafe { MaybeUninit::<S::Chunk>::zeroed().assume_init() };
    assert_eq!(unsafe { S::next_at(stream, &mut chunk) }, 0);
    assert!(S::array(&mut chunk).release.is_none());
    assert!(unsafe { &*stream }.is_released());
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
    // With another name, a consumer would mistake one column for another.
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
        // A stream in use is not exported: its consumer could not handle that.
        let mut room = ArrowArrayStream::RELEASED;
        let refused = unsafe { STREAM.get().unwrap().clone().export(&mut room) };
        check_error(refused.map_err(|refused| refused.error), DEVX_BUSY, "in use by another call");
        assert!(room.is_released());
        Ok((asked.fetch_add(1, SeqCst) < 2).then(|| batch(&schema(), 1, &Arc::default())))
    };
    STREAM.set(BatchStream::new(&schema(), CPU, source).unwrap()).unwrap();
    let stream = STREAM.get().unwrap();
    let exported = Box::into_raw(Box::new(ArrowArrayStream::export(stream.clone())));
    EXPORTED.set(exported as usize).unwrap();
    // The running call continues, and so does the stream.
    assert!(stream.next().unwrap().is_some() && stream.next().unwrap().is_some() && stream.next().unwrap().is_none());
    unsafe { Box::from_raw(exported) }.release();
}

/// A chain of streams can be only as deep as any stack allows, however much each stream uses of it.
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

/// However many streams are called at a time, for example by tasks that share a thread: none of them is within another.
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
    // It was not an error of the stream.
    go_on.send(()).unwrap();
    let mut arrays = Vec::new();
    assert_eq!(exported.pull(&mut arrays), Ok(Some(5)));
    unsafe { release_array(&mut arrays[0]) };
    exported.release();
}
