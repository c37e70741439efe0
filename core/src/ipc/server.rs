//! The exporter: offers tensors and batches under names, and keeps what it gave alive until the importer releases it or
//! is gone.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::export::{Exported, export_batch, export_tensor};
use super::message::check_name;
use super::offers::Shared;
use super::serving::{Loop, SERVING};
use super::socket::Socket;
use super::socket_file::SocketFile;
use crate::arrow::Batch;
use crate::dlpack::Copying;
use crate::error::{Error, Result, refuse};
use crate::memory::{Slab, TailSize, string};
use crate::tensor::Tensor;
use crate::thread;

/// How long the end of a server waits for its address to be free, if its thread is busy with somebody's release.
const AT_END: Duration = Duration::from_secs(1);

/// Offers tensors and batches to other processes of this machine. A thread of its own answers them.
///
/// Cloning shares it. With the last reference the offers end; what was given stays valid until its importers release
/// it. When this process ends, host memory that was given stays valid, device memory does not.
#[derive(Clone, Debug)]
pub struct Server(Slab<Offering>);

crate::memory::held_by_bindings!(Server, "server");

#[derive(Debug)]
struct Offering {
    shared: Slab<Shared>,
    file: Option<SocketFile>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at an address: a path, or `@` and a name in the kernel's name space of sockets. For processes of the
    /// same user.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for an address that is none, `DEVX_SYSTEM` if it is in use, for example;
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn bind(address: &str) -> Result<Self> {
        let (block, shared) = (Slab::room(TailSize::default())?, Slab::room(TailSize::default())?);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::system("eventfd", errno))?;
        let shared = shared.fill(Shared::new(wake));
        let own = Loop::new(shared.clone())?;
        let listener = Socket::listen(address)?;
        let file = (!address.starts_with('@')).then(|| SocketFile::bound(address)).transpose()?;
        // From here on its end frees the address.
        let mut offering = Offering { shared, file, thread: None };
        match thread::spawn("devexchange-ipc", move || own.run(listener)) {
            Ok(thread) => offering.thread = Some(thread),
            Err(error) => return refuse!(DEVX_SYSTEM, "the thread of the server: {error}"),
        }
        Ok(Self(block.fill(offering)))
    }

    /// Offers a tensor under a name, in place of what had that name. It is shared as it is now: an importer's stream
    /// waits for what the producer has queued until this call. Importers can write host memory unless the tensor is
    /// read-only; that they do not while somebody holds a slice of it ([`Tensor::as_slice`]) is to be agreed with them.
    ///
    /// # Errors
    /// As [`export_tensor`]; `DEVX_INVALID_ARGUMENT` for a name that is empty or too long; `DEVX_UNSUPPORTED` in a fork of
    /// the process that made the server.
    pub fn offer_tensor(&self, name: &str, tensor: &Tensor, copying: Copying) -> Result<()> {
        // As the handle that this was borrowed from may be released meanwhile.
        let held = self.clone();
        held.require_own()?;
        check_name(name)?;
        held.offer(name, export_tensor(tensor, copying)?)
    }

    /// As [`Server::offer_tensor`], for a batch.
    ///
    /// # Errors
    /// As [`Server::offer_tensor`].
    pub fn offer_batch(&self, name: &str, batch: &Batch, copying: Copying) -> Result<()> {
        // As the handle that this was borrowed from may be released meanwhile.
        let held = self.clone();
        held.require_own()?;
        check_name(name)?;
        held.offer(name, export_batch(batch, copying)?)
    }

    fn require_own(&self) -> Result<()> {
        let shared = self.0.header().shared.header();
        if shared.is_of_parent() {
            return refuse!(DEVX_UNSUPPORTED, "the server is of process {}, of which this is a fork", shared.process);
        }
        Ok(())
    }

    fn offer(&self, name: &str, exported: Exported) -> Result<()> {
        let shared = self.0.header().shared.header();
        let (name, exported) = (string(name)?, Slab::new(exported, TailSize::default())?);
        let before = shared.offers().room()?.insert(name, exported);
        shared.count_change();
        // Its release may be anybody's code: not with the lock held.
        drop(before);
        Ok(())
    }

    /// Ends an offer; whether there was one. What was given of it stays valid.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` in a fork of the process that made the server, which still offers it.
    pub fn withdraw(&self, name: &str) -> Result<bool> {
        let held = self.clone();
        held.require_own()?;
        let shared = held.0.header().shared.header();
        let before = shared.offers().remove(name);
        before.iter().for_each(|_| shared.count_change());
        Ok(before.is_some())
    }

    /// How much was given and is not released yet. What an importer imports again over the same connection while it
    /// holds it counts once, unless an offer has changed.
    pub fn leases(&self) -> i64 {
        self.0.header().shared.header().leases.load(SeqCst)
    }
}

impl Drop for Offering {
    fn drop(&mut self) {
        let shared = self.shared.header();
        if shared.is_of_parent() {
            // The thread is not here, and another one may have its place: to detach it would be to detach that.
            std::mem::forget(self.thread.take());
            return;
        }
        if let Some(file) = &self.file {
            file.remove();
        }
        let offers = {
            let mut offers = shared.offers();
            // At once, so that who finds nothing knows why.
            shared.closed.store(true, SeqCst);
            std::mem::take(&mut *offers)
        };
        drop(offers);
        shared.count_change();
        let _ = rustix::io::write(&shared.wake, &1_u64.to_ne_bytes());
        // A release may be what drops the server, on its own thread.
        if self.thread.is_some() && !SERVING.get() {
            self.wait();
        }
    }
}

impl Offering {
    /// Waits until the address is free again, and for the thread if it has nothing left to do.
    fn wait(&mut self) {
        let shared = self.shared.header();
        let listening = shared.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = shared.changed.wait_timeout_while(listening, AT_END, |listening| *listening);
        let listening = waited.is_ok_and(|(listening, _)| *listening);
        if !listening
            && shared.leases.load(SeqCst) == 0
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}
