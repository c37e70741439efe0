//! Imports and exports of record batches and other arrays as Arrow.

use devexchange_core::Result as CoreResult;
use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::types::{DevxBatchInfo, DevxNode};
use devexchange_core::arrow::{Batch, Schema, table};
use devexchange_core::memory::{collected, vector};
use devexchange_core::order::Ready;
use jni::sys::jlong;

use crate::device::device;
use crate::error::Result;
use crate::handle::{address, batch, give, schema, take};
use crate::native::plain;
use crate::queue::{keep, try_owner};
use crate::stream::{of_copy, optional};

plain! { batch_create(schema: jlong, device: jlong, nodes: jlong, count: jlong, token: jlong) -> jlong }
/// Makes a batch over Java-owned memory. `device` has the device type in its lower 32 bits and the id in the upper
/// ones. `nodes` is the address of `count` records, followed by one long for each of their buffers: its number of
/// bytes, or −1.
fn batch_create(handle: jlong, packed: jlong, nodes: jlong, count: jlong, token: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    let device = device(packed)?;
    let first = take::<DevxNode>(nodes);
    // SAFETY: Java gives the address of `count` records.
    let records = unsafe { std::slice::from_raw_parts(first, count.cast_unsigned() as usize) };
    // SAFETY: Java gives the address of `count` records and of what follows them.
    let sizes = unsafe { first.add(records.len()) }.cast::<i64>().cast_const();
    // SAFETY: Java describes memory that it keeps until the token comes back.
    let batch = keep(unsafe { Batch::from_records(&schema, device, records, sizes, try_owner(token)?) })?;
    Ok(give(batch.into_raw()))
}

/// Java's description of one column of a batch of columns.
#[repr(C)]
struct Named {
    batch: jlong,
    /// The address of its name, in UTF-8 without a terminator.
    name: jlong,
    bytes: jlong,
}

plain! { batch_of_columns(columns: jlong, count: jlong, stream: jlong) -> jlong }
/// Makes a record batch whose columns are other batches, which it shares. `columns` is the address of `count` records
/// of three longs: a batch, the address of its name, and the bytes of the name.
fn batch_of_columns(columns: jlong, count: jlong, stream: jlong) -> Result<jlong> {
    // SAFETY: Java gives the address of `count` records.
    let columns = unsafe { std::slice::from_raw_parts(take::<Named>(columns), count.cast_unsigned() as usize) };
    let mut batches = vector(columns.len())?;
    for column in columns {
        // SAFETY: Java gives living handles.
        batches.push(unsafe { batch(column.batch) }?);
    }
    let name = |column: &Named| {
        // SAFETY: Java gives the address of `bytes` bytes.
        unsafe { std::slice::from_raw_parts(take::<u8>(column.name), column.bytes.cast_unsigned() as usize) }
    };
    let names = collected(columns.iter().map(|column| Ok(String::from_utf8_lossy(name(column)))))?;
    let named = collected(names.iter().zip(&batches).map(|(name, batch)| Ok((name.as_ref(), &**batch))))?;
    let stream = match batches.first() {
        // SAFETY: Java gives a living handle, or none.
        Some(first) => unsafe { optional(stream, |number| first.stream(number)) }?,
        None => None,
    };
    Ok(give(Batch::of_columns(&named, stream)?.into_raw()))
}

plain! { batch_import(source: jlong, schema: jlong, device: jboolean) -> jlong }
/// Takes an Arrow array of a known schema from its producer; if this fails, the array is untouched.
fn batch_import(source: jlong, handle: jlong, device: bool) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    let source = Source::new(source, device)?;
    // SAFETY: Java's caller guarantees an array that it owns.
    Ok(give(unsafe { source.import(&schema) }?.into_raw()))
}

plain! { batch_import_both(source: jlong, schema: jlong, device: jboolean) -> jlong }
/// Takes an Arrow array and its schema from their producer, both or neither.
fn batch_import_both(source: jlong, schema: jlong, device: bool) -> Result<jlong> {
    let source = Source::new(source, device)?;
    let schema = address(schema, "schema")?;
    // SAFETY: Java's caller guarantees an array and a schema that it owns.
    Ok(give(unsafe { source.import_with(schema) }?.into_raw()))
}

/// The struct that an array comes in.
enum Source {
    Host(*mut ArrowArray),
    Device(*mut ArrowDeviceArray),
}

impl Source {
    fn new(source: jlong, device: bool) -> Result<Self> {
        Ok(if device { Self::Device(address(source, "array")?) } else { Self::Host(address(source, "array")?) })
    }

    /// # Safety
    /// As [`Batch::import`].
    unsafe fn import(&self, schema: &Schema) -> CoreResult<Batch> {
        match *self {
            // SAFETY: the caller's contract.
            Self::Host(array) => unsafe { Batch::import(array, schema) },
            // SAFETY: the caller's contract.
            Self::Device(array) => unsafe { Batch::import_device(array, schema) },
        }
    }

    /// # Safety
    /// As [`Batch::import_pair`].
    unsafe fn import_with(&self, schema: *mut ArrowSchema) -> CoreResult<Batch> {
        match *self {
            // SAFETY: the caller's contract.
            Self::Host(array) => unsafe { Batch::import_pair(array, schema) },
            // SAFETY: the caller's contract.
            Self::Device(array) => unsafe { Batch::import_pair_device(array, schema) },
        }
    }
}

plain! { batch_copy(handle: jlong) -> jlong }
/// Copies the batch into the library's own host memory.
fn batch_copy(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    Ok(give(batch.copy()?.into_raw()))
}

plain! { batch_copy_to(handle: jlong, device: jlong, stream: jlong) -> jlong }
/// Copies the batch to another device, in the order of a stream; without one, the host copies.
fn batch_copy_to(handle: jlong, packed: jlong, queue: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let (batch, target) = (unsafe { batch(handle) }?, device(packed)?);
    // SAFETY: as above.
    let stream = unsafe { of_copy(queue, (batch.device(), target), |number| batch.stream_to(target, number)) }?;
    let copy = match stream {
        Some(stream) => batch.copy_to(target, stream),
        None => batch.copy(),
    };
    Ok(give(copy?.into_raw()))
}

plain! { batch_share(handle: jlong) -> jlong }
/// Returns another reference to the same batch.
fn batch_share(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    Ok(give(Batch::clone(&batch).into_raw()))
}

plain! { batch_export(handle: jlong, out: jlong, device: jboolean) }
/// Hands the batch to a consumer and keeps it. The consumer releases `out`.
fn batch_export(handle: jlong, out: jlong, device: bool) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let batch = Batch::clone(&*unsafe { batch(handle) }?);
    if device {
        // SAFETY: Java's caller guarantees memory for the struct.
        unsafe { batch.export_device(address(out, "out")?) }?;
    } else {
        // SAFETY: as above.
        unsafe { batch.export(address(out, "out")?) }?;
    }
    Ok(())
}

plain! { batch_describe(handle: jlong, out: jlong, room: jlong) }
/// Writes the summary of the batch, and after it two longs: 1 if the data is ready now, and the number of words that
/// each column has of its own. Then writes the table of its columns ([`Batch::write_table`]) if `room`, a number of
/// bytes, is enough.
fn batch_describe(handle: jlong, out: jlong, room: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    let out = take::<DevxBatchInfo>(out);
    let info = batch.info();
    // SAFETY: Java gives the address of memory for the record and two longs.
    unsafe { out.write(info) };
    // SAFETY: as above.
    let after = unsafe { out.add(1) }.cast::<[i64; 2]>();
    let before = size_of::<DevxBatchInfo>() + size_of::<[i64; 2]>();
    let needed = before + table::room(info.n_nodes as usize) * size_of::<i64>();
    let own = if needed <= room.cast_unsigned() as usize {
        // SAFETY: as above, and there is room for the table after it.
        unsafe { batch.write_table(after.wrapping_add(1).cast()) }
    } else {
        0
    };
    // SAFETY: as above.
    unsafe { after.write([matches!(batch.ready(), Ready::Now).into(), own as i64]) };
    Ok(())
}

plain! { batch_require_host(handle: jlong) }
/// Checks that the host can read the buffers where they are, now.
fn batch_require_host(handle: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { batch(handle) }?.require_host()?)
}

plain! { batch_schema(handle: jlong) -> jlong }
/// Returns a reference to the schema of the batch.
fn batch_schema(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    Ok(give(batch.schema().clone().into_raw()))
}

plain! { batch_check_pointers(handle: jlong) }
/// Asks the driver whether the memory is where the batch says.
fn batch_check_pointers(handle: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { batch(handle) }?.check_pointers()?)
}
