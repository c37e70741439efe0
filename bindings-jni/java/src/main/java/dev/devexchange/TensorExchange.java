package dev.devexchange;

import java.lang.ref.Reference;
import java.util.List;

/** The methods that hand a tensor over: exports, shares, copies and conversions to columns. */
abstract class TensorExchange extends TensorOnDevice {
    /** Where, behind a request, a call notes that it has taken the reference ({@code dlpack.rs}). */
    private static final int TAKEN = Records.DLPACK_REQUEST.size();

    /**
     * Hands the tensor to a consumer and keeps it. Same as {@link #exportShare(DlpackRequest)} with {@link
     * DlpackRequest#DEFAULT}.
     *
     * @return the address of a {@code DLManagedTensorVersioned}, which its consumer deletes
     */
    public long exportShare() {
        return exportShare(DlpackRequest.DEFAULT);
    }

    /**
     * Hands the tensor to a consumer and keeps it. The struct always has strides, and its {@code byte_offset} is 0. Its
     * flags are the tensor's, except for {@link Flags#IS_COPIED}, which is set only if a copy was made for this
     * consumer. A copy is in plain host memory.
     *
     * @param request what the consumer asks for
     * @return the address of a {@code DLManagedTensorVersioned}; its consumer calls the deleter once (as {@link
     *     Tensor#importDlpack(long)} and {@link Dlpack#release} do)
     * @throws DevExchangeException {@link Status#VERSION} if the consumer reads only the legacy struct, {@link
     *     Status#INVALID_STREAM}; for a copy, {@link Status#DEVICE} if the memory is not host memory and {@link
     *     Status#NOT_READY} if the data is not ready; {@link Status#CLOSED}
     */
    public long exportShare(DlpackRequest request) {
        return export("Tensor.exportShare", request, false);
    }

    /**
     * Hands the tensor to a consumer and closes it here. Same as {@link #exportMove(DlpackRequest)} with {@link
     * DlpackRequest#DEFAULT}.
     *
     * @return the address of a {@code DLManagedTensorVersioned}, which its consumer deletes
     */
    public long exportMove() {
        return exportMove(DlpackRequest.DEFAULT);
    }

    /**
     * Hands the tensor to a consumer and closes it here. On failure it stays open. The flags are the tensor's,
     * including {@link Flags#IS_COPIED} if nobody else shares the tensor.
     *
     * @param request what the consumer asks for
     * @return the address of a {@code DLManagedTensorVersioned}; its consumer calls the deleter once
     * @throws DevExchangeException as {@link #exportShare(DlpackRequest)}
     */
    public long exportMove(DlpackRequest request) {
        return move("Tensor.exportMove", request, false);
    }

    /**
     * Same as {@link #exportShare(DlpackRequest)}, with the struct of DLPack before 1.0.
     *
     * @param request what the consumer asks for; its version is ignored
     * @return the address of a {@code DLManagedTensor}; its consumer calls the deleter once (as {@link
     *     Tensor#importDlpackLegacy(long)} and {@link Dlpack#releaseLegacy} do)
     * @throws DevExchangeException also {@link Status#READ_ONLY} for read-only memory, unless the request allows a
     *     copy, and {@link Status#UNSUPPORTED} for padded sub-byte elements: the struct cannot express either
     */
    public long exportShareLegacy(DlpackRequest request) {
        return export("Tensor.exportShareLegacy", request, true);
    }

    /**
     * Same as {@link #exportMove(DlpackRequest)}, with the struct of DLPack before 1.0.
     *
     * @param request what the consumer asks for; its version is ignored
     * @return the address of a {@code DLManagedTensor}; its consumer calls the deleter once
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
        // A reference that was given away but counted as kept would be released twice.
        boolean moved = true;
        try {
            scratch.buffer.putLong(TAKEN, 0);
            return request.isImmediate()
                    ? Calls.tensorMove(tensor, scratch.address, legacy)
                    : Native.tensorMove(tensor, scratch.address, legacy);
        } catch (Throwable thrown) {
            // There may be no memory or stack left to report what became of the reference, so the call notes it here.
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

    /** Moves a tensor that another thread is using right now, and so shares. */
    private long moveOfMany(String method, DlpackRequest request, boolean legacy) {
        long exported = export(method, request, legacy);
        if (!closeOnce()) {
            // Another thread closed or moved the tensor first.
            Native.dlpackRelease(exported, legacy);
            throw handle.closed(method);
        }
        return exported;
    }

    /**
     * Hands the tensor to a consumer as the C struct of the CUDA Array Interface, and keeps it. The consumer releases
     * the struct. On the stream that the struct names, the data is ready and all work noted with {@code usedOn} is
     * done.
     *
     * @param request what the consumer can read, and the stream to order the data on
     * @param address of memory for a {@code devx_cuda_array}; its previous content is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#DEVICE} for memory that no device can
     *     access, {@link Status#UNSUPPORTED} for elements that NumPy has no name for, {@link Status#VERSION}, {@link
     *     Status#INVALID_STREAM}, {@link Status#DRIVER}, {@link Status#CLOSED}; on any error nothing is written
     */
    public void exportShareCudaArray(CudaArrayRequest request, long address) {
        exportCudaArray("Tensor.exportShareCudaArray", request, address);
    }

    /**
     * Same as {@link #exportShareCudaArray(CudaArrayRequest, long)}, but closes the tensor here. On failure it stays
     * open.
     *
     * @param request what the consumer can read, and the stream to order the data on
     * @param address of memory for a {@code devx_cuda_array}; its previous content is overwritten, not released
     * @throws DevExchangeException as {@link #exportShareCudaArray(CudaArrayRequest, long)}
     */
    public void exportMoveCudaArray(CudaArrayRequest request, long address) {
        String method = "Tensor.exportMoveCudaArray";
        exportCudaArray(method, request, address);
        moved(method, Handle.Kind.CUDA_ARRAY, address);
    }

    /**
     * Same as {@link #exportShareCudaArray(CudaArrayRequest, long)}.
     *
     * @param request what the consumer can read, and the stream to order the data on
     * @param array a {@code devx_cuda_array} without content
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind; {@link
     *     Status#INVALID_ARGUMENT} for one with content
     */
    public void exportShareCudaArray(CudaArrayRequest request, CStruct array) {
        check("Tensor.exportShareCudaArray");
        array.fill(
                "Tensor.exportShareCudaArray",
                address -> exportShareCudaArray(request, address),
                Handle.Kind.CUDA_ARRAY);
    }

    /**
     * Same as {@link #exportMoveCudaArray(CudaArrayRequest, long)}.
     *
     * @param request what the consumer can read, and the stream to order the data on
     * @param array a {@code devx_cuda_array} without content
     * @throws DevExchangeException as {@link #exportShareCudaArray(CudaArrayRequest, CStruct)}
     */
    public void exportMoveCudaArray(CudaArrayRequest request, CStruct array) {
        check("Tensor.exportMoveCudaArray");
        array.fill(
                "Tensor.exportMoveCudaArray",
                address -> exportMoveCudaArray(request, address),
                Handle.Kind.CUDA_ARRAY);
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
     * Returns another reference to the same tensor.
     *
     * @return the tensor, which the caller closes, too
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
     * Returns a range of the indices along one dimension as a tensor with as many dimensions and the same strides. The
     * slice shares the memory: nothing is copied, and this tensor may be closed. On a GPU the slice is ordered like the
     * whole tensor, and work noted for the slice is noted for the whole.
     *
     * @param dimension counted from 0
     * @param offset of the first index
     * @param length number of indices
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} if there is no such dimension or it has too few indices,
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
     * Returns a compact, row-major, writable copy in the library's own host memory, with {@link Flags#IS_COPIED}.
     *
     * @return the copy, which the caller closes
     * @throws DevExchangeException {@link Status#DEVICE}, {@link Status#NOT_READY} for data that is queued on a
     *     stream, {@link Status#UNSUPPORTED} for strided elements that share bytes, {@link Status#CLOSED}
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
     * Says how the tensor can become a column. Nothing is taken.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Plan planColumn() {
        return plan("Tensor.planColumn", Native::tensorPlanColumn);
    }

    /**
     * Returns the tensor as a column: the first dimension becomes the rows, the others fixed-size lists. If nothing is
     * copied, the column shares the memory and keeps it alive by itself.
     *
     * @param name of the column; may be empty
     * @param copy whether the elements may be copied
     * @return a batch whose {@link Batch#root()} is the column; the caller closes it
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE},
     *     {@link Status#INVALID_TEXT}; for a copy {@link Status#DEVICE} or {@link Status#NOT_READY} if the host cannot
     *     read the data; {@link Status#CLOSED}
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
     * Says how the tensor can become a column of type {@code arrow.fixed_shape_tensor}. Nothing is taken.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Plan planFixedShapeColumn() {
        return plan("Tensor.planFixedShapeColumn", Native::tensorPlanFixedShapeColumn);
    }

    /**
     * Like {@link #toColumn}, but as a column of the extension type {@code arrow.fixed_shape_tensor}: each row is a
     * tensor, whose dimensions may lie in any order.
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
     * Says how the tensor, if it is a matrix, can become a record batch. Nothing is taken.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Plan planBatch() {
        return plan("Tensor.planBatch", Native::tensorPlanBatch);
    }

    /**
     * Returns the matrix as a record batch with one column for each column of the matrix. If nothing is copied, the
     * batch shares the memory and keeps it alive by itself; that requires that the values of each column lie next to
     * each other, as in column-major order.
     *
     * @param names of the columns; none for "0", "1", and so on
     * @param copy whether the elements may be copied
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE}, {@link Status#MISMATCH} for
     *     a wrong number of names, {@link Status#INVALID_TEXT}; for a copy {@link Status#DEVICE} or {@link
     *     Status#NOT_READY} if the host cannot read the data; {@link Status#CLOSED}
     */
    public Batch toBatch(List<String> names, Copy copy) {
        for (String name : names) {
            Field.requireUnicode(name, "name");
            if (name.indexOf(0) >= 0) {
                throw new DevExchangeException(Status.INVALID_TEXT, "name " + Names.shown(name) + " has a NUL in it");
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
