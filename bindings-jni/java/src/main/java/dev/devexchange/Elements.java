package dev.devexchange;

import java.util.Arrays;

/** Reads single elements of a tensor in host memory. The caller must keep the memory alive. */
final class Elements {
    private final Tensor tensor;
    private final Description of;

    /** The element type; null for a type that Java cannot read. */
    private final Element element;

    private volatile HostMemory memory;

    Elements(Tensor tensor, Description of) {
        this.tensor = tensor;
        this.of = of;
        this.element = Element.of(of.dtype());
    }

    double getDouble(long[] index) {
        if (element == null || !element.fitsDouble()) {
            throw mismatch("a double");
        }
        long at = place(index);
        return element.readDouble(memory(), at);
    }

    long getLong(long[] index) {
        if (element == null || !element.fitsLong()) {
            throw mismatch("a long");
        }
        long at = place(index);
        long read = element.readLong(memory(), at);
        if (element.isTooLarge(read)) {
            throw new DevExchangeException(Status.OUT_OF_RANGE, Element.tooLarge(read));
        }
        return read;
    }

    /** The number of bytes from the lowest element to the element at an index. */
    private long place(long[] index) {
        long[] shape = of.shape();
        if (index.length != shape.length) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT,
                    "there are " + index.length + " indices for " + shape.length + " dimensions");
        }
        long distance = 0;
        for (int i = 0; i < index.length; i++) {
            if (index[i] < 0 || index[i] >= shape[i]) {
                throw new DevExchangeException(
                        Status.OUT_OF_RANGE, "index[" + i + "] is " + index[i] + ": the extent is " + shape[i]);
            }
            distance += index[i] * of.strides()[i];
        }
        return distance * element.width - of.lowest();
    }

    private HostMemory memory() {
        if (memory == null || !of.ready()) {
            tensor.requireHost(of);
        }
        if (memory == null) {
            long bytes = of.end() - of.lowest();
            if (bytes < 0 || bytes > HostMemory.MOST_BYTES) {
                throw new DevExchangeException(
                        Status.INVALID_SHAPE,
                        "strides are " + Arrays.toString(of.strides()) + " of shape " + Arrays.toString(of.shape())
                                + ": the elements would lie from byte " + of.lowest() + " to byte " + of.end());
            }
            memory = HostMemory.of(of.address() + of.lowest(), bytes);
        }
        return memory;
    }

    private DevExchangeException mismatch(String wanted) {
        return new DevExchangeException(Status.MISMATCH, "dtype is " + of.dtype() + ": not " + wanted);
    }
}
