//! The bytes that travel between two processes: where the memory of a tensor or batch is, and how it is laid out.
//!
//! ```text
//! "DEVXIPC\n"  version u32  kind u32 (1 tensor, 2 batch)  length u64 (all bytes)  checksum u64 (FNV-1a, itself as 0)
//! place:       0 host | 1 CUDA, UUID of the device [16]
//! order:       0 ready now | 1 after an event, its handle [64]
//! regions:     count, then each: kind u8, bytes u64, and
//!              0 host: writable u8 | 1 allocation of CUDA: handle [64] | 2 of a pool: pool u64, pointer [64]
//! tensor:      code u8, bits u8, lanes u16, flags u64, ndim u32, shape and strides i64 each, region u32, offset u64
//! batch:       fields: count, then each, depth-first: flags i64, children u32, dictionary u8, format, name,
//!              metadata (each with its length); then for each field the array: length, null count, offset (i64 each),
//!              buffers: count, then each: region u32 (all ones: none), offset u64, bytes u64
//! ```
//!
//! Everything is little-endian. Each region of kind 0 or 2 has one file descriptor; these are sent in the order of the regions.
//! A reader trusts nothing in a descriptor: [`Descriptor::decode`] takes any bytes, and everything it returns lies within the
//! regions.

#![forbid(unsafe_code)]

use std::ffi::CString;

use super::wire::{Reader, Writer};
use crate::abi::dlpack::DLDataType;
use crate::arrow::builder::described;
use crate::arrow::check::in_array;
use crate::arrow::schema::FieldDesc;
use crate::arrow::{MAX_NODES, Schema, metadata};
use crate::dtype::DType;
use crate::error::{Result, refuse};
use crate::layout::{self, MAX_NDIM};
use crate::memory::{collected, vector};
use crate::tensor::Flags;
use crate::text::Lossy;

/// The version that is written, and the only one that can be read.
pub const VERSION: u32 = 1;
/// Most bytes of a descriptor.
pub const MAX_BYTES: usize = 1 << 24;
/// Most regions of a descriptor, and therefore most file descriptors that go with it.
pub const MAX_REGIONS: usize = 64;

/// Most bytes before the tensor or batch itself: the head, the place, the order, and all regions as regions of a pool.
const MAX_HEAD: usize = 32 + 17 + 65 + 4 + MAX_REGIONS * (1 + 8 + 8 + 64);
/// Most bytes of the tensor or batch itself. This does not depend on the number of regions, so it is the same for a copy.
pub(super) const MAX_PART: usize = MAX_BYTES - MAX_HEAD;
/// Bytes of a field without its texts, of an array without its buffers, and of a buffer.
const FIELD: usize = 25;
const ARRAY: usize = 28;
const BUFFER: usize = 20;

const MAGIC: [u8; 8] = *b"DEVXIPC\n";
const LENGTH_AT: usize = 16;
const CHECKSUM_AT: usize = 24;
const NOWHERE: u32 = u32::MAX;

/// A handle of the driver as it travels: of memory, of a pool's pointer or of an event.
pub(crate) type Handle = [u8; 64];

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    /// A CUDA device, by its UUID, which is the same in every process.
    Cuda([u8; 16]),
}

/// A piece of memory that is shared as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) bytes: u64,
    pub(crate) kind: RegionKind,
}

/// How a region is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionKind {
    /// A memory file, whose descriptor goes with it.
    Host { writable: bool },
    /// An allocation of the driver.
    Cuda(Handle),
    /// An allocation of a pool, whose descriptor goes with it; the number identifies the pool among the exporter's.
    Pool { pool: u64, pointer: Handle },
}

impl RegionKind {
    /// Whether a file descriptor goes with the region.
    pub(crate) fn has_fd(self) -> bool {
        !matches!(self, Self::Cuda(_))
    }
}

/// The position of a byte in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) region: u32,
    pub(crate) offset: u64,
}

/// The tensor or batch that is described.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Tensor(TensorPart),
    Batch(BatchPart),
}

/// A tensor. The spot is that of its first element; `None` if it has no elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorPart {
    pub(crate) dtype: DType,
    pub(crate) flags: Flags,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) spot: Option<Spot>,
}

/// A batch, with its arrays in the depth-first order of the schema's fields.
#[derive(Clone, Debug)]
pub(crate) struct BatchPart {
    pub(crate) schema: Schema,
    pub(crate) nodes: Vec<NodePart>,
}

/// One array of a batch. A buffer that is NULL is `None`; the number beside each spot is the buffer's size in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePart {
    pub(crate) length: i64,
    pub(crate) null_count: i64,
    pub(crate) offset: i64,
    pub(crate) buffers: Vec<Option<(Spot, u64)>>,
}

/// A descriptor; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    pub(crate) place: Place,
    pub(crate) order: Option<Handle>,
    pub(crate) regions: Vec<Region>,
    pub(crate) what: What,
}

impl Descriptor {
    /// # Errors
    /// `DEVX_UNSUPPORTED` for more regions or bytes than a descriptor may have.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        if self.regions.len() > MAX_REGIONS {
            return refuse!(
                DEVX_UNSUPPORTED,
                "the memory lies in {} regions: more than {MAX_REGIONS} cannot be handed over at once",
                self.regions.len()
            );
        }
        let mut out = Writer::default();
        out.raw(&MAGIC);
        out.u32(VERSION);
        out.u32(match self.what {
            What::Tensor(_) => 1,
            What::Batch(_) => 2,
        });
        out.u64(0);
        out.u64(0);
        match self.place {
            Place::Host => out.u8(0),
            Place::Cuda(uuid) => {
                out.u8(1);
                out.raw(&uuid);
            }
        }
        out.u8(u8::from(self.order.is_some()));
        out.raw(self.order.as_ref().map_or(&[], |handle| handle.as_slice()));
        out.u32(self.regions.len() as u32);
        for region in &self.regions {
            region.encode(&mut out);
        }
        match &self.what {
            What::Tensor(tensor) => tensor.encode(&mut out),
            What::Batch(batch) => batch.encode(&mut out)?,
        }
        if out.len() > MAX_BYTES {
            return refuse!(DEVX_UNSUPPORTED, "the descriptor has {} bytes: more than {MAX_BYTES}", out.len());
        }
        let mut bytes = out.into_bytes()?;
        seal(&mut bytes);
        Ok(bytes)
    }

    /// Reads a descriptor from any bytes. Time and memory are bounded by their number.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT`, `DEVX_VERSION`, and those for an invalid dtype, shape, schema or array, with the field and the
    /// value.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_BYTES {
            return refuse!(DEVX_INVALID_ARGUMENT, "the descriptor has {} bytes: more than {MAX_BYTES}", bytes.len());
        }
        let mut from = Reader::new(bytes);
        let magic: [u8; 8] = from.array("magic")?;
        if magic != MAGIC {
            return refuse!(DEVX_INVALID_ARGUMENT, "magic is \"{}\": not a descriptor", magic.escape_ascii());
        }
        let version = from.u32("version")?;
        if version != VERSION {
            return refuse!(DEVX_VERSION, "version is {version}: this library reads {VERSION}");
        }
        let kind = from.u32("kind")?;
        let length = from.u64("length")?;
        if length != bytes.len() as u64 {
            return refuse!(DEVX_INVALID_ARGUMENT, "length is {length}, but there are {} bytes", bytes.len());
        }
        let (stored, found) = (from.u64("checksum")?, checksum(bytes));
        if stored != found {
            return refuse!(
                DEVX_INVALID_ARGUMENT,
                "checksum is {stored:#018x}, of these bytes it is {found:#018x}: they were altered"
            );
        }
        let place = match from.u8("place")? {
            0 => Place::Host,
            1 => Place::Cuda(from.array("uuid")?),
            other => return refuse!(DEVX_DEVICE, "place is {other}: neither host (0) nor CUDA (1)"),
        };
        let order = match from.u8("order")? {
            0 => None,
            1 if place != Place::Host => Some(from.array("event")?),
            other => return refuse!(DEVX_INVALID_ARGUMENT, "order is {other}: 0 is ready, 1 an event of a device"),
        };
        let count = from.count("regions", MAX_REGIONS, 10)?;
        let regions = collected((0..count).map(|_| Region::decode(&mut from, place)))?;
        let what = match kind {
            1 => What::Tensor(TensorPart::decode(&mut from, &regions)?),
            2 => What::Batch(BatchPart::decode(&mut from, &regions)?),
            other => return refuse!(DEVX_INVALID_ARGUMENT, "kind is {other}: neither tensor (1) nor batch (2)"),
        };
        from.end()?;
        Ok(Self { place, order, regions, what })
    }

    /// Returns the number of file descriptors that go with the descriptor.
    pub(crate) fn fds(&self) -> usize {
        self.regions.iter().filter(|region| region.kind.has_fd()).count()
    }
}

/// Writes length and checksum into their places.
pub(super) fn seal(bytes: &mut [u8]) {
    let length = bytes.len() as u64;
    if let Some(place) = bytes.get_mut(LENGTH_AT..CHECKSUM_AT) {
        place.copy_from_slice(&length.to_le_bytes());
    }
    let sum = checksum(bytes);
    if let Some(place) = bytes.get_mut(CHECKSUM_AT..CHECKSUM_AT + 8) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

/// Computes the FNV-1a checksum, which finds damage, not forgery.
fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for (at, &byte) in bytes.iter().enumerate() {
        let own = (CHECKSUM_AT..CHECKSUM_AT + 8).contains(&at);
        sum = (sum ^ u64::from(if own { 0 } else { byte })).wrapping_mul(0x0000_0100_0000_01b3);
    }
    sum
}

/// Reads a byte that must be 0 or 1.
fn boolean(from: &mut Reader<'_>, what: &'static str) -> Result<bool> {
    match from.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => refuse!(DEVX_INVALID_ARGUMENT, "{what} is {other}: neither 0 nor 1"),
    }
}

impl Region {
    fn encode(&self, out: &mut Writer) {
        let kind = match self.kind {
            RegionKind::Host { .. } => 0,
            RegionKind::Cuda(_) => 1,
            RegionKind::Pool { .. } => 2,
        };
        out.u8(kind);
        out.u64(self.bytes);
        match self.kind {
            RegionKind::Host { writable } => out.u8(u8::from(writable)),
            RegionKind::Cuda(handle) => out.raw(&handle),
            RegionKind::Pool { pool, pointer } => {
                out.u64(pool);
                out.raw(&pointer);
            }
        }
    }

    fn decode(from: &mut Reader<'_>, place: Place) -> Result<Self> {
        let kind = from.u8("region.kind")?;
        let bytes = from.u64("region.bytes")?;
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return refuse!(DEVX_INVALID_ARGUMENT, "region.bytes is {bytes}: none, or more than can be addressed");
        }
        let kind = match (kind, place) {
            (0, Place::Host) => RegionKind::Host { writable: boolean(from, "region.writable")? },
            (1, Place::Cuda(_)) => RegionKind::Cuda(from.array("region.handle")?),
            (2, Place::Cuda(_)) => {
                RegionKind::Pool { pool: from.u64("region.pool")?, pointer: from.array("region.pointer")? }
            }
            (0..=2, _) => return refuse!(DEVX_DEVICE, "region.kind is {kind}: not of the descriptor's device"),
            _ => return refuse!(DEVX_INVALID_ARGUMENT, "region.kind is {kind}: it must be 0, 1 or 2"),
        };
        Ok(Self { bytes, kind })
    }
}

impl Spot {
    fn decode(from: &mut Reader<'_>) -> Result<Option<Self>> {
        let (region, offset) = (from.u32("region")?, from.u64("offset")?);
        match (region, offset) {
            (NOWHERE, 0) => Ok(None),
            (NOWHERE, _) => refuse!(DEVX_INVALID_ARGUMENT, "offset is {offset} in no region"),
            _ => Ok(Some(Self { region, offset })),
        }
    }

    fn encode(this: Option<Self>, out: &mut Writer) {
        let Self { region, offset } = this.unwrap_or(Self { region: NOWHERE, offset: 0 });
        out.u32(region);
        out.u64(offset);
    }

    /// Checks that the bytes from `lowest` to `end`, counted from here, are in the region. `end` is not negative.
    fn check(self, regions: &[Region], lowest: i128, end: i128) -> Result<()> {
        let Self { region, offset } = self;
        let Some(found) = regions.get(region as usize) else {
            return refuse!(DEVX_INVALID_ARGUMENT, "region is {region}: there are {}", regions.len());
        };
        let at = i128::from(offset);
        if at + lowest < 0 || at + end > i128::from(found.bytes) {
            return refuse!(
                DEVX_INVALID_ARGUMENT,
                "offset is {offset}: from {lowest} to {end} bytes from there leave region {region}, which has {}",
                found.bytes
            );
        }
        Ok(())
    }
}

impl TensorPart {
    fn encode(&self, out: &mut Writer) {
        let DLDataType { code, bits, lanes } = self.dtype.to_dlpack();
        out.u8(code);
        out.u8(bits);
        out.u16(lanes);
        out.u64(self.flags.0);
        out.u32(self.shape.len() as u32);
        self.shape.iter().chain(&self.strides).for_each(|&number| out.i64(number));
        Spot::encode(self.spot, out);
    }

    fn decode(from: &mut Reader<'_>, regions: &[Region]) -> Result<Self> {
        let (code, bits, lanes) = (from.u8("dtype.code")?, from.u8("dtype.bits")?, from.u16("dtype.lanes")?);
        let dtype = DType::from_dlpack(DLDataType { code, bits, lanes })?;
        let flags = Flags(from.u64("flags")?);
        let ndim = from.count("ndim", MAX_NDIM, 16)?;
        let shape = collected((0..ndim).map(|_| from.i64("shape")))?;
        let strides = collected((0..ndim).map(|_| from.i64("strides")))?;
        let layout = layout::check(dtype, flags.has(Flags::SUBBYTE_PADDED), &shape, Some(&strides))?;
        let spot = Spot::decode(from)?;
        match spot {
            Some(spot) if layout.elements > 0 => spot.check(regions, layout.lowest as i128, layout.end as i128)?,
            None if layout.elements == 0 => {}
            _ => {
                return refuse!(
                    DEVX_INVALID_ARGUMENT,
                    "{} elements of shape {shape:?} are in {}",
                    layout.elements,
                    if spot.is_some() { "a region" } else { "no region" }
                );
            }
        }
        Ok(Self { dtype, flags, shape, strides, spot })
    }
}

impl BatchPart {
    /// Checks, before any memory is located, that a descriptor has room for a batch whose nodes have that many buffers.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED`.
    pub(super) fn require_room(schema: &Schema, buffers: impl Fn(usize) -> usize) -> Result<()> {
        let bytes = Self::bytes_of(schema, buffers);
        if bytes > MAX_PART {
            let fields = schema.nodes();
            return refuse!(
                DEVX_UNSUPPORTED,
                "the batch has {fields} fields, which take {bytes} bytes of a descriptor: there is room for {MAX_PART}"
            );
        }
        Ok(())
    }

    /// Returns the number of bytes that [`BatchPart::encode`] writes for such a batch.
    pub(super) fn bytes_of(schema: &Schema, buffers: impl Fn(usize) -> usize) -> usize {
        let of_field = |node| {
            let texts = schema.field(node).map_or(0, |field| {
                let FieldDesc { format, name, metadata, .. } = described(field, field.raw_name());
                format.count_bytes() + name.count_bytes() + metadata.map_or(0, <[u8]>::len)
            });
            FIELD + texts + ARRAY + BUFFER * buffers(node)
        };
        4 + (0..schema.nodes()).map(of_field).sum::<usize>()
    }

    fn encode(&self, out: &mut Writer) -> Result<()> {
        out.u32(self.schema.nodes() as u32);
        for field in self.schema.fields() {
            let FieldDesc { format, name, metadata, flags, n_children, has_dictionary } =
                described(field, field.raw_name());
            out.i64(flags);
            out.u32(n_children);
            out.u8(u8::from(has_dictionary));
            out.counted(format.to_bytes());
            out.counted(name.to_bytes());
            // A block of metadata is never empty, so no bytes stand for none.
            out.counted(metadata.unwrap_or_default());
        }
        for node in &self.nodes {
            out.i64(node.length);
            out.i64(node.null_count);
            out.i64(node.offset);
            out.u32(node.buffers.len() as u32);
            for buffer in &node.buffers {
                Spot::encode(buffer.map(|(spot, _)| spot), out);
                out.u64(buffer.map_or(0, |(_, bytes)| bytes));
            }
        }
        Ok(())
    }

    fn decode(from: &mut Reader<'_>, regions: &[Region]) -> Result<Self> {
        struct Texts<'a>(CString, CString, &'a [u8]);
        let count = from.count("fields", MAX_NODES, FIELD + ARRAY)?;
        let (mut texts, mut heads) = (vector(count)?, vector(count)?);
        for _ in 0..count {
            heads.push((from.i64("flags")?, from.u32("n_children")?, boolean(from, "has_dictionary")?));
            let (format, name) = (text(from, "format")?, text(from, "name")?);
            let block = from.counted("metadata")?;
            if !block.is_empty() {
                metadata::check_bytes(block)?;
            }
            texts.push(Texts(format, name, block));
        }
        let described = texts.iter().zip(&heads);
        let fields = collected(described.map(|(Texts(format, name, block), &(flags, n_children, has_dictionary))| {
            let metadata = (!block.is_empty()).then_some(*block);
            Ok(FieldDesc { format, name, metadata, flags, n_children, has_dictionary })
        }))?;
        let schema = Schema::new(&fields)?;
        let mut nodes = vector(count)?;
        for node in schema.depth_first() {
            let part =
                NodePart::decode(from, regions, &schema, node).map_err(|error| in_array(&schema, node, error))?;
            nodes.push(part);
        }
        Ok(Self { schema, nodes })
    }
}

fn text(from: &mut Reader<'_>, what: &'static str) -> Result<CString> {
    let bytes = from.counted(what)?;
    if bytes.contains(&0) {
        let shown = Lossy(bytes);
        return refuse!(DEVX_INVALID_TEXT, "{what} {shown:?} has a NUL byte in it");
    }
    let mut text = vector(bytes.len() + 1)?;
    text.extend_from_slice(bytes);
    text.push(0);
    Ok(CString::from_vec_with_nul(text).unwrap_or_default())
}

impl NodePart {
    fn decode(from: &mut Reader<'_>, regions: &[Region], schema: &Schema, node: usize) -> Result<Self> {
        let (length, null_count, offset) = (from.i64("length")?, from.i64("null_count")?, from.i64("offset")?);
        let end = offset.checked_add(length).filter(|_| offset >= 0 && length >= 0);
        let Some(end) = end else {
            return refuse!(DEVX_INVALID_LENGTH, "offset {offset} and length {length} are not a range of rows");
        };
        let kinds = schema.ty(node).buffers();
        let count = from.count("n_buffers", MAX_NODES, BUFFER)?;
        if !kinds.fits(count as i64) {
            return refuse!(DEVX_INVALID_BUFFERS, "n_buffers is {count}: {} has {}", schema.ty(node), kinds.count());
        }
        let mut buffers = vector(count)?;
        for i in 0..count {
            let (spot, bytes) = (Spot::decode(from)?, from.u64("buffer.bytes")?);
            // How far offsets and views reach into the data is known only from these.
            let needed = kinds.get(i, count).and_then(|buffer| buffer.bytes_at(i, end as u64)).unwrap_or(0);
            let Some(spot) = spot else {
                if bytes > 0 {
                    return refuse!(DEVX_INVALID_BUFFERS, "buffers[{i}] has {bytes} bytes in no region");
                }
                buffers.push(None);
                continue;
            };
            if needed > u128::from(bytes) {
                return refuse!(
                    DEVX_INVALID_BUFFERS,
                    "buffers[{i}] has {bytes} bytes: {} of length {length} and offset {offset} needs {needed}",
                    schema.ty(node)
                );
            }
            spot.check(regions, 0, i128::from(bytes)).map_err(|error| error.within(format_args!("buffers[{i}]: ")))?;
            buffers.push(Some((spot, bytes)));
        }
        Ok(Self { length, null_count, offset, buffers })
    }
}
