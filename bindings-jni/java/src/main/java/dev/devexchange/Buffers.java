package dev.devexchange;

import java.nio.ByteOrder;

/**
 * The buffers of one array of a batch, read in place in host memory. Elements are counted from the beginning of the
 * buffers. The caller must be inside the batch, and must ask only for elements before {@link #end}.
 */
final class Buffers {
    /** The most bytes that lie in a view itself. */
    private static final int IN_PLACE = 12;

    /** The number of buffers of a view array that are not data buffers. */
    private static final int BESIDE_DATA = 3;

    /** The most bytes of a data buffer that views can see, because they count bytes with 32 bits. */
    private static final long MOST_OF_VIEW = 1L << 32;

    private final Batch batch;
    private final Layout layout;
    private final BatchTable table;
    private final int node;

    /** The end of the elements that may be read. */
    private final long end;

    private volatile HostMemory validity;

    /** Values, bits, offsets, views, or type ids. */
    private volatile HostMemory values;

    /** Sizes of list views, offsets of dense unions, or sizes of the data buffers of views. */
    private volatile HostMemory seconds;

    /** The data that offsets or views point into: one buffer for offsets, all data buffers for views. */
    private volatile HostMemory[] data;

    /** The buffers of a node of the batch. */
    Buffers(Batch batch, BatchTable table, int node, Layout layout) {
        this.batch = batch;
        this.table = table;
        this.node = node;
        this.layout = layout;
        this.end = table.offset(node) + table.length(node);
    }

    private long address(int index) {
        return table.buffer(node, index);
    }

    boolean isValid(long element) {
        if (!layout.kind().hasValidity()) {
            return layout.kind() != Layout.Kind.NULL;
        }
        if (address(0) == 0) {
            return true;
        }
        if (validity == null) {
            validity = map(address(0), (end + 7) / 8);
        }
        return validity.bit(element);
    }

    boolean bit(long element) {
        return values().bit(element);
    }

    /** The value of an integer, or of a number that is stored as one, as {@link Element#readLong} reads it. */
    long integer(long element) {
        return layout.element().readLong(values(), element * layout.width());
    }

    /** A number that a double can hold. */
    double floating(long element) {
        return layout.element().readDouble(values(), element * layout.width());
    }

    /** The bytes of a value of a type with a fixed number of bytes. */
    byte[] fixed(long element) {
        return values().bytes(element * layout.width(), layout.width());
    }

    /** 32 bits of a value of a type with a fixed number of bytes. */
    int word(long element, int at) {
        return values().i32(element * layout.width() + at);
    }

    /** 64 bits of a value of a type with a fixed number of bytes. */
    long longWord(long element, int at) {
        return values().i64(element * layout.width() + at);
    }

    /** Whether a long can hold a two's complement number of 32 bits, or of one or more times 64 bits. */
    boolean fitsLong(long element) {
        long sign = asLong(element) >> Long.SIZE - 1;
        for (int at = Long.BYTES; at < layout.width(); at += Long.BYTES) {
            if (bits(element, at) != sign) {
                return false;
            }
        }
        return true;
    }

    /** Such a number, if a long can hold it. */
    long asLong(long element) {
        return layout.width() < Long.BYTES ? word(element, 0) : bits(element, 0);
    }

    /** The 64 bits that begin {@code at} bytes above the lowest ones. */
    private long bits(long element, int at) {
        boolean lowestFirst = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
        return longWord(element, lowestFirst ? at : layout.width() - Long.BYTES - at);
    }

    /**
     * The offset of an element of text, binary or lists; for the index after the last element, the end of that element.
     */
    long offset(long element) {
        return sized(values(), element);
    }

    /** The size of an element of list views. */
    long size(long element) {
        return sized(seconds(2, end * layout.width()), element);
    }

    private long sized(HostMemory memory, long element) {
        long at = element * layout.width();
        return layout.width() == Integer.BYTES ? memory.i32(at) : memory.i64(at);
    }

    /** The type id of an element of a union. */
    int typeId(long element) {
        return values().i8(element);
    }

    /** The row of an element of a dense union in its child. */
    int denseOffset(long element) {
        return seconds(1, end * Integer.BYTES).i32(element * Integer.BYTES);
    }

    /** The bytes of text or binary; {@code row} is for messages. */
    byte[] bytes(long element, long row) {
        return layout.kind().isView() ? viewed(element, row) : between(element, row);
    }

    private byte[] between(long element, long row) {
        long last = offset(end);
        long from = offset(element);
        long to = offset(element + 1);
        if (from < 0 || from > to || to > last) {
            throw broken("the offsets of row " + row + " are " + from + " and " + to + ", those of the column end at "
                    + last);
        }
        if (from == to) {
            return new byte[0];
        }
        if (address(2) == 0) {
            throw broken("buffers[2] is NULL, but row " + row + " has " + (to - from) + " bytes");
        }
        if (to - from > Integer.MAX_VALUE) {
            throw new DevExchangeException(
                    Status.UNSUPPORTED,
                    named("row " + row + " has " + (to - from) + " bytes: more than an array can have"));
        }
        if (data == null) {
            data = new HostMemory[] {map(address(2), last)};
        }
        return data[0].bytes(from, (int) (to - from));
    }

    /**
     * The bytes of a view. A view is a length, then either up to 12 bytes, or the first 4 bytes, the number of a data
     * buffer and an offset into it (Arrow columnar format, "Variable-size Binary View Layout").
     */
    private byte[] viewed(long element, long row) {
        int length = word(element, 0);
        if (length < 0) {
            throw broken("the view of row " + row + " has length " + length);
        }
        if (length <= IN_PLACE) {
            return values().bytes(element * layout.width() + Integer.BYTES, length);
        }
        int index = word(element, 8);
        int offset = word(element, 12);
        int count = table.bufferCount(node);
        int dataBuffers = count - BESIDE_DATA;
        if (index < 0 || index >= dataBuffers || offset < 0) {
            throw broken("the view of row " + row + " is buffer " + index + ", offset " + offset + ": there are "
                    + dataBuffers + " data buffers");
        }
        long size = seconds(count - 1, (long) dataBuffers * Long.BYTES).i64((long) index * Long.BYTES);
        if (size < (long) offset + length) {
            throw broken("the view of row " + row + " is " + length + " bytes at offset " + offset
                    + " of data buffer " + index + ", which has " + size);
        }
        return dataBuffer(index, size, row).bytes(offset, length);
    }

    private HostMemory dataBuffer(int index, long size, long row) {
        if (data == null) {
            data = new HostMemory[table.bufferCount(node) - BESIDE_DATA];
        }
        HostMemory mapped = data[index];
        if (mapped == null) {
            long address = address(index + 2);
            if (address == 0) {
                throw broken("buffers[" + (index + 2) + "] is NULL, but row " + row + " is in it");
            }
            mapped = map(address, Math.min(size, MOST_OF_VIEW));
            data[index] = mapped;
        }
        return mapped;
    }

    /** The second buffer, or the first one of a union. */
    private HostMemory values() {
        if (values == null) {
            long bytes = switch (layout.kind()) {
                case BOOL -> (end + 7) / 8;
                case TEXT, BYTES, LIST, MAP -> (end + 1) * layout.width();
                case SPARSE_UNION, DENSE_UNION -> end;
                default -> end * layout.width();
            };
            values = map(address(layout.kind().isUnion() ? 0 : 1), bytes);
        }
        return values;
    }

    private HostMemory seconds(int index, long bytes) {
        if (seconds == null) {
            seconds = map(address(index), bytes);
        }
        return seconds;
    }

    private HostMemory map(long address, long bytes) {
        batch.requireHost();
        if (bytes < 0 || bytes > HostMemory.MOST_BYTES) {
            throw broken("a buffer would have " + bytes + " bytes");
        }
        return HostMemory.of(address, bytes);
    }

    private DevExchangeException broken(String what) {
        return new DevExchangeException(Status.INVALID_BUFFERS, named(what));
    }

    /** A message that names the column. */
    private String named(String what) {
        return "column " + Names.shown(batch.field(node).name()) + ": " + what;
    }
}
