//! Tensors and batches shared with other processes of this machine: the contents of the module `devexchange.ipc`.

use std::cell::Cell;
use std::mem::ManuallyDrop;

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
use crate::python::{argument, aside, queue};
use crate::tensor::Tensor;
use crate::tensor::type_object::New;
use crate::{convert, dtype, shape};

/// Reads the address of a server: a path, as `str` or `os.PathLike`, or "@" and a name.
fn address_of<'py>(given: &Bound<'py, PyAny>) -> Result<Bound<'py, PyString>> {
    let path = match given.is_instance_of::<PyString>() {
        true => Some(given.clone()),
        false => call_if_there(given, intern!(given.py(), "__fspath__"))?,
    };
    match path.map(Bound::cast_into::<PyString>) {
        Some(Ok(address)) => Ok(address),
        _ => wrong_type!("address is {given:?}: a str, or an os.PathLike that gives one, was expected"),
    }
}

/// The text of an address.
fn text_of<'a>(address: &'a Bound<'_, PyString>) -> Result<&'a str> {
    match address.to_str() {
        Ok(text) => Ok(text),
        Err(_) => refuse!(DEVX_INVALID_TEXT, "address is {address:?}: not valid Unicode"),
    }
}

thread_local! {
    /// The exception that a signal handler raised while this thread waited. It has no destructor, so that a thread can wait
    /// while it ends. Afterwards there is nothing to drop.
    static RAISED: Cell<ManuallyDrop<Option<PyErr>>> = const { Cell::new(ManuallyDrop::new(None)) };
}

/// Makes a call that waits for another process. Python's main thread handles signals while it waits (PEP 475); an exception
/// of a handler ends the call and is raised.
fn waiting<T: Send>(py: Python<'_>, call: impl FnOnce() -> devexchange_core::Result<T> + Send) -> Result<T> {
    let raises = || {
        let keep = |raised| RAISED.set(ManuallyDrop::new(Some(raised)));
        let raised = Python::try_attach(|py| py.check_signals().map_err(keep).is_err());
        // Without an interpreter there are no signals to handle.
        raised.unwrap_or(false)
    };
    let done = py.detach(|| ipc::interruptible(raises, call));
    match ManuallyDrop::into_inner(RAISED.take()) {
        Some(raised) => Err(Error::Python(raised)),
        None => Ok(done?),
    }
}

/// A tensor or batch to be offered.
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
        if batch::has_stream(obj)? {
            return wrong_type!(
                "{} has only __arrow_c_stream__, of which from_arrow gives the batches one by one",
                obj.get_type()
            );
        }
        wrong_type!("{} has neither __arrow_c_device_array__, __arrow_c_array__ nor __dlpack__", obj.get_type())
    }
}

/// Returns how `Server.offer` would offer a tensor or batch: as a view, with a copy, or not at all, and why.
///
/// To tell the size of a copy of texts on a device, the host waits for their last offsets.
#[pyfunction]
#[pyo3(signature = (thing, /))]
pub(crate) fn plan_offer<'py>(py: Python<'py>, thing: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let plan = match Thing::of(thing)? {
        Thing::Tensor(tensor) => ipc::plan_tensor(&tensor),
        Thing::Batch(batch) => ipc::plan_batch(&batch),
    };
    convert::plan(py, plan)
}

/// Returns a tensor in host memory that can be offered to other processes without a copy.
///
/// It is compact, row-major and zeroed. `shape` is an extent or a sequence of extents; `dtype` is as for `empty`.
///
/// Raises ValueError for an invalid shape or type, MemoryError.
#[pyfunction]
#[pyo3(signature = (shape, dtype))]
pub(crate) fn empty_shared(py: Python<'_>, shape: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> Result<New> {
    let shape = shape::from_python(shape)?;
    let dtype = dtype::from_python(dtype)?;
    Ok(New(py.detach(|| ipc::allocate_tensor(dtype, &shape))?))
}

/// Offers tensors and batches under names to other processes of the same user.
///
/// The server listens at an address: the path of a socket, or "@" and a name without a file. A thread of the library answers
/// importers, without Python. If the process is killed, the file of a path stays, and a server at this path is refused until
/// the file is removed.
///
/// Memory that was given to an importer stays valid until the importer has released it or is gone. `close`, or a `with`
/// block, ends the offers. When this process ends, host memory that was given stays valid; device memory does not.
///
/// Raises ValueError for an invalid address, OSError for one that is in use.
#[pyclass(frozen, module = "devexchange.ipc", weakref)]
pub(crate) struct Server {
    server: Handle<CoreServer>,
    /// The address at which the server listens.
    #[pyo3(get)]
    address: Py<PyString>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (address, /))]
    fn new(py: Python<'_>, address: &Bound<'_, PyAny>) -> Result<Self> {
        let address = address_of(address)?;
        let text = text_of(&address)?;
        let server = py.detach(|| CoreServer::bind(text))?;
        Ok(Self { server: Handle::new("server", server), address: address.unbind() })
    }

    /// Offers a tensor or batch under a name, replacing any earlier offer of that name.
    ///
    /// It is a `Tensor`, a `RecordBatch`, or an object with the methods of Arrow arrays or of DLPack. Importers get the same
    /// memory, and wait for the work that is queued now.
    ///
    /// Some memory has to be copied: host memory that is neither from `empty_shared` nor from another process, pinned and
    /// managed memory, and device memory of another process or of a pool that is not made to be shared. `copy` is True to
    /// always copy, False to never copy, None to copy only if needed. `plan` says which it would be. Importers cannot write
    /// host memory of batches and of read-only tensors.
    ///
    /// Raises BufferError for memory that has to be copied if `copy` is False, ValueError for a name that is empty or too
    /// long.
    #[pyo3(signature = (name, thing, /, *, copy=None))]
    fn offer(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        thing: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> Result<()> {
        let name = argument::text(name, "name is")?;
        let (server, thing, copying) = (self.server.get()?, Thing::of(thing)?, convert::copying(copy));
        py.detach(|| match &thing {
            Thing::Tensor(tensor) => server.offer_tensor(name, tensor, copying),
            Thing::Batch(batch) => server.offer_batch(name, batch, copying),
        })?;
        queue::drain();
        Ok(())
    }

    /// Ends an offer, and returns whether there was one.
    ///
    /// Memory that was given to importers stays valid.
    ///
    /// Raises BufferError in a child of a fork, as `offer` does, because the offers belong to its parent.
    #[pyo3(signature = (name, /))]
    fn withdraw(&self, name: &Bound<'_, PyAny>) -> Result<bool> {
        let withdrawn = self.server.get()?.withdraw(argument::text(name, "name is")?)?;
        queue::drain();
        Ok(withdrawn)
    }

    /// How many tensors and batches importers hold and have not released yet.
    ///
    /// If an importer that holds one imports it again with the same client, it counts once, unless an offer has changed.
    #[getter]
    fn leases(&self) -> Result<i64> {
        Ok(self.server.get()?.leases())
    }

    /// Ends all offers, and waits until the address is free again, for a second at most. Closing again does nothing.
    fn close(&self, py: Python<'_>) {
        // Closing waits until the thread is done with the address.
        self.server.close_apart(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// Refuses, for `pickle` and `copy`.
    fn __reduce__(&self) -> Result<()> {
        wrong_type!("a Server cannot be pickled: give other processes its address, for a Client")
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = if self.server.get().is_err() { " closed" } else { "" };
        format!("<devexchange.ipc.Server {:?}{closed}>", self.address.bind(py))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        aside::quietly(|py| self.close(py));
    }
}

/// A connection to the `Server` at an address.
///
/// Imports can outlive the connection. Each is given back to the exporter when its last user is gone, after the work named
/// with `used_on`.
///
/// The exporter is trusted like a producer in this process: that the memory holds what it says (the offsets of a batch are
/// followed as they are), and that nobody writes it while it is read here. Nothing can check that.
///
/// The exporter has `timeout` seconds to accept the connection, and for each answer; None is as long as it takes. Python's
/// main thread handles signals while it waits: `KeyboardInterrupt` ends the call, not the connection.
///
/// Raises OSError if nobody listens there, or only a process of another user; TimeoutError if the exporter does not answer in
/// time, ValueError for an invalid address or answer, BufferError if the exporter speaks another version, RuntimeError if it
/// has 512 importers already.
#[pyclass(frozen, module = "devexchange.ipc", weakref)]
pub(crate) struct Client {
    client: Handle<CoreClient>,
    /// The address at which the exporter listens.
    #[pyo3(get)]
    address: Py<PyString>,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (address, /, *, timeout=10.0))]
    fn new(
        py: Python<'_>,
        address: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument::timeout)] timeout: Option<f64>,
    ) -> Result<Self> {
        let address = address_of(address)?;
        let (text, timeout) = (text_of(&address)?, seconds(timeout)?);
        let client = waiting(py, || CoreClient::connect(text, timeout))?;
        Ok(Self { client: Handle::new("client", client), address: address.unbind() })
    }

    /// Imports the tensor that is offered under a name, without a copy.
    ///
    /// Raises ValueError if there is no such offer or the exporter is gone, TimeoutError if the exporter does not answer in
    /// time, TypeError if the offer is a batch, BufferError for a device that this process does not see, and in a child of a
    /// fork, because the connection belongs to its parent; RuntimeError if this client holds too much already, OSError if
    /// this process may open no more files.
    #[pyo3(signature = (name, /))]
    fn tensor(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> Result<New> {
        queue::drain();
        let name = argument::text(name, "name is")?;
        let client = self.client.get()?;
        // SAFETY: the exporter vouches for it, as the documentation of `Client` says.
        Ok(New(waiting(py, || unsafe { client.import_tensor(name) })?))
    }

    /// Imports the batch that is offered under a name; otherwise like `tensor`.
    #[pyo3(signature = (name, /))]
    fn batch(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> Result<RecordBatch> {
        queue::drain();
        let name = argument::text(name, "name is")?;
        let client = self.client.get()?;
        // SAFETY: the exporter vouches for it, as the documentation of `Client` says.
        Ok(RecordBatch::new(waiting(py, || unsafe { client.import_batch(name) })?))
    }

    /// Closes the connection; imports stay valid.
    ///
    /// Closing again does nothing.
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

    /// Refuses, for `pickle` and `copy`.
    fn __reduce__(&self) -> Result<()> {
        wrong_type!("a Client cannot be pickled: give the other process the address, for a Client of its own")
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = if self.client.get().is_err() { " closed" } else { "" };
        format!("<devexchange.ipc.Client {:?}{closed}>", self.address.bind(py))
    }
}
