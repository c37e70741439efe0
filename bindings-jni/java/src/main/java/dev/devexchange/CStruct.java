package dev.devexchange;

import java.nio.ByteBuffer;

/**
 * Off-heap memory for one struct of Arrow or of the CUDA Array Interface, zeroed: room for what a producer exports, or
 * for what a consumer imports. {@code memoryAddress()} of Arrow Java's {@code ArrowArray}, {@code ArrowSchema} and
 * {@code ArrowArrayStream} does as well.
 *
 * <p>Closing it releases what the struct holds, if it still does (an import moves it out), and frees the memory: its
 * address is not to be used any more.
 *
 * <p>Any thread may use it: what the struct holds is released once, also if two threads ask for it. Who uses the
 * address, as exports and imports do, sees to it that nobody else uses the struct meanwhile.
 */
public final class CStruct extends Owned<CStruct> implements AutoCloseable {
    private final Handle.Kind kind;
    private final ByteBuffer memory;
    private final int release;

    private CStruct(Handle.Kind kind, Records.Struct struct, Records.Struct holder) {
        super(kind);
        this.kind = kind;
        long address = Native.structCreate();
        handle.hold(address);
        try {
            this.memory = HostMemory.view(address, struct.size());
        } catch (Throwable noMemory) {
            close();
            throw noMemory;
        }
        this.release = holder.at("release");
    }

    /** {@return an {@code ArrowArray} that holds nothing, which the caller closes} */
    public static CStruct arrowArray() {
        return new CStruct(Handle.Kind.ARROW_ARRAY, Records.ARROW_ARRAY, Records.ARROW_ARRAY);
    }

    /** {@return an {@code ArrowSchema} that holds nothing, which the caller closes} */
    public static CStruct arrowSchema() {
        return new CStruct(Handle.Kind.ARROW_SCHEMA, Records.ARROW_SCHEMA, Records.ARROW_SCHEMA);
    }

    /** {@return an {@code ArrowDeviceArray} that holds nothing, which the caller closes} */
    public static CStruct arrowDeviceArray() {
        // The array is its first member.
        return new CStruct(Handle.Kind.ARROW_DEVICE_ARRAY, Records.ARROW_DEVICE_ARRAY, Records.ARROW_ARRAY);
    }

    /** {@return an {@code ArrowArrayStream} that holds nothing, which the caller closes} */
    public static CStruct arrowStream() {
        return new CStruct(Handle.Kind.ARROW_STREAM, Records.ARROW_STREAM, Records.ARROW_STREAM);
    }

    /** {@return an {@code ArrowDeviceArrayStream} that holds nothing, which the caller closes} */
    public static CStruct arrowDeviceStream() {
        return new CStruct(
                Handle.Kind.ARROW_DEVICE_STREAM, Records.ARROW_DEVICE_STREAM, Records.ARROW_DEVICE_STREAM);
    }

    /** {@return a {@code devx_cuda_array} that holds nothing, which the caller closes} */
    public static CStruct cudaArray() {
        return new CStruct(Handle.Kind.CUDA_ARRAY, Records.CUDA_ARRAY, Records.CUDA_ARRAY);
    }

    /**
     * Where the struct is.
     *
     * @return an address that is valid until this is closed, or not reachable any more: then the garbage collector may
     *     close it. Best used within the try-with-resources that closes this, or before a
     *     {@code Reference.reachabilityFence} of it
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long address() {
        long address = enter("CStruct.address");
        exit();
        return address;
    }

    /**
     * Whether it holds nothing: never filled in, released, or moved out. If another thread is releasing it, this waits.
     *
     * @return whether the member {@code release} is NULL
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public boolean isReleased() {
        enter("CStruct.isReleased");
        try {
            return memory.getLong(release) == 0;
        } finally {
            exit();
        }
    }

    /**
     * Releases what it holds, if it does. The memory stays, and can be filled in again. If another thread is releasing
     * it, this waits; so the release itself, which is the producer's, must use no method of this but {@link #close}.
     *
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public void release() {
        long address = handle.waitAlone("CStruct.release");
        try {
            Native.structRelease(kind.tag, address);
        } finally {
            exitAlone();
        }
    }

    /** The struct's bytes, for who knows what he does; not to be used after this is closed. */
    ByteBuffer memory() {
        return memory;
    }

    /** Releases what it holds, if it does, and frees the memory. Closing twice is fine. */
    @Override
    public void close() {
        super.close();
    }
}
