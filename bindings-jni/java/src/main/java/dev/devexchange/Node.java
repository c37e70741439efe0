package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * One array of a batch that is being made: a length, and buffers in the order of the Arrow columnar format, validity
 * first. Nodes are values; the methods {@code with…} return another one. What a node says is checked by
 * {@link Batch#create}.
 */
public final class Node {
    /** The number of nulls is not known. */
    public static final long UNKNOWN = -1;

    private final long length;
    private final long nullCount;
    private final long offset;
    private final List<Memory> buffers;

    /** A buffer of Java's, as it was when it was given, and what is kept for it; or if there is none, an address. */
    private record Memory(ByteBuffer buffer, ByteBuffer kept, long address) {
        static final Memory NONE = at(0);

        static Memory of(ByteBuffer buffer) {
            return buffer == null ? NONE : new Memory(buffer.duplicate().order(buffer.order()), buffer, 0);
        }

        static Memory at(long address) {
            return new Memory(null, null, address);
        }
    }

    private Node(long length, long nullCount, long offset, List<Memory> buffers) {
        this.length = length;
        this.nullCount = nullCount;
        this.offset = offset;
        this.buffers = buffers;
    }

    /**
     * An array over direct buffers in native byte order, each from its position to its limit as they are now.
     *
     * @param length number of elements
     * @param buffers in the order of the format; {@code null} where there is none, as a validity buffer without nulls.
     *     None at all for a type that has no buffers
     * @return the node, with an unknown number of nulls and offset 0
     */
    public static Node of(long length, ByteBuffer... buffers) {
        return new Node(length, UNKNOWN, 0, Arrays.stream(buffers).map(Memory::of).toList());
    }

    /**
     * An array over memory at addresses. How long it is cannot be checked.
     *
     * @param length number of elements
     * @param addresses in the order of the format; 0 where there is no buffer
     * @return the node, with an unknown number of nulls and offset 0
     */
    public static Node ofAddresses(long length, long... addresses) {
        return new Node(length, UNKNOWN, 0, Arrays.stream(addresses).mapToObj(Memory::at).toList());
    }

    /**
     * The same node with one more buffer.
     *
     * @param buffer a direct buffer in native byte order, from its position to its limit; or {@code null} if there is
     *     none
     * @return the node
     */
    public Node withBuffer(ByteBuffer buffer) {
        return with(List.of(Memory.of(buffer)));
    }

    /**
     * The same node with one more buffer, at an address. How long it is cannot be checked.
     *
     * @param address where it is; 0 if there is none
     * @return the node
     */
    public Node withAddress(long address) {
        return with(List.of(Memory.at(address)));
    }

    /**
     * The same node with these data buffers of views, and the buffer of their sizes, which is made here. To be called
     * when the node has validity and views.
     *
     * @param data direct buffers in native byte order, each from its position to its limit; there may be none
     * @return the node
     */
    public Node withViewData(ByteBuffer... data) {
        return with(Arrays.stream(data).map(Memory::of).toList())
                .withViewSizes(Arrays.stream(data).mapToLong(ByteBuffer::remaining).toArray());
    }

    /**
     * The same node with the last buffer of views: the sizes of the data buffers. It is made here, in host memory, as
     * consumers expect it of arrays on any device.
     *
     * @param bytes of each data buffer
     * @return the node
     */
    public Node withViewSizes(long... bytes) {
        ByteBuffer sizes = ByteBuffer.allocateDirect(bytes.length * Long.BYTES).order(ByteOrder.nativeOrder());
        sizes.asLongBuffer().put(bytes);
        return withBuffer(sizes);
    }

    private Node with(List<Memory> more) {
        List<Memory> all = new ArrayList<>(buffers);
        all.addAll(more);
        return new Node(length, nullCount, offset, Collections.unmodifiableList(all));
    }

    /**
     * The same node with a number of nulls.
     *
     * @param count how many elements are null, or {@link #UNKNOWN}
     * @return the node
     */
    public Node withNullCount(long count) {
        return new Node(length, count, offset, buffers);
    }

    /**
     * The same node as a slice: its first element is not the first one in the buffers.
     *
     * @param elements to skip in each buffer
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
        return buffers.size();
    }

    /** What has to stay reachable as long as the memory is used. */
    Object kept() {
        return buffers;
    }

    /** Writes the record at {@code at}, whose table of buffers is going to be at {@code table}. */
    void write(ByteBuffer out, int at, long table) {
        out.putLong(at + Records.NODE.at("length"), length);
        out.putLong(at + Records.NODE.at("null_count"), nullCount);
        out.putLong(at + Records.NODE.at("offset"), offset);
        out.putLong(at + Records.NODE.at("buffers"), table);
        out.putLong(at + Records.NODE.at("n_buffers"), bufferCount());
    }

    /** The address of a buffer; {@code name} is for messages. */
    long address(int index, String name) {
        Memory memory = buffers.get(index);
        return memory.buffer == null
                ? memory.address
                : HostMemory.address(memory.buffer, name + ".buffers[" + index + "]");
    }

    /** Whether a buffer is one of Java's that has bytes. */
    boolean isHostMemory(int index) {
        return room(index) > 0;
    }

    /** How many bytes a buffer has; −1 if that is not known. */
    long room(int index) {
        ByteBuffer buffer = buffers.get(index).buffer;
        return buffer == null ? -1 : buffer.remaining();
    }
}
