//! Streams of foreign producers.

use super::foreign::*;
use super::*;

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
    // Success without a schema, and with an invalid one.
    try_with(&|producer| producer.get_schema = Box::new(|_| 0), DEVX_RELEASED, "get_schema: schema.release is NULL");
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn release(schema: *mut ArrowSchema) {
        RELEASED.fetch_add(1, SeqCst);
        unsafe { (*schema).release = None };
    }
    let malformed = |out: *mut ArrowSchema| {
        let none = ArrowSchema::RELEASED;
        unsafe { out.write(ArrowSchema { format: c"?".as_ptr(), release: Some(release), ..none }) };
        0
    };
    let before = RELEASED.load(SeqCst);
    try_with(&|producer| producer.get_schema = Box::new(malformed), DEVX_INVALID_FORMAT, "get_schema: ");
    assert_eq!(RELEASED.load(SeqCst), before + 1, "the schema was given, so it is released");
}
#[test]
fn a_producer_without_a_schema_keeps_its_stream() {
    // One after the other, because the releases are counted.
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

/// After `good` batches the producer does `bad`. Returns the error, which stays, even for a foreign consumer.
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
    // Exported again, the stream fails in the same way.
    let mut exported = S::export(stream);
    for _ in 0..2 {
        assert_eq!(exported.pull(&mut Vec::new()), Err(code));
        assert_eq!(exported.last_error().as_deref(), Some(error.message()));
    }
    let again = exported.import().unwrap();
    let repeated = again.next().unwrap_err();
    drop(again);
    assert_eq!((calls.release.load(SeqCst), released.load(SeqCst)), (1, good));
    if error.status() == DEVX_CALLBACK {
        assert_eq!(repeated.message(), error.message(), "the same words are not put before it again");
    }
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
    // What a failed call left in the output does not belong to us.
    let released = Arc::default();
    let mut left = foreign_array(1, &released);
    let released_by = left.release;
    let given = left.private_data as usize;
    let error = fails_later::<S>(
        1,
        text,
        move |out| {
            let array = ArrowArray { release: released_by, private_data: given as *mut c_void, ..ArrowArray::RELEASED };
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
