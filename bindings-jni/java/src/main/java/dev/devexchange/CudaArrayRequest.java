package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * How an array of the CUDA Array Interface is taken in or handed out.
 *
 * @param maxVersion highest version that the consumer reads (for an export): 0 to {@link CudaArray#VERSION}
 * @param noStream what takes the place of a stream in versions that have none
 * @param stream import: the stream that the consumer works on, which waits for the data; export: the stream that the
 *     data is to be ordered on if it does not lie behind one already. A number as the protocols
 *     write it, or as {@link #withStream(DeviceStream)} does, or {@link CudaArray#NO_STREAM}
 */
public record CudaArrayRequest(int maxVersion, NoStream noStream, long stream) {
    /**
     * Checks that there is a policy.
     *
     * @param maxVersion highest version that the consumer reads
     * @param noStream what takes the place of a stream, never null
     * @param stream the stream, or {@link CudaArray#NO_STREAM}
     * @throws NullPointerException no policy
     */
    public CudaArrayRequest {
        Objects.requireNonNull(noStream, "noStream");
    }

    /** What takes the place of a stream in versions before 3, which have none. */
    public enum NoStream {
        /** The legacy default stream stands for the producer's: it is waited for, and it waits at the end. */
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
     * The same request for a consumer that reads up to this version.
     *
     * @param version highest version
     * @return the request
     */
    public CudaArrayRequest withMaxVersion(int version) {
        return new CudaArrayRequest(version, noStream, stream);
    }

    /**
     * The same request with another policy for versions without a stream.
     *
     * @param policy what takes its place
     * @return the request
     */
    public CudaArrayRequest withNoStream(NoStream policy) {
        return new CudaArrayRequest(maxVersion, policy, stream);
    }

    /**
     * The same request for another stream.
     *
     * @param number as the protocols write it; a default stream is that of the memory's device
     * @return the request
     */
    public CudaArrayRequest withStream(long number) {
        return new CudaArrayRequest(maxVersion, noStream, number);
    }

    /**
     * The same request for a stream, which is a default one of its own device, wherever the data is. It stays open until
     * the request was used.
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
