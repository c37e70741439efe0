package dev.devexchange;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The fields of a schema in Java, read once, when somebody first asks: there is one object for a schema and for all
 * batches that are known to be of it.
 */
final class Fields {
    private volatile Field root;

    /** By their nodes, once somebody asked for that of a column. */
    private volatile Field[] nodes;

    /** The children of the whole by their names, the first of each, once somebody asked for one among many. */
    private volatile Map<String, Integer> children;

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

    /** Which child of the whole is the first with this name; -1 if none is. The caller is inside the batch. */
    int child(String name, Batch batch) {
        Map<String, Integer> known = children;
        if (known == null) {
            known = new HashMap<>();
            List<Field> all = at(0, batch).children();
            for (int child = 0; child < all.size(); child++) {
                known.putIfAbsent(all.get(child).name(), child);
            }
            children = known;
        }
        return known.getOrDefault(name, -1);
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
