package dev.devexchange;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The fields of a schema in Java, read once, when they are first asked for. A schema and all batches that are known to
 * have it share one object.
 */
final class Fields {
    private volatile Field root;

    /** The fields by node; null until the field of a column is asked for. */
    private volatile Field[] nodes;

    /** The children of the root by name (the first child of each name); null until a child among many is asked for. */
    private volatile Map<String, Integer> children;

    /** The root field; null if it has not been read. */
    Field known() {
        return root;
    }

    /** The root field. The caller must be inside the schema. */
    Field root(long schema) {
        Field known = root;
        if (known == null) {
            known = read(schema);
            root = known;
        }
        return known;
    }

    /** The field of a node. The caller must be inside the batch. */
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

    /** The index of the root's first child with this name; -1 if there is none. The caller must be inside the batch. */
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

    /**
     * The fields in the order of the nodes, which are numbered level by level: the children of each node in a row, then
     * its dictionary.
     */
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
