package dev.devexchange;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;
import java.util.function.Supplier;

/** Makes batches from nodes over memory that Java describes, and from other batches. */
final class BatchMaker {
    private BatchMaker() {}

    /** Implements {@link Batch#create}. {@code names} gives the names of the nodes in messages. */
    static Batch make(
            Schema schema, Device device, List<Node> given, IntFunction<String> names, Runnable release) {
        // A list may make new elements each time it is read, so the copy is both what is used and what is kept alive.
        List<Node> nodes = List.copyOf(given);
        // The records, then for each buffer how many bytes it has, then the tables of their addresses.
        long records = (long) nodes.size() * Records.NODE.size();
        long buffers = nodes.stream().mapToLong(Node::bufferCount).sum();
        // A sum that overflows a long is too large as well.
        Scratch scratch = Scratch.of(records + 2L * Long.BYTES * Math.min(buffers, Long.MAX_VALUE / 32));
        int rooms = (int) records;
        if (device.type().is(DeviceType.CUDA)) {
            requireAddresses(schema, device, nodes, names);
        }
        write(nodes, names, scratch, rooms, rooms + Long.BYTES * (int) buffers);
        Batch batch = new Batch(schema.fields());
        List<Object> kept = new ArrayList<>();
        nodes.forEach(node -> kept.add(node.kept()));
        Long token = ReleaseQueue.register(kept, release);
        long made = 0;
        long open = 0;
        try {
            open = schema.enter("Batch.create");
            made = Native.batchCreate(open, device.packed(), scratch.address, nodes.size(), token);
        } finally {
            if (open != 0) {
                schema.exit();
            }
            if (made == 0) {
                ReleaseQueue.cancel(token);
            }
            Reference.reachabilityFence(scratch);
        }
        return batch.of(made);
    }

    /** Refuses byte buffers as memory of a device, except for the sizes of views, which are in host memory. */
    private static void requireAddresses(
            Schema schema, Device device, List<Node> nodes, IntFunction<String> names) {
        List<Field> fields = schema.root().depthFirst();
        for (int i = 0; i < Math.min(nodes.size(), fields.size()); i++) {
            int count = nodes.get(i).bufferCount();
            if (fields.get(i).layout().kind().isView()) {
                count--;
            }
            for (int k = 0; k < count; k++) {
                if (nodes.get(i).isHostMemory(k)) {
                    throw new DevExchangeException(
                            Status.DEVICE,
                            names.apply(i) + ".buffers[" + k + "] is a ByteBuffer, which is host memory: the device is "
                                    + device);
                }
            }
        }
    }

    private static void write(List<Node> nodes, IntFunction<String> names, Scratch scratch, int rooms, int table) {
        int buffer = 0;
        for (int i = 0; i < nodes.size(); i++) {
            Node node = nodes.get(i);
            int number = i;
            Supplier<String> name = () -> names.apply(number);
            node.write(
                    scratch.buffer, i * Records.NODE.size(), scratch.address + table + (long) Long.BYTES * buffer);
            for (int k = 0; k < node.bufferCount(); k++, buffer++) {
                scratch.buffer.putLong(rooms + Long.BYTES * buffer, node.room(k));
                scratch.buffer.putLong(table + Long.BYTES * buffer, node.address(k, name));
            }
        }
    }

    /** Implements {@link Batch#ofColumns(List, List, DeviceStream)}. */
    static Batch ofColumns(List<String> names, List<Batch> given, DeviceStream stream) {
        // A copy, so that each batch that is entered is also left.
        List<Batch> columns = List.copyOf(given);
        if (names.size() != columns.size()) {
            throw new DevExchangeException(
                    Status.MISMATCH, "there are " + names.size() + " names and " + columns.size() + " columns");
        }
        List<byte[]> texts = names.stream().map(name -> Field.encode(name, "name")).toList();
        // Three longs for each column, then the names that they point to.
        long all = 3L * Long.BYTES * columns.size() + texts.stream().mapToLong(text -> text.length).sum();
        Scratch scratch = Scratch.of(all);
        int records = 3 * Long.BYTES * columns.size();
        int entered = 0;
        try {
            int text = records;
            for (int at = 0; entered < columns.size(); at += 3 * Long.BYTES) {
                byte[] name = texts.get(entered);
                long open = columns.get(entered).enter("Batch.ofColumns");
                entered++;
                scratch.buffer.putLong(at, open);
                scratch.buffer.putLong(at + Long.BYTES, scratch.address + text);
                scratch.buffer.putLong(at + 2 * Long.BYTES, name.length);
                scratch.buffer.put(text, name);
                text += name.length;
            }
            long queue = DeviceStream.enterIfAny(stream, "Batch.ofColumns");
            try {
                return new Batch().of(Native.batchOfColumns(scratch.address, columns.size(), queue));
            } finally {
                DeviceStream.exitIfAny(stream);
            }
        } finally {
            while (entered > 0) {
                entered--;
                columns.get(entered).exit();
            }
            Reference.reachabilityFence(scratch);
        }
    }
}
