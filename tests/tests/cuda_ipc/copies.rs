//! Memory that processes cannot share is copied into memory that they can share, if copies are allowed: in the order of
//! streams, so that the source can be given up at once.

use devexchange_core::abi::types::DEVX_COPY_REQUIRED;
use devexchange_core::arrow::{ArrayBuilder, Batch};
use devexchange_core::convert::Plan;
use devexchange_core::dlpack::Copying;
use devexchange_core::{DType, Device, DeviceType, Flags, Owner, Stream, Tensor, TensorDesc, ipc};
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::peer::{Importing, part, say, soon};
use devexchange_tests::sim::{self, Session};

use super::{N, filled, own, plain, read, start, theirs};

/// Every other byte of the second half of 64, backwards in one dimension.
const SHAPE: [i64; 2] = [4, 3];
const STRIDES: [i64; 2] = [-8, 2];
const FIRST: i64 = 56;

fn strided(stream: u64) -> Tensor {
    let whole = Tensor::allocate(CUDA0, DType::UINT8, &[64], Some(sim::on(stream))).expect("allocated");
    let bytes: Vec<u8> = (0..64).collect();
    unsafe { whole.write(&bytes, Some(sim::on(stream))) }.expect("written");
    let data = whole.data().wrapping_byte_offset(FIRST as isize);
    let (device, dtype, strides, flags) = (CUDA0, DType::UINT8, Some(&STRIDES[..]), Flags::default());
    let desc = TensorDesc { data, device, dtype, shape: &SHAPE, strides, byte_offset: 0, flags };
    let mut view = unsafe { Tensor::from_raw_parts(&desc, Owner::new(whole)) }.expect("a view");
    unsafe { view.produced_on(sim::on(stream)) }.expect("not shared yet");
    view
}

/// A view of the same memory that nobody may write any more.
fn read_only(whole: Tensor, stream: u64) -> Tensor {
    let (data, shape, flags) = (whole.data(), [N as i64], Flags::READ_ONLY);
    let (device, dtype) = (CUDA0, DType::UINT8);
    let desc = TensorDesc { data, device, dtype, shape: &shape, strides: None, byte_offset: 0, flags };
    let mut view = unsafe { Tensor::from_raw_parts(&desc, Owner::new(whole)) }.expect("a view");
    unsafe { view.produced_on(sim::on(stream)) }.expect("not shared yet");
    view
}

const LONG: &[u8; 16] = b"sixteen bytes !!";

/// Numbers, texts, and views of texts; the copy of the batch has the views' sizes on the device.
fn table() -> Batch {
    let view = |prefix: [u8; 4]| [16_i32, i32::from_ne_bytes(prefix), 0, 0];
    let (numbers, offsets, text) = (vec![1_i64, 2], vec![0_i32, 2, 5], b"abcde".to_vec());
    let (views, sizes) = (vec![view(*b"sixt"); 2], vec![16_i64]);
    let array = |name, format| ArrayBuilder::new(name, format, 2).buffer(std::ptr::null());
    let table = ArrayBuilder::batch(2)
        .child(array("n", "l").buffer(numbers.as_ptr().cast()))
        .child(array("t", "u").buffer(offsets.as_ptr().cast()).buffer(text.as_ptr().cast()))
        .child(
            array("v", "vu").buffer(views.as_ptr().cast()).buffer(LONG.as_ptr().cast()).buffer(sizes.as_ptr().cast()),
        )
        .owner(Owner::new((numbers, offsets, text, views, sizes)));
    unsafe { table.build(Device::CPU) }.expect("built")
}

#[test]
fn what_cannot_be_shared_is_copied() {
    const NAME: &str = "copies::what_cannot_be_shared_is_copied";
    let session = Session::new();
    if part().is_some() {
        return importer(&session);
    }
    session.each(6, || {
        let server = ipc::Server::bind(&own("copies")).expect("bound");
        let stream = sim::stream();
        let of = |kind| Tensor::allocate(Device { kind, id: 0 }, DType::UINT8, &[N as i64], None).expect("allocated");
        let pooled = Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], Some(sim::on(stream))).expect("allocated");
        let tensors = [
            ("pooled", filled(pooled, 3, stream)),
            ("pinned", filled(of(DeviceType::CUDA_HOST), 4, stream)),
            ("managed", filled(of(DeviceType::CUDA_MANAGED), 5, stream)),
            ("strided", strided(stream)),
        ];
        for (name, tensor) in tensors {
            let span = if name == "strided" { 29 } else { N as usize };
            assert!(matches!(ipc::plan_tensor(&tensor), Plan::Copy { bytes, .. } if bytes == span), "{name}");
            let error = server.offer_tensor(name, &tensor, Copying::Never).expect_err(name);
            assert_eq!(error.status(), DEVX_COPY_REQUIRED, "{error}");
            server.offer_tensor(name, &tensor, Copying::IfNeeded).expect(name);
            // The last reference to the source is dropped here, with the work that fills it still queued.
        }
        // An importer may not write the copy, just as it may not write the original.
        server.offer_tensor("fixed", &read_only(filled(plain(), 7, stream), stream), Copying::Always).expect("offered");
        // Memory that can be shared is copied if the caller asks for a copy.
        let shareable = filled(plain(), 6, stream);
        server.offer_tensor("always", &shareable, Copying::Always).expect("offered");
        sim::fill(shareable.data() as u64, 0xee, N, stream);
        shareable.used_on(sim::on(stream)).expect("used");
        drop(shareable);
        let on_device = table().copy_to(CUDA0, sim::on(stream)).expect("copied");
        // Six non-empty buffers, each starting at a multiple of 64 bytes.
        assert!(matches!(ipc::plan_batch(&on_device), Plan::Copy { bytes: 384, .. }));
        let error = server.offer_batch("table", &on_device, Copying::Never).expect_err("never");
        assert_eq!(error.status(), DEVX_COPY_REQUIRED, "{error}");
        server.offer_batch("table", &on_device, Copying::IfNeeded).expect("offered");
        drop(on_device);
        let mut peer = start(NAME, "importer", &[]);
        peer.expect("has read all");
        peer.end();
        soon("all is released", || server.leases() == 0);
        drop(server);
        sim::synchronize(stream);
        sim::settle();
        sim::destroy(stream);
    });
}

/// An event says when it is ready, so the program can close the stream that it was made on.
#[test]
fn a_copy_needs_no_stream_any_more() {
    if sim::skipped("streams are counted by the simulated driver") {
        return;
    }
    let session = Session::new();
    session.each(6, || {
        let before = sim::stat("live_streams");
        let on = Stream::create(0).expect("a stream");
        let pooled = Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], Some(on)).expect("allocated");
        let exported = ipc::export_tensor(&pooled, Copying::IfNeeded).expect("a copy");
        drop(pooled);
        unsafe { on.close() }.expect("closed");
        soon("the stream is destroyed", || sim::stat("live_streams") == before);
        drop(exported);
    });
}

/// Also without elements, which are nowhere.
#[test]
fn pinned_and_managed_memory_is_copied() {
    let session = Session::new();
    session.each(1, || {
        for (kind, length) in [(DeviceType::CUDA_HOST, 0), (DeviceType::CUDA_MANAGED, 0), (DeviceType::CUDA_HOST, 3)] {
            let device = Device { kind, id: 0 };
            let tensor = Tensor::allocate(device, DType::UINT8, &[length], None).expect("allocated");
            let plan = ipc::plan_tensor(&tensor);
            assert!(matches!(plan, Plan::Copy { bytes, .. } if bytes == length as usize), "{device}: {plan:?}");
            let error = ipc::export_tensor(&tensor, Copying::Never).expect_err("never");
            assert_eq!(error.status(), DEVX_COPY_REQUIRED, "{device}: {error}");
            drop(ipc::export_tensor(&tensor, Copying::IfNeeded).expect("a copy"));
        }
    });
}

fn importer(session: &Session) {
    session.begin(sim::schedules(1)[0]);
    let client = theirs("copies");
    for (name, byte) in [("pooled", 3), ("pinned", 4), ("managed", 5), ("always", 6)] {
        let tensor = client.tensor(name).expect(name);
        // This process did not copy it, so it is not flagged as a copy.
        assert_eq!((tensor.device(), tensor.flags()), (CUDA0, Flags::default()), "{name}");
        assert_eq!(read(&tensor), vec![byte; N as usize], "{name}");
    }
    let fixed = client.tensor("fixed").expect("fixed");
    assert_eq!((fixed.flags(), read(&fixed)), (Flags::READ_ONLY, vec![7; N as usize]));
    drop(fixed);
    let tensor = client.tensor("strided").expect("strided");
    assert_eq!((tensor.shape(), tensor.strides()), (&SHAPE[..], &STRIDES[..]));
    let stream = sim::stream();
    tensor.wait(sim::on(stream)).expect("waits");
    let lowest = tensor.data() as u64 - 24;
    let span = sim::download(lowest, 29, stream);
    assert_eq!(span, (32..61).collect::<Vec<u8>>());
    tensor.used_on(sim::on(stream)).expect("used");
    // Memory of another process cannot be exported again, but it can be copied.
    assert!(matches!(ipc::plan_tensor(&tensor), Plan::Copy { bytes: 29, .. }));
    drop(ipc::export_tensor(&tensor, Copying::IfNeeded).expect("copied"));
    let batch = client.batch("table").expect("a batch");
    let host = batch.copy_to(Device::CPU, sim::on(stream)).expect("copied");
    let column = |name| host.column_named(name).expect("the column");
    assert_eq!(column("n").values::<i64>(), Ok(&[1, 2][..]));
    assert_eq!([0, 1].map(|row| column("t").text(row)), [Ok("ab"), Ok("cde")]);
    assert_eq!(column("v").text(1).map(str::as_bytes), Ok(&LONG[..]));
    drop((tensor, batch));
    sim::settle();
    sim::destroy(stream);
    say("has read all");
}
