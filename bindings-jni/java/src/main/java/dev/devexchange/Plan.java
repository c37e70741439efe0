package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/**
 * Says how a conversion or an offer can be done, before anything is taken.
 *
 * @param kind how it can be done
 * @param copyBytes the number of bytes that a copy would write; 0 for a view
 * @param reason why a view is not possible; empty for a view
 */
public record Plan(Kind kind, long copyBytes, String reason) {
    /** How a conversion can be done. */
    public enum Kind {
        /** The same memory, seen differently. */
        VIEW,
        /** Only with a copy. */
        COPY,
        /** Not at all. */
        IMPOSSIBLE
    }

    /**
     * Creates a plan. Checks only that {@code kind} and {@code reason} are not null.
     *
     * @param kind how it can be done
     * @param copyBytes the number of bytes that a copy would write
     * @param reason why a view is not possible
     */
    public Plan {
        Objects.requireNonNull(kind, "kind");
        Objects.requireNonNull(reason, "reason");
    }

    static Plan read(ByteBuffer record, int at) {
        byte[] reason = new byte[Records.PLAN.size() - Records.PLAN.at("reason")];
        record.get(at + Records.PLAN.at("reason"), reason);
        int end = 0;
        while (end < reason.length && reason[end] != 0) {
            end++;
        }
        return new Plan(
                Kind.values()[record.getInt(at + Records.PLAN.at("kind"))],
                record.getLong(at + Records.PLAN.at("copy_bytes")),
                new String(reason, 0, end, StandardCharsets.UTF_8));
    }

    /**
     * {@return the plan in words, for example {@code copy of 12 bytes: bools are bits in Arrow and bytes in DLPack}}
     */
    @Override
    public String toString() {
        return switch (kind) {
            case VIEW -> "view";
            case COPY -> "copy of " + copyBytes + " bytes: " + reason;
            case IMPOSSIBLE -> "impossible: " + reason;
        };
    }
}
