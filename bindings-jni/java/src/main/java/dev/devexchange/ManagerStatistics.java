package dev.devexchange;

import java.nio.ByteBuffer;

/**
 * What a manager allocated and got back.
 *
 * @param bytes bytes in use now
 * @param peakBytes the most bytes that were in use at any time
 * @param allocations allocations in use now
 * @param totalAllocations allocations since the beginning
 * @param totalBytes bytes allocated since the beginning
 * @param refused requests that were refused for lack of memory
 */
public record ManagerStatistics(
        long bytes, long peakBytes, long allocations, long totalAllocations, long totalBytes, long refused) {
    static ManagerStatistics read(ByteBuffer record) {
        return new ManagerStatistics(
                record.getLong(Records.MANAGER_STATISTICS.at("bytes")),
                record.getLong(Records.MANAGER_STATISTICS.at("peak_bytes")),
                record.getLong(Records.MANAGER_STATISTICS.at("allocations")),
                record.getLong(Records.MANAGER_STATISTICS.at("total_allocations")),
                record.getLong(Records.MANAGER_STATISTICS.at("total_bytes")),
                record.getLong(Records.MANAGER_STATISTICS.at("refused")));
    }
}
