package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** What a new JVM has to set up for the first calls: nothing that takes longer than the calls. */
class StartTest {
    /** Random numbers that nobody can guess, and methods of records that the JVM makes when they are first called. */
    private static final List<String> SLOW = List.of("java.security.SecureRandom", "java.lang.runtime.ObjectMethods");

    @Test
    void theFirstCallsSetUpNothingSlow() throws IOException, InterruptedException {
        Jvm.End end = Jvm.run(List.of("-Xlog:class+load"), Map.of(), StartScenario.class);
        assertEquals(0, end.status(), end.output());
        assertTrue(end.output().contains("main is done"), end.output());
        assertTrue(end.output().contains("dev.devexchange.Values "), end.output());
        for (String slow : SLOW) {
            assertFalse(end.output().contains(slow + " "), slow);
        }
    }

    /** The compiler's option decides this for each class. */
    @Test
    void noTextIsPutTogetherByInvokedynamic() throws IOException {
        Path place = Path.of(Jvm.place(DevExchange.class));
        List<String> checked = Files.isDirectory(place) ? check(place) : checkJar(place);
        assertTrue(checked.contains("Native.class") && checked.size() > 50, checked.toString());
    }

    private static List<String> checkJar(Path jar) throws IOException {
        try (FileSystem inside = FileSystems.newFileSystem(jar)) {
            return check(inside.getPath("/"));
        }
    }

    private static List<String> check(Path root) throws IOException {
        List<String> checked = new ArrayList<>();
        try (Stream<Path> files = Files.walk(root)) {
            for (Path file : (Iterable<Path>) files.filter(f -> f.toString().endsWith(".class"))::iterator) {
                String code = new String(Files.readAllBytes(file), StandardCharsets.ISO_8859_1);
                assertFalse(code.contains("StringConcatFactory"), file.toString());
                checked.add(file.getFileName().toString());
            }
        }
        return checked;
    }
}
