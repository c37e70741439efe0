package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * What a consumer asks of a DLPack export: the arguments of Python's {@code __dlpack__} (array API, data interchange).
 *
 * @param maxMajor highest major version that the consumer reads
 * @param maxMinor highest minor version of that major version that it knows
 * @param stream the consumer's stream, which is made to wait until the data is there: as DLPack numbers it, or as
 *     {@link #withStream(DeviceStream)} does; −1 for no synchronisation, which is the only one on the CPU
 * @param copy whether a copy is allowed
 */
public record DlpackRequest(int maxMajor, int maxMinor, long stream, Copy copy) {
    private static final int MAX_MAJOR = Records.DLPACK_REQUEST.at("max_major");
    private static final int MAX_MINOR = Records.DLPACK_REQUEST.at("max_minor");
    private static final int STREAM = Records.DLPACK_REQUEST.at("stream");
    private static final int COPY = Records.DLPACK_REQUEST.at("copy");

    /** "Do not synchronise" as a stream. */
    public static final long NO_SYNC = -1;

    /** The newest version, no synchronisation, no copy. */
    public static final DlpackRequest DEFAULT =
            new DlpackRequest(Dlpack.MAJOR_VERSION, Dlpack.MINOR_VERSION, NO_SYNC, Copy.NEVER);

    /**
     * Checks that the version is one.
     *
     * @param maxMajor highest major version that the consumer reads
     * @param maxMinor highest minor version of it
     * @param stream the consumer's stream, or −1
     * @param copy whether a copy is allowed
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} for a negative number
     */
    public DlpackRequest {
        if (maxMajor < 0 || maxMinor < 0) {
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE,
                    "max_version is " + maxMajor + "." + maxMinor + ": neither number may be negative");
        }
        Objects.requireNonNull(copy, "copy");
    }

    /**
     * The same request for a consumer that reads up to this version.
     *
     * @param major highest major version
     * @param minor highest minor version of it
     * @return the request
     */
    public DlpackRequest withMaxVersion(int major, int minor) {
        return new DlpackRequest(major, minor, stream, copy);
    }

    /**
     * The same request for a consumer's stream.
     *
     * @param consumerStream as DLPack numbers streams; a default stream is that of the tensor's device
     * @return the request
     */
    public DlpackRequest withStream(long consumerStream) {
        return new DlpackRequest(maxMajor, maxMinor, consumerStream, copy);
    }

    /**
     * The same request for a stream, which is a default one of its own device, wherever the data is. It stays open until
     * the request was used.
     *
     * @param queue the stream
     * @return the request
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public DlpackRequest withStream(DeviceStream queue) {
        return withStream(queue.number());
    }

    /**
     * The same request with another policy for copies.
     *
     * @param policy whether a copy is allowed
     * @return the request
     */
    public DlpackRequest withCopy(Copy policy) {
        return new DlpackRequest(maxMajor, maxMinor, stream, policy);
    }

    /** Whether an export for it only describes: no stream waits, and nothing is copied. */
    boolean isImmediate() {
        return stream == NO_SYNC && copy == Copy.NEVER;
    }

    void write(ByteBuffer record) {
        record.putInt(MAX_MAJOR, maxMajor);
        record.putInt(MAX_MINOR, maxMinor);
        record.putLong(STREAM, stream);
        record.putInt(COPY, copy.value);
    }
}
