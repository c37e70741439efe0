package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Offsets and numbers are those of the C headers; {@code tests/} of the repository has the tables. */
class RecordsTest {
    private static final Path TABLES = Path.of(System.getProperty("devexchange.root"), "tests");

    /** Types without members, which are plain numbers in Java. */
    private static final Map<String, String> SCALARS = Map.of(
            "DLDeviceType", "size 4 align 4",
            "ArrowDeviceType", "size 4 align 4",
            "devx_status", "size 4 align 4",
            "DLPackManagedTensorAllocator", "size 8 align 8",
            "DLPackManagedTensorFromPyObjectNoSync", "size 8 align 8",
            "DLPackManagedTensorToPyObjectNoSync", "size 8 align 8",
            "DLPackDLTensorFromPyObjectNoSync", "size 8 align 8",
            "DLPackCurrentWorkStream", "size 8 align 8");

    @Test
    void everyStructIsLaidOutAsInC() throws IOException {
        Map<String, String> here = new TreeMap<>(SCALARS);
        Records.ALL.forEach((name, struct) -> {
            here.put(name, "size " + struct.size() + " align " + struct.align());
            struct.offsets().forEach((member, offset) -> here.put(name + "." + member, "offset " + offset));
        });
        assertEquals(table("layout.txt"), here);
    }

    @Test
    void everyNumberIsTheOneOfC() throws IllegalAccessException, IOException {
        Map<String, String> here = new LinkedHashMap<>();
        numbers(Status.class).forEach((name, value) -> here.put("DEVX_" + name, value));
        here.put("DLPACK_MAJOR_VERSION", "value " + Dlpack.MAJOR_VERSION);
        here.put("DLPACK_MINOR_VERSION", "value " + Dlpack.MINOR_VERSION);
        here.put("DLPACK_FLAG_BITMASK_READ_ONLY", "value " + Flags.READ_ONLY);
        here.put("DLPACK_FLAG_BITMASK_IS_COPIED", "value " + Flags.IS_COPIED);
        here.put("DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED", "value " + Flags.SUBBYTE_PADDED);
        for (String prefix : List.of("DEVX_FIELD_", "ARROW_FLAG_")) {
            here.put(prefix + "NULLABLE", "value " + dev.devexchange.Field.NULLABLE);
        }
        here.put("DEVX_FIELD_ORDERED", "value " + dev.devexchange.Field.ORDERED);
        here.put("DEVX_FIELD_KEYS_SORTED", "value " + dev.devexchange.Field.KEYS_SORTED);
        here.put("ARROW_FLAG_DICTIONARY_ORDERED", "value " + dev.devexchange.Field.ORDERED);
        here.put("ARROW_FLAG_MAP_KEYS_SORTED", "value " + dev.devexchange.Field.KEYS_SORTED);
        for (Copy copy : Copy.values()) {
            here.put("DEVX_COPY_" + copy, "value " + copy.value);
        }
        for (Plan.Kind kind : Plan.Kind.values()) {
            here.put("DEVX_PLAN_" + kind, "value " + kind.ordinal());
        }
        for (CudaArrayRequest.NoStream policy : CudaArrayRequest.NoStream.values()) {
            here.put("DEVX_NO_STREAM_" + policy, "value " + policy.ordinal());
        }
        here.put("DEVX_CUDA_ARRAY_VERSION", "value " + CudaArray.VERSION);
        here.put("DEVX_CUDA_ARRAY_NO_STREAM", "value " + CudaArray.NO_STREAM);
        here.put("DEVX_IPC_TIMEOUT_NS", "value " + IpcClient.TIMEOUT.toNanos());
        here.put("DEVX_MANAGER_VERSION", "value " + MemoryManager.VERSION);
        numbers(HostFlags.class).forEach((name, value) -> {
            if (!name.equals("NONE")) {
                here.put("DEVX_HOST_" + name, value);
            }
        });
        Map<String, DeviceType> devices = Map.of(
                "CPU", DeviceType.CPU,
                "CUDA", DeviceType.CUDA,
                "CUDA_HOST", DeviceType.CUDA_HOST,
                "ROCM", DeviceType.ROCM,
                "ROCM_HOST", DeviceType.ROCM_HOST,
                "CUDA_MANAGED", DeviceType.CUDA_MANAGED);
        devices.forEach((name, type) -> here.put("ARROW_DEVICE_" + name, "value " + type.value()));
        here.put("kDLInt", "value " + DType.CODE_INT);
        here.put("kDLUInt", "value " + DType.CODE_UINT);
        here.put("kDLFloat", "value " + DType.CODE_FLOAT);
        here.put("kDLBfloat", "value " + DType.CODE_BFLOAT);
        here.put("kDLComplex", "value " + DType.CODE_COMPLEX);
        here.put("kDLBool", "value " + DType.CODE_BOOL);

        Map<String, String> there = table("constants.txt");
        here.forEach((name, value) -> assertEquals(there.get(name), value, name));
        there.forEach((name, value) -> {
            if (name.startsWith("DEVX_") && !name.endsWith("_BYTES")) {
                assertTrue(here.containsKey(name), () -> name + " is not in Java");
            }
        });
    }

    @Test
    void everyStatusHasTheNameOfItsConstant() throws IllegalAccessException {
        for (Map.Entry<String, String> status : numbers(Status.class).entrySet()) {
            int number = Integer.parseInt(status.getValue().substring("value ".length()));
            assertEquals("DEVX_" + status.getKey(), Status.name(number));
        }
        assertEquals("DEVX_?", Status.name(254));
        assertEquals("DEVX_?", Status.name(-1));
    }

    private static Map<String, String> numbers(Class<?> holder) throws IllegalAccessException {
        Map<String, String> numbers = new LinkedHashMap<>();
        for (Field field : holder.getFields()) {
            if (Modifier.isStatic(field.getModifiers()) && field.getType() == int.class) {
                numbers.put(field.getName(), "value " + field.getInt(null));
            }
        }
        return numbers;
    }

    private static Map<String, String> table(String file) throws IOException {
        Map<String, String> table = new TreeMap<>();
        for (String line : Files.readAllLines(TABLES.resolve(file))) {
            int blank = line.indexOf(' ');
            if (blank > 0) {
                table.put(line.substring(0, blank), line.substring(blank + 1));
            }
        }
        return table;
    }
}
