package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * A tensor: one reference to an n-dimensional array in memory, made here ({@link #create}) or imported from a producer
 * through DLPack or the CUDA Array Interface.
 *
 * <p>Shapes are extents; strides are the distances of neighbours along each dimension, in elements, and may be
 * negative. The memory is released when the last reference and the last export are gone. Any thread may use a tensor;
 * close it when it is not needed any more. After that every method says {@link Status#CLOSED}.
 */
public final class Tensor extends TensorExchange implements AutoCloseable {
    /** Its elements, once somebody asked for one. */
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
     * A compact row-major tensor over a direct buffer; as
     * {@link #create(ByteBuffer, DType, long[], long[], long, Runnable)} without strides and flags.
     *
     * @param data a direct buffer in native byte order; its first element is at its position
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param release run when the memory is not needed any more; may be null
     * @return the tensor, which the caller closes
     */
    public static Tensor create(ByteBuffer data, DType dtype, long[] shape, Runnable release) {
        return create(data, dtype, shape, null, Flags.NONE, release);
    }

    /**
     * A tensor over a direct buffer, which is not copied.
     *
     * <p>The buffer stays reachable, and {@code release} is not run, until the last user of the tensor is gone, on this
     * side or on a consumer's; then {@code release} runs once, on the thread of the {@link ReleaseQueue}. If this call
     * fails, it is never run. If it refers to the tensor, the garbage collector never finds that. Unless all sides agree
     * on it, the memory is not to be written meanwhile. The arena of a buffer of a memory segment stays open until the
     * release.
     *
     * @param data a direct buffer in native byte order; its first element is at its position, and nothing behind its
     *     limit is used. A read-only buffer makes a read-only tensor
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param strides in elements; null for compact row-major
     * @param flags bits of {@link Flags}
     * @param release run when the memory is not needed any more; may be null
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer, another byte order, or memory
     *     that is not aligned to the element; {@link Status#INVALID_SHAPE} for extents or strides that are negative,
     *     overflow, or do not fit the buffer; {@link Status#INVALID_DTYPE}
     */
    public static Tensor create(
            ByteBuffer data, DType dtype, long[] shape, long[] strides, long flags, Runnable release) {
        long all = data.isReadOnly() ? flags | Flags.READ_ONLY : flags;
        return make(HostMemory.address(data, "data"), Device.CPU, dtype, shape, strides, all, data.remaining(), data,
                release);
    }

    /**
     * A tensor over memory at an address, which is not copied and about which nothing can be checked; as
     * {@link #create(ByteBuffer, DType, long[], long[], long, Runnable)}.
     *
     * @param address of the first element; may be 0 if there are no elements
     * @param device where the memory is
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param strides in elements; null for compact row-major
     * @param flags bits of {@link Flags}
     * @param release run when the memory is not needed any more; null if it outlives everything
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#INVALID_ARGUMENT},
     *     {@link Status#INVALID_SHAPE}, {@link Status#INVALID_DTYPE}, {@link Status#DEVICE}, with the field and its
     *     value
     */
    public static Tensor create(
            long address, Device device, DType dtype, long[] shape, long[] strides, long flags, Runnable release) {
        return make(address, device, dtype, shape, strides, flags, -1, null, release);
    }

    private static Tensor make(
            long address,
            Device device,
            DType dtype,
            long[] shape,
            long[] strides,
            long flags,
            long room,
            Object kept,
            Runnable release) {
        if (strides != null && strides.length != shape.length) {
            throw new DevExchangeException(
                    Status.INVALID_SHAPE,
                    "there are " + strides.length + " strides for " + shape.length + " dimensions");
        }
        Tensor tensor = new Tensor();
        Scratch scratch = Description.write(address, device, dtype, shape, strides);
        boolean owned = kept != null || release != null;
        Long token = owned ? ReleaseQueue.register(kept, release) : Long.valueOf(0);
        long made = 0;
        try {
            made = Native.tensorCreate(scratch.address, flags, room, token);
        } finally {
            if (made == 0) {
                ReleaseQueue.cancel(token);
            }
            Reference.reachabilityFence(scratch);
        }
        return tensor.of(made);
    }

    /**
     * A tensor over new memory of a device, compact and row-major, not initialised. On a GPU with a stream the memory
     * comes from the device's pool, ready for work on that stream, and is given back in its order; without one it is
     * ready at once.
     *
     * @param device where the memory is to be
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param stream of that device; may be null
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_MEMORY}, {@link Status#INVALID_SHAPE},
     *     {@link Status#INVALID_DTYPE}, {@link Status#DEVICE}, {@link Status#DRIVER}, {@link Status#CLOSED}
     */
    public static Tensor allocate(Device device, DType dtype, long[] shape, DeviceStream stream) {
        return allocate(device, dtype, shape, stream, Native::tensorAllocate);
    }

    /**
     * As {@link #allocate(Device, DType, long[], DeviceStream)}, over memory of a manager.
     *
     * @param manager who allocates, and gets the memory back; it may be closed before the tensor
     * @param device kind of memory, and the id of the device that it is for
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param stream of that device, in whose order the memory is given and taken back, if the manager can do that; it
     *     may be closed before the tensor; may be null
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_SHAPE}, {@link Status#INVALID_DTYPE}, and as
     *     {@link MemoryManager#allocate}
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
     * A tensor over new host memory that can be offered to other processes without a copy ({@link IpcServer}):
     * compact, row-major, zeroed.
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

    /** A native that makes a tensor of a description, for a stream or 0. */
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
     * whatever thread that is; on failure it is untouched and still the caller's ({@link Dlpack#release}).
     *
     * @param address of a {@code DLManagedTensorVersioned} that the caller owns. On a GPU its data is there for work on
     *     the legacy default stream, as if its producer had been asked for no stream in particular
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#VERSION} for another major version (of
     *     which nothing else is read), {@link Status#DEVICE}, {@link Status#INVALID_DTYPE},
     *     {@link Status#INVALID_SHAPE}, {@link Status#INVALID_ARGUMENT}, with the field and its value
     */
    public static Tensor importDlpack(long address) {
        return new Tensor().of(Native.tensorImport(address, false));
    }

    /**
     * As {@link #importDlpack(long)}, for the struct of DLPack before 1.0, which has neither a version nor flags.
     *
     * @param address of a {@code DLManagedTensor} that the caller owns
     * @return the tensor, which the caller closes
     * @throws DevExchangeException as {@link #importDlpack(long)}
     */
    public static Tensor importDlpackLegacy(long address) {
        return new Tensor().of(Native.tensorImport(address, true));
    }

    /**
     * As {@link #importDlpack(long)}, of a tensor whose producer was asked for it with a stream: its data is there for
     * work that is queued on that stream from now on.
     *
     * @param address of a {@code DLManagedTensorVersioned} that the caller owns
     * @param stream the one that the producer was given; null if the producer was
     *     asked for no synchronisation (−1)
     * @return the tensor, which the caller closes
     * @throws DevExchangeException as {@link #importDlpack(long)}; {@link Status#INVALID_STREAM} for a stream that the
     *     tensor's device does not take
     */
    public static Tensor importDlpack(long address, DeviceStream stream) {
        return importOn("Tensor.importDlpack", address, stream, false);
    }

    /**
     * As {@link #importDlpack(long, DeviceStream)}, for the struct of DLPack before 1.0.
     *
     * @param address of a {@code DLManagedTensor} that the caller owns
     * @param stream as there
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
     * Takes an array without a mask from its producer, as the C struct of the CUDA Array Interface; as
     * {@link CudaArray#importCudaArray}, which is for arrays with one.
     *
     * @param address of a {@code devx_cuda_array} that the caller owns
     * @param request the consumer's stream, and the policy for producers without one
     * @return the tensor, which the caller closes
     * @throws DevExchangeException also {@link Status#UNSUPPORTED} if there is a mask, which a tensor cannot say; and
     *     as there
     */
    public static Tensor importCudaArray(long address, CudaArrayRequest request) {
        return CudaArray.take(address, request, false).tensor();
    }

    // ---- looking ----

    /**
     * The address of the first element.
     *
     * @return an address in memory of the {@link #device()}; 0 if there are no elements. It is valid while the tensor
     *     is open and reachable: best used within the try-with-resources that closes the tensor
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
     * The distances of neighbours along each dimension.
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
     * The bytes of all elements when they lie compactly. Elements of less than a byte are rounded up once, over the
     * whole tensor.
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
     * The elements of a compact row-major tensor in host memory, where they are.
     *
     * @return a buffer in native byte order, read-only if the tensor is. It is not to be used after the tensor is
     *     closed, and nothing checks that; while it is reachable, the garbage collector does not close the tensor
     * @throws DevExchangeException {@link Status#COPY_REQUIRED} for other strides, {@link Status#UNSUPPORTED} for more
     *     than a buffer can have (2 GiB), {@link Status#DEVICE} for memory that the host cannot read,
     *     {@link Status#NOT_READY} for data that is queued on a stream, {@link Status#CLOSED}
     */
    public ByteBuffer byteBuffer() {
        enter("Tensor.byteBuffer");
        try {
            Description is = isInside();
            is.device().requireHost(is.ready());
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
     * An element of floating point numbers, or of integers of up to 32 bits, or 1 and 0 of bools.
     *
     * @param index one for each dimension, counted from 0
     * @return the value, exactly
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_ARGUMENT} for another number of indices, {@link Status#INVALID_SHAPE} for strides that
     *     reach over more than host memory can have, {@link Status#DEVICE}, {@link Status#CLOSED}
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
     * An element of integers, or 1 and 0 of bools.
     *
     * @param index one for each dimension, counted from 0
     * @return the value
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE} also for an
     *     unsigned value that a long cannot hold, {@link Status#INVALID_ARGUMENT} for another number of indices,
     *     {@link Status#INVALID_SHAPE} for strides that reach over more than host memory can have,
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
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
            known = new Elements(isInside());
            elements = known;
        }
        return known;
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
