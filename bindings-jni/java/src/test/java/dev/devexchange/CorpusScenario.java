package dev.devexchange;

/** Every case of the corpus of bad input, out of the library that is named, with the CUDA driver that is there. */
final class CorpusScenario {
    private CorpusScenario() {}

    public static void main(String[] arguments) throws InterruptedException {
        System.load(arguments[0]);
        for (long i : Corpus.cases()) {
            Corpus.run(i);
        }
        System.out.println("main is done");
    }
}
