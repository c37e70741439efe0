package dev.devexchange;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Another JVM, for tests that would end this one. */
final class Jvm {
    /** How a JVM ended, and its output on both channels. */
    record End(int status, String output) {}

    /** The number of bytes that are kept of a program's output. */
    private static final int MOST = 1 << 20;

    private Jvm() {}

    /** A running JVM that the test talks to line by line. */
    static final class Peer implements AutoCloseable {
        private final Process process;
        private final BufferedReader lines;

        private Peer(Process process) {
            this.process = process;
            lines = process.inputReader(StandardCharsets.UTF_8);
            killLater(process);
        }

        /** Reads the next line, which must be the expected one. */
        void expect(String line) throws IOException {
            String said = lines.readLine();
            if (!line.equals(said)) {
                StringBuilder all = new StringBuilder("expected \"" + line + "\", heard:");
                for (; said != null; said = lines.readLine()) {
                    all.append('\n').append(said);
                }
                throw new AssertionError(all);
            }
        }

        void tell(String line, String answer) throws IOException {
            BufferedWriter to = process.outputWriter(StandardCharsets.UTF_8);
            to.write(line);
            to.newLine();
            to.flush();
            expect(answer);
        }

        /** Stops it, until it is killed: the signal only tells one thread to stop the others. */
        void stop() throws IOException, InterruptedException {
            new ProcessBuilder("kill", "-STOP", String.valueOf(process.pid())).start().waitFor();
            Check.eventually(this::isStopped);
        }

        private boolean isStopped() {
            try (Stream<Path> threads = Files.list(Path.of("/proc", String.valueOf(process.pid()), "task"))) {
                for (Path thread : (Iterable<Path>) threads::iterator) {
                    // The name, which may be anything, is in parentheses; the state follows.
                    String stat = Files.readString(thread.resolve("stat"), StandardCharsets.ISO_8859_1);
                    if (stat.charAt(stat.lastIndexOf(')') + 2) != 'T') {
                        return false;
                    }
                }
                return true;
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /** Kills it, as the operating system might. */
        void kill() throws InterruptedException {
            process.destroyForcibly().waitFor();
        }

        /** Lets it end, which must succeed. */
        void end() throws IOException, InterruptedException {
            process.outputWriter(StandardCharsets.UTF_8).close();
            expect("main is done");
            String more = lines.readLine();
            if (more != null || process.waitFor() != 0) {
                throw new AssertionError("ended with " + process.waitFor() + ": " + more);
            }
        }

        @Override
        public void close() {
            process.destroyForcibly();
        }
    }

    static End run(List<String> options, Map<String, String> environment, Class<?> main, String... arguments)
            throws IOException, InterruptedException {
        return end(begin(options, environment, main, arguments));
    }

    /** Runs any program, without input, to its end. */
    static End end(ProcessBuilder builder) throws IOException, InterruptedException {
        Process process = builder.redirectErrorStream(true).start();
        process.getOutputStream().close();
        killLater(process);
        InputStream from = process.getInputStream();
        byte[] said = from.readNBytes(MOST);
        // A program with endless output is killed; the beginning of its output tells why.
        from.transferTo(OutputStream.nullOutputStream());
        return new End(process.waitFor(), new String(said, StandardCharsets.UTF_8));
    }

    static Peer start(List<String> options, Class<?> main, String... arguments) throws IOException {
        return new Peer(begin(options, Map.of(), main, arguments).redirectErrorStream(true).start());
    }

    /** The command that starts the JVM at a path; the JVM has this version, and a module there may use native code. */
    static List<String> command(Path home, String module) {
        String java = home.resolve("bin").resolve("java").toString();
        return Runtime.version().feature() >= 22 ? List.of(java, "--enable-native-access=" + module) : List.of(java);
    }

    private static ProcessBuilder begin(
            List<String> options, Map<String, String> environment, Class<?> main, String... arguments) {
        List<String> command = new ArrayList<>(command(Path.of(System.getProperty("java.home")), "ALL-UNNAMED"));
        command.addAll(options);
        command.addAll(List.of("-cp", place(DevExchange.class) + File.pathSeparator + place(main)));
        command.add(main.getName());
        command.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().putAll(environment);
        return builder;
    }

    /** Kills a JVM that takes too long. */
    static void killLater(Process process) {
        Thread killer = new Thread(() -> {
            try {
                if (!process.waitFor(400, TimeUnit.SECONDS)) {
                    process.destroyForcibly();
                }
            } catch (InterruptedException e) {
                process.destroyForcibly();
            }
        });
        killer.setDaemon(true);
        killer.start();
    }

    /** Where a class was loaded from, for a class path. */
    static String place(Class<?> type) {
        return Path.of(type.getProtectionDomain().getCodeSource().getLocation().getPath()).toString();
    }

    /** Copies the library in the jar to a file. */
    static void copyLibrary(Path to) throws IOException {
        String platform = (System.getProperty("os.name") + "-" + System.getProperty("os.arch")).toLowerCase();
        String carried = "/native/" + platform + "/libdevexchange_jni.so";
        try (InputStream bytes = DevExchange.class.getResourceAsStream(carried)) {
            Files.copy(bytes, to);
        }
    }
}
