package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.spi.ToolProvider;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A program that is a module, like this library, and a runtime image of the two. */
class ModulePathTest {
    private static final String MODULE = "module program { requires dev.devexchange; }";

    private static final String MAIN =
            """
            package program;

            import dev.devexchange.*;
            import java.lang.module.ModuleDescriptor;
            import java.nio.ByteBuffer;
            import java.nio.ByteOrder;
            import java.time.Duration;

            class Main {
                public static void main(String[] arguments) throws InterruptedException {
                    ModuleDescriptor library = DevExchange.class.getModule().getDescriptor();
                    System.out.println(library.name() + (library.isAutomatic() ? ", automatic" : ""));
                    ByteBuffer memory = ByteBuffer.allocateDirect(6).order(ByteOrder.nativeOrder());
                    Runnable release = () -> System.out.println("released");
                    Tensor given = Tensor.create(memory, DType.INT8, new long[] {2, 3}, release);
                    try (Tensor seen = Tensor.importDlpack(given.exportMove())) {
                        System.out.println(seen);
                    }
                    ReleaseQueue.flush(Duration.ofMinutes(1));
                    System.out.println(DevExchange.backend() + ", outstanding " + DevExchange.outstanding());
                }
            }
            """;

    private static final String EXPECTED =
            """
            dev.devexchange
            Tensor (int8, [2, 3], cpu:0)
            released
            %s, outstanding 0
            """
                    .formatted(System.getProperty("devexchange.backend.expected"));

    @TempDir
    private Path directory;

    /** Makes the program; returns the module path of the program and the library. */
    private String program() throws IOException {
        Path sources = Files.createDirectories(directory.resolve("sources"));
        Path classes = directory.resolve("classes");
        Path module = Files.writeString(sources.resolve("module-info.java"), MODULE);
        Path main = Files.writeString(sources.resolve("Main.java"), MAIN);
        String library = Jvm.place(DevExchange.class);
        call("javac", "-Xlint:all", "-Werror", "-d", classes.toString(), "--module-path", library, module.toString(),
                main.toString());
        return library + File.pathSeparator + classes;
    }

    @Test
    void aProgramIsAModule() throws IOException, InterruptedException {
        runs(Path.of(System.getProperty("java.home")), "--module-path", program());
    }

    @Test
    @Tag("jar")
    void aRuntimeImageHasTheLibraryInIt() throws IOException, InterruptedException {
        Path image = directory.resolve("image");
        call("jlink", "--module-path", program(), "--add-modules", "program", "--output", image.toString());
        runs(image);
    }

    private static void call(String tool, String... arguments) {
        int status = ToolProvider.findFirst(tool).orElseThrow().run(System.out, System.err, arguments);
        assertEquals(0, status, () -> tool + " " + List.of(arguments));
    }

    private static void runs(Path home, String... options) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(Jvm.command(home, "dev.devexchange"));
        command.addAll(List.of(options));
        command.addAll(List.of("--module", "program/program.Main"));
        assertEquals(new Jvm.End(0, EXPECTED), Jvm.end(new ProcessBuilder(command)));
    }
}
