//! The plain records of the C API (source of `devexchange/types.h`): statuses, the error record,
//! and the descriptions that cross the boundary by value. Java and Julia read the same bytes.

use core::ffi::{c_char, c_void};

/// The outcome of a call: `DEVX_OK` (0), or the reason why nothing was done.
///
/// The set is open: a newer library may return numbers that this header does not name.
/// A number is never given a second meaning.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DevxStatus(pub i32);

/// Success.
pub const DEVX_OK: DevxStatus = DevxStatus(0);
/// A pointer that the call needs is NULL.
pub const DEVX_NULL_ARGUMENT: DevxStatus = DevxStatus(1);
/// An argument has a value that the call does not accept.
pub const DEVX_INVALID_ARGUMENT: DevxStatus = DevxStatus(2);
/// The struct has already been released or moved from (its `release` is NULL).
pub const DEVX_RELEASED: DevxStatus = DevxStatus(3);
/// The handle, stream or connection that the call works on has already been closed.
pub const DEVX_CLOSED: DevxStatus = DevxStatus(4);
/// An Arrow format string is missing, malformed or unknown.
pub const DEVX_INVALID_FORMAT: DevxStatus = DevxStatus(5);
/// A data type is malformed or unknown.
pub const DEVX_INVALID_DTYPE: DevxStatus = DevxStatus(6);
/// A shape is missing or has a negative extent; or a shape, strides or a byte offset overflow or do not fit.
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
/// A tree, or a chain of managers or streams, is deeper or larger than the limits.
pub const DEVX_TOO_DEEP: DevxStatus = DevxStatus(14);
/// One of the two sides does not read this version of a protocol or record.
pub const DEVX_VERSION: DevxStatus = DevxStatus(15);
/// The device is unknown, absent, or not the one that was asked for.
pub const DEVX_DEVICE: DevxStatus = DevxStatus(16);
/// The request is well-formed, but this library does not support it.
pub const DEVX_UNSUPPORTED: DevxStatus = DevxStatus(17);
/// Possible only with a copy, which the caller did not allow.
pub const DEVX_COPY_REQUIRED: DevxStatus = DevxStatus(18);
/// Not possible, not even with a copy.
pub const DEVX_IMPOSSIBLE: DevxStatus = DevxStatus(19);
/// The memory is read-only, and the call would write it or describe it as writable.
pub const DEVX_READ_ONLY: DevxStatus = DevxStatus(20);
/// Memory could not be allocated.
pub const DEVX_OUT_OF_MEMORY: DevxStatus = DevxStatus(21);
/// A text is not valid UTF-8 or contains a NUL byte.
pub const DEVX_INVALID_TEXT: DevxStatus = DevxStatus(22);
/// An index is out of range.
pub const DEVX_OUT_OF_RANGE: DevxStatus = DevxStatus(23);
/// The device does not accept this value for a stream.
pub const DEVX_INVALID_STREAM: DevxStatus = DevxStatus(24);
/// The result is not ready, and the call does not wait, or its time to wait is over.
pub const DEVX_NOT_READY: DevxStatus = DevxStatus(25);
/// A call of the device driver failed; `driver_code` says how.
pub const DEVX_DRIVER: DevxStatus = DevxStatus(26);
/// A callback of the caller, a producer, a consumer or a manager failed or returned something invalid.
pub const DEVX_CALLBACK: DevxStatus = DevxStatus(27);
/// The object is in use by another call and takes one at a time, or it has no room for more.
pub const DEVX_BUSY: DevxStatus = DevxStatus(28);
/// A call of the operating system failed; the text says which and how.
pub const DEVX_SYSTEM: DevxStatus = DevxStatus(29);
/// A defect of this library: a panic was caught at the boundary. Nothing was taken.
pub const DEVX_PANIC: DevxStatus = DevxStatus(255);

/// Bytes of `devx_error.message`, the terminating NUL included.
pub const DEVX_ERROR_MESSAGE_BYTES: usize = 496;

/// The error record: owned by the caller and written only on failure. Nothing in it has to be freed.
///
/// Every function that can fail takes a pointer to an error record as its last argument, or NULL if the caller does not need
/// the text.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxError {
    /// The status that the call returned.
    pub status: DevxStatus,
    /// The code of the failed device driver call (`CUresult`), or 0.
    pub driver_code: i32,
    /// NUL-terminated UTF-8: the field, its value, and what was expected. Cut at a character if it is too long.
    pub message: [c_char; DEVX_ERROR_MESSAGE_BYTES],
}

/// Keeps memory alive until nothing refers to it any more.
///
/// `release(context)` is then called exactly once, from any thread. It must return on the thread that called it (a coroutine
/// that moves to another thread does not), and it must not throw. Nor must it wait for another release: a release that it
/// causes by giving up what it holds may come only after it has returned. A NULL `release` means that there is nothing to call.
///
/// A shared object with the code of `release`, such as a plugin, must stay loaded until then, or for good (link it with
/// `-Wl,-z,nodelete`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxOwner {
    /// Passed to `release` unchanged.
    pub context: *mut c_void,
    /// Called once. If the call that was given the owner fails, it is not called at all.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// Tells the caller that there is something to poll for.
///
/// `wake(context)` may come on any thread, on several at once, and while other callbacks run further up on the same stack. It
/// wakes a thread, a task or an event loop, and must do nothing else. It must not throw.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxWake {
    /// Passed to both functions unchanged.
    pub context: *mut c_void,
    /// NULL means that there is nothing to call.
    pub wake: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Called once, from any thread, when `wake` will not be called any more; NULL means that there is nothing to call. If the
    /// call that was given the record fails, it is not called at all.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// The object behind a `devx_batch_t` handle.
pub struct DevxBatch {
    _opaque: (),
}

/// The source of the batches of a stream.
///
/// Its functions are called on whatever thread pulls, one call at a time. They must not throw. A shared object with their code
/// must stay loaded until `release` has returned (see `devx_owner`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxBatchSource {
    /// Passed to both functions unchanged.
    pub context: *mut c_void,
    /// Gives the next batch. `*out` is NULL before the call; it becomes a handle, which the stream takes over, or stays NULL at
    /// the end. Any status but `DEVX_OK` is an error, with the text and the driver code from `*error`, which may be left as it
    /// is; `*out` is then ignored. Not called again after the end or an error.
    pub next: Option<
        unsafe extern "C" fn(context: *mut c_void, out: *mut *mut DevxBatch, error: *mut DevxError) -> DevxStatus,
    >,
    /// Called once, from any thread, when the stream is released; NULL means that there is nothing to call. If the call that
    /// was given the source fails, it is not called at all.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// The usual time, in nanoseconds, that an exporter in another process has for an answer: ten seconds.
pub const DEVX_IPC_TIMEOUT_NS: i64 = 10_000_000_000;

/// Flag of pinned memory: pinned for all contexts, not only for that of its device.
pub const DEVX_HOST_PORTABLE: u32 = 1;
/// Flag of pinned memory: devices can use it.
pub const DEVX_HOST_MAPPED: u32 = 2;
/// Flag of pinned memory: the host writes it fast and reads it slowly.
pub const DEVX_HOST_WRITE_COMBINED: u32 = 4;

/// A request for memory from a manager.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxMemoryRequest {
    /// Kind of memory: CUDA (2), CUDA_HOST (3), CUDA_MANAGED (13) or CPU (1).
    pub device_type: i32,
    /// The device that the memory is for, also for pinned and managed memory; 0 or −1 for the CPU.
    pub device_id: i32,
    /// Number of bytes; 0 is fine.
    pub bytes: i64,
    /// The stream in whose order device memory is allocated and given back; −1 if the memory has to be ready at once.
    ///
    /// A manager made with `devx_manager_create` always gets −1 for memory of the other kinds, which has to be ready at once in
    /// any case. It gets 1 in place of 2: the memory may be given back on another thread, where 2 names another stream, and
    /// work on 1 comes before and after work on either.
    pub stream: i64,
    /// `DEVX_HOST_...` bits, for pinned memory.
    pub host_flags: u32,
    /// Always zero.
    pub reserved: u32,
}

/// Memory from a manager.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxMemory {
    /// Address of the first byte: a multiple of the size of the elements that will be stored there, as addresses from `malloc`
    /// and from a device's allocator are. If no bytes were requested, it is NULL, or whatever a manager made with
    /// `devx_manager_create` gave.
    pub address: *mut c_void,
    /// Kind of the device that the memory is on.
    pub device_type: i32,
    /// Number of the device.
    pub device_id: i32,
    /// Gives the memory back: it is released once, from any thread. A release function that leaves this to another thread has
    /// to hold the stream of the request until then (`devx_stream_hold`).
    pub owner: DevxOwner,
}

/// How much memory a manager has on a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxMemoryInfo {
    /// Bytes that can still be allocated.
    pub free_bytes: i64,
    /// Bytes in all.
    pub total_bytes: i64,
}

/// A handle with which another process opens the allocation that contains an address (`cuIpcOpenMemHandle`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxIpcHandle {
    /// The driver's handle.
    pub handle: [u8; 64],
    /// Bytes from the beginning of the allocation, which is where the handle opens it, to the address.
    pub offset: i64,
    /// Size of the allocation in bytes.
    pub bytes: i64,
    /// The device that the allocation is on.
    pub device_id: i32,
    /// Always zero.
    pub reserved: u32,
}

/// Counts of what a manager has allocated and got back.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxManagerStatistics {
    /// Bytes in use now.
    pub bytes: i64,
    /// Most bytes in use at any one time.
    pub peak_bytes: i64,
    /// Allocations in use now.
    pub allocations: i64,
    /// Allocations since the beginning.
    pub total_allocations: i64,
    /// Bytes allocated since the beginning.
    pub total_bytes: i64,
    /// Requests that were refused for lack of memory.
    pub refused: i64,
}

/// The version of `devx_manager_table`.
pub const DEVX_MANAGER_VERSION: i32 = 1;

/// The caller's own memory manager: a table of callbacks through which the library allocates.
///
/// The callbacks may be called from any thread, several at once, and before `initialize`. They must not throw. A status other
/// than `DEVX_OK` is an error, with the text and the driver code from `*error`, which may be left as it is. A shared object
/// with their code must stay loaded until `release` has returned (see `devx_owner`). The interface is that of Numba's external
/// memory management plugin.
///
/// All callbacks but `allocate` may be NULL. Without `pin` or `memory_info`, calls that need it return DEVX_UNSUPPORTED;
/// without `ipc_handle`, the library asks the driver; in place of any other callback, it does nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxManagerTable {
    /// `DEVX_MANAGER_VERSION`.
    pub version: i32,
    /// Always zero.
    pub reserved: i32,
    /// Passed to all callbacks unchanged.
    pub context: *mut c_void,
    /// Prepares for a device. May be called any number of times.
    pub initialize:
        Option<unsafe extern "C" fn(context: *mut c_void, device_id: i32, error: *mut DevxError) -> DevxStatus>,
    /// Allocates memory and fills in `*out`, which is zero before the call. The owner in it is released once; that of plain
    /// host memory also after `reset`.
    pub allocate: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            request: *const DevxMemoryRequest,
            out: *mut DevxMemory,
            error: *mut DevxError,
        ) -> DevxStatus,
    >,
    /// Pins host memory until the owner in `*out` is released.
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
    /// Gives the handle of the allocation that contains `address`, which is from this manager. Without this callback, the
    /// library asks the driver.
    pub ipc_handle: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            address: *const c_void,
            out: *mut DevxIpcHandle,
            error: *mut DevxError,
        ) -> DevxStatus,
    >,
    /// Called when all memory of a device has been given back: the manager may now free what it kept for that device.
    pub reset: Option<unsafe extern "C" fn(context: *mut c_void, device_id: i32, error: *mut DevxError) -> DevxStatus>,
    /// Gives unused memory of a device back, except for `keep` bytes.
    pub trim: Option<
        unsafe extern "C" fn(context: *mut c_void, device_id: i32, keep: i64, error: *mut DevxError) -> DevxStatus,
    >,
    /// Called when a deferral of cleanup begins (`begin` is 1) or ends (0). In between, the library holds back releases.
    pub defer_cleanup: Option<unsafe extern "C" fn(context: *mut c_void, begin: i32)>,
    /// Called once, from any thread, when the manager and all memory from it have been given up. If the call that was given the
    /// table fails, it is not called at all.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// What a consumer asks of a DLPack export: the arguments of `__dlpack__` (array API, data interchange).
///
/// A NULL request means the newest version, no synchronisation and no copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxDlpackRequest {
    /// Highest major version that the consumer reads. At least 1 for an export as the versioned struct; exports as the legacy
    /// struct ignore it.
    pub max_major: u32,
    /// Highest minor version of that major version that the consumer knows.
    pub max_minor: u32,
    /// The consumer's stream, or −1 for no synchronisation. For the CPU, only −1 is accepted.
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

/// One field in the description of a schema.
///
/// A schema is described by a list of fields in depth-first order: a field, then each of its
/// children with all that is below it, then the field of its dictionary's values. All texts are
/// copied.
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
    /// 1 if dictionary-encoded (the field of the values follows after the children), otherwise 0.
    pub has_dictionary: i64,
}

/// One field of a schema, as `devx_schema_field` gives it. Its texts are valid as long as the schema.
///
/// A field is named by its node: 0 is the root, and the children of a field have numbers that follow each other.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxFieldInfo {
    /// Arrow format string.
    pub format: *const c_char,
    /// Name; never NULL (`""` if there is none).
    pub name: *const c_char,
    /// Arrow metadata block, or NULL.
    pub metadata: *const c_char,
    /// `DEVX_FIELD_…` bits, and any others that the producer has set.
    pub flags: i64,
    /// Number of children.
    pub n_children: i64,
    /// The node of the first child, or −1 if there is none.
    pub first_child: i64,
    /// The node of the field of the dictionary's values, or −1 if the field has no dictionary.
    pub dictionary: i64,
}

/// One node in the description of an array. Nodes are in the same order as the fields of the schema.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxNode {
    /// Number of elements.
    pub length: i64,
    /// Number of nulls, or −1 if not known. With 0, nobody has to look at the validity buffer, whatever
    /// it holds.
    pub null_count: i64,
    /// Elements to skip in each buffer.
    pub offset: i64,
    /// Addresses of the buffers in the order of the Arrow columnar format: validity first (NULL if
    /// there are no nulls). The table is copied, the buffers are not.
    ///
    /// Arrow requires the first offset even of a list or text array without elements. In host
    /// memory, a NULL offset buffer is replaced by one that has it. In device memory it stays NULL,
    /// although some consumers read it.
    pub buffers: *const *const c_void,
    /// Number of buffers.
    pub n_buffers: i64,
}

/// A column: a borrowed view of one array of a batch, valid as long as the batch is.
///
/// `offset` and `length` describe the rows that the column sees: they already include the slices of
/// its parent arrays.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxColumn {
    /// Arrow format string.
    pub format: *const c_char,
    /// Name; never NULL (`""` if there is none).
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
    /// Addresses of the buffers, as in `devx_node`, in memory of the batch's device.
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

/// The size of a batch, and the device that it is on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxBatchInfo {
    /// Number of rows.
    pub length: i64,
    /// Number of columns: the children if the type is a struct, otherwise 0 (see `devx_batch_root`).
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

/// The name of a device, how much memory it has, and what identifies it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxDeviceInfo {
    /// The name, NUL-terminated UTF-8.
    pub name: [c_char; DEVX_DEVICE_NAME_BYTES],
    /// Identifies the device in every process, whatever the order of devices there; zero for the CPU.
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

/// Kind of a plan: as a view, without a copy.
pub const DEVX_PLAN_VIEW: i32 = 0;
/// Kind of a plan: only with a copy; `reason` says why.
pub const DEVX_PLAN_COPY: i32 = 1;
/// Kind of a plan: not at all; `reason` says why.
pub const DEVX_PLAN_IMPOSSIBLE: i32 = 2;

/// Bytes of `devx_plan.reason`, the terminating NUL included.
pub const DEVX_PLAN_REASON_BYTES: usize = 240;

/// How an exchange could be done, asked before anything is taken.
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

/// How many objects of one kind there were, and how many of them are not released yet.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevxCount {
    /// Since the library was loaded.
    pub total: i64,
    /// Not released yet.
    pub live: i64,
}

/// The ledger: how much this library has handed out and taken in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevxLedger {
    /// Tensors handed to consumers, also to those in other processes.
    pub tensor_exports: DevxCount,
    /// Tensors taken from producers.
    pub tensor_imports: DevxCount,
    /// Arrow arrays handed to consumers, also to those in other processes; a whole tree counts once.
    pub batch_exports: DevxCount,
    /// Arrow arrays taken from producers.
    pub batch_imports: DevxCount,
    /// Arrow schemas handed to consumers.
    pub schema_exports: DevxCount,
    /// Arrow schemas taken from producers.
    pub schema_imports: DevxCount,
    /// Owners whose release has to be called: those of callers (`devx_owner`), and those of memory that this library allocated.
    pub owners: DevxCount,
    /// Streams of Arrow arrays handed to consumers.
    pub stream_exports: DevxCount,
    /// Streams of Arrow arrays taken from producers.
    pub stream_imports: DevxCount,
}
