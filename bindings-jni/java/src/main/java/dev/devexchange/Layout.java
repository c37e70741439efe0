package dev.devexchange;

/**
 * The layout of the values of a column and their meaning, from its format string. The native library has checked the
 * string, so this only distinguishes valid formats.
 *
 * @param kind how a row lies in the buffers
 * @param width bytes of a value ({@code NUMBER}, {@code FIXED}), of an offset ({@code TEXT}, {@code BYTES},
 *     {@code LIST}, {@code LIST_VIEW}) or of a view; values of a {@code FIXED_LIST}; otherwise 0
 * @param element how numbers are read ({@code NUMBER}), otherwise null
 * @param meaning what a number or fixed number of bytes stands for
 * @param parameter the parameter of the meaning: nanoseconds of a unit, or digits after the point
 */
record Layout(Kind kind, int width, Element element, Meaning meaning, long parameter) {
    enum Kind {
        NULL,
        BOOL,
        /** Numbers, and dates and times as the integers that store them. */
        NUMBER,
        /** Values of a fixed number of bytes that no Java number can hold. */
        FIXED,
        TEXT,
        BYTES,
        TEXT_VIEW,
        BYTES_VIEW,
        STRUCT,
        LIST,
        LIST_VIEW,
        FIXED_LIST,
        MAP,
        SPARSE_UNION,
        DENSE_UNION,
        RUNS;

        boolean isText() {
            return this == TEXT || this == TEXT_VIEW;
        }

        boolean isView() {
            return this == TEXT_VIEW || this == BYTES_VIEW;
        }

        boolean isUnion() {
            return this == SPARSE_UNION || this == DENSE_UNION;
        }

        boolean isList() {
            return this == LIST || this == LIST_VIEW || this == FIXED_LIST || this == MAP;
        }

        /** Whether buffer 0 says which rows are valid. */
        boolean hasValidity() {
            return this != NULL && this != RUNS && !isUnion();
        }
    }

    enum Meaning {
        /** Just the number or the bytes. */
        PLAIN,
        DATE,
        TIME,
        TIMESTAMP,
        DURATION,
        /** Months, 32-bit. */
        MONTHS,
        /** Days and milliseconds, 32-bit each. */
        DAY_TIME,
        /** Months and days, 32-bit each, and nanoseconds, 64-bit. */
        MONTH_DAY_NANO,
        DECIMAL
    }

    private static final int VIEW_BYTES = 16;
    private static final long NANOS_OF_DAY = 86_400_000_000_000L;

    static Layout of(String format) {
        return switch (format) {
            case "n" -> of(Kind.NULL, 0);
            case "b" -> of(Kind.BOOL, 0);
            case "c" -> number(Element.INT8);
            case "C" -> number(Element.UINT8);
            case "s" -> number(Element.INT16);
            case "S" -> number(Element.UINT16);
            case "i" -> number(Element.INT32);
            case "I" -> number(Element.UINT32);
            case "l" -> number(Element.INT64);
            case "L" -> number(Element.UINT64);
            case "e" -> number(Element.FLOAT16);
            case "f" -> number(Element.FLOAT32);
            case "g" -> number(Element.FLOAT64);
            case "tdD" -> number(Element.INT32, Meaning.DATE, NANOS_OF_DAY);
            case "tdm" -> number(Element.INT64, Meaning.DATE, nanos('m'));
            case "tts", "ttm" -> number(Element.INT32, Meaning.TIME, nanos(format.charAt(2)));
            case "ttu", "ttn" -> number(Element.INT64, Meaning.TIME, nanos(format.charAt(2)));
            case "tDs", "tDm", "tDu", "tDn" -> number(Element.INT64, Meaning.DURATION, nanos(format.charAt(2)));
            case "tiM" -> number(Element.INT32, Meaning.MONTHS, 0);
            case "tiD" -> fixed(8, Meaning.DAY_TIME, 0);
            case "tin" -> fixed(16, Meaning.MONTH_DAY_NANO, 0);
            case "u" -> of(Kind.TEXT, Integer.BYTES);
            case "U" -> of(Kind.TEXT, Long.BYTES);
            case "z" -> of(Kind.BYTES, Integer.BYTES);
            case "Z" -> of(Kind.BYTES, Long.BYTES);
            case "vu" -> of(Kind.TEXT_VIEW, VIEW_BYTES);
            case "vz" -> of(Kind.BYTES_VIEW, VIEW_BYTES);
            case "+s" -> of(Kind.STRUCT, 0);
            case "+l" -> of(Kind.LIST, Integer.BYTES);
            case "+L" -> of(Kind.LIST, Long.BYTES);
            case "+vl" -> of(Kind.LIST_VIEW, Integer.BYTES);
            case "+vL" -> of(Kind.LIST_VIEW, Long.BYTES);
            case "+m" -> of(Kind.MAP, Integer.BYTES);
            case "+r" -> of(Kind.RUNS, 0);
            default -> parametric(format);
        };
    }

    private static Layout parametric(String format) {
        int colon = format.indexOf(':');
        String parameter = format.substring(colon + 1);
        return switch (format.substring(0, colon)) {
            case "w" -> fixed(Integer.parseInt(parameter), Meaning.PLAIN, 0);
            case "+w" -> of(Kind.FIXED_LIST, Integer.parseInt(parameter));
            case "+us" -> of(Kind.SPARSE_UNION, 0);
            case "+ud" -> of(Kind.DENSE_UNION, 0);
            case "d" -> decimal(parameter.split(","));
            // Only timestamps are left.
            default -> number(Element.INT64, Meaning.TIMESTAMP, nanos(format.charAt(2)));
        };
    }

    private static Layout decimal(String[] parameters) {
        int bits = parameters.length < 3 ? 128 : Integer.parseInt(parameters[2]);
        return fixed(bits / 8, Meaning.DECIMAL, Integer.parseInt(parameters[1]));
    }

    private static Layout number(Element element) {
        return number(element, Meaning.PLAIN, 0);
    }

    private static Layout number(Element element, Meaning meaning, long parameter) {
        return new Layout(Kind.NUMBER, element.width, element, meaning, parameter);
    }

    private static Layout fixed(int bytes, Meaning meaning, long parameter) {
        return new Layout(Kind.FIXED, bytes, null, meaning, parameter);
    }

    private static Layout of(Kind kind, int width) {
        return new Layout(kind, width, null, Meaning.PLAIN, 0);
    }

    /** The nanoseconds of a unit of a format string. */
    private static long nanos(char unit) {
        return switch (unit) {
            case 's' -> 1_000_000_000;
            case 'm' -> 1_000_000;
            case 'u' -> 1_000;
            default -> 1;
        };
    }

    /** Whether all values have the same number of bytes, {@link #width}. */
    boolean isFixed() {
        return kind == Kind.NUMBER || kind == Kind.FIXED;
    }
}
