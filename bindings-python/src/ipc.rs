//! Tensors and batches shared with other processes of this machine: what the module `devexchange.ipc` names.

use std::cell::Cell;
use std::path::PathBuf;

use devexchange_core::ipc::{self, Client as CoreClient, Server as CoreServer};
use devexchange_core::{Batch, Tensor as CoreTensor};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::arrow::batch::{self, RecordBatch};
use crate::dlpack::import;
use crate::dlpack::wanted::Wanted;
use crate::python::call::call_if_there;
use crate::python::error::{Error, Result, refuse, wrong_type};
use crate::python::handle::Handle;
use crate::python::waiting::seconds;
use crate::python::{aside, queue};
use crate::tensor::Tensor;
use crate::tensor::type_object::New;
use crate::{convert, dtype, shape};

/// Where a server listens: a path, as `str` or `os.PathLike`, or "@" and a name.
fn address_of(given: &Bound<'_, PyAny>) -> Result<String> {
    let path = match given.is_instance_of::<PyString>() {
        true => Some(given.clone()),
        false => call_if_there(given, intern!(given.py(), "__fspath__"))?,
    };
    let Some(path) = path.filter(|path| path.is_instance_of::<PyString>()) else {
        return wrong_type!("address is {given:?}: a str, or an os.PathLike that gives one, was expected");
    };
    match path.extract::<PathBuf>()?.into_os_string().into_string() {
        Ok(address) => Ok(address),
        Err(address) => refuse!(DEVX_INVALID_TEXT, "address is {address:?}: not valid Unicode"),
    }
}

thread_local! {
    /// What a signal's handler raised while this thread waited.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Makes a call that waits for another process. Python's main thread handles signals meanwhile (PEP 475), and raises what
/// their handlers raise.
fn waiting<T: Send>(py: Python<'_>, call: impl FnOnce() -> devexchange_core::Result<T> + Send) -> Result<T> {
    let raises = || {
        let raised = Python::try_attach(|py| py.check_signals().map_err(|raised| RAISED.set(Some(raised))).is_err());
        // Without an interpreter there is nothing to handle.
        raised.unwrap_or(false)
    };
    let done = py.detach(|| ipc::interruptible(raises, call));
    match RAISED.take() {
        Some(raised) => Err(Error::Python(raised)),
        None => Ok(done?),
    }
}

/// What can be shared.
enum Thing {
    Tensor(CoreTensor),
    Batch(Batch),
}

impl Thing {
    fn of(obj: &Bound<'_, PyAny>) -> Result<Self> {
        if let Ok(tensor) = obj.cast::<Tensor>() {
            return Ok(Self::Tensor(tensor.get().get()?));
        }
        if let Some(batch) = batch::offered(obj)? {
            return Ok(Self::Batch(batch));
        }
        if obj.hasattr("__dlpack__")? {
            queue::drain();
            return Ok(Self::Tensor(import::import(obj, &Wanted::default())?));
        }
        wrong_type!("{} has neither __arrow_c_device_array__, __arrow_c_array__ nor __dlpack__", obj.get_type())
    }
}

/// How `Server.offer` would offer a tensor or batch: as a view, with a copy, or not at all, and why.
#[pyfunction]
#[pyo3(signature = (thing, /))]
pub(crate) fn plan_offer<'py>(py: Python<'py>, thing: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let plan = match Thing::of(thing)? {
        Thing::Tensor(tensor) => ipc::plan_tensor(&tensor),
        Thing::Batch(batch) => ipc::plan_batch(&batch),
    };
    convert::plan(py, plan)
}

/// A tensor in host memory that can be offered to other processes without a copy: compact, row-major, zeroed. `shape`
/// is an extent or several; `dtype` is as for `empty`.
///
/// Raises ValueError for shapes and types that cannot be, MemoryError.
#[pyfunction]
#[pyo3(signature = (shape, dtype))]
pub(crate) fn empty_shared(py: Python<'_>, shape: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> Result<New> {
    let shape = shape::from_python(shape)?;
    let dtype = dtype::from_python(dtype)?;
    Ok(New(py.detach(|| ipc::allocate_tensor(dtype, &shape))?))
}

/// Offers tensors and batches under names to other processes of the same user, at an address: the path of a socket,
/// or "@" and a name that no file stands for. A thread of the library answers them, and needs no Python for it.
///
/// What was given stays valid until the importer has released it or is gone. `close`, or a `with` block, ends the
/// offers. When this process ends, host memory that was given stays valid, device memory does not.
///
/// Raises ValueError for an address that is none, OSError for one that is in use.
#[pyclass(frozen, module = "devexchange.ipc", weakref)]
pub(crate) struct Server {
    server: Handle<CoreServer>,
    /// Where it listens.
    #[pyo3(get)]
    address: String,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (address, /))]
    fn new(py: Python<'_>, address: &Bound<'_, PyAny>) -> Result<Self> {
        let address = address_of(address)?;
        let server = py.detach(|| CoreServer::bind(&address))?;
        Ok(Self { server: Handle::new("server", server), address })
    }

    /// Offers a tensor or batch under a name, in place of what had that name: a `Tensor`, a `RecordBatch`, or an object
    /// with the methods of Arrow arrays or of DLPack. Importers get the same memory, and wait for what is queued now.
    ///
    /// Host memory that is not from `empty_shared` or from another process has to be copied, and so has pinned and managed
    /// memory, and device memory of a pool that is not made to be shared: `copy` is True for a copy in any case, False
    /// for none in any case, None for one where it is needed. `plan` says which it would be. Importers cannot write host
    /// memory of batches and of read-only tensors.
    ///
    /// Raises BufferError for memory that has to be copied where `copy` is False, ValueError for a name that is empty or
    /// too long.
    #[pyo3(signature = (name, thing, /, *, copy=None))]
    fn offer(&self, py: Python<'_>, name: &str, thing: &Bound<'_, PyAny>, copy: Option<bool>) -> Result<()> {
        let (server, thing, copying) = (self.server.get()?, Thing::of(thing)?, convert::copying(copy));
        py.detach(|| match &thing {
            Thing::Tensor(tensor) => server.offer_tensor(name, tensor, copying),
            Thing::Batch(batch) => server.offer_batch(name, batch, copying),
        })?;
        queue::drain();
        Ok(())
    }

    /// Ends an offer; whether there was one. What was given of it stays valid.
    ///
    /// Raises BufferError in a child of a fork, as `offer` does: what is offered is its parent's.
    #[pyo3(signature = (name, /))]
    fn withdraw(&self, name: &str) -> Result<bool> {
        let withdrawn = self.server.get()?.withdraw(name)?;
        queue::drain();
        Ok(withdrawn)
    }

    /// How much was given to importers that they have not released yet. What one of them imports again with the same client
    /// while it holds it counts once, unless an offer has changed.
    #[getter]
    fn leases(&self) -> Result<i64> {
        Ok(self.server.get()?.leases())
    }

    /// Ends all offers. Closing again does nothing.
    fn close(&self, py: Python<'_>) {
        // It waits for the thread to be done with the address.
        self.server.close_apart(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let closed = if self.server.get().is_err() { " closed" } else { "" };
        format!("<devexchange.ipc.Server {:?}{closed}>", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        aside::quietly(|py| self.close(py));
    }
}

/// A connection to the `Server` at an address. What is imported may outlive it, and is given back to the exporter when
/// its last user is gone, after the work that was named with `used_on`.
///
/// An exporter is trusted as a producer in this process is: that the memory holds what it says (the offsets of a batch are
/// followed as they are), and that nobody writes it while it is read here. Nothing can check that.
///
/// The exporter has `timeout` seconds to let this process in, and for each answer; None is for as long as it takes. Python's
/// main thread handles signals meanwhile: `KeyboardInterrupt` ends the call, not the connection.
///
/// Raises OSError if nobody listens there, or a process of another user; TimeoutError if it does not answer in time,
/// ValueError for what is no address or no answer, BufferError if the exporter speaks another version.
#[pyclass(frozen, module = "devexchange.ipc", weakref)]
pub(crate) struct Client {
    client: Handle<CoreClient>,
    /// Where the exporter listens.
    #[pyo3(get)]
    address: String,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (address, /, *, timeout=10.0))]
    fn new(py: Python<'_>, address: &Bound<'_, PyAny>, timeout: Option<f64>) -> Result<Self> {
        let address = address_of(address)?;
        let timeout = seconds(timeout)?;
        let client = waiting(py, || CoreClient::connect(&address, timeout))?;
        Ok(Self { client: Handle::new("client", client), address })
    }

    /// The tensor that is offered under a name, without a copy.
    ///
    /// Raises ValueError if there is none or the exporter is gone, TimeoutError if it does not answer in time, TypeError if
    /// it is a batch, BufferError for a device that this process does not see.
    #[pyo3(signature = (name, /))]
    fn tensor(&self, py: Python<'_>, name: &str) -> Result<New> {
        queue::drain();
        let client = self.client.get()?;
        // SAFETY: the exporter vouches for it, as who connects is told.
        Ok(New(waiting(py, || unsafe { client.import_tensor(name) })?))
    }

    /// As `tensor`, for a batch.
    #[pyo3(signature = (name, /))]
    fn batch(&self, py: Python<'_>, name: &str) -> Result<RecordBatch> {
        queue::drain();
        let client = self.client.get()?;
        // SAFETY: the exporter vouches for it, as who connects is told.
        Ok(RecordBatch::new(waiting(py, || unsafe { client.import_batch(name) })?))
    }

    /// Gives the connection up. What was imported stays valid. Closing again does nothing.
    fn close(&self) {
        self.client.close();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        let closed = if self.client.get().is_err() { " closed" } else { "" };
        format!("<devexchange.ipc.Client {:?}{closed}>", self.address)
    }
}
