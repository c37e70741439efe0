package dev.devexchange;

import java.nio.ByteBuffer;
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
    private final List<ByteBuffer> buffers;
    private final long[] addresses;

    private Node(long length, long nullCount, long offset, List<ByteBuffer> buffers, long[] addresses) {
        this.length = length;
        this.nullCount = nullCount;
        this.offset = offset;
        this.buffers = buffers;
        this.addresses = addresses;
    }

    /**
     * An array over direct buffers in native byte order, each from its position to its limit.
     *
     * @param length number of elements
     * @param buffers in the order of the format; {@code null} where there is none, as a validity buffer without nulls.
     *     None at all for a type that has no buffers
     * @return the node, with an unknown number of nulls and offset 0
     */
    public static Node of(long length, ByteBuffer... buffers) {
        List<ByteBuffer> copy = Collections.unmodifiableList(new ArrayList<>(Arrays.asList(buffers)));
        return new Node(length, UNKNOWN, 0, copy, null);
    }

    /**
     * An array over memory at addresses. How long it is cannot be checked.
     *
     * @param length number of elements
     * @param addresses in the order of the format; 0 where there is no buffer
     * @return the node, with an unknown number of nulls and offset 0
     */
    public static Node ofAddresses(long length, long... addresses) {
        return new Node(length, UNKNOWN, 0, null, addresses.clone());
    }

    /**
     * The same node with a number of nulls.
     *
     * @param count how many elements are null, or {@link #UNKNOWN}
     * @return the node
     */
    public Node withNullCount(long count) {
        return new Node(length, count, offset, buffers, addresses);
    }

    /**
     * The same node as a slice: its first element is not the first one in the buffers.
     *
     * @param elements to skip in each buffer
     * @return the node
     */
    public Node withOffset(long elements) {
        return new Node(length, nullCount, elements, buffers, addresses);
    }

    int bufferCount() {
        return buffers == null ? addresses.length : buffers.size();
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
        if (buffers == null) {
            return addresses[index];
        }
        ByteBuffer buffer = buffers.get(index);
        return buffer == null ? 0 : HostMemory.address(buffer, name + ".buffers[" + index + "]");
    }

    /** How many bytes a buffer has; −1 if that is not known. */
    long room(int index) {
        ByteBuffer buffer = buffers == null ? null : buffers.get(index);
        return buffer == null ? -1 : buffer.remaining();
    }
}
