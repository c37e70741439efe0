package dev.devexchange;

/** Properties of a tensor, as bits: DLPack's {@code DLPACK_FLAG_BITMASK_…}. Unknown bits are kept. */
public final class Flags {
    /** No flags. */
    public static final long NONE = 0;
    /** The memory must not be written. */
    public static final long READ_ONLY = 1;
    /** The memory is a copy made for this exchange. */
    public static final long IS_COPIED = 2;
    /** Each sub-byte element takes a whole byte. */
    public static final long SUBBYTE_PADDED = 4;

    private Flags() {}

    /**
     * Whether all of the bits are set.
     *
     * @param flags a tensor's flags
     * @param bits some of the constants of this class, or-ed
     * @return whether {@code flags} has them all
     */
    public static boolean has(long flags, long bits) {
        return (flags & bits) == bits;
    }
}
