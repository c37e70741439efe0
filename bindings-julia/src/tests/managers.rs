//! A manager written in Julia, as allocating code sees it.

use super::*;
use devexchange_core::abi::types::{DevxError, DevxIpcHandle, DevxMemory, DevxMemoryInfo, DevxMemoryRequest};

fn manager(token: u64, callbacks: u32) -> DevxManagerTable {
    let owner = register(token);
    let mut table = std::mem::MaybeUninit::uninit();
    let server = server(fail, be_interrupted);
    // SAFETY: the owner can be read and the table written, and the functions may be called anywhere.
    let status =
        unsafe { devx_julia_manager(token, TAG, &server, -1, callbacks, &raw const owner, table.as_mut_ptr()) };
    assert_eq!(status, DEVX_OK);
    // SAFETY: written just now.
    unsafe { table.assume_init() }
}

fn release_manager(table: &DevxManagerTable) {
    let call = table.release.expect("a manager of ours has a release");
    // SAFETY: the tests release each manager once.
    unsafe { call(table.context) }
}

struct Table(DevxManagerTable);
// SAFETY: a manager may be asked on any thread.
unsafe impl Sync for Table {}

/// Calls on a foreign thread, and passes the call to `reply`, which answers it in place.
fn asked<T: Send>(ask: impl FnOnce(*mut DevxError) -> T + Send, reply: impl FnOnce(&mut Call) -> Status) -> T {
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let mut error = Call::of(0).error;
            ask(&raw mut error)
        });
        let request = request();
        let mut call = take(request).expect("somebody waits");
        assert_eq!(call.token, 20);
        call.error.status = reply(&mut call);
        // SAFETY: taken above, and answered once.
        assert_eq!(unsafe { devx_julia_answer(request, &raw const call) }, DEVX_OK);
        asker.join().expect("no panic")
    })
}

#[test]
fn a_manager_asks_for_each_of_its_callbacks() {
    let _turn = start();
    let table = &Table(manager(20, 0x1ff));
    let at = |address: usize| std::ptr::with_exposed_provenance_mut::<c_void>(address);
    let context = || table.0.context;

    let request = DevxMemoryRequest { device_type: 2, device_id: 3, bytes: 64, stream: 7, host_flags: 1, reserved: 0 };
    let status = asked(
        |error| {
            let mut out = Call::of(0).memory;
            let allocate = table.0.allocate.expect("it is always there");
            // SAFETY: the table's contract.
            let status = unsafe { allocate(context(), &raw const request, &raw mut out, error) };
            assert_eq!((out.address.addr(), out.device_type, out.device_id), (64, 13, 1));
            status
        },
        |call| {
            let r = call.request;
            assert_eq!((call.operation, r.device_type, r.device_id, r.bytes), (call::ALLOCATE, 2, 3, 64));
            assert_eq!((r.stream, r.host_flags), (7, 1));
            let owner = DevxOwner { context: null_mut(), release: None };
            call.memory = DevxMemory { address: at(64), device_type: 13, device_id: 1, owner };
            DEVX_OK
        },
    );
    assert_eq!(status, DEVX_OK);

    let status = asked(
        |error| {
            let mut out = DevxOwner { context: null_mut(), release: None };
            let pin = table.0.pin.expect("its bit is set");
            // SAFETY: the table's contract.
            let status = unsafe { pin(context(), 5, at(128), 32, 2, &raw mut out, error) };
            assert_eq!(out.context.addr(), 9);
            status
        },
        |call| {
            let r = call.request;
            assert_eq!((call.operation, call.address.addr(), r.device_id), (call::PIN, 128, 5));
            assert_eq!((r.bytes, r.host_flags), (32, 2));
            call.memory.owner.context = at(9);
            DEVX_OK
        },
    );
    assert_eq!(status, DEVX_OK);

    let status = asked(
        |error| {
            let mut out = DevxMemoryInfo { free_bytes: 0, total_bytes: 0 };
            let memory_info = table.0.memory_info.expect("its bit is set");
            // SAFETY: the table's contract.
            let status = unsafe { memory_info(context(), 1, &raw mut out, error) };
            assert_eq!((out.free_bytes, out.total_bytes), (5, 6));
            status
        },
        |call| {
            assert_eq!((call.operation, call.request.device_id), (call::MEMORY_INFO, 1));
            call.info = DevxMemoryInfo { free_bytes: 5, total_bytes: 6 };
            DEVX_OK
        },
    );
    assert_eq!(status, DEVX_OK);

    let status = asked(
        |error| {
            let mut out = Call::of(0).handle;
            let ipc_handle = table.0.ipc_handle.expect("its bit is set");
            // SAFETY: the table's contract.
            let status = unsafe { ipc_handle(context(), at(256), &raw mut out, error) };
            assert_eq!((out.handle, out.offset, out.bytes, out.device_id), ([3; 64], 1, 2, 4));
            status
        },
        |call| {
            assert_eq!((call.operation, call.address.addr()), (call::IPC_HANDLE, 256));
            call.handle = DevxIpcHandle { handle: [3; 64], offset: 1, bytes: 2, device_id: 4, reserved: 0 };
            DEVX_OK
        },
    );
    assert_eq!(status, DEVX_OK);

    for operation in [call::INITIALIZE, call::RESET, call::TRIM, call::DEFER_CLEANUP] {
        let ask = |error: *mut DevxError| {
            let (initialize, reset) = (table.0.initialize.expect("its bit is set"), table.0.reset.expect("as above"));
            let (trim, defer) = (table.0.trim.expect("as above"), table.0.defer_cleanup.expect("as above"));
            match operation {
                // SAFETY: the table's contract.
                call::INITIALIZE => unsafe { initialize(context(), 2, error) },
                // SAFETY: as above.
                call::RESET => unsafe { reset(context(), 2, error) },
                // SAFETY: as above.
                call::TRIM => unsafe { trim(context(), 2, 77, error) },
                _ => {
                    // SAFETY: as above.
                    unsafe { defer(context(), 1) };
                    DEVX_CLOSED
                }
            }
        };
        let status = asked(ask, |call| {
            let defers = operation == call::DEFER_CLEANUP;
            assert_eq!((call.operation, call.begin), (operation, i32::from(defers)));
            assert_eq!(call.request.device_id, if defers { 0 } else { 2 });
            assert_eq!(call.request.bytes, if operation == call::TRIM { 77 } else { 0 });
            DEVX_CLOSED
        });
        assert_eq!(status, DEVX_CLOSED);
    }
    release_manager(&table.0);
    assert_eq!(drain(8), [20]);
}

#[test]
fn a_manager_says_why_it_gave_nothing() {
    let _turn = start();
    let table = &Table(manager(20, 0));
    let said = asked(
        |error| {
            let (request, mut out) = (Call::of(0).request, Call::of(0).memory);
            let allocate = table.0.allocate.expect("it is always there");
            // SAFETY: the table's contract.
            let status = unsafe { allocate(table.0.context, &raw const request, &raw mut out, error) };
            // SAFETY: `asked` gives an error that can be read.
            (status, unsafe { (*error).driver_code }, out.address.addr())
        },
        |call| {
            call.error.driver_code = 700;
            call.memory.address = std::ptr::with_exposed_provenance_mut(64);
            DEVX_OUT_OF_MEMORY
        },
    );
    // Whatever a failed call left in its outputs is ignored.
    assert_eq!(said, (DEVX_OUT_OF_MEMORY, 700, 0));
    let DevxManagerTable { initialize, pin, memory_info, ipc_handle, reset, trim, defer_cleanup, .. } = table.0;
    assert!(initialize.is_none() && pin.is_none() && memory_info.is_none() && ipc_handle.is_none());
    assert!(reset.is_none() && trim.is_none() && defer_cleanup.is_none());
    release_manager(&table.0);
    assert_eq!(drain(8), [20]);
}
