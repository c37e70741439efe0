package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.function.Supplier;

/**
 * Describes one array of a new batch: a length, and buffers in the order of the Arrow columnar format, validity first.
 * Nodes are immutable values; the methods {@code with…} return a new node. {@link Batch#create} checks the content.
 */
public final class Node {
    /** In place of a number of nulls: not known. */
    public static final long UNKNOWN = -1;

    // Where the members of its record are.
    private static final int LENGTH = Records.NODE.at("length");
    private static final int NULL_COUNT = Records.NODE.at("null_count");
    private static final int OFFSET = Records.NODE.at("offset");
    private static final int BUFFERS = Records.NODE.at("buffers");
    private static final int N_BUFFERS = Records.NODE.at("n_buffers");

    private final long length;
    private final long nullCount;
    private final long offset;
    /** Never changed. */
    private final Memory[] buffers;

    /**
     * A byte buffer as it was when it was given, with the object to keep reachable for it; or, without a buffer, an
     * address.
     */
    private record Memory(ByteBuffer buffer, ByteBuffer kept, long address) {
        static final Memory NONE = at(0);

        static Memory of(ByteBuffer buffer) {
            return buffer == null ? NONE : new Memory(buffer.duplicate().order(buffer.order()), buffer, 0);
        }

        static Memory at(long address) {
            return new Memory(null, null, address);
        }

        static Memory[] of(ByteBuffer... buffers) {
            Memory[] all = new Memory[buffers.length];
            Arrays.setAll(all, i -> of(buffers[i]));
            return all;
        }
    }

    private Node(long length, long nullCount, long offset, Memory... buffers) {
        this.length = length;
        this.nullCount = nullCount;
        this.offset = offset;
        this.buffers = buffers;
    }

    /**
     * Describes an array over direct buffers in native byte order, each from its current position to its current limit.
     *
     * @param length number of elements
     * @param buffers in the order of the format; {@code null} for a buffer that does not exist (a validity without
     *     nulls). Empty for a type without buffers
     * @return the node, with an unknown number of nulls and offset 0
     */
    public static Node of(long length, ByteBuffer... buffers) {
        return new Node(length, UNKNOWN, 0, Memory.of(buffers));
    }

    /**
     * Describes an array over memory at addresses. The sizes of the buffers cannot be checked.
     *
     * @param length number of elements
     * @param addresses in the order of the format; 0 for a buffer that does not exist
     * @return the node, with an unknown number of nulls and offset 0
     */
    public static Node ofAddresses(long length, long... addresses) {
        return new Node(length, UNKNOWN, 0, Arrays.stream(addresses).mapToObj(Memory::at).toArray(Memory[]::new));
    }

    /**
     * Returns the same node with one more buffer.
     *
     * @param buffer a direct buffer in native byte order, from its current position to its current limit; {@code null}
     *     if there is no such buffer
     * @return the node
     */
    public Node withBuffer(ByteBuffer buffer) {
        return with(Memory.of(buffer));
    }

    /**
     * Returns the same node with one more buffer, at an address. Its size cannot be checked.
     *
     * @param address where the buffer is; 0 if there is no such buffer
     * @return the node
     */
    public Node withAddress(long address) {
        return with(Memory.at(address));
    }

    /**
     * Returns the same node with these data buffers of views, and the buffer of their sizes, which is made here. Call
     * this when the node already has validity and views.
     *
     * @param data direct buffers in native byte order, each from its position to its limit; may be empty
     * @return the node
     */
    public Node withViewData(ByteBuffer... data) {
        return with(Memory.of(data))
                .withViewSizes(Arrays.stream(data).mapToLong(ByteBuffer::remaining).toArray());
    }

    /**
     * Returns the same node with the last buffer of views: the sizes of the data buffers. It is made here, in host
     * memory, where consumers expect it for arrays on any device.
     *
     * @param bytes the size of each data buffer
     * @return the node
     */
    public Node withViewSizes(long... bytes) {
        ByteBuffer sizes = ByteBuffer.allocateDirect(bytes.length * Long.BYTES).order(ByteOrder.nativeOrder());
        sizes.asLongBuffer().put(bytes);
        return withBuffer(sizes);
    }

    private Node with(Memory... more) {
        Memory[] all = Arrays.copyOf(buffers, buffers.length + more.length);
        System.arraycopy(more, 0, all, buffers.length, more.length);
        return new Node(length, nullCount, offset, all);
    }

    /**
     * Returns the same node with a number of nulls.
     *
     * @param count the number of elements that are null, or {@link #UNKNOWN}
     * @return the node
     */
    public Node withNullCount(long count) {
        return new Node(length, count, offset, buffers);
    }

    /**
     * Returns the same node as a slice: its first element is not the first one in the buffers.
     *
     * @param elements the number of elements to skip in each buffer
     * @return the node
     */
    public Node withOffset(long elements) {
        return new Node(length, nullCount, elements, buffers);
    }

    /** {@return length, nulls, offset and number of buffers} */
    @Override
    public String toString() {
        String nulls = nullCount == UNKNOWN ? "unknown" : Long.toString(nullCount);
        return "Node (length " + length + ", nulls " + nulls + ", offset " + offset + ", " + bufferCount()
                + " buffers)";
    }

    int bufferCount() {
        return buffers.length;
    }

    /** The object that must stay reachable as long as the memory is used. */
    Object kept() {
        return buffers;
    }

    /** Writes the record at {@code at}; its table of buffers will be at {@code table}. */
    void write(ByteBuffer out, int at, long table) {
        out.putLong(at + LENGTH, length);
        out.putLong(at + NULL_COUNT, nullCount);
        out.putLong(at + OFFSET, offset);
        out.putLong(at + BUFFERS, table);
        out.putLong(at + N_BUFFERS, bufferCount());
    }

    /** The address of a buffer; {@code name} is for messages. */
    long address(int index, Supplier<String> name) {
        Memory memory = buffers[index];
        return memory.buffer == null
                ? memory.address
                : HostMemory.address(memory.buffer, () -> name.get() + ".buffers[" + index + "]");
    }

    /** Whether a buffer is a byte buffer that is not empty. */
    boolean isHostMemory(int index) {
        return room(index) > 0;
    }

    /** The number of bytes of a buffer; −1 if it is not known. */
    long room(int index) {
        ByteBuffer buffer = buffers[index].buffer;
        return buffer == null ? -1 : buffer.remaining();
    }
}
