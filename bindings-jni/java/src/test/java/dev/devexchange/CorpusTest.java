package dev.devexchange;

import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import java.io.IOException;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/** Every case of the corpus of bad input. The cases that need a CUDA driver run in a separate JVM that has one. */
@ExtendWith(Check.class)
class CorpusTest {
    @TempDir
    static Path directory;

    private static Path library;

    @BeforeAll
    static void compile() throws IOException, InterruptedException {
        library = Corpus.compile(directory);
        System.load(library.toString());
    }

    @TestFactory
    Stream<DynamicTest> cases() {
        return Corpus.cases().stream().map(i -> dynamicTest(Corpus.text(i, "name"), () -> Corpus.run(i)));
    }

    @Test
    void withADriver() throws IOException, InterruptedException {
        Simulated.endsWell(CorpusScenario.class, library.toString(), "lazy", 1);
    }
}
