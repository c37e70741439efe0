package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * An array of the CUDA Array Interface, imported from its C struct ({@code devx_cuda_array}) with its mask. {@link
 * Tensor#importCudaArray} imports arrays without a mask, and {@link Tensor#exportShareCudaArray} exports.
 *
 * @param tensor the elements
 * @param mask which elements are valid: a tensor of the same shape, whose elements count as true or false; null if all
 *     are valid
 */
public record CudaArray(Tensor tensor, Tensor mask) implements AutoCloseable {
    /** The newest version of the interface, which has a stream. */
    public static final int VERSION = 3;

    /** In place of a stream: nothing to wait for. */
    public static final long NO_STREAM = -1;

    /**
     * Creates an array. Checks only that {@code tensor} is not null.
     *
     * @param tensor the elements
     * @param mask which elements are valid; null if all are valid
     */
    public CudaArray {
        Objects.requireNonNull(tensor, "tensor");
    }

    /**
     * Takes an array from its producer. On success the struct is moved from (its {@code release} is NULL) and released
     * once, when the last user of the elements and of the mask is gone; on failure it is untouched and the caller still
     * owns it.
     *
     * <p>The driver says where the memory is. The stream of the request, and any later consumer of the tensor, waits on
     * the device for the work that the producer has queued on its stream before this call. When the tensor is given up,
     * the producer's stream waits for the work noted with {@link Tensor#usedOn}; the producer must keep that stream
     * alive until the array is released.
     *
     * @param address of a {@code devx_cuda_array} that the caller owns, for example in {@link CStruct#cudaArray}
     * @param request the consumer's stream, and the policy for producers without one
     * @return elements and mask, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#RELEASED}, {@link Status#VERSION},
     *     {@link Status#INVALID_DTYPE}, {@link Status#UNSUPPORTED} for another byte order or structured elements,
     *     {@link Status#INVALID_SHAPE}, {@link Status#INVALID_ARGUMENT}, {@link Status#MISMATCH} for a mask of another
     *     shape, {@link Status#INVALID_STREAM}, {@link Status#DEVICE} for memory that no device can access, {@link
     *     Status#DRIVER}, with the field and its value
     */
    public static CudaArray importCudaArray(long address, CudaArrayRequest request) {
        return take(address, request, true);
    }

    /**
     * Same as {@link #importCudaArray(long, CudaArrayRequest)}.
     *
     * @param array a {@code devx_cuda_array} with content
     * @param request the consumer's stream, and the policy for producers without one
     * @return elements and mask, which the caller closes
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind
     */
    public static CudaArray importCudaArray(CStruct array, CudaArrayRequest request) {
        return array.lend(
                "CudaArray.importCudaArray", address -> importCudaArray(address, request), Handle.Kind.CUDA_ARRAY);
    }

    static CudaArray take(long address, CudaArrayRequest request, boolean withMask) {
        Tensor tensor = new Tensor();
        Tensor mask = withMask ? new Tensor() : null;
        Scratch scratch = Scratch.get();
        ByteBuffer buffer = scratch.buffer;
        request.write(buffer);
        Native.cudaArrayImport(address, scratch.address, withMask, scratch.address);
        tensor.of(buffer.getLong(0));
        long masked = buffer.getLong(Long.BYTES);
        return new CudaArray(tensor, masked == 0 ? null : mask.of(masked));
    }

    /**
     * Gives up a struct that nobody imported: calls its release callback, unless it is released already.
     *
     * @param address of a {@code devx_cuda_array} that the caller owns; 0 is fine
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} if the address is not aligned
     */
    public static void release(long address) {
        Native.structRelease(Handle.Kind.CUDA_ARRAY.tag, address);
    }

    /** Closes both. Closing twice is fine. */
    @Override
    public void close() {
        tensor.close();
        if (mask != null) {
            mask.close();
        }
    }
}
