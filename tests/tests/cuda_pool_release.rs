//! Memory of pools, which is given back in the order of a stream: after the work that fills it, on whatever stream that
//! is.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests describe memory that they own")]

use std::time::Duration;

use devexchange_core::arrow::ArrayBuilder;
use devexchange_core::dlpack::Copying;
use devexchange_core::manager::{self, Allocated, Manager, PoolOptions};
use devexchange_core::{Batch, DType, Device, Stream, Tensor, convert};
use devexchange_tests::filled::{FILLED, Filled, fill_and_drop};
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::sim::{self, Session};

const N: u64 = 256;
const SEEDS: u64 = 100;

fn matrix_of_pool(own: Stream) -> Tensor {
    Tensor::allocate(CUDA0, DType::UINT8, &[N as i64, 2], Some(own)).expect("allocated")
}

fn batch_of_pool(own: Stream) -> Batch {
    static BYTES: [u8; N as usize] = [7; N as usize];
    let host = foreign::batch(BYTES.as_ptr().expose_provenance() as u64, N, Device::CPU, || ());
    host.copy_to(CUDA0, own).expect("copied")
}

/// A batch with sizes of view data, which a copy keeps in pinned memory, besides the pool memory.
fn views_of_pool(own: Stream) -> Batch {
    static VIEWS: [[u32; 4]; 2] = [[16, 0, 0, 0], [2, 0, 0, 0]];
    static TEXT: [u8; 16] = [b'a'; 16];
    static SIZES: [i64; 1] = [16];
    let views = ArrayBuilder::new("text", "vu", 2).buffer(std::ptr::null()).buffer(VIEWS.as_ptr().cast());
    let views = views.buffer(TEXT.as_ptr().cast()).buffer(SIZES.as_ptr().cast());
    let host = unsafe { views.build(Device::CPU) }.expect("well-formed");
    host.copy_to(CUDA0, own).expect("copied")
}

/// A batch with each column in a separate allocation.
fn columns_of_pool(own: Stream) -> Batch {
    let manager = manager::Pool::new(PoolOptions::default()).expect("a manager");
    let column = |name| {
        let Allocated { address, owner, .. } =
            manager.allocate(&manager::Request::on(own, N as usize)).expect("memory");
        sim::fill(address.expose_provenance() as u64, 1, N, own.value() as u64);
        ArrayBuilder::new(name, "C", N as i64).buffer(std::ptr::null()).buffer(address).owner(owner)
    };
    let table = ArrayBuilder::batch(N as i64).child(column("a")).child(column("b"));
    let mut batch = unsafe { table.build(CUDA0) }.map_err(|refused| refused.error).expect("well-formed");
    unsafe { batch.produced_on(own) }.expect("not shared");
    batch
}

/// Pool memory is given back after the work that fills it.
#[test]
fn memory_of_a_pool_is_given_back_after_the_work_that_fills_it() {
    let session = Session::new();
    fill_and_drop(&session, SEEDS, matrix_of_pool);
    fill_and_drop(&session, SEEDS, batch_of_pool);
    fill_and_drop(&session, SEEDS, views_of_pool);
    fill_and_drop(&session, SEEDS, columns_of_pool);
}

/// The creator of data in pool memory may fill it through a view, and keep only the view.
#[test]
fn memory_of_a_pool_is_given_back_after_the_work_that_fills_a_view() {
    let session = Session::new();
    let never = Copying::Never;
    fill_and_drop(&session, SEEDS, |own| convert::column(&matrix_of_pool(own), "c", never).expect("a view"));
    fill_and_drop(&session, SEEDS, |own| {
        convert::fixed_shape_column(&matrix_of_pool(own), "c", never).expect("a view")
    });
    fill_and_drop(&session, SEEDS, |own| convert::tensor(batch_of_pool(own).root(), never).expect("a view"));
    fill_and_drop(&session, SEEDS, |own| {
        let batch = convert::column(&matrix_of_pool(own), "c", never).expect("a view");
        convert::tensor(batch.root(), never).expect("a view of a view")
    });
    fill_and_drop(&session, SEEDS, |own| {
        let (one, other) = (batch_of_pool(own), batch_of_pool(own));
        Batch::of_columns(&[("a", &one), ("b", &other)], Some(own)).expect("joined")
    });
    fill_and_drop(&session, SEEDS, |own| {
        let matrix = convert::matrix(&columns_of_pool(own), Copying::Always, Some(own)).expect("gathered");
        convert::batch(&matrix, &[], never).expect("a view")
    });
}

/// The last statement of the stream on which the data is ready puts that stream behind all streams that were named
/// before.
#[test]
fn only_the_last_stream_that_fills_memory_of_a_pool_has_to_be_there() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (own, filler) = (sim::stream(), sim::stream());
        for last in [sim::stream(), own] {
            let mut made = batch_of_pool(sim::on(own));
            made.order(sim::on(filler));
            sim::fill(made.data(), 1, FILLED, filler);
            made.order(sim::on(last));
            sim::fill(made.data(), 2, FILLED, last);
            if last == own {
                sim::destroy(filler);
            }
            drop(made);
            sim::settle();
            sim::finish([last]);
        }
    });
}

/// The work that fills the memory is queued before the stream is captured; during the capture the stream cannot be
/// asked.
#[test]
fn memory_of_a_pool_is_given_back_after_a_capture_of_the_stream_that_fills_it() {
    let session = Session::new();
    let scenario = |make: &dyn Fn(Stream) -> Box<dyn Filled>| {
        session.each(SEEDS, || {
            let (own, filler) = (sim::stream(), sim::stream());
            let mut made = make(sim::on(own));
            made.order(sim::on(filler));
            sim::fill(made.data(), 1, FILLED, filler);
            sim::begin_capture(filler, 2);
            drop(made);
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(sim::end_capture(filler), 0, "the capture is intact");
            sim::settle();
            sim::finish([own, filler]);
        });
    };
    scenario(&|own| Box::new(matrix_of_pool(own)));
    scenario(&|own| Box::new(batch_of_pool(own)));
    scenario(&|own| Box::new(convert::column(&matrix_of_pool(own), "c", Copying::Never).expect("a view")));
}

#[test]
fn run_by_threads() {
    sim::again_with_threads();
}
