//! A consumer that does what consumers may do, in an arbitrary order: it inspects, reads, converts, shares, exports and
//! releases batches, and moves children out of exports.

use std::fmt::{self, Write};

use arbitrary::{Result, Unstructured};
use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::types::DEVX_MISMATCH;
use devexchange_core::arrow::{Column, release_array, release_schema};
use devexchange_core::dlpack::Copying;
use devexchange_core::{Batch, Device, Schema, Tensor, convert, ipc};

use crate::chance;

/// Something that the consumer holds and has to release.
#[derive(Debug)]
pub enum Held {
    /// A batch.
    Batch(Batch),
    /// A schema.
    Schema(Schema),
    /// A tensor over a column.
    Tensor(Tensor),
    /// An exported schema and its array; either may be released already.
    Exported(Box<ArrowSchema>, Box<ArrowDeviceArray>),
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Self::Exported(schema, array) = self {
            // SAFETY: the struct is ours, and valid even if it is released.
            unsafe { release_schema(&raw mut **schema) };
            // SAFETY: as above.
            unsafe { release_array(&raw mut array.array) };
        }
    }
}

/// The most nodes of a batch that is put into a larger one.
const MOST_NODES: usize = 64;

/// Takes an arbitrary number of steps, and then releases everything in an arbitrary order. Reads values only if `may_be` says
/// that all of their memory is there.
///
/// # Errors
/// Those of an input that is used up, which is no failure.
pub fn play(mut held: Vec<Held>, may_be: bool, u: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..u.int_in_range(0..=12)? {
        if held.is_empty() {
            break;
        }
        let place = u.choose_index(held.len())?;
        let more = match &mut held[place] {
            Held::Batch(batch) => with_batch(batch, may_be, u)?,
            Held::Schema(schema) => {
                look_at_schema(schema);
                chance(u, 1, 2)?.then(|| Held::Schema(schema.clone()))
            }
            Held::Tensor(tensor) => again(tensor, may_be),
            Held::Exported(schema, array) => with_exported(schema, array, u)?,
        };
        held.extend(more);
        if chance(u, 1, 4)? {
            held.swap_remove(place);
        }
    }
    while !held.is_empty() {
        let place = u.choose_index(held.len()).unwrap_or(0);
        held.swap_remove(place);
    }
    Ok(())
}

fn with_batch(batch: &Batch, may_be: bool, u: &mut Unstructured<'_>) -> Result<Option<Held>> {
    look_at(batch.root());
    Ok(match u.int_in_range(0..=9)? {
        0 => Some(Held::Batch(batch.clone())),
        1 => Some(Held::Schema(batch.schema().clone())),
        2 | 3 => Some(export(batch)),
        4 if may_be => {
            read(batch.root());
            None
        }
        // A plan depends on the nulls, which are counted in the data if the array does not say how many there are.
        5 if may_be => tensor_of(batch, u)?,
        6 if may_be && batch.length() < 4096 => {
            let copy = ipc::copy_batch(batch);
            if let Ok(copy) = &copy {
                read(copy.root());
            }
            copy.ok().map(Held::Batch)
        }
        7 | 8 => part_of(batch, u)?,
        // The batch doubles each time.
        _ if batch.schema().nodes() <= MOST_NODES => {
            Batch::of_columns(&[("first", batch), ("second", batch)], None).ok().map(Held::Batch)
        }
        _ => None,
    })
}

/// Takes some rows of any array in the batch.
fn part_of(batch: &Batch, u: &mut Unstructured<'_>) -> Result<Option<Held>> {
    let mut column = batch.root();
    while chance(u, 1, 2)? {
        let index = u.choose_index(column.field().n_children().max(1))?;
        let Some(below) = column.child(index).or_else(|| column.dictionary()) else { break };
        column = below;
    }
    let offset = u.int_in_range(0..=column.length())?;
    let length = u.int_in_range(0..=column.length() - offset)?;
    Ok(column.slice(offset, length).and_then(|rows| rows.share()).ok().map(Held::Batch))
}

fn copying(may_be: bool) -> Copying {
    if may_be { Copying::IfNeeded } else { Copying::Never }
}

fn tensor_of(batch: &Batch, u: &mut Unstructured<'_>) -> Result<Option<Held>> {
    let plan = convert::plan_matrix(batch);
    let columns = batch.n_columns();
    let column = if columns == 0 { None } else { batch.column(u.choose_index(columns)?) };
    Ok(match column {
        // A longer column could take too much memory.
        Some(column) if column.length() < 4096 => {
            let plan = convert::plan_tensor(column);
            let tensor = convert::tensor(column, Copying::IfNeeded).ok();
            assert!(tensor.is_none() || plan.is_ok(), "a tensor that was not planned");
            tensor.map(Held::Tensor)
        }
        _ if plan.is_ok() && batch.length() < 4096 => {
            convert::matrix(batch, Copying::IfNeeded, None).ok().map(Held::Tensor)
        }
        _ => None,
    })
}

/// Converts a tensor to a plain column or, if that is refused, to a column of tensors.
fn again(tensor: &Tensor, may_be: bool) -> Option<Held> {
    let batch = convert::column(tensor, "again", copying(may_be));
    let batch = batch.or_else(|_| convert::fixed_shape_column(tensor, "again", copying(may_be)));
    batch.ok().map(Held::Batch)
}

fn export(batch: &Batch) -> Held {
    let mut array = Box::new(ArrowDeviceArray {
        array: ArrowArray::RELEASED,
        device_id: 0,
        device_type: 0,
        sync_event: std::ptr::null_mut(),
        reserved: [0; 3],
    });
    // SAFETY: the struct is ours, and released.
    unsafe { batch.clone().export_device(&raw mut *array) }.expect("an export");
    let mut schema = Box::new(RELEASED);
    // SAFETY: the struct is ours, and released.
    unsafe { batch.schema().export(&raw mut *schema) }.expect("an export");
    assert_eq!(schema.n_children, array.array.n_children);
    Held::Exported(schema, array)
}

const RELEASED: ArrowSchema = ArrowSchema {
    format: std::ptr::null(),
    name: std::ptr::null(),
    metadata: std::ptr::null(),
    flags: 0,
    n_children: 0,
    children: std::ptr::null_mut(),
    dictionary: std::ptr::null_mut(),
    release: None,
    private_data: std::ptr::null_mut(),
};

fn with_exported(
    schema: &mut ArrowSchema,
    array: &mut ArrowDeviceArray,
    u: &mut Unstructured<'_>,
) -> Result<Option<Held>> {
    if schema.release.is_none() || array.array.release.is_none() {
        return Ok(None);
    }
    let children = usize::try_from(schema.n_children).unwrap_or(0);
    match u.int_in_range(0..=3)? {
        // Moves a child out of both trees.
        0 | 1 if children > 0 => {
            let k = u.choose_index(children)?;
            // SAFETY: an exported tree has a table of `n_children` children, and only this function uses it.
            let schema = unsafe { child_at(schema.children, k) };
            // SAFETY: as above.
            let child = unsafe { child_at(array.array.children, k) };
            if schema.release.is_none() || child.release.is_none() {
                return Ok(None);
            }
            let moved = ArrowDeviceArray { array: move_out(child, |array| array.release = None), ..*array };
            Ok(Some(Held::Exported(Box::new(move_out(schema, |schema| schema.release = None)), Box::new(moved))))
        }
        // Imports the tree again, which fails if a child was moved out.
        2 => {
            // SAFETY: both structs are valid and ours.
            let batch = unsafe { Batch::import_pair_device(array, schema) };
            Ok(batch.ok().map(Held::Batch))
        }
        // Releases only the array.
        _ => {
            // SAFETY: the struct is valid and ours.
            unsafe { release_array(&raw mut array.array) };
            Ok(None)
        }
    }
}

/// # Safety
/// `table` has more than `k` children, and nothing else refers to child `k`.
unsafe fn child_at<'a, S>(table: *mut *mut S, k: usize) -> &'a mut S {
    // SAFETY: the caller's contract.
    let place = unsafe { table.add(k) };
    // SAFETY: as above.
    let child = unsafe { place.read() };
    // SAFETY: as above.
    unsafe { &mut *child }
}

/// Moves a struct: copies its bytes and marks the source as released.
fn move_out<S: Copy>(source: &mut S, mark: impl FnOnce(&mut S)) -> S {
    let moved = *source;
    mark(source);
    moved
}

fn look_at_schema(schema: &Schema) {
    let mut text = Short(512);
    for field in (0..schema.nodes()).filter_map(|node| schema.field(node)) {
        // The only error is that the text is full, which is no failure.
        let _ = write!(text, "{} {field:?} {:?} {}", field.ty(), field.extension(), field.timezone());
        assert_eq!(field.children().len(), field.n_children());
        field.metadata().for_each(|(key, value)| drop((key.to_vec(), value.to_vec())));
    }
}

/// Checks what is known about a column without reading its memory.
fn look_at(column: Column<'_>) {
    let raw = column.to_raw();
    assert_eq!((raw.length, raw.offset), (column.length(), column.offset()));
    assert!(column.length() >= 0 && column.offset().checked_add(column.length()).is_some());
    let again = Column::from_raw(column.batch(), &raw).expect("the same column");
    assert_eq!(again.length(), column.length());
    let children = (0..).map_while(|index| column.child(index));
    children.chain(column.dictionary()).for_each(look_at);
}

/// Reads a row in one way. Returns whether that way fits the type of the column.
type Way = fn(Column<'_>, i64) -> bool;

/// All ways to read a row. A way that does not fit one row fits none and is not tried again, because an error takes longer
/// than a read.
const WAYS: [Way; 8] = [
    |column, row| fits(&column.bytes(row)),
    |column, row| fits(&column.text(row)),
    |column, row| fits(&column.list(row)),
    |column, row| fits(&column.union_value(row)),
    |column, row| fits(&column.run(row)),
    |column, row| fits(&column.fixed(row)),
    |column, row| fits(&column.bool(row)),
    |column, row| fits(&column.dictionary_index(row)),
];

fn fits<T>(read: &devexchange_core::Result<T>) -> bool {
    read.as_ref().err().is_none_or(|error| error.status() != DEVX_MISMATCH)
}

/// Reads the first 64 rows and the last row of a column and of everything below it.
pub fn read(column: Column<'_>) {
    let last = column.length() - 1;
    let (mut text, mut fit) = (Short(1 << 12), WAYS.map(|_| true));
    for row in (0..column.length().min(64)).chain((last >= 64).then_some(last)) {
        let valid = column.is_valid(row).expect("in host memory");
        match column.value(row) {
            Ok(value) => drop(write!(text, "{valid} {value}")),
            Err(error) => assert!(!error.message().is_empty()),
        }
        for (way, fits) in WAYS.iter().zip(&mut fit) {
            *fits = *fits && way(column, row);
        }
    }
    if column.length() < 4096 {
        let nulls = column.null_count().expect("in host memory");
        assert!(nulls >= 0, "{nulls} nulls");
        if let Ok(values) = column.values::<i32>() {
            std::hint::black_box(values.iter().fold(0_i32, |sum, value| sum.wrapping_add(*value)));
        }
    }
    let children = (0..).map_while(|index| column.child(index));
    children.chain(column.dictionary()).for_each(read);
}

/// A text with room for this many bytes, because nested lists can show the same values very often.
struct Short(usize);

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// The type and id of the host, in the two ways in which producers write them.
pub const HOST: [(i32, i64); 2] = [(Device::CPU.kind.0, -1), (Device::CPU.kind.0, 0)];

/// Makes a device array of an array.
pub fn on(array: ArrowArray, (device_type, device_id): (i32, i64)) -> ArrowDeviceArray {
    ArrowDeviceArray { array, device_id, device_type, sync_event: std::ptr::null_mut(), reserved: [0x5a; 3] }
}
