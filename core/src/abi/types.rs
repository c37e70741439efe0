//! The plain records of the C API (source of `devexchange/types.h`): statuses, the error record,
//! and the descriptions that cross the boundary by value. Java and Julia read the same bytes.

use core::ffi::{c_char, c_void};

/// What a call came to: `DEVX_OK` (0), or the reason why nothing was done.
///
/// The set is open: a newer library may return numbers that this header does not name.
/// A number is never given a second meaning.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DevxStatus(pub i32);

/// Success.
pub const DEVX_OK: DevxStatus = DevxStatus(0);
/// A pointer that the call needs is NULL.
pub const DEVX_NULL_ARGUMENT: DevxStatus = DevxStatus(1);
/// An argument has a value that the call does not take.
pub const DEVX_INVALID_ARGUMENT: DevxStatus = DevxStatus(2);
/// The struct was released or moved from already (its `release` is NULL).
pub const DEVX_RELEASED: DevxStatus = DevxStatus(3);
/// The handle was closed already.
pub const DEVX_CLOSED: DevxStatus = DevxStatus(4);
/// An Arrow format string is missing, malformed or unknown.
pub const DEVX_INVALID_FORMAT: DevxStatus = DevxStatus(5);
/// A data type is malformed or unknown.
pub const DEVX_INVALID_DTYPE: DevxStatus = DevxStatus(6);
/// A shape, strides or byte offset is negative, missing or overflows.
pub const DEVX_INVALID_SHAPE: DevxStatus = DevxStatus(7);
/// An Arrow length or offset is negative, too short or overflows.
pub const DEVX_INVALID_LENGTH: DevxStatus = DevxStatus(8);
/// An Arrow null count does not fit its array.
pub const DEVX_INVALID_NULL_COUNT: DevxStatus = DevxStatus(9);
/// The number of buffers is wrong, a buffer that must be there is NULL, or one is too small.
pub const DEVX_INVALID_BUFFERS: DevxStatus = DevxStatus(10);
/// The children of an Arrow struct are wrong in number, NULL or released.
pub const DEVX_INVALID_CHILDREN: DevxStatus = DevxStatus(11);
/// Arrow metadata has a negative or oversized count or length.
pub const DEVX_INVALID_METADATA: DevxStatus = DevxStatus(12);
/// Two things that belong together differ (array and schema, dictionary and index, …).
pub const DEVX_MISMATCH: DevxStatus = DevxStatus(13);
/// The tree is deeper or larger than the limits.
pub const DEVX_TOO_DEEP: DevxStatus = DevxStatus(14);
/// A protocol version that this library does not speak.
pub const DEVX_VERSION: DevxStatus = DevxStatus(15);
/// The device is unknown, absent, or not the one that was asked for.
pub const DEVX_DEVICE: DevxStatus = DevxStatus(16);
/// Well-formed, but not supported by this library.
pub const DEVX_UNSUPPORTED: DevxStatus = DevxStatus(17);
/// Possible only with a copy, which the caller did not allow.
pub const DEVX_COPY_REQUIRED: DevxStatus = DevxStatus(18);
/// Not possible, not even with a copy.
pub const DEVX_IMPOSSIBLE: DevxStatus = DevxStatus(19);
/// Read-only memory was asked for where only writable memory can be described.
pub const DEVX_READ_ONLY: DevxStatus = DevxStatus(20);
/// Memory could not be allocated.
pub const DEVX_OUT_OF_MEMORY: DevxStatus = DevxStatus(21);
/// A text is not valid UTF-8 or contains a NUL byte.
pub const DEVX_INVALID_TEXT: DevxStatus = DevxStatus(22);
/// An index is out of range.
pub const DEVX_OUT_OF_RANGE: DevxStatus = DevxStatus(23);
/// A stream value that the device does not take (DLPack `stream`).
pub const DEVX_INVALID_STREAM: DevxStatus = DevxStatus(24);
/// What is asked for is not ready, and this call does not wait for it, or not any longer.
pub const DEVX_NOT_READY: DevxStatus = DevxStatus(25);
/// A call of the device driver failed; `driver_code` says how.
pub const DEVX_DRIVER: DevxStatus = DevxStatus(26);
/// A callback failed, of the caller or of a producer, consumer or manager, or gave what it must not.
pub const DEVX_CALLBACK: DevxStatus = DevxStatus(27);
/// The object is in use by another call; it takes one at a time.
pub const DEVX_BUSY: DevxStatus = DevxStatus(28);
/// A call of the operating system failed; the text says which and how.
pub const DEVX_SYSTEM: DevxStatus = DevxStatus(29);
/// A defect of this library: a panic was caught at the boundary. Nothing was taken.
pub const DEVX_PANIC: DevxStatus = DevxStatus(255);

/// Bytes of `devx_error.message`, the terminating NUL included.
pub const DEVX_ERROR_MESSAGE_BYTES: usize = 496;

/// The error record: owned by the caller, written only on failure, nothing in it to free.
///
/// Every function that can fail takes a pointer to one as its last argument; NULL means that the text is not wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxError {
    /// The status that the call returned.
    pub status: DevxStatus,
    /// The code of the failed device driver call (`CUresult`), or 0.
    pub driver_code: i32,
    /// NUL-terminated UTF-8: the field, the value, and what was expected. Cut at a character if too long.
    pub message: [c_char; DEVX_ERROR_MESSAGE_BYTES],
}

/// Who keeps memory alive: `release(context)` is called exactly once, when nothing refers to the
/// memory any more, from any thread, and returns on that thread, which a coroutine may not. It must neither throw nor wait for
/// another release: one that it brings about by giving up what it holds may come only after it has returned. A NULL
/// `release` means nothing to call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxOwner {
    /// Handed to `release` as it is.
    pub context: *mut c_void,
    /// Called once; on failure of the call that was given the owner it is not called at all.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// Whom to wake when there is something to poll for. `wake(context)` may come on any thread, also on several at once and
/// while other callbacks run further up on the same stack: it wakes a thread, a task or an event loop and does nothing
/// else. It must not throw.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxWake {
    /// Handed to both functions as it is.
    pub context: *mut c_void,
    /// NULL means nothing to call.
    pub wake: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Called once, from any thread, when nobody will be woken any more; NULL means nothing to call. On failure of the
    /// call that was given the record it is not called at all.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// What `devx_batch_t` is a handle of.
pub struct DevxBatch {
    _opaque: (),
}

/// Where the batches of a stream come from. The functions are called on whatever thread pulls, one call at a time.
/// They must not throw.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxBatchSource {
    /// Handed to both functions as it is.
    pub context: *mut c_void,
    /// Gives the next batch: `*out`, which is NULL before, becomes a handle that the stream takes over, or stays NULL
    /// at the end. Any status but `DEVX_OK` is an error, with the text and the driver code of `*error`, which may be
    /// left as it is; then `*out` is not looked at. Not called any more after the end or an error.
    pub next: Option<
        unsafe extern "C" fn(context: *mut c_void, out: *mut *mut DevxBatch, error: *mut DevxError) -> DevxStatus,
    >,
    /// Called once, from any thread, when the stream is released; NULL means nothing to call. On failure of the call
    /// that was given the source it is not called at all.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// How many nanoseconds an exporter in another process has for an answer, unless its importer says otherwise: ten seconds.
pub const DEVX_IPC_TIMEOUT_NS: i64 = 10_000_000_000;

/// Pinned memory for all contexts, not only for the one of its device.
pub const DEVX_HOST_PORTABLE: u32 = 1;
/// Pinned memory that devices can use.
pub const DEVX_HOST_MAPPED: u32 = 2;
/// Pinned memory that the host writes fast and reads slowly.
pub const DEVX_HOST_WRITE_COMBINED: u32 = 4;

/// Memory that is asked of a manager.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxMemoryRequest {
    /// Kind of memory: CUDA (2), CUDA_HOST (3), CUDA_MANAGED (13) or CPU (1).
    pub device_type: i32,
    /// The device that it is for.
    pub device_id: i32,
    /// How much; 0 is fine.
    pub bytes: i64,
    /// The stream in whose order device memory is given and taken back; -1 if it has to be ready at once, as memory of the
    /// other kinds always has: of that a manager of one's own is told no stream. Nor is it ever asked for 2: what it gives may
    /// be given back on another thread, so 1 stands for it, which comes before and after.
    pub stream: i64,
    /// `DEVX_HOST_...` bits, of pinned memory.
    pub host_flags: u32,
    /// Always zero.
    pub reserved: u32,
}

/// Memory that a manager gave.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxMemory {
    /// Address of the first byte, a multiple of the size of the elements that go there, as memory of `malloc` and of a device
    /// is. NULL if no bytes were asked for.
    pub address: *mut c_void,
    /// Where it is.
    pub device_type: i32,
    /// Number of the device.
    pub device_id: i32,
    /// Gives it back: called once, from any thread. A release that only has another thread do so holds the stream of the
    /// request until then (`devx_stream_hold`).
    pub owner: DevxOwner,
}

/// How much memory there is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxMemoryInfo {
    /// Bytes that can still be had.
    pub free_bytes: i64,
    /// Bytes in all.
    pub total_bytes: i64,
}

/// By what another process opens the allocation that an address lies in (`cuIpcOpenMemHandle`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxIpcHandle {
    /// The driver's handle.
    pub handle: [u8; 64],
    /// Where the address is, in bytes from the beginning of the allocation, which is what the handle opens.
    pub offset: i64,
    /// Bytes of the allocation.
    pub bytes: i64,
    /// The device that the allocation is on.
    pub device_id: i32,
    /// Always zero.
    pub reserved: u32,
}

/// What a manager allocated and got back.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxManagerStatistics {
    /// Bytes in use now.
    pub bytes: i64,
    /// Most bytes that were in use at a time.
    pub peak_bytes: i64,
    /// Allocations in use now.
    pub allocations: i64,
    /// Allocations since the beginning.
    pub total_allocations: i64,
    /// Bytes allocated since the beginning.
    pub total_bytes: i64,
    /// Requests that were refused for want of memory.
    pub refused: i64,
}

/// The version of `devx_manager_table`.
pub const DEVX_MANAGER_VERSION: i32 = 1;

/// A memory manager of the caller's: a table of callbacks that the library then allocates through.
///
/// They may be called from any thread, several at once, also before `initialize`, and must not throw. All but `allocate` may
/// be NULL: what needs `pin` or `memory_info` is DEVX_UNSUPPORTED then, the driver is asked in place of `ipc_handle`, and
/// without another one nothing is done. A status other than `DEVX_OK` is an error, with the text and the driver code of
/// `*error`, which may be left as it is. The interface is that of Numba's external memory management plugin.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxManagerTable {
    /// `DEVX_MANAGER_VERSION`.
    pub version: i32,
    /// Always zero.
    pub reserved: i32,
    /// Handed to all callbacks as it is.
    pub context: *mut c_void,
    /// Prepares for a device; any number of times.
    pub initialize:
        Option<unsafe extern "C" fn(context: *mut c_void, device_id: i32, error: *mut DevxError) -> DevxStatus>,
    /// Allocates: fills in `*out`, which is zero before. The owner that it gives is released once, also after `reset`.
    pub allocate: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            request: *const DevxMemoryRequest,
            out: *mut DevxMemory,
            error: *mut DevxError,
        ) -> DevxStatus,
    >,
    /// Pins host memory until the owner is released.
    pub pin: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device_id: i32,
            address: *mut c_void,
            bytes: i64,
            host_flags: u32,
            out: *mut DevxOwner,
            error: *mut DevxError,
        ) -> DevxStatus,
    >,
    /// Says how much memory there is.
    pub memory_info: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device_id: i32,
            out: *mut DevxMemoryInfo,
            error: *mut DevxError,
        ) -> DevxStatus,
    >,
    /// Gives the handle of the allocation that an address of this manager's lies in; without this callback the driver is
    /// asked.
    pub ipc_handle: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            address: *const c_void,
            out: *mut DevxIpcHandle,
            error: *mut DevxError,
        ) -> DevxStatus,
    >,
    /// Everything of a device has been given back; what the manager kept for it may go.
    pub reset: Option<unsafe extern "C" fn(context: *mut c_void, device_id: i32, error: *mut DevxError) -> DevxStatus>,
    /// Gives unused memory back, except for `keep` bytes.
    pub trim: Option<
        unsafe extern "C" fn(context: *mut c_void, device_id: i32, keep: i64, error: *mut DevxError) -> DevxStatus,
    >,
    /// Cleanup is deferred from now on (`begin` is 1), or no longer (0); the library holds back releases meanwhile.
    pub defer_cleanup: Option<unsafe extern "C" fn(context: *mut c_void, begin: i32)>,
    /// Called once, from any thread, when the manager and all memory of it are given up. On failure of the call that was
    /// given the table it is not called at all.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// What a consumer asks of a DLPack export: the arguments of `__dlpack__` (array API, data interchange).
///
/// A NULL request means: the newest version, no synchronisation, no copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxDlpackRequest {
    /// Highest major version that the consumer reads: at least 1 for an export of the versioned struct. Exports of the legacy
    /// struct do not look at it.
    pub max_major: u32,
    /// Highest minor version of that major version that the consumer knows.
    pub max_minor: u32,
    /// The consumer's stream: on the CPU −1 (no synchronisation) only.
    pub stream: i64,
    /// `DEVX_COPY_NEVER`, `DEVX_COPY_IF_NEEDED` or `DEVX_COPY_ALWAYS`.
    pub copy: i32,
}

/// Refuse rather than copy.
pub const DEVX_COPY_NEVER: i32 = 0;
/// Copy only where a view is not possible.
pub const DEVX_COPY_IF_NEEDED: i32 = 1;
/// Always make a copy.
pub const DEVX_COPY_ALWAYS: i32 = 2;

/// Flag of a field: the dictionary's order has a meaning (`ARROW_FLAG_DICTIONARY_ORDERED`).
pub const DEVX_FIELD_ORDERED: i64 = 1;
/// Flag of a field: values may be null (`ARROW_FLAG_NULLABLE`).
pub const DEVX_FIELD_NULLABLE: i64 = 2;
/// Flag of a field: the keys of a map are sorted (`ARROW_FLAG_MAP_KEYS_SORTED`).
pub const DEVX_FIELD_KEYS_SORTED: i64 = 4;

/// One field of a schema that is being described.
///
/// A schema is a list of fields in depth-first order: a field, then each of its children with all
/// that is below it, then its dictionary's values. All texts are copied.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxField {
    /// Arrow format string, for example `"g"` for float64.
    pub format: *const c_char,
    /// NUL-terminated UTF-8, or NULL for no name.
    pub name: *const c_char,
    /// Arrow metadata block (C data interface, "metadata"), or NULL.
    pub metadata: *const c_char,
    /// `DEVX_FIELD_…` bits.
    pub flags: i64,
    /// Number of children; they follow in the list.
    pub n_children: i64,
    /// 1 if dictionary-encoded: the values' field follows after the children; otherwise 0.
    pub has_dictionary: i64,
}

/// One node of an array that is being described, in the same order as the fields of its schema.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxNode {
    /// Number of elements.
    pub length: i64,
    /// Number of nulls, or −1 if not known; with 0 nobody has to look at the validity, whatever it holds.
    pub null_count: i64,
    /// Elements to skip in each buffer.
    pub offset: i64,
    /// The buffers' addresses in the order of the Arrow columnar format: validity first (NULL if
    /// there are no nulls). The table is copied, the buffers are not. Arrow asks for the first
    /// offset of a list or text without elements, too: a NULL becomes one in host memory, and stays
    /// NULL in that of a device, where some consumers read it.
    pub buffers: *const *const c_void,
    /// Number of buffers.
    pub n_buffers: i64,
}

/// A column: a borrowed view of one array of a batch, valid as long as the batch is.
///
/// `offset` and `length` are those of the rows that are seen: the slices of the arrays above are
/// already in them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxColumn {
    /// Arrow format string.
    pub format: *const c_char,
    /// Name, never NULL (`""` where there is none).
    pub name: *const c_char,
    /// Arrow metadata block, or NULL.
    pub metadata: *const c_char,
    /// `DEVX_FIELD_…` bits.
    pub flags: i64,
    /// Number of elements.
    pub length: i64,
    /// Number of nulls, or −1 if not known.
    pub null_count: i64,
    /// Index of the first element in each buffer.
    pub offset: i64,
    /// The buffers' addresses, as in `devx_node`; memory of the batch's device.
    pub buffers: *const *const c_void,
    /// Number of buffers.
    pub n_buffers: i64,
    /// Number of children.
    pub n_children: i64,
    /// 1 if dictionary-encoded, otherwise 0.
    pub has_dictionary: i64,
    /// Which array of the batch this is; for the library's own use.
    pub node: i64,
}

/// What a batch is, at a glance.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxBatchInfo {
    /// Number of rows.
    pub length: i64,
    /// Number of columns: the children if the type is a struct, otherwise 0 (then see the root).
    pub n_columns: i64,
    /// Number of arrays in the whole tree.
    pub n_nodes: i64,
    /// Device type of the buffers (numbers as in DLPack and Arrow).
    pub device_type: i32,
    /// Device id; 0 for the CPU.
    pub device_id: i32,
}

/// Bytes of `devx_device_info.name`, the terminating NUL included.
pub const DEVX_DEVICE_NAME_BYTES: usize = 128;

/// What a device is called and how much memory it has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxDeviceInfo {
    /// NUL-terminated UTF-8.
    pub name: [c_char; DEVX_DEVICE_NAME_BYTES],
    /// The same in every process, whatever the order of devices there; zero for the CPU.
    pub uuid: [u8; 16],
    /// Bytes that are free now; −1 for the CPU.
    pub free_bytes: i64,
    /// Bytes in all; −1 for the CPU.
    pub total_bytes: i64,
    /// The driver's version as CUDA writes it (12040 is 12.4); 0 for the CPU.
    pub driver_version: i32,
    /// Always zero.
    pub reserved: i32,
}

/// How an exchange could be done: `DEVX_PLAN_VIEW`, `DEVX_PLAN_COPY` or `DEVX_PLAN_IMPOSSIBLE`.
pub const DEVX_PLAN_VIEW: i32 = 0;
/// Only with a copy; `reason` says why.
pub const DEVX_PLAN_COPY: i32 = 1;
/// Not at all; `reason` says why.
pub const DEVX_PLAN_IMPOSSIBLE: i32 = 2;

/// Bytes of `devx_plan.reason`, the terminating NUL included.
pub const DEVX_PLAN_REASON_BYTES: usize = 240;

/// The answer to "can this be seen as that?", asked before anything is taken.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxPlan {
    /// One of `DEVX_PLAN_…`.
    pub kind: i32,
    /// Always zero.
    pub reserved: i32,
    /// Bytes that a copy would write; 0 for a view.
    pub copy_bytes: i64,
    /// NUL-terminated UTF-8; empty for a view.
    pub reason: [c_char; DEVX_PLAN_REASON_BYTES],
}

/// How many there were, and how many of them are not released yet.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevxCount {
    /// Since the library was loaded.
    pub total: i64,
    /// Not released yet.
    pub live: i64,
}

/// The ledger: what this library has handed out and taken in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevxLedger {
    /// DLPack tensors handed to consumers.
    pub tensor_exports: DevxCount,
    /// DLPack tensors taken from producers.
    pub tensor_imports: DevxCount,
    /// Arrow arrays handed to consumers; a whole tree counts once.
    pub batch_exports: DevxCount,
    /// Arrow arrays taken from producers.
    pub batch_imports: DevxCount,
    /// Arrow schemas handed to consumers.
    pub schema_exports: DevxCount,
    /// Arrow schemas taken from producers.
    pub schema_imports: DevxCount,
    /// Owners (`devx_owner`) whose release has to be called.
    pub owners: DevxCount,
    /// Streams of Arrow arrays handed to consumers.
    pub stream_exports: DevxCount,
    /// Streams of Arrow arrays taken from producers.
    pub stream_imports: DevxCount,
}
