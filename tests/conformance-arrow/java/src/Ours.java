import java.nio.charset.StandardCharsets;

/** Our side of the exchanges ({@code ../../ours.h}); C structs are passed as addresses. */
final class Ours implements AutoCloseable {
    private final long it;

    /** A case in one layout. */
    Ours(String corpus, String name, String layout) {
        it = open(corpus, name, layout);
    }

    @Override
    public void close() {
        close(it);
    }

    void give(long array, long schema) throws Wrong {
        check(give(it, array, schema));
    }

    void take(long first, long count, long array, long schema) throws Wrong {
        check(take(it, first, count, array, schema));
    }

    void giveStream(int n, long stream) throws Wrong {
        check(giveStream(it, n, stream));
    }

    void takeStream(int n, long stream) throws Wrong {
        check(takeStream(it, n, stream));
    }

    private void check(boolean done) throws Wrong {
        if (!done) throw new Wrong(new String(why(it), StandardCharsets.UTF_8));
    }

    static native long outstanding();

    private static native long open(String corpus, String name, String layout);

    private static native void close(long it);

    private static native byte[] why(long it);

    private static native boolean give(long it, long array, long schema);

    private static native boolean take(long it, long first, long count, long array, long schema);

    private static native boolean giveStream(long it, int n, long stream);

    private static native boolean takeStream(long it, int n, long stream);
}
