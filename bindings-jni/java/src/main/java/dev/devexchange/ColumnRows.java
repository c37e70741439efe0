package dev.devexchange;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * The rows of one array that a column sees, and their values in the buffers. The caller must be inside the batch, and
 * must read values of valid rows only.
 */
abstract class ColumnRows {
    private static final long NANOS_OF_MILLI = 1_000_000;

    /** The most bytes of a text that an error shows. */
    private static final int MOST_SHOWN = 256;

    final Batch batch;
    final BatchTable table;
    final int node;
    final long offset;
    final long length;

    /** The column that this is a part of; null if it is not a part. */
    final Column whole;

    // Filled when first asked for: a column is often made only for one address.

    private volatile Field field;
    private volatile Buffers buffers;

    ColumnRows(Batch batch, BatchTable table, int node, long offset, long length, Column whole) {
        this.batch = batch;
        this.table = table;
        this.node = node;
        this.offset = offset;
        this.length = length;
        this.whole = whole;
    }

    /** This object as a {@link Column}. */
    abstract Column self();

    /** The field, which says what the values are. */
    final Field is() {
        Field known = field;
        if (known == null) {
            known = batch.field(node);
            field = known;
        }
        return known;
    }

    final Buffers buffers() {
        Buffers known = buffers;
        if (known == null) {
            known = table.buffers(batch, node);
            if (table.ready) {
                buffers = known;
            }
        }
        return known;
    }

    final Layout layout() {
        return is().layout();
    }

    final List<Field> fields() {
        return is().children();
    }

    final long rows() {
        return length;
    }

    final boolean hasZone() {
        return is().hasTimeZone();
    }

    final boolean bit(long row) {
        return buffers().bit(offset + row);
    }

    /** Reads as {@link Element#readLong} does. */
    final long integer(long row) {
        return buffers().integer(offset + row);
    }

    final double floating(long row) {
        return buffers().floating(offset + row);
    }

    final byte[] bytes(long row) {
        if (layout().isFixed()) {
            return buffers().fixed(offset + row);
        }
        return switch (layout().kind()) {
            case TEXT, BYTES, TEXT_VIEW, BYTES_VIEW -> buffers().bytes(offset + row, row);
            default -> throw mismatch("bytes");
        };
    }

    final String text(long row) {
        require(layout().kind().isText(), "text");
        return decode(buffers().bytes(offset + row, row), row);
    }

    final BigDecimal decimal(long row) {
        require(layout().meaning() == Layout.Meaning.DECIMAL, "a decimal");
        int scale = (int) layout().parameter();
        Buffers buffers = buffers();
        return buffers.fitsLong(offset + row)
                ? BigDecimal.valueOf(buffers.asLong(offset + row), scale)
                : new BigDecimal(Values.integer(buffers.fixed(offset + row)), scale);
    }

    final Interval interval(long row) {
        long at = offset + row;
        return switch (layout().meaning()) {
            case MONTHS -> new Interval(buffers().word(at, 0), 0, 0);
            case DAY_TIME -> new Interval(0, buffers().word(at, 0), buffers().word(at, 4) * NANOS_OF_MILLI);
            case MONTH_DAY_NANO ->
                new Interval(buffers().word(at, 0), buffers().word(at, 4), buffers().longWord(at, 8));
            default -> throw mismatch("an interval");
        };
    }

    final long integer(Layout.Meaning meaning, long row, String wanted) {
        require(layout().meaning() == meaning, wanted);
        return integer(row);
    }

    final long timestamp(long row, boolean zone) {
        boolean fits = layout().meaning() == Layout.Meaning.TIMESTAMP && hasZone() == zone;
        require(fits, zone ? "a timestamp with a time zone" : "a timestamp without a time zone");
        return integer(row);
    }

    final boolean isValid(long row) {
        return buffers().isValid(offset + row);
    }

    /** A message that names the column. */
    final String named(String what) {
        return "column " + Names.shown(is().name()) + ": " + what;
    }

    final DevExchangeException broken(String what) {
        return new DevExchangeException(Status.INVALID_BUFFERS, named(what));
    }

    final void requireRow(long row) {
        if (row < 0 || row >= length) {
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE, named("row is " + row + ": the column has " + length));
        }
    }

    final void requireValue(long row) {
        requireRow(row);
        if (!isValid(row)) {
            throw isNullAt(row);
        }
    }

    final DevExchangeException isNullAt(long row) {
        return new DevExchangeException(
                Status.INVALID_ARGUMENT, "row " + row + " of column " + Names.shown(is().name()) + " is null");
    }

    final void require(boolean fits, String wanted) {
        if (!fits) {
            throw mismatch(wanted);
        }
    }

    private DevExchangeException mismatch(String wanted) {
        return new DevExchangeException(
                Status.MISMATCH,
                "the values of column " + Names.shown(is().name()) + " have format " + is().format() + " ("
                        + is().typeName() + "): not " + wanted);
    }

    private String decode(byte[] bytes, long row) {
        String text = new String(bytes, StandardCharsets.UTF_8);
        // Only a text that contains the replacement character can have been repaired.
        if (text.indexOf('\ufffd') >= 0) {
            try {
                StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes));
            } catch (CharacterCodingException e) {
                String shown = new String(bytes, 0, Math.min(bytes.length, MOST_SHOWN), StandardCharsets.UTF_8);
                throw new DevExchangeException(
                        Status.INVALID_TEXT, named("row " + row + " is not valid UTF-8: \"" + shown + "\""));
            }
        }
        return text;
    }
}
