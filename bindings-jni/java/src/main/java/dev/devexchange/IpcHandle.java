package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * Lets another process open the allocation that contains an address ({@code cuIpcOpenMemHandle}).
 *
 * @param handle the driver's handle, {@value #HANDLE_BYTES} bytes
 * @param offset of the address, in bytes from the beginning of the allocation, which is what the handle opens
 * @param bytes the size of the allocation
 * @param deviceId the device that the allocation is on
 */
public record IpcHandle(byte[] handle, long offset, long bytes, int deviceId) {
    /** The number of bytes of a handle. */
    public static final int HANDLE_BYTES = 64;

    private static final int HANDLE = Records.IPC_HANDLE.at("handle");
    private static final int OFFSET = Records.IPC_HANDLE.at("offset");
    private static final int BYTES = Records.IPC_HANDLE.at("bytes");
    private static final int DEVICE_ID = Records.IPC_HANDLE.at("device_id");

    /**
     * Creates a handle. Checks only the length of the driver's handle.
     *
     * @param handle the driver's handle, which is copied
     * @param offset in bytes from the beginning of the allocation
     * @param bytes the size of the allocation
     * @param deviceId the device that the allocation is on
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for another length
     */
    public IpcHandle {
        if (handle.length != HANDLE_BYTES) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, "handle has " + handle.length + " bytes: it must have " + HANDLE_BYTES);
        }
        handle = handle.clone();
    }

    /** {@return a copy of the driver's handle} */
    @Override
    public byte[] handle() {
        return handle.clone();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof IpcHandle that
                && Arrays.equals(handle, that.handle)
                && offset == that.offset
                && bytes == that.bytes
                && deviceId == that.deviceId;
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(handle) * 31 + Long.hashCode(offset);
    }

    /** {@return the numbers, and the handle in hexadecimal digits} */
    @Override
    public String toString() {
        return "IpcHandle (" + HexFormat.of().formatHex(handle) + ", offset " + offset + " of " + bytes
                + " bytes on device " + deviceId + ")";
    }

    static IpcHandle read(ByteBuffer record) {
        byte[] handle = new byte[HANDLE_BYTES];
        record.get(HANDLE, handle);
        return new IpcHandle(handle, record.getLong(OFFSET), record.getLong(BYTES), record.getInt(DEVICE_ID));
    }

    void write(ByteBuffer record) {
        record.put(HANDLE, handle);
        record.putLong(OFFSET, offset);
        record.putLong(BYTES, bytes);
        record.putInt(DEVICE_ID, deviceId);
        record.putInt(Records.IPC_HANDLE.at("reserved"), 0);
    }
}
