package dev.devexchange;

import java.lang.ref.Reference;
import java.util.List;

/** What hands a tensor over, to consumers and as columns. */
abstract class TensorExchange extends TensorOnDevice {
    /** Behind a request: whether the call has taken the reference ({@code dlpack.rs}). */
    private static final int TAKEN = Records.DLPACK_REQUEST.size();

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
     * Hands the tensor to a consumer and keeps it. Strides are always there, and {@code byte_offset} is 0. The flags are
     * the tensor's, but for {@link Flags#IS_COPIED}: that is told only of a copy that was made for this consumer.
     *
     * @param request what the consumer asks for
     * @return the address of a {@code DLManagedTensorVersioned}: whoever has it calls its deleter, once
     *     ({@link Tensor#importDlpack(long)} or {@link Dlpack#release} do)
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
     * Hands the tensor to a consumer and closes it here. On failure it stays open. The flags are the tensor's, also
     * {@link Flags#IS_COPIED} if nobody else has a part in it.
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
     *     ({@link Tensor#importDlpackLegacy(long)} or {@link Dlpack#releaseLegacy} do)
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
        long tensor = enter(method);
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
        Scratch scratch = Scratch.get();
        request.write(scratch.buffer);
        long tensor = handle.tryAlone(method);
        if (tensor == 0) {
            return moveOfMany(method, request, legacy);
        }
        // What is given away and counts as kept would be released twice.
        boolean moved = true;
        try {
            scratch.buffer.putLong(TAKEN, 0);
            return request.isImmediate()
                    ? Calls.tensorMove(tensor, scratch.address, legacy)
                    : Native.tensorMove(tensor, scratch.address, legacy);
        } catch (Throwable thrown) {
            // There may be no memory or stack to say what became of the reference, so it stands here.
            moved = scratch.buffer.getLong(TAKEN) != 0;
            throw thrown;
        } finally {
            if (moved) {
                handle.exitMoved();
            } else {
                handle.exitAlone();
            }
            Reference.reachabilityFence(this);
        }
    }

    /** Of a tensor that another thread is using just now, and so has a part in. */
    private long moveOfMany(String method, DlpackRequest request, boolean legacy) {
        long exported = export(method, request, legacy);
        if (!closeOnce()) {
            // Another thread closed or moved it at the same time, and was first.
            Native.dlpackRelease(exported, legacy);
            throw handle.closed(method);
        }
        return exported;
    }

    /**
     * Hands the tensor to a consumer as the C struct of the CUDA Array Interface, which the consumer releases, and
     * keeps it. The stream of the struct is the one behind which the data is, and the work that was noted with
     * {@code usedOn}.
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
        handle.moved(method, Handle.Kind.CUDA_ARRAY, address);
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
        long tensor = enter("Tensor.share");
        try {
            return new Tensor().of(Calls.tensorShare(tensor));
        } finally {
            exit();
        }
    }

    /**
     * Some of the indices along one dimension, as a tensor of its own with as many dimensions and the same strides. It
     * shares the memory: nothing is copied, and this one may be closed. On a GPU it is in the order of the whole, and work
     * that is noted for it is noted for the whole.
     *
     * @param dimension counted from 0
     * @param offset of the first index
     * @param length how many
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} if there is no such dimension or it has not so many,
     *     {@link Status#IMPOSSIBLE} if the first element begins within a byte, {@link Status#CLOSED}
     */
    public Tensor slice(int dimension, long offset, long length) {
        long tensor = enter("Tensor.slice");
        try {
            return new Tensor().of(Native.tensorSlice(tensor, dimension, offset, length));
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
        long tensor = enter("Tensor.copy");
        try {
            return new Tensor().of(Native.tensorCopy(tensor));
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
        Field.requireUnicode(name, "name");
        long tensor = enter("Tensor.toColumn");
        try {
            return new Batch().of(Native.tensorToColumn(tensor, name, copy.value));
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
        Field.requireUnicode(name, "name");
        long tensor = enter("Tensor.toFixedShapeColumn");
        try {
            return new Batch().of(Native.tensorToFixedShapeColumn(tensor, name, copy.value));
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
            Field.requireUnicode(name, "name");
            if (name.indexOf(0) >= 0) {
                throw new DevExchangeException(Status.INVALID_TEXT, "name \"" + name + "\" has a NUL in it");
            }
        }
        long tensor = enter("Tensor.toBatch");
        try {
            String joined = String.join("\0", names);
            return new Batch().of(Native.tensorToBatch(tensor, joined, names.size(), copy.value));
        } finally {
            exit();
        }
    }
}
