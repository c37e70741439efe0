package dev.devexchange;

import java.util.List;

/** Runs every case of the corpus of bad input, from the library that is named, with the CUDA driver that is present. */
final class CorpusScenario {
    private CorpusScenario() {}

    public static void main(String[] arguments) throws InterruptedException {
        System.load(arguments[0]);
        List<Long> cases = Corpus.cases();
        if (cases.stream().noneMatch(i -> Corpus.text(i, "needs").equals("cuda"))) {
            throw new AssertionError("there is no driver: these are the cases of a machine without one");
        }
        for (long i : cases) {
            Corpus.run(i);
        }
        System.out.println("main is done");
    }
}
