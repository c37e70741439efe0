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
    /// An exporter, which offers tensors and batches by name to other processes of the same user. Any thread may use it.
    ServerHandle = "devx_ipc_server" of Server
}

handle! {
    /// A connection of an importer to an exporter. Any thread may use it.
    ClientHandle = "devx_ipc_client" of Client
}

/// Makes an exporter that listens at an address: the path of a socket, or '@' and a name without a file.
///
/// A thread of the library answers importers, at most 512 at once. Processes of other users are refused. DEVX_INVALID_ARGUMENT
/// for an invalid address (a path or a name has at most 107 bytes), DEVX_SYSTEM if it is in use, for example. If the process is
/// killed, the file of a path stays, and a server at this path is refused until the file is removed.
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

/// Offers a tensor under a name, in place of any offer that had that name.
///
/// The tensor is shared: importers get the same memory, which stays valid until the last of them has released it or is gone.
/// Their streams wait for the work that the tensor's producer has queued so far. A read-only tensor is read-only for importers,
/// too, even if it was copied. A name has 1 to 255 bytes.
///
/// Memory that cannot be shared is copied if `copy` (`DEVX_COPY_...`) allows it, and refused otherwise (DEVX_COPY_REQUIRED).
/// That is host memory that is neither from `devx_tensor_allocate_shared` nor imported from another process; and pinned memory,
/// managed memory, device memory of a pool that was not made to be shared, and device memory of another process, which are
/// copied into plain device memory, in the order of the producer's stream.
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

/// Like `devx_ipc_server_offer_tensor`, for a batch.
///
/// Importers cannot write memory of a batch that is in host memory. To copy texts on a device, the host waits for their last
/// offsets. Memory in more than 64 pieces (files, allocations) also needs a copy, which is one piece. The description of the
/// batch for importers takes at most 16 MiB: a batch with too many fields, or too long names and metadata, is refused
/// (DEVX_IMPOSSIBLE).
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

/// Ends an offer. What was imported from it stays valid.
///
/// `out`, which may be NULL, gets 1 if there was an offer with this name, otherwise 0. A child of a fork can neither make nor
/// end offers (DEVX_UNSUPPORTED): they are its parent's.
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

/// Gives the number of imports that are not released yet.
///
/// If an importer imports something again over the same connection while it still holds it, that counts once, unless an offer
/// has changed.
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

/// Ends all offers and sets the handle to NULL; what was imported stays valid until it is released. NULL and a
/// handle that is NULL are fine.
///
/// Waits until the address is free again, for a second at most. When the exporter's process ends, host memory that was imported
/// stays valid; device memory does not.
#[ffi_export]
unsafe fn devx_ipc_server_release(server: Option<&mut *mut ServerHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { ServerHandle::take(server) }));
}

/// Connects to the exporter at an address.
///
/// The exporter has `timeout_ns` nanoseconds for each answer: `DEVX_IPC_TIMEOUT_NS` if nothing else is known, negative for as
/// long as it takes. DEVX_SYSTEM if nobody listens there, or a process of another user does; DEVX_NOT_READY if there is no
/// answer in time; DEVX_CLOSED if the exporter ends meanwhile; DEVX_BUSY if it has 512 importers already; DEVX_VERSION if it
/// speaks another version; DEVX_INVALID_ARGUMENT for an invalid address.
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

/// Imports the tensor that is offered under a name, without a copy.
///
/// The tensor may outlive the client's handle. The exporter, and anybody else who can write the memory, must not write it
/// while it is read here; nothing can check that. DEVX_INVALID_ARGUMENT if nothing is offered under this name, DEVX_MISMATCH
/// if a batch is, DEVX_CLOSED if the exporter is gone, DEVX_NOT_READY if it does not answer in time, DEVX_BUSY if this client
/// already holds too much, DEVX_DEVICE if this process does not see the tensor's device, DEVX_SYSTEM if it cannot open any more
/// files, DEVX_UNSUPPORTED in a child of a fork: the connection is its parent's.
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
        // SAFETY: the exporter vouches for the memory, as the documentation says.
        out.write(TensorHandle::give(unsafe { client.import_tensor(name) }?));
        Ok(())
    })
}

/// Like `devx_ipc_client_import_tensor`, for a batch.
///
/// The batch's offsets and views are used as they are: like any producer, the exporter vouches for them.
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
        // SAFETY: the exporter vouches for the memory, as the documentation says.
        out.write(BatchHandle::give(unsafe { client.import_batch(name) }?));
        Ok(())
    })
}

/// Releases a connection and sets the handle to NULL. NULL and a handle that is NULL are fine.
///
/// What was imported stays valid, and an import that another thread has begun goes on.
#[ffi_export]
unsafe fn devx_ipc_client_release(client: Option<&mut *mut ClientHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { ClientHandle::take(client) }));
}

/// Makes a compact row-major host tensor over zeroed memory that can be offered to other processes without a copy.
///
/// It keeps a file descriptor open as long as it lives, and so does a host tensor that was imported from another process.
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

/// Tells how a tensor can be offered to other processes: as a view, with a copy, or not at all, and why. Nothing is taken.
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

/// Like `devx_ipc_plan_tensor`, for a batch.
///
/// Memory in more than 64 pieces needs a copy; a batch whose fields take more than 16 MiB to describe cannot be offered. To
/// tell the size of a copy of texts on a device, the host waits for their last offsets.
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
