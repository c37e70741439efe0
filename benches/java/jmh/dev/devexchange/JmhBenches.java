package dev.devexchange;

import java.nio.file.Path;
import java.util.Collection;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.ChainedOptionsBuilder;
import org.openjdk.jmh.runner.options.CommandLineOptionException;
import org.openjdk.jmh.runner.options.CommandLineOptions;
import org.openjdk.jmh.runner.options.OptionsBuilder;

/**
 * The same benches under JMH (docs/bench.md): {@code JmhBenches TEXT [OPTIONS OF JMH]} measures those with this text in
 * their name, each in its own JVM.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class JmhBenches {
    /** The path of the library with the floor. */
    private static final String FLOOR = System.getProperty("devexchange.bench.floor");

    /** How often a bench repeats its operation, in its own loop. */
    private static final int TIMES = 100;

    /** The name of the bench: an operation, a colon, an implementation. */
    @Param("")
    public String row;

    private Bench bench;

    private static Benches all() throws ReflectiveOperationException {
        return Benches.all("java", Path.of(FLOOR));
    }

    /** Makes the bench. */
    @Setup(Level.Trial)
    public void begin() throws ReflectiveOperationException {
        bench = all().make(row.replace(':', '\t'));
    }

    /** Closes the bench. */
    @TearDown(Level.Trial)
    public void end() {
        bench.close();
    }

    /** {@return the sum of what was read, so that the compiler keeps the reads} */
    @Benchmark
    @OperationsPerInvocation(TIMES)
    public long run() {
        bench.run(TIMES);
        return Bench.sink;
    }

    /** Runs the benches. */
    public static void main(String[] args)
            throws ReflectiveOperationException, CommandLineOptionException, RunnerException {
        String[] rows = all().rows().stream()
                .filter(row -> row.contains(args[0]))
                .map(row -> row.replace('\t', ':'))
                .toArray(String[]::new);
        if (rows.length == 0) {
            System.err.println("bench-jmh: no bench of Java has '" + args[0] + "' in its name");
            System.exit(1);
        }
        String[] rest = new String[args.length - 1];
        System.arraycopy(args, 1, rest, 0, rest.length);
        ChainedOptionsBuilder options = new OptionsBuilder()
                .parent(new CommandLineOptions(rest))
                .include(JmhBenches.class.getName())
                .param("row", rows)
                .shouldFailOnError(true);
        Collection<RunResult> results = new Runner(options.build()).run();
        if (results.size() != rows.length) {
            throw new IllegalStateException("of " + rows.length + " benches " + results.size() + " have a result");
        }
    }
}
