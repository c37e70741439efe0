package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** The C compiler, which building the library needs, too. */
final class Cc {
    private Cc() {}

    /** Makes a library from a file of {@code src/test/c} and further arguments of the compiler. */
    static Path shared(String source, Path directory, String... more) throws IOException, InterruptedException {
        List<String> options = new ArrayList<>(List.of("-shared", "-fPIC"));
        options.addAll(List.of(more));
        return make(source, directory.resolve("lib" + source.replace(".c", ".so")), options);
    }

    /** Makes a program from such a file, with the library of the JVM. */
    static Path embedding(String source, Path directory) throws IOException, InterruptedException {
        Path server = Path.of(System.getProperty("java.home"), "lib", "server");
        return make(
                source,
                directory.resolve(source.replace(".c", "")),
                List.of("-L" + server, "-Wl,-rpath," + server, "-ljvm"));
    }

    private static Path make(String source, Path out, List<String> options) throws IOException, InterruptedException {
        Path java = Path.of(System.getProperty("java.home"), "include");
        Path file = Path.of(System.getProperty("devexchange.root"), "bindings-jni/java/src/test/c", source);
        Path headers = Path.of(System.getProperty("devexchange.root"), "bindings-c/include");
        List<String> command = new ArrayList<>(List.of(
                "cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-pthread",
                "-I" + java, "-I" + java.resolve("linux"), "-I" + headers, "-o", out.toString(), file.toString()));
        command.addAll(options);
        command.add("-ldl");
        run(new ProcessBuilder(command));
        return out;
    }

    /** Runs a tool, which must succeed. */
    static void run(ProcessBuilder tool) throws IOException, InterruptedException {
        Process process = tool.redirectErrorStream(true).start();
        process.getOutputStream().close();
        String output = new String(process.getInputStream().readAllBytes());
        assertEquals(0, process.waitFor(), output);
    }
}
