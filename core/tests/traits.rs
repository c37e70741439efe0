//! What the types can be used for in Rust: in sets, in comparisons, across `catch_unwind`.

use std::collections::HashSet;
use std::hash::Hash;
use std::io::{self, ErrorKind};
use std::panic::{RefUnwindSafe, UnwindSafe};

use devexchange_core::abi::dlpack::DLPackVersion;
use devexchange_core::abi::types::*;
use devexchange_core::arrow::asynchronous::MetadataBlock;
use devexchange_core::arrow::metadata::Metadata;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{AsyncReader, AsyncWriter};
use devexchange_core::dlpack::{Copying, Request};
use devexchange_core::runtime::cuda::Allocation;
use devexchange_core::{
    Batch, BatchStream, DeviceType, Error, Flags, RawStream, Refused, Schema, Stream, Tensor, ipc, manager,
};

#[test]
fn handles_pass_through_a_caught_panic() {
    fn passes<T: UnwindSafe + RefUnwindSafe + Send + Sync>() {}
    passes::<Tensor>();
    passes::<Batch>();
    passes::<Schema>();
    passes::<BatchStream>();
    passes::<AsyncReader>();
    passes::<AsyncWriter>();
    passes::<MetadataBlock>();
    passes::<manager::Shared>();
    passes::<ipc::Server>();
    passes::<ipc::Client>();
}

#[test]
fn what_is_described_by_addresses_goes_to_other_threads() {
    fn goes<T: Send + Sync>() {}
    goes::<Allocation>();
    goes::<Metadata<'_>>();
}

#[test]
fn streams_are_keys() {
    fn set<T: Hash + Eq>(all: impl IntoIterator<Item = T>) -> usize {
        all.into_iter().collect::<HashSet<_>>().len()
    }
    // SAFETY: no work is queued.
    let handle = |ordinal| Stream::new(ordinal, unsafe { RawStream::new(64) }).expect("a handle");
    // A handle alone says which stream it is; a default stream also needs its device, and its thread.
    assert_eq!(set([handle(0), handle(1)]), 1);
    assert_eq!(set([Stream::legacy(0), Stream::legacy(0), Stream::legacy(1)]), 2);
    let mine = || Stream::new(0, RawStream::PER_THREAD).expect("of this thread");
    let other = std::thread::spawn(mine).join().expect("of another thread");
    assert_eq!(set([mine(), mine(), other]), 2);
    assert_eq!(set([RawStream::LEGACY, RawStream::LEGACY.on(1), RawStream::LEGACY]), 2);
}

#[test]
fn flags_are_combined_and_compared() {
    assert_eq!(Flags::READ_ONLY | Flags::IS_COPIED, Flags::READ_ONLY.with(Flags::IS_COPIED));
    assert_eq!(HashSet::from([Flags::default(), Flags(0), Flags(9)]).len(), 2);
}

#[test]
fn requests_are_compared() {
    assert_eq!(Request::default(), Request::default());
    assert_ne!(Request::default(), Request { copy: Copying::Always, ..Request::default() });
    let older = DLPackVersion { major: 1, minor: 0 };
    assert_ne!(Request::default(), Request { max_version: older, ..Request::default() });
    assert_ne!(Request::default(), Request { stream: RawStream::LEGACY, ..Request::default() });
}

/// A program whose `main` returns the refusal prints this, and so does `unwrap`.
#[test]
fn a_refusal_is_shown_without_what_was_refused() {
    let refused = Tensor::from_vec(vec![0_u8; 1 << 20], &[3]).expect_err("another number of elements");
    let error = refused.error.clone();
    assert_eq!(format!("{refused:?}"), format!("{error:?}"));
    assert_eq!(refused.returned.len(), 1 << 20);
    // What is returned need not be printable to be part of an error.
    struct Silent;
    let boxed: Box<dyn std::error::Error + Send + Sync> = Refused { error, returned: Silent }.into();
    assert_eq!(boxed.to_string(), "shape [3] has 3 elements, there are 1048576 values");
}

/// A source that reads a file returns what the system said, and a codec that is asked for an `io::Error` says what we said.
#[test]
fn errors_of_io_become_ours_and_back() {
    let schema = Schema::new(&[FieldDesc::batch(0)]).expect("a schema");
    let source = || {
        std::fs::File::open("/dev/null/none")?;
        Ok(None)
    };
    let stream = BatchStream::new(&schema, DeviceType::CPU, source).expect("a stream");
    let error = stream.next().expect_err("no such file");
    assert_eq!((error.status(), error.errno()), (DEVX_SYSTEM, libc::ENOTDIR));
    assert!(error.message().contains("Not a directory"), "{error}");

    for (kind, errno) in [
        (ErrorKind::InvalidData, libc::EINVAL),
        (ErrorKind::InvalidInput, libc::EINVAL),
        (ErrorKind::Unsupported, libc::ENOTSUP),
        (ErrorKind::OutOfMemory, libc::ENOMEM),
        (ErrorKind::UnexpectedEof, libc::EIO),
    ] {
        let error = Error::from(io::Error::new(kind, "row 3"));
        assert_eq!((error.status(), error.errno(), error.message()), (DEVX_CALLBACK, errno, "row 3"));
    }

    for (ours, kind) in [
        (Error::new(DEVX_OUT_OF_MEMORY, "enough"), ErrorKind::OutOfMemory),
        (Error::new(DEVX_UNSUPPORTED, "no such type"), ErrorKind::Unsupported),
        (Error::new(DEVX_INVALID_SHAPE, "shape"), ErrorKind::Other),
        (Error::callback(libc::EPIPE, "gone"), ErrorKind::BrokenPipe),
    ] {
        let theirs = io::Error::from(ours.clone());
        assert_eq!((theirs.kind(), theirs.to_string()), (kind, ours.to_string()));
        assert_eq!(Error::from(theirs), ours);
    }
}
