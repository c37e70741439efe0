package dev.devexchange;

/**
 * The type of an element, in the terms of DLPack ({@code DLDataType}). Elements are in native byte order. The set of
 * codes is open; a call refuses a type that it cannot exchange.
 *
 * @param code kind of number, one of {@code CODE_…} or another code of DLPack
 * @param bits bits of one lane
 * @param lanes values that make up one element; 1 for a plain number
 */
public record DType(int code, int bits, int lanes) {
    /** Signed integer. */
    public static final int CODE_INT = 0;
    /** Unsigned integer. */
    public static final int CODE_UINT = 1;
    /** IEEE floating point. */
    public static final int CODE_FLOAT = 2;
    /** Truncated single precision. */
    public static final int CODE_BFLOAT = 4;
    /** Complex number: real, then imaginary part, each of half the bits. */
    public static final int CODE_COMPLEX = 5;
    /** Boolean, a byte each. */
    public static final int CODE_BOOL = 6;

    /** Signed 8-bit integer. */
    public static final DType INT8 = new DType(CODE_INT, 8, 1);
    /** Signed 16-bit integer. */
    public static final DType INT16 = new DType(CODE_INT, 16, 1);
    /** Signed 32-bit integer. */
    public static final DType INT32 = new DType(CODE_INT, 32, 1);
    /** Signed 64-bit integer. */
    public static final DType INT64 = new DType(CODE_INT, 64, 1);
    /** Unsigned 8-bit integer. */
    public static final DType UINT8 = new DType(CODE_UINT, 8, 1);
    /** Unsigned 16-bit integer. */
    public static final DType UINT16 = new DType(CODE_UINT, 16, 1);
    /** Unsigned 32-bit integer. */
    public static final DType UINT32 = new DType(CODE_UINT, 32, 1);
    /** Unsigned 64-bit integer. */
    public static final DType UINT64 = new DType(CODE_UINT, 64, 1);
    /** IEEE half. */
    public static final DType FLOAT16 = new DType(CODE_FLOAT, 16, 1);
    /** IEEE single. */
    public static final DType FLOAT32 = new DType(CODE_FLOAT, 32, 1);
    /** IEEE double. */
    public static final DType FLOAT64 = new DType(CODE_FLOAT, 64, 1);
    /** The upper half of an IEEE single. */
    public static final DType BFLOAT16 = new DType(CODE_BFLOAT, 16, 1);
    /** Two IEEE singles. */
    public static final DType COMPLEX64 = new DType(CODE_COMPLEX, 64, 1);
    /** Two IEEE doubles. */
    public static final DType COMPLEX128 = new DType(CODE_COMPLEX, 128, 1);
    /** Boolean, a byte each; Arrow's booleans are bits. */
    public static final DType BOOL = new DType(CODE_BOOL, 8, 1);

    /**
     * Creates a type. Checks only that the numbers fit the struct of DLPack.
     *
     * @param code kind of number, 0 to 255
     * @param bits bits of one lane, 0 to 255
     * @param lanes values that make up one element, 0 to 65535
     * @throws DevExchangeException {@link Status#INVALID_DTYPE} if a number does not fit
     */
    public DType {
        check("code", code, 0xff);
        check("bits", bits, 0xff);
        check("lanes", lanes, 0xffff);
    }

    private static void check(String field, int value, int most) {
        if (value < 0 || value > most) {
            throw new DevExchangeException(
                    Status.INVALID_DTYPE, "dtype." + field + " is " + value + ": it must be between 0 and " + most);
        }
    }

    /** {@return the bits of an element, all its lanes together} */
    public int elementBits() {
        return bits * lanes;
    }

    /** {@return the bytes that a single element takes: {@link #elementBits()}, rounded up} */
    public int elementBytes() {
        return (elementBits() + 7) / 8;
    }

    /**
     * {@return the name as in NumPy, for example {@code float64}, or the numbers of a type that DLPack does not have}
     */
    @Override
    public String toString() {
        String name = name();
        return name == null ? "dtype(code " + code + ", " + bits + " bits, " + lanes + " lanes)" : name;
    }

    /** The name; null if DLPack does not have the type or the native library cannot be loaded. */
    private String name() {
        try {
            return Native.dtypeName(code, bits, lanes);
        } catch (LinkageError unknown) {
            return null;
        }
    }
}
