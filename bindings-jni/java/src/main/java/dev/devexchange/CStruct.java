package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;
import java.util.stream.Collectors;

/**
 * Zeroed off-heap memory for one struct of Arrow or of the CUDA Array Interface, which a producer exports to or a
 * consumer imports from. The {@code memoryAddress()} of Arrow Java's {@code ArrowArray}, {@code ArrowSchema} or {@code
 * ArrowArrayStream} serves the same purpose.
 *
 * <p>The methods that take the address of such a struct also take this object. Then they refuse a struct of another
 * kind, and an export refuses one that still has content, which would be lost.
 *
 * <p>Closing it releases the content of the struct, if there is any (an import moves it out), and frees the memory: the
 * address must not be used after that.
 *
 * <p>Any thread may use it: the content is released once, even if two threads release it. A caller that uses the
 * address, for example for an export or import, must make sure that nobody else uses the struct meanwhile.
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

    /** {@return an {@code ArrowArray} without content, which the caller closes} */
    public static CStruct arrowArray() {
        return new CStruct(Handle.Kind.ARROW_ARRAY, Records.ARROW_ARRAY, Records.ARROW_ARRAY);
    }

    /** {@return an {@code ArrowSchema} without content, which the caller closes} */
    public static CStruct arrowSchema() {
        return new CStruct(Handle.Kind.ARROW_SCHEMA, Records.ARROW_SCHEMA, Records.ARROW_SCHEMA);
    }

    /** {@return an {@code ArrowDeviceArray} without content, which the caller closes} */
    public static CStruct arrowDeviceArray() {
        // The array is its first member.
        return new CStruct(Handle.Kind.ARROW_DEVICE_ARRAY, Records.ARROW_DEVICE_ARRAY, Records.ARROW_ARRAY);
    }

    /** {@return an {@code ArrowArrayStream} without content, which the caller closes} */
    public static CStruct arrowStream() {
        return new CStruct(Handle.Kind.ARROW_STREAM, Records.ARROW_STREAM, Records.ARROW_STREAM);
    }

    /** {@return an {@code ArrowDeviceArrayStream} without content, which the caller closes} */
    public static CStruct arrowDeviceStream() {
        return new CStruct(
                Handle.Kind.ARROW_DEVICE_STREAM, Records.ARROW_DEVICE_STREAM, Records.ARROW_DEVICE_STREAM);
    }

    /** {@return a {@code devx_cuda_array} without content, which the caller closes} */
    public static CStruct cudaArray() {
        return new CStruct(Handle.Kind.CUDA_ARRAY, Records.CUDA_ARRAY, Records.CUDA_ARRAY);
    }

    /**
     * The address of the struct.
     *
     * @return an address that is valid only while this object is open and reachable: the garbage collector may close an
     *     unreachable one. Use it within the try-with-resources that closes this object, or before a {@code
     *     Reference.reachabilityFence} of it
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long address() {
        long address = enter("CStruct.address");
        exit();
        return address;
    }

    /**
     * Whether the struct has no content: it was never filled in, or is released or moved out. Waits if another thread
     * is releasing it.
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
     * Releases the content, if there is any. The memory stays, and can be filled in again. Waits if another thread is
     * releasing it; so the producer's release callback must not call any method of this object except {@link #close}.
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

    /**
     * Makes a call that reads or moves the content. The struct stays open meanwhile.
     *
     * @param wanted the kinds of struct that the call can take
     */
    <T> T lend(String method, LongFunction<T> call, Handle.Kind... wanted) {
        long address = enter(method);
        try {
            if (!Arrays.asList(wanted).contains(kind)) {
                throw new DevExchangeException(
                        Status.MISMATCH,
                        method + ": the struct is of kind " + name(kind) + ", not "
                                + Arrays.stream(wanted).map(CStruct::name).collect(Collectors.joining(" or ")));
            }
            return call.apply(address);
        } finally {
            exit();
        }
    }

    /** Makes a call that fills the struct in, which must not have any content. */
    void fill(String method, LongConsumer call, Handle.Kind... wanted) {
        lend(
                method,
                address -> {
                    if (memory.getLong(release) != 0) {
                        throw new DevExchangeException(
                                Status.INVALID_ARGUMENT,
                                method + ": the struct has content, which would be lost: release it first");
                    }
                    call.accept(address);
                    return null;
                },
                wanted);
    }

    /** The name of a struct in C. */
    private static String name(Handle.Kind kind) {
        return switch (kind) {
            case ARROW_ARRAY -> "ArrowArray";
            case ARROW_SCHEMA -> "ArrowSchema";
            case ARROW_DEVICE_ARRAY -> "ArrowDeviceArray";
            case ARROW_STREAM -> "ArrowArrayStream";
            case ARROW_DEVICE_STREAM -> "ArrowDeviceArrayStream";
            case CUDA_ARRAY -> "devx_cuda_array";
            default -> throw new AssertionError(kind);
        };
    }

    /** Which struct this is. */
    Handle.Kind kind() {
        return kind;
    }

    /** The struct's bytes, without any checks; must not be used after this is closed. */
    ByteBuffer memory() {
        return memory;
    }

    /** Releases the content, if there is any, and frees the memory. Closing twice is fine. */
    @Override
    public void close() {
        super.close();
    }
}
