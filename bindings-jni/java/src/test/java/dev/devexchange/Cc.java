package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** The C compiler, which building the library needs too. */
final class Cc {
    private Cc() {}

    /** Makes a library of a file of {@code src/test/c}, and of what else the compiler is given. */
    static Path shared(String source, Path directory, String... more) throws IOException, InterruptedException {
        Path java = Path.of(System.getProperty("java.home"), "include");
        Path file = Path.of(System.getProperty("devexchange.root"), "bindings-jni/java/src/test/c", source);
        Path headers = Path.of(System.getProperty("devexchange.root"), "bindings-c/include");
        Path library = directory.resolve("lib" + source.replace(".c", ".so"));
        List<String> command = new ArrayList<>(List.of(
                "cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-shared", "-fPIC", "-pthread",
                "-I" + java, "-I" + java.resolve("linux"), "-I" + headers, "-o", library.toString(), file.toString()));
        command.addAll(List.of(more));
        command.add("-ldl");
        run(new ProcessBuilder(command));
        return library;
    }

    /** A tool that has to succeed. */
    static void run(ProcessBuilder tool) throws IOException, InterruptedException {
        Process process = tool.redirectErrorStream(true).start();
        process.getOutputStream().close();
        String output = new String(process.getInputStream().readAllBytes());
        assertEquals(0, process.waitFor(), output);
    }
}
