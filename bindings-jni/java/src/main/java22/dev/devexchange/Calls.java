package dev.devexchange;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Map;

/**
 * The native calls that are frequent, return soon and call nobody back, for JDK 22 and newer: without JNI, and without
 * a change of the thread's state ({@link Linker.Option#critical}). The functions are those declared in {@link Native};
 * they get NULL in place of JNI's own arguments ({@code foreign.rs}). The class for JDK 17 is in {@code src/main/java}.
 */
final class Calls {
    private static final String SYMBOLS = "Java_dev_devexchange_Native_";

    private static final Map<Class<?>, MemoryLayout> LAYOUTS = Map.of(
            long.class, ValueLayout.JAVA_LONG,
            int.class, ValueLayout.JAVA_INT,
            boolean.class, ValueLayout.JAVA_BOOLEAN);

    static final Backend BACKEND = choose();

    /** One long, which is not 0 while a thread whose call has failed has not asked for the error. */
    private static final MemorySegment FAILED =
            BACKEND == Backend.FFM ? memory(Native.foreignFailed(), Long.BYTES) : MemorySegment.NULL;

    private static final MethodHandle LEDGER_OUTSTANDING = handle("ledgerOutstanding");
    private static final MethodHandle LEDGER_READ = handle("ledgerRead");
    private static final MethodHandle TENSOR_DESCRIBE = handle("tensorDescribe");
    private static final MethodHandle TENSOR_SHARE = handle("tensorShare");
    private static final MethodHandle TENSOR_EXPORT = handle("tensorExport");
    private static final MethodHandle TENSOR_MOVE = handle("tensorMove");
    private static final MethodHandle BATCH_DESCRIBE = handle("batchDescribe");
    private static final MethodHandle BATCH_SHARE = handle("batchShare");
    private static final MethodHandle SCHEMA_SHARE = handle("schemaShare");

    private Calls() {}

    /**
     * Chooses the backend. If the JVM refuses foreign functions or has none for its machine, it is JNI, unless the
     * property asks for foreign functions.
     */
    private static Backend choose() {
        Backend wanted = Backend.wanted();
        if (wanted == Backend.JNI) {
            return wanted;
        }
        try {
            foreign(declaration("ledgerOutstanding"));
            memory(Native.foreignFailed(), Long.BYTES);
            return Backend.FFM;
        } catch (IllegalCallerException | UnsupportedOperationException refusal) {
            if (wanted == Backend.FFM) {
                throw refusal;
            }
            return Backend.JNI;
        }
    }

    private static Method declaration(String name) {
        return Arrays.stream(Native.class.getDeclaredMethods())
                .filter(method -> method.getName().equals(name))
                .findFirst()
                .orElseThrow(() -> new NoSuchMethodError(name));
    }

    /** The handle that calls the native method of that name through the backend. */
    private static MethodHandle handle(String name) {
        Method method = declaration(name);
        return BACKEND == Backend.FFM ? foreign(method) : jni(method);
    }

    private static MethodHandle jni(Method method) {
        try {
            return MethodHandles.lookup().unreflect(method);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    @SuppressWarnings("restricted")
    private static MethodHandle foreign(Method method) {
        // Loads the library if it is not loaded yet.
        Native.foreignFailed();
        MethodType type = MethodType.methodType(method.getReturnType(), method.getParameterTypes());
        // JNI appends the types of the arguments, a letter each.
        String descriptor = type.descriptorString();
        String symbol = SYMBOLS + method.getName() + "__" + descriptor.substring(1, descriptor.indexOf(')'));
        MemorySegment address =
                SymbolLookup.loaderLookup().find(symbol).orElseThrow(() -> new NoSuchMethodError(symbol));
        MethodType whole = type.insertParameterTypes(0, long.class, long.class);
        MemoryLayout[] arguments = whole.parameterList().stream().map(LAYOUTS::get).toArray(MemoryLayout[]::new);
        FunctionDescriptor function = type.returnType() == void.class
                ? FunctionDescriptor.ofVoid(arguments)
                : FunctionDescriptor.of(LAYOUTS.get(type.returnType()), arguments);
        MethodHandle call = Linker.nativeLinker().downcallHandle(address, function, Linker.Option.critical(false));
        return MethodHandles.insertArguments(call, 0, 0L, 0L);
    }

    @SuppressWarnings("restricted")
    private static MemorySegment memory(long address, long bytes) {
        return MemorySegment.ofAddress(address).reinterpret(bytes);
    }

    /** Throws the error of the previous call, if it failed. */
    private static void check() {
        if (BACKEND == Backend.FFM && FAILED.get(ValueLayout.JAVA_LONG, 0) != 0) {
            Native.foreignThrow();
        }
    }

    /** Rethrows what a method handle threw, whose declaration allows any {@code Throwable}. */
    private static RuntimeException thrown(Throwable thrown) {
        if (thrown instanceof Error error) {
            throw error;
        }
        return thrown instanceof RuntimeException known ? known : new IllegalStateException(thrown);
    }

    static long ledgerOutstanding() {
        try {
            long outstanding = (long) LEDGER_OUTSTANDING.invokeExact();
            check();
            return outstanding;
        } catch (Throwable thrown) {
            throw thrown(thrown);
        }
    }

    static void ledgerRead(long out) {
        try {
            LEDGER_READ.invokeExact(out);
            check();
        } catch (Throwable thrown) {
            throw thrown(thrown);
        }
    }

    static void tensorDescribe(long tensor, long out) {
        try {
            TENSOR_DESCRIBE.invokeExact(tensor, out);
            check();
        } catch (Throwable thrown) {
            throw thrown(thrown);
        }
    }

    static long tensorShare(long tensor) {
        return share(TENSOR_SHARE, tensor);
    }

    static long tensorExport(long tensor, long request, boolean legacy) {
        try {
            long exported = (long) TENSOR_EXPORT.invokeExact(tensor, request, legacy);
            check();
            return exported;
        } catch (Throwable thrown) {
            throw thrown(thrown);
        }
    }

    static long tensorMove(long tensor, long request, boolean legacy) {
        try {
            long exported = (long) TENSOR_MOVE.invokeExact(tensor, request, legacy);
            check();
            return exported;
        } catch (Throwable thrown) {
            throw thrown(thrown);
        }
    }

    static void batchDescribe(long batch, long out, long room) {
        try {
            BATCH_DESCRIBE.invokeExact(batch, out, room);
            check();
        } catch (Throwable thrown) {
            throw thrown(thrown);
        }
    }

    static long batchShare(long batch) {
        return share(BATCH_SHARE, batch);
    }

    static long schemaShare(long schema) {
        return share(SCHEMA_SHARE, schema);
    }

    private static long share(MethodHandle call, long handle) {
        try {
            long shared = (long) call.invokeExact(handle);
            check();
            return shared;
        } catch (Throwable thrown) {
            throw thrown(thrown);
        }
    }

    static long bufferAddress(ByteBuffer buffer) {
        if (!MemorySegment.ofBuffer(buffer).scope().isAlive()) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, "the ByteBuffer is of a memory segment whose arena is closed");
        }
        return BACKEND == Backend.FFM
                ? MemorySegment.ofBuffer(buffer).address() - buffer.position()
                : Native.bufferAddress(buffer);
    }

    static ByteBuffer view(long address, long bytes) {
        return BACKEND == Backend.FFM ? memory(address, bytes).asByteBuffer() : Native.view(address, bytes);
    }
}
