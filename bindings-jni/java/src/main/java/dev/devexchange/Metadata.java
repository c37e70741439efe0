package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Key-value metadata (C data interface, "metadata"): 32-bit counts and lengths in native order, then the bytes. */
final class Metadata {
    private Metadata() {}

    /** An unmodifiable copy of a user's pairs, in their order. */
    static Map<String, String> copy(Map<String, String> pairs) {
        if (pairs.isEmpty()) {
            return Map.of();
        }
        Map<String, String> copy = new LinkedHashMap<>();
        pairs.forEach((key, value) ->
                copy.put(Objects.requireNonNull(key, "key"), Objects.requireNonNull(value, "value")));
        return Collections.unmodifiableMap(copy);
    }

    /** Refuses half surrogate pairs, which UTF-8 cannot encode. */
    static void requireUnicode(Map<String, String> pairs) {
        pairs.forEach((key, value) -> {
            Field.requireUnicode(key, "metadata");
            Field.requireUnicode(value, "metadata");
        });
    }

    /** The block of these pairs; {@code context} begins the message of a refusal. */
    static byte[] block(Map<String, String> pairs, String context) {
        List<byte[]> parts = new ArrayList<>();
        long size = Integer.BYTES;
        for (Map.Entry<String, String> pair : pairs.entrySet()) {
            for (String part : List.of(pair.getKey(), pair.getValue())) {
                byte[] bytes = Field.encode(part, () -> new DevExchangeException(
                        Status.INVALID_TEXT,
                        context + "metadata " + Names.shown(part.replace("\0", "\\0")) + " is not valid Unicode"));
                parts.add(bytes);
                size += Integer.BYTES + bytes.length;
            }
        }
        if (size > Integer.MAX_VALUE) {
            throw new DevExchangeException(
                    Status.INVALID_METADATA, context + "metadata of " + size + " bytes is too large");
        }
        ByteBuffer block = ByteBuffer.allocate((int) size).order(ByteOrder.nativeOrder());
        block.putInt(pairs.size());
        parts.forEach(part -> block.putInt(part.length).put(part));
        return block.array();
    }

    /** The block of these pairs in off-heap memory; {@code null} if there are no pairs. */
    static Scratch offHeap(Map<String, String> pairs) {
        if (pairs.isEmpty()) {
            return null;
        }
        byte[] block = block(pairs, "");
        Scratch scratch = Scratch.of(block.length);
        scratch.buffer.put(0, block);
        return scratch;
    }

    /**
     * The pairs of a block that the core has checked; none for the address 0. Bytes that are not UTF-8 are replaced,
     * and the last value of a key wins.
     */
    static Map<String, String> read(long address) {
        long size = Native.metadataBytes(address);
        return size == 0 ? Map.of() : read(HostMemory.view(address, size));
    }

    /** Same as {@link #read(long)}, for a block in native order that is not empty. */
    static Map<String, String> read(ByteBuffer block) {
        Map<String, String> pairs = new LinkedHashMap<>();
        for (int left = block.getInt(); left > 0; left--) {
            pairs.put(text(block), text(block));
        }
        return Collections.unmodifiableMap(pairs);
    }

    private static String text(ByteBuffer block) {
        byte[] bytes = new byte[block.getInt()];
        block.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
