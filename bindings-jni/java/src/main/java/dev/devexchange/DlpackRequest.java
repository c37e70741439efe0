package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * What a consumer asks for in a DLPack export: the arguments of Python's {@code __dlpack__} (array API, data
 * interchange).
 *
 * @param maxMajor highest major version that the consumer can read
 * @param maxMinor highest minor version of that major version that it knows of
 * @param stream the consumer's stream, which is made to wait until the data is ready, numbered as in DLPack or by
 *     {@link #withStream(DeviceStream)}; −1 for no synchronisation, which is the only choice on the CPU
 * @param copy whether a copy is allowed
 */
public record DlpackRequest(int maxMajor, int maxMinor, long stream, Copy copy) {
    private static final int MAX_MAJOR = Records.DLPACK_REQUEST.at("max_major");
    private static final int MAX_MINOR = Records.DLPACK_REQUEST.at("max_minor");
    private static final int STREAM = Records.DLPACK_REQUEST.at("stream");
    private static final int COPY = Records.DLPACK_REQUEST.at("copy");

    /** In place of a stream: do not synchronise. */
    public static final long NO_SYNC = -1;

    /** The newest version, no synchronisation, no copy. */
    public static final DlpackRequest DEFAULT =
            new DlpackRequest(Dlpack.MAJOR_VERSION, Dlpack.MINOR_VERSION, NO_SYNC, Copy.NEVER);

    /**
     * Creates a request. Checks only that the version is not negative and {@code copy} is not null.
     *
     * @param maxMajor highest major version that the consumer can read
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
     * Returns the same request for a consumer that reads up to this version.
     *
     * @param major highest major version
     * @param minor highest minor version of it
     * @return the request
     */
    public DlpackRequest withMaxVersion(int major, int minor) {
        return new DlpackRequest(major, minor, stream, copy);
    }

    /**
     * Returns the same request for a consumer's stream.
     *
     * @param consumerStream the stream, as DLPack numbers it; a default stream is that of the tensor's device
     * @return the request
     */
    public DlpackRequest withStream(long consumerStream) {
        return new DlpackRequest(maxMajor, maxMinor, consumerStream, copy);
    }

    /**
     * Returns the same request for a consumer's stream. A default stream is that of the {@code DeviceStream}'s own
     * device, wherever the data is. The stream must stay open until the request has been used.
     *
     * @param queue the stream
     * @return the request
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public DlpackRequest withStream(DeviceStream queue) {
        return withStream(queue.number());
    }

    /**
     * Returns the same request with another policy for copies.
     *
     * @param policy whether a copy is allowed
     * @return the request
     */
    public DlpackRequest withCopy(Copy policy) {
        return new DlpackRequest(maxMajor, maxMinor, stream, policy);
    }

    /** Whether an export for this request only describes the tensor: no stream waits, and nothing is copied. */
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
