package dev.devexchange;

/**
 * The library itself: its version and its ledger.
 *
 * <p>The native library comes out of the jar, through a file in the directory for temporary files, which is deleted
 * when it is loaded; where programs may not be run from there ({@code noexec}), {@code java.io.tmpdir} names another
 * directory. The system property {@code devexchange.library.path} names a library in another place instead: the file,
 * or its directory; it has to be of the version of these classes. The JVM loads a file for one class loader only; so
 * where several loaders have these classes, a file that is named serves the first of them, and the others get an {@code
 * UnsatisfiedLinkError}.
 */
public final class DevExchange {
    private DevExchange() {}

    /**
     * The version of the native library, for example {@code 0.1.0}.
     *
     * @return major, minor and patch number
     */
    public static String version() {
        return Native.version();
    }

    /**
     * How this JVM calls the native library where it does so often: {@code ffm}, its foreign function interface, on
     * JDK 22 and newer, or else {@code jni}. The system property {@code devexchange.backend} asks for one of the two,
     * and is read once. A jar that this one is packed into has to be {@code Multi-Release}, too, for {@code ffm}.
     *
     * @return {@code jni} or {@code ffm}
     */
    public static String backend() {
        return Calls.BACKEND.toString();
    }

    /**
     * What this library has handed out and taken in since it was loaded, and what of it is not released yet. Each count
     * is exact; counts that other threads change meanwhile may be from slightly different moments.
     *
     * @return the ledger as it stands
     */
    public static Ledger ledger() {
        Scratch scratch = Scratch.get();
        Calls.ledgerRead(scratch.address);
        return Ledger.read(scratch.buffer);
    }

    /**
     * How many things are not released yet, over all kinds of the {@link #ledger()}.
     *
     * @return 0 when everything was given back
     */
    public static long outstanding() {
        return Calls.ledgerOutstanding();
    }

    /**
     * How many releases wait for work that is queued on a device ({@link Tensor#usedOn}).
     *
     * @return 0 when nothing waits
     */
    public static long releasesWaiting() {
        return Native.releasesWaiting();
    }

    /**
     * How many releases were never called, because the driver could not say whether the work that used the memory is
     * done (freeing it would be worse); and how much memory, and how many events and streams, the driver did not take
     * back.
     *
     * @return the number since the library was loaded
     */
    public static long releasesLost() {
        return Native.releasesLost();
    }
}
