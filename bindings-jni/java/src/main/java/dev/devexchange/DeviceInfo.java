package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.UUID;

/**
 * The name of a device, and the size of its memory.
 *
 * @param name as reported by the driver; {@code host memory} for the CPU
 * @param uuid identifies the device in every process, whatever the order of devices there; zero for the CPU
 * @param freeBytes bytes of memory that are free now; −1 for the CPU
 * @param totalBytes bytes of memory in all; −1 for the CPU
 * @param driverVersion the driver's version in CUDA's form (12040 is 12.4); 0 for the CPU
 */
public record DeviceInfo(String name, UUID uuid, long freeBytes, long totalBytes, int driverVersion) {
    private static final int NAME = Records.DEVICE_INFO.at("name");
    private static final int UUID_BYTES = Records.DEVICE_INFO.at("uuid");
    private static final int FREE = Records.DEVICE_INFO.at("free_bytes");
    private static final int TOTAL = Records.DEVICE_INFO.at("total_bytes");
    private static final int VERSION = Records.DEVICE_INFO.at("driver_version");

    static DeviceInfo read(ByteBuffer record) {
        byte[] name = new byte[UUID_BYTES - NAME];
        record.get(NAME, name);
        int end = 0;
        while (name[end] != 0) {
            end++;
        }
        // The bytes are in the order in which a UUID is written.
        ByteBuffer uuid = record.duplicate().order(ByteOrder.BIG_ENDIAN);
        return new DeviceInfo(
                new String(name, 0, end, StandardCharsets.UTF_8),
                new UUID(uuid.getLong(UUID_BYTES), uuid.getLong(UUID_BYTES + Long.BYTES)),
                record.getLong(FREE),
                record.getLong(TOTAL),
                record.getInt(VERSION));
    }
}
