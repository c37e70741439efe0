package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

@ExtendWith(Check.class)
class DevExchangeTest {
    @Test
    void theNativeHalfHasTheVersionOfTheJar() {
        assertEquals(System.getProperty("devexchange.version"), DevExchange.version());
        assertEquals(System.getProperty("devexchange.version"), NativeLibrary.VERSION);
    }

    @Test
    void theLicencesAreInTheJar() {
        for (String name : new String[] {"LICENSE-MIT", "LICENSE-APACHE", "LICENSE-THIRD-PARTY"}) {
            assertNotNull(DevExchange.class.getResource("/META-INF/" + name), name);
        }
    }

    @Test
    void aPanicIsAnExceptionAndNotTheEnd() {
        for (String text : new String[] {"something that must not be", "\ud83c\udf27 in a text"}) {
            assertEquals(text, refused(Status.PANIC, () -> Native.panic(text)).getMessage());
        }
    }

    @Test
    void anotherClassLoaderHasALibraryOfItsOwn() throws ReflectiveOperationException, IOException {
        try (URLClassLoader loader = new URLClassLoader(classes(), ClassLoader.getPlatformClassLoader())) {
            Class<?> tensor = Class.forName("dev.devexchange.Tensor", true, loader);
            assertNotSame(Tensor.class, tensor);
            Method importDlpack = tensor.getMethod("importDlpack", long.class);
            Throwable refusal =
                    assertThrows(InvocationTargetException.class, () -> importDlpack.invoke(null, 0L)).getCause();
            // Not the class of this thread's loader, which code of the other loader could not catch.
            assertSame(loader, refusal.getClass().getClassLoader());
            assertEquals("tensor is NULL", refusal.getMessage());
            try (Tensor ours = Tensor.create(Direct.bytes(7), DType.INT8, new long[] {1}, null)) {
                Object theirs = importDlpack.invoke(null, ours.exportShare());
                assertEquals(7L, tensor.getMethod("getLong", long[].class).invoke(theirs, new long[] {0}));
                tensor.getMethod("close").invoke(theirs);
            }
        }
    }

    /** The JVM loads a file for only one class loader. */
    @Test
    void aFileIsTheLibraryOfOneClassLoader(@TempDir Path directory) throws ReflectiveOperationException, IOException {
        Path library = directory.resolve("ours.so");
        Jvm.copyLibrary(library);
        System.setProperty("devexchange.library.path", library.toString());
        try (URLClassLoader first = new URLClassLoader(classes(), ClassLoader.getPlatformClassLoader());
                URLClassLoader second = new URLClassLoader(classes(), ClassLoader.getPlatformClassLoader())) {
            assertEquals(DevExchange.version(), version(first).invoke(null));
            UnsatisfiedLinkError refusal = refusal(second);
            String text = refusal.getMessage();
            assertTrue(text.startsWith("-Ddevexchange.library.path=" + library + ": "), text);
            assertTrue(text.contains("another class loader has loaded the library from that file"), text);
            assertInstanceOf(UnsatisfiedLinkError.class, refusal.getCause());
        } finally {
            System.clearProperty("devexchange.library.path");
        }
    }

    /** Only halves of the same version fit together; calls between others are undefined. */
    @Test
    void aLibraryThatIsNotOfTheseClassesIsRefused(@TempDir Path directory) throws Exception {
        Path other = Cc.shared("other_version.c", directory);
        assertEquals(
                "-Ddevexchange.library.path=" + other + ": " + other
                        + " is of version 99.0.0, and the classes are of version " + DevExchange.version(),
                refusalOf(other));
        Path none = Cc.shared("streams.c", directory);
        assertEquals(
                "-Ddevexchange.library.path=" + none + ": " + none + hasNoFunctionsFor("dev.devexchange.Native"),
                refusalOf(none));
    }

    private static String hasNoFunctionsFor(String name) {
        return " has no functions for the class " + name + ": either it is not the native library of this binding,"
                + " libdevexchange_jni.so, or the package was renamed (relocated), which must not be done";
    }

    /** As tools do that put the classes of several jars into one. */
    @Test
    void classesInAnotherPackageSayWhatIsWrong() throws ReflectiveOperationException, IOException {
        String renamed = "dev.relocatedxx.";
        try (URLClassLoader loader = new URLClassLoader(classes(), ClassLoader.getPlatformClassLoader()) {
            @Override
            protected Class<?> findClass(String name) throws ClassNotFoundException {
                String file = name.replace(renamed, "dev.devexchange.").replace('.', '/') + ".class";
                try (InputStream bytes = getResourceAsStream(file)) {
                    String text = new String(bytes.readAllBytes(), StandardCharsets.ISO_8859_1)
                            .replace("dev/devexchange/", renamed.replace('.', '/'));
                    byte[] all = text.getBytes(StandardCharsets.ISO_8859_1);
                    return defineClass(name, all, 0, all.length);
                } catch (IOException e) {
                    throw new ClassNotFoundException(name, e);
                }
            }
        }) {
            Method version = Class.forName(renamed + "DevExchange", true, loader).getMethod("version");
            String text = refusal(version).getMessage();
            assertTrue(text.endsWith(".so" + hasNoFunctionsFor(renamed + "Native")), text);
        }
    }

    private static String refusalOf(Path library) throws Exception {
        System.setProperty("devexchange.library.path", library.toString());
        try (URLClassLoader loader = new URLClassLoader(classes(), ClassLoader.getPlatformClassLoader())) {
            return refusal(loader).getMessage();
        } finally {
            System.clearProperty("devexchange.library.path");
        }
    }

    /** A class loader can take the classes from one jar and resources from another, of another version. */
    @Test
    void aLibraryFromTheJarOfAnotherVersionIsRefused(@TempDir Path directory) throws Exception {
        URL other = Cc.shared("other_version.c", directory).toUri().toURL();
        try (URLClassLoader loader = withLibrary(other)) {
            assertEquals(
                    other + " is of version 99.0.0, and the classes are of version " + DevExchange.version(),
                    refusal(loader).getMessage());
        }
    }

    @Test
    void aLibraryThatTheSystemDoesNotLoadSaysWhatToDo(@TempDir Path directory) throws Exception {
        Path needed = Cc.shared("streams.c", directory);
        Path incomplete = Cc.shared("other_version.c", directory, "-Wl,--no-as-needed", needed.toString());
        Files.delete(needed);
        try (URLClassLoader loader = withLibrary(incomplete.toUri().toURL())) {
            String text = refusal(loader).getMessage();
            assertTrue(text.contains(" cannot be loaded from the directory for temporary files (/"), text);
            assertTrue(text.contains("; where that is mounted noexec, -Djava.io.tmpdir=PATH names another one"), text);
            assertTrue(text.endsWith("; -Ddevexchange.library.path=PATH names a library in another place"), text);
        }
    }

    /** Our classes, with another native library. */
    private static URLClassLoader withLibrary(URL library) {
        return new URLClassLoader(classes(), ClassLoader.getPlatformClassLoader()) {
            @Override
            public URL findResource(String name) {
                return name.endsWith(".so") ? library : super.findResource(name);
            }
        };
    }

    @Test
    void theDirectoryForTemporaryFilesMayBeARelativePath() throws IOException, InterruptedException {
        Jvm.End end = Jvm.run(List.of("-Djava.io.tmpdir=target"), Map.of(), Version.class);
        assertEquals(new Jvm.End(0, DevExchange.version() + System.lineSeparator()), end);
    }

    /** Since JDK 24 the JVM can be told to load no library for modules that were not allowed to use native code. */
    @Test
    void aJvmThatDeniesNativeAccessSaysHowToAllowIt() throws IOException, InterruptedException {
        if (Runtime.version().feature() < 24) {
            return;
        }
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String classes = Jvm.place(DevExchange.class) + File.pathSeparator + Jvm.place(Version.class);
        Jvm.End end = Jvm.end(new ProcessBuilder(
                java, "--illegal-native-access=deny", "-cp", classes, Version.class.getName()));
        assertEquals(1, end.status(), end.output());
        String expected = "this JVM denies native access; --enable-native-access=ALL-UNNAMED allows it";
        assertTrue(end.output().contains("UnsatisfiedLinkError: " + expected), end.output());
    }

    /** The program of another JVM. */
    static final class Version {
        private Version() {}

        public static void main(String[] arguments) {
            System.out.println(DevExchange.version());
        }
    }

    /** Whoever can write the file that the JVM is about to load controls the JVM. */
    @Test
    void theLibraryIsUnpackedForItsUserOnly(@TempDir Path directory) throws IOException, InterruptedException {
        Jvm.End end = Jvm.run(List.of("-Djava.io.tmpdir=" + directory), Map.of(), Unpacked.class);
        assertEquals(new Jvm.End(0, "rw-------" + System.lineSeparator()), end);
    }

    /** Prints the permissions of the file when the whole library has been read. */
    static final class Unpacked {
        private Unpacked() {}

        public static void main(String[] arguments) throws Exception {
            try (URLClassLoader loader = new URLClassLoader(classes(), ClassLoader.getPlatformClassLoader()) {
                @Override
                public InputStream getResourceAsStream(String name) {
                    InputStream bytes = super.getResourceAsStream(name);
                    return name.endsWith(".so") ? new Watched(bytes) : bytes;
                }
            }) {
                version(loader).invoke(null);
            }
        }

        private static final class Watched extends FilterInputStream {
            private Watched(InputStream bytes) {
                super(bytes);
            }

            @Override
            public int read(byte[] into, int offset, int length) throws IOException {
                int count = super.read(into, offset, length);
                if (count < 0) {
                    Path directory = Path.of(System.getProperty("java.io.tmpdir"));
                    try (DirectoryStream<Path> files = Files.newDirectoryStream(directory)) {
                        for (Path file : files) {
                            System.out.println(PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
                        }
                    }
                }
                return count;
            }
        }
    }

    private static URL[] classes() {
        return new URL[] {DevExchange.class.getProtectionDomain().getCodeSource().getLocation()};
    }

    /** The reason why the classes of a loader have no library. */
    private static UnsatisfiedLinkError refusal(ClassLoader loader) throws ReflectiveOperationException {
        return refusal(version(loader));
    }

    private static UnsatisfiedLinkError refusal(Method version) {
        Throwable refusal = assertThrows(InvocationTargetException.class, () -> version.invoke(null)).getCause();
        return assertInstanceOf(UnsatisfiedLinkError.class, refusal);
    }

    private static Method version(ClassLoader loader) throws ReflectiveOperationException {
        return Class.forName("dev.devexchange.DevExchange", true, loader).getMethod("version");
    }

    @Test
    void anExceptionShowsItsStatus() {
        DevExchangeException e = refused(Status.NULL_ARGUMENT, () -> Tensor.importDlpack(0));
        assertEquals("dev.devexchange.DevExchangeException: DEVX_NULL_ARGUMENT: tensor is NULL", e.toString());
        DevExchangeException driver = new DevExchangeException(Status.DRIVER, 700, "a launch failed");
        assertEquals(700, driver.driverCode());
        assertEquals("DEVX_DRIVER", driver.statusName());
    }

    /** For example, programs that are developed on another system. */
    @Test
    void valuesAndExceptionsAreShownWithoutTheNativeLibrary() throws IOException, InterruptedException {
        Jvm.End end = Jvm.run(List.of("-Ddevexchange.library.path=nowhere"), Map.of(), Shown.class);
        String expected = String.join(
                System.lineSeparator(),
                "dtype(code 2, 32 bits, 1 lanes)",
                "MemoryRequest[device=device type 1:0, bytes=8, stream=-1, hostFlags=0]",
                "\"n\": i",
                "dev.devexchange.DevExchangeException: status 6: dtype.bits is 256: it must be between 0 and 255",
                "");
        assertEquals(new Jvm.End(0, expected), end);
    }

    static final class Shown {
        private Shown() {}

        public static void main(String[] arguments) {
            System.out.println(DType.FLOAT32);
            System.out.println(MemoryRequest.of(Device.CPU, 8));
            System.out.println(Field.of("n", Format.INT32));
            try {
                System.out.println(new DType(DType.CODE_INT, 256, 1));
            } catch (DevExchangeException refusal) {
                System.out.println(refusal);
            }
        }
    }

    @Test
    void theLedgerCounts() {
        Ledger before = DevExchange.ledger();
        try (Tensor tensor = Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, null);
                Tensor imported = Tensor.importDlpack(tensor.exportShare())) {
            Ledger during = DevExchange.ledger();
            assertEquals(before.tensorExports().total() + 1, during.tensorExports().total());
            assertEquals(before.tensorExports().live() + 1, during.tensorExports().live());
            assertEquals(before.tensorImports().live() + 1, during.tensorImports().live());
            assertEquals(before.owners().live() + 1, during.owners().live());
            assertEquals(before.batchExports().live(), during.batchExports().live());
            assertEquals(3, Check.outstanding());
            assertTrue(imported.elements() == 1);
        }
        assertEquals(0, Check.outstanding() - DevExchange.ledger().owners().live() + before.owners().live());
    }
}
