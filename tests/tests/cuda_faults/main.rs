//! Faults of the driver: every call of every scenario fails, with every kind of code, once or from then on. Then there is
//! an error with the call and the code, nothing is released twice or too early, and what is not given back was counted.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls of the C API in a row")]

mod arrays;
mod managers;
mod processes;

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use devexchange as _;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::{DLDataType, DLDevice, DLManagedTensorVersioned};
use devexchange_core::abi::types::{
    DEVX_ERROR_MESSAGE_BYTES, DEVX_OK, DevxDeviceInfo, DevxDlpackRequest, DevxError, DevxStatus,
};
use devexchange_core::arrow::release_array;
use devexchange_core::dlpack::{self, Copying, Request};
use devexchange_core::order::Ready;
use devexchange_core::runtime::cuda::{Stream, info};
use devexchange_core::{Batch, DType, Device, DeviceType, Result, Tensor, convert};
use devexchange_tests::foreign::{self, CUDA0, bytes_schema};
use devexchange_tests::sim::{self, Live, Session};
use devexchange_tests::{cu, cu_ok};

const N: u64 = 256;

/// Invalid value, out of memory, invalid handle, illegal address, launch failed, invalid context, context destroyed,
/// deinitialised, unknown, and one that no driver has.
const CODES: [u32; 10] = [1, 2, 400, 700, 719, 201, 709, 4, 999, 7777];
const KINDS: [DeviceType; 3] = [DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED];

/// What a scenario works with, and what came of it.
struct Scene {
    data: u64,
    scratch: u64,
    producer: u64,
    consumer: u64,
    event: u64,
    /// The stream that the scenario names: a handle, or a default stream.
    stream: i64,
    /// Foreign memory: its address, and how often it was released.
    foreign: Mutex<Vec<(u64, Arc<AtomicU32>)>>,
    /// Foreign memory whose producer could not free it.
    unfreed: Arc<Mutex<Vec<u64>>>,
    errors: Mutex<Vec<(i32, String)>>,
}

impl Scene {
    fn new(stream: i64) -> Self {
        let scene = Self {
            data: sim::alloc(N),
            scratch: sim::alloc(N),
            producer: sim::stream(),
            consumer: sim::stream(),
            event: sim::event(),
            stream,
            foreign: Mutex::default(),
            unfreed: Arc::default(),
            errors: Mutex::default(),
        };
        for _ in 0..2 {
            let address = sim::alloc(N);
            sim::fill(address, 1, N, scene.producer);
            scene.foreign.lock().expect("not poisoned").push((address, Arc::default()));
        }
        // A producer does not give away memory that it still writes to.
        sim::synchronize(scene.producer);
        sim::fill(scene.data, 1, N, scene.producer);
        cu_ok!("cuEventRecord", scene.event, scene.producer);
        // The producer does as DLPack asks, for whichever stream is named.
        for stream in [scene.consumer, 1, 2] {
            cu_ok!("cuStreamWaitEvent", stream, scene.event, 0);
        }
        scene
    }

    fn stream(&self) -> i64 {
        if self.stream == 0 { self.consumer as i64 } else { self.stream }
    }

    fn on(&self) -> Stream {
        sim::on(self.stream() as u64)
    }

    /// Notes what came of an operation.
    fn note<T>(&self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.error(error.driver_code(), error.message().to_owned())).ok()
    }

    fn note_c(&self, status: DevxStatus, error: &DevxError) -> bool {
        if status != DEVX_OK {
            let text = unsafe { CStr::from_ptr(error.message.as_ptr()) };
            self.error(error.driver_code, text.to_string_lossy().into_owned());
        }
        status == DEVX_OK
    }

    fn error(&self, code: i32, text: String) {
        self.errors.lock().expect("not poisoned").push((code, text));
    }

    /// Foreign memory whose producer frees it at once when it is released.
    fn release_of(&self, which: usize) -> (u64, impl FnOnce() + Send + 'static) {
        let (address, count) = self.foreign.lock().expect("not poisoned")[which].clone();
        let unfreed = Arc::clone(&self.unfreed);
        let release = move || {
            count.fetch_add(1, SeqCst);
            if cu!("cuMemFree_v2", address) != 0 {
                unfreed.lock().expect("not poisoned").push(address);
            }
        };
        (address, release)
    }

    fn foreign_tensor(&self, which: usize) -> *mut DLManagedTensorVersioned {
        let (address, release) = self.release_of(which);
        foreign::dlpack(address, N, CUDA0, release).as_ptr()
    }

    fn foreign_array(&self, which: usize, event: u64) -> ArrowDeviceArray {
        let (address, release) = self.release_of(which);
        foreign::arrow(address, N, CUDA0, event, release)
    }

    fn tensor(&self) -> Tensor {
        let mut tensor = foreign::tensor(self.data, N, CUDA0, || ());
        unsafe { tensor.produced_on(sim::on(self.producer)) }.expect("not shared yet");
        tensor
    }

    fn batch(&self) -> Batch {
        let mut batch = foreign::batch(self.data, N, CUDA0, || ());
        unsafe { batch.produced_on(sim::on(self.producer)) }.expect("not shared yet");
        batch
    }

    /// Gives back what the scene made. Foreign memory is released once, or not at all if it was counted as lost; what was
    /// never imported is the test's.
    fn end(self, lost: i64) {
        for stream in [self.producer, self.consumer] {
            sim::synchronize(stream);
        }
        cu_ok!("cuCtxSynchronize");
        let mut missing = 0;
        for (address, count) in self.foreign.into_inner().expect("not poisoned") {
            match count.load(SeqCst) {
                0 => {
                    missing += 1;
                    sim::free(address);
                }
                count => assert_eq!(count, 1, "released {count} times"),
            }
        }
        assert!(missing <= lost, "{missing} releases are missing, {lost} were counted as lost");
        self.unfreed.lock().expect("not poisoned").drain(..).for_each(sim::free);
        sim::free(self.data);
        sim::free(self.scratch);
        cu_ok!("cuEventDestroy_v2", self.event);
        sim::destroy(self.producer);
        sim::destroy(self.consumer);
    }
}

fn device(kind: DeviceType) -> Device {
    Device { kind, id: 0 }
}

// ---- scenarios in Rust ----

fn export(scene: &Scene) {
    let request = Request { stream: sim::raw(scene.stream()), ..Request::default() };
    drop(scene.note(dlpack::export::<DLManagedTensorVersioned>(scene.tensor(), &request).map_err(Into::into)));
    let shared = scene.tensor();
    scene.note(shared.wait(scene.on()));
    drop(scene.note(dlpack::export::<DLManagedTensorVersioned>(shared, &request).map_err(Into::into)));
    let mut out = MaybeUninit::<ArrowDeviceArray>::uninit();
    if scene.note(unsafe { scene.batch().export_device(out.as_mut_ptr()) }.map_err(Into::into)).is_some() {
        let mut array = unsafe { out.assume_init() };
        let batch = scene.note(unsafe { Batch::import_device(&raw mut array, &bytes_schema()) });
        if let Some(batch) = batch {
            scene.note(batch.wait(scene.on()));
            let mut again = MaybeUninit::<ArrowDeviceArray>::uninit();
            if scene.note(unsafe { batch.export_device(again.as_mut_ptr()) }.map_err(Into::into)).is_some() {
                unsafe { release_array(&raw mut (*again.as_mut_ptr()).array) };
            }
        } else {
            unsafe { release_array(&raw mut array.array) };
        }
    }
    unused(scene, &[0, 1]);
}

/// Foreign memory that a scenario has no use for.
fn unused(scene: &Scene, which: &[usize]) {
    for which in which {
        let (address, count) = scene.foreign.lock().expect("not poisoned")[*which].clone();
        count.fetch_add(1, SeqCst);
        scene.unfreed.lock().expect("not poisoned").push(address);
    }
}

fn import(scene: &Scene) {
    let managed = scene.foreign_tensor(0);
    match scene.note(unsafe { dlpack::import_on(managed, Some(sim::raw(scene.stream()))) }) {
        Some(tensor) => {
            scene.note(tensor.check_pointers());
            scene.note(tensor.wait(scene.on()));
            scene.note(tensor.wait(sim::on(scene.producer)));
            scene.note(tensor.used_on(sim::on(scene.producer)));
        }
        None => give_back(managed),
    }
    let mut array = scene.foreign_array(1, scene.event);
    match scene.note(unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }) {
        Some(batch) => {
            scene.note(batch.check_pointers());
            scene.note(batch.wait(scene.on()));
            scene.note(Ready::merge([batch.ready(), scene.tensor().ready()], scene.on()));
            scene.note(batch.used_on(scene.on()));
        }
        None => unsafe { release_array(&raw mut array.array) },
    }
    scene.note(Device::new(DeviceType::CUDA, 0));
}

/// After an import that failed, the producer's tensor is still the caller's.
fn give_back(managed: *mut DLManagedTensorVersioned) {
    if let Some(deleter) = unsafe { (*managed).deleter } {
        unsafe { deleter(managed) }
    }
}

fn conversion(scene: &Scene) {
    let managed = scene.foreign_tensor(0);
    let Some(tensor) = scene.note(unsafe { dlpack::import_on(managed, Some(sim::raw(scene.stream()))) }) else {
        give_back(managed);
        return unused(scene, &[1]);
    };
    if let Some(column) = scene.note(convert::column(&tensor, "x", Copying::Never)) {
        scene.note(column.used_on(scene.on()));
        let mut out = MaybeUninit::<ArrowDeviceArray>::uninit();
        if scene.note(unsafe { column.clone().export_device(out.as_mut_ptr()) }.map_err(Into::into)).is_some() {
            unsafe { release_array(&raw mut (*out.as_mut_ptr()).array) };
        }
        if let Some(view) = scene.note(convert::tensor(column.root(), Copying::Never)) {
            scene.note(view.wait(sim::on(scene.producer)));
            scene.note(view.used_on(sim::on(scene.producer)));
            let request = Request { stream: sim::raw(scene.producer as i64), ..Request::default() };
            drop(scene.note(dlpack::export::<DLManagedTensorVersioned>(view, &request).map_err(Into::into)));
        }
    }
    unused(scene, &[1]);
}

fn copy(scene: &Scene) {
    // What is copied may be released by its producer as soon as the handle is gone.
    let mut tensor = {
        let (address, release) = scene.release_of(0);
        foreign::tensor(address, N, CUDA0, release)
    };
    unsafe { tensor.produced_on(sim::on(scene.producer)) }.expect("not shared yet");
    let mut batch = {
        let (address, release) = scene.release_of(1);
        foreign::batch(address, N, CUDA0, release)
    };
    unsafe { batch.produced_on(sim::on(scene.producer)) }.expect("not shared yet");
    for kind in KINDS {
        if let Some(there) = scene.note(tensor.copy_to(device(kind), scene.on())) {
            drop(scene.note(there.copy_to(Device::CPU, sim::on(scene.producer))));
        }
        drop(scene.note(batch.copy_to(device(kind), scene.on())));
    }
    drop(scene.note(batch.copy_to(Device::CPU, scene.on())));
    drop((tensor, batch));
}

fn upload(scene: &Scene) {
    let host = Tensor::from_vec(vec![1_u8; N as usize], &[N as i64]).expect("a tensor");
    for kind in KINDS {
        if let Some(tensor) = scene.note(host.copy_to(device(kind), scene.on())) {
            let mut bytes = vec![0; N as usize];
            scene.note(unsafe { tensor.write(&bytes, sim::on(scene.producer)) });
            scene.note(tensor.read(&mut bytes, sim::on(scene.producer)));
        }
    }
    unused(scene, &[0, 1]);
}

fn allocation(scene: &Scene) {
    for kind in KINDS {
        for stream in [None, Some(scene.on())] {
            if let Some(tensor) = scene.note(Tensor::allocate(device(kind), DType::UINT8, &[N as i64], stream)) {
                scene.note(tensor.wait(sim::on(scene.consumer)));
                scene.note(tensor.used_on(sim::on(scene.consumer)));
            }
        }
    }
    scene.note(info::device_info(0));
    scene.note(info::memory_info(0));
    scene.note(info::driver_version());
    unused(scene, &[0, 1]);
}

fn release(scene: &Scene) {
    let tensor = scene.foreign_tensor(0);
    let mut array = scene.foreign_array(1, 0);
    let tensor = scene
        .note(unsafe { dlpack::import_on(tensor, Some(sim::raw(scene.stream()))) })
        .expect("no call of the driver");
    let batch = scene.note(unsafe { Batch::import_device(&raw mut array, &bytes_schema()) });
    let batch = batch.expect("no call of the driver");
    // Work that is queued may use the memory: the last handle may go only if it could be noted.
    for (stream, used) in [(scene.on(), scene.stream() as u64), (sim::on(scene.producer), scene.producer)] {
        if cu!("cuMemcpyDtoDAsync_v2", scene.scratch, tensor.data() as u64, 0, used) == 0
            && scene.note(tensor.used_on(stream)).is_none()
        {
            // As a consumer does that is told that its work was not noted.
            scene.note(stream.synchronize());
        }
        scene.note(batch.used_on(stream));
    }
    drop((tensor, batch));
}

// ---- scenarios in C ----

type Handle = *mut c_void;

unsafe extern "C" {
    fn devx_tensor_import_on(
        s: *mut DLManagedTensorVersioned,
        on: i64,
        out: *mut Handle,
        e: *mut DevxError,
    ) -> DevxStatus;
    fn devx_tensor_export_share(
        t: Handle,
        request: *const DevxDlpackRequest,
        out: *mut *mut DLManagedTensorVersioned,
        e: *mut DevxError,
    ) -> DevxStatus;
    fn devx_dlpack_release(t: *mut *mut DLManagedTensorVersioned);
    fn devx_tensor_release(t: *mut Handle);
    fn devx_tensor_allocate(
        device: DLDevice,
        dtype: DLDataType,
        shape: *const i64,
        ndim: usize,
        stream: i64,
        out: *mut Handle,
        e: *mut DevxError,
    ) -> DevxStatus;
    fn devx_tensor_copy_to(t: Handle, device: DLDevice, stream: i64, out: *mut Handle, e: *mut DevxError)
    -> DevxStatus;
    fn devx_tensor_read(t: Handle, into: *mut c_void, bytes: usize, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_write(t: Handle, from: *const c_void, bytes: usize, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_check_pointers(t: Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_wait(t: Handle, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_used_on(t: Handle, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_tensor_to_column(t: Handle, name: *const i8, copy: i32, out: *mut Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_check_pointers(b: Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_schema(b: Handle, out: *mut Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_import_device(a: *mut ArrowDeviceArray, s: Handle, out: *mut Handle, e: *mut DevxError)
    -> DevxStatus;
    fn devx_batch_export_share_device(b: Handle, out: *mut ArrowDeviceArray, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_copy_to(b: Handle, device: DLDevice, stream: i64, out: *mut Handle, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_wait(b: Handle, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_used_on(b: Handle, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_batch_release(b: *mut Handle);
    fn devx_schema_release(s: *mut Handle);
    fn devx_stream_create(device: DLDevice, out: *mut i64, e: *mut DevxError) -> DevxStatus;
    fn devx_stream_destroy(device: DLDevice, stream: i64, e: *mut DevxError) -> DevxStatus;
    fn devx_device_count(kind: i32, out: *mut i32, e: *mut DevxError) -> DevxStatus;
    fn devx_device_get_info(device: DLDevice, out: *mut DevxDeviceInfo, e: *mut DevxError) -> DevxStatus;
}

const NO_ERROR: DevxError = DevxError { status: DEVX_OK, driver_code: 0, message: [0; DEVX_ERROR_MESSAGE_BYTES] };

/// Calls a function of the C API with an error record at the end; whether it succeeded.
macro_rules! c {
    ($scene:expr, $function:ident($($argument:expr),*)) => {{
        let mut error = NO_ERROR;
        let status = unsafe { $function($($argument,)* &raw mut error) };
        $scene.note_c(status, &error)
    }};
}

fn c_exchange(scene: &Scene) {
    let (mut tensor, mut batch, mut column, mut schema) = (null_mut(), null_mut(), null_mut(), null_mut());
    let managed = scene.foreign_tensor(0);
    if !c!(scene, devx_tensor_import_on(managed, scene.stream(), &raw mut tensor)) {
        give_back(managed);
        return unused(scene, &[1]);
    }
    let producer = scene.producer as i64;
    c!(scene, devx_tensor_check_pointers(tensor));
    c!(scene, devx_tensor_wait(tensor, producer));
    let request = DevxDlpackRequest { max_major: 1, max_minor: 3, stream: producer, copy: 0 };
    let mut exported = null_mut();
    if c!(scene, devx_tensor_export_share(tensor, &raw const request, &raw mut exported)) {
        unsafe { devx_dlpack_release(&raw mut exported) };
    }
    c!(scene, devx_tensor_used_on(tensor, scene.stream()));
    if c!(scene, devx_tensor_to_column(tensor, c"x".as_ptr().cast(), 0, &raw mut column)) {
        let mut out = MaybeUninit::<ArrowDeviceArray>::uninit();
        c!(scene, devx_batch_schema(column, &raw mut schema));
        if c!(scene, devx_batch_export_share_device(column, out.as_mut_ptr())) {
            unsafe { release_array(&raw mut (*out.as_mut_ptr()).array) };
        }
        c!(scene, devx_batch_used_on(column, producer));
    }
    let mut array = scene.foreign_array(1, scene.event);
    if c!(scene, devx_batch_import_device(&raw mut array, schema, &raw mut batch)) {
        c!(scene, devx_batch_check_pointers(batch));
        c!(scene, devx_batch_wait(batch, scene.stream()));
        c!(scene, devx_batch_used_on(batch, scene.stream()));
    } else {
        unsafe { release_array(&raw mut array.array) };
    }
    unsafe {
        devx_tensor_release(&raw mut tensor);
        devx_batch_release(&raw mut column);
        devx_batch_release(&raw mut batch);
        devx_schema_release(&raw mut schema);
    }
}

fn c_memory(scene: &Scene) {
    let (cuda, cpu) = (CUDA0.to_dlpack(), Device::CPU.to_dlpack());
    let (shape, mut bytes) = ([N as i64], vec![0_u8; N as usize]);
    let (producer, stream) = (scene.producer as i64, scene.stream());
    let (mut count, mut own) = (0, 0);
    let mut about = MaybeUninit::<DevxDeviceInfo>::uninit();
    c!(scene, devx_device_count(2, &raw mut count));
    c!(scene, devx_device_get_info(cuda, about.as_mut_ptr()));
    if c!(scene, devx_stream_create(cuda, &raw mut own)) && !c!(scene, devx_stream_destroy(cuda, own)) {
        // It could not be destroyed: the caller still has it.
        scene.unfreed.lock().expect("not poisoned").push(0);
        UNDESTROYED.lock().expect("not poisoned").push(own as u64);
    }
    for on in [stream, -1] {
        let mut tensor = null_mut();
        if !c!(scene, devx_tensor_allocate(cuda, DType::UINT8.to_dlpack(), shape.as_ptr(), 1, on, &raw mut tensor)) {
            continue;
        }
        c!(scene, devx_tensor_write(tensor, bytes.as_ptr().cast(), bytes.len(), producer));
        c!(scene, devx_tensor_read(tensor, bytes.as_mut_ptr().cast(), bytes.len(), stream));
        for to in [cuda, cpu] {
            let (mut copied, mut column, mut batch) = (null_mut(), null_mut(), null_mut());
            if c!(scene, devx_tensor_copy_to(tensor, to, stream, &raw mut copied)) {
                unsafe { devx_tensor_release(&raw mut copied) };
            }
            if c!(scene, devx_tensor_to_column(tensor, null(), 0, &raw mut column)) {
                if c!(scene, devx_batch_copy_to(column, to, producer, &raw mut batch)) {
                    unsafe { devx_batch_release(&raw mut batch) };
                }
                unsafe { devx_batch_release(&raw mut column) };
            }
        }
        c!(scene, devx_tensor_used_on(tensor, producer));
        unsafe { devx_tensor_release(&raw mut tensor) };
    }
    unused(scene, &[0, 1]);
}

/// Streams that a failed call left with their maker.
static UNDESTROYED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

// ---- the sweep ----

type Scenario = (&'static str, fn(&Scene));

/// Runs a scenario with one fault; how many calls it stopped.
fn run(scenario: Scenario, setting: (u64, i64), fault: (u64, u32, bool)) -> i64 {
    let ((name, scenario), (context, stream), (nth, code, sticky)) = (scenario, setting, fault);
    let what = format!("{name}, stream {stream}, call {nth}, code {code}, sticky {sticky}");
    let before = Live::now();
    let scene = Scene::new(stream);
    let faults = sim::stat("faults");
    sim::set_current(0);
    sim::set_current(context);
    sim::fail("*", nth, code, sticky);
    scenario(&scene);
    // The reaper's calls are part of the scenario.
    sim::quiesce();
    sim::settle();
    let fired = sim::stat("faults") - faults;
    let last = sim::last_fault();
    sim::fail_clear();
    let what = format!("{what}: {last}");
    // If every call fails from some point on, nothing can be restored.
    let mut now = sim::current();
    while sticky && now != context && now != 0 {
        let mut popped = 0_u64;
        cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
        now = sim::current();
    }
    assert_eq!(now, context, "{what}: the context is another one");
    sim::set_current(sim::primary(0));
    for (number, text) in scene.errors.lock().expect("not poisoned").iter() {
        let names_a_call = text.starts_with("cu") || text.contains(": cu");
        assert!(fired > 0 && *number == code as i32 && names_a_call, "{what}: {number}, {text}");
        assert!(text.contains(&code.to_string()), "{what}: {text}");
    }
    for stream in UNDESTROYED.lock().expect("not poisoned").drain(..) {
        sim::destroy(stream);
    }
    let lost = Live::now().lost - before.lost;
    scene.end(lost);
    let findings = sim::take_findings();
    assert!(findings.is_empty(), "{what}: {findings:#?}");
    // A driver that says from now on that every event is gone has all of them, for all that anybody can tell.
    let gone = if [400, 709, 4].contains(&code) { sim::stat("live_events") + 8 } else { 0 };
    let after = Live::now();
    // What went with its context, or with the driver, is not lost.
    let went = [709, 4].contains(&code);
    assert!(went || after.memory - before.memory <= lost, "{what}: {before:?} {after:?}");
    // What is lost may keep the events of its uses, on two streams, and the one that it was ready after.
    assert!(after.events - before.events <= 3 * lost + gone, "{what}: {before:?} {after:?}");
    assert!(went || after.streams - before.streams <= lost, "{what}: {before:?} {after:?}");
    assert!(lost == 0 || fired > 0, "{what}: {lost} lost");
    fired
}

/// Runs a scenario in processes of its own, a few codes each: the simulated driver remembers all memory that ever was, and
/// grows slow from it.
fn sweep(name: &str) {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let start = Instant::now();
    let mut faults = 0_u64;
    // Where each call takes long, the first few codes say most: what follows from a fault is nearly the same for all.
    let tried = std::env::var("DEVX_FAULT_CODES").map_or(CODES.len(), |tried| tried.parse().expect("a number"));
    for codes in CODES[..tried].chunks(2) {
        let codes = codes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        // What the core gives up for lost stays allocated, as it must: that is counted here, and no leak for a sanitizer.
        let variables = [("DEVX_SCENARIO", name), ("DEVX_CODES", &codes), ("ASAN_OPTIONS", "detect_leaks=0")];
        let output = sim::child("one_scenario_in_this_process", &variables);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        let count = text.lines().find_map(|line| line.strip_prefix("injected ")).expect("the child says how many");
        faults += count.parse::<u64>().expect("a number");
    }
    println!("{name}: {faults} faults in {:?}", start.elapsed());
}

/// What the sweeps start; on its own it is a short one.
#[test]
fn one_scenario_in_this_process() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let wanted = std::env::var("DEVX_SCENARIO").unwrap_or_else(|_| "export".to_owned());
    let scenario = *SCENARIOS.iter().find(|(name, _)| *name == wanted).expect("a scenario");
    let codes = std::env::var("DEVX_CODES").unwrap_or_else(|_| "2".to_owned());
    let codes: Vec<u32> = codes.split(',').map(|code| code.parse().expect("a number")).collect();
    let session = Session::new();
    let mut injected = 0_u64;
    // The context that is current, and the stream that is named (0: a handle).
    let all = [(sim::primary(0), 0), (0, 1), (sim::primary(1), 2)];
    // Those with many calls have one setting each, or the sweep would take too long.
    let settings = match scenario.0 {
        "copy" | "driver manager" | "managed manager" | "CUDA arrays" | "imports from a process" => &all[..1],
        "upload" | "memory in C" | "pool manager" | "limited manager" | "copies for processes" => &all[1..2],
        "allocate" | "shareable pool manager" | "exports to processes" => &all[2..],
        _ => &all[..],
    };
    for &setting in settings {
        for (code, sticky) in codes.iter().flat_map(|code| [(*code, false), (*code, true)]) {
            for nth in 1..1000 {
                session.begin(sim::Schedule { mode: "lazy", seed: injected });
                if run(scenario, setting, (nth, code, sticky)) == 0 {
                    break;
                }
                injected += 1;
            }
        }
    }
    assert!(injected > 0, "{wanted}: no fault was met");
    println!("\ninjected {injected}");
    processes::end();
    session.accept();
}

const SCENARIOS: [Scenario; 19] = [
    ("export", export),
    ("import", import),
    ("convert", conversion),
    ("copy", copy),
    ("upload", upload),
    ("allocate", allocation),
    ("release", release),
    ("exchange in C", c_exchange),
    ("memory in C", c_memory),
    ("driver manager", managers::driver),
    ("managed manager", managers::managed),
    ("host-only manager", managers::host_only),
    ("pool manager", managers::pool),
    ("shareable pool manager", managers::shareable_pool),
    ("limited manager", managers::limited),
    ("CUDA arrays", arrays::arrays),
    ("exports to processes", processes::export_views),
    ("copies for processes", processes::export_copies),
    ("imports from a process", processes::imports),
];

macro_rules! sweeps {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            sweep($name);
        }
    )*};
}

sweeps! {
    exports: "export";
    imports: "import";
    conversions: "convert";
    copies: "copy";
    uploads: "upload";
    allocations: "allocate";
    releases: "release";
    exchange_in_c: "exchange in C";
    memory_in_c: "memory in C";
    driver_manager: "driver manager";
    managed_manager: "managed manager";
    host_only_manager: "host-only manager";
    pool_manager: "pool manager";
    shareable_pool_manager: "shareable pool manager";
    limited_manager: "limited manager";
    cuda_arrays: "CUDA arrays";
    exports_to_processes: "exports to processes";
    copies_for_processes: "copies for processes";
    imports_from_a_process: "imports from a process";
}
