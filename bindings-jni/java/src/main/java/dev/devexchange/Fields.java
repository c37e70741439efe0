package dev.devexchange;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;

/**
 * The fields of a schema in Java, read once, when somebody first asks: there is one object for a schema and for all
 * batches that are known to be of it.
 */
final class Fields {
    private volatile Field root;

    /** By their nodes, once somebody asked for that of a column. */
    private volatile Field[] nodes;

    /** The field of the whole, if somebody has asked already. */
    Field known() {
        return root;
    }

    /** The field of the whole. The caller is inside the schema. */
    Field root(long schema) {
        Field known = root;
        if (known == null) {
            known = read(schema);
            root = known;
        }
        return known;
    }

    /** The field of a node. The caller is inside the batch. */
    Field at(int node, Batch batch) {
        Field[] known = nodes;
        if (known == null) {
            try (Schema schema = batch.schemaInside()) {
                known = byLevel(schema.root());
            }
            nodes = known;
        }
        return known[node];
    }

    /** Nodes are numbered level by level: the children of each one in a row, and its dictionary behind them. */
    private static Field[] byLevel(Field root) {
        List<Field> fields = new ArrayList<>(List.of(root));
        for (int node = 0; node < fields.size(); node++) {
            Field field = fields.get(node);
            fields.addAll(field.children());
            if (field.dictionary() != null) {
                fields.add(field.dictionary());
            }
        }
        return fields.toArray(Field[]::new);
    }

    private static Field read(long schema) {
        Scratch scratch = Scratch.get();
        long bytes = Native.schemaFields(schema, scratch.address, scratch.room());
        if (bytes > scratch.room()) {
            scratch = Scratch.of(bytes);
            Native.schemaFields(schema, scratch.address, scratch.room());
        }
        try {
            return Field.read(scratch.buffer.duplicate().order(scratch.buffer.order()));
        } finally {
            Reference.reachabilityFence(scratch);
        }
    }
}
