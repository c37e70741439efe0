package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * The description of a tensor: a {@code DLTensor}, and what follows from it ({@code tensor.rs}).
 *
 * @param address of the first element
 * @param bytes the bytes of all elements when they lie compactly
 * @param lowest bytes from the first element to the lowest one
 * @param end bytes from the first element to the end of the highest one
 * @param ready whether the data is ready for good; otherwise only the library knows when it is
 * @param strides in elements
 */
record Description(
        long address,
        Device device,
        DType dtype,
        long flags,
        long elements,
        long bytes,
        boolean rowMajor,
        long lowest,
        long end,
        boolean ready,
        long[] shape,
        long[] strides) {
    private static final int DATA = Records.DL_TENSOR.at("data");
    private static final int DEVICE = Records.DL_TENSOR.at("device");
    private static final int DEVICE_TYPE = DEVICE + Records.DL_DEVICE.at("device_type");
    private static final int DEVICE_ID = DEVICE + Records.DL_DEVICE.at("device_id");
    private static final int NDIM = Records.DL_TENSOR.at("ndim");
    private static final int DTYPE = Records.DL_TENSOR.at("dtype");
    private static final int CODE = DTYPE + Records.DL_DATA_TYPE.at("code");
    private static final int BITS = DTYPE + Records.DL_DATA_TYPE.at("bits");
    private static final int LANES = DTYPE + Records.DL_DATA_TYPE.at("lanes");
    private static final int SHAPE = Records.DL_TENSOR.at("shape");
    private static final int STRIDES = Records.DL_TENSOR.at("strides");
    private static final int BYTE_OFFSET = Records.DL_TENSOR.at("byte_offset");

    /** The numbers that follow the record. */
    private static final int NUMBERS = Records.DL_TENSOR.size();

    /** Describes a tensor that Java holds a reference to. */
    static Description of(long tensor) {
        Scratch scratch = Scratch.get();
        Calls.tensorDescribe(tensor, scratch.address);
        ByteBuffer in = scratch.buffer;
        int ndim = in.getInt(NDIM);
        long[] numbers = new long[7 + 2 * ndim];
        scratch.longs.get(NUMBERS / Long.BYTES, numbers);
        return new Description(
                in.getLong(DATA),
                Device.of(in.getInt(DEVICE_TYPE), in.getInt(DEVICE_ID)),
                new DType(
                        Byte.toUnsignedInt(in.get(CODE)),
                        Byte.toUnsignedInt(in.get(BITS)),
                        Short.toUnsignedInt(in.getShort(LANES))),
                numbers[0],
                numbers[1],
                numbers[2],
                numbers[3] != 0,
                numbers[4],
                numbers[5],
                numbers[6] != 0,
                Arrays.copyOfRange(numbers, 7, 7 + ndim),
                Arrays.copyOfRange(numbers, 7 + ndim, numbers.length));
    }

    /** Writes the description of a new tensor; {@code strides} may be null. */
    static Scratch write(long address, Device device, DType dtype, long[] shape, long[] strides) {
        Scratch scratch = Scratch.of(NUMBERS + 2L * Long.BYTES * shape.length);
        ByteBuffer out = scratch.buffer;
        out.putLong(DATA, address);
        out.putInt(DEVICE_TYPE, device.type().value());
        out.putInt(DEVICE_ID, device.id());
        out.putInt(NDIM, shape.length);
        out.put(CODE, (byte) dtype.code());
        out.put(BITS, (byte) dtype.bits());
        out.putShort(LANES, (short) dtype.lanes());
        out.putLong(BYTE_OFFSET, 0);
        int at = NUMBERS;
        out.putLong(SHAPE, scratch.address + at);
        for (long extent : shape) {
            out.putLong(at, extent);
            at += Long.BYTES;
        }
        out.putLong(STRIDES, strides == null ? 0 : scratch.address + at);
        for (int i = 0; strides != null && i < strides.length; i++) {
            out.putLong(at + i * Long.BYTES, strides[i]);
        }
        return scratch;
    }
}
