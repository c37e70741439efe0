package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * An array of the CUDA Array Interface that was imported from its C struct ({@code devx_cuda_array}) with its mask.
 * {@link Tensor#importCudaArray} is for arrays without one, {@link Tensor#exportShareCudaArray} for the way out.
 *
 * @param tensor the elements
 * @param mask which of them are valid: a tensor of the same shape, true or not true; null if all are
 */
public record CudaArray(Tensor tensor, Tensor mask) implements AutoCloseable {
    /** The version of the interface that has a stream, which is the newest one. */
    public static final int VERSION = 3;

    /** In place of a stream: nothing to wait for. */
    public static final long NO_STREAM = -1;

    /**
     * Checks that there is a tensor, nothing more.
     *
     * @param tensor the elements
     * @param mask which of them are valid; null if all are
     */
    public CudaArray {
        Objects.requireNonNull(tensor, "tensor");
    }

    /**
     * Takes an array from its producer. On success the struct is moved from (its {@code release} is NULL) and released
     * once, when the last user of the elements and of the mask is gone; on failure it is untouched.
     *
     * <p>Where the memory is, the driver says. What the producer has queued on its stream until now is waited for on
     * the device: by the stream of the request, and by whoever else the tensor is handed on to. When the tensor is
     * given up, the producer's stream waits for the work that was noted with {@link Tensor#usedOn}; it is alive until
     * the array is released.
     *
     * @param address of a {@code devx_cuda_array} that the caller owns, for example in {@link CStruct#cudaArray}
     * @param request the consumer's stream, and the policy for producers without one
     * @return elements and mask, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#RELEASED}, {@link Status#VERSION},
     *     {@link Status#INVALID_DTYPE}, {@link Status#UNSUPPORTED} for another byte order and for structured elements,
     *     {@link Status#INVALID_SHAPE}, {@link Status#INVALID_ARGUMENT}, {@link Status#MISMATCH} for a mask of another
     *     shape, {@link Status#INVALID_STREAM}, {@link Status#DEVICE} for memory that no device can access,
     *     {@link Status#DRIVER}, with the field and its value
     */
    public static CudaArray importCudaArray(long address, CudaArrayRequest request) {
        return take(address, request, true);
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
     * Gives up a struct that nobody imported: calls its release, unless it is released already.
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
