package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** How the native library is called: through JNI, or, on JDK 22 and newer and from the jar, without it. */
@ExtendWith(Check.class)
class BackendTest {
    private static final String EXPECTED = System.getProperty("devexchange.backend.expected");

    /** Prints which backend is used, after using a tensor and a batch, or why there is none. */
    static final class Main {
        public static void main(String[] args) {
            try {
                System.out.println(DevExchange.backend());
            } catch (ExceptionInInitializerError e) {
                System.out.println(e.getCause().getMessage());
                return;
            }
            try (Tensor tensor = Tensor.create(Direct.ints(1, 2), DType.INT32, new long[] {2}, null);
                    Tensor seen = Tensor.importDlpack(tensor.exportShare());
                    Batch batch = seen.toColumn("x", Copy.NEVER)) {
                System.out.println(seen.getLong(1) + batch.root().getInt(0));
                System.out.println(failsWhenCompiled(tensor.enter("BackendTest")));
                tensor.exit();
            }
        }
    }

    /** Returns the error of the first call that fails, once the compiler has compiled calls that never failed. */
    private static String failsWhenCompiled(long tensor) {
        for (int i = 0; i < 100_000; i++) {
            share(tensor);
        }
        try {
            share(0);
            return "nothing";
        } catch (DevExchangeException e) {
            return e.getMessage();
        }
    }

    private static void share(long tensor) {
        Native.release(Calls.tensorShare(tensor) | Handle.Kind.TENSOR.tag);
    }

    private static List<String> ask(String... options) throws IOException, InterruptedException {
        Jvm.End end = Jvm.run(List.of(options), Map.of(), Main.class);
        assertEquals(0, end.status(), end.output());
        return end.output().lines().toList();
    }

    @Test
    void theBackendIsTheBestThatThereIs() {
        assertEquals(EXPECTED, DevExchange.backend());
    }

    @Test
    void thePropertyAsksForOne() throws IOException, InterruptedException {
        assertEquals(List.of("jni", "3", "the tensor is closed"), ask("-Ddevexchange.backend=jni"));
        assertEquals(List.of(EXPECTED, "3", "the tensor is closed"), ask());
        assertEquals(
                List.of("devexchange.backend is \"unsafe\": it must be jni or ffm"),
                ask("-Ddevexchange.backend=unsafe"));
        List<String> ffm = ask("-Ddevexchange.backend=ffm");
        if (EXPECTED.equals("ffm")) {
            assertEquals(List.of("ffm", "3", "the tensor is closed"), ffm);
        } else {
            String refusal = "devexchange.backend is \"ffm\": that takes JDK 22 or newer";
            assertTrue(ffm.get(0).startsWith(refusal), ffm::toString);
        }
    }

    /** A call without JNI cannot throw; Java asks for its error afterwards. */
    @Test
    void whatFailsThrowsInTheThreadThatCalled() throws InterruptedException {
        long out = Scratch.get().address;
        refused(Status.CLOSED, () -> Calls.tensorDescribe(0, out), "the tensor is closed");
        refused(Status.CLOSED, () -> Calls.tensorShare(0), "the tensor is closed");
        refused(Status.CLOSED, () -> Calls.tensorExport(0, out, false), "the tensor is closed");
        refused(Status.CLOSED, () -> Calls.batchDescribe(0, out, 0), "the batch is closed");
        refused(Status.CLOSED, () -> Calls.batchShare(0), "the batch is closed");
        refused(Status.CLOSED, () -> Calls.schemaShare(0), "the schema is closed");
        Threads.start(1, DevExchange::outstanding).join();
        assertEquals(0, Check.outstanding());
    }

    /** As if the stack had run out before Java asked: the next call must not get the error. */
    @Test
    void whatNobodyAskedForIsNotTheErrorOfTheNextCall() throws Throwable {
        refused(Status.CLOSED, () -> Calls.tensorShare(0), "the tensor is closed");
        failUnasked();
        assertEquals(0, Check.outstanding());
    }

    /** Makes a call without JNI that fails, where there are such calls, and does not ask for its error. */
    private static void failUnasked() throws Throwable {
        if (EXPECTED.equals("ffm")) {
            java.lang.reflect.Field call = Calls.class.getDeclaredField("TENSOR_SHARE");
            call.setAccessible(true);
            assertEquals(0L, (long) ((MethodHandle) call.get(null)).invokeExact(0L));
        }
    }

    /** To ask takes a call of its own, so one failure must not make every later call ask. */
    @Test
    void nobodyAsksOnceAllErrorsAreThrown() throws InterruptedException {
        ByteBuffer kept = HostMemory.view(Native.foreignFailed(), Long.BYTES);
        refused(Status.CLOSED, () -> Calls.tensorShare(0), "the tensor is closed");
        assertEquals(0, kept.getLong(0));
        Threads ending = Threads.start(1, () -> {
            try {
                failUnasked();
            } catch (Throwable thrown) {
                throw new AssertionError(thrown);
            }
            assertEquals(EXPECTED.equals("ffm") ? 1 : 0, kept.getLong(0));
        });
        ending.join();
        Check.eventually(() -> kept.getLong(0) == 0);
    }

    /** The reference is accounted for even if an exception cannot say so. */
    @Test
    void aMoveSaysWhetherItTookTheReference() {
        Scratch scratch = Scratch.get();
        int taken = Records.DLPACK_REQUEST.size();
        try (Tensor tensor = Tensor.create(Direct.ints(1, 2), DType.INT32, new long[] {2}, null)) {
            long mine = Calls.tensorShare(tensor.enter("BackendTest"));
            tensor.exit();
            DlpackRequest.DEFAULT.withMaxVersion(0, 5).write(scratch.buffer);
            scratch.buffer.putLong(taken, 0);
            refused(Status.VERSION, () -> Calls.tensorMove(mine, scratch.address, false), "0.5");
            assertEquals(0, scratch.buffer.getLong(taken));
            DlpackRequest.DEFAULT.write(scratch.buffer);
            Dlpack.release(Calls.tensorMove(mine, scratch.address, false));
            assertEquals(1, scratch.buffer.getLong(taken));
        }
    }

    @Test
    void memoryIsSeenWhereItIs() {
        ByteBuffer buffer = ByteBuffer.allocateDirect(64).order(ByteOrder.nativeOrder()).putLong(8, 42).position(24);
        long address = Calls.bufferAddress(buffer);
        assertNotEquals(0, address);
        assertEquals(address, Native.bufferAddress(buffer));
        assertEquals(address, Calls.bufferAddress(buffer.asReadOnlyBuffer()));
        assertEquals(address + 24, Calls.bufferAddress(buffer.slice()));
        ByteBuffer view = Calls.view(address, 16).order(ByteOrder.nativeOrder());
        assertTrue(view.isDirect());
        assertEquals(16, view.capacity());
        assertEquals(42, view.putLong(0, 7).getLong(8));
        assertEquals(7, buffer.getLong(0));
        assertEquals(address, Native.bufferAddress(view));
    }

    /** By reflection, as these classes are compiled for JDK 17. */
    @Test
    @Tag("jar")
    void aBufferOfAClosedArenaIsRefused() throws ReflectiveOperationException {
        Class<?> arenas = Class.forName("java.lang.foreign.Arena");
        Object arena = arenas.getMethod("ofShared").invoke(null);
        Object segment = arenas.getMethod("allocate", long.class, long.class).invoke(arena, 8L, 8L);
        ByteBuffer buffer = (ByteBuffer) Class.forName("java.lang.foreign.MemorySegment")
                .getMethod("asByteBuffer")
                .invoke(segment);
        buffer.order(ByteOrder.nativeOrder());
        Tensor.create(buffer, DType.INT64, new long[] {1}, null).close();
        arenas.getMethod("close").invoke(arena);
        refused(
                Status.INVALID_ARGUMENT,
                () -> Tensor.create(buffer, DType.INT64, new long[] {1}, null),
                "arena is closed");
    }

    /** The native half does not check whether it is given a class or an object. */
    @Test
    void everyNativeMethodIsStatic() {
        int seen = 0;
        for (Method method : Native.class.getDeclaredMethods()) {
            if (Modifier.isNative(method.getModifiers())) {
                assertTrue(Modifier.isStatic(method.getModifiers()), method::toString);
                seen++;
            }
        }
        assertTrue(seen > 100, "only " + seen + " methods");
    }
}
