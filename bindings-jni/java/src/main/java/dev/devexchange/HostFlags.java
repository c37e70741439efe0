package dev.devexchange;

/** How host memory is pinned, as bits: {@code DEVX_HOST_…}. */
public final class HostFlags {
    /** No flags. */
    public static final int NONE = 0;
    /** Pinned for all contexts, not only for that of its device. */
    public static final int PORTABLE = 1;
    /** Devices can use it. */
    public static final int MAPPED = 2;
    /** Fast for the host to write, slow to read. */
    public static final int WRITE_COMBINED = 4;

    private HostFlags() {}
}
