package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/** Faults, in a separate JVM, in which the library keeps no memory: {@link FaultsScenario}. */
@ExtendWith(Check.class)
class FaultsTest {
    private static final Pattern SAID = Pattern.compile("faults: (\\d+) allocations, (\\d+) callbacks");

    @TempDir
    static Path directory;

    @Test
    void whatFailsOnceIsToldAndLosesNothing() throws IOException, InterruptedException {
        String library = Corpus.compile(directory).toString();
        Map<String, String> environment = Map.of("DEVEXCHANGE_KEEP_BLOCKS", "0");
        Jvm.End end = Jvm.run(List.of(), environment, FaultsScenario.class, library);
        assertEquals(0, end.status(), end.output());
        Matcher said = SAID.matcher(end.output());
        assertTrue(said.find(), end.output());
        System.out.println(said.group());
        assertTrue(Integer.parseInt(said.group(1)) > 300, said.group());
        assertTrue(Integer.parseInt(said.group(2)) > 150, said.group());
    }
}
