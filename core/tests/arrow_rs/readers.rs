//! Readers of record batches, which may fail.

use super::*;

type Item = std::result::Result<RecordBatch, ArrowError>;

/// A reader of the given items. A missing item is a panic.
struct Items(SchemaRef, std::vec::IntoIter<Option<Item>>);

impl Items {
    fn new(items: impl IntoIterator<Item = Option<Item>>) -> Self {
        Self(record_batch(0).schema(), items.into_iter().collect::<Vec<_>>().into_iter())
    }
}

impl Iterator for Items {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        self.1.next().map(|item| item.unwrap())
    }
}

impl RecordBatchReader for Items {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }
}

#[test]
fn readers_both_ways() {
    let _alone = alone();
    let batches = [1, 4, 7].map(record_batch);
    let address = |batch: &RecordBatch| batch["n"].as_primitive::<Int32Type>().values().as_ptr();
    // Each batch with its own, equal schema.
    let stream = BatchStream::from_arrow_rs(Items::new(batches.clone().map(|batch| Some(Ok(batch))))).unwrap();
    assert_eq!((stream.device_type(), stream.schema().root().n_children()), (DeviceType::CPU, 2));
    let first = stream.next().unwrap().unwrap();
    assert_eq!(first.column(0).unwrap().values::<i32>().unwrap().as_ptr(), address(&batches[0]));
    let mut reader = stream.to_arrow_rs().unwrap();
    drop((stream, first));
    assert_eq!(reader.schema(), batches[0].schema());
    let rest: Vec<_> = reader.by_ref().map(|batch| batch.unwrap()).collect();
    assert_eq!(rest, batches[1..]);
    assert_eq!(rest.iter().map(address).collect::<Vec<_>>(), batches[1..].iter().map(address).collect::<Vec<_>>());
    assert!(reader.next().is_none());
    // On another thread, and not to the end.
    let stream = BatchStream::from_arrow_rs(reader_of(&batches)).unwrap();
    let reader = stream.to_arrow_rs().unwrap();
    let take = |mut reader: devexchange_core::arrow_rs::Reader| reader.next().unwrap().unwrap();
    assert_eq!(std::thread::spawn(move || take(reader)).join().unwrap(), batches[0]);
}

#[test]
fn a_reader_that_fails_in_the_middle() {
    let _alone = alone();
    let io = std::io::Error::from_raw_os_error(5);
    let external = ArrowError::from_external_error("out of ink".into());
    let cases = [
        (ArrowError::ParseError("line 3 is odd".to_owned()), DEVX_CALLBACK, 22, "Parser error: line 3 is odd"),
        (ArrowError::IoError("the disk".to_owned(), io), DEVX_CALLBACK, 5, "Io error: the disk"),
        (ArrowError::MemoryError("none".to_owned()), DEVX_CALLBACK, 12, "Memory or buffer error: none"),
        (ArrowError::NotYetImplemented("x".to_owned()), DEVX_CALLBACK, 95, "Not yet implemented: x"),
        (external, DEVX_CALLBACK, 5, "out of ink"),
        (Error::new(DEVX_CLOSED, "ours").into(), DEVX_CLOSED, 0, "ours"),
    ];
    for (error, status, errno, text) in cases {
        let said = error.to_string();
        let items = [Some(Ok(record_batch(0))), Some(Err(error)), Some(Ok(record_batch(3)))];
        let stream = BatchStream::from_arrow_rs(Items::new(items)).unwrap();
        stream.next().unwrap().unwrap();
        let error = stream.next().unwrap_err();
        assert_eq!((error.status(), error.errno()), (status, errno), "{said}");
        assert!(error.message().contains(text) || error.message().contains(&said), "{error}");
        assert_eq!(stream.next().unwrap_err(), error);
        // arrow-rs gets the error once, and it is the same error when it comes back.
        let mut reader = stream.to_arrow_rs().unwrap();
        let told = reader.next().unwrap().unwrap_err();
        assert!(told.to_string().contains(error.message()), "{told}");
        let ArrowError::ExternalError(inner) = told else { unreachable!("{told}") };
        assert_eq!(*inner.downcast::<Error>().unwrap(), error);
        assert!(reader.next().is_none());
    }
}

#[test]
fn errors_of_arrow_rs_become_ours() {
    let made = || -> Result<RecordBatch> { Ok(RecordBatch::try_new(record_batch(0).schema(), Vec::new())?) };
    let error = made().unwrap_err();
    assert_eq!((error.status(), error.errno()), (DEVX_CALLBACK, libc::EINVAL));
    assert!(error.message().contains("number of columns"), "{error}");
    let ours = Error::new(DEVX_BUSY, "not now");
    assert_eq!(Error::from(ArrowError::from(ours.clone())), ours);
}

#[test]
fn a_reader_that_panics() {
    let _alone = alone();
    let stream = BatchStream::from_arrow_rs(Items::new([Some(Ok(record_batch(0))), None])).unwrap();
    stream.next().unwrap().unwrap();
    check_error(stream.next(), DEVX_PANIC, "called `Option::unwrap()` on a `None` value");
    check_error(stream.next(), DEVX_PANIC, "");

    struct NoSchema;
    impl Iterator for NoSchema {
        type Item = Item;
        fn next(&mut self) -> Option<Item> {
            None
        }
    }
    impl RecordBatchReader for NoSchema {
        fn schema(&self) -> SchemaRef {
            unreachable!("nobody knows the schema")
        }
    }
    check_error(BatchStream::from_arrow_rs(NoSchema), DEVX_PANIC, "nobody knows the schema");
}

#[test]
fn batches_of_another_schema() {
    let _alone = alone();
    let fields = |name, number| vec![Field::new(name, number, true), Field::new("t", DataType::Utf8, true)];
    let columns = record_batch(5).columns().to_vec();
    let batch =
        |name, number, columns| RecordBatch::try_new(Arc::new(Schema::new(fields(name, number))), columns).unwrap();
    let renamed = batch("other", DataType::Int32, columns.clone());
    let marked = Schema::new_with_metadata(fields("n", DataType::Int32), [("of".to_string(), "us".to_string())]);
    let marked = RecordBatch::try_new(Arc::new(marked), columns.clone()).unwrap();
    let dates: ArrayRef = Arc::new(columns[0].as_primitive::<Int32Type>().reinterpret_cast::<Date32Type>());
    let columns = vec![dates, Arc::clone(&columns[1])];
    let different = batch("n", DataType::Date32, columns);
    for (second, says) in [
        (different, "field \"n\": the format is \"tdD\", the stream's is \"i\""),
        (renamed, "column 0 is named \"other\", the stream's \"n\""),
    ] {
        let items = Items::new([marked.clone(), second].map(|batch| Some(Ok(batch))));
        let mut reader = BatchStream::from_arrow_rs(items).unwrap().to_arrow_rs().unwrap();
        let first = reader.next().unwrap().unwrap();
        assert_eq!((first.schema(), first.num_rows()), (reader.schema(), 3));
        let error = reader.next().unwrap().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(reader.next().is_none());
    }
}

#[test]
fn a_stream_of_what_is_no_record_batch() {
    let _alone = alone();
    let number = devexchange_core::Schema::new(&[FieldDesc::new(c"n", c"i")]).unwrap();
    let stream = BatchStream::of(&number, DeviceType::CPU, std::iter::empty()).unwrap();
    check_error(stream.to_arrow_rs(), DEVX_MISMATCH, "the array is int32");
}
