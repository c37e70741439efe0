package dev.devexchange;

import java.nio.ByteBuffer;

/**
 * How much memory a manager has.
 *
 * @param freeBytes bytes that can still be allocated
 * @param totalBytes bytes in all
 */
public record MemoryInfo(long freeBytes, long totalBytes) {
    static MemoryInfo read(ByteBuffer record) {
        return new MemoryInfo(
                record.getLong(Records.MEMORY_INFO.at("free_bytes")),
                record.getLong(Records.MEMORY_INFO.at("total_bytes")));
    }
}
