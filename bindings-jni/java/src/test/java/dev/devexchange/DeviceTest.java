package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.List;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Devices: without a driver here, and with the simulated one in JVMs of their own ({@link DeviceScenario}).
 */
@ExtendWith(Check.class)
class DeviceTest {
    private static final Device CUDA = Device.cuda(0);

    private static String endsWell(String scenario, String mode, int seed) throws IOException, InterruptedException {
        return Simulated.endsWell(DeviceScenario.class, scenario, mode, seed);
    }

    // ---- without a driver ----

    @Test
    void withoutADriverEveryCallSaysSo() {
        assumeFalse(thereIsADriver(), "this machine has a CUDA driver");
        String why = "there is no CUDA driver on this machine";
        refused(Status.DEVICE, () -> Device.count(DeviceType.CUDA), why, "libcuda.so.1");
        refused(Status.DEVICE, CUDA::info, why);
        refused(Status.DEVICE, () -> DeviceStream.create(CUDA), why);
        refused(Status.DEVICE, () -> DeviceStream.of(CUDA, DeviceStream.LEGACY_DEFAULT), why);
        for (DeviceType type : List.of(DeviceType.CUDA, DeviceType.CUDA_HOST, DeviceType.CUDA_MANAGED)) {
            Device device = new Device(type, 0);
            refused(Status.DEVICE, () -> Tensor.allocate(device, DType.INT8, new long[] {4}, null), why, "device_type");
            refused(
                    Status.DEVICE,
                    () -> Tensor.create(4096, device, DType.INT8, new long[] {4}, null, 0, null),
                    why);
        }
        assertEquals(0, DevExchange.releasesWaiting());
        assertEquals(0, DevExchange.releasesLost());
    }

    @Test
    void theHostCopiesWithinItsMemoryWithoutAStream() {
        try (Tensor tensor = Tensor.create(Direct.ints(1, 2, 3), DType.INT32, new long[] {3}, null);
                Tensor copy = tensor.copyTo(Device.CPU, null);
                Batch batch = Streams.batch(7, null);
                Batch same = batch.copyTo(Device.CPU, null)) {
            assertEquals(Direct.ints(1, 2, 3), copy.byteBuffer());
            assertEquals(Flags.IS_COPIED, copy.flags());
            assertNotEquals(tensor.address(), copy.address());
            copy.write(Direct.ints(4, 5, 6), null);
            ByteBuffer into = Direct.room(12);
            copy.read(into, null);
            assertEquals(Direct.ints(4, 5, 6), into);
            assertEquals(batch.root().getObject(0), same.root().getObject(0));
            assertNotEquals(batch.root().bufferAddress(1), same.root().bufferAddress(1));
        }
    }

    private static boolean thereIsADriver() {
        try {
            Device.count(DeviceType.CUDA);
            return true;
        } catch (DevExchangeException e) {
            return !e.getMessage().contains("there is no CUDA driver");
        }
    }

    @Test
    void theHostIsADeviceToo() {
        assertEquals(1, Device.count(DeviceType.CPU));
        assertEquals(new DeviceInfo("host memory", new UUID(0, 0), -1, -1, 0), Device.CPU.info());
        refused(Status.DEVICE, () -> Device.count(DeviceType.ROCM), "rocm (10)");
        refused(Status.DEVICE, () -> Device.count(new DeviceType(99)), "99");
        refused(Status.DEVICE, () -> DeviceStream.create(Device.CPU), "cpu:0", "no streams");
        refused(Status.DEVICE, () -> DeviceStream.of(Device.CPU, 1), "cpu:0", "no streams");
        try (Tensor tensor = Tensor.allocate(Device.CPU, DType.FLOAT64, new long[] {2, 3}, null)) {
            assertEquals("Tensor (float64, [2, 3], cpu:0)", tensor.toString());
            tensor.byteBuffer().putDouble(40, 2.5);
            assertEquals(2.5, tensor.getDouble(1, 2));
            tensor.checkPointers();
            assertThrows(NullPointerException.class, () -> tensor.usedOn(null));
            ByteBuffer readOnly = Direct.room(48).asReadOnlyBuffer();
            assertThrows(ReadOnlyBufferException.class, () -> tensor.read(readOnly, null));
            refused(Status.INVALID_ARGUMENT, () -> tensor.write(ByteBuffer.allocate(48), null), "from", "heap");
        }
        refused(Status.INVALID_SHAPE, () -> Tensor.allocate(Device.CPU, DType.INT8, new long[] {-1}, null), "-1");
        refused(
                Status.OUT_OF_MEMORY,
                () -> Tensor.allocate(Device.CPU, DType.INT8, new long[] {Long.MAX_VALUE / 2}, null),
                "bytes");
        long[] shape = new long[1000];
        refused(Status.INVALID_SHAPE, () -> Tensor.allocate(Device.CPU, DType.INT8, shape, null), "ndim", "1000");
        try (Tensor tensor = Tensor.allocate(Device.CPU, DType.INT8, new long[] {1}, null)) {
            Tensor imported = Tensor.importDlpack(tensor.exportShare(), null);
            imported.close();
            Tensor.importDlpackLegacy(tensor.exportShareLegacy(DlpackRequest.DEFAULT), null).close();
        }
    }

    // ---- with the simulated driver ----

    @Test
    void everythingIsRightInEveryOrder() throws IOException, InterruptedException {
        for (int seed = 1; seed <= 4; seed++) {
            endsWell("everything", "lazy", seed);
        }
        endsWell("everything", "adversarial", 1);
    }

    @Test
    void everythingIsRightWithThreads() throws IOException, InterruptedException {
        for (int seed = 1; seed <= 3; seed++) {
            endsWell("everything", "threads", seed);
        }
    }

    @Test
    void twoDevicesAreInOneExchange() throws IOException, InterruptedException {
        Simulated.endsWellInEveryOrder(TwoDevicesScenario.class, "everything");
    }

    @Test
    void manyThreadsMayUseOneDevice() throws IOException, InterruptedException {
        endsWell("crowd", "lazy", 5);
        endsWell("crowd", "threads", 5);
    }

    @Test
    void theJvmExitsWhileReleasesWait() throws IOException, InterruptedException {
        assertTrue(endsWell("outstanding", "lazy", 1).contains("waiting 1"));
    }

    @Test
    void aStreamThatNobodyClosedIsNotDestroyed() throws IOException, InterruptedException {
        String output = endsWell("forgotten", "lazy", 1);
        assertTrue(output.contains("devexchange: a DeviceStream was not closed"), output);
    }

    /** Otherwise the tests above would prove nothing. */
    @Test
    void aMissingWaitIsFound() throws IOException, InterruptedException {
        for (String mode : List.of("lazy", "threads")) {
            Jvm.End end = Simulated.run(DeviceScenario.class, "race", mode, 1);
            assertNotEquals(0, end.status(), end.output());
            assertTrue(end.output().contains("main is done"), end.output());
            assertTrue(end.output().contains("Race: read after write"), end.output());
        }
    }
}
