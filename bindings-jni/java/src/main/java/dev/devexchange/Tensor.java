package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * A tensor: one reference to an n-dimensional array in memory, made here ({@link #create}) or imported from a producer
 * through DLPack or the CUDA Array Interface.
 *
 * <p>A shape lists the extents. Strides are the distances between neighbours along each dimension, in elements, and may
 * be negative. The memory is released when the last reference and the last export are gone. Any thread may use a
 * tensor. Close it when it is no longer needed; after that every method fails with {@link Status#CLOSED}.
 */
public final class Tensor extends TensorExchange implements AutoCloseable {
    /** The reader of single elements; null until the first element is asked for. */
    private volatile Elements elements;

    Tensor() {}

    @Override
    Description describe(long address) {
        return Description.of(address);
    }

    @Override
    void forget() {
        super.forget();
        elements = null;
    }

    /**
     * Creates a compact row-major tensor over a direct buffer. Same as {@link #create(ByteBuffer, DType, long[],
     * long[], long, Runnable)} without strides and flags.
     *
     * @param data a direct buffer in native byte order; its first element is at its position
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param release run when the memory is no longer needed; may be null
     * @return the tensor, which the caller closes
     */
    public static Tensor create(ByteBuffer data, DType dtype, long[] shape, Runnable release) {
        return create(data, dtype, shape, null, Flags.NONE, release);
    }

    /**
     * Creates a tensor over a direct buffer, without a copy.
     *
     * <p>The buffer stays reachable until the last user of the tensor is gone, on this side or on a consumer's; then
     * {@code release} runs once, on the thread of the {@link ReleaseQueue}. If this call fails, {@code release} never
     * runs. It should not refer to the tensor: the garbage collector would then never find the tensor. Until the
     * release, the memory must not be written, unless all sides agree on it, and the arena of a buffer over a memory
     * segment must stay open.
     *
     * @param data a direct buffer in native byte order; the first element is at its position, and nothing beyond its
     *     limit is used. With negative strides, elements may lie in front of the position, from the beginning of the
     *     buffer on. A read-only buffer makes a read-only tensor
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param strides in elements; null for compact row-major
     * @param flags bits of {@link Flags}
     * @param release run when the memory is no longer needed; may be null
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer, another byte order, or memory
     *     that is not aligned to the element; {@link Status#INVALID_SHAPE} for extents that are negative, and for a
     *     shape or strides that overflow or do not fit the buffer; {@link Status#INVALID_DTYPE}
     */
    public static Tensor create(
            ByteBuffer data, DType dtype, long[] shape, long[] strides, long flags, Runnable release) {
        long all = data.isReadOnly() ? flags | Flags.READ_ONLY : flags;
        return make(HostMemory.address(data, "data"), Device.CPU, dtype, shape, strides, all, data, release);
    }

    /**
     * Creates a tensor over memory at an address, without a copy. Like {@link #create(ByteBuffer, DType, long[],
     * long[], long, Runnable)}, but nothing about the memory can be checked. Data that is not on the CPU counts as queued
     * on the legacy default stream, unless {@link #producedOn} names another one.
     *
     * @param address of the first element; may be 0 if there are no elements
     * @param device where the memory is
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param strides in elements; null for compact row-major
     * @param flags bits of {@link Flags}
     * @param release run when the memory is no longer needed; null if the memory outlives everything
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#INVALID_ARGUMENT},
     *     {@link Status#INVALID_SHAPE}, {@link Status#INVALID_DTYPE}, {@link Status#DEVICE}, with the field and its
     *     value
     */
    public static Tensor create(
            long address, Device device, DType dtype, long[] shape, long[] strides, long flags, Runnable release) {
        return make(address, device, dtype, shape, strides, flags, null, release);
    }

    private static Tensor make(
            long address,
            Device device,
            DType dtype,
            long[] shape,
            long[] strides,
            long flags,
            ByteBuffer data,
            Runnable release) {
        if (strides != null && strides.length != shape.length) {
            throw new DevExchangeException(
                    Status.INVALID_SHAPE,
                    "there are " + strides.length + " strides for " + shape.length + " dimensions");
        }
        Tensor tensor = new Tensor();
        Scratch scratch = Description.write(address, device, dtype, shape, strides);
        long before = data == null ? 0 : data.position();
        long room = data == null ? -1 : data.remaining();
        boolean owned = data != null || release != null;
        Long token = owned ? ReleaseQueue.register(data, release) : Long.valueOf(0);
        long made = 0;
        try {
            made = Native.tensorCreate(scratch.address, flags, before, room, token);
        } finally {
            if (made == 0) {
                ReleaseQueue.cancel(token);
            }
            Reference.reachabilityFence(scratch);
        }
        return tensor.of(made);
    }

    /**
     * Creates a compact row-major tensor over new, uninitialised memory of a device. On a GPU and with a stream, the
     * memory comes from the device's pool, is ready for work on that stream, and is given back in the stream's order.
     * Without a stream it can be used at once; that of a GPU counts as filled on the legacy default stream ({@link
     * #producedOn}). Pinned and managed memory is made for the device of the stream, without a stream for device 0,
     * whatever number {@code device} has.
     *
     * @param device where to allocate the memory
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param stream a stream of that device, or null
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_MEMORY}, {@link Status#INVALID_SHAPE},
     *     {@link Status#INVALID_DTYPE}, {@link Status#DEVICE}, {@link Status#INVALID_STREAM} for a stream of another
     *     device, {@link Status#UNSUPPORTED} if the stream is being captured, {@link Status#DRIVER}, {@link
     *     Status#CLOSED}
     */
    public static Tensor allocate(Device device, DType dtype, long[] shape, DeviceStream stream) {
        return allocate(device, dtype, shape, stream, Native::tensorAllocate);
    }

    /**
     * Creates a tensor over new memory of a manager, otherwise like {@link #allocate(Device, DType, long[],
     * DeviceStream)}. Without a stream, memory of a pool is in the order of the legacy default stream. Pinned and
     * managed memory is requested for the device of the stream, without a stream for device 0.
     *
     * @param manager the manager that allocates the memory and gets it back; it may be closed before the tensor
     * @param device where to allocate the memory
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param stream a stream of that device, or null; the memory is allocated and given back in its order, if the
     *     manager can do that. It may be closed before the tensor
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_SHAPE}, {@link Status#INVALID_DTYPE}, and those of {@link
     *     MemoryManager#allocate}
     */
    public static Tensor allocate(
            MemoryManager manager, Device device, DType dtype, long[] shape, DeviceStream stream) {
        return manager.waiting(() -> {
            long open = manager.enter("Tensor.allocate");
            try {
                return allocate(device, dtype, shape, stream, (description, queue) ->
                        Native.tensorAllocateWith(open, description, queue));
            } finally {
                manager.exit();
            }
        });
    }

    /**
     * Creates a compact row-major tensor over new, zeroed host memory that can be offered to other processes without a
     * copy ({@link IpcServer}).
     *
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_MEMORY}, {@link Status#INVALID_SHAPE},
     *     {@link Status#INVALID_DTYPE}, {@link Status#SYSTEM}
     */
    public static Tensor allocateShared(DType dtype, long[] shape) {
        return allocate(Device.CPU, dtype, shape, null, (description, none) ->
                Native.tensorAllocateShared(description));
    }

    /** A native call that makes a tensor from a description, for a stream or 0. */
    private interface AllocateCall {
        long apply(long description, long stream);
    }

    private static Tensor allocate(
            Device device, DType dtype, long[] shape, DeviceStream stream, AllocateCall allocate) {
        Scratch scratch = Description.write(0, device, dtype, shape, null);
        long queue = DeviceStream.enterIfAny(stream, "Tensor.allocate");
        try {
            return new Tensor().of(allocate.apply(scratch.address, queue));
        } finally {
            DeviceStream.exitIfAny(stream);
            Reference.reachabilityFence(scratch);
        }
    }

    /**
     * Takes a DLPack tensor from its producer. On success its deleter is called once, when the last user is gone, on
     * any thread. On failure the struct is untouched and the caller still owns it ({@link Dlpack#release}).
     *
     * @param address of a {@code DLManagedTensorVersioned} that the caller owns. On a GPU its data counts as ready for
     *     work on the legacy default stream, as if the producer had been asked for no particular stream
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#VERSION} for another major version (of
     *     which nothing else is read), {@link Status#DEVICE}, {@link Status#INVALID_DTYPE},
     *     {@link Status#INVALID_SHAPE}, {@link Status#INVALID_ARGUMENT}, with the field and its value
     */
    public static Tensor importDlpack(long address) {
        return new Tensor().of(Native.tensorImport(address, false));
    }

    /**
     * Same as {@link #importDlpack(long)}, for the struct of DLPack before 1.0, which has neither a version nor flags.
     *
     * @param address of a {@code DLManagedTensor} that the caller owns
     * @return the tensor, which the caller closes
     * @throws DevExchangeException as {@link #importDlpack(long)}
     */
    public static Tensor importDlpackLegacy(long address) {
        return new Tensor().of(Native.tensorImport(address, true));
    }

    /**
     * Same as {@link #importDlpack(long)}, for a tensor whose producer was given a stream: its data is ready for work
     * that is queued on that stream from now on.
     *
     * @param address of a {@code DLManagedTensorVersioned} that the caller owns
     * @param stream the stream that the producer was given; null if the producer was asked for no synchronisation (−1)
     * @return the tensor, which the caller closes
     * @throws DevExchangeException as {@link #importDlpack(long)}; {@link Status#INVALID_STREAM} for a stream that the
     *     tensor's device does not take
     */
    public static Tensor importDlpack(long address, DeviceStream stream) {
        return importOn("Tensor.importDlpack", address, stream, false);
    }

    /**
     * Same as {@link #importDlpack(long, DeviceStream)}, for the struct of DLPack before 1.0.
     *
     * @param address of a {@code DLManagedTensor} that the caller owns
     * @param stream the stream that the producer was given; null if the producer was asked for no synchronisation (−1)
     * @return the tensor, which the caller closes
     * @throws DevExchangeException as {@link #importDlpack(long, DeviceStream)}
     */
    public static Tensor importDlpackLegacy(long address, DeviceStream stream) {
        return importOn("Tensor.importDlpackLegacy", address, stream, true);
    }

    private static Tensor importOn(String method, long address, DeviceStream stream, boolean legacy) {
        long queue = DeviceStream.enterIfAny(stream, method);
        try {
            return new Tensor().of(Native.tensorImportOn(address, queue, legacy));
        } finally {
            DeviceStream.exitIfAny(stream);
        }
    }

    /**
     * Takes an array without a mask from its producer, as the C struct of the CUDA Array Interface. {@link
     * CudaArray#importCudaArray} does the same for arrays that may have a mask.
     *
     * @param address of a {@code devx_cuda_array} that the caller owns
     * @param request the consumer's stream, and the policy for producers without one
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#UNSUPPORTED} if there is a mask, which a tensor cannot express, and
     *     those of {@link CudaArray#importCudaArray(long, CudaArrayRequest)}
     */
    public static Tensor importCudaArray(long address, CudaArrayRequest request) {
        return CudaArray.take(address, request, false).tensor();
    }

    /**
     * Same as {@link #importCudaArray(long, CudaArrayRequest)}.
     *
     * @param array a {@code devx_cuda_array} with content
     * @param request the consumer's stream, and the policy for producers without one
     * @return the tensor, which the caller closes
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind
     */
    public static Tensor importCudaArray(CStruct array, CudaArrayRequest request) {
        return array.lend(
                "Tensor.importCudaArray", address -> importCudaArray(address, request), Handle.Kind.CUDA_ARRAY);
    }

    // ---- looking ----

    /**
     * The address of the first element.
     *
     * @return an address in memory of the {@link #device()}; 0 if there are no elements. It is valid only while the
     *     tensor is open and reachable, so use it within the try-with-resources that closes the tensor
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long address() {
        return is("Tensor.address").address();
    }

    /**
     * Where the memory is.
     *
     * @return the device
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Device device() {
        return is("Tensor.device").device();
    }

    /**
     * The type of the elements.
     *
     * @return the type
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public DType dtype() {
        return is("Tensor.dtype").dtype();
    }

    /**
     * The extents.
     *
     * @return a copy; empty for a scalar
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long[] shape() {
        return is("Tensor.shape").shape().clone();
    }

    /**
     * The distances between neighbours along each dimension.
     *
     * @return a copy, in elements
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long[] strides() {
        return is("Tensor.strides").strides().clone();
    }

    /**
     * The properties.
     *
     * @return bits of {@link Flags}; unknown ones included
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long flags() {
        return is("Tensor.flags").flags();
    }

    /**
     * The number of elements.
     *
     * @return the product of the extents; 1 for a scalar
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long elements() {
        return is("Tensor.elements").elements();
    }

    /**
     * The number of bytes that all elements take when they lie compactly. For elements of less than a byte, the total
     * is rounded up once.
     *
     * @return 0 or more
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long bytes() {
        return is("Tensor.bytes").bytes();
    }

    /**
     * Whether the elements lie compactly in row-major order.
     *
     * @return true also for tensors without elements
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public boolean isRowMajor() {
        return is("Tensor.isRowMajor").rowMajor();
    }

    // ---- reading ----

    /**
     * The elements of a compact row-major tensor in host memory, without a copy. Those in pinned and managed memory can
     * be read, here and one by one, when the data is ready: when the work on a stream that fills them is done ({@link
     * DeviceStream#synchronize}).
     *
     * @return a buffer in native byte order, read-only if the tensor is. It must not be used after the tensor is
     *     closed, which nothing checks; while it is reachable, the garbage collector does not close the tensor
     * @throws DevExchangeException {@link Status#COPY_REQUIRED} for other strides, {@link Status#UNSUPPORTED} for more
     *     than a buffer can hold (2 GiB), {@link Status#DEVICE} for memory that the host cannot read, {@link
     *     Status#NOT_READY} for data that is queued on a stream, {@link Status#CLOSED}
     */
    public ByteBuffer byteBuffer() {
        enter("Tensor.byteBuffer");
        try {
            Description is = isInside();
            requireHost(is);
            if (!is.rowMajor()) {
                throw new DevExchangeException(
                        Status.COPY_REQUIRED,
                        "strides " + Arrays.toString(is.strides()) + " of shape " + Arrays.toString(is.shape())
                                + " are not row-major");
            }
            if (is.bytes() > Integer.MAX_VALUE) {
                throw new DevExchangeException(
                        Status.UNSUPPORTED,
                        "the elements take " + is.bytes() + " bytes: a ByteBuffer has at most " + Integer.MAX_VALUE);
            }
            ByteBuffer buffer = view(is.address(), is.bytes());
            boolean readOnly = Flags.has(is.flags(), Flags.READ_ONLY);
            return readOnly ? buffer.asReadOnlyBuffer().order(ByteOrder.nativeOrder()) : buffer;
        } finally {
            exit();
        }
    }

    /**
     * Returns one element of a tensor of floating point numbers, of integers of up to 32 bits, or of bools (1 or 0).
     *
     * @param index one for each dimension, counted from 0
     * @return the value, exactly
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_ARGUMENT} for a wrong number of indices, {@link Status#INVALID_SHAPE} for strides that span
     *     more than host memory can have, {@link Status#DEVICE}, {@link Status#NOT_READY}, {@link Status#CLOSED}
     */
    public double getDouble(long... index) {
        enter("Tensor.getDouble");
        try {
            return elementsInside().getDouble(index);
        } finally {
            exit();
        }
    }

    /**
     * Returns one element of a tensor of integers or of bools (1 or 0).
     *
     * @param index one for each dimension, counted from 0
     * @return the value
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE} also for an
     *     unsigned value that a long cannot hold, {@link Status#INVALID_ARGUMENT} for a wrong number of indices, {@link
     *     Status#INVALID_SHAPE} for strides that span more than host memory can have, {@link Status#DEVICE}, {@link
     *     Status#NOT_READY}, {@link Status#CLOSED}
     */
    public long getLong(long... index) {
        enter("Tensor.getLong");
        try {
            return elementsInside().getLong(index);
        } finally {
            exit();
        }
    }

    private Elements elementsInside() {
        Elements known = elements;
        if (known == null) {
            known = new Elements(this, isInside());
            elements = known;
        }
        return known;
    }

    /** Refuses to read elements that are not in host memory or not ready yet. The caller must be inside. */
    void requireHost(Description is) {
        if (!(is.ready() && is.device().isHost())) {
            Native.tensorRequireHost(handle.address());
        }
    }

    /** {@return type, shape and device, or that it is closed} */
    @Override
    public String toString() {
        try {
            Description is = is("Tensor.toString");
            return "Tensor (" + is.dtype() + ", " + Arrays.toString(is.shape()) + ", " + is.device() + ")";
        } catch (DevExchangeException closed) {
            return "Tensor (closed)";
        }
    }
}
