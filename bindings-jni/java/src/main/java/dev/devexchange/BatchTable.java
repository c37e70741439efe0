package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;

/**
 * What a batch is, and all its arrays, as one native call has written them: a row of longs for each, in which the
 * members that are the same in all columns stand once (core, {@code arrow/table.rs}). The numbers never change, and
 * need no native memory: any thread may read them at any time.
 */
final class BatchTable {
    private static final int LENGTH_OF_BATCH = Records.BATCH_INFO.at("length");
    private static final int COLUMNS = Records.BATCH_INFO.at("n_columns");
    private static final int NODES = Records.BATCH_INFO.at("n_nodes");
    private static final int DEVICE_TYPE = Records.BATCH_INFO.at("device_type");
    private static final int DEVICE_ID = Records.BATCH_INFO.at("device_id");

    /** Behind the record stand whether the data is there already, and {@link #own}; then the table. */
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

    /** So many buffers have their addresses in a row; only views have more, and then the last one is another table. */
    private static final int FEW = WIDTH - BUFFERS;

    /** The node of the whole batch. */
    static final int ROOT = 0;

    final long length;
    final int columnCount;

    /** The node of the first column; the others follow it. */
    final int firstColumn;

    final Device device;

    /** Whether the data is there, and not after what is queued on a stream. */
    final boolean ready;

    private final int nodes;

    /**
     * How many longs each node but the root has for itself: one, for {@link #VALUES}; those from {@link #NULL_COUNT}
     * on; or a whole row.
     */
    private final int own;

    /** The row that all columns have in common, that of the root, and what each other node has for itself. */
    private final long[] table;

    /** By their nodes, those that somebody has read values from: however many columns there are of one array. */
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

    /** Of a batch that Java holds. */
    static BatchTable of(long batch) {
        Scratch scratch = Scratch.get();
        Calls.batchDescribe(batch, scratch.address, scratch.room());
        // As if each had a whole row.
        long bytes = TABLE + (scratch.buffer.getLong(NODES) + 1) * WIDTH * Long.BYTES;
        if (bytes > scratch.room()) {
            scratch = Scratch.of(bytes);
            // By JNI, which lets the garbage collector go on meanwhile: there may be a million arrays.
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

    /** In a form that leaves little of it where it is inlined, as members are constants. */
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

    /** The number of rows that the column sees of its array. */
    long length(int node) {
        return at(node, LENGTH);
    }

    /** Where row 0 is in the buffers. */
    long offset(int node) {
        return at(node, OFFSET);
    }

    /** −1 if it is not known. */
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

    /** Whether the address of a buffer stands here. */
    boolean hasBuffer(int node, int index) {
        return index < FEW - 1 || bufferCount(node) <= FEW;
    }

    /** The address of a buffer. If it does not stand here, it is read, and so the caller is inside the batch. */
    long buffer(int node, int index) {
        if (hasBuffer(node, index)) {
            return at(node, BUFFERS + index);
        }
        // The table of addresses is host memory on every device.
        long table = at(node, BUFFERS + FEW - 1);
        return HostMemory.view(table + (long) index * Long.BYTES, Long.BYTES).getLong(0);
    }

    /** The values of a node; the caller is inside the batch. */
    Buffers buffers(Batch batch, int node) {
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
