/**
 * Tensors and Arrow record batches handed between the runtimes of one process, without a copy.
 *
 * <p>An exchange answers four questions: <b>what</b> it is ({@link dev.devexchange.DType}, shape and strides, {@link
 * dev.devexchange.Schema}), <b>where</b> it is ({@link dev.devexchange.Device}), <b>who</b> keeps it alive (a release
 * that is called exactly once) and <b>when</b> it may be touched (host memory: always; device memory: in the order of a
 * {@link dev.devexchange.DeviceStream}; the host never waits, except where a method says so). The classes that answer
 * them:
 * <ul>
 * <li>{@link dev.devexchange.Tensor} speaks DLPack and the CUDA Array Interface; a {@link dev.devexchange.CudaArray} is
 *     a tensor with a mask.
 * <li>{@link dev.devexchange.Batch} and {@link dev.devexchange.Schema} speak the Arrow C data and C device interfaces.
 *     A producer describes its own buffers with {@link dev.devexchange.ArrayBuilder}; a consumer reads a {@link
 *     dev.devexchange.Column}, whatever its type.
 * <li>{@link dev.devexchange.BatchStream} is a sequence of batches of one schema; {@link dev.devexchange.AsyncReader}
 *     and {@link dev.devexchange.AsyncWriter} are its non-blocking counterparts.
 * <li>Memory comes from a {@link dev.devexchange.MemoryManager}, which the program can implement itself ({@link
 *     dev.devexchange.Allocator}). It goes to other processes through {@link dev.devexchange.IpcServer} and {@link
 *     dev.devexchange.IpcClient}.
 * </ul>
 *
 * <p>Structs of those standards are passed as addresses ({@code long}), for example from Arrow Java's {@code
 * ArrowArray.memoryAddress()}; a {@link dev.devexchange.CStruct} can be passed itself.
 *
 * <p>Rules that hold everywhere:
 * <ul>
 * <li><b>Ownership.</b> Handles are {@code AutoCloseable}: close them, best with try-with-resources. Closing gives up
 *     one reference; the memory is released when its last user on either side is gone. A handle that is never closed is
 *     closed some time after the garbage collector finds it unreachable; {@code DEVEXCHANGE_TRACE=1} reports this on
 *     stderr. That can happen while the program still uses an address obtained from the handle: such an address is
 *     valid only as long as the handle is open and reachable, which a try-with-resources or a {@code
 *     Reference.reachabilityFence} ensures. A {@code ByteBuffer} keeps the handle that it was taken from reachable.
 * <li><b>Handing over.</b> <i>Share</i> keeps the handle and <i>move</i> closes it. <i>Borrow</i> gives a view (a
 *     {@link dev.devexchange.Column}, a {@code ByteBuffer}) that owns nothing and is valid until its source is closed.
 * <li><b>Import</b> takes its source only on success. If it fails, the source is untouched and the caller still owns
 *     it.
 * <li><b>Release callbacks</b> ({@code Runnable}) run once, on the thread {@code devexchange-releases}, never on the
 *     thread that gave up the memory, which may be unknown to the JVM. See {@link dev.devexchange.ReleaseQueue}.
 *     Callbacks, sources, allocators and everything that they refer to stay reachable until the library is done with
 *     them. As with {@code java.lang.ref.Cleaner}, none of them should refer to the tensor, batch, stream or manager
 *     that it belongs to: the garbage collector would never find that object, and only {@code close} would release it.
 * <li><b>Sources, allocators and subscribers</b> run on daemon threads {@code devexchange-worker-…}, subscribers also
 *     on an executor of the program, for the same reason. The context class loader of all these threads is the system
 *     class loader, and they inherit no thread-local values. A thread that asks Java for a batch or for memory waits
 *     for one of them; there are as many as threads wait. An exception there becomes the error of the thread that
 *     asked, with its text; {@code DEVEXCHANGE_TRACE=1} shows its origin on stderr. An exception of a source is also the
 *     cause of that error, unless its stream was exported.
 * <li><b>Virtual threads</b> leave their carrier while they pull from a {@link dev.devexchange.BatchStream}, ask a
 *     manager that is implemented in Java, or wait for an exporter ({@link dev.devexchange.IpcClient}): a thread {@code
 *     devexchange-worker-…} makes the call for them. All other native calls hold the carrier, also those that wait for
 *     a device. So does native code that they call and that waits for a batch or for memory from Java: a source or an
 *     allocator for such code must not need a virtual thread. Each thread that has used this library, virtual or not,
 *     keeps 4 KiB of direct memory or more until it ends; then 4 KiB go to another thread. Where very many virtual
 *     threads live at once, let a few of them make the calls to this library.
 * <li><b>Devices.</b> CUDA is not needed until a call works with a CUDA device; without a driver, such a call fails
 *     with {@link dev.devexchange.Status#DEVICE}. Device memory is released only after the queued work that {@link
 *     dev.devexchange.Tensor#usedOn} was told about.
 * <li><b>Errors</b> are {@link dev.devexchange.DevExchangeException}s with a status; the text names the field and its
 *     value. A {@code null} where an object is needed is a {@code NullPointerException}. A call that runs out of memory
 *     takes nothing. A call that runs out of stack can leak: a {@code StackOverflowError} can come after the native
 *     half has made something that Java does not hold yet, which then stays until the process ends, or between the
 *     beginning and the end of a use of a handle, which then is never released; a call that waits for the end of that
 *     use ({@link dev.devexchange.CStruct#release}) waits for ever.
 * <li><b>Class loaders.</b> Once this library has been used, the class loader that loaded it stays until the JVM exits,
 *     with all that it has loaded: the library's threads and everything registered with them refer to it. Where
 *     applications come and go in one JVM, put the jar where the loader stays, for example in the server's directory
 *     for shared libraries, not into each application. There, an application that has closed what it made is not kept.
 * <li><b>JNI or not.</b> On JDK 22 and newer, frequent calls that neither wait nor call back go through the foreign
 *     function interface ({@link dev.devexchange.DevExchange#backend}). There is no other difference.
 * <li><b>Threads.</b> Everything may be used from any thread. Closing while another thread is inside a call is safe:
 *     that call ends as if it had come first. Only {@code ByteBuffer}s are not guarded; they must not be used after the
 *     handle that they came from is closed. An interrupt ends only calls that throw {@code InterruptedException}: a
 *     thread that waits for a source or an allocator written in Java goes on waiting, and stays interrupted. Every call
 *     counts itself in and out of its handle, so threads that make many short calls, such as reads of single values,
 *     are faster with a handle each ({@link dev.devexchange.Batch#share}, {@link dev.devexchange.Tensor#share}).
 * </ul>
 */
package dev.devexchange;
