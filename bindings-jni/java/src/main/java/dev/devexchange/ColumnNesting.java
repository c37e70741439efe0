package dev.devexchange;

/**
 * The columns below a column, and the places of the values of its rows: in a dictionary, a union or runs they are
 * stored elsewhere. The caller must be inside the batch.
 */
abstract class ColumnNesting extends ColumnRows {
    /** The children, then the dictionary; null until the first of them is asked for. */
    private volatile Column[] below;

    ColumnNesting(Batch batch, BatchTable table, int node, long offset, long length, Column whole) {
        super(batch, table, node, offset, length, whole);
    }

    /** The values of a row of lists. */
    final Column items(long row) {
        require(layout().kind().isList(), "a list");
        Column items = below(0);
        if (layout().kind() == Layout.Kind.FIXED_LIST) {
            return new Column(items, row * layout().width(), layout().width());
        }
        long start = buffers().offset(offset + row);
        long size;
        if (layout().kind() == Layout.Kind.LIST_VIEW) {
            size = buffers().size(offset + row);
            if (start < 0 || size < 0) {
                throw broken("row " + row + " has offset " + start + " and size " + size);
            }
        } else {
            long end = buffers().offset(offset + row + 1);
            if (start < 0 || end < start) {
                throw broken("the offsets of row " + row + " are " + start + " and " + end);
            }
            size = end - start;
        }
        if (start > items.length || size > items.length - start) {
            throw broken("row " + row + " is " + size + " values from " + start + " on of a child with length "
                    + items.length);
        }
        return new Column(items, start, size);
    }

    /** The value of any row, which may be null. */
    final Object object(long row) {
        if (isIndirect()) {
            Cell cell = follow(row);
            return cell == null ? null : Values.of(cell.column(), cell.row());
        }
        return isValid(row) ? Values.of(self(), row) : null;
    }

    /** The child at an index, or the dictionary at the index after the last child. */
    final Column below(int index) {
        Column[] all = below;
        if (all == null) {
            // One more, in case there is a dictionary.
            all = new Column[table.childCount(node) + 1];
            below = all;
        }
        Column column = all[index];
        if (column == null) {
            column = whole == null
                    ? new Column(batch, table, table.below(node) + index)
                    : partOf(whole.below(index));
            all[index] = column;
        }
        return column;
    }

    /** What this part sees of a column below the whole. */
    private Column partOf(Column column) {
        long start = offset - whole.offset;
        return switch (layout().kind()) {
            case STRUCT, SPARSE_UNION -> new Column(column, start, length);
            case FIXED_LIST -> new Column(column, start * layout().width(), length * layout().width());
            default -> column;
        };
    }

    final Column dictionaryColumn() {
        return below(table.childCount(node));
    }

    /** Whether the values are stored elsewhere. */
    final boolean isIndirect() {
        return is().dictionary() != null || layout().kind() == Layout.Kind.RUNS || layout().kind().isUnion();
    }

    /** Reads the value of a valid row of a column that holds values itself. */
    interface Reader<T> {
        T read(Column column, long row);
    }

    /** The value of a row; null for a null. Enters the batch by itself. */
    final <T> T read(String method, long row, Reader<T> reader) {
        batch.enter(method);
        try {
            requireRow(row);
            if (isIndirect()) {
                Cell cell = follow(row);
                return cell == null ? null : reader.read(cell.column(), cell.row());
            }
            return isValid(row) ? reader.read(self(), row) : null;
        } finally {
            batch.exit();
        }
    }

    /** Implements {@link Column#resolve}. Each step goes down in a tree whose depth was checked. */
    final Cell follow(long row) {
        Column column = self();
        long at = row;
        while (column.isValid(at)) {
            if (column.is().dictionary() != null) {
                at = column.index(at);
                column = column.dictionaryColumn();
            } else if (column.layout().kind() == Layout.Kind.RUNS) {
                at = column.runOf(at);
                column = column.below(1);
            } else if (column.layout().kind().isUnion()) {
                Cell chosen = column.chosen(at);
                at = chosen.row();
                column = chosen.column();
            } else {
                return new Cell(column, at);
            }
        }
        return null;
    }

    /** Same as {@link #follow}, but refuses a null. */
    final Cell value(long row) {
        requireRow(row);
        Cell cell = follow(row);
        if (cell == null) {
            throw isNullAt(row);
        }
        return cell;
    }

    /** The value of a row of a union. */
    final Cell chosen(long row) {
        int id = buffers().typeId(offset + row);
        int number = is().typeIds().indexOf(id);
        if (number < 0) {
            throw broken("row " + row + " has type id " + id + ": \"" + is().format() + "\" has none");
        }
        Column child = below(number);
        if (layout().kind() == Layout.Kind.SPARSE_UNION) {
            return new Cell(child, row);
        }
        int at = buffers().denseOffset(offset + row);
        if (at < 0 || at >= child.length) {
            throw broken("row " + row + " is offset " + at + " of child " + number + ", whose length is "
                    + child.length);
        }
        return new Cell(child, at);
    }

    /** The run of a row, found by binary search, because run ends increase. */
    final long runOf(long row) {
        Column ends = below(0);
        long low = 0;
        long high = ends.length;
        while (low < high) {
            long middle = (low + high) >>> 1;
            if (ends.integer(middle) <= offset + row) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low == ends.length) {
            throw broken(
                    "row " + row + " with offset " + offset + " is behind the end of all " + low + " runs");
        }
        return low;
    }

    /** The index into the dictionary. */
    final long index(long row) {
        long size = dictionaryColumn().length;
        long index = integer(row);
        if (index < 0 || index >= size) {
            String shown = layout().element() == Element.UINT64 ? Long.toUnsignedString(index) : Long.toString(index);
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE, named("row " + row + " is index " + shown + " of a dictionary of " + size));
        }
        return index;
    }
}
