//! Reads blocks of metadata, with the size known or taken from the block, and encodes their pairs again. Also reads the input
//! as the parameters of an extension type.

#![no_main]

use devexchange_core::arrow::schema::{EXTENSION_METADATA, EXTENSION_NAME, FieldDesc};
use devexchange_core::arrow::{batch::NodeDesc, metadata};
use devexchange_core::{Batch, Device, Owner, Schema, convert};
use devexchange_fuzz::{balanced, init};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: init(), |input: &[u8]| balanced(|| {
    block(input);
    // With a zero here, as in a valid block, the input is refused as parameters at once.
    if input.get(3) != Some(&0) {
        parameters(input);
    }
}));

type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// The result of reading a block.
enum Walk<'a> {
    /// The block has this many bytes, with these pairs.
    Pairs(usize, Pairs<'a>),
    /// A number within the block is impossible.
    Wrong,
    /// The block would continue beyond the input.
    Beyond,
}

/// Reads a block, as a second implementation of the standard.
fn walk(block: &[u8]) -> Walk<'_> {
    let number = |at: usize| Some(i32::from_ne_bytes(block.get(at..at + 4)?.try_into().ok()?));
    let Some(count) = number(0) else { return Walk::Beyond };
    if !(0..=metadata::MAX_PAIRS).contains(&count) {
        return Walk::Wrong;
    }
    let (mut at, mut parts) = (4, Vec::new());
    for _ in 0..2 * count {
        let Some(length) = number(at) else { return Walk::Beyond };
        let end = usize::try_from(length).ok().map(|length| at + 4 + length);
        let Some(end) = end.filter(|end| *end <= metadata::MAX_BYTES) else { return Walk::Wrong };
        let Some(part) = block.get(at + 4..end) else {
            // The part continues beyond the input.
            return Walk::Beyond;
        };
        parts.push(part);
        at = end;
    }
    Walk::Pairs(at, parts.chunks(2).map(|pair| (pair[0], pair[1])).collect())
}

fn block(input: &[u8]) {
    // An allocation of exactly the block's size, so that the sanitizer reports reads beyond it.
    let block: Box<[u8]> = input.into();
    let checked = metadata::check_bytes(&block);
    let walk = walk(&block);
    let fits = matches!(&walk, Walk::Pairs(bytes, _) if *bytes == block.len());
    assert_eq!(checked.is_ok(), fits, "{checked:?}");
    match walk {
        Walk::Beyond => {}
        Walk::Wrong => {
            // SAFETY: nothing is read behind the impossible number, which is within the block.
            unsafe { metadata::block(block.as_ptr().cast()) }.expect_err("a block that cannot be");
        }
        Walk::Pairs(bytes, pairs) => {
            // SAFETY: the allocation is at least as long as the block says.
            let read = unsafe { metadata::block(block.as_ptr().cast()) }.expect("a block");
            assert_eq!(read, Some(&block[..bytes]));
            assert_eq!(metadata::encode(&pairs).expect("pairs that were read"), block[..bytes]);
            let field = FieldDesc { metadata: Some(&block[..bytes]), ..FieldDesc::new(c"x", c"i") };
            let schema = Schema::new(&[field]).expect("a schema");
            assert!(schema.root().metadata().eq(pairs), "other pairs than there are");
        }
    }
}

/// Reads the input as the parameters of a column of tensors.
fn parameters(input: &[u8]) {
    let pairs = [(EXTENSION_NAME, &b"arrow.fixed_shape_tensor"[..]), (EXTENSION_METADATA, input)];
    let block = metadata::encode(&pairs).expect("small enough");
    let list = FieldDesc { metadata: Some(&block), n_children: 1, ..FieldDesc::new(c"x", c"+w:6") };
    let schema = Schema::new(&[list, FieldDesc::new(c"item", c"f")]).expect("a schema");
    let values: Vec<f32> = (0..12_u8).map(f32::from).collect();
    let (none, all) = ([std::ptr::null()], [std::ptr::null(), values.as_ptr().cast()]);
    let node = |length, buffers| NodeDesc { length, null_count: 0, offset: 0, buffers };
    let nodes = [node(2, &none[..]), node(12, &all[..])];
    // SAFETY: the values live longer than the batch.
    let batch = unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, Owner::none()) };
    let batch = batch.expect("a column of lists");
    let plan = convert::plan_tensor(batch.root());
    match convert::tensor(batch.root(), devexchange_core::dlpack::Copying::IfNeeded) {
        Ok(tensor) => {
            assert_eq!(tensor.layout().elements, 12, "{plan:?}");
            let column = convert::fixed_shape_column(&tensor, "again", devexchange_core::dlpack::Copying::IfNeeded);
            assert!(column.is_ok() || tensor.shape().len() < 2, "{column:?}");
        }
        Err(error) => assert!(!error.message().is_empty()),
    }
}
