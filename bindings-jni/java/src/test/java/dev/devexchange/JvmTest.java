package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Whole JVMs with this library: their output, and that they end. */
class JvmTest {
    /** What -Xcheck:jni prints. */
    private static final Pattern COMPLAINT = Pattern.compile(
            "(WARNING|FATAL ERROR) in native method|JNI call made without checking exceptions|exceeds capacity");

    private static Jvm.End run(String scenario, String... options) throws IOException, InterruptedException {
        return Jvm.run(List.of(options), Map.of(), Scenario.class, scenario);
    }

    private static String endsWell(Jvm.End end) {
        assertEquals(0, end.status(), end.output());
        assertTrue(end.output().contains("main is done"), end.output());
        return end.output();
    }

    @Test
    void theJvmHasNothingToSayAboutOurJni() throws IOException, InterruptedException {
        String[][] settings = {
            {"-Xcheck:jni"},
            {"-Xcheck:jni", "-Xcomp", "-XX:TieredStopAtLevel=1"},
            {"-Xcheck:jni", "-XX:+UseSerialGC", "-Xmx32m"}
        };
        for (String[] options : settings) {
            String output = endsWell(run("everything", options));
            assertFalse(COMPLAINT.matcher(output).find(), output);
        }
    }

    @Test
    void theJvmExitsWithThingsOutstanding() throws IOException, InterruptedException {
        assertTrue(endsWell(run("outstanding")).contains("outstanding 6"));
    }

    /** The library was a file there only until it was loaded. */
    @Test
    void aJvmThatIsStoppedLeavesNoFile(@TempDir Path directory) throws IOException, InterruptedException {
        endsWell(run("halted", "-Djava.io.tmpdir=" + directory));
        try (Stream<Path> left = Files.list(directory)) {
            assertEquals(List.of(), left.toList());
        }
    }

    @Test
    void theJvmExitsWhileACallbackRuns() throws IOException, InterruptedException {
        endsWell(run("busy"));
    }

    @Test
    void theJvmExitsWhileThreadsWaitForAnAllocator() throws IOException, InterruptedException {
        String output = endsWell(run("allocating"));
        assertTrue(output.contains("hook: allocate: the JVM that the manager is in is exiting"), output);
    }

    @Test
    @Tag("jdk21")
    void virtualThreadsThatWaitForJavaLeaveTheirCarrier() throws IOException, InterruptedException {
        String output = endsWell(run("virtual", "-Djdk.virtualThreadScheduler.parallelism=1",
                "-Djdk.virtualThreadScheduler.maxPoolSize=1"));
        assertEquals(4, output.split("Memory \\(4 bytes, cpu:0\\)", -1).length - 1, output);
        assertTrue(output.contains("DEVX_OUT_OF_MEMORY here"), output);
        assertTrue(output.contains("no exporter: DEVX_"), output);
    }

    /** The garbage collector, which alone frees direct memory, need not run for them. */
    @Test
    void aTaskNeedsNoDirectMemoryOfItsOwn() throws IOException, InterruptedException {
        endsWell(run("passing", "-XX:MaxDirectMemorySize=4m", "-XX:+DisableExplicitGC", "-Xms256m",
                "-Djava.util.concurrent.ForkJoinPool.common.parallelism=2"));
    }

    /** Compiled code does not keep reachable what it no longer uses. */
    @Test
    void whatWaitsForASchemaKeepsTheReader() throws IOException, InterruptedException {
        endsWell(run("awaited", "-Xcomp", "-XX:TieredStopAtLevel=1"));
    }

    /** In a server whose applications share the library. */
    @Test
    void anApplicationThatUsedTheLibraryFirstIsNotKept() throws IOException, InterruptedException {
        Jvm.End end = Jvm.run(List.of(), Map.of(), ApplicationScenario.class);
        assertEquals(new Jvm.End(0, "the application is gone" + System.lineSeparator()), end);
    }

    @Test
    void aCallThatHasNoMemoryTakesNothing() throws IOException, InterruptedException {
        List<String> small = List.of("-Xmx6m", "-Xms6m", "-XX:+UseSerialGC");
        Jvm.End end = Jvm.run(small, Map.of(), HeapScenario.class, new String[0]);
        assertEquals(0, end.status(), end.output());
        assertTrue(end.output().contains(" calls had no memory"), end.output());
    }

    @Test
    void releasesRunAlthoughTheirThreadHadNoMemoryAtFirst() throws IOException, InterruptedException {
        endsWell(run("full", "-XX:MaxDirectMemorySize=64k"));
    }

    @Test
    void theFirstCallNeedsNoDirectMemoryToLoadTheLibrary() throws IOException, InterruptedException {
        assertTrue(endsWell(run("late", "-XX:MaxDirectMemorySize=64k")).contains("version " + DevExchange.version()));
    }

    @Test
    void theTraceNamesWhatNobodyClosed() throws IOException, InterruptedException {
        String output = endsWell(
                Jvm.run(List.of(), Map.of("DEVEXCHANGE_TRACE", "1"), Scenario.class, "forgotten"));
        assertTrue(output.contains("devexchange: a Batch was not closed"), output);
        assertTrue(output.contains("devexchange: a Tensor was not closed"), output);
        assertTrue(output.contains("devexchange: a Memory was not closed"), output);
        assertFalse(output.contains("a MemoryManager was not closed"), output);
        assertFalse(output.contains("a Schema was not closed"), output);
        assertFalse(endsWell(run("forgotten")).contains("not closed"), "the trace is off");
    }

    @Test
    void theTraceShowsWhereACallbackFailed() throws IOException, InterruptedException {
        String output =
                endsWell(Jvm.run(List.of(), Map.of("DEVEXCHANGE_TRACE", "1"), Scenario.class, "failing"));
        for (String part : List.of(
                "devexchange: a callback failed: java.lang.IllegalStateException: a broken source",
                "Scenario.brokenSource",
                "devexchange: a callback failed: dev.devexchange.DevExchangeException: DEVX_UNSUPPORTED",
                "Scenario.brokenAllocator")) {
            assertTrue(output.contains(part), output);
        }
        assertFalse(endsWell(run("failing")).contains("a callback failed"), "the trace is off");
    }

    @Test
    void theLibraryComesFromTheJarAndLeavesNothingBehind(@TempDir Path temporary)
            throws IOException, InterruptedException {
        assertTrue(endsWell(run("version", "-Djava.io.tmpdir=" + temporary)).contains("version "
                + DevExchange.version()));
        try (Stream<Path> left = Files.list(temporary)) {
            assertEquals(List.of(), left.filter(path -> path.toString().contains("devexchange")).toList());
        }
    }

    @Test
    void aPropertyNamesALibraryInAnotherPlace(@TempDir Path elsewhere) throws IOException, InterruptedException {
        Path library = elsewhere.resolve("libdevexchange_jni.so");
        Jvm.copyLibrary(library);
        for (Path place : List.of(library, elsewhere)) {
            endsWell(run("version", "-Ddevexchange.library.path=" + place));
        }
        Jvm.End missing = run("version", "-Ddevexchange.library.path=" + elsewhere.resolve("missing.so"));
        assertEquals(1, missing.status(), missing.output());
        assertTrue(missing.output().contains("UnsatisfiedLinkError"), missing.output());
        assertTrue(missing.output().contains("missing.so"), missing.output());
        Jvm.End other = run("version", "-Dos.arch=unheard");
        assertEquals(1, other.status(), other.output());
        assertTrue(other.output().contains("native/linux-unheard/"), other.output());
        assertTrue(other.output().contains("-Ddevexchange.library.path="), other.output());
    }
}
