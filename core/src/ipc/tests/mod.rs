mod again;
mod hostile;
#[path = "../../../tests/patience/mod.rs"]
mod patience;

use std::cell::RefCell;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::descriptor::{BatchPart, Descriptor, NodePart, Place, Region, RegionKind, Spot, TensorPart, What};
use super::memory::{file, file_of, seal};
use super::message::{MAX_MESSAGE, Message, PROTOCOL, RELEASE};
use super::server::{Server, Users, require_user};
use super::socket::{Received, Room, Sent, Socket};
use super::{Client, Exported, Peer, connect, copy_batch, export_batch, export_tensor};
use crate::abi::types::*;
use crate::arrow::builder::ArrayBuilder;
use crate::arrow::schema::FieldDesc;
use crate::arrow::{Batch, Schema, metadata};
use crate::convert::Plan;
use crate::device::Device;
use crate::dlpack::Copying;
use crate::dtype::DType;
use crate::error::Error;
use crate::memory::Owner;
use crate::tensor::{Flags, Tensor, TensorDesc};

/// Imports as tests make them, who are the exporters, too. What they alter is never followed: of a batch of which the
/// descriptor or the data is another one than was exported they read numbers only.
pub(super) trait Importing {
    fn tensor(&self, name: &str) -> Result<Tensor, Error>;
    fn batch(&self, name: &str) -> Result<Batch, Error>;
}

impl Importing for Client {
    fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        // SAFETY: the tests write nothing that they look at.
        unsafe { self.import_tensor(name) }
    }

    fn batch(&self, name: &str) -> Result<Batch, Error> {
        // SAFETY: as above, and the tests read no offsets but those that they exported.
        unsafe { self.import_batch(name) }
    }
}

fn import_tensor(descriptor: &[u8], fds: Vec<OwnedFd>, peer: Peer) -> Result<Tensor, Error> {
    // SAFETY: as of a client.
    unsafe { super::import_tensor(descriptor, fds, peer) }
}

fn import_batch(descriptor: &[u8], fds: Vec<OwnedFd>, peer: Peer) -> Result<Batch, Error> {
    // SAFETY: as of a client.
    unsafe { super::import_batch(descriptor, fds, peer) }
}

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

/// As the writer does it: length and checksum say the truth about bytes that do not.
fn reseal(bytes: &mut [u8]) {
    if bytes.len() >= 32 {
        super::descriptor::seal(bytes);
    }
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

/// Every byte with every value, but with the right checksum: refused, or exactly what the bytes say.
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

/// What decodes lies within its regions, whatever was changed, and comes out as it went in.
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
    let cases: [(usize, &[u8], DevxStatus, &str); 9] = [
        (0, b"D3", DEVX_INVALID_ARGUMENT, "magic is \"D3VXIPC\\n\""),
        (8, &[2], DEVX_VERSION, "version is 2: this library reads 1"),
        (12, &[3], DEVX_INVALID_ARGUMENT, "kind is 3"),
        (32, &[9], DEVX_DEVICE, "place is 9"),
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

/// As a message has them.
fn leases(all: &[u64]) -> Vec<[u8; 8]> {
    all.iter().map(|lease| lease.to_le_bytes()).collect()
}

#[test]
fn messages_come_out_as_they_went_in() {
    let given_up = leases(&[1, u64::MAX]);
    let all = [
        Message::Hello { protocol: 1, exporter: 77 },
        Message::Get { request: 5, name: "näme" },
        Message::Release { leases: &given_up },
        Message::Given { request: 1, lease: 2, descriptor: Some(b"bytes") },
        Message::Given { request: 1, lease: 2, descriptor: None },
        Message::Refused { request: 1, status: 5, text: "why" },
    ];
    for message in &all {
        let bytes = message.encode().expect("encoded");
        assert_eq!(Message::decode(&bytes).as_ref(), Ok(message));
        assert_eq!(bytes.starts_with(&RELEASE), matches!(message, Message::Release { .. }));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x81;
            // Not a panic, whatever it is now.
            assert_ne!(Message::decode(&changed).as_ref(), Ok(message));
            let _ = Message::decode(&bytes[..at]);
        }
    }
    Message::decode(&Message::Release { leases: &leases(&[0; 257]) }.encode().expect("encoded")).expect_err("too many");
    let long = "x".repeat(5000);
    let refusal = Message::Refused { request: 1, status: 5, text: &long }.encode().expect("encoded");
    assert!(refusal.len() < 1200);
}

// ---- over sockets, in one process ----

/// Where a test listens: under a name that no other test of this program has, as they run at once.
pub(super) fn address(of: &str) -> String {
    format!("@devexchange-test-{of}-{}", std::process::id())
}

fn shared(values: &[i32]) -> Tensor {
    let tensor = super::allocate_tensor(DType::INT32, &[values.len() as i64]).expect("allocated");
    // SAFETY: the tensor has as many elements, and nobody else knows of it.
    unsafe { tensor.data().cast::<i32>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    tensor
}

fn numbers_and_texts() -> Batch {
    let numbers = vec![1_i64, 2, 3];
    let (offsets, text) = (vec![0_i32, 1, 3, 6], b"abbccc".to_vec());
    let batch = ArrayBuilder::batch(3)
        .child(
            ArrayBuilder::new("n", "l", 3)
                .buffer(std::ptr::null())
                .buffer(numbers.as_ptr().cast())
                .owner(Owner::new(numbers)),
        )
        .child(
            ArrayBuilder::new("t", "u", 3)
                .buffer(std::ptr::null())
                .buffer(offsets.as_ptr().cast())
                .buffer(text.as_ptr().cast())
                .owner(Owner::new((offsets, text))),
        );
    // SAFETY: the vectors have what the arrays say.
    unsafe { batch.build(Device::CPU) }.expect("built")
}

/// So many milliseconds, or more.
pub(super) fn patient(milliseconds: u64) -> Duration {
    patience::patient(Duration::from_millis(milliseconds))
}

fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + patient(10_000);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_tensor_is_the_same_memory_in_all_its_imports() {
    let server = Server::bind(&address("same")).expect("bound");
    let tensor = shared(&[1, 2, 3]);
    server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
    let client = connect(&address("same")).expect("connected");
    let (first, second) = (client.tensor("t").expect("imported"), client.tensor("t").expect("again"));
    // In the process that made it, it is not even mapped again.
    assert_eq!((first.data(), second.data()), (tensor.data(), tensor.data()));
    assert_eq!(server.leases(), 1);
    drop(first);
    assert!(server.withdraw("t") && !server.withdraw("t"));
    let error = client.tensor("t").expect_err("withdrawn");
    assert!(error.message().contains("name is \"t\": nothing is offered under it"), "{error}");
    drop((server, client));
    assert_eq!(second.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
}

#[test]
fn memory_of_one_process_is_copied_if_that_is_allowed() {
    let private = Tensor::from_vec(vec![1_i32, 2, 3, 4], &[2, 2]).expect("a tensor");
    assert!(matches!(super::plan_tensor(&private), Plan::Copy { bytes: 16, .. }));
    let error = export_tensor(&private, Copying::Never).expect_err("not allowed");
    assert_eq!(error.status(), DEVX_COPY_REQUIRED, "{error}");
    let exported = export_tensor(&private, Copying::IfNeeded).expect("copied");
    let imported = import(&exported).expect("imported");
    assert_eq!(imported.as_slice::<i32>(), Ok(&[1, 2, 3, 4][..]));
    assert!(imported.flags() == Flags::default() && imported.data() != private.data());
    assert_eq!(super::plan_tensor(&imported), Plan::View);

    let batch = numbers_and_texts();
    assert!(matches!(super::plan_batch(&batch), Plan::Copy { .. }));
    export_batch(&batch, Copying::Never).expect_err("not allowed");
    let copy = copy_batch(&batch).expect("copied");
    assert_eq!(super::plan_batch(&copy), Plan::View);
    let exported = export_batch(&copy, Copying::Never).expect("a view");
    let imported = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect("imported");
    assert_eq!(imported.column_named("n").expect("there").values::<i64>(), Ok(&[1, 2, 3][..]));
    let text = imported.column_named("t").expect("there");
    assert_eq!(text.text(2), Ok("ccc"));
}

/// A producer of no elements need not have made room for the first offset.
#[test]
fn nothing_is_read_of_an_empty_batch() {
    // An address that nobody may read, so that the test ends with a signal if somebody does.
    let nowhere = std::ptr::without_provenance(64);
    let texts = ["u", "U"]
        .map(|format| ArrayBuilder::new("t", format, 0).buffer(std::ptr::null()).buffer(nowhere).buffer(nowhere));
    let lists = ArrayBuilder::new("l", "+l", 0).buffer(std::ptr::null()).buffer(nowhere);
    let numbers = ArrayBuilder::new("n", "i", 0).buffer(nowhere).buffer(nowhere);
    let columns = texts.into_iter().chain([lists.child(numbers)]);
    // SAFETY: of no elements there is nothing to read.
    let batch =
        unsafe { columns.fold(ArrayBuilder::batch(0), ArrayBuilder::child).build(Device::CPU) }.expect("a batch");
    let copy = copy_batch(&batch).expect("copied");
    assert_eq!((copy.length(), copy.n_columns()), (0, 3));
    let exported = export_batch(&batch, Copying::IfNeeded).expect("copied");
    let imported = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect("imported");
    for column in imported.columns() {
        // SAFETY: what a consumer looks at of no elements, too.
        assert_eq!(unsafe { column.buffers()[1].cast::<i32>().read() }, 0, "{:?}", column.field());
    }
}

/// As consumers read the size of each data buffer that there is.
#[test]
fn views_of_no_rows_have_no_data() {
    let (data, sizes) = ([0_u8; 16], [16_i64]);
    let views = ArrayBuilder::new("v", "vu", 0);
    let views = [std::ptr::null(), std::ptr::null(), data.as_ptr().cast(), sizes.as_ptr().cast()]
        .into_iter()
        .fold(views, ArrayBuilder::buffer);
    // SAFETY: the buffers outlive the batch.
    let batch = unsafe { views.build(Device::CPU) }.expect("a batch");
    let exported = export_batch(&batch, Copying::IfNeeded).expect("copied");
    let imported = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect("imported");
    assert_eq!(imported.root().buffers(), [std::ptr::null(); 3]);
}

/// Asked for, it would take the whole machine with it.
#[test]
fn more_than_the_machine_has_is_refused_at_once() {
    let error = super::allocate_tensor(DType::UINT8, &[1 << 50]).expect_err("a petabyte");
    assert_eq!(error.status(), DEVX_OUT_OF_MEMORY);
    assert!(error.message().contains("1125899906842624 bytes of shared memory could not be allocated"), "{error}");
}

#[test]
fn views_keep_their_strides_offsets_and_flags() {
    let whole = shared(&(0..24).collect::<Vec<_>>());
    let desc = TensorDesc {
        // SAFETY: within the 24 elements.
        data: unsafe { whole.data().cast::<i32>().add(23) }.cast(),
        device: Device::CPU,
        dtype: DType::INT32,
        shape: &[3, 2],
        strides: Some(&[-8, -1]),
        byte_offset: 0,
        flags: Flags::READ_ONLY,
    };
    // SAFETY: all elements are within those of `whole`, which the owner keeps.
    let view = unsafe { Tensor::from_raw_parts(&desc, Owner::new(whole)) }.expect("a view");
    let imported = import(&export_tensor(&view, Copying::Never).expect("a view")).expect("imported");
    assert_eq!(
        (imported.shape(), imported.strides(), imported.flags()),
        (&[3, 2][..], &[-8, -1][..], Flags::READ_ONLY)
    );
    let copy = imported.copy().expect("copied");
    assert_eq!(copy.as_slice::<i32>(), Ok(&[23, 22, 15, 14, 7, 6][..]));
    let empty = super::allocate_tensor(DType::INT32, &[0, 4]).expect("nothing to allocate");
    let imported = import(&export_tensor(&empty, Copying::Never).expect("a view")).expect("imported");
    assert_eq!((imported.shape(), imported.data().is_null()), (&[0, 4][..], true));
}

/// The copy is for all importers, so none of them may write it either.
#[test]
fn the_copy_of_a_read_only_tensor_cannot_be_written() {
    let values = [1_i32, 2, 3, 4];
    let of = |strides, flags| TensorDesc {
        data: values.as_ptr().cast_mut().cast(),
        device: Device::CPU,
        dtype: DType::INT32,
        shape: &[2, 2],
        strides,
        byte_offset: 0,
        flags,
    };
    for copying in [Copying::IfNeeded, Copying::Always] {
        for strides in [None, Some(&[1_i64, 2][..])] {
            // SAFETY: the values outlive the tensors.
            let made = |flags| unsafe { Tensor::from_raw_parts(&of(strides, flags), Owner::none()) }.expect("a tensor");
            let fixed = export_tensor(&made(Flags::READ_ONLY), copying).expect("copied");
            assert_eq!(import(&fixed).expect("imported").flags(), Flags::READ_ONLY);
            let modes = duplicates(&fixed)
                .into_iter()
                .map(|fd| rustix::fs::fcntl_getfl(fd).expect("the mode") & rustix::fs::OFlags::ACCMODE);
            assert_eq!(modes.collect::<Vec<_>>(), [rustix::fs::OFlags::RDONLY]);
            let free = export_tensor(&made(Flags::default()), copying).expect("copied");
            assert_eq!(import(&free).expect("imported").flags(), Flags::default());
        }
    }
}

fn nobody() -> Peer {
    Peer { id: 0, keep: Owner::none() }
}

fn duplicates(exported: &Exported) -> Vec<OwnedFd> {
    exported.files().iter().map(|fd| fd.try_clone().expect("duplicated")).collect()
}

fn import(exported: &Exported) -> Result<Tensor, Error> {
    import_tensor(exported.descriptor(), duplicates(exported), nobody())
}

#[test]
fn files_that_are_not_what_the_descriptor_says_are_refused() {
    let tensor = shared(&[1, 2, 3]);
    let exported = export_tensor(&tensor, Copying::Never).expect("exported");
    let with = |fds| import_tensor(exported.descriptor(), fds, nobody()).expect_err("refused");
    let sealed = |bytes| {
        let fd = file("test", bytes).expect("a file");
        seal(&fd).expect("sealed");
        fd
    };
    let pipe = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
    let cases: [(Vec<OwnedFd>, &str); 6] = [
        (vec![], "there are 0 file descriptors, the regions have 1"),
        (vec![sealed(12), sealed(12)], "there are 2 file descriptors, the regions have 1"),
        (vec![file("test", 12).expect("a file")], "seals 0x0: its memory could be cut off"),
        (vec![pipe()], "is no memory file: it has no seals"),
        (vec![sealed(11)], "region.bytes is 12, but the file has 11"),
        (vec![sealed(4096)], "region.bytes is 12, but the file has 4096"),
    ];
    for (fds, text) in cases {
        let error = with(fds);
        assert!(error.status() == DEVX_INVALID_ARGUMENT && error.message().contains(text), "{error}");
    }
    let error = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect_err("a tensor");
    assert_eq!(error.status(), DEVX_MISMATCH);
    let released = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = std::sync::Arc::clone(&released);
    let keep = Owner::on_release(move || flag.store(true, std::sync::atomic::Ordering::SeqCst));
    import_tensor(exported.descriptor(), vec![sealed(11)], Peer { id: 0, keep }).expect_err("refused");
    assert!(released.load(std::sync::atomic::Ordering::SeqCst), "a refused import gives up what it was to keep");
}

#[test]
fn only_the_same_user_is_let_in_unless_told_otherwise() {
    let own = rustix::process::geteuid().as_raw();
    require_user(Users::Same, own).expect("the same");
    require_user(Users::Any, own + 1).expect("any");
    let error = require_user(Users::Same, own + 1).expect_err("another");
    assert!(error.message().contains(&format!("user {}, not of user {own}", own + 1)), "{error}");
}

#[test]
fn addresses_and_names_are_checked() {
    for bad in ["", "@", &"x".repeat(200)] {
        let error = Server::bind(bad).expect_err("no address");
        assert!(error.message().contains(&format!("address is {bad:?}")), "{error}");
    }
    let server = Server::bind(&address("names")).expect("bound");
    let error = Server::bind(&address("names")).expect_err("in use");
    assert!(error.status() == DEVX_SYSTEM && error.errno() != 0 && error.message().contains("bind"), "{error}");
    let client = connect(&address("names")).expect("connected");
    let long = "x".repeat(256);
    for (bad, status, text) in [
        ("", DEVX_INVALID_ARGUMENT, "name has 0 bytes"),
        (&long, DEVX_INVALID_ARGUMENT, "name has 256 bytes: between 1 and 255"),
        ("a\0b", DEVX_INVALID_TEXT, "name is \"a\\0b\": there is a NUL byte at 1"),
    ] {
        let offered = server.offer_tensor(bad, &shared(&[1]), Copying::Never).expect_err("no name");
        let offered_batch = server.offer_batch(bad, &numbers_and_texts(), Copying::Always).expect_err("no name");
        let asked = client.tensor(bad).expect_err("no name");
        for error in [offered, offered_batch, asked] {
            assert!(error.status() == status && error.message().contains(text), "{error}");
        }
    }
    let error = connect("@devexchange-nobody-is-here").expect_err("nobody");
    assert!(error.message().contains("connect: "), "{error}");
    let directory = std::env::temp_dir().join(format!("devx-ipc-{}", std::process::id()));
    let path = directory.to_str().expect("UTF-8");
    let named = Server::bind(path).expect("bound");
    connect(path).expect("connected");
    drop(named);
    assert!(!directory.exists(), "the file of the socket is gone");
}

/// Whoever asks while a server ends is told that it has, and not that there was never such an offer.
#[test]
fn who_asks_a_server_that_ends_is_told_so() {
    for _ in 0..300 {
        let server = Server::bind(&address("ending")).expect("bound");
        server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
        let client = connect(&address("ending")).expect("connected");
        client.tensor("t").expect("offered");
        let asking = std::thread::spawn(move || {
            loop {
                if let Err(error) = client.tensor("t") {
                    return error;
                }
            }
        });
        drop(server);
        let error = asking.join().expect("ended");
        assert_eq!(error.status(), DEVX_CLOSED, "{error}");
    }
}

/// What else has the name of the socket's file by the end of the server stays.
#[test]
fn a_server_removes_its_own_file_only() {
    let directory = std::env::temp_dir().join(format!("devx-ipc-own-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    let path = directory.join("socket");
    let address = path.to_str().expect("UTF-8");
    let (first, moved) = (Server::bind(address).expect("bound"), directory.join("moved"));
    std::fs::remove_file(&path).expect("removed");
    let second = Server::bind(address).expect("bound in its place");
    drop(first);
    connect(address).expect("the second one is still there");
    std::fs::create_dir(&moved).expect("a directory");
    std::fs::rename(&path, moved.join("socket")).expect("moved");
    std::fs::write(&path, "of somebody else").expect("written");
    drop(second);
    assert!(path.exists());
    std::fs::remove_file(&path).expect("removed");
    // The directory is the one that it was in, whatever it is called now.
    let third = Server::bind(address).expect("bound");
    let renamed = directory.with_extension("renamed");
    std::fs::rename(&directory, &renamed).expect("renamed");
    drop(third);
    assert!(!renamed.join("socket").exists());
    std::fs::remove_dir_all(&renamed).expect("removed");
}

/// The other end of a socket, played by hand; and the room that all its messages are received in, for to write so many
/// zeros before each one takes a sanitizer minutes.
struct Raw(Socket, RefCell<Room>);

impl Raw {
    fn new(socket: Socket) -> Self {
        Self(socket, RefCell::new(Room::new().expect("memory")))
    }

    fn connect(of: &str) -> Self {
        let raw = Self::new(Socket::connect(&address(of), Instant::now() + patient(10_000)).expect("connected"));
        match Message::decode(&raw.receive().expect("hello").0) {
            Ok(Message::Hello { protocol: PROTOCOL, .. }) => raw,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut room = self.1.borrow_mut();
        loop {
            match self.0.receive(&mut room).expect("received") {
                Received::Message => {
                    let (bytes, fds) = room.last();
                    return Some((bytes.to_vec(), fds.collect()));
                }
                Received::End => return None,
                Received::Nothing => {
                    let end = Instant::now() + patient(10_000);
                    assert!(self.0.wait(rustix::event::PollFlags::IN, end).expect("waited"), "no answer");
                }
            }
        }
    }

    fn say(&self, bytes: &[u8]) {
        assert_eq!(self.0.send(bytes, &[]), Ok(Sent::Yes));
    }
}

#[test]
fn an_importer_that_talks_nonsense_is_cut_off_and_nobody_else() {
    let server = Server::bind(&address("nonsense")).expect("bound");
    server.offer_tensor("t", &shared(&[1, 2, 3]), Copying::Never).expect("offered");
    let good = connect(&address("nonsense")).expect("connected");
    let get = Message::Get { request: 1, name: "t" }.encode().expect("encoded");
    let mut cases: Vec<Vec<u8>> = (1..get.len()).map(|at| get[..at].to_vec()).filter(|cut| cut.len() < 16).collect();
    for at in 0..8 {
        let mut changed = get.clone();
        changed[at] ^= 0x40;
        cases.push(changed);
    }
    cases.push(vec![0xff; MAX_MESSAGE]);
    cases.push(vec![0; MAX_MESSAGE + 1]);
    cases.push(Message::Hello { protocol: 1, exporter: 1 }.encode().expect("encoded"));
    for nonsense in cases {
        let raw = Raw::connect("nonsense");
        raw.say(&get);
        assert!(raw.receive().is_some(), "the tensor");
        raw.say(&nonsense);
        assert!(raw.receive().is_none(), "{nonsense:?}");
        soon("what it held is released", || server.leases() == 0);
    }
    // Leases that are not its own, or not any more, are nothing; neither are descriptors that come along.
    let raw = Raw::connect("nonsense");
    let held = good.tensor("t").expect("imported");
    raw.say(&Message::Release { leases: &leases(&[1, 1, 0, u64::MAX]) }.encode().expect("encoded"));
    let file = file_of(b"bytes").expect("a file");
    assert_eq!(raw.0.send(&get, &[file.as_fd()]), Ok(Sent::Yes));
    assert!(raw.receive().is_some());
    assert_eq!(server.leases(), 2);
    drop(raw);
    soon("its end releases it", || server.leases() == 1);
    assert_eq!(held.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
}

/// An importer that waits for its answers for so long only. Its hello it waits for as often as it takes.
fn connect_impatient(address: &str, timeout: Duration) -> Client {
    let mut client = None;
    soon("connected", || {
        client = Client::connect(address, Users::Same, timeout).ok();
        client.is_some()
    });
    client.expect("connected")
}

/// An exporter that says what it is told to, once it is asked, to an importer that waits for so long.
fn fake(of: &str, timeout: Duration, answers: impl FnOnce(&Raw, u64) + Send + 'static) -> Client {
    let listener = Socket::listen(&address(of)).expect("listening");
    let thread = std::thread::spawn(move || {
        let end = Instant::now() + patient(10_000);
        loop {
            let Some(socket) = listener.accept().expect("accepting") else {
                assert!(listener.wait(rustix::event::PollFlags::IN, end).expect("waited"));
                continue;
            };
            let raw = Raw::new(socket);
            let _ = raw.0.send(&Message::Hello { protocol: PROTOCOL, exporter: 9 }.encode().expect("encoded"), &[]);
            // One that did not wait for the hello comes again.
            let Some((bytes, _)) = raw.receive() else { continue };
            return match Message::decode(&bytes) {
                Ok(Message::Get { request, .. }) => answers(&raw, request),
                other => panic!("{other:?}"),
            };
        }
    });
    drop(thread);
    connect_impatient(&address(of), timeout)
}

#[test]
fn an_exporter_that_talks_nonsense_is_refused() {
    let (long, short) = (patient(10_000), patient(300));
    let exported = export_tensor(&shared(&[1, 2, 3]), Copying::Never).expect("exported");
    let descriptor = exported.descriptor().to_vec();
    let error = fake("altered-tensor", long, {
        let mut altered = descriptor.clone();
        altered[60] ^= 1;
        move |raw, request| {
            raw.say(&Message::Given { request, lease: 4, descriptor: Some(&altered) }.encode().expect("encoded"))
        }
    })
    .tensor("t")
    .expect_err("altered");
    assert!(error.message().contains("checksum is"), "{error}");

    // Without its file; and the lease is given back.
    let (sender, released) = std::sync::mpsc::channel();
    let error = fake("cut", long, move |raw, request| {
        raw.say(&Message::Given { request, lease: 4, descriptor: Some(&descriptor) }.encode().expect("encoded"));
        sender.send(raw.receive().expect("a release").0).expect("sent");
    })
    .tensor("t")
    .expect_err("no file");
    assert!(error.message().contains("there are 0 file descriptors"), "{error}");
    let released = released.recv_timeout(patient(10_000)).expect("released");
    assert_eq!(Message::decode(&released), Ok(Message::Release { leases: &leases(&[4]) }));

    // An answer to another request, and none to this one.
    let error = fake("replayed", short, move |raw, request| {
        let bytes = exported.descriptor();
        let fds: Vec<_> = exported.files().iter().map(AsFd::as_fd).collect();
        let message =
            Message::Given { request: request + 7, lease: 4, descriptor: Some(bytes) }.encode().expect("encoded");
        assert_eq!(raw.0.send(&message, &fds), Ok(Sent::Yes));
        // The lease is given back at once, and no answer comes until the importer is gone.
        while raw.receive().is_some() {}
    })
    .tensor("t")
    .expect_err("replayed");
    assert!(error.message().contains("did not answer within"), "{error}");

    let error = fake("rude", long, |raw, _| raw.say(b"who is there?")).tensor("t").expect_err("rude");
    assert!(error.message().contains("the peer is no devexchange"), "{error}");
    let error = fake("gone", long, |_, _| {}).tensor("t").expect_err("gone");
    assert_eq!(error.status(), DEVX_CLOSED, "{error}");
}

#[test]
fn long_descriptors_go_as_files() {
    let server = Server::bind(&address("long")).expect("bound");
    let numbers = vec![1_i64, 2, 3];
    let mut table = ArrayBuilder::batch(3);
    for i in 0..600 {
        let name = format!("a column with a name that is not short at all, and the number {i}");
        table = table.child(ArrayBuilder::new(&name, "l", 3).buffer(std::ptr::null()).buffer(numbers.as_ptr().cast()));
    }
    // SAFETY: each column is the vector, which has three values and belongs to the owner.
    let batch = unsafe { table.owner(Owner::new(numbers)).build(Device::CPU) }.expect("built");
    server.offer_batch("b", &batch, Copying::IfNeeded).expect("offered");
    let imported = connect(&address("long")).expect("connected").batch("b").expect("imported");
    assert_eq!((imported.n_columns(), imported.length()), (600, 3));
    assert_eq!(imported.column(599).expect("there").values::<i64>(), Ok(&[1, 2, 3][..]));
}

/// More releases at once than a socket holds: none is lost, nobody waits.
#[test]
fn many_releases_at_once_all_arrive() {
    let server = Server::bind(&address("many")).expect("bound");
    server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
    let client = connect(&address("many")).expect("connected");
    // Another offer has the importer ask anew.
    let anew = |_| {
        server.offer_tensor("u", &shared(&[2]), Copying::Never).expect("offered");
        client.tensor("t").expect("imported")
    };
    let held: Vec<_> = (0..3000).map(anew).collect();
    assert_eq!(server.leases(), 3000);
    drop(held);
    soon("all are released", || server.leases() == 0);
}
