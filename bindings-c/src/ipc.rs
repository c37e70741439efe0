//! `devx_ipc_*`: tensors and batches shared with other processes of this machine.

use devexchange_core::DType;
use devexchange_core::dlpack::Copying;
use devexchange_core::ipc::{self, Client, Server};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::ctypes::{Char, DlDataType, ErrorRecord, PlanRecord, Status};
use crate::error::{guard, guard_release, handle, list, required, required_text};
use crate::tensor::TensorHandle;
use crate::wake::timeout;

handle! {
    /// An exporter: what it offers under names, other processes of the same user can import. Any thread may use it.
    ServerHandle = "devx_ipc_server" of Server
}

handle! {
    /// A connection of an importer to an exporter. Any thread may use it.
    ClientHandle = "devx_ipc_client" of Client
}

/// Listens at an address: the path of a socket, or '@' and a name that no file stands for. A thread of the library
/// answers importers, at most 512 at once. Processes of other users are refused.
#[ffi_export]
unsafe fn devx_ipc_server_create(
    address: *const Char,
    out: Option<Out<'_, *mut ServerHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives NULL or a NUL-terminated text.
        let address = unsafe { required_text(address, "address") }?;
        out.write(ServerHandle::give(Server::bind(address)?));
        Ok(())
    })
}

/// Offers a tensor under a name, in place of what had that name. It is shared: importers get the same memory, which
/// stays valid until the last of them has released it or is gone. What cannot be shared is copied if `copy`
/// (`DEVX_COPY_...`) allows it: host memory that is not from `devx_tensor_allocate_shared`; pinned and managed memory and
/// device memory of a pool that was not made to be shared, into plain device memory, in the order of the producer's stream.
/// What the tensor's producer has queued until now is waited for by the importers' streams. What is read-only is so for the
/// importers, too, also if it was copied.
#[ffi_export]
unsafe fn devx_ipc_server_offer_tensor(
    server: *const ServerHandle,
    name: *const Char,
    tensor: *const TensorHandle,
    copy: i32,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let server = unsafe { ServerHandle::borrow(server, "server") }?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller gives NULL or a NUL-terminated text.
        let name = unsafe { required_text(name, "name") }?;
        server.offer_tensor(name, &tensor, Copying::from_raw(copy)?)
    })
}

/// As `devx_ipc_server_offer_tensor`, for a batch. Importers cannot write its memory if it is the host's. To copy texts on a
/// device, the host waits for their last offsets. Memory in more than 64 pieces (files, allocations) is a reason for a copy, too,
/// which is one piece. What describes the batch to an importer has at most 16 MiB: a batch with more fields, or longer names and
/// metadata, than these hold is refused (DEVX_IMPOSSIBLE).
#[ffi_export]
unsafe fn devx_ipc_server_offer_batch(
    server: *const ServerHandle,
    name: *const Char,
    batch: *const BatchHandle,
    copy: i32,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let server = unsafe { ServerHandle::borrow(server, "server") }?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller gives NULL or a NUL-terminated text.
        let name = unsafe { required_text(name, "name") }?;
        server.offer_batch(name, &batch, Copying::from_raw(copy)?)
    })
}

/// Ends an offer. `out` is 1 if there was one under this name, otherwise 0; it may be NULL. What was given of it stays
/// valid. A child of a fork is refused (DEVX_UNSUPPORTED), as for an offer: they are its parent's.
#[ffi_export]
unsafe fn devx_ipc_server_withdraw(
    server: *const ServerHandle,
    name: *const Char,
    out: Option<Out<'_, i32>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let server = unsafe { ServerHandle::borrow(server, "server") }?;
        // SAFETY: the caller gives NULL or a NUL-terminated text.
        let withdrawn = server.withdraw(unsafe { required_text(name, "name") }?)?;
        if let Some(out) = out {
            out.write(withdrawn.into());
        }
        Ok(())
    })
}

/// How much was given to importers that they have not released yet. What one of them imports again over the same connection
/// while it holds it counts once, unless an offer has changed.
#[ffi_export]
unsafe fn devx_ipc_server_leases(
    server: *const ServerHandle,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        out.write(unsafe { ServerHandle::borrow(server, "server") }?.leases());
        Ok(())
    })
}

/// Ends all offers and sets the handle to NULL. What was given stays valid until it is released. NULL is fine.
#[ffi_export]
unsafe fn devx_ipc_server_release(server: Option<&mut *mut ServerHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { ServerHandle::take(server) }));
}

/// Connects to the exporter at an address. It has so many nanoseconds for each answer, `DEVX_IPC_TIMEOUT_NS` if nothing else is
/// known; negative for as long as it takes. DEVX_SYSTEM if nobody listens there or a process of another user does, DEVX_NOT_READY
/// if there is no answer in time.
#[ffi_export]
unsafe fn devx_ipc_client_create(
    address: *const Char,
    timeout_ns: i64,
    out: Option<Out<'_, *mut ClientHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives NULL or a NUL-terminated text.
        let address = unsafe { required_text(address, "address") }?;
        out.write(ClientHandle::give(Client::connect(address, timeout(timeout_ns))?));
        Ok(())
    })
}

/// Imports the tensor that is offered under a name, without a copy. It may outlive the client's handle. Neither the
/// exporter nor who else can write the memory does so while it is read here; nothing can check that. DEVX_INVALID_ARGUMENT if
/// nothing is offered under this name, DEVX_MISMATCH if it is a batch, DEVX_CLOSED if the exporter is gone, DEVX_NOT_READY if it
/// does not answer in time, DEVX_BUSY if too much is held already, DEVX_SYSTEM if this process may open no more files.
#[ffi_export]
unsafe fn devx_ipc_client_import_tensor(
    client: *const ClientHandle,
    name: *const Char,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let client = unsafe { ClientHandle::borrow(client, "client") }?;
        // SAFETY: the caller gives NULL or a NUL-terminated text.
        let name = unsafe { required_text(name, "name") }?;
        // SAFETY: the exporter vouches for it, as the caller is told.
        out.write(TensorHandle::give(unsafe { client.import_tensor(name) }?));
        Ok(())
    })
}

/// As `devx_ipc_client_import_tensor`, for a batch. Its offsets and views are followed as they are: as any producer, the
/// exporter vouches for them.
#[ffi_export]
unsafe fn devx_ipc_client_import_batch(
    client: *const ClientHandle,
    name: *const Char,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let client = unsafe { ClientHandle::borrow(client, "client") }?;
        // SAFETY: the caller gives NULL or a NUL-terminated text.
        let name = unsafe { required_text(name, "name") }?;
        // SAFETY: the exporter vouches for it, as the caller is told.
        out.write(BatchHandle::give(unsafe { client.import_batch(name) }?));
        Ok(())
    })
}

/// Gives up a connection and sets the handle to NULL. What was imported stays valid, and an import that another thread has begun
/// goes on. NULL is fine.
#[ffi_export]
unsafe fn devx_ipc_client_release(client: Option<&mut *mut ClientHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { ClientHandle::take(client) }));
}

/// Makes a host tensor over memory that can be offered to other processes without a copy: compact, row-major, zeroed. It keeps a
/// file descriptor open for as long as it lives, and so does a host tensor that was imported.
#[ffi_export]
unsafe fn devx_tensor_allocate_shared(
    dtype: DlDataType,
    shape: *const i64,
    ndim: usize,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives `ndim` extents.
        let shape = unsafe { list(shape, ndim, "shape") }?;
        out.write(TensorHandle::give(ipc::allocate_tensor(DType::from_dlpack(dtype.0)?, shape)?));
        Ok(())
    })
}

/// How a tensor can be offered to other processes: as a view, with a copy, or not at all, and why. Nothing is taken.
#[ffi_export]
unsafe fn devx_ipc_plan_tensor(
    tensor: *const TensorHandle,
    out: Option<Out<'_, PlanRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        out.write(PlanRecord(ipc::plan_tensor(&tensor).to_raw()));
        Ok(())
    })
}

/// As `devx_ipc_plan_tensor`, for a batch. Memory in more than 64 pieces needs a copy; a batch whose fields take more than 16 MiB
/// to describe cannot be offered.
#[ffi_export]
unsafe fn devx_ipc_plan_batch(
    batch: *const BatchHandle,
    out: Option<Out<'_, PlanRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        out.write(PlanRecord(ipc::plan_batch(&batch).to_raw()));
        Ok(())
    })
}
