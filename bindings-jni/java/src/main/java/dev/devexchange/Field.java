package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * One field of a schema: a name, a type, and what is below it. Fields are values: nothing changes them, and the methods
 * {@code with…} return another one.
 *
 * <p>What a field says is checked when a {@link Schema} is made of it.
 */
public final class Field {
    /** Flag: the order of the dictionary has a meaning. */
    public static final long ORDERED = 1;
    /** Flag: values may be null. */
    public static final long NULLABLE = 2;
    /** Flag: the keys of a map are sorted. */
    public static final long KEYS_SORTED = 4;

    private final String name;
    private final String format;
    private final long flags;
    private final List<Field> children;
    private final Field dictionary;
    private final Map<String, String> metadata;
    private final Layout layout;

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
    }

    /**
     * A field that has no nulls, no children, no dictionary and no metadata.
     *
     * @param name may be empty
     * @param format Arrow format string, see {@link Format}
     * @return the field
     */
    public static Field of(String name, String format) {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(format, "format");
        return new Field(name, format, 0, List.of(), null, Map.of(), null);
    }

    /** {@return the same field, of values that may be null} */
    public Field nullable() {
        return withFlags(flags | NULLABLE);
    }

    /**
     * The same field with other flags.
     *
     * @param bits the constants of this class, or-ed; unknown ones are kept
     * @return the field
     */
    public Field withFlags(long bits) {
        return new Field(name, format, bits, children, dictionary, metadata, null);
    }

    /**
     * The same field with these children: the columns of a struct, the values of a list.
     *
     * @param fields the children, in order
     * @return the field
     */
    public Field withChildren(Field... fields) {
        return new Field(name, format, flags, List.of(fields), dictionary, metadata, null);
    }

    /**
     * The same field as a dictionary: {@link #format()} is then the type of the indices.
     *
     * @param values the field of the dictionary's values
     * @return the field
     */
    public Field withDictionary(Field values) {
        return new Field(
                name, format, flags, children, Objects.requireNonNull(values, "values"), metadata, null);
    }

    /**
     * The same field with this metadata.
     *
     * @param pairs keys and values, in the order of the map
     * @return the field
     */
    public Field withMetadata(Map<String, String> pairs) {
        Map<String, String> copy = Collections.unmodifiableMap(new LinkedHashMap<>(pairs));
        return new Field(name, format, flags, children, dictionary, copy, null);
    }

    /** {@return the name; empty if there is none} */
    public String name() {
        return name;
    }

    /** {@return the Arrow format string; of a dictionary the type of its indices} */
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

    /** {@return the columns of a struct, the values of a list; unmodifiable} */
    public List<Field> children() {
        return children;
    }

    /** {@return the field of the dictionary's values, or {@code null} if this is not a dictionary} */
    public Field dictionary() {
        return dictionary;
    }

    /**
     * The metadata. Arrow allows any bytes and keys that repeat; here bytes that are not UTF-8 are replaced and the
     * last value of a key counts. An imported schema is exported again with its bytes as they were.
     *
     * @return keys and values, in order; unmodifiable
     */
    public Map<String, String> metadata() {
        return metadata;
    }

    /** How the values lie; for fields that the native library has checked. */
    Layout layout() {
        return layout == null ? Layout.of(format) : layout;
    }

    /** {@return name and type, for example {@code "date": tdD}} */
    @Override
    public String toString() {
        StringBuilder text = new StringBuilder("\"").append(name).append("\": ").append(format);
        if (dictionary != null) {
            text.append(" -> ").append(dictionary.format);
        }
        return children.isEmpty() ? text.toString() : text.append(' ').append(children).toString();
    }

    // ---- to and from the records of C ----

    /** This field, then its children with all that is below them, then its dictionary. */
    List<Field> depthFirst() {
        List<Field> fields = new ArrayList<>();
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
        byte[] block = metadata.isEmpty() ? new byte[0] : metadataBlock();
        return List.of(text(name, "name"), text(format, "format"), block);
    }

    /** C data interface, "metadata": 32-bit counts and lengths in native order, then the bytes. */
    private byte[] metadataBlock() {
        List<byte[]> parts = new ArrayList<>();
        long size = Integer.BYTES;
        for (Map.Entry<String, String> pair : metadata.entrySet()) {
            for (String part : List.of(pair.getKey(), pair.getValue())) {
                byte[] bytes = utf8(part, "metadata");
                parts.add(bytes);
                size += Integer.BYTES + bytes.length;
            }
        }
        if (size > Integer.MAX_VALUE) {
            throw new DevExchangeException(
                    Status.INVALID_METADATA, "field \"" + name + "\": metadata of " + size + " bytes is too large");
        }
        ByteBuffer block = ByteBuffer.allocate((int) size).order(ByteOrder.nativeOrder());
        block.putInt(metadata.size());
        parts.forEach(part -> block.putInt(part.length).put(part));
        return block.array();
    }

    private byte[] text(String text, String what) {
        if (text.indexOf('\0') >= 0) {
            throw invalid(what, text, "contains a NUL");
        }
        byte[] bytes = utf8(text, what);
        return Arrays.copyOf(bytes, bytes.length + 1);
    }

    private byte[] utf8(String text, String what) {
        try {
            ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[encoded.remaining()];
            encoded.get(bytes);
            return bytes;
        } catch (CharacterCodingException e) {
            throw invalid(what, text, "is not valid Unicode");
        }
    }

    private DevExchangeException invalid(String what, String value, String why) {
        String shown = value.replace("\0", "\\0");
        return new DevExchangeException(
                Status.INVALID_TEXT,
                "field \"" + name.replace("\0", "\\0") + "\": " + what + " \"" + shown + "\" " + why);
    }

    /** Reads records that follow each other in depth-first order; moves the position of {@code records} behind them. */
    static Field read(ByteBuffer records) {
        int at = records.position();
        records.position(at + Records.FIELD.size());
        String name = Native.text(records.getLong(at + Records.FIELD.at("name")));
        String format = Native.text(records.getLong(at + Records.FIELD.at("format")));
        Map<String, String> metadata = readMetadata(records.getLong(at + Records.FIELD.at("metadata")));
        long flags = records.getLong(at + Records.FIELD.at("flags"));
        long nChildren = records.getLong(at + Records.FIELD.at("n_children"));
        boolean hasDictionary = records.getLong(at + Records.FIELD.at("has_dictionary")) != 0;
        Field[] children = new Field[(int) nChildren];
        for (int i = 0; i < children.length; i++) {
            children[i] = read(records);
        }
        Field dictionary = hasDictionary ? read(records) : null;
        return new Field(name, format, flags, List.of(children), dictionary, metadata, Layout.of(format));
    }

    private static Map<String, String> readMetadata(long address) {
        long size = Native.metadataBytes(address);
        if (size == 0) {
            return Map.of();
        }
        ByteBuffer block = HostMemory.view(address, size);
        Map<String, String> metadata = new LinkedHashMap<>();
        for (int left = block.getInt(); left > 0; left--) {
            metadata.put(readText(block), readText(block));
        }
        return Collections.unmodifiableMap(metadata);
    }

    private static String readText(ByteBuffer block) {
        byte[] bytes = new byte[block.getInt()];
        block.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
