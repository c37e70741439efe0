package dev.devexchange;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/** Finds and loads the native half of this binding. */
final class NativeLibrary {
    /**
     * System property: the path of the library, or of the directory that it is in. The JVM loads a file for one class
     * loader only, so a second loader that has these classes needs another file.
     */
    static final String PROPERTY = "devexchange.library.path";

    private static final String FILE = "libdevexchange_jni.so";

    private NativeLibrary() {}

    /** Loads the library that the property names, or else the one that the jar carries. */
    static void load() {
        String given = System.getProperty(PROPERTY);
        if (given == null) {
            loadResource();
            return;
        }
        Path path = Path.of(given).toAbsolutePath();
        String file = (Files.isDirectory(path) ? path.resolve(FILE) : path).toString();
        try {
            System.load(file);
        } catch (UnsatisfiedLinkError refusal) {
            String why = refusal.getMessage();
            // The JVM's words, which nothing but a text tells from others.
            if (why != null && why.contains("already loaded in another classloader")) {
                why = "a class loader that is not this one has the library from that file; this one needs a copy of it,"
                        + " or no such property, as the jar carries a library for each";
            }
            UnsatisfiedLinkError error = new UnsatisfiedLinkError("-D" + PROPERTY + "=" + given + ": " + why);
            error.initCause(refusal);
            throw error;
        }
    }

    /** The JVM loads files only, so the resource becomes one until it is loaded. */
    private static void loadResource() {
        String resource = "/native/" + platform() + "/" + FILE;
        try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw problem("there is no " + resource + " in the jar of devexchange", null);
            }
            Path file = Files.createTempFile("devexchange-", "-" + FILE);
            try {
                Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
                System.load(file.toString());
            } finally {
                // What is loaded stays, and a JVM that is killed deletes nothing.
                Files.delete(file);
            }
        } catch (IOException e) {
            throw problem(resource + " cannot be written to the directory for temporary files", e);
        }
    }

    private static UnsatisfiedLinkError problem(String what, Exception cause) {
        UnsatisfiedLinkError error =
                new UnsatisfiedLinkError(what + "; -D" + PROPERTY + "=PATH names a library in another place");
        error.initCause(cause);
        return error;
    }

    /** Operating system and architecture as the JVM calls them, for example {@code linux-amd64}. */
    private static String platform() {
        return (System.getProperty("os.name") + "-" + System.getProperty("os.arch")).toLowerCase(Locale.ROOT);
    }
}
