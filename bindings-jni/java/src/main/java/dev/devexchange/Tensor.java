package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.ReadOnlyBufferException;
import java.util.Arrays;
import java.util.List;

/**
 * A tensor: one reference to an n-dimensional array in memory, made here ({@link #create}) or imported from a producer
 * through DLPack or the CUDA Array Interface.
 *
 * <p>Shapes are extents; strides are the distances of neighbours along each dimension, in elements, and may be
 * negative. The memory is released when the last reference and the last export are gone. Any thread may use a tensor;
 * close it when it is not needed any more. After that every method says {@link Status#CLOSED}.
 */
public final class Tensor implements AutoCloseable {
    private final Handle handle;

    /** What it is, once somebody asked: a tensor is often only handed on. */
    private volatile Description description;

    /** Its elements, once somebody asked for one. */
    private volatile Elements elements;

    Tensor(long raw) {
        handle = new Handle(this, Handle.Kind.TENSOR, raw);
    }

    /** What it is; {@code method} is for the message if it is closed. */
    private Description is(String method) {
        Description known = description;
        if (known != null) {
            handle.check(method);
            return known;
        }
        long tensor = enter(method);
        try {
            known = Description.of(tensor);
            description = known;
            return known;
        } finally {
            exit();
        }
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
        Scratch scratch = Description.write(address, device, dtype, shape, strides);
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

    /**
     * A tensor over new memory of a device, compact and row-major, not initialised. On a GPU with a stream the memory
     * comes from the device's pool, ready for work on that stream, and is given back in its order; without one it is
     * ready at once.
     *
     * @param device where the memory is to be
     * @param dtype type of the elements
     * @param shape extents; empty for a scalar
     * @param stream of that device, which is closed after the tensor and what was exported of it; may be null
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
     *     is closed after the tensor and what was exported of it; may be null
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_SHAPE}, {@link Status#INVALID_DTYPE}, and as
     *     {@link MemoryManager#allocate}
     */
    public static Tensor allocate(
            MemoryManager manager, Device device, DType dtype, long[] shape, DeviceStream stream) {
        long open = manager.enter("Tensor.allocate");
        try {
            return allocate(device, dtype, shape, stream, (description, queue) ->
                    Native.tensorAllocateWith(open, description, queue));
        } finally {
            manager.exit();
        }
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
            return new Tensor(allocate.apply(scratch.address, queue));
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
        return new Tensor(Native.tensorImport(address, false));
    }

    /**
     * As {@link #importDlpack(long)}, for the struct of DLPack before 1.0, which has neither a version nor flags.
     *
     * @param address of a {@code DLManagedTensor} that the caller owns
     * @return the tensor, which the caller closes
     * @throws DevExchangeException as {@link #importDlpack(long)}
     */
    public static Tensor importDlpackLegacy(long address) {
        return new Tensor(Native.tensorImport(address, true));
    }

    /**
     * As {@link #importDlpack(long)}, of a tensor whose producer was asked for it with a stream: its data is there for
     * work that is queued on that stream from now on.
     *
     * @param address of a {@code DLManagedTensorVersioned} that the caller owns
     * @param stream the one that the producer was given, which is closed after the tensor; null if the producer was
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
            return new Tensor(Native.tensorImportOn(address, queue, legacy));
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
     *     ({@link #importDlpack(long)} or {@link Dlpack#release} do)
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
     *     ({@link #importDlpackLegacy(long)} or {@link Dlpack#releaseLegacy} do)
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
            return request.isImmediate()
                    ? Calls.tensorExport(tensor, scratch.address, legacy)
                    : Native.tensorExport(tensor, scratch.address, legacy);
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
     * Hands the tensor to a consumer as the C struct of the CUDA Array Interface, which the consumer releases, and
     * keeps it. The stream of the struct is the one behind which the data is.
     *
     * @param request what the consumer reads, and the stream that the data is to be ordered on
     * @param address of room for a {@code devx_cuda_array}; what it holds is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#DEVICE} for memory that no device can
     *     access, {@link Status#UNSUPPORTED} for elements that NumPy has no name for, {@link Status#VERSION},
     *     {@link Status#INVALID_STREAM}, {@link Status#DRIVER}, {@link Status#CLOSED}; then nothing is written
     */
    public void exportShareCudaArray(CudaArrayRequest request, long address) {
        exportCudaArray("Tensor.exportShareCudaArray", request, address);
    }

    /**
     * As {@link #exportShareCudaArray}, and closes the tensor here. On failure it stays open.
     *
     * @param request what the consumer reads, and the stream that the data is to be ordered on
     * @param address of room for a {@code devx_cuda_array}; what it holds is overwritten, not released
     * @throws DevExchangeException as {@link #exportShareCudaArray}
     */
    public void exportMoveCudaArray(CudaArrayRequest request, long address) {
        String method = "Tensor.exportMoveCudaArray";
        exportCudaArray(method, request, address);
        if (!handle.close()) {
            // Another thread closed or moved it at the same time, and was first.
            CudaArray.release(address);
            throw handle.closed(method);
        }
    }

    private void exportCudaArray(String method, CudaArrayRequest request, long address) {
        long tensor = enter(method);
        try {
            Scratch scratch = Scratch.get();
            request.write(scratch.buffer);
            Native.tensorExportCudaArray(tensor, scratch.address, address);
        } finally {
            exit();
        }
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
            return new Tensor(Calls.tensorShare(tensor));
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
        return plan("Tensor.planColumn", Native::tensorPlanColumn);
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
            return new Batch(Native.tensorToColumn(tensor, name, copy.value));
        } finally {
            exit();
        }
    }

    /**
     * How the tensor can be had as a column of type {@code arrow.fixed_shape_tensor}. Nothing is taken.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Plan planFixedShapeColumn() {
        return plan("Tensor.planFixedShapeColumn", Native::tensorPlanFixedShapeColumn);
    }

    /**
     * As {@link #toColumn}, as a column of the extension type {@code arrow.fixed_shape_tensor}: each row is a tensor,
     * whose dimensions may lie in any order.
     *
     * @param name of the column; may be empty
     * @param copy whether the elements may be copied
     * @return a batch whose {@link Batch#root()} is the column; the caller closes it
     * @throws DevExchangeException as {@link #toColumn}
     */
    public Batch toFixedShapeColumn(String name, Copy copy) {
        long tensor = handle.enter("Tensor.toFixedShapeColumn");
        try {
            return new Batch(Native.tensorToFixedShapeColumn(tensor, name, copy.value));
        } finally {
            exit();
        }
    }

    /**
     * How the tensor, if it is a matrix, can be had as a record batch. Nothing is taken.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Plan planBatch() {
        return plan("Tensor.planBatch", Native::tensorPlanBatch);
    }

    /**
     * The matrix as a record batch with a column for each column. A view shares the memory and keeps it alive by itself;
     * it needs columns whose values follow each other, as in column-major order.
     *
     * @param names of the columns; none for "0", "1", and so on
     * @param copy whether the elements may be copied
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE}, {@link Status#MISMATCH} for
     *     another number of names, {@link Status#INVALID_TEXT}, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Batch toBatch(List<String> names, Copy copy) {
        for (String name : names) {
            if (name.indexOf(0) >= 0) {
                throw new DevExchangeException(Status.INVALID_TEXT, "name \"" + name + "\" has a NUL in it");
            }
        }
        long tensor = handle.enter("Tensor.toBatch");
        try {
            String joined = String.join("\0", names);
            return new Batch(Native.tensorToBatch(tensor, joined, names.size(), copy.value));
        } finally {
            exit();
        }
    }

    Plan plan(String call, PlanCall ask) {
        long tensor = handle.enter(call);
        try {
            Scratch scratch = Scratch.get();
            ask.accept(tensor, scratch.address);
            return Plan.read(scratch.buffer, 0);
        } finally {
            exit();
        }
    }

    /** A native that writes a plan to an address. */
    interface PlanCall {
        void accept(long handle, long address);
    }

    // ---- on devices ----

    /**
     * A copy on another device (or the same), queued on a stream. This tensor may be closed at once: its memory stays
     * until the copy is done. The host waits for copies into host memory.
     *
     * @param target where the copy is to be
     * @param stream of this device or of the other one, to be closed after the returned copy
     * @return the copy, with {@link Flags#IS_COPIED} and writable, which the caller closes; its data is there for work
     *     that is queued on {@code stream} afterwards
     * @throws DevExchangeException {@link Status#COPY_REQUIRED} if the elements do not lie compactly,
     *     {@link Status#OUT_OF_MEMORY}, {@link Status#DEVICE}, {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if the
     *     stream is being captured, {@link Status#CLOSED}
     */
    public Tensor copyTo(Device target, DeviceStream stream) {
        long tensor = handle.enter("Tensor.copyTo");
        try {
            long queue = stream.enter("Tensor.copyTo");
            try {
                return new Tensor(Native.tensorCopyTo(tensor, target.packed(), queue));
            } finally {
                stream.exit();
            }
        } finally {
            exit();
        }
    }

    /**
     * Reads all elements into host memory, in row-major order, and waits for them.
     *
     * @param into a direct buffer in native byte order, of which as many bytes remain as the elements take; its
     *     position stays
     * @param stream the one that the copy is queued on
     * @throws java.nio.ReadOnlyBufferException if the buffer is read-only
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer, another byte order or another
     *     number of bytes, {@link Status#COPY_REQUIRED} if the elements do not lie compactly, {@link Status#DRIVER},
     *     {@link Status#CLOSED}
     */
    public void read(ByteBuffer into, DeviceStream stream) {
        if (into.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        transfer("Tensor.read", into, "into", stream, Native::tensorRead);
    }

    /**
     * Writes all elements from host memory, in row-major order; work that is queued on the stream afterwards sees them.
     * The buffer may be used again at once. Nobody else uses the elements meanwhile.
     *
     * @param from a direct buffer in native byte order, of which as many bytes remain as the elements take; its
     *     position stays
     * @param stream the one that the copy is queued on
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer, another byte order or another
     *     number of bytes, {@link Status#READ_ONLY}, {@link Status#COPY_REQUIRED} if the elements do not lie compactly,
     *     {@link Status#DRIVER}, {@link Status#CLOSED}
     */
    public void write(ByteBuffer from, DeviceStream stream) {
        transfer("Tensor.write", from, "from", stream, Native::tensorWrite);
    }

    private interface Transfer {
        void apply(long tensor, long host, long bytes, long stream);
    }

    private void transfer(String method, ByteBuffer buffer, String name, DeviceStream stream, Transfer transfer) {
        long host = HostMemory.address(buffer, name);
        long tensor = handle.enter(method);
        try {
            stream.order(method, tensor, (open, queue) -> transfer.apply(open, host, buffer.remaining(), queue));
        } finally {
            exit();
            Reference.reachabilityFence(buffer);
        }
    }

    /**
     * Asks the driver whether the memory is where the tensor says, all of it: what no description can prove. Host
     * memory is not asked for.
     *
     * @throws DevExchangeException {@link Status#DEVICE} if it is not, {@link Status#DRIVER}, {@link Status#CLOSED}
     */
    public void checkPointers() {
        long tensor = handle.enter("Tensor.checkPointers");
        try {
            Native.tensorCheckPointers(tensor);
        } finally {
            exit();
        }
    }

    /**
     * Makes a stream wait, on the device, until the data of the tensor may be touched. The host does not wait.
     *
     * @param stream the one that work with the data will be queued on
     * @throws DevExchangeException {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if a stream is being captured,
     *     {@link Status#CLOSED}
     */
    public void waitOn(DeviceStream stream) {
        ordered("Tensor.waitOn", stream, Native::tensorWaitOn);
    }

    /**
     * Says that work which is queued on a stream by now uses the tensor: its memory is released only when that work is
     * done, however early the tensor is closed. From any thread, for as many streams as there are.
     *
     * @param stream the one that the work is queued on
     * @throws DevExchangeException {@link Status#DEVICE} if the tensor is not on a device with streams,
     *     {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if the stream is being captured, {@link Status#CLOSED}
     */
    public void usedOn(DeviceStream stream) {
        ordered("Tensor.usedOn", stream, Native::tensorUsedOn);
    }

    private void ordered(String method, DeviceStream stream, DeviceStream.Order order) {
        long tensor = handle.enter(method);
        try {
            stream.order(method, tensor, order);
        } finally {
            exit();
        }
    }

    /**
     * Says that the data is there when what is queued on a stream is done: for a producer that worked on another stream
     * than the legacy default one. To be called before the tensor is shared, exported or used by other threads.
     *
     * @param stream the one that filled the memory, to be closed after the tensor
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} if the tensor is shared already or used by another
     *     thread, {@link Status#DEVICE} if it is not on a device with streams, {@link Status#CLOSED}
     */
    public void producedOn(DeviceStream stream) {
        long tensor = handle.enterAlone("Tensor.producedOn");
        try {
            stream.order("Tensor.producedOn", tensor, Native::tensorProducedOn);
            // They say no more whether the data is there.
            description = null;
            elements = null;
        } finally {
            handle.exitAlone();
            Reference.reachabilityFence(this);
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
     * @return a buffer in native byte order, read-only if the tensor is. It owns nothing: it is not to be used after
     *     the tensor is closed, and nothing checks that
     * @throws DevExchangeException {@link Status#COPY_REQUIRED} for other strides, {@link Status#UNSUPPORTED} for more
     *     than a buffer can have (2 GiB), {@link Status#DEVICE} for memory that the host cannot read,
     *     {@link Status#NOT_READY} for data that is queued on a stream, {@link Status#CLOSED}
     */
    public ByteBuffer byteBuffer() {
        handle.enter("Tensor.byteBuffer");
        try {
            Description is = is("Tensor.byteBuffer");
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
            ByteBuffer view = HostMemory.view(is.address(), is.bytes());
            boolean readOnly = Flags.has(is.flags(), Flags.READ_ONLY);
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
            return elements("Tensor.getDouble").getDouble(index);
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
            return elements("Tensor.getLong").getLong(index);
        } finally {
            exit();
        }
    }

    private Elements elements(String method) {
        Elements known = elements;
        if (known == null) {
            known = new Elements(is(method));
            elements = known;
        }
        return known;
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
        try {
            Description is = is("Tensor.toString");
            return "Tensor (" + is.dtype() + ", " + Arrays.toString(is.shape()) + ", " + is.device() + ")";
        } catch (DevExchangeException closed) {
            return "Tensor (closed)";
        }
    }

    long enter(String method) {
        return handle.enter(method);
    }

    void exit() {
        handle.exit();
        Reference.reachabilityFence(this);
    }
}
