package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/**
 * The types of the arrays of a batch: a tree of fields, checked once and shared by reference. It never changes.
 *
 * <p>Any thread may use it. Close it when it is no longer needed. Batches that were made with it keep what they need.
 */
public final class Schema extends Owned<Schema> implements AutoCloseable {
    /** The most columns that {@link #shown} lists. */
    private static final int SHOWN = 20;

    // Where the members of a field's record are; the texts are in the order of Field.texts.
    private static final int[] TEXTS = {
        Records.FIELD.at("name"), Records.FIELD.at("format"), Records.FIELD.at("metadata")
    };
    private static final int FLAGS = Records.FIELD.at("flags");
    private static final int CHILDREN = Records.FIELD.at("n_children");
    private static final int HAS_DICTIONARY = Records.FIELD.at("has_dictionary");

    private final Fields fields;

    /** A schema that has not been read into Java yet. */
    Schema() {
        this(new Fields());
    }

    Schema(Fields fields) {
        super(Handle.Kind.SCHEMA);
        this.fields = fields;
    }

    /**
     * Creates the schema of a record batch: a struct with a child for each column.
     *
     * @param columns the columns' fields, in order
     * @return the schema, which the caller closes
     * @throws DevExchangeException as {@link #of}
     */
    public static Schema batch(Field... columns) {
        return of(Field.of("", Format.STRUCT).notNull().withChildren(columns));
    }

    /**
     * Creates a schema from a tree of fields.
     *
     * @param root the root field; of format {@link Format#STRUCT} for a record batch
     * @return the schema, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_FORMAT}, {@link Status#INVALID_CHILDREN},
     *     {@link Status#INVALID_METADATA}, {@link Status#INVALID_TEXT}, {@link Status#MISMATCH},
     *     {@link Status#TOO_DEEP} or {@link Status#UNSUPPORTED}, with the field and the value
     */
    public static Schema of(Field root) {
        List<Field> fields = root.depthFirst();
        List<List<byte[]>> texts = new ArrayList<>(fields.size());
        long bytes = (long) fields.size() * Records.FIELD.size();
        for (Field field : fields) {
            List<byte[]> ofField = field.texts();
            texts.add(ofField);
            for (byte[] text : ofField) {
                bytes += text.length;
            }
        }
        Scratch scratch = Scratch.of(bytes);
        try {
            write(fields, texts, scratch);
            return new Schema().of(Native.schemaCreate(scratch.address, fields.size()));
        } finally {
            Reference.reachabilityFence(scratch);
        }
    }

    /** Writes the records, then the texts that they point to. */
    private static void write(List<Field> fields, List<List<byte[]>> texts, Scratch scratch) {
        ByteBuffer out = scratch.buffer;
        int text = fields.size() * Records.FIELD.size();
        for (int i = 0; i < fields.size(); i++) {
            Field field = fields.get(i);
            int at = i * Records.FIELD.size();
            for (int k = 0; k < TEXTS.length; k++) {
                byte[] bytes = texts.get(i).get(k);
                out.putLong(at + TEXTS[k], bytes.length == 0 ? 0 : scratch.address + text);
                out.put(text, bytes);
                text += bytes.length;
            }
            out.putLong(at + FLAGS, field.flags());
            out.putLong(at + CHILDREN, field.children().size());
            out.putLong(at + HAS_DICTIONARY, field.dictionary() == null ? 0 : 1);
        }
    }

    /**
     * Takes a schema from its producer. On success the struct is moved from (its {@code release} is NULL) and is
     * released once, when the last user is gone; on failure it is untouched and the caller still owns it.
     *
     * @param address of an {@code ArrowSchema} that the caller owns
     * @return the schema, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#RELEASED}, and those of {@link #of}
     */
    public static Schema importArrow(long address) {
        return new Schema().of(Native.schemaImport(address));
    }

    /**
     * Same as {@link #importArrow(long)}.
     *
     * @param schema an {@code ArrowSchema} with content
     * @return the schema, which the caller closes
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind
     */
    public static Schema importArrow(CStruct schema) {
        return schema.lend("Schema.importArrow", Schema::importArrow, Handle.Kind.ARROW_SCHEMA);
    }

    /**
     * Hands the schema to a consumer and keeps it. The consumer releases the struct.
     *
     * @param address of memory for an {@code ArrowSchema}; its previous content is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}; on any error nothing is written
     */
    public void exportArrow(long address) {
        long schema = enter("Schema.exportArrow");
        try {
            Native.schemaExport(schema, address);
        } finally {
            exit();
        }
    }

    /**
     * Same as {@link #exportArrow(long)}.
     *
     * @param schema an {@code ArrowSchema} without content
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind, {@link
     *     Status#INVALID_ARGUMENT} for one with content
     */
    public void exportArrow(CStruct schema) {
        check("Schema.exportArrow");
        schema.fill("Schema.exportArrow", this::exportArrow, Handle.Kind.ARROW_SCHEMA);
    }

    /**
     * Returns another reference to the same schema.
     *
     * @return the schema, which the caller closes, too
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Schema share() {
        long schema = enter("Schema.share");
        try {
            return new Schema(fields).of(Calls.schemaShare(schema));
        } finally {
            exit();
        }
    }

    /**
     * Returns the root field with everything below it. It stays valid after the schema is closed.
     *
     * @return the root field; of format {@code +s} for a record batch
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Field root() {
        return root("Schema.root");
    }

    private Field root(String method) {
        long schema = enter(method);
        try {
            return fields.root(schema);
        } finally {
            exit();
        }
    }

    Fields fields() {
        return fields;
    }

    /**
     * The fields of the columns.
     *
     * @return the children of the {@link #root()}; unmodifiable
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public List<Field> columns() {
        return root("Schema.columns").children();
    }

    /** Names and types of the columns, or the type of the root if this is not a record batch, as readable text. */
    String shown() {
        Field root = root();
        List<Field> columns = root.children();
        if (!root.format().equals(Format.STRUCT) || columns.isEmpty()) {
            return root.typeName();
        }
        String shown = columns.stream()
                .limit(SHOWN)
                .map(column -> column.name() + ": " + column.typeName())
                .collect(Collectors.joining(", "));
        int more = columns.size() - SHOWN;
        return more > 0 ? shown + ", … and " + more + " more" : shown;
    }

    /** The root field, also of a closed schema if it was read before. */
    private Field said(String method) {
        Field known = fields.known();
        return known == null ? root(method) : known;
    }

    /**
     * Compares two schemas: names, formats, flags and metadata of all fields. A closed schema can still be compared if
     * it was read before.
     *
     * @param other any object
     * @return whether it is a schema whose {@link #root()} is equal
     * @throws DevExchangeException {@link Status#CLOSED} if either schema was closed and never read
     */
    @Override
    public boolean equals(Object other) {
        return this == other
                || other instanceof Schema that && said("Schema.equals").equals(that.said("Schema.equals"));
    }

    /**
     * {@return the hash code of the {@link #root()}}
     *
     * @throws DevExchangeException {@link Status#CLOSED} if it was closed and never read
     */
    @Override
    public int hashCode() {
        return said("Schema.hashCode").hashCode();
    }

    /** {@return the fields, or that it is closed} */
    @Override
    public String toString() {
        try {
            return "Schema " + root();
        } catch (DevExchangeException closed) {
            return "Schema (closed)";
        }
    }
}
