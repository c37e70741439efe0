package dev.devexchange;

import static java.nio.file.attribute.PosixFilePermission.OWNER_READ;
import static java.nio.file.attribute.PosixFilePermission.OWNER_WRITE;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.EnumSet;
import java.util.Locale;
import java.util.Set;

/** Finds and loads the native half of this binding. */
final class NativeLibrary {
    /**
     * The system property for the path of the library, or of its directory. The JVM loads a file for only one class
     * loader, so a second loader that has these classes needs another file.
     */
    static final String PROPERTY = "devexchange.library.path";

    /**
     * The version of both halves. The interface between them is private, so only halves of the same version fit
     * together.
     */
    static final String VERSION = "0.1.0";

    private static final String FILE = "libdevexchange_jni.so";

    private static final FileAttribute<Set<PosixFilePermission>> OWN =
            PosixFilePermissions.asFileAttribute(EnumSet.of(OWNER_READ, OWNER_WRITE));

    private NativeLibrary() {}

    /** Loads the library that the property names, or else the one that the jar carries. */
    static void load() {
        String given = System.getProperty(PROPERTY);
        try {
            if (given == null) {
                loadResource();
            } else {
                loadGiven(given);
            }
        } catch (IllegalCallerException denied) {
            Module caller = NativeLibrary.class.getModule();
            String name = caller.isNamed() ? caller.getName() : "ALL-UNNAMED";
            throw error("this JVM denies native access; --enable-native-access=" + name + " allows it", denied);
        }
    }

    private static void loadGiven(String given) {
        Path path = Path.of(given).toAbsolutePath();
        String file = (Files.isDirectory(path) ? path.resolve(FILE) : path).toString();
        String said = "-D" + PROPERTY + "=" + given + ": ";
        try {
            System.load(file);
        } catch (UnsatisfiedLinkError refusal) {
            String why = refusal.getMessage();
            // Only the JVM's text tells this reason from others.
            if (why != null && why.contains("already loaded in another classloader")) {
                why = "another class loader has loaded the library from that file; this one needs a copy of the file,"
                        + " or no such property, because the jar unpacks a library for each class loader";
            }
            throw error(said + why, refusal);
        }
        check(said + file);
    }

    /** Refuses the library that was just loaded if it does not belong to these classes; {@code library} says which. */
    private static void check(String library) {
        String version;
        try {
            version = Native.version();
        } catch (UnsatisfiedLinkError refusal) {
            // The names of the functions contain the package.
            throw error(
                    library + " has no functions for the class " + Native.class.getName() + ": either it is not the"
                            + " native library of this binding, " + FILE + ", or the package was renamed (relocated),"
                            + " which must not be done",
                    refusal);
        }
        if (!version.equals(VERSION)) {
            throw error(library + " is of version " + version + ", and the classes are of version " + VERSION, null);
        }
    }

    /**
     * Loads the library from the jar. The JVM loads only files, so the resource is written to a file until it is
     * loaded.
     */
    private static void loadResource() {
        String resource = "/native/" + platform() + "/" + FILE;
        try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw problem("there is no " + resource + " in the jar of devexchange", null);
            }
            Path file = newFile();
            try {
                // Written into this very file, which only its user may write: a new file in its place would not have
                // these permissions. Not through a channel, which takes direct memory: if there is none just now, no
                // class of this library could be used any more.
                try (OutputStream out = new FileOutputStream(file.toFile())) {
                    library.transferTo(out);
                }
                System.load(file.toString());
            } catch (UnsatisfiedLinkError refusal) {
                throw problem(
                        resource + " cannot be loaded from the directory for temporary files (" + refusal.getMessage()
                                + "); where that is mounted noexec, -Djava.io.tmpdir=PATH names another one",
                        refusal);
            } finally {
                // A loaded library stays. Deleted now, because a JVM that is killed deletes nothing.
                Files.deleteIfExists(file);
            }
        } catch (IOException e) {
            throw problem(resource + " cannot be written to the directory for temporary files (" + e + ")", e);
        }
        // A class loader can take the classes from one jar and the resource from another.
        check(String.valueOf(NativeLibrary.class.getResource(resource)));
    }

    /**
     * Makes a file that only its user may read and write, as {@link Files#createTempFile} does, but without random
     * numbers that nobody can guess, which take a new JVM tens of milliseconds: a file that is there already is never
     * used.
     */
    private static Path newFile() throws IOException {
        // The JVM loads only by absolute paths, and java.io.tmpdir may be relative.
        Path directory = Path.of(System.getProperty("java.io.tmpdir")).toAbsolutePath();
        while (true) {
            Path file = directory.resolve("devexchange-" + System.nanoTime() + "-" + FILE);
            try {
                return Files.createFile(file, OWN);
            } catch (FileAlreadyExistsException other) {
                // Of another JVM; the time goes on.
            }
        }
    }

    private static UnsatisfiedLinkError problem(String what, Throwable cause) {
        return error(what + "; -D" + PROPERTY + "=PATH names a library in another place", cause);
    }

    private static UnsatisfiedLinkError error(String text, Throwable cause) {
        UnsatisfiedLinkError error = new UnsatisfiedLinkError(text);
        error.initCause(cause);
        return error;
    }

    /** Operating system and architecture, as the JVM names them, for example {@code linux-amd64}. */
    private static String platform() {
        return (System.getProperty("os.name") + "-" + System.getProperty("os.arch")).toLowerCase(Locale.ROOT);
    }
}
