package dev.devexchange;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The benches of Java as one program (docs/bench.md): {@code Benches LANGUAGE DIRECTORY [list]}. The names of the
 * operations begin with LANGUAGE: {@code java}, or another one on another JVM. DIRECTORY has the floor's library.
 */
public final class Benches {
    /** How long a bench runs before it is measured, so that the compiler is done with it. */
    private static final long WARM_UP_NS = 300_000_000;

    /** A bench to make. Those of one group differ only in their number of columns, and run the same loops. */
    private record Entry(String group, int columns, Bench.SetUp setUp) {
        Bench make() {
            return setUp.make(columns);
        }
    }

    private final Map<String, Entry> entries = new LinkedHashMap<>();

    private final Set<String> warm = new HashSet<>();

    private final String language;

    private Benches(String language) {
        this.language = language;
    }

    private void add(String operation, String implementation, int columns, Bench.SetUp setUp) {
        String name = language + "/" + (columns == 0 ? operation : operation + "/" + columns);
        entries.put(name + "\t" + implementation, new Entry(operation + "\t" + implementation, columns, setUp));
    }

    /** Loads the floor's library and returns all benches. */
    static Benches all(String language, Path floor) throws ReflectiveOperationException {
        System.load(floor.toAbsolutePath().toString());
        Benches benches = new Benches(language);
        OurBenches.addTo(benches::add);
        FloorBenches.addTo(benches::add);
        benches.addArrowJava();
        return benches;
    }

    /** The names of the benches: an operation, a tab, an implementation. */
    Set<String> rows() {
        return entries.keySet();
    }

    Bench make(String row) {
        return entries.get(row).make();
    }

    /**
     * Makes a bench, and before any bench of its group is measured, warms up the whole group together. Otherwise, the
     * compiler would optimize the loops for the number of columns that came first.
     */
    private Bench ready(String row) {
        String group = entries.get(row).group;
        if (warm.add(group)) {
            warmUp(entries.values().stream().filter(entry -> entry.group.equals(group)).map(Entry::make).toList());
        }
        return make(row);
    }

    private static void warmUp(List<Bench> benches) {
        long end = System.nanoTime() + benches.size() * WARM_UP_NS;
        while (System.nanoTime() < end) {
            benches.forEach(bench -> bench.run(100));
        }
        benches.forEach(Bench::close);
    }

    /** Answers the requests. Benches stay open until a request names another operation. */
    private void serve() throws IOException {
        Map<String, Bench> ready = new HashMap<>();
        String current = "";
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            if (!words[0].equals(current)) {
                close(ready);
                current = words[0];
            }
            String name = words[0] + "\t" + words[1];
            Bench bench = ready.computeIfAbsent(name, this::ready);
            long times = Long.parseLong(words[2]);
            long allocations = Floor.allocations();
            long start = System.nanoTime();
            bench.run(times);
            long ns = System.nanoTime() - start;
            System.out.println(ns + "\t" + (Floor.allocations() - allocations));
        }
        close(ready);
    }

    private static void close(Map<String, Bench> ready) {
        ready.values().forEach(Bench::close);
        ready.clear();
    }

    /** Adds the benches of Arrow Java, if they are in the class path. */
    private void addArrowJava() throws ReflectiveOperationException {
        Class<?> peer;
        try {
            peer = Class.forName("dev.devexchange.ArrowJavaBenches");
        } catch (ClassNotFoundException missing) {
            return;
        }
        Method method = peer.getDeclaredMethod("addTo", Bench.Adder.class);
        method.invoke(null, (Bench.Adder) this::add);
    }

    /** Runs the program. */
    public static void main(String[] args) throws IOException, InterruptedException, ReflectiveOperationException {
        Benches benches = all(args[0], Path.of(args[1], "libfloor-java.so"));
        if (Floor.allocations() < 0) {
            throw new IllegalStateException("the library that counts allocations is not loaded before all others");
        }
        if (args.length > 2) {
            benches.rows().forEach(System.out::println);
            return;
        }
        benches.serve();
        ReleaseQueue.flush(Duration.ofSeconds(5));
        if (DevExchange.outstanding() != 0) {
            throw new IllegalStateException("outstanding: " + DevExchange.ledger());
        }
    }
}
