package dev.devexchange;

import java.nio.ByteBuffer;

/**
 * Counts of what this library has handed out and taken in.
 *
 * @param tensorExports DLPack tensors handed to consumers
 * @param tensorImports DLPack tensors taken from producers
 * @param batchExports Arrow arrays handed to consumers; a whole tree counts once
 * @param batchImports Arrow arrays taken from producers
 * @param schemaExports Arrow schemas handed to consumers
 * @param schemaImports Arrow schemas taken from producers
 * @param owners memory whose release must be reported: that of this side, and all memory that the library allocated
 * @param streamExports streams of Arrow arrays handed to consumers
 * @param streamImports streams of Arrow arrays taken from producers
 */
public record Ledger(
        Count tensorExports,
        Count tensorImports,
        Count batchExports,
        Count batchImports,
        Count schemaExports,
        Count schemaImports,
        Count owners,
        Count streamExports,
        Count streamImports) {

    /**
     * The numbers of one kind.
     *
     * @param total all since the library was loaded
     * @param live those not released yet
     */
    public record Count(long total, long live) {}

    static Ledger read(ByteBuffer record) {
        return new Ledger(
                count(record, "tensor_exports"),
                count(record, "tensor_imports"),
                count(record, "batch_exports"),
                count(record, "batch_imports"),
                count(record, "schema_exports"),
                count(record, "schema_imports"),
                count(record, "owners"),
                count(record, "stream_exports"),
                count(record, "stream_imports"));
    }

    private static Count count(ByteBuffer record, String member) {
        int at = Records.LEDGER.at(member);
        return new Count(
                record.getLong(at + Records.COUNT.at("total")), record.getLong(at + Records.COUNT.at("live")));
    }
}
