//! Managers that are written in Rust, and their failures.

mod patience;

use core::ffi::c_void;
use std::fmt::{Debug, Display};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use devexchange_core::abi::types::*;
use devexchange_core::manager::{
    Allocated, Callbacks, Deferred, Driver, HostFlags, IpcHandle, Limited, Manager, MemoryInfo, PoolOptions, Request,
    Shared, Statistics, limit_from_raw,
};
use devexchange_core::order::Ready;
use devexchange_core::runtime::cuda::Allocation;
use devexchange_core::{DType, Device, DeviceType, Error, Owner, Result, Tensor};
use patience::patient;

/// Panics when it is asked for memory.
#[derive(Debug)]
struct Panics;

// SAFETY: it gives no memory.
unsafe impl Manager for Panics {
    #[expect(clippy::panic, reason = "that is what is tried")]
    fn allocate(&self, _: &Request) -> Result<Allocated> {
        panic!("this text is expected in the output")
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

/// Gives memory that is a static, and states other properties than it was asked for.
#[derive(Debug)]
struct Careless {
    bytes: usize,
    device: Device,
}

// SAFETY: nobody else has the static, which is never given back, and no more bytes are used of it than stated.
unsafe impl Manager for Careless {
    fn allocate(&self, _: &Request) -> Result<Allocated> {
        static MEMORY: [f64; 8] = [0.0; 8];
        let address = if self.bytes == 0 { std::ptr::null_mut() } else { MEMORY.as_ptr().cast_mut().cast() };
        Ok(Allocated { address, device: self.device, bytes: self.bytes, owner: Owner::none(), ready: Ready::Now })
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

/// Callbacks that each fail in a different way, or are missing. The things that they hold are counted.
#[derive(Debug)]
struct Failing {
    _held: Arc<()>,
}

// SAFETY: each request for a byte gets a byte that exists.
unsafe impl Callbacks for Failing {
    fn initialize(&self, ordinal: i32) -> Result<()> {
        Err(Error::driver(DEVX_DRIVER, ordinal, "enough"))
    }

    fn allocate(&self, request: &Request) -> Result<Allocation> {
        static BYTE: u8 = 7;
        assert_eq!(request.bytes, 1, "this text is expected in the output");
        let address = (&raw const BYTE).cast_mut().cast();
        Ok(Allocation { address, device: Device { kind: DeviceType::CPU, id: -1 }, owner: Owner::none() })
    }

    unsafe fn pin(&self, _: *mut c_void, _: &Request) -> Result<Option<Owner>> {
        Ok(None)
    }

    fn memory_info(&self, _: i32) -> Result<Option<MemoryInfo>> {
        Ok(None)
    }

    fn ipc_handle(&self, _: *const c_void) -> Result<Option<IpcHandle>> {
        Err(Error::new(DEVX_CALLBACK, "not now"))
    }

    fn reset(&self, _: i32) -> Result<()> {
        Err(Error::new(DEVX_BUSY, ""))
    }

    #[expect(clippy::panic, reason = "that is what is tried")]
    fn trim(&self, _: i32, _: usize) -> Result<()> {
        panic!("this text is expected, too")
    }

    #[expect(clippy::panic, reason = "that is what is tried")]
    fn defer_cleanup(&self, _: bool) -> Result<()> {
        panic!("and so is this one")
    }
}

#[test]
fn errors_of_callbacks_say_which_one_it_was() {
    let manager = Shared::of_callbacks(|| Ok(Failing { _held: Arc::new(()) })).unwrap();
    drop(Deferred::new(&*manager));
    let mut byte = 0_u8;
    // SAFETY: the byte is there.
    let pinned = unsafe { manager.pin(0, (&raw mut byte).cast(), 1, HostFlags::default()) };
    // SAFETY: it gave no memory.
    let reset = unsafe { manager.reset(0) };
    for (failed, status, code, text) in [
        (manager.initialize(5), DEVX_DRIVER, 5, "initialize: enough"),
        (pinned.map(drop), DEVX_UNSUPPORTED, 0, "the manager has no pin"),
        (manager.memory_info(0).map(drop), DEVX_UNSUPPORTED, 0, "the manager has no memory_info"),
        (manager.ipc_handle((&raw const byte).cast()).map(drop), DEVX_CALLBACK, 0, "ipc_handle: not now"),
        (reset, DEVX_BUSY, 0, "reset returned DEVX_BUSY"),
        (manager.trim(0, 0), DEVX_PANIC, 0, "trim: this text is expected, too"),
    ] {
        let error = failed.unwrap_err();
        assert_eq!((error.status(), error.driver_code(), error.message()), (status, code, text));
    }
    let error = manager.allocate(&Request::of(DeviceType::CPU, 0, 2)).unwrap_err();
    assert!(error.status() == DEVX_PANIC && error.message().starts_with("allocate: "), "{error:?}");
    assert_eq!(manager.statistics(), Statistics::default());
}

#[test]
fn callbacks_live_as_long_as_memory_of_theirs() {
    let held = Arc::new(());
    let manager = Shared::of_callbacks(|| Ok(Failing { _held: held.clone() })).unwrap();
    let allocated = manager.allocate(&Request::of(DeviceType::CPU, 0, 1)).unwrap();
    assert_eq!((allocated.device, allocated.bytes, manager.statistics().bytes), (Device::CPU, 1, 1));
    drop(manager);
    assert_eq!(Arc::strong_count(&held), 2);
    drop(allocated);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn a_tensor_is_not_made_of_less_than_was_asked_for_or_of_another_device() {
    let made = |bytes, device| {
        let shape = [4, 2];
        Tensor::allocate_with(&Careless { bytes, device }, Device::CPU, DType::FLOAT64, &shape, None)
            .map(|tensor| tensor.as_bytes().unwrap().len())
            .map_err(|refused| (refused.status(), refused.message().to_owned()))
    };
    let refused = |text: &str| Err((DEVX_CALLBACK, text.to_owned()));
    assert_eq!(made(64, Device::CPU), Ok(64));
    assert_eq!(made(63, Device::CPU), refused("allocate: the manager gave 63 bytes for 64"));
    assert_eq!(made(0, Device::CPU), refused("allocate: the manager gave no address for 64 bytes"));
    let nothing = Careless { bytes: 0, device: Device::CPU };
    Tensor::allocate_with(&nothing, Device::CPU, DType::FLOAT64, &[0], None).unwrap();
    let cuda = |id| Device { kind: DeviceType::CUDA, id };
    assert_eq!(made(64, cuda(0)), refused("allocate: the manager gave memory of cuda:0 for cpu:0"));
    let other = Careless { bytes: 64, device: cuda(1) };
    let shape = [4, 2];
    let refused = Tensor::allocate_with(&other, cuda(0), DType::FLOAT64, &shape, None).unwrap_err();
    assert_eq!(refused.message(), "allocate: the manager gave memory of cuda:1 for cuda:0");
}

#[test]
fn a_request_names_the_cpu_as_arrow_does_and_others_by_their_number() {
    let of = |kind, id| Request::named(kind, id, 8).map(|request| (request.kind, request.ordinal, request.bytes));
    for id in [0, -1] {
        assert_eq!(of(DeviceType::CPU, id), Ok((DeviceType::CPU, 0, 8)));
    }
    assert_eq!(of(DeviceType::CPU, 1).unwrap_err().status(), DEVX_DEVICE);
    assert_eq!(of(DeviceType::CUDA, 3), Ok((DeviceType::CUDA, 3, 8)));
}

/// A foreign manager in C receives exactly the requests made: nothing is lost on the way.
#[test]
fn a_table_is_asked_what_the_manager_is_asked() {
    #[derive(Default)]
    struct Asked {
        devices: Vec<i32>,
        host_flags: Vec<u32>,
        kept: Vec<i64>,
        begins: Vec<i32>,
        resets: Vec<i32>,
    }
    unsafe extern "C" fn initialize(context: *mut c_void, device_id: i32, _: *mut DevxError) -> DevxStatus {
        // SAFETY: the context belongs to the test.
        unsafe { (*context.cast::<Asked>()).devices.push(device_id) };
        DEVX_OK
    }
    unsafe extern "C" fn trim(context: *mut c_void, _: i32, keep: i64, _: *mut DevxError) -> DevxStatus {
        // SAFETY: as above.
        unsafe { (*context.cast::<Asked>()).kept.push(keep) };
        DEVX_OK
    }
    unsafe extern "C" fn reset(context: *mut c_void, device_id: i32, _: *mut DevxError) -> DevxStatus {
        // SAFETY: as above.
        unsafe { (*context.cast::<Asked>()).resets.push(device_id) };
        DEVX_OK
    }
    unsafe extern "C" fn memory_info(
        _: *mut c_void,
        device_id: i32,
        out: *mut DevxMemoryInfo,
        _: *mut DevxError,
    ) -> DevxStatus {
        // SAFETY: there is room for the record.
        unsafe { out.write(DevxMemoryInfo { free_bytes: 100 - i64::from(device_id), total_bytes: 100 }) };
        DEVX_OK
    }
    unsafe extern "C" fn ipc_handle(
        _: *mut c_void,
        address: *const c_void,
        out: *mut DevxIpcHandle,
        _: *mut DevxError,
    ) -> DevxStatus {
        let offset = address.addr() as i64;
        // SAFETY: there is room for a handle.
        unsafe { out.write(DevxIpcHandle { handle: [1; 64], offset, bytes: 64, device_id: 3, reserved: 0 }) };
        DEVX_OK
    }
    unsafe extern "C" fn allocate(
        context: *mut c_void,
        request: *const DevxMemoryRequest,
        _: *mut DevxMemory,
        _: *mut DevxError,
    ) -> DevxStatus {
        // SAFETY: the request is there for the call.
        let host_flags = unsafe { (*request).host_flags };
        // SAFETY: the context belongs to the test.
        unsafe { (*context.cast::<Asked>()).host_flags.push(host_flags) };
        DEVX_UNSUPPORTED
    }
    unsafe extern "C" fn defer_cleanup(context: *mut c_void, begin: i32) {
        // SAFETY: as above.
        unsafe { (*context.cast::<Asked>()).begins.push(begin) };
    }
    let mut asked = Asked::default();
    // SAFETY: all callbacks may be missing, and the numbers are 0.
    let mut table = unsafe { std::mem::zeroed::<DevxManagerTable>() };
    (table.version, table.context) = (DEVX_MANAGER_VERSION, (&raw mut asked).cast());
    (table.initialize, table.trim) = (Some(initialize as _), Some(trim as _));
    table.allocate = Some(allocate);
    table.ipc_handle = Some(ipc_handle);
    (table.memory_info, table.reset) = (Some(memory_info as _), Some(reset as _));
    table.defer_cleanup = Some(defer_cleanup);
    // SAFETY: the callbacks are called by this thread only.
    let manager = Limited::new(unsafe { Shared::of_table(&table) }.unwrap(), usize::MAX).unwrap();
    for bits in 0..8 {
        let host = HostFlags::from_bits(bits).unwrap();
        assert_eq!((host.portable, host.mapped, host.write_combined), (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0));
        let request = Request { host, ..Request::of(DeviceType::CUDA_HOST, 0, 8) };
        assert_eq!(manager.allocate(&request).unwrap_err().status(), DEVX_UNSUPPORTED);
    }
    assert_eq!(HostFlags::from_bits(8).unwrap_err().message(), "host_flags is 0x8: the flags are 1, 2 and 4");
    manager.initialize(3).unwrap();
    manager.trim(3, 100).unwrap();
    let within = manager.ipc_handle(std::ptr::without_provenance(64)).unwrap();
    assert_eq!((within.handle, within.ordinal, within.offset, within.bytes), ([1; 64], 3, 64, 64));
    let beyond = manager.ipc_handle(std::ptr::without_provenance(65)).unwrap_err();
    assert_eq!(beyond.message(), "ipc_handle: the manager says offset 65 of 64 bytes");
    let MemoryInfo { free, total } = manager.memory_info(3).unwrap();
    assert_eq!((free, total), (97, 100));
    let negative = manager.memory_info(101).unwrap_err();
    assert_eq!(negative.message(), "memory_info: the manager says free_bytes is -1 and total_bytes is 100");
    // SAFETY: it gave no memory.
    unsafe { manager.reset(3) }.unwrap();
    drop(Deferred::new(&manager));
    drop(manager);
    assert_eq!((asked.devices, asked.kept, asked.resets), (vec![3], vec![100], vec![3]));
    assert_eq!(asked.host_flags, Vec::from_iter(0..8));
    assert_eq!(asked.begins, [1, 0]);
}

#[test]
fn a_pointer_asks_the_manager_everything() {
    /// Refuses whatever it can, with the name of the method and its numbers.
    #[derive(Debug, Default)]
    struct Refusing(Mutex<Vec<&'static str>>);
    fn no<T>(what: impl Display) -> Result<T> {
        Err(Error::new(DEVX_UNSUPPORTED, what.to_string()))
    }
    // SAFETY: it gives no memory.
    unsafe impl Manager for Refusing {
        fn initialize(&self, ordinal: i32) -> Result<()> {
            no(format_args!("initialize {ordinal}"))
        }
        fn allocate(&self, request: &Request) -> Result<Allocated> {
            no(format_args!("allocate {} {}", request.ordinal, request.bytes))
        }
        unsafe fn pin(&self, ordinal: i32, _: *mut c_void, bytes: usize, flags: HostFlags) -> Result<Owner> {
            no(format_args!("pin {ordinal} {bytes} {}", flags.mapped))
        }
        fn memory_info(&self, ordinal: i32) -> Result<MemoryInfo> {
            no(format_args!("memory_info {ordinal}"))
        }
        fn ipc_handle(&self, address: *const c_void) -> Result<IpcHandle> {
            no(format_args!("ipc_handle {}", address.addr()))
        }
        unsafe fn reset(&self, ordinal: i32) -> Result<()> {
            no(format_args!("reset {ordinal}"))
        }
        fn defer_cleanup(&self) {
            self.0.lock().unwrap().push("defer_cleanup");
        }
        fn resume_cleanup(&self) -> Result<()> {
            self.0.lock().unwrap().push("resume_cleanup");
            Ok(())
        }
        fn trim(&self, ordinal: i32, keep: usize) -> Result<()> {
            no(format_args!("trim {ordinal} {keep}"))
        }
        fn statistics(&self) -> Statistics {
            Statistics { bytes: 5, ..Statistics::default() }
        }
        fn levels(&self) -> usize {
            7
        }
    }
    fn said<T: Debug>(refused: Result<T>) -> String {
        refused.unwrap_err().to_string()
    }
    let kept = Arc::new(Refusing::default());
    let boxed: Box<dyn Manager> = Box::new(Arc::clone(&kept));
    for manager in [Shared::new(Arc::clone(&kept)).unwrap(), Shared::new(boxed).unwrap()] {
        let mapped = HostFlags { mapped: true, ..HostFlags::default() };
        assert_eq!(said(manager.initialize(1)), "initialize 1");
        assert_eq!(said(manager.allocate(&Request::device(2, 3))), "allocate 2 3");
        // SAFETY: nothing is pinned.
        assert_eq!(said(unsafe { manager.pin(1, std::ptr::null_mut(), 2, mapped) }), "pin 1 2 true");
        assert_eq!(said(manager.memory_info(1)), "memory_info 1");
        assert_eq!(said(manager.ipc_handle(std::ptr::without_provenance(64))), "ipc_handle 64");
        // SAFETY: it gave no memory.
        assert_eq!(said(unsafe { manager.reset(1) }), "reset 1");
        assert_eq!(said(manager.trim(1, 2)), "trim 1 2");
        drop(Deferred::new(&*manager));
        assert_eq!((manager.statistics().bytes, manager.levels()), (5, 7));
    }
    assert_eq!(*kept.0.lock().unwrap(), ["defer_cleanup", "resume_cleanup"].repeat(2));
}

#[test]
fn limits_of_c_are_numbers_of_bytes_or_none() {
    assert_eq!((limit_from_raw(0), limit_from_raw(5), limit_from_raw(-1)), (Ok(0), Ok(5), Ok(usize::MAX)));
    assert_eq!(limit_from_raw(-2).unwrap_err().message(), "limit is -2: neither a number of bytes nor -1");
    assert_eq!(PoolOptions::from_raw(5, 7), Ok(PoolOptions { limit: 5, keep: 7 }));
    assert_eq!(PoolOptions::from_raw(-1, -1), Ok(PoolOptions::default()));
    assert_eq!(PoolOptions::from_raw(1, -2).unwrap_err().message(), "keep is -2: neither a number of bytes nor -1");
}

#[test]
fn counts_stop_at_the_largest_number() {
    let careless = Shared::new(Careless { bytes: 0, device: Device::CPU }).unwrap();
    let limited = Limited::new(careless, usize::MAX).unwrap();
    for _ in 0..3 {
        drop(limited.allocate(&Request::of(DeviceType::CPU, 0, usize::MAX)).unwrap());
    }
    let counted = limited.statistics().to_raw();
    assert_eq!((counted.bytes, counted.total_allocations), (0, 3));
    assert_eq!((counted.peak_bytes, counted.total_bytes), (i64::MAX, i64::MAX));
}

/// Tells when it was asked for more than there is, and waits until it may refuse.
#[derive(Debug)]
struct Slow(Driver, Sender<()>, Mutex<Receiver<()>>);

// SAFETY: the memory is the driver manager's.
unsafe impl Manager for Slow {
    #[expect(clippy::unwrap_used, reason = "what the test needs must be there")]
    fn allocate(&self, request: &Request) -> Result<Allocated> {
        if request.bytes > 1 << 40 {
            self.1.send(()).unwrap();
            self.2.lock().unwrap().recv().unwrap();
            return Err(Error::new(DEVX_OUT_OF_MEMORY, "there is no memory"));
        }
        self.0.allocate(request)
    }

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

#[test]
fn what_is_refused_was_never_in_use() {
    const LARGE: usize = 1 << 50;
    let ((tell_asked, asked), (tell_refuse, refuse)) = (channel(), channel());
    let slow = Slow(Driver::host_only().unwrap(), tell_asked, Mutex::new(refuse));
    let limited = Limited::new(Shared::new(slow).unwrap(), LARGE + 16).unwrap();
    let allocate = |bytes| limited.allocate(&Request::of(DeviceType::CPU, 0, bytes));
    std::thread::scope(|scope| {
        // Dropped by a failure here, so that the other thread does not wait for ever.
        let tell_refuse = tell_refuse;
        let large = scope.spawn(|| allocate(LARGE));
        asked.recv_timeout(patient(Duration::from_secs(30))).unwrap();
        drop(allocate(16).unwrap());
        // What was asked for counts for the limit all the same.
        let text = format!("17 bytes with {LARGE} in use are more than the limit of {}", LARGE + 16);
        assert_eq!(allocate(17).unwrap_err().message(), text);
        tell_refuse.send(()).unwrap();
        assert_eq!(large.join().unwrap().unwrap_err().message(), "there is no memory");
    });
    let Statistics { bytes, peak_bytes, total_bytes, refused, .. } = limited.statistics();
    assert_eq!((bytes, peak_bytes, total_bytes, refused), (0, 16, 16, 2));
}

#[test]
fn what_a_manager_need_not_have_does_nothing_or_says_so() {
    let manager = Careless { bytes: 0, device: Device::CPU };
    manager.initialize(0).unwrap();
    manager.trim(0, 0).unwrap();
    // SAFETY: it gave no memory.
    unsafe { manager.reset(0) }.unwrap();
    drop(Deferred::new(&manager));
    let mut byte = 0_u8;
    // SAFETY: the byte is there.
    let pinned = unsafe { manager.pin(0, (&raw mut byte).cast(), 1, HostFlags::default()) };
    for refused in [pinned.map(drop), manager.memory_info(0).map(drop)] {
        assert_eq!(refused.unwrap_err().status(), DEVX_UNSUPPORTED);
    }
    assert_eq!(manager.levels(), 1);
}

#[test]
fn a_panic_of_a_manager_takes_nothing_from_the_limit() {
    let limited = Limited::new(Shared::new(Panics).unwrap(), 100).unwrap();
    for _ in 0..3 {
        let request = Request::of(DeviceType::CPU, 0, 60);
        let error = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| limited.allocate(&request).err()));
        assert_eq!(limited.statistics(), Statistics { refused: 0, ..Statistics::default() });
        assert_eq!(error.unwrap().map(|error| error.status()), Some(DEVX_PANIC));
    }
}

/// Plain host memory belongs to no device.
#[test]
fn a_reset_leaves_host_memory_alone() {
    let limited = Limited::new(Shared::new(Driver::host_only().unwrap()).unwrap(), 100).unwrap();
    let managers: [&dyn Manager; 2] = [&Driver::host_only().unwrap(), &limited];
    for manager in managers {
        let allocated = manager.allocate(&Request::of(DeviceType::CPU, 0, 60)).unwrap();
        // SAFETY: nobody uses memory of a device.
        unsafe { manager.reset(0) }.unwrap();
        assert_eq!(manager.statistics().bytes, 60);
        // SAFETY: the allocation still has this many bytes.
        unsafe { allocated.address.write_bytes(7, 60) };
        drop(allocated);
        assert_eq!(manager.statistics().bytes, 0);
    }
}

#[test]
fn no_more_than_64_managers_stand_one_over_the_other() {
    let mut top = Shared::new(Panics).unwrap();
    for levels in 2..=64 {
        top = Shared::new(Limited::new(top, 100).unwrap()).unwrap();
        assert_eq!(top.levels(), levels);
    }
    let error = Limited::new(top, 100).unwrap_err();
    assert_eq!(error.status(), DEVX_TOO_DEEP);
    assert_eq!(error.message(), "inner is a chain of 64 managers: there may be at most 64 in all");
}

/// Gives bytes, and notes when they come back and when cleanup is deferred.
#[derive(Debug)]
struct Noting(Arc<Mutex<Vec<&'static str>>>);

impl Noting {
    #[expect(clippy::unwrap_used, reason = "nothing panics while it is locked")]
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }
}

// SAFETY: the byte exists, and nobody writes it.
unsafe impl Callbacks for Noting {
    fn initialize(&self, _: i32) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, _: &Request) -> Result<Allocation> {
        static BYTE: u8 = 7;
        let noting = Self(Arc::clone(&self.0));
        let owner = Owner::on_release(move || noting.note("free"));
        Ok(Allocation { address: (&raw const BYTE).cast_mut().cast(), device: Device::CPU, owner })
    }

    unsafe fn pin(&self, _: *mut c_void, _: &Request) -> Result<Option<Owner>> {
        Ok(None)
    }

    fn memory_info(&self, _: i32) -> Result<Option<MemoryInfo>> {
        Ok(None)
    }

    fn ipc_handle(&self, _: *const c_void) -> Result<Option<IpcHandle>> {
        Ok(None)
    }

    fn reset(&self, _: i32) -> Result<()> {
        Ok(())
    }

    fn trim(&self, _: i32, _: usize) -> Result<()> {
        Ok(())
    }

    fn defer_cleanup(&self, begin: bool) -> Result<()> {
        self.note(if begin { "begin" } else { "end" });
        Ok(())
    }
}

#[test]
fn only_a_deferral_of_ones_own_can_be_ended() {
    let notes = Arc::default();
    let told = |expected: &[&str]| assert_eq!(std::mem::take(&mut *Mutex::lock(&notes).unwrap()), expected);
    let refused = |resumed: Result<()>| {
        let error = resumed.unwrap_err();
        assert_eq!(error.status(), DEVX_INVALID_ARGUMENT);
        assert!(error.message().starts_with("resume_cleanup without defer_cleanup"), "{error}");
    };
    let manager = Shared::of_callbacks(|| Ok(Noting(Arc::clone(&notes)))).unwrap();
    let limited = [(); 2].map(|()| Limited::new(manager.clone(), usize::MAX).unwrap());
    let [first, second] = &limited;
    let host: &dyn Manager = &Driver::host_only().unwrap();
    for nothing_to_end in [host, &*manager, first, &*Shared::new(Driver::host_only().unwrap()).unwrap()] {
        refused(nothing_to_end.resume_cleanup());
    }
    refused(manager.resume_cleanup());
    told(&[]);

    first.defer_cleanup();
    drop(first.allocate(&Request::of(DeviceType::CPU, 0, 1)).unwrap());
    refused(second.resume_cleanup());
    refused(manager.resume_cleanup());
    let deferred = Deferred::new(&*manager);
    refused(manager.resume_cleanup());
    drop(deferred);
    told(&["begin", "begin", "end"]);
    first.resume_cleanup().unwrap();
    refused(first.resume_cleanup());
    told(&["free", "end"]);

    // A clone is the same manager.
    manager.defer_cleanup();
    refused(first.resume_cleanup());
    manager.clone().resume_cleanup().unwrap();
    refused(manager.resume_cleanup());
    told(&["begin", "end"]);

    // What nobody else could end ends with its manager.
    first.defer_cleanup();
    first.defer_cleanup();
    drop(manager.allocate(&Request::of(DeviceType::CPU, 0, 1)).unwrap());
    told(&["begin", "begin"]);
    let [first, second] = limited;
    drop(second);
    told(&[]);
    drop(first);
    told(&["end", "free", "end"]);
}
