//! Work with a view on CUDA is work with the whole that it is a view of.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::dlpack::{self, Copying, Request};
use devexchange_core::{DType, Tensor, convert};
use devexchange_tests::filled::Filled;
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::freeing::{Consumer, Foreign, N};
use devexchange_tests::sim::{self, Session};

const SEEDS: u64 = 100;

#[test]
fn work_with_a_slice_is_work_with_the_whole() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (memory, consumer) = (Foreign::allocate(), Consumer::begin());
        let batch = memory.batch();
        let rows = batch.slice(1, batch.length() - 1).expect("there are so many");
        let slice = rows.slice(1, rows.length() - 1).expect("there are so many");
        slice.wait(consumer.on()).expect("ordered");
        consumer.read(memory.address);
        slice.used_on(consumer.on()).expect("used");
        drop((batch, rows, slice));
        memory.end();
        let memory = Foreign::allocate();
        let tensor = memory.tensor();
        let part = tensor.slice(0, 1, tensor.shape()[0] - 1).expect("there are so many");
        let again = part.slice(0, 1, part.shape()[0] - 1).expect("there are so many");
        again.wait(consumer.on()).expect("ordered");
        consumer.read(memory.address);
        again.used_on(consumer.on()).expect("used");
        drop((again, tensor, part));
        memory.end();
        consumer.end();
    });
}

#[test]
fn uses_of_views_and_exports_count() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (memory, other, consumer) = (Foreign::allocate(), Foreign::allocate(), Consumer::begin());
        // A column over a tensor over a foreign tensor; the consumer names its work on the column.
        let column = convert::column(&memory.tensor(), "x", Copying::Never).expect("a view");
        let view = convert::tensor(column.root(), Copying::Never).expect("a view");
        drop(column);
        consumer.read(memory.address);
        view.used_on(consumer.on()).expect("used");
        drop(view);
        // Exported and imported again: the second handle's uses come before the first one's release.
        let exported = dlpack::export::<DLManagedTensorVersioned>(other.tensor(), &Request::default());
        let again = exported.expect("exported").import().expect("imported");
        consumer.read(other.address);
        again.used_on(consumer.on()).expect("used");
        drop(again);
        memory.end();
        other.end();
        consumer.end();
    });
}

/// Runs `test` on a thread with a small stack.
fn on_a_small_stack(test: impl FnOnce() + Send) {
    const STACK: usize = 128 << 10;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, test);
        thread.expect("a thread").join().expect("no panic");
    });
}

#[test]
fn any_number_of_views_of_views_is_used() {
    const VIEWS: usize = 50_000;
    let session = Session::new();
    session.begin(sim::schedules(1)[0]);
    let (memory, other, consumer) = (Foreign::allocate(), Foreign::allocate(), Consumer::begin());
    on_a_small_stack(|| {
        let (mut tensor, mut batch) = (memory.tensor(), other.batch());
        for _ in 0..VIEWS {
            let column = convert::column(&tensor, "x", Copying::Never).expect("a view");
            tensor = convert::tensor(column.root(), Copying::Never).expect("a view");
            tensor = tensor.slice(0, 0, (tensor.shape()[0] - 1).max(8)).expect("there are so many");
            batch = batch.slice(0, (batch.length() - 1).max(8)).expect("there are so many");
        }
        consumer.read(memory.address);
        tensor.wait(consumer.on()).expect("ordered");
        tensor.used_on(consumer.on()).expect("used");
        consumer.read(other.address);
        batch.wait(consumer.on()).expect("ordered");
        batch.used_on(consumer.on()).expect("used");
        drop((tensor, batch));
    });
    memory.end();
    other.end();
    consumer.end();
    session.check();
}

/// Each view's filler is asked for its last work when the view is given up, so each view stays as long as views of it.
#[test]
fn any_number_of_views_of_views_that_are_filled_is_used() {
    const VIEWS: usize = 1_000;
    let session = Session::new();
    session.begin(sim::schedules(1)[0]);
    let (own, filler, consumer) = (sim::stream(), sim::stream(), Consumer::begin());
    on_a_small_stack(|| {
        let mut tensor = Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], Some(sim::on(own))).expect("allocated");
        // A slice of the whole is a view, too, with its own order.
        for _ in 0..VIEWS {
            tensor = tensor.slice(0, 0, tensor.shape()[0]).expect("there are so many");
            tensor.order(sim::on(filler));
        }
        let mut column = convert::column(&tensor, "x", Copying::Never).expect("a view");
        for _ in 0..VIEWS {
            column = column.slice(0, column.length()).expect("there are so many");
            column.order(sim::on(filler));
        }
        sim::fill(Filled::data(&column), 1, N, filler);
        column.wait(consumer.on()).expect("ordered");
        consumer.read(Filled::data(&column));
        column.used_on(consumer.on()).expect("used");
        drop((tensor, column));
    });
    sim::settle();
    consumer.end();
    sim::finish([own, filler]);
    session.check();
}
