//! Reads what another process may send: messages and descriptors of exchanges, with some bytes changed or with arbitrary ones
//! behind a right beginning. An accepted message must be encoded as it was, the memory of an import must lie within its files,
//! and every import must give up its exporter: when it fails, or when it is released.

#![no_main]

#[path = "../../core/src/ipc/tests/given_up.rs"]
mod given_up;

use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;

use arbitrary::{Arbitrary, Result, Unstructured};
use devexchange_core::arrow::ArrayBuilder;
use devexchange_core::dlpack::Copying;
use devexchange_core::ipc::{Peer, export_batch, export_tensor, fuzzing, import_batch, import_tensor};
use devexchange_core::{Batch, Device, Owner, Tensor};
use devexchange_fuzz::{balanced, chance, consumer, init};
use libfuzzer_sys::fuzz_target;

use given_up::{touch, watched};

fuzz_target!(init: init(), |input: &[u8]| {
    // An input that is used up is no failure.
    let _ = balanced(|| run(&mut Unstructured::new(input)));
});

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    match u.int_in_range(0..=3)? {
        0 => {
            let bytes = if bool::arbitrary(u)? { altered(u, messages(), 0)? } else { behind(u, messages(), MAGIC)? };
            message(&bytes);
        }
        1 => descriptor(&sealed(behind(u, examples(), MAGIC_AND_VERSION)?)),
        _ => descriptor(&sealed(altered(u, examples(), HEAD)?)),
    }
    Ok(())
}

/// The bytes with which all messages begin, those with which all descriptors begin, and those of a descriptor up to its place.
const MAGIC: usize = 4;
const MAGIC_AND_VERSION: usize = 12;
const HEAD: usize = 32;

fn message(bytes: &[u8]) {
    match fuzzing::message(bytes) {
        Ok((again, true)) => assert_eq!(again, bytes, "another message"),
        Ok((again, false)) => assert!(bytes.starts_with(&again), "another message"),
        Err(error) => assert!(!error.message().is_empty()),
    }
}

/// Takes the rest of the input, in most cases behind the beginning that all examples have: bytes that begin otherwise are
/// refused at once, and no search finds a number of so many bytes.
fn behind(u: &mut Unstructured<'_>, examples: &[Vec<u8>], beginning: usize) -> Result<Vec<u8>> {
    let right = if chance(u, 1, 16)? { 0 } else { beginning };
    let rest = u.bytes(u.len())?;
    Ok([&examples[0][..right], rest].concat())
}

/// Takes an example, with other numbers in some places, and sometimes shorter, but not than `least`, or longer.
fn altered(u: &mut Unstructured<'_>, examples: &[Vec<u8>], least: usize) -> Result<Vec<u8>> {
    let mut bytes = examples[u.choose_index(examples.len())?].clone();
    for _ in 0..u.int_in_range(0..=4)? {
        let value = if bool::arbitrary(u)? { u.int_in_range(0..=300)? } else { u64::arbitrary(u)? };
        let (at, width) = (u.choose_index(bytes.len())?, u.int_in_range(1..=8)?);
        bytes.iter_mut().skip(at).zip(value.to_le_bytes()).take(width).for_each(|(place, byte)| *place = byte);
    }
    match u.int_in_range(0..=15)? {
        0 => bytes.truncate(u.choose_index(bytes.len())?.max(least)),
        1 => bytes.extend(u.bytes(u.len().min(40))?),
        _ => {}
    }
    Ok(bytes)
}

/// Corrects length and checksum, if there is a place for them.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= HEAD {
        fuzzing::reseal(&mut bytes);
    }
    bytes
}

fn descriptor(bytes: &[u8]) {
    let again = match fuzzing::descriptor(bytes) {
        Ok(again) => again,
        Err(error) => {
            assert!(!error.message().is_empty());
            let (keep, given_up) = watched();
            // SAFETY: the descriptor is refused, so no memory is read.
            unsafe { import_tensor(bytes, Vec::new(), keep) }.expect_err("no descriptor");
            assert!(given_up.load(SeqCst), "not given up");
            let (keep, given_up) = watched();
            // SAFETY: as above.
            unsafe { import_batch(bytes, Vec::new(), keep) }.expect_err("no descriptor");
            assert!(given_up.load(SeqCst), "not given up");
            return;
        }
    };
    // The encoded descriptor may differ from the bytes that were read, but encoding it once more must not change it.
    assert_eq!(fuzzing::descriptor(&again).expect("what this library wrote"), again);
    let Some(files) = fuzzing::files(bytes, 1 << 20) else { return };
    let clones = || files.iter().map(|file| file.try_clone().expect("a duplicate")).collect();
    let (keep, given_up) = watched();
    // SAFETY: nothing writes the files.
    if let Ok(tensor) = unsafe { import_tensor(bytes, clones(), keep) } {
        assert!(!given_up.load(SeqCst), "given up while it is used");
        touch(&tensor);
    }
    assert!(given_up.load(SeqCst), "not given up");
    let (keep, given_up) = watched();
    // SAFETY: nothing writes the files, and they are all zeros, so no offset in them leads out of a buffer.
    if let Ok(batch) = unsafe { import_batch(bytes, clones(), keep) } {
        assert!(!given_up.load(SeqCst), "given up while it is used");
        consumer::read(batch.root());
    }
    assert!(given_up.load(SeqCst), "not given up");
}

fn messages() -> &'static [Vec<u8>] {
    static MESSAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    MESSAGES.get_or_init(|| fuzzing::messages().expect("small"))
}

fn examples() -> &'static [Vec<u8>] {
    static EXAMPLES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        let vector = Tensor::from_vec(vec![1.0_f32; 6], &[2, 3]).expect("a tensor");
        let empty = Tensor::from_vec(Vec::<i8>::new(), &[0, 5]).expect("a tensor");
        let tensors = [&vector, &empty].map(|tensor| export_tensor(tensor, Copying::Always).expect("exported"));
        let batch = export_batch(&batch(), Copying::Always).expect("exported");
        let mut all: Vec<_> = tensors.iter().chain([&batch]).map(|exported| exported.descriptor().to_vec()).collect();
        all.push(fuzzing::on_a_device().expect("small"));
        all
    })
}

/// A batch with columns of different layouts.
fn batch() -> Batch {
    static NUMBERS: [i64; 64] = [0; 64];
    let zeros = || NUMBERS.as_ptr().cast();
    let none = std::ptr::null();
    let numbers = |name: &str| ArrayBuilder::new(name, "i", 4).buffer(none).buffer(zeros());
    let builder = ArrayBuilder::batch(4)
        .child(numbers("i").dictionary(ArrayBuilder::new("", "u", 1).buffer(none).buffer(zeros()).buffer(zeros())))
        .child(ArrayBuilder::new("vu", "vu", 4).buffer(none).buffer(zeros()).buffer(zeros()).buffer(zeros()))
        .child(ArrayBuilder::new("l", "+l", 4).buffer(none).buffer(zeros()).child(numbers("item")).metadata("k", "v"))
        .child(ArrayBuilder::new("w", "+w:1", 4).buffer(none).child(numbers("item")))
        .child(
            ArrayBuilder::new("ud", "+ud:0,5", 4)
                .buffer(zeros())
                .buffer(zeros())
                .child(numbers("a"))
                .child(numbers("b")),
        )
        .child(ArrayBuilder::new("r", "+r", 4).child(numbers("ends")).child(numbers("values")))
        .child(ArrayBuilder::new("n", "n", 4));
    // SAFETY: every buffer is static, and as long as its type requires.
    unsafe { builder.build(Device::CPU) }.expect("a batch")
}
