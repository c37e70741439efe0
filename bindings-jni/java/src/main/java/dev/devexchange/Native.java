package dev.devexchange;

import java.nio.ByteBuffer;

/**
 * The native methods, defined in {@code bindings-jni/src}. Handles are those of {@link Handle}; a caller must be
 * between {@code enter} and {@code exit} of each handle that it passes. Parameters named {@code out}, {@code column},
 * {@code request} and so on are addresses of records ({@link Records}). A {@code device} is the number of its type in
 * the lower 32 bits and its id in the upper ones; a {@code stream} is a handle, or 0. A method that fails throws a
 * {@link DevExchangeException}.
 */
final class Native {
    static {
        NativeLibrary.load();
    }

    private Native() {}

    // library.rs

    static native String version();

    static native String statusName(int status);

    static native String deviceTypeName(int deviceType);

    static native String dtypeName(int code, int bits, int lanes);

    static native String typeName(String format);

    static native boolean tracing();

    /** Panics, for the tests of what becomes of a panic. */
    static native void panic(String text);

    // memory.rs

    static native long bufferAddress(ByteBuffer buffer);

    static native ByteBuffer view(long address, long bytes);

    static native String text(long address);

    static native long metadataBytes(long address);

    // ledger.rs

    static native void ledgerRead(long out);

    static native long ledgerOutstanding();

    // native.rs

    static native long foreignFailed();

    static native void foreignThrow();

    // release.rs

    static native void release(long token);

    static native void giveUp(long token);

    // queue.rs

    static native void queuePush(long token);

    static native int queueWait(boolean events, long tokens, int capacity);

    // device.rs

    static native int deviceCount(int deviceType);

    static native void deviceInfo(long device, long out);

    static native long releasesWaiting();

    static native long releasesLost();

    // stream.rs

    static native long streamCreate(long device);

    static native long streamOf(long device, long value);

    static native long streamValue(long stream);

    static native long streamNumber(long stream);

    static native long streamHold(long value);

    static native void streamLetGo(long hold);

    static native void streamSynchronize(long stream);

    // order.rs

    static native void tensorProducedOn(long tensor, long stream);

    static native void tensorWaitOn(long tensor, long stream);

    static native void tensorUsedOn(long tensor, long stream);

    static native void batchProducedOn(long batch, long stream);

    static native void batchWaitOn(long batch, long stream);

    static native void batchUsedOn(long batch, long stream);

    // tensor.rs

    static native long tensorCreate(long description, long flags, long before, long room, long token);

    static native long tensorAllocate(long description, long stream);

    static native void tensorDescribe(long tensor, long out);

    static native void tensorRequireHost(long tensor);

    static native long tensorShare(long tensor);

    static native long tensorSlice(long tensor, int dimension, long offset, long length);

    static native long tensorCopy(long tensor);

    static native long tensorCopyTo(long tensor, long device, long stream);

    static native void tensorRead(long tensor, long into, long bytes, long stream);

    static native void tensorWrite(long tensor, long source, long bytes, long stream);

    static native void tensorCheckPointers(long tensor);

    // dlpack.rs

    static native long tensorImport(long source, boolean legacy);

    static native long tensorImportOn(long source, long stream, boolean legacy);

    static native long tensorExport(long tensor, long request, boolean legacy);

    /** Takes the reference, unless the move is refused; writes 1 or 0 to the long behind the request accordingly. */
    static native long tensorMove(long tensor, long request, boolean legacy);

    static native void dlpackRelease(long source, boolean legacy);

    // convert.rs

    static native void columnPlanTensor(long batch, long column, long out);

    static native long columnToTensor(long batch, long column, int copy);

    static native void tensorPlanColumn(long tensor, long out);

    static native long tensorToColumn(long tensor, String name, int copy);

    static native void tensorPlanFixedShapeColumn(long tensor, long out);

    static native long tensorToFixedShapeColumn(long tensor, String name, int copy);

    static native void tensorPlanBatch(long tensor, long out);

    static native long tensorToBatch(long tensor, String names, int count, int copy);

    static native void batchPlanMatrix(long batch, long out);

    static native long batchToMatrix(long batch, int copy, long stream);

    // schema.rs

    static native long schemaCreate(long fields, long count);

    static native long schemaImport(long source);

    static native void schemaExport(long schema, long out);

    static native long schemaShare(long schema);

    static native long schemaFields(long schema, long out, long room);

    // batch.rs

    static native long batchCreate(long schema, long device, long nodes, long count, long token);

    static native long batchOfColumns(long columns, long count, long stream);

    static native long batchImport(long source, long schema, boolean device);

    static native long batchImportBoth(long source, long schemaSource, boolean device);

    static native long batchCopy(long batch);

    static native long batchCopyTo(long batch, long device, long stream);

    static native long batchShare(long batch);

    static native void batchExport(long batch, long out, boolean device);

    static native void batchDescribe(long batch, long out, long room);

    static native void batchRequireHost(long batch);

    static native long batchSchema(long batch);

    static native void batchCheckPointers(long batch);

    // batch_stream.rs

    static native long batchStreamCreate(long schema, int deviceType, long token);

    /** Takes the reference to the batch. */
    static native void sourceAnswer(long token, long batch);

    static native void sourceFail(long token, int status, int driverCode, String text);

    static native long batchStreamImport(long source, boolean device);

    static native long batchStreamSchema(long stream);

    static native int batchStreamDeviceType(long stream);

    static native long batchStreamNext(long stream);

    static native void batchStreamExport(long stream, long out, boolean device);

    // async_reader.rs

    static native long asyncReaderCreate(boolean abiHMetadata, long token);

    static native long asyncReaderHandler(long reader);

    static native void asyncReaderRequest(long reader, long n);

    static native void asyncReaderCancel(long reader);

    static native long asyncReaderSchema(long reader, long out);

    static native int asyncReaderNext(long reader, long out);

    static native void asyncReaderError(long reader, long out);

    // async_writer.rs

    static native long asyncWriterCreate(long handler, int deviceType, long metadata, long token);

    static native void asyncWriterStart(long writer, long schema);

    static native long asyncWriterDemand(long writer);

    static native boolean asyncWriterIsCancelled(long writer);

    static native void asyncWriterSend(long writer, long batch, long metadata);

    static native void asyncWriterFinish(long writer);

    static native void asyncWriterFail(long writer, int code, String text);

    // exit.rs

    static native void answersClose();

    // manager.rs

    static native long managerDriver();

    static native long managerManaged();

    static native long managerHostOnly();

    static native long managerPool(long limit, long keep, boolean shareable);

    static native long managerLimited(long inner, long limit);

    static native long managerCreate(long token);

    static native void managerInitialize(long manager, int deviceId);

    static native long managerAllocate(long manager, long request, long out);

    static native long tensorAllocateWith(long manager, long description, long stream);

    static native long managerPin(long manager, long request, long address, long token);

    static native void managerMemoryInfo(long manager, int deviceId, long out);

    static native void managerIpcHandle(long manager, long address, long out);

    static native void managerReset(long manager, int deviceId);

    static native void managerTrim(long manager, int deviceId, long keep);

    static native long managerDeferCleanup(long manager);

    static native void managerStatistics(long manager, long out);

    // allocator.rs

    static native long allocatorTake(long token, long out);

    static native void allocatorAnswer(long question, long first, long second, long token);

    static native void allocatorAnswerIpcHandle(long question, long record);

    static native void allocatorFail(long question, int status, int driverCode, String text);

    // cuda_array.rs

    static native void cudaArrayImport(long source, long request, boolean withMask, long out);

    static native void tensorExportCudaArray(long tensor, long request, long out);

    // ipc.rs

    static native long ipcServerBind(String address);

    static native void ipcServerOfferTensor(long server, String name, long tensor, int copy);

    static native void ipcServerOfferBatch(long server, String name, long batch, int copy);

    static native boolean ipcServerWithdraw(long server, String name);

    static native long ipcServerLeases(long server);

    static native long ipcClientConnect(String address, long timeout);

    static native long ipcClientImportTensor(long client, String name);

    static native long ipcClientImportBatch(long client, String name);

    static native long tensorAllocateShared(long description);

    static native void ipcPlanTensor(long tensor, long out);

    static native void ipcPlanBatch(long batch, long out);

    // column.rs

    static native long columnNullCount(long batch, long column);

    static native long columnNullCountOn(long batch, long column, long stream);

    static native long columnShare(long batch, long column);

    static native String columnText(long batch, long column, long row);

    // cstruct.rs

    static native long structCreate();

    static native void structRelease(long kind, long source);
}
