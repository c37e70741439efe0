package dev.devexchange;

/** An implementation of an operation, with its state, which {@link #close} releases. */
abstract class Bench implements AutoCloseable {
    /** Makes a bench for a number of columns. */
    interface SetUp {
        Bench make(int columns);
    }

    /** Adds a bench, whose name is the language, the operation and, unless it is 0, the number of columns. */
    interface Adder {
        void add(String operation, String implementation, int columns, SetUp setUp);
    }

    /** Repeats the operation. Each bench has its own loop, so that the compiler optimizes it separately. */
    abstract void run(long times);

    @Override
    public void close() {}

    /** The sum of what is read, so that the compiler keeps the reads. */
    static long sink;
}
