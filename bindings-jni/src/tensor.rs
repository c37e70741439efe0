//! Tensors: making, describing and copying them.

use devexchange_core::abi::dlpack::DLTensor;
use devexchange_core::layout::{self, Layout};
use devexchange_core::order::Ready;
use devexchange_core::{DType, Device, Flags, Stream, Tensor, TensorDesc, dlpack};
use jni::sys::jlong;

use crate::device::device;
use crate::error::{Result, refuse};
use crate::handle::{give, take, tensor};
use crate::memory::beginning;
use crate::native::plain;
use crate::queue::{keep, try_owner};
use crate::stream::{of_copy, optional};

plain! { tensor_create(description: jlong, flags: jlong, before: jlong, room: jlong, token: jlong) -> jlong }
/// Makes a tensor over Java-owned memory. `description` is the address of a `DLTensor`; `before` is the number of bytes in
/// front of its data that belong to the same memory; `room` is the number of bytes from its data on, −1 if not known;
/// `token` stands for what keeps the memory alive.
fn tensor_create(description: jlong, flags: jlong, before: jlong, room: jlong, token: jlong) -> Result<jlong> {
    // SAFETY: Java gives the address of a description that is valid during the call.
    let description = unsafe { &*take::<DLTensor>(description) };
    // SAFETY: as above.
    let desc = unsafe { dlpack::describe(description, Flags(flags.cast_unsigned())) }?;
    if room >= 0 {
        check_room(&desc, before as isize, room as isize)?;
    }
    // SAFETY: Java describes memory that it keeps until the token comes back.
    let tensor = keep(unsafe { Tensor::from_raw_parts(&desc, try_owner(token)?) })?;
    Ok(give(tensor.into_raw()))
}

/// Refuses a shape that does not fit a byte buffer, which has `before` bytes in front of the first element and `room` bytes
/// from there on.
fn check_room(desc: &TensorDesc<'_>, before: isize, room: isize) -> Result<()> {
    let padded = desc.flags.has(Flags::SUBBYTE_PADDED);
    let Layout { lowest, end, .. } = layout::check(desc.dtype, padded, desc.shape, desc.strides)?;
    if lowest >= -before && end <= room {
        return Ok(());
    }
    let (shape, dtype) = (desc.shape, desc.dtype);
    match desc.strides {
        None => refuse!(DEVX_INVALID_SHAPE, "shape {shape:?} of {dtype} takes {end} bytes: the buffer has {room}"),
        Some(strides) => refuse!(
            DEVX_INVALID_SHAPE,
            "strides {strides:?} with shape {shape:?} of {dtype} reach from {lowest} to {end} bytes: the buffer has \
             {room} from its position on and {before} in front of it"
        ),
    }
}

/// The device, type and extents of a new tensor, from a `DLTensor` without an address.
///
/// # Safety
/// `description` is the address of such a `DLTensor`, which outlives the result.
pub(crate) unsafe fn wanted<'a>(description: jlong) -> Result<(Device, DType, &'a [i64])> {
    // SAFETY: the caller's contract.
    let wanted = unsafe { &*take::<DLTensor>(description) };
    // SAFETY: as above; Java has as many extents as it says.
    let shape = unsafe { std::slice::from_raw_parts(wanted.shape, wanted.ndim as usize) };
    Ok((Device::from_dlpack(wanted.device)?, DType::from_dlpack(wanted.dtype)?, shape))
}

plain! { tensor_allocate(description: jlong, stream: jlong) -> jlong }
/// Makes a tensor over new memory, as described; without a stream the memory is ready at once.
fn tensor_allocate(description: jlong, stream: jlong) -> Result<jlong> {
    // SAFETY: Java gives the address of a description that is valid during the call.
    let (device, dtype, shape) = unsafe { wanted(description) }?;
    // SAFETY: Java gives a living handle, or none.
    let stream = unsafe { optional(stream, |number| device.stream_with(device, number)) }?;
    Ok(give(Tensor::allocate(device, dtype, shape, stream)?.into_raw()))
}

plain! { tensor_describe(handle: jlong, out: jlong) }
/// Writes the tensor as a `DLTensor`, and after it as longs: flags, elements, bytes, 1 if row-major, the byte offsets of
/// the lowest element and of the end of the highest one, 1 if the data is ready now, the shape, the strides.
fn tensor_describe(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    let Layout { elements, bytes, lowest, end, row_major, .. } = tensor.layout();
    let ready = matches!(tensor.ready(), Ready::Now);
    let flags = tensor.flags().0.cast_signed();
    let numbers = [flags, elements as i64, bytes as i64, row_major.into(), lowest as i64, end as i64, ready.into()];
    let out = take::<DLTensor>(out);
    // SAFETY: Java gives the address of memory for the record and the numbers of a tensor with the most dimensions.
    unsafe { out.write(tensor.as_dltensor()) };
    // SAFETY: as above.
    let after = unsafe { out.add(1) }.cast::<i64>();
    // SAFETY: as above.
    unsafe { after.cast::<[i64; 7]>().write(numbers) };
    let (shape, strides) = (tensor.shape(), tensor.strides());
    // One number at a time: they are few, and two calls that copy bytes would take longer than everything else.
    let extents = after.wrapping_add(numbers.len());
    let steps = extents.wrapping_add(shape.len());
    for (at, (extent, stride)) in shape.iter().zip(strides).enumerate() {
        // SAFETY: as above.
        unsafe { extents.wrapping_add(at).write(*extent) };
        // SAFETY: as above; a tensor has as many strides as extents.
        unsafe { steps.wrapping_add(at).write(*stride) };
    }
    Ok(())
}

plain! { tensor_require_host(handle: jlong) }
/// Checks that the host can read the elements where they are, now.
fn tensor_require_host(handle: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { tensor(handle) }?.require_host()?)
}

plain! { tensor_share(handle: jlong) -> jlong }
/// Returns another reference to the same tensor.
fn tensor_share(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    Ok(give(Tensor::clone(&tensor).into_raw()))
}

plain! { tensor_slice(handle: jlong, dimension: jint, offset: jlong, length: jlong) -> jlong }
/// Returns a range of the indices along one dimension.
fn tensor_slice(handle: jlong, dimension: i32, offset: jlong, length: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    Ok(give(tensor.slice(dimension.into(), offset, length)?.into_raw()))
}

plain! { tensor_copy(handle: jlong) -> jlong }
/// Makes a compact row-major copy in the library's own host memory.
fn tensor_copy(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    Ok(give(tensor.copy()?.into_raw()))
}

plain! { tensor_copy_to(handle: jlong, device: jlong, stream: jlong) -> jlong }
/// Copies the tensor to another device, in the order of a stream; without one, the host copies.
fn tensor_copy_to(handle: jlong, packed: jlong, queue: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let (tensor, target) = (unsafe { tensor(handle) }?, device(packed)?);
    // SAFETY: as above.
    let stream = unsafe { of_copy(queue, (tensor.device(), target), |number| tensor.stream_to(target, number)) }?;
    let copy = match stream {
        Some(stream) => tensor.copy_to(target, stream),
        None => tensor.copy(),
    };
    Ok(give(copy?.into_raw()))
}

plain! { tensor_read(handle: jlong, into: jlong, bytes: jlong, stream: jlong) }
/// Reads all elements into a byte buffer, and waits for them; without a stream, the host reads.
fn tensor_read(handle: jlong, into: jlong, bytes: jlong, queue: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    // SAFETY: as above.
    let stream = unsafe { with_host(queue, &tensor) }?;
    // SAFETY: Java gives a writable buffer of its caller with `bytes` bytes.
    let into = unsafe { std::slice::from_raw_parts_mut(beginning(into, bytes), bytes.cast_unsigned() as usize) };
    Ok(tensor.read(into, stream)?)
}

plain! { tensor_write(handle: jlong, source: jlong, bytes: jlong, stream: jlong) }
/// Writes all elements from a byte buffer; without a stream, the host writes.
fn tensor_write(handle: jlong, source: jlong, bytes: jlong, queue: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    // SAFETY: as above.
    let stream = unsafe { with_host(queue, &tensor) }?;
    // SAFETY: Java gives a buffer of its caller with `bytes` bytes.
    let source = unsafe { std::slice::from_raw_parts(beginning(source, bytes), bytes.cast_unsigned() as usize) };
    // SAFETY: Java's caller ensures that nobody else uses the elements.
    Ok(unsafe { tensor.write(source, stream) }?)
}

/// The stream for a copy between a tensor and a byte buffer.
///
/// # Safety
/// `queue` is 0 or a living handle.
unsafe fn with_host(queue: jlong, tensor: &Tensor) -> Result<Option<Stream>> {
    let between = (tensor.device(), Device::CPU);
    // SAFETY: the caller's contract.
    unsafe { of_copy(queue, between, |number| tensor.stream_to(Device::CPU, number)) }
}

plain! { tensor_check_pointers(handle: jlong) }
/// Asks the driver whether the memory is where the tensor says.
fn tensor_check_pointers(handle: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { tensor(handle) }?.check_pointers()?)
}
