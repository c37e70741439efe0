package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** What a short program does: memory out and in again, as a tensor and as a batch. */
final class StartScenario {
    private StartScenario() {}

    public static void main(String[] arguments) {
        ByteBuffer memory = ByteBuffer.allocateDirect(8).order(ByteOrder.nativeOrder());
        memory.putInt(0, 7);
        long[] shape = {2};
        try (Tensor tensor = Tensor.create(memory, DType.INT32, shape, null);
                Tensor seen = Tensor.importDlpack(tensor.exportShare())) {
            require(seen.byteBuffer().getInt(0) == 7);
        }
        ArrayBuilder builder =
                ArrayBuilder.batch(2).child(ArrayBuilder.of("n", Format.INT32, 2).buffer(null).buffer(memory));
        try (Batch batch = builder.build(Device.CPU);
                CStruct array = CStruct.arrowArray();
                CStruct fields = CStruct.arrowSchema();
                Schema schema = batch.schema()) {
            batch.exportShare(array);
            schema.exportArrow(fields);
            try (Batch seen = Batch.importArrow(array, fields)) {
                require(seen.column("n").getInt(0) == 7 && seen.column(0).getObject(1).equals(0));
            }
        }
        System.out.println("main is done");
    }

    private static void require(boolean holds) {
        if (!holds) {
            throw new AssertionError();
        }
    }
}
