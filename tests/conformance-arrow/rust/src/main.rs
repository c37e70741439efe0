//! arrow-rs as the peer: `peer-arrow-rs CORPUS LIBOURS`. Prints a line for each exchange (`results.py` describes the
//! columns).

mod ours;

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch, RecordBatchIterator, RecordBatchOptions, StructArray};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{ArrowError, Schema};

use ours::{Case, Ours};

type Result<T> = std::result::Result<T, Failure>;

/// Why an exchange failed.
#[derive(Clone)]
enum Failure {
    /// Our side failed, or the result is not the expected one.
    Wrong(String),
    /// An error or a panic of arrow-rs.
    Refused(String),
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        Self::Refused(error.to_string())
    }
}

const STREAMED: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum Transport {
    Array,
    Stream,
}

impl Transport {
    const ALL: [Self; 2] = [Self::Array, Self::Stream];

    fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Stream => "stream",
        }
    }

    /// From devexchange to arrow-rs.
    fn give(self, case: &Case<'_>) -> Result<Vec<RecordBatch>> {
        match self {
            Self::Array => {
                let (mut array, mut schema) = (FFI_ArrowArray::empty(), FFI_ArrowSchema::empty());
                case.give(&mut array, &mut schema).map_err(Failure::Wrong)?;
                let described = Arc::new(Schema::try_from(&schema)?);
                // SAFETY: devexchange exported the array with this schema.
                let data = unsafe { from_ffi(array, &schema) }?;
                data.validate_full()?;
                let rows = RecordBatchOptions::new().with_row_count(Some(data.len()));
                let columns = StructArray::from(data).columns().to_vec();
                Ok(vec![RecordBatch::try_new_with_options(described, columns, &rows)?])
            }
            Self::Stream => {
                let mut stream = FFI_ArrowArrayStream::empty();
                case.give_stream(STREAMED, &mut stream).map_err(Failure::Wrong)?;
                let batches = RecordBatchStreamReader::try_new(stream)?.collect::<std::result::Result<Vec<_>, _>>()?;
                match batches.len() {
                    STREAMED => Ok(batches),
                    other => Err(Failure::Wrong(format!("there are {other} batches, not {STREAMED}"))),
                }
            }
        }
    }

    /// From arrow-rs to devexchange, which compares with rows `first` to `first + count` of the case.
    fn take(self, case: &Case<'_>, batches: &[RecordBatch], first: i64, count: i64) -> Result<()> {
        let Some(batch) = batches.first() else { return Err(Failure::Wrong("there is no batch".into())) };
        match self {
            Self::Array => {
                let (mut array, _) = to_ffi(&StructArray::from(batch.clone()).into_data())?;
                let mut schema = FFI_ArrowSchema::try_from(batch.schema().as_ref())?;
                case.take(first, count, &mut array, &mut schema).map_err(Failure::Wrong)
            }
            Self::Stream => {
                let repeated: Vec<_> = batches.iter().cycle().take(STREAMED).cloned().map(Ok).collect();
                let reader = RecordBatchIterator::new(repeated, batch.schema());
                let mut stream = FFI_ArrowArrayStream::new(Box::new(reader));
                case.take_stream(STREAMED, &mut stream).map_err(Failure::Wrong)
            }
        }
    }
}

/// Requires a valid batch with the same types, metadata and values as the original.
fn same(batch: &RecordBatch, original: &RecordBatch) -> Result<()> {
    for column in batch.columns() {
        column.to_data().validate_full()?;
    }
    if batch.schema() != original.schema() {
        return Err(Failure::Wrong(format!("the schema is {:?}, not {:?}", batch.schema(), original.schema())));
    }
    if batch != original {
        return Err(Failure::Wrong(format!("the values are {:?}, not {:?}", batch.columns(), original.columns())));
    }
    Ok(())
}

/// Turns a panic of arrow-rs into [`Failure::Refused`].
fn quietly<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
        Err(Failure::Refused(format!("panic: {}", words.unwrap_or_default())))
    })
}

fn report(case: &str, direction: &str, transport: &str, layout: &str, result: &Result<()>) {
    let (word, how) = match result {
        Ok(()) => ("ok", String::new()),
        Err(Failure::Wrong(how)) => ("wrong", how.replace(['\n', '\t'], " ")),
        Err(Failure::Refused(how)) => ("refused", how.replace(['\n', '\t'], " ")),
    };
    println!("{case}\t{direction}\t{transport}\thost\t{layout}\t{word}\t{how}");
}

fn read(file: &Path) -> Result<RecordBatch> {
    let file = File::open(file).map_err(|error| Failure::Refused(format!("{}: {error}", file.display())))?;
    match StreamReader::try_new(BufReader::new(file), None)?.next() {
        Some(batch) => Ok(batch?),
        None => Err(Failure::Refused("there is no batch".into())),
    }
}

fn run(ours: &Ours, corpus: &Path, name: &str, layouts: &[&str]) {
    let plain = ours.open(corpus, name, "plain");
    let file = corpus.join(format!("{name}.arrow"));
    let own = file.exists().then(|| quietly(|| read(&file)));
    let original = match &own {
        Some(Ok(own)) => Ok(own.clone()),
        _ => quietly(|| Transport::Array.give(&plain)).map(|mut batches| batches.swap_remove(0)),
    };
    for &layout in layouts {
        let case = ours.open(corpus, name, layout);
        for transport in Transport::ALL {
            let given = quietly(|| transport.give(&case));
            let compared = given.as_ref().map_err(Clone::clone).and_then(|batches| {
                let original = original.as_ref().map_err(Clone::clone)?;
                quietly(|| batches.iter().try_for_each(|batch| same(batch, original)))
            });
            report(name, "to peer", transport.name(), layout, &compared);
            if let Ok(batches) = given {
                let taken = quietly(|| transport.take(&case, &batches, 0, -1));
                report(name, "from peer", transport.name(), layout, &taken);
            }
        }
    }
    let Some(own) = own else { return };
    for transport in Transport::ALL {
        let take = |rows: std::ops::Range<usize>, all: bool| {
            let own = own.as_ref().map_err(Clone::clone)?.slice(rows.start, rows.len());
            quietly(|| transport.take(&plain, &[own], rows.start as i64, if all { -1 } else { rows.len() as i64 }))
        };
        let rows = own.as_ref().map_or(0, RecordBatch::num_rows);
        report(name, "from peer", transport.name(), "its own", &take(0..rows, true));
        if transport == Transport::Array && rows > 2 {
            report(name, "from peer", transport.name(), "its own slice", &take(1..rows - 1, false));
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(corpus), Some(library)) = (arguments.next(), arguments.next()) else {
        return Err("usage: peer-arrow-rs CORPUS LIBOURS".into());
    };
    std::panic::set_hook(Box::new(|_| {}));
    let ours = Ours::load(&library)?;
    let listed = std::fs::read_to_string(corpus.join("layouts"))?;
    let listed: Vec<_> = listed.lines().filter_map(|line| line.split_once(' ')).collect();
    for of in listed.chunk_by(|(one, _), (other, _)| one == other) {
        let Some((name, _)) = of.first() else { continue };
        let layouts: Vec<_> = of.iter().map(|&(_, layout)| layout).collect();
        run(&ours, &corpus, name, &layouts);
    }
    println!("outstanding\t{}", ours.outstanding());
    Ok(())
}
