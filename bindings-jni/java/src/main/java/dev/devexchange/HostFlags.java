package dev.devexchange;

/** How host memory is pinned, as bits: {@code DEVX_HOST_…}. */
public final class HostFlags {
    /** None. */
    public static final int NONE = 0;
    /** For all contexts, not only for the one of its device. */
    public static final int PORTABLE = 1;
    /** Devices can use it. */
    public static final int MAPPED = 2;
    /** The host writes it fast and reads it slowly. */
    public static final int WRITE_COMBINED = 4;

    private HostFlags() {}
}
