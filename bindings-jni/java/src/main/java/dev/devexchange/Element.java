package dev.devexchange;

/** The number types as they lie in memory, with the Java types that can hold them without loss. */
enum Element {
    INT8(1),
    INT16(2),
    INT32(4),
    INT64(8),
    UINT8(1),
    UINT16(2),
    UINT32(4),
    UINT64(8),
    FLOAT16(2),
    FLOAT32(4),
    FLOAT64(8),
    BFLOAT16(2),
    BOOL(1);

    /** The bytes of a value. */
    final int width;

    Element(int width) {
        this.width = width;
    }

    /** The element of a tensor; {@code null} if no Java number can hold it. */
    static Element of(DType dtype) {
        if (dtype.lanes() != 1) {
            return null;
        }
        return switch (dtype.code()) {
            case DType.CODE_INT -> bySize(dtype.bits(), INT8, INT16, INT32, INT64);
            case DType.CODE_UINT -> bySize(dtype.bits(), UINT8, UINT16, UINT32, UINT64);
            case DType.CODE_FLOAT -> bySize(dtype.bits(), null, FLOAT16, FLOAT32, FLOAT64);
            case DType.CODE_BFLOAT -> BFLOAT16;
            case DType.CODE_BOOL -> BOOL;
            default -> null;
        };
    }

    private static Element bySize(int bits, Element of8, Element of16, Element of32, Element of64) {
        return switch (bits) {
            case 8 -> of8;
            case 16 -> of16;
            case 32 -> of32;
            case 64 -> of64;
            default -> null;
        };
    }

    boolean fitsInt() {
        return isInteger() && width < (isUnsigned() ? 4 : 8);
    }

    boolean fitsLong() {
        return isInteger();
    }

    boolean fitsFloat() {
        return this != FLOAT64 && (!isInteger() || width < 4);
    }

    boolean fitsDouble() {
        return !isInteger() || width < 8;
    }

    private boolean isInteger() {
        return switch (this) {
            case FLOAT16, FLOAT32, FLOAT64, BFLOAT16 -> false;
            default -> true;
        };
    }

    private boolean isUnsigned() {
        return this == UINT8 || this == UINT16 || this == UINT32 || this == UINT64;
    }

    /** The value of an integer; for a value that {@link #isTooLarge}, its 64 bits. */
    long readLong(HostMemory memory, long at) {
        return switch (this) {
            case INT8 -> memory.i8(at);
            case INT16 -> memory.i16(at);
            case INT32 -> memory.i32(at);
            case UINT8 -> Byte.toUnsignedLong(memory.i8(at));
            case UINT16 -> Short.toUnsignedLong(memory.i16(at));
            case UINT32 -> Integer.toUnsignedLong(memory.i32(at));
            case INT64, UINT64 -> memory.i64(at);
            case BOOL -> memory.i8(at) == 0 ? 0 : 1;
            default -> throw new AssertionError(this);
        };
    }

    /** The value of a number that a double can hold. */
    double readDouble(HostMemory memory, long at) {
        return switch (this) {
            case FLOAT64 -> memory.f64(at);
            case FLOAT32 -> memory.f32(at);
            case FLOAT16 -> half(memory.i16(at));
            case BFLOAT16 -> Float.intBitsToFloat(memory.i16(at) << 16);
            default -> readLong(memory, at);
        };
    }

    /** Whether a long cannot hold the value that was read. */
    boolean isTooLarge(long read) {
        return this == UINT64 && read < 0;
    }

    /** The message for a value that a long cannot hold. */
    static String tooLarge(long read) {
        return "the value is " + Long.toUnsignedString(read) + ": more than a long can hold";
    }

    /** An IEEE half: 1 bit sign, 5 bits exponent, 10 bits fraction. */
    private static float half(short bits) {
        int exponent = bits >> 10 & 0x1f;
        int fraction = bits & 0x3ff;
        float magnitude = switch (exponent) {
            case 0 -> fraction * 0x1p-24f;
            case 0x1f -> fraction == 0 ? Float.POSITIVE_INFINITY : Float.NaN;
            default -> Float.intBitsToFloat(exponent + (127 - 15) << 23 | fraction << 13);
        };
        return bits < 0 ? -magnitude : magnitude;
    }
}
