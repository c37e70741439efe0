//! Descriptors as bytes: decoding and encoding give the same bytes, and no altered bytes lead out of the regions.

use std::ffi::CString;

use super::reseal;
use crate::abi::types::*;
use crate::arrow::schema::FieldDesc;
use crate::arrow::{Schema, metadata};
use crate::dtype::DType;
use crate::ipc::descriptor::{
    BatchPart, Descriptor, MAX_BYTES, MAX_PART, MAX_REGIONS, NodePart, Place, Region, RegionKind, Spot, TensorPart,
    What,
};
use crate::tensor::Flags;

fn host(bytes: u64) -> Region {
    Region { bytes, kind: RegionKind::Host { writable: true } }
}

fn described(place: Place, order: Option<[u8; 64]>, regions: Vec<Region>, what: What) -> Descriptor {
    Descriptor { place, order, regions, what }
}

fn tensor_part() -> TensorPart {
    TensorPart {
        dtype: DType::FLOAT32,
        flags: Flags::READ_ONLY,
        shape: vec![2, 3],
        strides: vec![-3, 1],
        spot: Some(Spot { region: 1, offset: 20 }),
    }
}

fn field(format: &str, name: &str, n_children: u32) -> (CString, CString, u32) {
    (CString::new(format).expect("no NUL"), CString::new(name).expect("no NUL"), n_children)
}

fn batch_part() -> BatchPart {
    let block = metadata::encode(&[(b"key", b"value")]).expect("small");
    let texts = [field("+s", "", 2), field("u", "text", 0), field("i", "number", 0)];
    let fields: Vec<_> = texts
        .iter()
        .map(|(format, name, n_children)| FieldDesc {
            metadata: (*n_children > 0).then_some(&*block),
            n_children: *n_children,
            ..FieldDesc::new(name, format)
        })
        .collect();
    let at = |offset, bytes| Some((Spot { region: 0, offset }, bytes));
    let node = |buffers| NodePart { length: 4, null_count: -1, offset: 1, buffers };
    BatchPart {
        schema: Schema::new(&fields).expect("a schema"),
        nodes: vec![
            NodePart { length: 4, null_count: 0, offset: 0, buffers: vec![None] },
            node(vec![at(0, 1), at(64, 24), at(128, 10)]),
            node(vec![None, at(192, 20)]),
        ],
    }
}

fn examples() -> Vec<Vec<u8>> {
    let pool = RegionKind::Pool { pool: 7, pointer: [9; 64] };
    let cuda = [Region { bytes: 8, kind: pool }, Region { bytes: 64, kind: RegionKind::Cuda([3; 64]) }];
    let all = [
        described(Place::Host, None, vec![host(1), host(64)], What::Tensor(tensor_part())),
        described(Place::Cuda([5; 16]), Some([4; 64]), cuda.to_vec(), What::Tensor(tensor_part())),
        described(Place::Host, None, vec![host(256)], What::Batch(batch_part())),
    ];
    all.iter().map(|one| one.encode().expect("encoded")).collect()
}

#[test]
fn descriptors_come_out_as_they_went_in() {
    for bytes in examples() {
        let decoded = Descriptor::decode(&bytes).expect("decoded");
        assert_eq!(decoded.encode().expect("encoded"), bytes);
    }
    let decoded = Descriptor::decode(&examples()[1]).expect("decoded");
    assert_eq!((decoded.place, decoded.order, decoded.fds()), (Place::Cuda([5; 16]), Some([4; 64]), 1));
    match decoded.what {
        What::Tensor(part) => assert_eq!(part, tensor_part()),
        What::Batch(_) => panic!("a tensor"),
    }
}

/// The size is known before there is a descriptor.
#[test]
fn the_bytes_of_a_batch_are_those_that_are_written() {
    let part = batch_part();
    let bytes = BatchPart::bytes_of(&part.schema, |node| part.nodes[node].buffers.len());
    let head = 32 + 1 + 1 + 4 + (1 + 8 + 1);
    assert_eq!(bytes, examples()[2].len() - head);
}

#[test]
fn every_truncation_and_every_changed_byte_is_refused() {
    for bytes in examples() {
        for length in 0..bytes.len() {
            Descriptor::decode(&bytes[..length]).expect_err("cut");
            let mut cut = bytes[..length].to_vec();
            reseal(&mut cut);
            Descriptor::decode(&cut).expect_err("cut, but with the right length and checksum");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        reseal(&mut longer);
        let error = Descriptor::decode(&longer).expect_err("longer");
        assert!(error.message().contains("1 bytes follow after the end"), "{error}");
        for at in 0..bytes.len() {
            for mask in [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= mask;
                assert!(Descriptor::decode(&changed).is_err(), "byte {at} is {}", changed[at]);
            }
        }
    }
}

/// Every byte with every value and a correct checksum is refused, or decoded to exactly what the bytes say.
#[test]
fn every_changed_byte_with_the_right_checksum_is_harmless() {
    for bytes in examples() {
        for (at, value) in (0..bytes.len()).flat_map(|at| (0..=u8::MAX).map(move |value| (at, value))) {
            let mut changed = bytes.clone();
            changed[at] = value;
            reseal(&mut changed);
            if let Ok(decoded) = Descriptor::decode(&changed) {
                require_inside(&decoded);
                assert_eq!(decoded.encode().expect("encoded"), changed, "byte {at} is {value}");
            }
        }
    }
}

/// What can be decoded lies within its regions, whatever was changed, and encodes to the same bytes.
#[test]
fn changed_bytes_with_the_right_checksum_are_harmless() {
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let (mut taken, mut refused) = (0, 0);
    for bytes in examples() {
        for round in 0..40_000 {
            let mut changed = bytes.clone();
            // Each byte alone with all values first, then several at once.
            let several = if round < bytes.len() * 16 { 1 } else { 1 + random() % 4 };
            for _ in 0..several {
                let at = if several == 1 { round % bytes.len() } else { random() % bytes.len() };
                changed[at] = random() as u8;
            }
            reseal(&mut changed);
            match Descriptor::decode(&changed) {
                Ok(decoded) => {
                    taken += 1;
                    require_inside(&decoded);
                    assert_eq!(decoded.encode().expect("encoded"), changed);
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.message().is_empty());
                }
            }
        }
        for length in [0, 1, 31, 32, 100, 5000] {
            let mut noise: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            Descriptor::decode(&noise).expect_err("noise");
            let head = bytes.len().min(length).min(33);
            noise[..head].copy_from_slice(&bytes[..head]);
            reseal(&mut noise);
            Descriptor::decode(&noise).expect_err("noise after a head");
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
}

fn require_inside(descriptor: &Descriptor) {
    let region = |spot: &Spot| i128::from(descriptor.regions[spot.region as usize].bytes);
    match &descriptor.what {
        What::Tensor(part) => {
            let padded = part.flags.has(Flags::SUBBYTE_PADDED);
            let layout = crate::layout::check(part.dtype, padded, &part.shape, Some(&part.strides)).expect("checked");
            if let Some(spot) = &part.spot {
                let at = i128::from(spot.offset);
                assert!(at + layout.lowest as i128 >= 0 && at + layout.end as i128 <= region(spot), "{part:?}");
            }
        }
        What::Batch(part) => {
            for (spot, bytes) in part.nodes.iter().flat_map(|node| node.buffers.iter().flatten()) {
                assert!(i128::from(spot.offset) + i128::from(*bytes) <= region(spot), "{part:?}");
            }
        }
    }
}

#[test]
fn refusals_name_the_field_and_the_value() {
    let bytes = &examples()[0];
    let changed = |at: usize, new: &[u8]| {
        let mut changed = bytes.clone();
        changed[at..at + new.len()].copy_from_slice(new);
        reseal(&mut changed);
        Descriptor::decode(&changed).expect_err("refused")
    };
    // After the head of 32 bytes: place, order, count, and two regions of 10 bytes.
    let tensor = 32 + 2 + 4 + 20;
    let cases: [(usize, &[u8], DevxStatus, &str); 10] = [
        (0, b"D3", DEVX_INVALID_ARGUMENT, "magic is \"D3VXIPC\\n\""),
        (8, &[2], DEVX_VERSION, "version is 2: this library reads 1"),
        (12, &[3], DEVX_INVALID_ARGUMENT, "kind is 3"),
        (32, &[9], DEVX_DEVICE, "place is 9"),
        (33, &[1], DEVX_INVALID_ARGUMENT, "order is 1: 0 is ready"),
        (34, &[65], DEVX_INVALID_ARGUMENT, "regions is 65: more than 64"),
        (38, &[1], DEVX_DEVICE, "region.kind is 1: not of the descriptor's device"),
        (tensor, &[99], DEVX_INVALID_DTYPE, "dtype.code is 99"),
        (tensor + 12, &[200, 1], DEVX_INVALID_ARGUMENT, "ndim is 456: more than 64"),
        (tensor + 52, &[21], DEVX_INVALID_ARGUMENT, "offset is 61: from -12 to 12"),
    ];
    for (at, new, status, text) in cases {
        let error = if text.contains("offset") { changed(at, &[61]) } else { changed(at, new) };
        assert!(error.status() == status && error.message().contains(text), "{at}: {error}");
    }
}

#[test]
fn only_elements_are_in_a_region() {
    let decoded = |part| {
        let bytes = described(Place::Host, None, vec![host(64); 2], What::Tensor(part)).encode().expect("encoded");
        Descriptor::decode(&bytes)
    };
    let (some, spot) = (tensor_part(), tensor_part().spot);
    let none = || TensorPart { shape: vec![0, 3], strides: vec![3, 1], spot: None, ..tensor_part() };
    decoded(some).expect("elements in a region");
    decoded(none()).expect("no elements in no region");
    let error = decoded(TensorPart { spot: None, ..tensor_part() }).expect_err("elements in no region");
    assert!(error.message().contains("6 elements of shape [2, 3] are in no region"), "{error}");
    let error = decoded(TensorPart { spot, ..none() }).expect_err("no elements in a region");
    assert!(error.message().contains("0 elements of shape [0, 3] are in a region"), "{error}");
}

#[test]
fn buffers_of_views_have_a_size_each() {
    let decoded = |bytes_of_sizes| {
        let (format, name, _) = field("vu", "text", 0);
        let schema = Schema::new(&[FieldDesc::new(&name, &format)]).expect("a schema");
        let at = |offset, bytes| Some((Spot { region: 0, offset }, bytes));
        let buffers = vec![None, at(0, 32), at(32, 8), at(40, 8), at(48, bytes_of_sizes)];
        let nodes = vec![NodePart { length: 2, null_count: 0, offset: 0, buffers }];
        let what = What::Batch(BatchPart { schema, nodes });
        Descriptor::decode(&described(Place::Host, None, vec![host(64)], what).encode().expect("encoded"))
    };
    decoded(16).expect("two sizes");
    let error = decoded(15).expect_err("no two sizes");
    assert!(error.message().contains("buffers[4] has 15 bytes: "), "{error}");
    assert!(error.message().contains("needs 16"), "{error}");
}

/// Consumers read the first offset even if there are no elements.
#[test]
fn without_rows_only_a_first_offset_is_needed() {
    let decoded = |offsets| {
        let (format, name, _) = field("u", "text", 0);
        let schema = Schema::new(&[FieldDesc::new(&name, &format)]).expect("a schema");
        let nothing = Some((Spot { region: 0, offset: 64 }, 0));
        let buffers = vec![nothing, offsets, nothing];
        let nodes = vec![NodePart { length: 0, null_count: 0, offset: 0, buffers }];
        let what = What::Batch(BatchPart { schema, nodes });
        Descriptor::decode(&described(Place::Host, None, vec![host(64)], what).encode().expect("encoded"))
    };
    decoded(Some((Spot { region: 0, offset: 60 }, 4))).expect("an offset");
    decoded(None).expect("the importer has an offset");
    let error = decoded(Some((Spot { region: 0, offset: 64 }, 0))).expect_err("no offset");
    assert!(error.message().contains("buffers[1] has 0 bytes: "), "{error}");
    assert!(error.message().contains("of length 0 and offset 0 needs 4"), "{error}");
}

#[test]
fn what_is_cut_off_is_named_with_its_place() {
    for (kept, text) in [(33, "order has 1 bytes at 33, but there are 33 in all"), (36, "regions has 4 bytes at 34")] {
        let mut cut = examples()[0][..kept].to_vec();
        reseal(&mut cut);
        let error = Descriptor::decode(&cut).expect_err("cut");
        assert!(error.message().contains(text), "{kept}: {error}");
    }
}

#[test]
fn as_many_regions_as_the_limit_says_are_allowed() {
    let most = |regions| described(Place::Host, None, vec![host(64); regions], What::Tensor(tensor_part()));
    let bytes = most(MAX_REGIONS).encode().expect("encoded");
    assert_eq!(Descriptor::decode(&bytes).expect("decoded").regions.len(), MAX_REGIONS);
    assert_eq!(most(MAX_REGIONS + 1).encode().expect_err("too many").status(), DEVX_UNSUPPORTED);
}

#[test]
fn nothing_before_a_batch_takes_more_room_than_is_left_for_it() {
    let part = batch_part();
    let bytes = BatchPart::bytes_of(&part.schema, |node| part.nodes[node].buffers.len());
    let largest = Region { bytes: 256, kind: RegionKind::Pool { pool: 7, pointer: [9; 64] } };
    let regions = vec![largest; MAX_REGIONS];
    let all = described(Place::Cuda([5; 16]), Some([4; 64]), regions, What::Batch(part)).encode().expect("encoded");
    assert_eq!(all.len() - bytes, MAX_BYTES - MAX_PART);
}

#[test]
fn a_descriptor_that_nobody_would_read_is_not_written() {
    let block = metadata::encode(&[(b"key", &vec![b'x'; MAX_BYTES])]).expect("a block");
    let (name, format, _) = field("i", "number", 0);
    let fields = [FieldDesc { metadata: Some(&*block), ..FieldDesc::new(&format, &name) }];
    let nodes = vec![NodePart { length: 0, null_count: 0, offset: 0, buffers: vec![None, None] }];
    let part = BatchPart { schema: Schema::new(&fields).expect("a schema"), nodes };
    let error = described(Place::Host, None, vec![host(64)], What::Batch(part)).encode().expect_err("too large");
    assert_eq!(error.status(), DEVX_UNSUPPORTED, "{error}");
}
