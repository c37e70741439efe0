package dev.devexchange;

import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;

/** An application in a class loader of its own, the first to use the library; it ends, and its loader is collected. */
final class ApplicationScenario {
    private ApplicationScenario() {}

    public static void main(String[] arguments) throws Exception {
        WeakReference<ClassLoader> gone = run();
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(2);
        while (gone.get() != null && System.nanoTime() < end) {
            System.gc();
            Thread.sleep(10);
        }
        System.out.println(gone.get() == null ? "the application is gone" : "the application is kept");
    }

    private static WeakReference<ClassLoader> run() throws Exception {
        Loader loader = new Loader();
        Class<?> type = loader.loadClass(Application.class.getName());
        Object application = type.getDeclaredConstructor().newInstance();
        Thread thread = new Thread((ThreadGroup) application, (Runnable) application);
        thread.setContextClassLoader(loader);
        thread.start();
        thread.join();
        return new WeakReference<>(loader);
    }

    /** Has its own copy of the application. Everything else is its parent's. */
    private static final class Loader extends ClassLoader {
        private Loader() {
            super(ApplicationScenario.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.equals(Application.class.getName())) {
                return super.loadClass(name, resolve);
            }
            try (InputStream file = getResourceAsStream(name.replace('.', '/') + ".class")) {
                byte[] bytes = file.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (IOException e) {
                throw new ClassNotFoundException(name, e);
            }
        }
    }

    /** Brings all threads of the library into being, from a thread in a group of its own. */
    public static final class Application extends ThreadGroup implements Runnable {
        private static final ThreadLocal<Application> INHERITED = new InheritableThreadLocal<>();

        /** Creates the application. */
        @SuppressWarnings("removal")
        public Application() {
            super("application");
            // Before JDK 19, the group above keeps a group until it is destroyed: now when its last thread ends.
            setDaemon(true);
        }

        @Override
        public void run() {
            INHERITED.set(this);
            Allocator allocator = request -> Allocation.of(room(request.bytes()), Application::released);
            try (MemoryManager manager = MemoryManager.of(allocator, Application::released);
                    Memory memory = manager.allocate(MemoryRequest.of(Device.CPU, 8))) {
                Tensor.create(memory.byteBuffer(), DType.INT8, new long[] {8}, null).close();
            }
        }

        private static void released() {}

        private static ByteBuffer room(long bytes) {
            return ByteBuffer.allocateDirect((int) bytes).order(ByteOrder.nativeOrder());
        }
    }
}
