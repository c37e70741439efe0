//! Conversions of record batches to matrices and back. The columns of one are the columns of the other.

use std::borrow::Cow;

use super::tensor::misaligned;
use super::{Plan, impossible, impossible_as, in_words};
use crate::arrow::batch::NodeDesc;
use crate::arrow::builder::{c_formatted, terminated};
use crate::arrow::schema::{FieldDesc, Schema};
use crate::arrow::{Batch, MAX_NODES, Type};
use crate::device::Device;
use crate::dlpack::Copying;
use crate::dtype::DType;
use crate::error::{Result, refuse};
use crate::layout;
use crate::memory::{collected, vector};
use crate::runtime::cuda::pointer;
use crate::stream::Stream;
use crate::tensor::{Flags, Tensor, TensorDesc};
use crate::text::Name;
use crate::transfer;
use crate::view::View;

// ---- batch → matrix ----

/// The columns of a batch that can become a matrix: all have one number type.
struct Columns {
    dtype: DType,
    /// Bytes of a value.
    width: i64,
    /// Bytes of all values.
    bytes: usize,
    /// The address of the first value of each column.
    starts: Vec<*const u8>,
    /// Whether the columns are known to lie in one block of memory.
    in_one_block: bool,
}

/// How a record batch can become a matrix. Reads validity buffers if the number of nulls is not known.
///
/// A view needs columns that follow each other in memory at equal distances, with nothing between them, because memory
/// between columns may belong to somebody else. Gaps are allowed only if all columns are known to lie in one block of
/// memory, as in a batch that was copied as a whole or made of a matrix. Columns in several allocations of a driver are no
/// matrix in place even if they touch, because no driver copies from two allocations at once.
///
/// # Errors
/// `DEVX_DEVICE` or `DEVX_NOT_READY` if nulls would have to be counted and the host cannot read the data, `DEVX_DRIVER`.
pub fn plan_matrix(batch: &Batch) -> Result<Plan> {
    let columns = match columns(batch) {
        Ok(columns) => columns,
        Err(error) => return impossible_as(error),
    };
    let null_rows = batch.root().null_count()?;
    if null_rows > 0 {
        let rows = batch.length();
        return Ok(impossible(format_args!("{null_rows} of {rows} rows are null, which a tensor cannot express")));
    }
    for column in batch.columns() {
        let nulls = column.null_count()?;
        if nulls > 0 {
            let name = Name(column.field().name());
            return Ok(impossible(format_args!(
                "{nulls} values of column {name} are null, which a tensor cannot express"
            )));
        }
    }
    Ok(match apart(batch, &columns)? {
        Some(reason) => Plan::Copy { bytes: columns.bytes, reason },
        None => Plan::View,
    })
}

/// The reason why the columns cannot be seen as one matrix in place.
fn apart(batch: &Batch, columns: &Columns) -> Result<Option<Cow<'static, str>>> {
    let rows = batch.length();
    if let Err(reason) = distance(columns, rows) {
        return Ok(Some(reason));
    }
    let first = columns.starts.first().map_or(std::ptr::null(), |first| first.cast());
    let may_be_apart = columns.starts.len() > 1 && columns.bytes > 0 && !columns.in_one_block;
    if may_be_apart && batch.device() != Device::CPU && pointer::ends_within(first, columns.bytes)? {
        return Ok(Some("the columns follow each other in memory, but lie in several allocations".into()));
    }
    // At these distances all columns are aligned if one is.
    Ok(misaligned(first, rows, columns.dtype))
}

fn columns(batch: &Batch) -> Result<Columns> {
    let Some(first) = batch.column(0) else {
        return match batch.root().ty() {
            Type::Struct => refuse!(DEVX_IMPOSSIBLE, "the batch has no columns, so the matrix would have no dtype"),
            ty => refuse!(DEVX_IMPOSSIBLE, "the array is {ty} and has no columns: only a record batch has"),
        };
    };
    if let Some(coded) = batch.columns().find(|column| column.dictionary().is_some()) {
        let name = Name(coded.field().name());
        return refuse!(DEVX_IMPOSSIBLE, "the {} values of column {name} are indices into a dictionary", coded.ty());
    }
    let Some(dtype) = first.ty().dtype() else {
        let name = Name(first.field().name());
        return refuse!(DEVX_IMPOSSIBLE, "column {name} is {}, which is not a number", first.ty());
    };
    let width = dtype.element_bytes().unwrap_or(1);
    let mut starts = vector(batch.n_columns())?;
    for column in batch.columns() {
        if column.ty().dtype() != Some(dtype) {
            let name = Name(column.field().name());
            return refuse!(DEVX_IMPOSSIBLE, "column {name} is {}, the first one is {}", column.ty(), first.ty());
        }
        let values = column.buffers().get(1).copied().unwrap_or(std::ptr::null()).cast::<u8>();
        starts.push(values.wrapping_add(column.offset() as usize * width));
    }
    let bytes = layout::check(dtype, false, &[starts.len() as i64, batch.length()], None)?.bytes;
    Ok(Columns { dtype, width: width as i64, bytes, starts, in_one_block: batch.is_in_one_block() })
}

/// The distance from one column to the next, in elements, if it is the same for all columns and they can be seen as one
/// piece; else the reason.
fn distance(columns: &Columns, rows: i64) -> std::result::Result<i64, Cow<'static, str>> {
    let bytes = rows * columns.width;
    let (Some(&first), Some(&second)) = (columns.starts.first(), columns.starts.get(1)) else { return Ok(rows) };
    if rows == 0 {
        return Ok(0);
    }
    // Addresses are what the producer says: no distance between them is too large.
    let from_first = |start: *const u8| start.addr().wrapping_sub(first.addr()) as i64;
    let step = from_first(second);
    let even = columns.starts.iter().enumerate().all(|(k, &start)| from_first(start) == step.wrapping_mul(k as i64));
    if !even {
        return Err("the columns do not follow each other in memory at equal distances".into());
    }
    if step < bytes {
        return Err(in_words(format_args!(
            "each column begins {step} bytes after the one before it, which has {bytes} bytes"
        )));
    }
    if step > bytes && !columns.in_one_block {
        return Err(in_words(format_args!(
            "there are {} bytes between the columns, which may belong to somebody else",
            step - bytes
        )));
    }
    if step % columns.width != 0 {
        return Err(in_words(format_args!(
            "each column begins {step} bytes after the one before it, which is no whole number of values of {} bytes",
            columns.width
        )));
    }
    Ok(step / columns.width)
}

/// The batch as a column-major matrix with the same rows and columns.
///
/// A view keeps the batch alive and is read-only. A copy in memory of a GPU is queued on `stream`, which is needed only
/// then.
///
/// # Errors
/// Those of [`plan_matrix`] and [`Plan::allow`]; `DEVX_NOT_READY` also if a stream is needed but not given, `DEVX_DEVICE`,
/// `DEVX_OUT_OF_MEMORY`, `DEVX_DRIVER`.
pub fn matrix(batch: &Batch, copy: Copying, stream: Option<Stream>) -> Result<Tensor> {
    let must_copy = plan_matrix(batch)?.allow(copy)?;
    let columns = columns(batch)?;
    match distance(&columns, batch.length()) {
        Ok(distance) if !must_copy => seen_in_place(batch, &columns, distance),
        _ => gathered(batch, &columns, stream),
    }
}

fn seen_in_place(batch: &Batch, columns: &Columns, distance: i64) -> Result<Tensor> {
    let desc = TensorDesc {
        data: columns.starts.first().copied().unwrap_or(std::ptr::null()).cast_mut().cast(),
        device: batch.device(),
        dtype: columns.dtype,
        shape: &[batch.length(), columns.starts.len() as i64],
        strides: Some(&[1, distance]),
        byte_offset: 0,
        flags: Flags::READ_ONLY,
    };
    let view = View::of_batch(batch);
    // SAFETY: the batch describes the memory of each column, which the owner keeps alive.
    let mut matrix = unsafe { Tensor::from_raw_parts(&desc, view.owner()) }?;
    matrix.set_view(view)?;
    Ok(matrix)
}

/// Copies all columns one after the other: by the host if it can read them, otherwise on `stream`.
fn gathered(batch: &Batch, columns: &Columns, stream: Option<Stream>) -> Result<Tensor> {
    let rows = batch.length();
    let shape = [columns.starts.len() as i64, rows];
    let bytes = (rows * columns.width) as usize;
    let places = |to: &Tensor| {
        let first = to.data();
        columns
            .starts
            .iter()
            .enumerate()
            .filter(|_| bytes > 0)
            .map(move |(k, &from)| (first.wrapping_byte_add(k * bytes), from))
    };
    if batch.root().require_host().is_ok() {
        let whole = Tensor::unwritten(Device::CPU, columns.dtype, &shape, None)?;
        for (to, from) in places(&whole) {
            // SAFETY: the target is a column of the new matrix, which nobody else knows of; the batch has as many
            // values.
            unsafe { to.cast::<u8>().copy_from_nonoverlapping(from, bytes) };
        }
        return transposed(&whole, Flags::IS_COPIED);
    }
    let Some(stream) = stream else {
        return refuse!(DEVX_NOT_READY, "a copy of data on {} needs a stream", batch.device());
    };
    stream.require_no_capture()?;
    batch.wait(stream)?;
    let device = batch.device();
    let on = transfer::allocating(device, stream)?;
    let mut whole = Tensor::unwritten(device, columns.dtype, &shape, on)?;
    let is_in_order = whole.ready().stream().is_some();
    let copies = collected(places(&whole).map(|(to, from)| Ok((to, from.cast(), bytes))))?;
    // SAFETY: the targets are columns of the new matrix, which nobody else knows of; the batch has as many values;
    // `kept` keeps both alive.
    let filled = unsafe { transfer::fill(device, device, &copies, stream) };
    let (source, own) = (|filled: &_| batch.hold(stream, filled), |filled: &_| whole.hold(stream, filled));
    let ready = transfer::kept(filled, device, is_in_order, source, own)?;
    whole.set_ready(ready);
    transposed(&whole, Flags::IS_COPIED)
}

/// The matrix with its dimensions swapped, over the same memory.
fn transposed(matrix: &Tensor, flags: Flags) -> Result<Tensor> {
    let (&[rows, columns], &[row, column]) = (matrix.shape(), matrix.strides()) else {
        return refuse!(DEVX_IMPOSSIBLE, "shape is {:?}: a matrix has two dimensions", matrix.shape());
    };
    let desc = TensorDesc {
        data: matrix.data(),
        device: matrix.device(),
        dtype: matrix.dtype(),
        shape: &[columns, rows],
        strides: Some(&[column, row]),
        byte_offset: 0,
        flags,
    };
    // SAFETY: these are the same elements.
    unsafe { matrix.described_anew(&desc) }
}

// ---- matrix → batch ----

/// How a tensor can become a record batch. It must have two dimensions, and a view needs each column in one piece.
pub fn plan_batch(tensor: &Tensor) -> Plan {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    let &[rows, columns] = shape else {
        return impossible(format_args!("shape is {shape:?}: a record batch has rows and columns, so two dimensions"));
    };
    // The batch itself is also a node.
    if columns >= MAX_NODES as i64 {
        return impossible(format_args!("shape is {shape:?}: a record batch has fewer than {MAX_NODES} columns"));
    }
    if Type::format_of(dtype).is_none() {
        return impossible(format_args!("{dtype} has no type in Arrow that a column could be a view of"));
    }
    if tensor.layout().elements > 0 && rows > 1 && tensor.strides().first() != Some(&1) {
        let reason = in_words(format_args!(
            "strides {:?} of shape {shape:?}: the values of a column are apart",
            tensor.strides()
        ));
        return Plan::Copy { bytes: tensor.layout().bytes, reason }.by_the_host(tensor.device());
    }
    Plan::View
}

/// The matrix as a record batch with the same columns. They are named by `names`, or by their numbers if `names` is
/// empty. A view shares the tensor.
///
/// # Errors
/// Same as [`Plan::allow`]; `DEVX_MISMATCH` for another number of names than columns, `DEVX_INVALID_TEXT`;
/// for a copy `DEVX_DEVICE` or `DEVX_NOT_READY` if the host cannot read the data.
pub fn batch(tensor: &Tensor, names: &[&str], copy: Copying) -> Result<Batch> {
    let must_copy = plan_batch(tensor).allow(copy)?;
    let &[rows, columns] = tensor.shape() else {
        return refuse!(DEVX_IMPOSSIBLE, "shape is {:?}: a matrix has two dimensions", tensor.shape());
    };
    if !names.is_empty() && names.len() as i64 != columns {
        return refuse!(DEVX_MISMATCH, "there are {} names for {columns} columns", names.len());
    }
    // Row-major with the dimensions swapped is column-major.
    let tensor = if must_copy {
        transposed(&transposed(tensor, tensor.flags())?.copy()?, Flags::IS_COPIED)?
    } else {
        tensor.clone()
    };
    let format = Type::format_of(tensor.dtype()).unwrap_or("");
    let width = tensor.dtype().element_bytes().unwrap_or(0) as i64;
    // The strides of an empty tensor mean nothing; those of any other tensor reach only elements that can be addressed.
    let stride = tensor.strides().get(1).copied().filter(|_| rows > 0 && columns > 1);
    let step = stride.unwrap_or(0) * width;
    let name_of = |k: i64| match names.get(k as usize) {
        Some(name) => terminated("name", name),
        None => c_formatted(format_args!("{k}")),
    };
    let names = collected((0..columns).map(name_of))?;
    let format = terminated("format", format)?;
    let buffers_of = |k| [std::ptr::null(), tensor.data().wrapping_byte_offset((step * k) as isize).cast_const()];
    let buffers = collected((0..columns).map(|k| Ok(buffers_of(k))))?;
    let (mut fields, mut nodes) = (vector(names.len() + 1)?, vector(names.len() + 1)?);
    fields.push(FieldDesc::batch(names.len() as u32));
    nodes.push(NodeDesc { length: rows, null_count: 0, offset: 0, buffers: &[std::ptr::null()] });
    for (name, buffers) in names.iter().zip(&buffers) {
        fields.push(FieldDesc { flags: 0, ..FieldDesc::new(name, &format) });
        nodes.push(NodeDesc { length: rows, null_count: 0, offset: 0, buffers });
    }
    let (schema, view) = (Schema::new(&fields)?, View::of_tensor(&tensor));
    // SAFETY: the tensor describes the memory of each column, which the owner keeps alive.
    let mut batch = unsafe { Batch::from_raw_parts(&schema, tensor.device(), &nodes, view.owner()) }?;
    batch.set_view(view)?;
    Ok(batch)
}
