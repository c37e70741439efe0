package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/**
 * One field of a schema: a name, a type, and the fields below it. Fields are immutable values: the methods {@code
 * with…} return a new field, and fields with the same content are equal.
 *
 * <p>The content of a field is checked when a {@link Schema} is made from it.
 */
public final class Field {
    /** Flag: the order of the dictionary has a meaning. */
    public static final long ORDERED = 1;
    /** Flag: values may be null. */
    public static final long NULLABLE = 2;
    /** Flag: the keys of a map are sorted. */
    public static final long KEYS_SORTED = 4;

    /** Where the time zone begins in the format of a timestamp. */
    private static final int ZONE = "tsu:".length();

    private static final byte[] NONE = {};

    /** The most fields that a schema can have (core, {@code MAX_NODES}). */
    private static final int MOST = 1 << 20;

    /** Metadata key: the name of an extension type. */
    private static final String EXTENSION_NAME = "ARROW:extension:name";
    /** Metadata key: the parameters of an extension type. */
    private static final String EXTENSION_METADATA = "ARROW:extension:metadata";

    private final String name;
    private final String format;
    private final long flags;
    private final List<Field> children;
    private final Field dictionary;
    private final Map<String, String> metadata;
    private final Layout layout;

    /** How many fields these are: this one and all below it, each as often as it occurs. */
    private final int count;

    /** The type ids of a union; null until they are asked for. */
    private volatile List<Integer> typeIds;

    /** The time zone of a timestamp; null until it is asked for. */
    private volatile ZoneId zone;

    /** The hash code; 0 until it is asked for. */
    private int hash;

    private Field(
            String name,
            String format,
            long flags,
            List<Field> children,
            Field dictionary,
            Map<String, String> metadata,
            Layout layout) {
        this.name = name;
        this.format = format;
        this.flags = flags;
        this.children = children;
        this.dictionary = dictionary;
        this.metadata = metadata;
        this.layout = layout;
        this.count = counted();
    }

    /**
     * Counts the fields. A field may occur in the tree any number of times, so a few objects can make more fields than
     * anything that goes through them could ever get done with: more than {@link #MOST} are refused.
     */
    private int counted() {
        long fields = dictionary == null ? 1 : 1L + dictionary.count;
        for (Field child : children) {
            fields += child.count;
        }
        if (fields > MOST) {
            throw new DevExchangeException(
                    Status.TOO_DEEP, context() + "the schema would have more than " + MOST + " fields");
        }
        return (int) fields;
    }

    /**
     * Creates a nullable field without children, dictionary or metadata.
     *
     * @param name may be empty
     * @param format Arrow format string, see {@link Format}
     * @return the field
     */
    public static Field of(String name, String format) {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(format, "format");
        return new Field(name, format, NULLABLE, List.of(), null, Map.of(), null);
    }

    /**
     * Creates a field of maps. Arrow does not say whether keys may repeat.
     *
     * @param name may be empty
     * @param key the field of the keys; the map gets a copy that is not nullable
     * @param value the field of the values
     * @return the field, whose child is a struct of key and value, called {@code entries}
     */
    public static Field map(String name, Field key, Field value) {
        Field entries = of("entries", Format.STRUCT).notNull().withChildren(key.notNull(), value);
        return of(name, Format.MAP).withChildren(entries);
    }

    /**
     * Creates a sparse union: each value has one of several types, and every child has as many rows as the union.
     *
     * @param name may be empty
     * @param children the types, which get the type ids 0, 1, 2 …; see {@link Format#sparseUnion} for others
     * @return the field
     */
    public static Field sparseUnion(String name, Field... children) {
        return of(name, Format.sparseUnion(numbers(children))).withChildren(children);
    }

    /**
     * Creates a dense union: each value has one of several types, and a child has only the rows of its type.
     *
     * @param name may be empty
     * @param children the types, which get the type ids 0, 1, 2 …; see {@link Format#denseUnion} for others
     * @return the field
     */
    public static Field denseUnion(String name, Field... children) {
        return of(name, Format.denseUnion(numbers(children))).withChildren(children);
    }

    private static int[] numbers(Field[] children) {
        return IntStream.range(0, children.length).toArray();
    }

    /**
     * Creates a field of runs of equal values.
     *
     * @param name may be empty
     * @param runEnds the type of the numbers that mark the end of each run: {@link Format#INT16}, {@link Format#INT32}
     *     or {@link Format#INT64}
     * @param values the field of the values, one for each run
     * @return the field
     */
    public static Field runEndEncoded(String name, String runEnds, Field values) {
        return of(name, Format.RUN_END_ENCODED).withChildren(of("run_ends", runEnds).notNull(), values);
    }

    /** A field of which everything is known; the lists and the map must not change any more. */
    static Field whole(
            String name,
            String format,
            long flags,
            List<Field> children,
            Field dictionary,
            Map<String, String> metadata) {
        return new Field(name, format, flags, children, dictionary, metadata, null);
    }

    /** {@return the same field with values that may be null, as {@link #of} makes it} */
    public Field nullable() {
        return withFlags(flags | NULLABLE);
    }

    /** {@return the same field with values that are never null} */
    public Field notNull() {
        return withFlags(flags & ~NULLABLE);
    }

    /**
     * Returns the same field with other flags.
     *
     * @param bits the constants of this class, or-ed; unknown ones are kept
     * @return the field
     */
    public Field withFlags(long bits) {
        return new Field(name, format, bits, children, dictionary, metadata, null);
    }

    /** {@return the same field with a dictionary whose order has a meaning} */
    public Field ordered() {
        return withFlags(flags | ORDERED);
    }

    /** {@return the same field with maps whose keys are sorted} */
    public Field keysSorted() {
        return withFlags(flags | KEYS_SORTED);
    }

    /**
     * Returns the same field with these children: the columns of a struct, the values of a list.
     *
     * @param fields the children, in order
     * @return the field
     * @throws DevExchangeException {@link Status#TOO_DEEP} if there are more than 1048576 fields: this one, its
     *     children and all below them
     */
    public Field withChildren(Field... fields) {
        return new Field(name, format, flags, List.of(fields), dictionary, metadata, null);
    }

    /**
     * Returns the same field, dictionary-encoded: {@link #format()} is then the type of the indices.
     *
     * @param values the field of the dictionary's values
     * @return the field
     * @throws DevExchangeException as {@link #withChildren}
     */
    public Field withDictionary(Field values) {
        return new Field(
                name, format, flags, children, Objects.requireNonNull(values, "values"), metadata, null);
    }

    /**
     * Returns the same field with this metadata.
     *
     * @param pairs keys and values, in the order of the map
     * @return the field
     */
    public Field withMetadata(Map<String, String> pairs) {
        return new Field(name, format, flags, children, dictionary, Metadata.copy(pairs), null);
    }

    /**
     * Returns the same field as an extension type, which says what the values mean beyond their format (Arrow columnar
     * format, "Extension types"). This library hands the extension type on, and reads the values as their format says.
     *
     * @param type the name of the extension type
     * @param parameters its parameters, in a form that the name defines; may be empty
     * @return the field, with two more pairs of metadata
     */
    public Field withExtension(String type, String parameters) {
        Map<String, String> pairs = new LinkedHashMap<>(metadata);
        pairs.put(EXTENSION_NAME, type);
        pairs.put(EXTENSION_METADATA, parameters);
        return withMetadata(pairs);
    }

    /** {@return the name; empty if there is none} */
    public String name() {
        return name;
    }

    /** {@return the Arrow format string; for a dictionary, that of its indices} */
    public String format() {
        return format;
    }

    /** {@return the constants of this class, or-ed; unknown bits included} */
    public long flags() {
        return flags;
    }

    /** {@return whether values may be null} */
    public boolean isNullable() {
        return (flags & NULLABLE) != 0;
    }

    /** {@return whether the order of the dictionary has a meaning} */
    public boolean isOrdered() {
        return (flags & ORDERED) != 0;
    }

    /** {@return whether the keys of a map are sorted} */
    public boolean isKeysSorted() {
        return (flags & KEYS_SORTED) != 0;
    }

    /** {@return the columns of a struct, the values of a list; unmodifiable} */
    public List<Field> children() {
        return children;
    }

    /** {@return the field of the dictionary's values, or {@code null} if this is not a dictionary} */
    public Field dictionary() {
        return dictionary;
    }

    /**
     * The metadata. Arrow allows arbitrary bytes and repeated keys; here bytes that are not UTF-8 are replaced, and the
     * last value of a key wins. An imported schema is exported again with its original bytes.
     *
     * @return keys and values, in order; unmodifiable
     */
    public Map<String, String> metadata() {
        return metadata;
    }

    /** {@return the name of the extension type, or {@code null} if this is not an extension type} */
    public String extensionName() {
        return metadata.get(EXTENSION_NAME);
    }

    /** {@return the parameters of the extension type; empty if there are none} */
    public String extensionMetadata() {
        return metadata.getOrDefault(EXTENSION_METADATA, "");
    }

    /** {@return the time zone of a timestamp; empty if it has none, and for other types} */
    public String timeZone() {
        return hasTimeZone() ? format.substring(ZONE) : "";
    }

    /** Whether there is a time zone: asked for each value that is read. */
    boolean hasTimeZone() {
        return isTimestamp() && format.length() > ZONE;
    }

    /** The time zone as {@code java.time} knows it, looked up once. Throws what {@link ZoneId#of} throws. */
    ZoneId zone() {
        ZoneId known = zone;
        if (known == null) {
            known = ZoneId.of(timeZone());
            zone = known;
        }
        return known;
    }

    private boolean isTimestamp() {
        return format.startsWith("ts") && format.indexOf(':') == ZONE - 1;
    }

    /**
     * The type ids of a union: the number that stands for each child.
     *
     * @return as many as there are children; empty for other types; unmodifiable
     * @throws DevExchangeException {@link Status#INVALID_FORMAT} for a format that {@link Schema#of} would refuse
     */
    public List<Integer> typeIds() {
        if (typeIds == null) {
            typeIds = parseTypeIds();
        }
        return typeIds;
    }

    /**
     * The readable name of the type: {@code int64}, {@code timestamp(microsecond, Europe/Berlin)}. For a dictionary it
     * names the types of the indices and of the values: {@code int32 -> utf8}.
     *
     * @return the name
     * @throws DevExchangeException {@link Status#INVALID_FORMAT} for a format that {@link Schema#of} would refuse
     */
    public String typeName() {
        String own = Native.typeName(format);
        return dictionary == null ? own : own + " -> " + dictionary.typeName();
    }

    private List<Integer> parseTypeIds() {
        boolean union = format.startsWith("+us:") || format.startsWith("+ud:");
        if (!union || format.length() == 4) {
            return List.of();
        }
        try {
            return Arrays.stream(format.substring(4).split(",", -1)).map(Integer::valueOf).toList();
        } catch (NumberFormatException e) {
            throw new DevExchangeException(
                    Status.INVALID_FORMAT, "field " + Names.shown(name) + ": format is \"" + format + "\"");
        }
    }

    /** The layout of the values, for fields that the native library has checked. */
    Layout layout() {
        return layout == null ? Layout.of(format) : layout;
    }

    /** {@return whether it is a field of the same name, type, flags and metadata, with equal fields below it} */
    @Override
    public boolean equals(Object other) {
        return this == other
                || other instanceof Field that
                && hashCode() == that.hashCode()
                && name.equals(that.name)
                && format.equals(that.format)
                && flags == that.flags
                && metadata.equals(that.metadata)
                && children.equals(that.children)
                && Objects.equals(dictionary, that.dictionary);
    }

    @Override
    public int hashCode() {
        int known = hash;
        if (known == 0) {
            known = Objects.hash(name, format, flags, metadata, children, dictionary);
            hash = known;
        }
        return known;
    }

    /** {@return name and type, for example {@code "date": date32}} */
    @Override
    public String toString() {
        String text = "\"" + name + "\": " + shownType();
        return children.isEmpty() ? text : text + ' ' + children;
    }

    /** The type name, or the format if the field is invalid or the native library cannot be loaded. */
    private String shownType() {
        try {
            return typeName();
        } catch (DevExchangeException | LinkageError unknown) {
            return format;
        }
    }

    // ---- to and from the records of C ----

    /** Lists this field, then its children with everything below them, then its dictionary. */
    List<Field> depthFirst() {
        List<Field> fields = new ArrayList<>(count);
        List<Field> waiting = new ArrayList<>(List.of(this));
        while (!waiting.isEmpty()) {
            Field field = waiting.remove(waiting.size() - 1);
            fields.add(field);
            if (field.dictionary != null) {
                waiting.add(field.dictionary);
            }
            for (int i = field.children.size() - 1; i >= 0; i--) {
                waiting.add(field.children.get(i));
            }
        }
        return fields;
    }

    /** The bytes of name, format and metadata, in this order; the texts end with NUL. */
    List<byte[]> texts() {
        return List.of(text(name, "name"), text(format, "format"), metadataBlock());
    }

    private byte[] metadataBlock() {
        return metadata.isEmpty() ? NONE : Metadata.block(metadata, context());
    }

    private byte[] text(String text, String what) {
        if (text.indexOf('\0') >= 0) {
            throw invalid(what, text, "contains a NUL");
        }
        byte[] bytes = utf8(text, what);
        return Arrays.copyOf(bytes, bytes.length + 1);
    }

    private byte[] utf8(String text, String what) {
        return encode(text, () -> invalid(what, text, "is not valid Unicode"));
    }

    /** Encodes a text in UTF-8, or throws the refusal. */
    static byte[] encode(String text, Supplier<DevExchangeException> refusal) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        // Half a surrogate pair has become a question mark.
        if (!new String(bytes, StandardCharsets.UTF_8).equals(text)) {
            throw refusal.get();
        }
        return bytes;
    }

    /** Encodes a text in UTF-8; {@code what} names it in the message of the refusal. */
    static byte[] encode(String text, String what) {
        Objects.requireNonNull(text, what);
        return encode(text, () -> new DevExchangeException(
                Status.INVALID_TEXT, what + " " + Names.shown(text) + " is not valid Unicode"));
    }

    /** Refuses a text that is not valid Unicode, which JNI would alter. */
    static void requireUnicode(String text, String what) {
        encode(text, what);
    }

    private DevExchangeException invalid(String what, String value, String why) {
        String shown = Names.shown(value.replace("\0", "\\0"));
        return new DevExchangeException(Status.INVALID_TEXT, context() + what + " " + shown + " " + why);
    }

    /** The beginning of the message of a refusal. */
    private String context() {
        return "field " + Names.shown(name.replace("\0", "\\0")) + ": ";
    }

    /** Reads a field and everything below it, as {@code schema.rs} writes them, and moves the position past them. */
    static Field read(ByteBuffer in) {
        long flags = in.getLong();
        Field[] children = new Field[(int) in.getLong()];
        boolean hasDictionary = in.getLong() != 0;
        byte[] formatBytes = new byte[(int) in.getLong()];
        byte[] nameBytes = new byte[(int) in.getLong()];
        int metadataBytes = (int) in.getLong();
        in.get(formatBytes).get(nameBytes);
        String format = new String(formatBytes, StandardCharsets.UTF_8);
        String name = new String(nameBytes, StandardCharsets.UTF_8);
        Map<String, String> metadata = Map.of();
        if (metadataBytes > 0) {
            metadata = Metadata.read(in.slice(in.position(), metadataBytes).order(in.order()));
            in.position(in.position() + metadataBytes);
        }
        for (int i = 0; i < children.length; i++) {
            children[i] = read(in);
        }
        Field dictionary = hasDictionary ? read(in) : null;
        return new Field(name, format, flags, List.of(children), dictionary, metadata, Layout.of(format));
    }
}
