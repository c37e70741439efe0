package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * An array that is being described, for producers who own buffers on any device: its field, its buffers, what is below
 * it, and what is run when its memory is not needed any more. Nothing is checked before {@link #build}.
 *
 * <pre>{@code
 * Batch batch = ArrayBuilder.batch(3)
 *         .child(ArrayBuilder.of("n", Format.INT32, 3).buffer(null).buffer(numbers))
 *         .child(ArrayBuilder.of("x", Format.FLOAT64, 3).buffer(null).buffer(values).onRelease(pool::giveBack))
 *         .build(Device.CPU);
 * }</pre>
 *
 * <p>The methods change the builder and return it. A builder is for one thread, and builds once.
 */
public final class ArrayBuilder {
    private final String name;
    private final String format;
    private final Map<String, String> metadata = new LinkedHashMap<>();
    private final List<ArrayBuilder> children = new ArrayList<>();
    private long flags = Field.NULLABLE;
    private Node node;
    private ArrayBuilder dictionary;
    private Runnable release;
    private boolean isBuilt;

    private ArrayBuilder(String name, String format, long length) {
        this.name = Objects.requireNonNull(name, "name");
        this.format = Objects.requireNonNull(format, "format");
        this.node = Node.of(length);
    }

    /**
     * A nullable array, whose number of nulls is not known, without buffers.
     *
     * @param name may be empty
     * @param format Arrow format string, see {@link Format}
     * @param length number of elements
     * @return the builder
     */
    public static ArrayBuilder of(String name, String format, long length) {
        return new ArrayBuilder(name, format, length);
    }

    /**
     * An array as a field describes it, with the children and the dictionary of the field still to be added.
     *
     * @param field name, format, flags and metadata are its own
     * @param length number of elements
     * @return the builder, whose number of nulls is not known, without buffers
     */
    public static ArrayBuilder of(Field field, long length) {
        ArrayBuilder builder = new ArrayBuilder(field.name(), field.format(), length).flags(field.flags());
        field.metadata().forEach(builder::metadata);
        return builder;
    }

    /**
     * The root of a record batch: a struct without nulls, whose children are the columns.
     *
     * @param rows number of rows
     * @return the builder
     */
    public static ArrayBuilder batch(long rows) {
        return of("", Format.STRUCT, rows).flags(0).nullCount(0).buffer(null);
    }

    /**
     * The next buffer in the order of the Arrow columnar format: validity first, except of unions.
     *
     * @param memory a direct buffer in native byte order, from its position to its limit, which stays reachable until
     *     the release, as they are now; {@code null} if there is none, as a validity without nulls. The arena of a buffer
     *     of a memory segment stays open until then
     * @return this builder
     */
    public ArrayBuilder buffer(ByteBuffer memory) {
        node = node.withBuffer(memory);
        return this;
    }

    /**
     * As {@link #buffer(ByteBuffer)}, for memory at an address, of whatever device. How long it is cannot be checked.
     *
     * @param address where the buffer is; 0 if there is none
     * @return this builder
     */
    public ArrayBuilder address(long address) {
        node = node.withAddress(address);
        return this;
    }

    /**
     * The data buffers of views, and the buffer of their sizes, which is made here: after validity and views.
     *
     * @param data direct buffers in native byte order, each from its position to its limit; there may be none
     * @return this builder
     */
    public ArrayBuilder viewData(ByteBuffer... data) {
        node = node.withViewData(data);
        return this;
    }

    /**
     * The sizes of data buffers that were given as addresses: the last buffer of views. It is made here, in host
     * memory, as consumers expect it of arrays on any device.
     *
     * @param bytes of each data buffer
     * @return this builder
     */
    public ArrayBuilder viewSizes(long... bytes) {
        node = node.withViewSizes(bytes);
        return this;
    }

    /**
     * The next child.
     *
     * @param child a builder that is nowhere else in the tree
     * @return this builder
     */
    public ArrayBuilder child(ArrayBuilder child) {
        children.add(Objects.requireNonNull(child, "child"));
        return this;
    }

    /**
     * The values of a dictionary; the array's own values are indices.
     *
     * @param values a builder that is nowhere else in the tree
     * @return this builder
     */
    public ArrayBuilder dictionary(ArrayBuilder values) {
        dictionary = Objects.requireNonNull(values, "values");
        return this;
    }

    /**
     * How many elements are null.
     *
     * @param count the number, or {@link Node#UNKNOWN}
     * @return this builder
     */
    public ArrayBuilder nullCount(long count) {
        node = node.withNullCount(count);
        return this;
    }

    /**
     * A slice: the first element is not the first one in the buffers.
     *
     * @param elements to skip in each buffer
     * @return this builder
     */
    public ArrayBuilder offset(long elements) {
        node = node.withOffset(elements);
        return this;
    }

    /**
     * Flags in place of {@link Field#NULLABLE}.
     *
     * @param bits the constants of {@link Field}, or-ed; unknown ones are kept
     * @return this builder
     */
    public ArrayBuilder flags(long bits) {
        flags = bits;
        return this;
    }

    /**
     * One more pair of metadata.
     *
     * @param key a pair with the same key is replaced
     * @param value may be empty
     * @return this builder
     */
    public ArrayBuilder metadata(String key, String value) {
        metadata.put(Objects.requireNonNull(key, "key"), Objects.requireNonNull(value, "value"));
        return this;
    }

    /**
     * What is run when the memory of this array is not needed any more, and that of what is below it unless it has
     * callbacks of its own: once, on the thread of the {@link ReleaseQueue}, when the last user of the batch is gone.
     *
     * @param callback may be {@code null}
     * @return this builder
     */
    public ArrayBuilder onRelease(Runnable callback) {
        release = callback;
        return this;
    }

    /**
     * The batch. If this fails, no callback is ever run, and the builder can be corrected and built again.
     *
     * @param device where the buffers are. Of memory of a CUDA device it is not known when it may be touched, until
     *     {@link Batch#producedOn} says so: it counts as queued on the legacy default stream
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer, another byte order, a builder
     *     that is in the tree twice or was built already; {@link Status#DEVICE} for a {@code ByteBuffer} as memory of a
     *     CUDA device; and as {@link Schema#of} and {@link Batch#create}
     */
    public Batch build(Device device) {
        List<ArrayBuilder> arrays = depthFirst();
        List<Node> nodes = arrays.stream().map(array -> array.node).toList();
        List<Runnable> releases =
                arrays.stream().map(array -> array.release).filter(Objects::nonNull).toList();
        try (Schema schema = Schema.of(field(arrays))) {
            Batch batch = BatchMaker.make(
                    schema, device, nodes, i -> "array \"" + arrays.get(i).name + "\"", ReleaseQueue.all(releases));
            arrays.forEach(array -> array.isBuilt = true);
            return batch;
        }
    }

    /** The field of the first array; what is below an array comes after it. */
    private static Field field(List<ArrayBuilder> arrays) {
        Map<ArrayBuilder, Field> fields = new IdentityHashMap<>();
        for (int i = arrays.size() - 1; i >= 0; i--) {
            ArrayBuilder array = arrays.get(i);
            Field field = Field.of(array.name, array.format)
                    .withFlags(array.flags)
                    .withMetadata(array.metadata)
                    .withChildren(array.children.stream().map(fields::get).toArray(Field[]::new));
            fields.put(array, array.dictionary == null ? field : field.withDictionary(fields.get(array.dictionary)));
        }
        return fields.get(arrays.get(0));
    }

    /** This array, then its children with all that is below them, then its dictionary. */
    private List<ArrayBuilder> depthFirst() {
        List<ArrayBuilder> arrays = new ArrayList<>();
        Set<ArrayBuilder> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        List<ArrayBuilder> waiting = new ArrayList<>(List.of(this));
        while (!waiting.isEmpty()) {
            ArrayBuilder array = waiting.remove(waiting.size() - 1);
            if (array.isBuilt) {
                throw new DevExchangeException(
                        Status.INVALID_ARGUMENT, "array \"" + array.name + "\" was built already");
            }
            if (!seen.add(array)) {
                throw new DevExchangeException(
                        Status.INVALID_ARGUMENT, "array \"" + array.name + "\" is in the tree twice");
            }
            arrays.add(array);
            if (array.dictionary != null) {
                waiting.add(array.dictionary);
            }
            for (int i = array.children.size() - 1; i >= 0; i--) {
                waiting.add(array.children.get(i));
            }
        }
        return arrays;
    }

    /** {@return name and format} */
    @Override
    public String toString() {
        return "ArrayBuilder (\"" + name + "\": " + format + ")";
    }
}
