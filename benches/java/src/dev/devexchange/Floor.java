package dev.devexchange;

/** The native methods of the floor: {@code benches/java/floor.c}. */
final class Floor {
    private Floor() {}

    static native long allocations();

    static native long nothing();

    static native void eightLongs(long out);

    static native long producer();

    static native void endProducer(long producer);

    static native long exportTensor(long producer);

    static native long importTensor(long handed);

    static native void releaseTensor(long seen);

    static native long table(int columns);

    static native void endTable(long table);

    static native void exportBatch(long table, long array, long schema);

    static native void importBatch(long array, long schema, long out);

    static native void readBatch(long out, int columns);

    static native void releaseBatch(long out);
}
