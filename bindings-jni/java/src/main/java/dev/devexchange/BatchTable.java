package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;

/**
 * What a batch is, and all its arrays, as one native call has written them: a row of longs for each ({@code
 * column.rs}), at the place of its node. The numbers never change, and need no native memory: any thread may read them
 * at any time.
 */
final class BatchTable {
    private static final int LENGTH_OF_BATCH = Records.BATCH_INFO.at("length");
    private static final int COLUMNS = Records.BATCH_INFO.at("n_columns");
    private static final int NODES = Records.BATCH_INFO.at("n_nodes");
    private static final int DEVICE_TYPE = Records.BATCH_INFO.at("device_type");
    private static final int DEVICE_ID = Records.BATCH_INFO.at("device_id");

    /** Whether the data is there already follows the record, and the rows follow that. */
    private static final int READY = Records.BATCH_INFO.size();

    private static final int ROWS = READY + Long.BYTES;

    /** The longs of a row. */
    private static final int LENGTH = 0;

    private static final int OFFSET = 1;
    private static final int NULL_COUNT = 2;
    private static final int COUNTS = 3;
    private static final int BELOW = 4;
    private static final int BUFFERS = 5;
    private static final int WIDTH = 8;

    /** So many buffers have their addresses in a row; only views have more, and then the last one is another table. */
    private static final int FEW = WIDTH - BUFFERS;

    /** The node of the whole batch. */
    static final int ROOT = 0;

    final long length;
    final int columnCount;
    final Device device;

    /** Whether the data is there, and not after what is queued on a stream. */
    final boolean ready;

    private final long[] rows;

    /** By their nodes, those that somebody has read values from: however many columns there are of one array. */
    private volatile Buffers[] buffers;

    private BatchTable(Scratch scratch) {
        ByteBuffer in = scratch.buffer;
        length = in.getLong(LENGTH_OF_BATCH);
        columnCount = Math.toIntExact(in.getLong(COLUMNS));
        device = Device.of(in.getInt(DEVICE_TYPE), in.getInt(DEVICE_ID));
        ready = in.getLong(READY) != 0;
        rows = new long[(int) in.getLong(NODES) * WIDTH];
        scratch.longs.get(ROWS / Long.BYTES, rows);
    }

    /** Of a batch that Java holds. */
    static BatchTable of(long batch) {
        Scratch scratch = Scratch.get();
        Calls.batchDescribe(batch, scratch.address, scratch.room());
        long bytes = ROWS + scratch.buffer.getLong(NODES) * WIDTH * Long.BYTES;
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
        return rows.length / WIDTH;
    }

    private long at(int node, int member) {
        return rows[node * WIDTH + member];
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
            known = new Buffers(batch, this, node, batch.field(this, node).layout());
            all[node] = known;
        }
        return known;
    }
}
