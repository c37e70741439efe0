package dev.devexchange;

import java.nio.ByteBuffer;

/**
 * The native calls that are frequent, return soon and call nobody back, so that a newer JVM can make them without JNI.
 * On JDK 22 and newer, the jar has another class of this name ({@code src/main/java22}) with the same methods.
 */
final class Calls {
    static final Backend BACKEND = choose();

    private Calls() {}

    private static Backend choose() {
        if (Backend.wanted() == Backend.FFM) {
            throw new IllegalArgumentException(Backend.PROPERTY + " is \"ffm\": that takes JDK 22 or newer (this is "
                    + Runtime.version().feature() + ") and a jar that was built with one and is Multi-Release");
        }
        return Backend.JNI;
    }

    static long ledgerOutstanding() {
        return Native.ledgerOutstanding();
    }

    static void ledgerRead(long out) {
        Native.ledgerRead(out);
    }

    static void tensorDescribe(long tensor, long out) {
        Native.tensorDescribe(tensor, out);
    }

    static long tensorShare(long tensor) {
        return Native.tensorShare(tensor);
    }

    /** For a request that neither waits nor copies ({@link DlpackRequest#isImmediate}). */
    static long tensorExport(long tensor, long request, boolean legacy) {
        return Native.tensorExport(tensor, request, legacy);
    }

    /** For the same requests as {@link #tensorExport}. */
    static long tensorMove(long tensor, long request, boolean legacy) {
        return Native.tensorMove(tensor, request, legacy);
    }

    static void batchDescribe(long batch, long out, long room) {
        Native.batchDescribe(batch, out, room);
    }

    static long batchShare(long batch) {
        return Native.batchShare(batch);
    }

    static long schemaShare(long schema) {
        return Native.schemaShare(schema);
    }

    /** The address of index 0 of a direct buffer. */
    static long bufferAddress(ByteBuffer buffer) {
        return Native.bufferAddress(buffer);
    }

    /** A direct buffer over existing memory. The caller must keep the memory alive. */
    static ByteBuffer view(long address, long bytes) {
        return Native.view(address, bytes);
    }
}
