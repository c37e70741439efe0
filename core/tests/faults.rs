//! Faults of the program that uses the core: each allocation of an operation fails, and each callback panics. The
//! result must be an error, nothing may be taken, and everything must be released once.
//!
//! All in one test: an environment variable turns off what the core keeps for itself, and it is set before there is a
//! second thread.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls of the C ABI in a row")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

#[path = "faults/asynchronous.rs"]
mod asynchronous;
mod failing;
#[path = "faults/processes.rs"]
mod processes;

use core::ffi::c_void;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::abi::types::{
    DEVX_CALLBACK, DEVX_MANAGER_VERSION, DEVX_OK, DEVX_OUT_OF_MEMORY, DEVX_PANIC, DevxError, DevxManagerTable,
    DevxMemory, DevxMemoryRequest, DevxOwner, DevxStatus,
};
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{metadata, release_array, release_schema};
use devexchange_core::dlpack::{self, Copying, Managed, Request};
use devexchange_core::manager::{Deferred, Driver, Limited, Request as Asked, Shared};
use devexchange_core::{
    Batch, BatchStream, DType, Device, DeviceType, Error, Flags, Owner, Result, Schema, Tensor, TensorDesc, convert,
    ledger,
};

use failing::{Failing, WATCHED, arm, disarm, watched};

#[global_allocator]
static ALLOCATOR: Failing = Failing { elsewhere: processes::server_fails };

// ---- a scene ----

/// The counters of one run of a scene.
#[derive(Default)]
struct Run {
    /// Owners that were handed over and are not yet released.
    live: Arc<AtomicI32>,
    /// The number of callbacks called, and which of them panics.
    callbacks: Arc<AtomicI32>,
    panics: i32,
    told: Cell<u32>,
}

impl Run {
    /// Does something with the core while an allocation may fail. The scene must do without whatever could not be made.
    fn attempt<T>(&self, act: impl FnOnce() -> Result<T>) -> Option<T> {
        watched(act).map_err(|error| self.is_told(&error)).ok()
    }

    fn is_told(&self, error: &Error) {
        let expected = if self.panics > 0 { DEVX_PANIC } else { DEVX_OUT_OF_MEMORY };
        // Through the ABI of a stream an error is only a code.
        assert!([expected, DEVX_CALLBACK].contains(&error.status()), "{error}");
        self.told.set(self.told.get() + 1);
    }

    /// A callback of the test; the one whose turn it is panics.
    fn callback(callbacks: &AtomicI32, panics: i32) {
        assert!(callbacks.fetch_add(1, SeqCst) + 1 != panics, "as asked");
    }

    /// An owner that must be released once; its memory is not the core's.
    fn owner(&self) -> Owner {
        let (live, callbacks, panics) = (Arc::clone(&self.live), Arc::clone(&self.callbacks), self.panics);
        live.fetch_add(1, SeqCst);
        Owner::on_release(move || {
            live.fetch_sub(1, SeqCst);
            Self::callback(&callbacks, panics);
        })
    }
}

type Scene = fn(&Run);

const SCENES: [(&str, Scene); 14] = [
    ("tensors", tensors),
    ("exports of a tensor", exports),
    ("schemas", schemas),
    ("batches", batches),
    ("conversions", conversions),
    ("columns with an owner each", columns),
    ("streams", streams),
    ("managers", managers),
    ("a manager that a release asks", own_manager),
    ("other processes", processes::processes),
    ("asynchronous streams", asynchronous::to_the_end),
    ("asynchronous streams that fail", asynchronous::to_an_error),
    ("asynchronous streams that are cancelled", asynchronous::to_a_cancel),
    ("asynchronous streams that nobody ends", asynchronous::to_nowhere),
];

fn after(name: &str, what: &str, run: &Run) {
    assert_eq!(run.live.load(SeqCst), 0, "{name}, {what}: owners are left");
    assert_eq!(ledger::outstanding(), 0, "{name}, {what}: {:?}", ledger::read());
}

/// Lets each allocation of a scene fail, alone or with all that follow. Returns the number that failed.
fn without_memory((name, scene): (&str, Scene)) -> u64 {
    let mut all = 0;
    for from_then_on in [false, true] {
        for nth in 0.. {
            let run = Run::default();
            arm(nth, from_then_on);
            scene(&run);
            let failed = disarm();
            after(name, &format!("allocation {nth}"), &run);
            assert!(failed > 0 || run.told.get() == 0, "{name}: memory is missing, but is there");
            all += failed;
            if failed == 0 {
                break;
            }
        }
    }
    all
}

/// Lets each callback of a scene panic. Returns the number that did.
fn with_panics((name, scene): (&str, Scene)) -> u64 {
    let mut all = 0;
    loop {
        let run = Run { panics: all as i32 + 1, ..Run::default() };
        scene(&run);
        after(name, &format!("callback {}", run.panics), &run);
        if run.callbacks.load(SeqCst) < run.panics {
            assert_eq!(run.told.get(), 0, "{name}: an error without a panic");
            return all;
        }
        all += 1;
    }
}

#[test]
fn what_fails_once_is_told_and_loses_nothing() {
    // Otherwise blocks that were given back would not be allocated again.
    unsafe { std::env::set_var("DEVEXCHANGE_KEEP_BLOCKS", "0") };
    // A thread makes what it keeps for itself with its first exchange; and nobody needs to see the messages of these
    // panics.
    drop(Tensor::from_vec(vec![0_u8], &[1]));
    std::panic::set_hook(Box::new(|_| ()));
    let told = |what: std::thread::Result<u64>| {
        what.unwrap_or_else(|payload| {
            drop(std::panic::take_hook());
            let text = payload.downcast_ref::<String>().cloned();
            panic!("{}", text.unwrap_or_default())
        })
    };
    for scene in SCENES {
        let missing = told(std::panic::catch_unwind(|| without_memory(scene)));
        let panics = told(std::panic::catch_unwind(|| with_panics(scene)));
        println!("{}: {missing} allocations failed, {panics} callbacks", scene.0);
        assert!(missing > 10, "{}: {missing}", scene.0);
    }
    for (name, sweep) in
        [("servers", processes::servers as fn() -> u64), ("the server's thread", processes::the_server)]
    {
        let missing = told(std::panic::catch_unwind(sweep));
        println!("{name}: {missing} allocations failed");
        assert!(missing > 5, "{name}: {missing}");
    }
    drop(std::panic::take_hook());
}

// ---- the scenes ----

static NUMBERS: [f64; 6] = [0., 1., 2., 3., 4., 5.];
static OFFSETS: [i32; 3] = [0, 1, 3];

fn tensor(run: &Run) -> Option<Tensor> {
    let desc = TensorDesc {
        data: NUMBERS.as_ptr().cast_mut().cast(),
        device: Device::CPU,
        dtype: DType::FLOAT64,
        shape: &[2, 3],
        strides: None,
        byte_offset: 0,
        flags: Flags::READ_ONLY,
    };
    let owner = run.owner();
    run.attempt(|| Ok(unsafe { Tensor::from_raw_parts(&desc, owner) }?))
}

fn tensors(run: &Run) {
    let host = run.attempt(|| Tensor::allocate(Device::CPU, DType::FLOAT64, &[2, 3], None));
    let values = vec![1_i32, 2];
    let own = run.attempt(|| Ok(Tensor::from_vec(values, &[2])?));
    let copy = tensor(run).and_then(|tensor| run.attempt(|| tensor.copy()));
    drop((host, own, copy));
}

fn out_and_in<M: Managed>(run: &Run, tensor: Tensor) {
    let request = Request { max_version: dlpack::VERSION, ..Request::default() };
    let exported = run.attempt(|| Ok(dlpack::export::<M>(tensor, &request)?));
    let again = exported.and_then(|exported| run.attempt(|| Ok(exported.import()?)));
    drop(again);
}

fn exports(run: &Run) {
    if let Some(tensor) = tensor(run) {
        out_and_in::<DLManagedTensorVersioned>(run, tensor.clone());
        let writable = run.attempt(|| tensor.copy());
        writable.into_iter().for_each(|copy| out_and_in::<DLManagedTensor>(run, copy));
        out_and_in::<DLManagedTensorVersioned>(run, tensor);
    }
}

/// A record batch with a number, a text, a list and a dictionary.
fn schema(run: &Run) -> Option<Schema> {
    let block = run.attempt(|| metadata::encode(&[(b"key", b"value")]))?;
    let nested = FieldDesc { n_children: 1, ..FieldDesc::new(c"list", c"+l") };
    let fields = [
        FieldDesc::batch(4),
        FieldDesc { metadata: Some(&block), ..FieldDesc::new(c"number", c"g") },
        FieldDesc::new(c"text", c"u"),
        nested,
        FieldDesc::new(c"item", c"g"),
        FieldDesc { has_dictionary: true, ..FieldDesc::new(c"index", c"i") },
        FieldDesc::new(c"", c"u"),
    ];
    run.attempt(|| Schema::new(&fields))
}

fn schemas(run: &Run) {
    let Some(schema) = schema(run) else { return };
    let mut out = MaybeUninit::<ArrowSchema>::uninit();
    if run.attempt(|| unsafe { schema.export(out.as_mut_ptr()) }).is_some() {
        let again = run.attempt(|| unsafe { Schema::import(out.as_mut_ptr()) });
        let exported = unsafe { out.assume_init_mut() };
        assert_eq!(exported.release.is_none(), again.is_some());
        unsafe { release_schema(exported) };
    }
}

fn batch(run: &Run) -> Option<Batch> {
    let schema = schema(run)?;
    let none = [std::ptr::null()];
    let numbers = [std::ptr::null(), NUMBERS.as_ptr().cast()];
    let offsets = [std::ptr::null(), OFFSETS.as_ptr().cast()];
    let texts = [std::ptr::null(), OFFSETS.as_ptr().cast(), b"abb".as_ptr().cast()];
    let node = |length, buffers| NodeDesc { length, null_count: 0, offset: 0, buffers };
    let nodes = [
        node(2, &none[..]),
        node(2, &numbers),
        node(2, &texts),
        node(2, &offsets),
        node(3, &numbers),
        node(2, &offsets),
        node(2, &texts),
    ];
    let owner = run.owner();
    run.attempt(|| Ok(unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, owner) }?))
}

fn batches(run: &Run) {
    let Some(batch) = batch(run) else { return };
    let mut out = MaybeUninit::<ArrowArray>::uninit();
    if run.attempt(|| Ok(unsafe { batch.clone().export(out.as_mut_ptr()) }?)).is_some() {
        let again = run.attempt(|| unsafe { Batch::import(out.as_mut_ptr(), batch.schema()) });
        let exported = unsafe { out.assume_init_mut() };
        assert_eq!(exported.release.is_none(), again.is_some());
        unsafe { release_array(exported) };
    }
    let both = run.attempt(|| Batch::of_columns(&[("x", &batch), ("y", &batch)], None));
    let mut device = MaybeUninit::<ArrowDeviceArray>::uninit();
    if run.attempt(|| Ok(unsafe { batch.export_device(device.as_mut_ptr()) }?)).is_some() {
        unsafe { release_array(&raw mut (*device.as_mut_ptr()).array) };
    }
    drop(both);
}

fn conversions(run: &Run) {
    let Some(tensor) = tensor(run) else { return };
    let column = run.attempt(|| convert::column(&tensor, "x", Copying::Never));
    let back = column.and_then(|column| run.attempt(|| convert::tensor(column.root(), Copying::Never)));
    let shaped = run.attempt(|| convert::fixed_shape_column(&tensor, "x", Copying::Never));
    let table = run.attempt(|| convert::batch(&tensor, &["a", "b", "c"], Copying::IfNeeded));
    let matrix = table.and_then(|table| run.attempt(|| convert::matrix(&table, Copying::Always, None)));
    drop((back, shaped, matrix));
}

fn columns(run: &Run) {
    let tensors: Vec<_> = (0..4).filter_map(|_| tensor(run)).collect();
    let column = |tensor: &Tensor| run.attempt(|| convert::column(tensor, "x", Copying::Never));
    let columns: Vec<_> = tensors.iter().filter_map(column).collect();
    let named: Vec<_> = columns.iter().map(|column| ("x", column)).collect();
    let Some(table) = (named.len() == 4).then(|| run.attempt(|| Batch::of_columns(&named, None))).flatten() else {
        return;
    };
    drop((tensors, columns));
    let mut out = MaybeUninit::<ArrowArray>::uninit();
    if run.attempt(|| Ok(unsafe { table.export(out.as_mut_ptr()) }?)).is_some() {
        unsafe { release_array(out.as_mut_ptr()) };
    }
}

fn streams(run: &Run) {
    let Some(batch) = batch(run) else { return };
    let schema = batch.schema().clone();
    let (callbacks, panics, mut left) = (Arc::clone(&run.callbacks), run.panics, 2);
    let source = move || {
        let watched = WATCHED.replace(false);
        Run::callback(&callbacks, panics);
        WATCHED.set(watched);
        left -= 1;
        Ok((left >= 0).then(|| batch.clone()))
    };
    let stream = run.attempt(|| BatchStream::new(&schema, DeviceType::CPU, source));
    let mut out = MaybeUninit::<ArrowArrayStream>::uninit();
    let exported = stream.and_then(|stream| run.attempt(|| Ok(unsafe { stream.export(out.as_mut_ptr()) }?)));
    if exported.is_none() {
        return;
    }
    let again = run.attempt(|| unsafe { BatchStream::import(out.as_mut_ptr()) });
    match again {
        Some(stream) => {
            while let Some(Some(batch)) = run.attempt(|| stream.next()) {
                drop(batch);
            }
        }
        None => unsafe {
            if let Some(release) = (*out.as_mut_ptr()).release {
                release(out.as_mut_ptr());
            }
        },
    }
}

fn managers(run: &Run) {
    let host = run.attempt(|| Driver::host_only().and_then(Shared::new));
    let limited = host.and_then(|host| run.attempt(|| Limited::new(host, 1000).and_then(Shared::new)));
    let Some(manager) = limited else { return };
    let asked = Asked::of(DeviceType::CPU, 0, 24);
    let deferred = Deferred::new(&*manager);
    let memory: Vec<_> = (0..3).filter_map(|_| run.attempt(|| manager.allocate(&asked))).collect();
    let tensor = run.attempt(|| Tensor::allocate_with(&*manager, Device::CPU, DType::FLOAT64, &[3], None));
    watched(|| drop((memory, deferred)));
    run.attempt(|| manager.trim(0, 0));
    drop(tensor);
    assert_eq!(manager.statistics().allocations, 0);
}

thread_local! {
    /// The manager with which [`own_manager`] allocates.
    static ASKED: Cell<Option<Shared>> = const { Cell::new(None) };
    static GIVEN: Cell<i32> = const { Cell::new(0) };
}

/// The manager can be called by any thread that gives memory back, even about an allocation that was refused in the
/// end.
fn own_manager(run: &Run) {
    unsafe extern "C" fn allocate(
        _: *mut c_void,
        _: *const DevxMemoryRequest,
        out: *mut DevxMemory,
        _: *mut DevxError,
    ) -> DevxStatus {
        let owner = DevxOwner { context: null_mut(), release: Some(give_back) };
        GIVEN.set(GIVEN.get() + 1);
        unsafe { out.write(DevxMemory { address: 16 as *mut c_void, device_type: 1, device_id: 0, owner }) };
        DEVX_OK
    }
    unsafe extern "C" fn give_back(_: *mut c_void) {
        GIVEN.set(GIVEN.get() - 1);
        if let Some(manager) = ASKED.take() {
            assert!(manager.statistics().total_allocations < 3);
            ASKED.set(Some(manager));
        }
    }
    let mut table = unsafe { MaybeUninit::<DevxManagerTable>::zeroed().assume_init() };
    table.version = DEVX_MANAGER_VERSION;
    table.allocate = Some(allocate);
    let Some(manager) = run.attempt(|| unsafe { Shared::of_table(&table) }) else { return };
    ASKED.set(Some(manager.clone()));
    let memory = [(); 2].map(|()| run.attempt(|| manager.allocate(&Asked::of(DeviceType::CPU, 0, 8))));
    drop(memory);
    assert_eq!((manager.statistics().allocations, GIVEN.get()), (0, 0));
    drop(ASKED.take());
}
