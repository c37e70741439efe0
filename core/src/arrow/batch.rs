//! A record batch, or any other array with its schema: imported from a producer or made over the caller's memory.

mod describe;
mod import;
mod order;

use core::ffi::c_void;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::column::Column;
use super::format::Type;
pub use super::node::NodeDesc;
use super::schema::Schema;
use super::tree::{self, Releases};
use crate::abi::arrow_data::ArrowArray;
use crate::abi::arrow_device::ArrowDeviceArray;
use crate::abi::types::DevxBatchInfo;
use crate::device::Device;
use crate::error::{Error, Refused, Result, refuse};
use crate::ledger::{Entry, Kind};
use crate::memory::{Borrowed, Foreign, Owner, Slab, fill_in, held_by_bindings};
use crate::order::{Ready, Uses};
use crate::runtime::cuda::Event;
use crate::runtime::cuda::lost::Held;
use crate::stream::Stream;
use crate::view::Whole;

/// An Arrow array with its schema. It is a record batch if its type is struct: then its children are the columns.
/// Cloning shares it; the memory is released when the last clone and the last export are gone.
///
/// An export to a consumer in C, whose part this example plays in Rust (for arrow-rs, see `arrow_rs`):
///
/// ```
/// use devexchange_core::dlpack::Copying;
/// use devexchange_core::{Result, Tensor, convert};
///
/// # fn main() -> Result<()> {
/// let rows = Tensor::from_vec(vec![0.5_f64, 1.5, 2.5], &[3, 1])?;
/// let batch = convert::batch(&rows, &["x"], Copying::Never)?;
///
/// let mut handed = batch.export_owned()?; // the addresses of array and schema are for the consumer (`as_mut_ptrs`)
/// let seen = handed.import()?;
/// assert_eq!(seen.column_named("x").unwrap().values::<f64>()?, rows.as_slice::<f64>()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Batch(Slab<Header>);

struct Header {
    device: Device,
    /// One address for each node of the schema.
    nodes: *const *const ArrowArray,
    source: Source,
    ready: Ready,
    uses: Uses,
    /// Given up last, because it describes the arrays.
    schema: Schema,
}

impl Drop for Header {
    #[inline]
    fn drop(&mut self) {
        let Self { uses, source, .. } = self;
        uses.then_release(|| match std::mem::replace(source, Source::NONE) {
            // A struct that only has to be released may be moved, so it can be handed to the reaper.
            Source::Foreign(array) => Held::Array(array),
            Source::Own { owner, .. } => Held::Owner(owner),
        });
    }
}

/// Whose structs the arrays are, and thus what releases their memory.
enum Source {
    Foreign(Foreign<ArrowArray>),
    Own {
        root: ArrowArray,
        owner: Owner,
        /// Whether all buffers are known to lie in one block of memory.
        in_one_block: bool,
    },
}

impl Source {
    const NONE: Self = Self::Own { root: ArrowArray::RELEASED, owner: Owner::none(), in_one_block: false };

    /// The owner, if it is an owner of this library.
    fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Foreign(_) => None,
            Self::Own { owner, .. } => Some(owner),
        }
    }
}

// SAFETY: the structs and buffers behind the pointers belong to the source and are only read.
unsafe impl Send for Header {}
// SAFETY: as above.
unsafe impl Sync for Header {}

// What a panic can interrupt leaves a batch as it was: its description does not change, and its order and uses are changed
// under locks or atomically.
impl UnwindSafe for Batch {}
impl RefUnwindSafe for Batch {}

impl Batch {
    /// Makes the first address that of the root struct, which stays in place in the header.
    fn rooted(slab: Slab<Header>, nodes: *mut *const ArrowArray) -> Self {
        let root = match &slab.header().source {
            Source::Foreign(foreign) => foreign.as_ptr(),
            Source::Own { root, .. } => &raw const *root,
        };
        // SAFETY: there is an address for the root, and no other reference to the slab yet.
        unsafe { nodes.write(slab.lasting(root)) };
        Self(slab)
    }

    /// Hands the batch to a consumer, which releases it: pass a clone to share it, the batch itself to move it.
    ///
    /// The export takes one block of memory. The consumer may move child arrays out of it, and they may outlive it.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT`, `DEVX_OUT_OF_MEMORY`, or `DEVX_DEVICE` if the data is not in host memory, because the
    /// plain struct cannot name a device. Then `*out` is not written and the batch is given back.
    ///
    /// # Safety
    /// `out` is NULL or can be written. What it held before is not released.
    pub unsafe fn export(self, out: *mut ArrowArray) -> std::result::Result<(), Refused<Self>> {
        let device = self.device();
        let problem = if out.is_null() {
            refuse!(DEVX_NULL_ARGUMENT, "out is NULL")
        } else if device != Device::CPU {
            refuse!(DEVX_DEVICE, "device is {device}: a plain ArrowArray is host memory")
        } else {
            Ok(())
        };
        if let Err(error) = problem {
            return Err(Refused { error, returned: self });
        }
        // SAFETY: the caller's contract.
        unsafe { self.export_readable(out) }
    }

    /// Like [`Batch::export`], but of any device, for a consumer on the host, which can read the data now.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    ///
    /// # Safety
    /// `out` can be written.
    pub(crate) unsafe fn export_readable(self, out: *mut ArrowArray) -> std::result::Result<(), Refused<Self>> {
        // SAFETY: the caller's contract.
        unsafe { self.export_tree(out, None) }
    }

    /// Like [`Batch::export`], but with device and event.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT`, `DEVX_OUT_OF_MEMORY`.
    ///
    /// # Safety
    /// Same as [`Batch::export`].
    pub unsafe fn export_device(self, out: *mut ArrowDeviceArray) -> std::result::Result<(), Refused<Self>> {
        if out.is_null() {
            let error = Error::new(crate::abi::types::DEVX_NULL_ARGUMENT, "out is NULL");
            return Err(Refused { error, returned: self });
        }
        let (sync_event, recorded) = match self.ready().sync_event() {
            Ok(event) => event,
            Err(error) => return Err(Refused { error, returned: self }),
        };
        let device = self.device();
        // SAFETY: the caller's contract.
        let array = unsafe { &raw mut (*out).array };
        // SAFETY: as above.
        unsafe { self.export_tree(array, recorded) }?;
        // SAFETY: as above.
        unsafe { (*out).device_id = device.arrow_id() };
        // SAFETY: as above.
        unsafe { (*out).device_type = device.kind.0 };
        // SAFETY: as above.
        unsafe { (*out).sync_event = sync_event };
        // SAFETY: as above.
        unsafe { (*out).reserved = [0; 3] };
        Ok(())
    }

    /// Writes the exported root. The exported tree keeps the event that was recorded for it.
    ///
    /// # Safety
    /// `out` can be written.
    #[inline]
    unsafe fn export_tree(
        self,
        out: *mut ArrowArray,
        recorded: Option<Event>,
    ) -> std::result::Result<(), Refused<Self>> {
        let nodes = self.arrays().len();
        let room = match Slab::<Export>::room(tree::room::<ArrowArray>(nodes)) {
            Ok(room) => room,
            Err(error) => return Err(Refused { error, returned: self }),
        };
        let (records, plain_from, arrays) = (self.schema().records(), self.schema().plain_from(), self.arrays());
        // SAFETY: there is a record for each node.
        let record = |i: usize| unsafe { records.get_unchecked(i) };
        let fill = |i: usize| {
            // SAFETY: there is an address for each node.
            let array = unsafe { arrays.get_unchecked(i) };
            // SAFETY: the source keeps the struct alive and in place.
            let array = unsafe { &**array };
            match array.null_count {
                known if known >= 0 && record(i).plain != 0 => *array,
                // A null array has no buffers, even if its producer has given it some.
                _ if record(i).ty == Type::Null => {
                    ArrowArray { null_count: array.length, n_buffers: 0, buffers: std::ptr::null_mut(), ..*array }
                }
                0 => *array,
                // Arrow Java takes an array without validity only if it says that it has no nulls.
                _ => ArrowArray { null_count: Column::nulls_of_rows(&self, i, array.offset, array.length), ..*array },
            }
        };
        let (links, release) = (|i: usize| &record(i).links, Releases::counted::<Export>(room.as_raw()));
        // SAFETY: the room is the slab's, the schema numbers one tree, and the caller gives room for the root.
        unsafe { tree::build(&mut room.tail(), out, nodes, plain_from, fill, links, release) };
        fill_in!(room, nodes, Export { _batch: self, _recorded: recorded, _entry: Entry::open(Kind::BatchExport) })
            .into_raw();
        Ok(())
    }

    /// The schema that describes the arrays.
    pub fn schema(&self) -> &Schema {
        &self.0.header().schema
    }

    /// The device that the buffers lie on.
    pub fn device(&self) -> Device {
        self.0.header().device
    }

    /// Sets the owner of the caller's memory that a batch describes. Nobody shares the batch yet.
    pub(super) fn set_owner(&mut self, owner: Owner) {
        if let Some(Source::Own { owner: own, .. }) = self.0.unique().map(|header| &mut header.source) {
            *own = owner;
        }
    }

    /// Notes that all buffers of a batch over this library's memory lie in one block. Nobody shares the batch yet.
    pub(super) fn set_in_one_block(&mut self) {
        if let Some(Source::Own { in_one_block, .. }) = self.0.unique().map(|header| &mut header.source) {
            *in_one_block = true;
        }
    }

    /// Whether all buffers are known to lie in one block of memory, with nobody else's data between them. A tensor is
    /// one block, whatever its strides.
    pub(crate) fn is_in_one_block(&self) -> bool {
        let own = |batch: &Self| matches!(batch.0.header().source, Source::Own { in_one_block: true, .. });
        match self.uses().whole() {
            Some(Whole::Tensor(_)) => true,
            Some(Whole::Batch(whole)) => own(&whole),
            None => own(self),
        }
    }

    /// The owner, if it is an owner of this library.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.0.header().source.owner()
    }

    /// A summary of the batch, as the C record.
    // Inlined for the same reason as `Column::to_raw`.
    #[inline(always)]
    pub fn info(&self) -> DevxBatchInfo {
        let Device { kind, id } = self.device();
        DevxBatchInfo {
            length: self.length(),
            n_columns: self.n_columns() as i64,
            n_nodes: self.schema().nodes() as i64,
            device_type: kind.0,
            device_id: id,
        }
    }

    /// Number of rows.
    pub fn length(&self) -> i64 {
        self.array(0).length
    }

    /// Number of columns: the children if the type is struct, otherwise 0.
    #[inline]
    pub fn n_columns(&self) -> usize {
        self.schema().n_columns()
    }

    /// The whole array as one column.
    #[inline]
    pub fn root(&self) -> Column<'_> {
        Column::whole(self, 0)
    }

    /// The column at `index`, with the slice of the batch itself applied.
    #[inline]
    pub fn column(&self, index: usize) -> Option<Column<'_>> {
        if index < self.n_columns() { self.root().child(index) } else { None }
    }

    /// All columns.
    #[inline]
    pub fn columns(&self) -> impl DoubleEndedIterator<Item = Column<'_>> + ExactSizeIterator {
        self.root().children().take(self.n_columns())
    }

    /// The first column with this name.
    pub fn column_named(&self, name: &str) -> Option<Column<'_>> {
        self.schema().column_named(name.as_bytes()).and_then(|index| self.column(index))
    }

    /// The addresses of the arrays, one for each node of the schema.
    #[inline]
    pub(super) fn arrays(&self) -> &[*const ArrowArray] {
        let header = self.0.header();
        // SAFETY: there is an address for each node of the schema, in the slab's tail.
        unsafe { std::slice::from_raw_parts(header.nodes, header.schema.nodes()) }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a node that the schema does not have is a bug, which must not be read"
    )]
    #[inline]
    pub(crate) fn array(&self, node: usize) -> &ArrowArray {
        // SAFETY: the source keeps the struct alive and in place.
        unsafe { &*self.arrays()[node] }
    }

    /// The addresses of one array's buffers, as many as its type has.
    #[inline]
    pub(crate) fn buffers(&self, node: usize) -> &[*const c_void] {
        let array = self.array(node);
        if array.n_buffers == 0 || self.schema().ty(node) == Type::Null {
            return &[];
        }
        // SAFETY: the table was checked when the batch was made.
        unsafe { std::slice::from_raw_parts(array.buffers, array.n_buffers as usize) }
    }

    /// An owner that keeps the batch alive.
    pub(crate) fn into_owner(self) -> Owner {
        Owner::of_slab(self.0)
    }
}

held_by_bindings!(Batch, "batch", produced_on);

impl Borrowed<'_, Batch> {
    /// See [`Batch::produced_on`].
    ///
    /// # Errors
    /// Same as [`Batch::produced_on`].
    ///
    /// # Safety
    /// Same as [`Batch::produced_on`].
    pub unsafe fn produced_on(&mut self, stream: Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.value_mut().produced_on(stream) }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("device", &self.device())
            .field("length", &self.length())
            .field("schema", self.schema())
            .finish()
    }
}

/// What an exported array keeps alive.
struct Export {
    _batch: Batch,
    /// The event that was recorded for this export.
    _recorded: Option<Event>,
    _entry: Entry,
}
