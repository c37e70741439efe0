package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * A tensor: one reference to an n-dimensional array in memory, made here ({@link #create}) or imported from a producer
 * through DLPack.
 *
 * <p>Shapes are extents; strides are the distances of neighbours along each dimension, in elements, and may be
 * negative. The memory is released when the last reference and the last export are gone. Any thread may use a tensor;
 * close it when it is not needed any more. After that every method says {@link Status#CLOSED}.
 */
public final class Tensor implements AutoCloseable {
    private static final int DATA = Records.DL_TENSOR.at("data");
    private static final int DEVICE = Records.DL_TENSOR.at("device");
    private static final int DEVICE_TYPE = DEVICE + Records.DL_DEVICE.at("device_type");
    private static final int DEVICE_ID = DEVICE + Records.DL_DEVICE.at("device_id");
    private static final int NDIM = Records.DL_TENSOR.at("ndim");
    private static final int DTYPE = Records.DL_TENSOR.at("dtype");
    private static final int CODE = DTYPE + Records.DL_DATA_TYPE.at("code");
    private static final int BITS = DTYPE + Records.DL_DATA_TYPE.at("bits");
    private static final int LANES = DTYPE + Records.DL_DATA_TYPE.at("lanes");
    private static final int SHAPE = Records.DL_TENSOR.at("shape");
    private static final int STRIDES = Records.DL_TENSOR.at("strides");
    private static final int BYTE_OFFSET = Records.DL_TENSOR.at("byte_offset");

    /** The numbers that follow the record in a description (tensor.rs). */
    private static final int NUMBERS = Records.DL_TENSOR.size();

    private final Handle handle;
    private final long address;
    private final Device device;
    private final DType dtype;
    private final long flags;
    private final long elements;
    private final long bytes;
    private final boolean rowMajor;
    private final long lowest;
    private final long end;
    private final long[] shape;
    private final long[] strides;
    private final Element element;

    private volatile HostMemory memory;

    Tensor(long raw) {
        handle = new Handle(this, Handle.Kind.TENSOR, raw);
        Scratch scratch = Scratch.get();
        Native.tensorDescribe(raw, scratch.address);
        ByteBuffer in = scratch.buffer;
        address = in.getLong(DATA);
        device = new Device(new DeviceType(in.getInt(DEVICE_TYPE)), in.getInt(DEVICE_ID));
        dtype = new DType(
                Byte.toUnsignedInt(in.get(CODE)),
                Byte.toUnsignedInt(in.get(BITS)),
                Short.toUnsignedInt(in.getShort(LANES)));
        element = Element.of(dtype);
        int ndim = in.getInt(NDIM);
        long[] numbers = new long[6 + 2 * ndim];
        in.duplicate().order(in.order()).position(NUMBERS).asLongBuffer().get(numbers);
        flags = numbers[0];
        elements = numbers[1];
        bytes = numbers[2];
        rowMajor = numbers[3] != 0;
        lowest = numbers[4];
        end = numbers[5];
        shape = Arrays.copyOfRange(numbers, 6, 6 + ndim);
        strides = Arrays.copyOfRange(numbers, 6 + ndim, numbers.length);
    }

    // ---- making and taking ----

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
     * fails, it is never run. Unless all sides agree on it, the memory is not to be written meanwhile.
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
        Scratch scratch = Scratch.of(NUMBERS + 2L * Long.BYTES * shape.length);
        write(scratch, address, device, dtype, shape, strides);
        boolean owned = kept != null || release != null;
        long token = owned ? ReleaseQueue.register(kept, release) : 0;
        long made = 0;
        try {
            made = Native.tensorCreate(scratch.address, flags, room, token);
        } finally {
            if (made == 0) {
                ReleaseQueue.cancel(token);
            }
            Reference.reachabilityFence(scratch);
        }
        return new Tensor(made);
    }

    private static void write(
            Scratch scratch, long address, Device device, DType dtype, long[] shape, long[] strides) {
        ByteBuffer out = scratch.buffer;
        out.putLong(DATA, address);
        out.putInt(DEVICE_TYPE, device.type().value());
        out.putInt(DEVICE_ID, device.id());
        out.putInt(NDIM, shape.length);
        out.put(CODE, (byte) dtype.code());
        out.put(BITS, (byte) dtype.bits());
        out.putShort(LANES, (short) dtype.lanes());
        out.putLong(BYTE_OFFSET, 0);
        int at = NUMBERS;
        out.putLong(SHAPE, scratch.address + at);
        for (long extent : shape) {
            out.putLong(at, extent);
            at += Long.BYTES;
        }
        out.putLong(STRIDES, strides == null ? 0 : scratch.address + at);
        for (int i = 0; strides != null && i < strides.length; i++) {
            out.putLong(at + i * Long.BYTES, strides[i]);
        }
    }

    /**
     * Takes a DLPack tensor from its producer. On success its deleter is called once, when the last user is gone, on
     * whatever thread that is; on failure it is untouched and still the caller's ({@link Dlpack#release}).
     *
     * @param address of a {@code DLManagedTensorVersioned} that the caller owns and whose data is ready
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#VERSION} for another major version (of
     *     which nothing else is read), {@link Status#DEVICE}, {@link Status#INVALID_DTYPE},
     *     {@link Status#INVALID_SHAPE}, {@link Status#INVALID_ARGUMENT}, with the field and its value
     */
    public static Tensor importDlpack(long address) {
        return new Tensor(Native.tensorImport(address, false));
    }

    /**
     * As {@link #importDlpack}, for the struct of DLPack before 1.0, which has neither a version nor flags.
     *
     * @param address of a {@code DLManagedTensor} that the caller owns and whose data is ready
     * @return the tensor, which the caller closes
     * @throws DevExchangeException as {@link #importDlpack}
     */
    public static Tensor importDlpackLegacy(long address) {
        return new Tensor(Native.tensorImport(address, true));
    }

    // ---- handing over ----

    /**
     * Hands the tensor to a consumer and keeps it; as {@link #exportShare(DlpackRequest)} with
     * {@link DlpackRequest#DEFAULT}.
     *
     * @return the address of a {@code DLManagedTensorVersioned}, which its consumer deletes
     */
    public long exportShare() {
        return exportShare(DlpackRequest.DEFAULT);
    }

    /**
     * Hands the tensor to a consumer and keeps it. Strides are always there, and {@code byte_offset} is 0.
     *
     * @param request what the consumer asks for
     * @return the address of a {@code DLManagedTensorVersioned}: whoever has it calls its deleter, once
     *     ({@link #importDlpack} or {@link Dlpack#release} do)
     * @throws DevExchangeException {@link Status#VERSION} if the consumer reads the legacy struct only,
     *     {@link Status#INVALID_STREAM}, {@link Status#CLOSED}
     */
    public long exportShare(DlpackRequest request) {
        return export("Tensor.exportShare", request, false);
    }

    /**
     * Hands the tensor to a consumer and closes it here; as {@link #exportMove(DlpackRequest)} with
     * {@link DlpackRequest#DEFAULT}.
     *
     * @return the address of a {@code DLManagedTensorVersioned}, which its consumer deletes
     */
    public long exportMove() {
        return exportMove(DlpackRequest.DEFAULT);
    }

    /**
     * Hands the tensor to a consumer and closes it here. On failure it stays open.
     *
     * @param request what the consumer asks for
     * @return the address of a {@code DLManagedTensorVersioned}: whoever has it calls its deleter, once
     * @throws DevExchangeException as {@link #exportShare(DlpackRequest)}
     */
    public long exportMove(DlpackRequest request) {
        return move("Tensor.exportMove", request, false);
    }

    /**
     * As {@link #exportShare(DlpackRequest)}, as the struct of DLPack before 1.0.
     *
     * @param request what the consumer asks for; its version is not looked at
     * @return the address of a {@code DLManagedTensor}: whoever has it calls its deleter, once
     *     ({@link #importDlpackLegacy} or {@link Dlpack#releaseLegacy} do)
     * @throws DevExchangeException also {@link Status#READ_ONLY} for read-only memory, unless the request allows a
     *     copy, and {@link Status#UNSUPPORTED} for padded sub-byte elements: that struct cannot say so
     */
    public long exportShareLegacy(DlpackRequest request) {
        return export("Tensor.exportShareLegacy", request, true);
    }

    /**
     * As {@link #exportMove(DlpackRequest)}, as the struct of DLPack before 1.0.
     *
     * @param request what the consumer asks for; its version is not looked at
     * @return the address of a {@code DLManagedTensor}: whoever has it calls its deleter, once
     * @throws DevExchangeException as {@link #exportShareLegacy}
     */
    public long exportMoveLegacy(DlpackRequest request) {
        return move("Tensor.exportMoveLegacy", request, true);
    }

    private long export(String method, DlpackRequest request, boolean legacy) {
        long tensor = handle.enter(method);
        try {
            Scratch scratch = Scratch.get();
            request.write(scratch.buffer);
            return Native.tensorExport(tensor, scratch.address, legacy);
        } finally {
            exit();
        }
    }

    private long move(String method, DlpackRequest request, boolean legacy) {
        long exported = export(method, request, legacy);
        if (!handle.close()) {
            // Another thread closed or moved it at the same time, and was first.
            Native.dlpackRelease(exported, legacy);
            throw handle.closed(method);
        }
        return exported;
    }

    /**
     * Another reference to the same tensor.
     *
     * @return the tensor, which the caller closes too
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Tensor share() {
        long tensor = handle.enter("Tensor.share");
        try {
            return new Tensor(Native.tensorShare(tensor));
        } finally {
            exit();
        }
    }

    /**
     * A compact row-major copy in host memory of the library's, with {@link Flags#IS_COPIED} and writable.
     *
     * @return the copy, which the caller closes
     * @throws DevExchangeException {@link Status#DEVICE}, {@link Status#UNSUPPORTED} for strided elements that share
     *     bytes, {@link Status#CLOSED}
     */
    public Tensor copy() {
        long tensor = handle.enter("Tensor.copy");
        try {
            return new Tensor(Native.tensorCopy(tensor));
        } finally {
            exit();
        }
    }

    /**
     * How the tensor can be had as a column. Nothing is taken.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Plan planColumn() {
        long tensor = handle.enter("Tensor.planColumn");
        try {
            Scratch scratch = Scratch.get();
            Native.tensorPlanColumn(tensor, scratch.address);
            return Plan.read(scratch.buffer, 0);
        } finally {
            exit();
        }
    }

    /**
     * The tensor as a column: its first dimension are the rows, the others fixed-size lists. A view shares the memory
     * and keeps it alive by itself.
     *
     * @param name of the column; may be empty
     * @param copy whether the elements may be copied
     * @return a batch whose {@link Batch#root()} is the column; the caller closes it
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE},
     *     {@link Status#INVALID_TEXT}, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Batch toColumn(String name, Copy copy) {
        long tensor = handle.enter("Tensor.toColumn");
        try {
            return new Batch(Native.tensorToColumn(tensor, name, copy.value), null);
        } finally {
            exit();
        }
    }

    // ---- looking ----

    /**
     * The address of the first element.
     *
     * @return an address in memory of the {@link #device()}; 0 if there are no elements
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long address() {
        handle.check("Tensor.address");
        return address;
    }

    /**
     * Where the memory is.
     *
     * @return the device
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Device device() {
        handle.check("Tensor.device");
        return device;
    }

    /**
     * The type of the elements.
     *
     * @return the type
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public DType dtype() {
        handle.check("Tensor.dtype");
        return dtype;
    }

    /**
     * The extents.
     *
     * @return a copy; empty for a scalar
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long[] shape() {
        handle.check("Tensor.shape");
        return shape.clone();
    }

    /**
     * The distances of neighbours along each dimension.
     *
     * @return a copy, in elements
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long[] strides() {
        handle.check("Tensor.strides");
        return strides.clone();
    }

    /**
     * The properties.
     *
     * @return bits of {@link Flags}; unknown ones included
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long flags() {
        handle.check("Tensor.flags");
        return flags;
    }

    /**
     * The number of elements.
     *
     * @return the product of the extents; 1 for a scalar
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long elements() {
        handle.check("Tensor.elements");
        return elements;
    }

    /**
     * The bytes of all elements when they lie compactly. Elements of less than a byte are rounded up once, over the
     * whole tensor.
     *
     * @return 0 or more
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long bytes() {
        handle.check("Tensor.bytes");
        return bytes;
    }

    /**
     * Whether the elements lie compactly in row-major order.
     *
     * @return true also for tensors without elements
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public boolean isRowMajor() {
        handle.check("Tensor.isRowMajor");
        return rowMajor;
    }

    // ---- reading ----

    /**
     * The elements of a compact row-major tensor in host memory, where they are.
     *
     * @return a buffer in native byte order, read-only if the tensor is. It owns nothing: it is not to be used after
     *     the tensor is closed, and nothing checks that
     * @throws DevExchangeException {@link Status#COPY_REQUIRED} for other strides, {@link Status#UNSUPPORTED} for more
     *     than a buffer can have (2 GiB), {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public ByteBuffer byteBuffer() {
        handle.enter("Tensor.byteBuffer");
        try {
            requireHost();
            if (!rowMajor) {
                throw new DevExchangeException(
                        Status.COPY_REQUIRED,
                        "strides " + Arrays.toString(strides) + " of shape " + Arrays.toString(shape)
                                + " are not row-major");
            }
            if (bytes > Integer.MAX_VALUE) {
                throw new DevExchangeException(
                        Status.UNSUPPORTED,
                        "the elements take " + bytes + " bytes: a ByteBuffer has at most " + Integer.MAX_VALUE);
            }
            ByteBuffer view = HostMemory.view(address, bytes);
            boolean readOnly = Flags.has(flags, Flags.READ_ONLY);
            return readOnly ? view.asReadOnlyBuffer().order(ByteOrder.nativeOrder()) : view;
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
     *     {@link Status#INVALID_ARGUMENT} for another number of indices, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public double getDouble(long... index) {
        handle.enter("Tensor.getDouble");
        try {
            if (element == null || !element.fitsDouble()) {
                throw mismatch("a double");
            }
            long at = place(index);
            return element.readDouble(memory(), at);
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
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public long getLong(long... index) {
        handle.enter("Tensor.getLong");
        try {
            if (element == null || !element.fitsLong()) {
                throw mismatch("a long");
            }
            long at = place(index);
            return element.readLong(memory(), at);
        } finally {
            exit();
        }
    }

    /** Bytes from the lowest element to the one at an index. */
    private long place(long[] index) {
        if (index.length != shape.length) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT,
                    "there are " + index.length + " indices for " + shape.length + " dimensions");
        }
        long distance = 0;
        for (int i = 0; i < index.length; i++) {
            if (index[i] < 0 || index[i] >= shape[i]) {
                throw new DevExchangeException(
                        Status.OUT_OF_RANGE, "index[" + i + "] is " + index[i] + ": the extent is " + shape[i]);
            }
            distance += index[i] * strides[i];
        }
        return distance * element.width - lowest;
    }

    private HostMemory memory() {
        if (memory == null) {
            requireHost();
            memory = HostMemory.of(address + lowest, end - lowest);
        }
        return memory;
    }

    private void requireHost() {
        if (!device.isHost()) {
            throw new DevExchangeException(Status.DEVICE, "device is " + device + ", not host memory");
        }
    }

    private DevExchangeException mismatch(String wanted) {
        return new DevExchangeException(Status.MISMATCH, "dtype is " + dtype + ": not " + wanted);
    }

    // ---- closing ----

    /** {@return whether it was closed or moved} */
    public boolean isClosed() {
        return handle.isClosed();
    }

    /** Gives up this reference. Closing twice is fine. */
    @Override
    public void close() {
        handle.close();
    }

    /** {@return type, shape and device, or that it is closed} */
    @Override
    public String toString() {
        return isClosed() ? "Tensor (closed)" : "Tensor (" + dtype + ", " + Arrays.toString(shape) + ", " + device
                + ")";
    }

    private void exit() {
        handle.exit();
        Reference.reachabilityFence(this);
    }
}
