package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

@ExtendWith(Check.class)
class DevExchangeTest {
    @Test
    void theNativeHalfHasTheVersionOfTheJar() {
        assertEquals(System.getProperty("devexchange.version"), DevExchange.version());
    }

    @Test
    void theLicencesAreInTheJar() {
        for (String name : new String[] {"LICENSE-MIT", "LICENSE-APACHE"}) {
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
        URL[] classes = {DevExchange.class.getProtectionDomain().getCodeSource().getLocation()};
        try (URLClassLoader loader = new URLClassLoader(classes, ClassLoader.getPlatformClassLoader())) {
            Class<?> tensor = Class.forName("dev.devexchange.Tensor", true, loader);
            assertNotSame(Tensor.class, tensor);
            Method importDlpack = tensor.getMethod("importDlpack", long.class);
            Throwable refusal =
                    assertThrows(InvocationTargetException.class, () -> importDlpack.invoke(null, 0L)).getCause();
            // Not that of this thread's loader, which nobody over there could catch.
            assertSame(loader, refusal.getClass().getClassLoader());
            assertEquals("tensor is NULL", refusal.getMessage());
            try (Tensor ours = Tensor.create(Direct.bytes(7), DType.INT8, new long[] {1}, null)) {
                Object theirs = importDlpack.invoke(null, ours.exportShare());
                assertEquals(7L, tensor.getMethod("getLong", long[].class).invoke(theirs, new long[] {0}));
                tensor.getMethod("close").invoke(theirs);
            }
        }
    }

    /** The JVM loads a file for one class loader only. */
    @Test
    void aFileIsTheLibraryOfOneClassLoader(@TempDir Path directory) throws ReflectiveOperationException, IOException {
        String platform = (System.getProperty("os.name") + "-" + System.getProperty("os.arch")).toLowerCase();
        Path library = directory.resolve("ours.so");
        String carried = "/native/" + platform + "/libdevexchange_jni.so";
        try (InputStream bytes = DevExchange.class.getResourceAsStream(carried)) {
            Files.copy(bytes, library);
        }
        URL[] classes = {DevExchange.class.getProtectionDomain().getCodeSource().getLocation()};
        System.setProperty("devexchange.library.path", library.toString());
        try (URLClassLoader first = new URLClassLoader(classes, ClassLoader.getPlatformClassLoader());
                URLClassLoader second = new URLClassLoader(classes, ClassLoader.getPlatformClassLoader())) {
            assertEquals(DevExchange.version(), version(first).invoke(null));
            Method refused = version(second);
            Throwable refusal = assertThrows(InvocationTargetException.class, () -> refused.invoke(null)).getCause();
            assertInstanceOf(UnsatisfiedLinkError.class, refusal);
            String text = refusal.getMessage();
            assertTrue(text.startsWith("-Ddevexchange.library.path=" + library + ": "), text);
            assertTrue(text.contains("a class loader that is not this one has the library from that file"), text);
            assertInstanceOf(UnsatisfiedLinkError.class, refusal.getCause());
        } finally {
            System.clearProperty("devexchange.library.path");
        }
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
