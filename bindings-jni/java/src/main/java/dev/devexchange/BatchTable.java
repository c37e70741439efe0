package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;

/**
 * The description of a batch and all its arrays, as written by one native call: a row of longs for each array, where
 * members that are the same in all columns are stored once (core, {@code arrow/table.rs}). The numbers never change and
 * are kept in Java memory, so any thread may read them at any time.
 */
final class BatchTable {
    private static final int LENGTH_OF_BATCH = Records.BATCH_INFO.at("length");
    private static final int COLUMNS = Records.BATCH_INFO.at("n_columns");
    private static final int NODES = Records.BATCH_INFO.at("n_nodes");
    private static final int DEVICE_TYPE = Records.BATCH_INFO.at("device_type");
    private static final int DEVICE_ID = Records.BATCH_INFO.at("device_id");

    /** After the record come whether the data is ready, {@link #own}, and the table. */
    private static final int READY = Records.BATCH_INFO.size();

    private static final int OWN = READY + Long.BYTES;
    private static final int TABLE = OWN + Long.BYTES;

    /** The members of a row. */
    private static final int LENGTH = 0;

    private static final int OFFSET = 1;
    private static final int BELOW = 2;
    private static final int NULL_COUNT = 3;
    private static final int COUNTS = 4;
    private static final int BUFFERS = 5;
    private static final int VALUES = BUFFERS + 1;
    private static final int WIDTH = 8;

    /**
     * The number of buffer addresses in a row. Only views have more buffers; then the last place holds the address of a
     * table of all of them.
     */
    private static final int FEW = WIDTH - BUFFERS;

    /** The node of the whole batch. */
    static final int ROOT = 0;

    final long length;
    final int columnCount;

    /** The node of the first column; the others follow it. */
    final int firstColumn;

    final Device device;

    /** Whether the data is ready for good; otherwise it is when work on a stream is done, as only the library knows. */
    final boolean ready;

    private final int nodes;

    /**
     * The number of longs that each node except the root has of its own: one, for {@link #VALUES}; those from {@link
     * #NULL_COUNT} on; or a whole row.
     */
    private final int own;

    /** The row that all columns share, the row of the root, and the longs of each other node. */
    private final long[] table;

    /**
     * By node, the buffers that values were read from; all {@link Column}s of one array use the same ones. Not used if
     * the data is not {@link #ready}.
     */
    private volatile Buffers[] buffers;

    private BatchTable(Scratch scratch) {
        ByteBuffer in = scratch.buffer;
        length = in.getLong(LENGTH_OF_BATCH);
        columnCount = Math.toIntExact(in.getLong(COLUMNS));
        device = Device.of(in.getInt(DEVICE_TYPE), in.getInt(DEVICE_ID));
        ready = in.getLong(READY) != 0;
        nodes = (int) in.getLong(NODES);
        own = (int) in.getLong(OWN);
        table = new long[2 * WIDTH + (nodes - 1) * own];
        scratch.longs.get(TABLE / Long.BYTES, table);
        firstColumn = below(ROOT);
    }

    /** Describes a batch that Java holds a reference to. */
    static BatchTable of(long batch) {
        Scratch scratch = Scratch.get();
        Calls.batchDescribe(batch, scratch.address, scratch.room());
        // The upper limit: every node has a whole row.
        long bytes = TABLE + (scratch.buffer.getLong(NODES) + 1) * WIDTH * Long.BYTES;
        if (bytes > scratch.room()) {
            scratch = Scratch.of(bytes);
            // Through JNI, which does not block the garbage collector meanwhile: there may be a million arrays.
            Native.batchDescribe(batch, scratch.address, scratch.room());
        }
        try {
            return new BatchTable(scratch);
        } finally {
            Reference.reachabilityFence(scratch);
        }
    }

    int nodes() {
        return nodes;
    }

    /** Written so that little code is left where it is inlined: {@code member} is a constant there. */
    private long at(int node, int member) {
        if (own == WIDTH || node == ROOT) {
            return table[WIDTH + node * WIDTH + member];
        }
        if (member < NULL_COUNT) {
            return table[member];
        }
        if (own == 1) {
            return table[member == VALUES ? 2 * WIDTH + node - 1 : member];
        }
        return table[2 * WIDTH + (node - 1) * own + member - NULL_COUNT];
    }

    /** The number of rows of the array that the column sees. */
    long length(int node) {
        return at(node, LENGTH);
    }

    /** The position of row 0 in the buffers. */
    long offset(int node) {
        return at(node, OFFSET);
    }

    /** The number of nulls, or −1 if it is not known. */
    long nullCount(int node) {
        return at(node, NULL_COUNT);
    }

    int bufferCount(int node) {
        return (int) at(node, COUNTS);
    }

    int childCount(int node) {
        return (int) (at(node, COUNTS) >> Integer.SIZE);
    }

    /** The node of the first child; the other children follow it, and the dictionary follows them. */
    int below(int node) {
        return (int) at(node, BELOW);
    }

    /** Whether the address of a buffer is in this table. */
    boolean hasBuffer(int node, int index) {
        return index < FEW - 1 || bufferCount(node) <= FEW;
    }

    /**
     * The address of a buffer. If it is not in this table, it is read from the batch, so the caller must be inside the
     * batch.
     */
    long buffer(int node, int index) {
        if (hasBuffer(node, index)) {
            return at(node, BUFFERS + index);
        }
        // The table of addresses is host memory on every device.
        long table = at(node, BUFFERS + FEW - 1);
        return HostMemory.view(table + (long) index * Long.BYTES, Long.BYTES).getLong(0);
    }

    /**
     * The values of a node, which may be kept if the data is {@link #ready}. Otherwise these are new ones for one call,
     * because {@link Buffers} ask only when they first read whether the host may. The caller must be inside the batch.
     */
    Buffers buffers(Batch batch, int node) {
        if (!ready) {
            return new Buffers(batch, this, node, batch.field(node).layout());
        }
        Buffers[] all = buffers;
        if (all == null) {
            all = new Buffers[nodes()];
            buffers = all;
        }
        Buffers known = all[node];
        if (known == null) {
            known = new Buffers(batch, this, node, batch.field(node).layout());
            all[node] = known;
        }
        return known;
    }
}
