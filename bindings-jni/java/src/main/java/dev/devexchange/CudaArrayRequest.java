package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * How an array of the CUDA Array Interface is imported or exported.
 *
 * @param maxVersion for an export, the highest version that the consumer can read: 0 to {@link CudaArray#VERSION}
 * @param noStream what takes the place of the stream in versions without one
 * @param stream for an import, the stream that the consumer works on, which waits for the data; for an export, the
 *     stream to order the data on, or {@link CudaArray#NO_STREAM}: then data that is ready and unused has no stream, and
 *     other data keeps the stream that it is queued on, or else gets the legacy default stream. Numbered as in the
 *     protocols or by {@link #withStream(DeviceStream)}
 */
public record CudaArrayRequest(int maxVersion, NoStream noStream, long stream) {
    /**
     * Creates a request. Checks only that {@code noStream} is not null.
     *
     * @param maxVersion highest version that the consumer can read
     * @param noStream what takes the place of the stream, never null
     * @param stream the stream, or {@link CudaArray#NO_STREAM}
     * @throws NullPointerException if {@code noStream} is null
     */
    public CudaArrayRequest {
        Objects.requireNonNull(noStream, "noStream");
    }

    /** What takes the place of the producer's stream in versions before 3, which have no stream. */
    public enum NoStream {
        /**
         * The legacy default stream stands for the producer's stream: consumers wait for it, and it waits for them at
         * the end.
         */
        LEGACY_DEFAULT,
        /** The host waits until the device has done all its work. */
        HOST_SYNC,
        /** Nobody waits: the caller knows that the data is ready. */
        TRUST
    }

    /** Version 3, no stream, {@link NoStream#LEGACY_DEFAULT}. */
    public static final CudaArrayRequest DEFAULT =
            new CudaArrayRequest(CudaArray.VERSION, NoStream.LEGACY_DEFAULT, CudaArray.NO_STREAM);

    /**
     * Returns the same request for a consumer that reads up to this version.
     *
     * @param version highest version
     * @return the request
     */
    public CudaArrayRequest withMaxVersion(int version) {
        return new CudaArrayRequest(version, noStream, stream);
    }

    /**
     * Returns the same request with another policy for versions without a stream.
     *
     * @param policy what takes the place of the stream
     * @return the request
     */
    public CudaArrayRequest withNoStream(NoStream policy) {
        return new CudaArrayRequest(maxVersion, policy, stream);
    }

    /**
     * Returns the same request for another stream.
     *
     * @param number the stream, as the protocols number it; a default stream is that of the memory's device
     * @return the request
     */
    public CudaArrayRequest withStream(long number) {
        return new CudaArrayRequest(maxVersion, noStream, number);
    }

    /**
     * Returns the same request for another stream. A default stream is that of the {@code DeviceStream}'s own device,
     * wherever the data is. The stream must stay open until the request has been used.
     *
     * @param queue the stream
     * @return the request
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public CudaArrayRequest withStream(DeviceStream queue) {
        return withStream(queue.number());
    }

    void write(ByteBuffer record) {
        record.putInt(Records.CUDA_ARRAY_REQUEST.at("max_version"), maxVersion);
        record.putInt(Records.CUDA_ARRAY_REQUEST.at("no_stream"), noStream.ordinal());
        record.putLong(Records.CUDA_ARRAY_REQUEST.at("stream"), stream);
    }
}
