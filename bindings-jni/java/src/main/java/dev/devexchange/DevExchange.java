package dev.devexchange;

/**
 * The library itself: its version and its ledger.
 *
 * <p>The native library is unpacked from the jar to a file in the directory for temporary files; the file is deleted
 * once it is loaded. If programs may not run from there ({@code noexec}), set {@code java.io.tmpdir} to another
 * directory. The system property {@code devexchange.library.path} names a library in another place instead: the file,
 * or its directory. That library must have the same version as these classes. The JVM loads a file for only one class
 * loader: if several class loaders have these classes, the named file serves the first of them, and the others get an
 * {@code UnsatisfiedLinkError}.
 *
 * <p>A tool that puts this jar into a larger one must not rename the package ("relocation"), because the functions of
 * the native library are named after it.
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
     * The interface through which this JVM makes frequent calls to the native library: {@code ffm}, the foreign
     * function interface, on JDK 22 and newer; otherwise {@code jni}. The system property {@code devexchange.backend}
     * chooses one of the two, and is read once. If this jar is repackaged into another one, that jar must be {@code
     * Multi-Release}, too, for {@code ffm}.
     *
     * @return {@code jni} or {@code ffm}
     */
    public static String backend() {
        return Calls.BACKEND.toString();
    }

    /**
     * Counts what this library has handed out and taken in since it was loaded, and how much of it is not released yet.
     * Each count is exact; if other threads change counts meanwhile, the counts may be from slightly different moments.
     *
     * @return the ledger as it stands
     */
    public static Ledger ledger() {
        Scratch scratch = Scratch.get();
        Calls.ledgerRead(scratch.address);
        return Ledger.read(scratch.buffer);
    }

    /**
     * The number of releases that are still to come, over all kinds of the {@link #ledger()}: of structs, streams and
     * offers that consumers hold, of those taken from producers, of release callbacks, and of memory that the library
     * allocated. Objects are not counted by themselves: not a second one of the same thing ({@code share}), a schema
     * that was not imported, a manager of the library, an asynchronous reader whose handler nobody has, or a server or
     * client.
     *
     * @return 0 when everything was released
     */
    public static long outstanding() {
        return Calls.ledgerOutstanding();
    }

    /**
     * The number of releases that wait for work queued on a device ({@link Tensor#usedOn}).
     *
     * @return 0 when nothing waits
     */
    public static long releasesWaiting() {
        return Native.releasesWaiting();
    }

    /**
     * The number of resources that were lost: releases that were never called because the driver could not say whether
     * the work that used the memory is done (freeing the memory would be worse), and memory, events and streams that
     * the driver did not take back.
     *
     * @return the number lost since the library was loaded
     */
    public static long releasesLost() {
        return Native.releasesLost();
    }
}
