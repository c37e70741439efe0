/**
 * Tensors and Arrow record batches handed between the runtimes of one process, without a copy.
 *
 * <p>An exchange answers four questions: <b>what</b> it is ({@link dev.devexchange.DType}, shape and strides,
 * {@link dev.devexchange.Schema}), <b>where</b> it is ({@link dev.devexchange.Device}), <b>who</b> keeps it alive (a
 * release that is called exactly once) and <b>when</b> it may be touched (host memory: always; device memory: in the
 * order of a {@link dev.devexchange.DeviceStream}; the host never waits, except where a method says so).
 * {@link dev.devexchange.Tensor} speaks DLPack and the CUDA Array Interface ({@link dev.devexchange.CudaArray} is one
 * with a mask), {@link dev.devexchange.Batch} and {@link dev.devexchange.Schema} speak the Arrow C data and C device
 * interfaces; structs of those standards are passed as addresses ({@code long}), for example those of Arrow Java's
 * {@code ArrowArray.memoryAddress()} or of {@link dev.devexchange.CStruct}. A producer describes buffers of its own with
 * {@link dev.devexchange.ArrayBuilder}; a consumer reads a {@link dev.devexchange.Column}, whatever its type.
 * {@link dev.devexchange.BatchStream} is many batches of one schema, one after the other;
 * {@link dev.devexchange.AsyncReader} and {@link dev.devexchange.AsyncWriter} are that for those who do not wait. Memory
 * comes from a {@link dev.devexchange.MemoryManager}, which may be the program's own
 * ({@link dev.devexchange.Allocator}), and goes to other processes through {@link dev.devexchange.IpcServer} and
 * {@link dev.devexchange.IpcClient}.
 *
 * <p>Rules that hold everywhere:
 * <ul>
 * <li><b>Ownership.</b> Handles are {@code AutoCloseable}: close them, best with try-with-resources. Closing gives up
 *     one reference; memory is released when the last user is gone, on either side. A handle that is never closed is
 *     found by the garbage collector, some time; {@code DEVEXCHANGE_TRACE=1} says so on stderr. It finds a handle that
 *     the program does not use any more, also while an address of it is in use: those are valid as long as the handle
 *     is open and reachable, which a try-with-resources sees to, or a {@code Reference.reachabilityFence}.
 *     A {@code ByteBuffer} keeps the handle that it was taken from reachable.
 * <li><b>Handing over.</b> <i>Share</i> keeps the handle, <i>move</i> closes it, <i>borrow</i> (a {@link
 *     dev.devexchange.Column}, a {@code ByteBuffer}) is a view that owns nothing and ends when what it was taken from
 *     is closed.
 * <li><b>Import</b> takes its source only on success. If it fails, the source is untouched and still the caller's.
 * <li><b>Release callbacks</b> ({@code Runnable}) run once, on the thread {@code devexchange-releases}: never on the
 *     thread that gave up the memory, which may be one that the JVM has never seen. See
 *     {@link dev.devexchange.ReleaseQueue}. A callback, a source, an allocator and what those refer to stay reachable
 *     until the library is done with them. As with {@code java.lang.ref.Cleaner}: if they refer to the tensor, batch,
 *     stream or manager that they belong to, the garbage collector never finds that one, and only closing helps.
 * <li><b>Sources, allocators and subscribers</b> run on daemon threads {@code devexchange-worker-…}, subscribers also on
 *     an executor of the user's, for the same reason: whoever asks for a batch or for memory of Java's waits for one of
 *     those threads, and what they throw is the error of whoever asked, with its text; {@code DEVEXCHANGE_TRACE=1} shows
 *     where it came from on stderr. What a source throws is also the cause of that error, if its stream was not
 *     exported.
 * <li><b>Virtual threads</b> that pull at a {@link dev.devexchange.BatchStream}, ask a manager of Java's or wait for an
 *     exporter ({@link dev.devexchange.IpcClient}) leave their carrier: a thread {@code devexchange-worker-…} makes the
 *     call for them. Native code that they call, and that does the same, keeps the carrier until it has its answer; so
 *     a source or an allocator for such code must not need a virtual thread. Each thread that has used this library keeps
 *     4 KiB of direct memory or more until it ends, a virtual one too: where very many of them live at once, let a few
 *     do what is done here.
 * <li><b>Devices.</b> Nothing of CUDA is needed until a device is named; without a driver that is a clear error
 *     ({@link dev.devexchange.Status#DEVICE}). Device memory that queued work uses is released after that work, once
 *     {@link dev.devexchange.Tensor#usedOn} was told of it.
 * <li><b>Errors</b> are {@link dev.devexchange.DevExchangeException}s with a status; the text names the field and its
 *     value. A {@code null} where an object is needed is a {@code NullPointerException}. A call without memory takes
 *     nothing. A thread without stack may: a {@code StackOverflowError} within a call can come when the native half has
 *     made something and Java does not hold it yet, which then stays until the process ends, or when a use of a handle
 *     has begun and not ended, which then is never released.
 * <li><b>Class loaders.</b> A class loader whose classes of this library were used stays until the JVM exits, with all
 *     that it has loaded: the library's threads and what is registered with them hold it. Where applications come and
 *     go in one JVM, the jar belongs where the loader stays, in the directory for shared libraries of the server for
 *     example, and not into each application.
 * <li><b>JNI or not.</b> On JDK 22 and newer, frequent calls that neither wait nor call anybody go through the foreign
 *     function interface ({@link dev.devexchange.DevExchange#backend}). Nothing else is different.
 * <li><b>Threads.</b> Everything may be used from any thread. Closing while another thread is inside a call is safe:
 *     that call ends as if it had come first. Only {@code ByteBuffer}s are not guarded; they are not to be used after
 *     the handle that they came from is closed. An interrupt ends no call but those that throw {@code
 *     InterruptedException}: who waits for a source or an allocator of Java's goes on waiting, and stays interrupted.
 * </ul>
 */
package dev.devexchange;
