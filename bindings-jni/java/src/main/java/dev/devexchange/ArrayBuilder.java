package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * Describes an array step by step, for producers that own buffers on any device: its field, its buffers, the arrays
 * below it, and a callback for when its memory is no longer needed. Nothing is checked before {@link #build}.
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
     * Starts a nullable array with an unknown number of nulls and no buffers.
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
     * Starts an array that a field describes. The children and the dictionary still have to be added.
     *
     * @param field gives name, format, flags and metadata
     * @param length number of elements
     * @return the builder, with an unknown number of nulls and no buffers
     */
    public static ArrayBuilder of(Field field, long length) {
        ArrayBuilder builder = new ArrayBuilder(field.name(), field.format(), length).flags(field.flags());
        field.metadata().forEach(builder::metadata);
        return builder;
    }

    /**
     * Starts the root of a record batch: a struct without nulls, whose children are the columns.
     *
     * @param rows number of rows
     * @return the builder
     */
    public static ArrayBuilder batch(long rows) {
        return of("", Format.STRUCT, rows).flags(0).nullCount(0).buffer(null);
    }

    /**
     * Adds the next buffer in the order of the Arrow columnar format: validity first, except for unions.
     *
     * @param memory a direct buffer in native byte order, from its current position to its current limit; {@code null}
     *     if there is no such buffer (a validity without nulls). It stays reachable until the release; the arena of a
     *     buffer over a memory segment must stay open until then
     * @return this builder
     */
    public ArrayBuilder buffer(ByteBuffer memory) {
        node = node.withBuffer(memory);
        return this;
    }

    /**
     * Same as {@link #buffer(ByteBuffer)}, for memory at an address, on any device. Its size cannot be checked.
     *
     * @param address where the buffer is; 0 if there is no such buffer
     * @return this builder
     */
    public ArrayBuilder address(long address) {
        node = node.withAddress(address);
        return this;
    }

    /**
     * Adds, after validity and views, the data buffers of views and the buffer of their sizes, which is made here.
     *
     * @param data direct buffers in native byte order, each from its position to its limit; may be empty
     * @return this builder
     */
    public ArrayBuilder viewData(ByteBuffer... data) {
        node = node.withViewData(data);
        return this;
    }

    /**
     * Adds the last buffer of views: the sizes of data buffers that were given as addresses. It is made here, in host
     * memory, where consumers expect it for arrays on any device.
     *
     * @param bytes the size of each data buffer
     * @return this builder
     */
    public ArrayBuilder viewSizes(long... bytes) {
        node = node.withViewSizes(bytes);
        return this;
    }

    /**
     * Adds the next child.
     *
     * @param child a builder that occurs nowhere else in the tree
     * @return this builder
     */
    public ArrayBuilder child(ArrayBuilder child) {
        children.add(Objects.requireNonNull(child, "child"));
        return this;
    }

    /**
     * Sets the values of a dictionary; the array's own values are then indices.
     *
     * @param values a builder that occurs nowhere else in the tree
     * @return this builder
     */
    public ArrayBuilder dictionary(ArrayBuilder values) {
        dictionary = Objects.requireNonNull(values, "values");
        return this;
    }

    /**
     * Sets the number of elements that are null.
     *
     * @param count the number, or {@link Node#UNKNOWN}
     * @return this builder
     */
    public ArrayBuilder nullCount(long count) {
        node = node.withNullCount(count);
        return this;
    }

    /**
     * Makes the array a slice: its first element is not the first one in the buffers.
     *
     * @param elements the number of elements to skip in each buffer
     * @return this builder
     */
    public ArrayBuilder offset(long elements) {
        node = node.withOffset(elements);
        return this;
    }

    /**
     * Sets the flags, in place of {@link Field#NULLABLE}.
     *
     * @param bits the constants of {@link Field}, or-ed; unknown ones are kept
     * @return this builder
     */
    public ArrayBuilder flags(long bits) {
        flags = bits;
        return this;
    }

    /**
     * Adds a pair of metadata.
     *
     * @param key the key; replaces a pair with the same key
     * @param value may be empty
     * @return this builder
     */
    public ArrayBuilder metadata(String key, String value) {
        metadata.put(Objects.requireNonNull(key, "key"), Objects.requireNonNull(value, "value"));
        return this;
    }

    /**
     * Sets the callback for when the memory of this array, and of the arrays below it that have no callback of their
     * own, is no longer needed. It runs once, on the thread of the {@link ReleaseQueue}, when the last user of the
     * batch is gone.
     *
     * @param callback may be {@code null}
     * @return this builder
     */
    public ArrayBuilder onRelease(Runnable callback) {
        release = callback;
        return this;
    }

    /**
     * Builds the batch. If this fails, no callback ever runs, and the builder can be corrected and built again.
     *
     * @param device where the buffers are. Memory of a CUDA device counts as queued on the legacy default stream,
     *     unless {@link Batch#producedOn} says otherwise
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer, another byte order, a builder
     *     that is in the tree twice or was built already; {@link Status#DEVICE} for a {@code ByteBuffer} as memory of a
     *     CUDA device; and those of {@link Schema#of} and {@link Batch#create}
     */
    public Batch build(Device device) {
        List<ArrayBuilder> arrays = depthFirst();
        List<Node> nodes = new ArrayList<>(arrays.size());
        List<Runnable> releases = new ArrayList<>();
        for (ArrayBuilder array : arrays) {
            nodes.add(array.node);
            if (array.release != null) {
                releases.add(array.release);
            }
        }
        try (Schema schema = Schema.of(field(arrays))) {
            Batch batch = BatchMaker.make(
                    schema, device, nodes, i -> "array " + Names.shown(arrays.get(i).name), ReleaseQueue.all(releases));
            arrays.forEach(array -> array.isBuilt = true);
            return batch;
        }
    }

    /** The field of the first array. The arrays below an array come after it in the list. */
    private static Field field(List<ArrayBuilder> arrays) {
        Map<ArrayBuilder, Field> fields = new IdentityHashMap<>();
        for (int i = arrays.size() - 1; i >= 0; i--) {
            ArrayBuilder array = arrays.get(i);
            Field[] children = new Field[array.children.size()];
            Arrays.setAll(children, k -> fields.get(array.children.get(k)));
            Field dictionary = array.dictionary == null ? null : fields.get(array.dictionary);
            fields.put(array, Field.whole(array.name, array.format, array.flags, List.of(children), dictionary,
                    Metadata.copy(array.metadata)));
        }
        return fields.get(arrays.get(0));
    }

    /** Lists this array, then its children with everything below them, then its dictionary. */
    private List<ArrayBuilder> depthFirst() {
        List<ArrayBuilder> arrays = new ArrayList<>();
        Set<ArrayBuilder> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        List<ArrayBuilder> waiting = new ArrayList<>(List.of(this));
        while (!waiting.isEmpty()) {
            ArrayBuilder array = waiting.remove(waiting.size() - 1);
            if (array.isBuilt) {
                throw new DevExchangeException(
                        Status.INVALID_ARGUMENT, "array " + Names.shown(array.name) + " was built already");
            }
            if (!seen.add(array)) {
                throw new DevExchangeException(
                        Status.INVALID_ARGUMENT, "array " + Names.shown(array.name) + " is in the tree twice");
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
