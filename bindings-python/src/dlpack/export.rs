//! Exports of tensors as capsules (array API, `__dlpack__`).

use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion};
use devexchange_core::dlpack::{self, Copying, Request, VERSION};
use devexchange_core::order::{self, Ready};
use devexchange_core::{Device, RawStream, Tensor as CoreTensor};
use pyo3::prelude::*;

use crate::dlpack::{capsule, version};
use crate::order::{raw_stream, stream};
use crate::python::error::{Result, refuse};
use crate::{copy, device};

/// The request of a consumer to `__dlpack__`.
pub(crate) struct Asked {
    pub(crate) stream: Option<RawStream>,
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) device: Option<Device>,
    pub(crate) copy: Option<bool>,
}

impl Asked {
    /// Reads the arguments of `__dlpack__`.
    pub(crate) fn read(
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<&Bound<'_, PyAny>>,
        dl_device: Option<&Bound<'_, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Self> {
        let max_version = max_version.map(version::from_python).transpose()?;
        let device = dl_device.map(device::asked).transpose()?;
        Ok(Self { stream: stream::optional(stream)?, max_version, device, copy })
    }
}

/// Exports a tensor in a capsule. A legacy consumer cannot be told that memory is read-only or a copy, so it gets a copy only
/// if it asked for one.
pub(crate) fn export<'py>(py: Python<'py>, tensor: CoreTensor, asked: &Asked) -> Result<Bound<'py, PyAny>> {
    let source = tensor.device();
    let target = asked.device.unwrap_or(source);
    if target != source && asked.copy == Some(false) {
        return refuse!(DEVX_COPY_REQUIRED, "dl_device is {target}: the data is on {source}, and copy is False");
    }
    let either = if source.has_streams() { source } else { target };
    let stream = asked.stream.unwrap_or_else(|| raw_stream::default(either));
    order::check_stream(either, stream.value())?;
    let tensor = if target != source || asked.copy == Some(true) {
        copy::tensor(py, &tensor, target, Some(stream))?
    } else {
        tensor
    };
    if asked.stream.is_none() && target.is_host() {
        wait_on_host(py, &tensor)?;
    }
    let (major, minor) = asked.max_version.unwrap_or_default();
    let request = Request {
        max_version: DLPackVersion { major, minor },
        // The host has already waited for a copy in its own memory.
        stream: if target.has_streams() { stream } else { RawStream::NO_SYNC },
        copy: Copying::Never,
    };
    if major >= VERSION.major {
        capsule::give(py, dlpack::export::<DLManagedTensorVersioned>(tensor, &request)?)
    } else {
        capsule::give(py, dlpack::export::<DLManagedTensor>(tensor, &request)?)
    }
}

/// Waits for memory that the host can read: a consumer that names no stream may have none (like NumPy), and read at once.
fn wait_on_host(py: Python<'_>, tensor: &CoreTensor) -> Result<()> {
    if matches!(tensor.ready(), Ready::Now) || !tensor.device().has_streams() {
        return Ok(());
    }
    let legacy = tensor.stream(RawStream::LEGACY)?;
    Ok(py.detach(|| tensor.wait(legacy).and_then(|()| legacy.synchronize()))?)
}
