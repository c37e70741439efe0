package dev.devexchange;

/**
 * The reasons for a refusal, as numbers, which are those of {@code DEVX_…} in C. The set is open, and a number is never
 * given a second meaning.
 */
public final class Status {
    /** Success; no exception has it. */
    public static final int OK = 0;
    /** An address that the call needs is 0. */
    public static final int NULL_ARGUMENT = 1;
    /** An argument has a value that the call does not take. */
    public static final int INVALID_ARGUMENT = 2;
    /** The struct was released or moved from already. */
    public static final int RELEASED = 3;
    /** The handle, stream or connection was closed already, was cancelled, or has ended. */
    public static final int CLOSED = 4;
    /** An Arrow format string is missing, malformed or unknown. */
    public static final int INVALID_FORMAT = 5;
    /** A data type is malformed or unknown. */
    public static final int INVALID_DTYPE = 6;
    /**
     * A shape is missing or has a negative extent; or a shape, strides or a byte offset overflow or do not fit their
     * buffer.
     */
    public static final int INVALID_SHAPE = 7;
    /** An Arrow length or offset is negative, too short or overflows. */
    public static final int INVALID_LENGTH = 8;
    /** An Arrow null count does not fit its array. */
    public static final int INVALID_NULL_COUNT = 9;
    /** The number of buffers is wrong, a required buffer is missing, or a buffer is too small. */
    public static final int INVALID_BUFFERS = 10;
    /** The children of an Arrow struct are wrong in number, NULL or released. */
    public static final int INVALID_CHILDREN = 11;
    /** Arrow metadata has a negative or oversized count or length. */
    public static final int INVALID_METADATA = 12;
    /** Two things that must agree differ, or a value is asked for as another type. */
    public static final int MISMATCH = 13;
    /** A tree, or a chain of managers or streams, is deeper or larger than the limits. */
    public static final int TOO_DEEP = 14;
    /** One of the two sides does not read this version of a protocol or record. */
    public static final int VERSION = 15;
    /** The device is unknown, absent, or not the one that was asked for. */
    public static final int DEVICE = 16;
    /** Well-formed, but not supported by this library. */
    public static final int UNSUPPORTED = 17;
    /** Possible only with a copy, which the caller did not allow. */
    public static final int COPY_REQUIRED = 18;
    /** Not possible, not even with a copy. */
    public static final int IMPOSSIBLE = 19;
    /** The memory is read-only, and the call would write it or describe it as writable. */
    public static final int READ_ONLY = 20;
    /** Memory could not be allocated. */
    public static final int OUT_OF_MEMORY = 21;
    /** A text is not valid Unicode or contains a NUL. */
    public static final int INVALID_TEXT = 22;
    /** An index is out of range. */
    public static final int OUT_OF_RANGE = 23;
    /** A stream value that the device does not take (DLPack {@code stream}). */
    public static final int INVALID_STREAM = 24;
    /** The result is not ready, and the call does not wait for it, or has stopped waiting. */
    public static final int NOT_READY = 25;
    /** A call of the device driver failed. */
    public static final int DRIVER = 26;
    /**
     * A callback of the caller, a producer, a consumer or a manager failed or gave an invalid result, or a call of the
     * JVM failed.
     */
    public static final int CALLBACK = 27;
    /** The object is in use by another call and takes one at a time, or it has no room for more. */
    public static final int BUSY = 28;
    /** A call of the operating system failed; the text says which and how. */
    public static final int SYSTEM = 29;
    /** A defect of this library: a panic was caught at the boundary. */
    public static final int PANIC = 255;

    private Status() {}

    /**
     * The name of a status in C.
     *
     * @param status any number
     * @return for example {@code DEVX_INVALID_SHAPE}, or {@code DEVX_?} for a number without a meaning
     */
    public static String name(int status) {
        String name = Native.statusName(status);
        return name == null ? "DEVX_?" : name;
    }
}
