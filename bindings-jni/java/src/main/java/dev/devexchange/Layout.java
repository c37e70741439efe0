package dev.devexchange;

/**
 * How the values of a column lie in its buffers, as its format string says. The native library has checked the string,
 * so this only tells apart what is known to be there.
 *
 * @param kind what a row is
 * @param width bytes of a value ({@code FIXED}) or of an offset ({@code TEXT}, {@code BYTES}), otherwise 0
 * @param element how numbers are read ({@code NUMBER}), otherwise null
 */
record Layout(Kind kind, int width, Element element) {
    enum Kind {
        NULL,
        BOOL,
        /** Numbers, and dates and times as the integers that they are stored as. */
        NUMBER,
        TEXT,
        BYTES,
        /** Values of a fixed number of bytes that Java has no number for. */
        FIXED,
        STRUCT,
        LIST
    }

    static Layout of(String format) {
        return switch (format) {
            case "n" -> new Layout(Kind.NULL, 0, null);
            case "b" -> new Layout(Kind.BOOL, 0, null);
            case "c" -> number(Element.INT8);
            case "C" -> number(Element.UINT8);
            case "s" -> number(Element.INT16);
            case "S" -> number(Element.UINT16);
            case "i", "tdD", "tts", "ttm", "tiM" -> number(Element.INT32);
            case "I" -> number(Element.UINT32);
            case "l", "tdm", "ttu", "ttn", "tDs", "tDm", "tDu", "tDn" -> number(Element.INT64);
            case "L" -> number(Element.UINT64);
            case "e" -> number(Element.FLOAT16);
            case "f" -> number(Element.FLOAT32);
            case "g" -> number(Element.FLOAT64);
            case "u" -> new Layout(Kind.TEXT, 4, null);
            case "U" -> new Layout(Kind.TEXT, 8, null);
            case "z" -> new Layout(Kind.BYTES, 4, null);
            case "Z" -> new Layout(Kind.BYTES, 8, null);
            case "+s" -> new Layout(Kind.STRUCT, 0, null);
            case "tiD" -> fixed(8);
            case "tin" -> fixed(16);
            default -> parametric(format);
        };
    }

    private static Layout parametric(String format) {
        if (format.startsWith("ts")) {
            return number(Element.INT64);
        }
        if (format.startsWith("w:")) {
            return fixed(Integer.parseInt(format.substring(2)));
        }
        if (format.startsWith("d:")) {
            String[] parameters = format.substring(2).split(",");
            return fixed(parameters.length < 3 ? 16 : Integer.parseInt(parameters[2]) / 8);
        }
        return new Layout(Kind.LIST, 0, null);
    }

    private static Layout number(Element element) {
        return new Layout(Kind.NUMBER, element.width, element);
    }

    private static Layout fixed(int bytes) {
        return new Layout(Kind.FIXED, bytes, null);
    }
}
