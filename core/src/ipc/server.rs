//! The exporter: offers tensors and batches under names, and keeps what it gave alive until the importer releases it or is
//! gone.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::export::{Exported, export_batch, export_tensor};
use super::message::check_name;
use super::offers::Shared;
use super::serving::{Loop, is_thread_of};
use super::socket::Socket;
use super::socket_file::SocketFile;
use crate::arrow::Batch;
use crate::dlpack::Copying;
use crate::error::{Error, Result, refuse};
use crate::memory::{Slab, TailSize, string};
use crate::tensor::Tensor;
use crate::thread;

/// How long the end of a server waits for its address to become free if its thread is busy with a release.
const AT_END: Duration = Duration::from_secs(1);

/// Offers tensors and batches to other processes of this machine; its own thread answers them.
///
/// Cloning shares the server. When the last reference goes, the offers end; what was given stays valid until its importers
/// release it. The drop waits until the address is free again, for a second at most. When this process ends, host memory that
/// was given stays valid, device memory does not.
#[derive(Clone, Debug)]
pub struct Server(Slab<Offering>);

crate::memory::held_by_bindings!(Server, "server");

// Whoever takes a lock of it after a panic finds each change done or not begun.
impl UnwindSafe for Server {}
impl RefUnwindSafe for Server {}

#[derive(Debug)]
struct Offering {
    shared: Slab<Shared>,
    file: Option<SocketFile>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at an address: a path, or `@` and a name in the kernel's name space of sockets. Only processes of the same user
    /// can connect.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for an invalid address, `DEVX_SYSTEM` for example if it is in use; `DEVX_OUT_OF_MEMORY`.
    pub fn bind(address: &str) -> Result<Self> {
        let (block, shared) = (Slab::room(TailSize::default())?, Slab::room(TailSize::default())?);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::system("eventfd", errno))?;
        let shared = shared.fill(Shared::new(wake));
        let own = Loop::new(shared.clone())?;
        let listener = Socket::listen(address)?;
        let file = (!address.starts_with('@')).then(|| SocketFile::bound(address)).transpose()?;
        // From here on, dropping `offering` frees the address.
        let mut offering = Offering { shared, file, thread: None };
        match thread::spawn("devexchange-ipc", move || own.run(listener)) {
            Ok(thread) => offering.thread = Some(thread),
            Err(error) => return refuse!(DEVX_SYSTEM, "the thread of the server: {error}"),
        }
        Ok(Self(block.fill(offering)))
    }

    /// Offers a tensor under a name, in place of any earlier offer of that name. It is shared as it is now: an importer's
    /// stream waits for the work that the producer has queued until this call. Importers can write host memory unless the
    /// tensor is read-only: agree with them that they do not while anyone holds a slice of it ([`Tensor::as_slice`]).
    ///
    /// # Errors
    /// Those of [`export_tensor`]; `DEVX_INVALID_ARGUMENT` for a name that is empty or too long, `DEVX_INVALID_TEXT` for one
    /// with a NUL byte; `DEVX_UNSUPPORTED` in a fork of the process that made the server.
    pub fn offer_tensor(&self, name: &str, tensor: &Tensor, copying: Copying) -> Result<()> {
        self.offer(name, || export_tensor(tensor, copying))
    }

    /// Like [`Server::offer_tensor`], but for a batch.
    ///
    /// # Errors
    /// Same as [`Server::offer_tensor`].
    pub fn offer_batch(&self, name: &str, batch: &Batch, copying: Copying) -> Result<()> {
        self.offer(name, || export_batch(batch, copying))
    }

    fn require_own(&self) -> Result<()> {
        let shared = self.0.header().shared.header();
        if shared.is_of_parent() {
            return refuse!(DEVX_UNSUPPORTED, "the server is of process {}, of which this is a fork", shared.process);
        }
        Ok(())
    }

    fn offer(&self, name: &str, export: impl FnOnce() -> Result<Exported>) -> Result<()> {
        // The handle that `self` was borrowed from may be released meanwhile.
        let held = self.clone();
        held.require_own()?;
        check_name(name)?;
        let exported = export()?;
        let shared = held.0.header().shared.header();
        let (name, exported) = (string(name)?, Slab::new(exported, TailSize::default())?);
        let before = shared.offers().room()?.insert(name, exported);
        shared.count_change();
        // Dropped without the lock, because its release can run anyone's code.
        drop(before);
        Ok(())
    }

    /// Ends an offer and returns whether there was one. What was given of it stays valid.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` in a fork of the process that made the server; the parent still offers it.
    pub fn withdraw(&self, name: &str) -> Result<bool> {
        let held = self.clone();
        held.require_own()?;
        let shared = held.0.header().shared.header();
        let before = shared.offers().remove(name);
        before.iter().for_each(|_| shared.count_change());
        Ok(before.is_some())
    }

    /// Returns how many leases were given and are not released yet. What an importer holds and imports again over the same
    /// connection counts once, unless an offer has changed.
    pub fn leases(&self) -> i64 {
        self.0.header().shared.header().leases.load(SeqCst)
    }
}

impl Drop for Offering {
    fn drop(&mut self) {
        let shared = self.shared.header();
        if shared.is_of_parent() {
            // The thread does not exist in this process, and another thread may have its handle; detaching would detach that
            // one.
            std::mem::forget(self.thread.take());
            return;
        }
        if let Some(file) = &self.file {
            file.remove();
        }
        let offers = {
            let mut offers = shared.offers();
            // At once, so that a request that finds no offer fails with the right reason.
            shared.closed.store(true, SeqCst);
            std::mem::take(&mut *offers)
        };
        drop(offers);
        shared.count_change();
        let _ = rustix::io::write(&shared.wake, &1_u64.to_ne_bytes());
        // On the server's own thread, a release may be what drops the server.
        if self.thread.is_some() && !is_thread_of(shared) {
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
