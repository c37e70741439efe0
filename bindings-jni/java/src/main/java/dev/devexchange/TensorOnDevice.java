package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;

/** The methods of a tensor that concern devices and their streams: copies, transfers, order. */
abstract class TensorOnDevice extends Held<Tensor, Description> {
    TensorOnDevice() {
        super(Handle.Kind.TENSOR);
    }

    /**
     * Copies the tensor to another device (or the same), in the order of a stream. This tensor may be closed at once:
     * its memory stays until the copy is done. The host waits for copies from or into host memory that is not
     * pinned. Such a copy is row-major, whatever the order of the elements; any other copy keeps the strides.
     *
     * @param target where to place the copy
     * @param stream a stream of this device or of the target; for a copy within host memory, any stream. {@code null}
     *     if the host is to copy by itself, without a driver: from host memory, also pinned or managed, whose data is
     *     ready, into host memory that is not pinned
     * @return the copy, with {@link Flags#IS_COPIED} and writable, which the caller closes; its data is ready for work
     *     that is queued on {@code stream} afterwards, without a stream ready at once
     * @throws DevExchangeException {@link Status#OUT_OF_MEMORY}, {@link Status#DEVICE}, {@link Status#DRIVER},
     *     {@link Status#UNSUPPORTED} if the stream is being captured, {@link Status#CLOSED}; without a stream, {@link
     *     Status#INVALID_STREAM} for a copy that takes one, {@link Status#NOT_READY}
     */
    public Tensor copyTo(Device target, DeviceStream stream) {
        long tensor = enter("Tensor.copyTo");
        try {
            long queue = DeviceStream.enterIfAny(stream, "Tensor.copyTo");
            try {
                return new Tensor().of(Native.tensorCopyTo(tensor, target.packed(), queue));
            } finally {
                DeviceStream.exitIfAny(stream);
            }
        } finally {
            exit();
        }
    }

    /**
     * Reads all elements into host memory, in row-major order, and waits for them.
     *
     * @param into a direct buffer in native byte order, whose remaining bytes are exactly those of the elements; its
     *     position does not change
     * @param stream the stream that the copy is queued on; {@code null} if the host is to read by itself, without a
     *     driver: from host memory, also pinned or managed, whose data is ready
     * @throws java.nio.ReadOnlyBufferException if the buffer is read-only
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer, another byte order or a wrong
     *     number of bytes, {@link Status#COPY_REQUIRED} if the elements do not lie compactly, {@link Status#DRIVER},
     *     {@link Status#CLOSED}; without a stream, {@link Status#INVALID_STREAM} for device memory, {@link
     *     Status#NOT_READY}
     */
    public void read(ByteBuffer into, DeviceStream stream) {
        if (into.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        transfer("Tensor.read", into, "into", stream, Native::tensorRead);
    }

    /**
     * Writes all elements from host memory, in row-major order, and waits until they are written. Nobody else may use
     * the elements meanwhile.
     *
     * @param from a direct buffer in native byte order, whose remaining bytes are exactly those of the elements; its
     *     position does not change
     * @param stream the stream that the copy is queued on; {@code null} as in {@link #read}
     * @throws DevExchangeException also {@link Status#READ_ONLY}; otherwise as {@link #read}
     */
    public void write(ByteBuffer from, DeviceStream stream) {
        transfer("Tensor.write", from, "from", stream, Native::tensorWrite);
    }

    private interface Transfer {
        void apply(long tensor, long host, long bytes, long stream);
    }

    private void transfer(String method, ByteBuffer buffer, String name, DeviceStream stream, Transfer transfer) {
        long host = HostMemory.address(buffer, name);
        try {
            long tensor = enter(method);
            try {
                long queue = DeviceStream.enterIfAny(stream, method);
                try {
                    transfer.apply(tensor, host, buffer.remaining(), queue);
                } finally {
                    DeviceStream.exitIfAny(stream);
                }
            } finally {
                exit();
            }
        } finally {
            Reference.reachabilityFence(buffer);
        }
    }

    /**
     * Asks the driver whether all of the memory is where the tensor says, which no description can prove. Memory of
     * the CPU is not checked; pinned and managed memory is.
     *
     * @throws DevExchangeException {@link Status#DEVICE} if it is not, {@link Status#DRIVER}, {@link Status#CLOSED}
     */
    public void checkPointers() {
        long tensor = enter("Tensor.checkPointers");
        try {
            Native.tensorCheckPointers(tensor);
        } finally {
            exit();
        }
    }

    /**
     * Makes a stream wait, on the device, until the data of the tensor may be touched. The host does not wait.
     *
     * @param stream the stream that work with the data will be queued on
     * @throws DevExchangeException {@link Status#DEVICE} if the tensor is not on a device with streams,
     *     {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if the stream is being captured and would have to wait for
     *     work outside the capture, {@link Status#CLOSED}
     */
    public void waitOn(DeviceStream stream) {
        order("Tensor.waitOn", stream, Native::tensorWaitOn);
    }

    /**
     * Notes that work already queued on a stream uses the tensor: its memory is released only when that work is done,
     * however early the tensor is closed. May be called from any thread and for any number of streams.
     *
     * @param stream the stream that the work is queued on
     * @throws DevExchangeException {@link Status#DEVICE} if the tensor is not on a device with streams,
     *     {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if the stream is being captured, {@link Status#CLOSED}
     */
    public void usedOn(DeviceStream stream) {
        order("Tensor.usedOn", stream, Native::tensorUsedOn);
    }

    /**
     * Notes that the data is ready when the work already queued on a stream is done. This is for work on another stream
     * than the one that the tensor was made on, which is the legacy default stream if no other was named, and for work
     * on any stream if this library has allocated pinned or managed memory, which counts as ready at once. Must be
     * called before the tensor is shared, exported or used by other threads. Memory that is given back in the order of
     * another stream is given back only after that work, too.
     *
     * @param stream the stream that fills the memory
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} if the tensor is shared already or used by another
     *     thread, {@link Status#DEVICE} if it is not on a device with streams; for memory that is given back in the
     *     order of another stream, {@link Status#UNSUPPORTED} if the stream is being captured; {@link Status#CLOSED}
     */
    public void producedOn(DeviceStream stream) {
        orderAlone("Tensor.producedOn", stream, Native::tensorProducedOn);
    }
}
