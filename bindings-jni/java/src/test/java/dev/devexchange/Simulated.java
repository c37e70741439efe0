package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * Separate JVMs with the simulated CUDA driver (tests/simcuda), for programs like {@link DeviceScenario}. If that
 * driver finds an error in the order or the lifetime of memory, the JVM fails.
 */
final class Simulated {
    /** The build directory of the repository, according to scripts/env.sh. */
    private static final Path TARGET = target();

    private static final Pattern COMPLAINT = Pattern.compile(
            "(WARNING|FATAL ERROR) in native method|JNI call made without checking exceptions|exceeds capacity");

    private static Path library;

    private Simulated() {}

    /**
     * The C code of the programs. When first asked for, it is compiled, and the driver beside it is built (cargo does
     * nothing if it is up to date).
     */
    private static synchronized Path library() throws IOException, InterruptedException {
        if (library == null) {
            Path place = Path.of(System.getProperty("devexchange.root"), "tests/simcuda/driver/place.sh");
            ProcessBuilder tool = new ProcessBuilder("sh", place.toString(), driver().toString());
            tool.environment().put("CARGO_TARGET_DIR", TARGET.toString());
            Cc.run(tool);
            library = Cc.shared("device.c", driver());
        }
        return library;
    }

    private static Path target() {
        Path root = Path.of(System.getProperty("devexchange.root"));
        Map<String, String> environment = System.getenv();
        String said = environment.getOrDefault("DEVX_TARGET", environment.getOrDefault("CARGO_TARGET_DIR", "target"));
        return root.resolve(said).toAbsolutePath().normalize();
    }

    private static Path driver() {
        return TARGET.resolve("simcuda");
    }

    static Jvm.End run(Class<?> main, String scenario, String mode, int seed) throws IOException, InterruptedException {
        Map<String, String> environment = new HashMap<>();
        environment.put("LD_LIBRARY_PATH", driver().toString());
        environment.put("SIMCUDA_FATAL", "exit");
        environment.put("SIMCUDA_DEVICES", "2");
        environment.put("SIMCUDA_MODE", mode);
        environment.put("SIMCUDA_SEED", String.valueOf(seed));
        environment.put("DEVEXCHANGE_TRACE", "1");
        String option = "-D" + DeviceScenario.PROPERTY + "=" + library();
        return Jvm.run(List.of("-Xcheck:jni", option), environment, main, scenario);
    }

    /** The JVM's output on both channels. */
    static String endsWell(Class<?> main, String scenario, String mode, int seed)
            throws IOException, InterruptedException {
        Jvm.End end = run(main, scenario, mode, seed);
        String output = mode + " " + seed + ": " + end.output();
        assertEquals(0, end.status(), output);
        assertTrue(end.output().contains("main is done"), output);
        assertFalse(COMPLAINT.matcher(end.output()).find(), output);
        assertFalse(end.output().contains("finding"), output);
        return end.output();
    }

    /** Runs in each order that the driver has: late, hostile, and with threads. */
    static void endsWellInEveryOrder(Class<?> main, String scenario) throws IOException, InterruptedException {
        for (int seed = 1; seed <= 3; seed++) {
            endsWell(main, scenario, "lazy", seed);
        }
        endsWell(main, scenario, "adversarial", 1);
        endsWell(main, scenario, "threads", 1);
    }
}
