//! The exporting side: a tensor or batch as a descriptor with its file descriptors, if necessary from a copy in memory that can
//! be shared.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;

use super::descriptor::{BatchPart, Descriptor, Place, Region, RegionKind, TensorPart, What};
use super::memory;
use super::regions::{Found, Regions};
use crate::abi::types::DEVX_COPY_REQUIRED;
use crate::arrow::Batch;
use crate::convert::{Plan, impossible_as, in_words};
use crate::device::{Device, DeviceType};
use crate::dlpack::Copying;
use crate::error::{Error, Result};
use crate::ledger::{Entry, Kind};
use crate::memory::{Counted, Owner, Vacant, collected, vector};
use crate::order::Ready;
use crate::runtime::cuda::ipc::{How, Shared};
use crate::runtime::cuda::{Event, info};
use crate::stream::{RawStream, Stream};
use crate::tensor::{Flags, Tensor};

/// A tensor or batch in the form that another process imports: the bytes of its descriptor, and the file descriptors that go
/// with them. The memory stays valid as long as this value lives; keep it for as long as the importer uses the memory.
#[derive(Debug)]
pub struct Exported {
    descriptor: Vec<u8>,
    fds: Vec<Counted<OwnedFd>>,
    kind: Kind,
    _event: Option<Event>,
    _kept: Owner,
}

impl Exported {
    /// Returns the bytes for [`super::import_tensor`] or [`super::import_batch`].
    pub fn descriptor(&self) -> &[u8] {
        &self.descriptor
    }

    /// Returns the file descriptors that go with the descriptor, in this order.
    pub(super) fn files(&self) -> &[Counted<OwnedFd>] {
        &self.fds
    }

    /// Counts one more export of this kind in the ledger.
    pub(super) fn entry(&self) -> Entry {
        Entry::open(self.kind)
    }
}

/// Says how a tensor can be exported: as it is, or only from a copy in memory that can be shared.
pub fn plan_tensor(tensor: &Tensor) -> Plan {
    plan_of(tensor)
}

/// Like [`plan_tensor`], but for a batch. To find the size of a copy, the last offsets of texts may be read; if they are on a
/// device, the host waits for them. Memory in more than [`MAX_REGIONS`](super::MAX_REGIONS) pieces has to be copied. A batch
/// whose fields do not fit into a descriptor ([`MAX_BYTES`](super::MAX_BYTES)) cannot be exported at all.
pub fn plan_batch(batch: &Batch) -> Plan {
    plan_of(batch)
}

fn plan_of(given: &impl Exportable) -> Plan {
    let seen = given.describe(&mut Regions::of(given.device()));
    plan(given, seen.map(drop)).unwrap_or_else(|error| impossible(&error))
}

fn impossible(error: &Error) -> Plan {
    Plan::Impossible { reason: in_words(format_args!("{error}")) }
}

/// Says how `given` can be exported, from whether it can be described as it is (`seen`). A failure of the driver is an error,
/// not a plan.
fn plan(given: &impl Exportable, seen: Result<()>) -> Result<Plan> {
    let failed = |error: Error| if error.driver_code() == 0 { impossible_as(error) } else { Err(error) };
    match seen {
        Ok(()) => Ok(Plan::View),
        Err(why) if why.status() == DEVX_COPY_REQUIRED => match given.bytes_to_copy() {
            Ok(bytes) => Ok(Plan::Copy { bytes, reason: in_words(format_args!("{why}")) }),
            Err(error) => failed(error),
        },
        Err(error) => failed(error),
    }
}

/// Exports a tensor. Host memory of [`super::allocate_tensor`] or of another process, device memory of this process, and memory
/// of pools that were made to be shared are exported as they are. All other memory is copied if that is allowed: host memory
/// into a memory file; pinned, managed and device memory into plain device memory, in the order of the producer's stream, and
/// the importer waits for the copy. A tensor that is [`Flags::READ_ONLY`] stays read-only, even as a copy, because all
/// importers share the copy.
///
/// # Errors
/// `DEVX_COPY_REQUIRED`, `DEVX_IMPOSSIBLE` with the reason; `DEVX_OUT_OF_MEMORY`, `DEVX_DRIVER`, `DEVX_SYSTEM`.
pub fn export_tensor(tensor: &Tensor, copying: Copying) -> Result<Exported> {
    export(tensor, copying)
}

/// Like [`export_tensor`], but for a batch. The importer cannot write host memory. To copy texts on a device, their last
/// offsets are read first, and the host waits for them. The limits of [`plan_batch`] on pieces and fields apply here, too.
///
/// # Errors
/// Same as [`export_tensor`].
pub fn export_batch(batch: &Batch, copying: Copying) -> Result<Exported> {
    export(batch, copying)
}

/// Copies a host batch into one block of memory that can be shared.
///
/// # Errors
/// `DEVX_DEVICE` for device memory, `DEVX_INVALID_BUFFERS`, `DEVX_OUT_OF_MEMORY`, `DEVX_SYSTEM`.
pub fn copy_batch(batch: &Batch) -> Result<Batch> {
    batch.copy_on_host(memory::block)
}

/// A tensor or a batch.
trait Exportable: Clone + Send + 'static {
    fn device(&self) -> Device;
    /// Returns the device of its default streams.
    fn device_of_streams(&self) -> Device;
    fn ready(&self) -> &Ready;
    /// For a new one, to which there is no second reference yet.
    fn set_ready(&mut self, ready: Ready);
    fn used_until(&self, event: Event) -> Result<()>;
    /// Returns what is written into the descriptor.
    fn describe(&self, regions: &mut Regions) -> Result<What>;
    /// Returns what the descriptor says of `copy`, which all importers share: if `self` must not be written, `copy` must not
    /// either.
    fn describe_copy(&self, copy: &Self, regions: &mut Regions) -> Result<What>;
    fn bytes_to_copy(&self) -> Result<usize>;
    /// Copies host memory into a memory file.
    fn copy_on_host(&self) -> Result<Self>;
    /// Copies into plain memory of a device; the copy is queued on a stream.
    fn copy_on_device(&self, device: Device, stream: Stream) -> Result<Self>;
}

impl Exportable for Tensor {
    fn device(&self) -> Device {
        self.device()
    }

    fn device_of_streams(&self) -> Device {
        self.device_of(RawStream::LEGACY)
    }

    fn ready(&self) -> &Ready {
        self.ready()
    }

    fn set_ready(&mut self, ready: Ready) {
        self.set_ready(ready);
    }

    fn used_until(&self, event: Event) -> Result<()> {
        self.used_until(event)
    }

    fn describe(&self, regions: &mut Regions) -> Result<What> {
        let spot = regions.tensor(self)?;
        let numbers = |all: &[i64]| collected(all.iter().copied().map(Ok));
        let (shape, strides) = (numbers(self.shape())?, numbers(self.strides())?);
        Ok(What::Tensor(TensorPart { dtype: self.dtype(), flags: self.flags(), shape, strides, spot }))
    }

    fn describe_copy(&self, copy: &Self, regions: &mut Regions) -> Result<What> {
        let mut what = copy.describe(regions)?;
        if let What::Tensor(part) = &mut what
            && self.flags().has(Flags::READ_ONLY)
        {
            part.flags = part.flags.with(Flags::READ_ONLY);
        }
        Ok(what)
    }

    fn bytes_to_copy(&self) -> Result<usize> {
        if self.device() != Device::CPU {
            return Ok(self.span_bytes());
        }
        self.ready().require_now()?;
        Ok(self.layout().bytes)
    }

    fn copy_on_host(&self) -> Result<Self> {
        self.copy_on_host(memory::block)
    }

    fn copy_on_device(&self, device: Device, stream: Stream) -> Result<Self> {
        self.copy_span(device, stream, None)
    }
}

impl Exportable for Batch {
    fn device(&self) -> Device {
        self.device()
    }

    fn device_of_streams(&self) -> Device {
        self.device_of(RawStream::LEGACY)
    }

    fn ready(&self) -> &Ready {
        self.ready()
    }

    fn set_ready(&mut self, ready: Ready) {
        self.set_ready(ready);
    }

    fn used_until(&self, event: Event) -> Result<()> {
        self.used_until(event)
    }

    fn describe(&self, regions: &mut Regions) -> Result<What> {
        BatchPart::require_room(self.schema(), |node| self.buffers(node).len())?;
        let nodes = regions.batch(self)?;
        Ok(What::Batch(BatchPart { schema: self.schema().clone(), nodes }))
    }

    fn describe_copy(&self, copy: &Self, regions: &mut Regions) -> Result<What> {
        copy.describe(regions)
    }

    fn bytes_to_copy(&self) -> Result<usize> {
        if self.device() == Device::CPU {
            return self.copy_bytes(None);
        }
        behind_producer(self, |stream| self.copy_bytes(Some(stream)))
    }

    fn copy_on_host(&self) -> Result<Self> {
        copy_batch(self)
    }

    fn copy_on_device(&self, device: Device, stream: Stream) -> Result<Self> {
        self.copy_to_one_block(device, stream)
    }
}

/// Calls `act` with a stream on which work comes after the producer's: the producer's own stream, so that the work it queues
/// next comes after that of `act`, or else a new stream that waits.
fn behind_producer<T>(given: &impl Exportable, act: impl FnOnce(Stream) -> Result<T>) -> Result<T> {
    match given.ready().stream() {
        Some(queued) => queued.require_no_capture().and_then(|()| act(queued)),
        None => on_own_stream(given.device_of_streams(), act),
    }
}

/// Calls `act` with a new stream, which ends afterwards; the work queued there is still done.
fn on_own_stream<T>(device: Device, act: impl FnOnce(Stream) -> Result<T>) -> Result<T> {
    let stream = Stream::create(device.id)?;
    let done = act(stream);
    stream.end();
    done
}

fn export<T: Exportable>(given: &T, copying: Copying) -> Result<Exported> {
    let mut regions = Regions::of(given.device());
    match (given.describe(&mut regions), copying) {
        (Ok(what), Copying::Never | Copying::IfNeeded) => finish(given.clone(), order(given)?, regions, what),
        (seen, _) => {
            let code = seen.as_ref().map_or_else(Error::driver_code, |_| 0);
            plan(given, seen.map(drop))?.allow(copying).map_err(|error| error.with_driver_code(code))?;
            let device = given.device();
            if device == Device::CPU {
                return share(given, given.copy_on_host()?);
            }
            let target = Device { kind: DeviceType::CUDA, id: given.device_of_streams().id };
            behind_producer(given, |stream| given.copy_on_device(target, stream).and_then(|copy| share(given, copy)))
        }
    }
}

/// Exports a copy in memory that can be shared.
fn share<T: Exportable>(given: &T, mut copy: T) -> Result<Exported> {
    let mut regions = Regions::of(copy.device());
    let what = given.describe_copy(&copy, &mut regions)?;
    let event = order(&copy)?;
    // From now on the event says when the copy is ready. Its stream, which may be a new one, can end.
    copy.set_ready(Ready::Now);
    finish(copy, event, regions, what)
}

fn finish<T: Exportable>(given: T, event: Option<Event>, all: Regions, what: What) -> Result<Exported> {
    let (kind, may_write) = match &what {
        What::Tensor(part) => (Kind::TensorExport, !part.flags.has(Flags::READ_ONLY)),
        What::Batch(_) => (Kind::BatchExport, false),
    };
    let (mut regions, mut fds) = (vector(all.found.len())?, vector(all.found.len())?);
    let mut at = all.device;
    for found in all.found {
        let bytes = found.range().1 as u64;
        let kind = match found {
            Found::Host(mapping) => {
                let writable = may_write && mapping.is_writable();
                fds.push(mapping.descriptor(writable)?);
                RegionKind::Host { writable }
            }
            Found::Cuda(Shared { how, ordinal, .. }) => {
                at.id = ordinal;
                match how {
                    How::Allocation(handle) => RegionKind::Cuda(handle),
                    How::Pool { pool, pointer, fd } => {
                        fds.push(Counted::room()?.fill(fd));
                        RegionKind::Pool { pool, pointer }
                    }
                }
            }
        };
        regions.push(Region { bytes, kind });
    }
    let place = if at == Device::CPU { Place::Host } else { Place::Cuda(info::uuid(at.id)?) };
    let order = event.as_ref().map(Event::ipc_handle).transpose()?;
    let descriptor = Descriptor { place, order, regions, what }.encode()?;
    Ok(Exported { descriptor, fds, kind, _event: event, _kept: Owner::in_room(Vacant::new()?, given) })
}

/// Returns the event that another process waits for; `None` if the data is ready.
fn order(given: &impl Exportable) -> Result<Option<Event>> {
    let ready = given.ready();
    if let Ready::Now = ready {
        return Ok(None);
    }
    let event = match ready.stream() {
        Some(queued) => queued.require_no_capture().and_then(|()| Event::record_shared(queued)),
        // An event of this process cannot be shared. One that can is recorded behind it, on a new stream.
        None => {
            let record = |stream| ready.wait(stream).and_then(|()| Event::record_shared(stream));
            on_own_stream(given.device(), record)
        }
    }?;
    // The importer may release the memory unseen, while the producer still works on it.
    given.used_until(event.clone())?;
    Ok(Some(event))
}
