package dev.devexchange;

/** Releases DLPack tensors that no consumer took. {@link Tensor} exports and imports them. */
public final class Dlpack {
    /** The major version that this library reads and writes. */
    public static final int MAJOR_VERSION = 1;
    /** The highest minor version that this library writes. */
    public static final int MINOR_VERSION = 3;

    private Dlpack() {}

    /**
     * Calls the deleter of a tensor, if it has one: for an export that no consumer took, or a tensor that could not be
     * imported. Works for every major version.
     *
     * @param address of a {@code DLManagedTensorVersioned} that the caller owns and no longer uses; 0 is fine
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} if the address is not aligned
     */
    public static void release(long address) {
        Native.dlpackRelease(address, false);
    }

    /**
     * Same as {@link #release}, for the struct of DLPack before 1.0.
     *
     * @param address of a {@code DLManagedTensor} that the caller owns and no longer uses; 0 is fine
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} if the address is not aligned
     */
    public static void releaseLegacy(long address) {
        Native.dlpackRelease(address, true);
    }
}
