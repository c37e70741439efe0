package dev.devexchange;

/** One way of doing an operation, with what it works on; {@link #close} takes that away. */
abstract class Bench implements AutoCloseable {
    /** Makes one, for so many columns. */
    interface SetUp {
        Bench make(int columns);
    }

    /** Adds one to a program, which puts its language before the name, and {@code /columns} behind unless it is 0. */
    interface Adder {
        void add(String operation, String implementation, int columns, SetUp setUp);
    }

    /** Does it so many times. Each has a loop of its own, which the compiler makes for it alone. */
    abstract void run(long times);

    @Override
    public void close() {}

    /** Keeps what is read from being left out. */
    static long sink;
}
