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
 * The operations of Java as a program with benches (docs/bench.md): {@code Benches LANGUAGE DIRECTORY [list]}. The
 * language is what the names of the operations begin with: {@code java}, or another one on another JVM.
 */
public final class Benches {
    /** Long enough for the compiler. */
    private static final long WARM_UP_NS = 300_000_000;

    /** What differs from others of its group only in its number of columns runs the same loops. */
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

    /** All that there are, after the floor's library was loaded. */
    static Benches all(String language, Path floor) throws ReflectiveOperationException {
        System.load(floor.toAbsolutePath().toString());
        Benches benches = new Benches(language);
        OurBenches.addTo(benches::add);
        FloorBenches.addTo(benches::add);
        benches.addArrowJava();
        return benches;
    }

    /** What there is: an operation, a tab, an implementation. */
    Set<String> rows() {
        return entries.keySet();
    }

    Bench make(String row) {
        return entries.get(row).make();
    }

    /**
     * The whole group is warmed up together, once and before any of it is measured: otherwise the compiler would make
     * the loops for the number of columns that came first.
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

    /** What is set up for an operation stays until another operation is asked for. */
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

    /** Arrow Java is not in every class path. */
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
