//! Arrow on CUDA: whole batches of every layout to the device and back, data that must be read before it is known, and
//! matrices; whatever the schedule.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use core::ffi::c_void;
use std::ptr::null;

use devexchange_core::abi::arrow_data::ArrowArray;
use devexchange_core::abi::types::{DEVX_DEVICE, DEVX_INVALID_BUFFERS, DEVX_MISMATCH};
use devexchange_core::arrow::format::{Buffer, Buffers};
use devexchange_core::arrow::{ArrayBuilder, Column, Type};
use devexchange_core::convert::{self, Plan};
use devexchange_core::dlpack::Copying;
use devexchange_core::manager::{Driver, HostFlags, Shared};
use devexchange_core::{Batch, Device, DeviceType, Owner, Tensor};
use devexchange_tests::cu_ok;
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::sim::{self, Session};

const SEEDS: u64 = 100;

fn at<T: Copy + Send + 'static>(values: &'static [T]) -> *const c_void {
    values.as_ptr().cast()
}

fn array(format: &str, length: i64) -> ArrayBuilder {
    ArrayBuilder::new(format, format, length)
}

fn numbers(length: i64) -> ArrayBuilder {
    array("i", length).buffer(null()).buffer(at(&[10_i32, 11, 12, 13, 14, 15]))
}

/// Four rows of each layout, all in static host memory.
fn everything() -> Batch {
    static LONG: [u8; 16] = *b"a text of 16 ch.";
    static VIEWS: [[u32; 4]; 4] = [
        [2, u32::from_le_bytes(*b"hi\0\0"), 0, 0],
        [16, u32::from_le_bytes(*b"a te"), 0, 0],
        [14, u32::from_le_bytes(*b"text"), 0, 2],
        [0, 0, 0, 0],
    ];
    let views = array("vu", 4).buffer(at(&[0b0111_u8])).buffer(at(&VIEWS)).buffer(at(&LONG)).buffer(at(&[16_i64]));
    let no_data = array("vz", 4).buffer(null()).buffer(at(&[[0_u32; 4]; 4])).buffer(null());
    let text = array("u", 5).buffer(null()).buffer(at(&[0_i32, 1, 3, 3, 4, 6])).buffer(at(b"abcdef"));
    let list_view = array("+vl", 4).buffer(null()).buffer(at(&[4_i32, 0, 0, 1])).buffer(at(&[2_i32, 0, 5, 1]));
    let entries = array("+s", 5).buffer(null()).child(text).child(numbers(5));
    let map = array("+m", 4).buffer(null()).buffer(at(&[0_i32, 2, 2, 3, 5])).child(entries);
    let ids = at(&[5_i8, 7, 7, 5]);
    let sparse = array("+us:5,7", 4).buffer(ids).child(numbers(4)).child(array("n", 4));
    let dense = array("+ud:5,7", 4).buffer(ids).buffer(at(&[1_i32, 0, 1, 0]));
    let dense = dense.child(numbers(2)).child(array("d:5,1,32", 2).buffer(null()).buffer(at(&[15_i32, -7])));
    let ends = array("s", 2).buffer(null()).buffer(at(&[3_i16, 5]));
    let runs = array("+r", 4).offset(1).child(ends).child(numbers(2));
    let columns = [views, no_data, list_view.child(numbers(6)), map, sparse, dense, runs];
    let table = columns.into_iter().fold(ArrayBuilder::batch(4), ArrayBuilder::child);
    // SAFETY: the buffers are static.
    unsafe { table.build(Device::CPU) }.expect("well-formed")
}

/// Runs a scene with a stream of its own, on several schedules.
fn with_stream(seeds: u64, scene: impl Fn(u64)) {
    let session = Session::new();
    session.each(seeds, || {
        let stream = sim::stream();
        scene(stream);
        sim::settle();
        sim::destroy(stream);
    });
}

fn shown(batch: &Batch) -> Vec<String> {
    (0..batch.length()).map(|row| batch.root().value(row).expect("readable").to_string()).collect()
}

#[test]
fn every_layout_to_the_device_and_back() {
    let session = Session::new();
    let expected = shown(&everything());
    session.each(SEEDS, || {
        let (up, down) = (sim::stream(), sim::stream());
        let on_device = everything().copy_to(CUDA0, sim::on(up)).expect("copied up");
        let error = on_device.column(0).expect("a column").value(0).expect_err("device memory");
        assert!(error.message().contains("cuda:0"), "{error}");
        let back = on_device.copy_to(Device::CPU, sim::on(down)).expect("copied down");
        assert_eq!(shown(&back), expected);
        drop((on_device, back));
        sim::settle();
        sim::destroy(up);
        sim::destroy(down);
    });
}

#[test]
fn slices_on_the_device() {
    let session = Session::new();
    let expected = shown(&everything());
    session.each(SEEDS, || {
        let (up, down) = (sim::stream(), sim::stream());
        let on_device = everything().copy_to(CUDA0, sim::on(up)).expect("copied up");
        for (offset, length) in [(0, 4), (1, 2), (3, 1), (2, 0)] {
            let slice = on_device.slice(offset, length).expect("there are so many");
            let back = slice.copy_to(Device::CPU, sim::on(down)).expect("copied down");
            assert_eq!(shown(&back), expected[offset as usize..][..length as usize]);
            for (column, index) in on_device.columns().zip(0..) {
                let alone = column.slice(offset, length).and_then(|rows| rows.share()).expect("shared");
                let back = alone.copy_to(Device::CPU, sim::on(down)).expect("copied down");
                let whole = everything();
                let rows = whole.column(index).expect("a column").slice(offset, length).expect("rows");
                let expected: Vec<String> =
                    (0..length).map(|row| rows.value(row).expect("readable").to_string()).collect();
                assert_eq!(shown(&back), expected);
            }
        }
        drop(on_device);
        sim::settle();
        sim::destroy(up);
        sim::destroy(down);
    });
}

/// Some consumers on the host ignore offsets (`docs/guide.md`, "Offsets"), so a copy there has none, wherever it comes
/// from.
#[test]
fn a_slice_that_is_copied_to_the_host_has_no_offset() {
    static BITS: [u8; 2] = [0b1010_0110, 0b0001_1101];
    let bits = || array("b", 13).buffer(at(&BITS)).buffer(at(&BITS));
    let child = |format| array(format, 13).buffer(at(&BITS)).child(bits());
    let table = || {
        let table = ArrayBuilder::batch(13).child(bits()).child(child("+s")).child(child("+w:1"));
        // SAFETY: the buffers are static.
        unsafe { table.build(Device::CPU) }.expect("well-formed")
    };
    with_stream(SEEDS, |stream| {
        let on_device = table().copy_to(CUDA0, sim::on(stream)).expect("copied up");
        for (offset, length) in [(0, 13), (3, 10), (5, 2), (9, 4), (13, 0)] {
            let expected = shown(&table().slice(offset, length).expect("rows"));
            for from in [&on_device, &table()] {
                let slice = from.slice(offset, length).expect("rows");
                let copy = slice.copy_to(Device::CPU, sim::on(stream)).expect("copied");
                assert_eq!(shown(&copy), expected);
                let below = copy.columns().filter_map(|column| column.child(0));
                let offsets: Vec<i64> = copy.columns().chain(below).map(|column| column.offset()).collect();
                assert_eq!(offsets, [0; 5], "{length} rows from {offset}");
            }
        }
    });
}

/// Forty rows whose offsets refer to more and more, of every type that has offsets.
fn growing() -> Batch {
    static BYTES: [u8; 280] = [0b0111_0110; 280];
    let bytes = at(&BYTES);
    // The last offset is 62.
    let items = || array("i", 70).buffer(bytes).buffer(bytes);
    let bits = || array("b", 70).buffer(bytes).buffer(bytes);
    let narrow: Vec<i32> = (0..41).scan(2, |offset, row| Some(std::mem::replace(offset, *offset + row % 4))).collect();
    let wide: Vec<i64> = narrow.iter().copied().map(i64::from).collect();
    let (at_narrow, at_wide) = (narrow.as_ptr().cast(), wide.as_ptr().cast());
    let text = array("u", 40).buffer(bytes).buffer(at_narrow).buffer(bytes);
    let large = array("Z", 70).buffer(null()).buffer(at(&[1_i64; 71])).buffer(bytes);
    let list = |child| array("+l", 40).buffer(bytes).buffer(at_narrow).child(child);
    let inner = array("+L", 40).buffer(null()).buffer(at_wide).child(items());
    let nested = array("+w:1", 40).buffer(null()).child(inner);
    let entries = array("+s", 70).buffer(null()).child(large).child(bits());
    let map = array("+m", 40).buffer(null()).buffer(at_narrow).child(entries);
    let columns = [text, list(items()), list(bits()), nested, map];
    let table = columns.into_iter().fold(ArrayBuilder::batch(40), ArrayBuilder::child);
    // SAFETY: the buffers are static or kept by the owner.
    unsafe { table.owner(Owner::new((narrow, wide))).build(Device::CPU) }.expect("well-formed")
}

/// Compares what the offsets of a copy refer to with what the copy has.
fn require_rows_alone(column: Column<'_>) {
    let offset = |row: i64, width: u32| {
        let offsets = column.buffers().get(1).copied().expect("offsets");
        let place = offsets.wrapping_byte_add(row as usize * width as usize);
        match width {
            // SAFETY: a copy in host memory has one more offset than rows.
            4 => unsafe { place.cast::<i32>().read() }.into(),
            // SAFETY: as above.
            _ => unsafe { place.cast::<i64>().read() },
        }
    };
    assert_eq!(column.offset(), 0, "{:?}", column.ty());
    if let Buffers::Two(Buffer::Offsets(width)) | Buffers::Three(width) = column.ty().buffers() {
        let last = offset(column.length(), width);
        assert_eq!((offset(0, width), column.child(0).map_or(last, Column::length)), (0, last), "{:?}", column.ty());
    }
    column.children().for_each(require_rows_alone);
}

#[test]
fn a_slice_that_is_copied_to_the_host_has_nothing_else() {
    let pinned = Device { kind: DeviceType::CUDA_HOST, id: 0 };
    let managed = Device { kind: DeviceType::CUDA_MANAGED, id: 0 };
    with_stream(SEEDS / 5, |stream| {
        let sources = [Device::CPU, CUDA0, pinned, managed];
        let sources = sources.map(|device| growing().copy_to(device, sim::on(stream)).expect("copied"));
        for (offset, length) in [(0, 40), (3, 10), (21, 1), (39, 1), (40, 0), (7, 0)] {
            let expected = shown(&growing().slice(offset, length).expect("rows"));
            for from in &sources {
                let slice = from.slice(offset, length).expect("rows");
                // A copy on the device still has what was in front, and then it is a whole itself.
                let again = slice.copy_to(CUDA0, sim::on(stream)).expect("copied");
                let [copy, of_copy] =
                    [slice, again].map(|slice| slice.copy_to(Device::CPU, sim::on(stream)).expect("copied"));
                assert_eq!((&shown(&copy), &shown(&of_copy)), (&expected, &expected), "{length} rows from {offset}");
                if length < 40 {
                    require_rows_alone(copy.root());
                }
            }
        }
    });
}

/// The offsets of lists are read only where that costs nothing, or where a slice is copied to the host.
#[test]
fn a_copy_of_lists_on_a_device_is_not_waited_for() {
    let lists = |batch: &Batch| {
        let column = batch.column(1).expect("a column");
        column.slice(0, 5).and_then(Column::share).expect("shared")
    };
    with_stream(SEEDS, |stream| {
        let of_child = |batch: &Batch| batch.root().child(0).expect("a child").length();
        let on_device = growing().copy_to(CUDA0, sim::on(stream)).expect("copied up");
        // Rows 0 to 4 refer to elements 2 to 8; the others are behind them.
        let up = lists(&growing()).copy_to(CUDA0, sim::on(stream)).expect("copied up");
        assert_eq!(of_child(&up), 8);
        let column = lists(&on_device);
        let waits = sim::calls("cuStreamSynchronize");
        let aside = column.copy_to(CUDA0, sim::on(stream)).expect("copied");
        assert_eq!((sim::calls("cuStreamSynchronize") - waits, of_child(&aside)), (0, of_child(&column)));
        let all = on_device.column(1).expect("a column").share().expect("shared");
        let waits = sim::calls("cuStreamSynchronize");
        drop(all.copy_to(Device::CPU, sim::on(stream)).expect("copied down"));
        // One is for the copy itself. On a GPU nobody counts.
        assert!(sim::calls("cuStreamSynchronize") - waits <= 1);
        for copy in [up, aside] {
            let back = copy.copy_to(Device::CPU, sim::on(stream)).expect("copied down");
            assert_eq!(shown(&back), shown(&lists(&growing())));
        }
    });
}

/// A copy on a device leaves the first offset as it is, so only a copy that is to begin there reads it.
#[test]
fn offsets_that_cannot_be_are_refused_by_copies_to_the_host() {
    with_stream(SEEDS, |stream| {
        let text = array("u", 2).buffer(null()).buffer(at(&[0_i32, 3, 2])).buffer(at(b"abc"));
        let list = array("+L", 2).buffer(null()).buffer(at(&[0_i64, -3, 2])).child(numbers(6));
        for (array, said) in [
            (text, "array \"u\": the first offset is 3 and the last one is 2: they must ascend from 0"),
            (list, "array \"+L\": the first offset is -3 and the last one is 2: they must ascend from 0"),
        ] {
            // SAFETY: the buffers are static, and what is wrong with them is read by nobody else.
            let on_host = unsafe { array.build(Device::CPU) }.expect("well-formed");
            let on_device = on_host.copy_to(CUDA0, sim::on(stream)).expect("copied up");
            let row = on_device.slice(1, 1).expect("a row");
            let refused = row.copy_to(Device::CPU, sim::on(stream)).expect_err("refused");
            assert_eq!((refused.status(), refused.message()), (DEVX_INVALID_BUFFERS, said));
        }
    });
}

/// Some producers keep the sizes of view data on the device; Arrow C++ keeps them on the host.
#[test]
fn sizes_of_views_are_read_wherever_they_are() {
    let session = Session::new();
    session.each(SEEDS, || {
        let stream = sim::stream();
        let on_device = everything().copy_to(CUDA0, sim::on(stream)).expect("copied up");
        let views = on_device.column(0).expect("a column");
        assert_eq!(views.ty(), Type::Utf8View);
        for sizes_on_device in [false, true] {
            let device_sizes = sim::alloc(8);
            let host_sizes = Box::new(16_u64);
            cu_ok!("cuMemcpyHtoDAsync_v2", device_sizes, (&raw const *host_sizes).expose_provenance(), 8, stream);
            let buffers = views.buffers();
            let sizes = if sizes_on_device {
                std::ptr::with_exposed_provenance(device_sizes as usize)
            } else {
                (&raw const *host_sizes).cast::<c_void>()
            };
            let array =
                buffers.iter().take(3).fold(array("vu", 4), |array, &buffer| array.buffer(buffer)).buffer(sizes);
            let keep = on_device.clone();
            // SAFETY: the buffers are those of a batch that the owner keeps; the sizes live until the end.
            let mut foreign = unsafe { array.owner(Owner::new(keep)).build(CUDA0) }.expect("well-formed");
            // SAFETY: the work that fills it is queued there.
            unsafe { foreign.produced_on(sim::on(stream)) }.expect("not shared");
            let back = foreign.copy_to(Device::CPU, sim::on(stream)).expect("copied down");
            assert_eq!(shown(&back), ["\"hi\"", "\"a text of 16 ch.\"", "\"text of 16 ch.\"", "null"]);
            drop((foreign, back));
            sim::settle();
            sim::free(device_sizes);
        }
        drop(on_device);
        sim::settle();
        sim::destroy(stream);
    });
}

/// A copy reads how many bytes there are from the producer's buffers, wherever these lie.
#[test]
fn sizes_that_cannot_be_are_refused_by_copies() {
    with_stream(SEEDS, |stream| {
        let text = |format, offsets| array(format, 1).buffer(null()).buffer(offsets).buffer(at(b"abc"));
        let views = array("vu", 1).buffer(null()).buffer(at(&[[0_u32; 4]])).buffer(at(b"abc"));
        let columns = [
            (text("u", at(&[0_i32, -1])), "array \"u\": the last offset is -1: it must not be negative"),
            (
                text("U", at(&[0_i64, i64::MIN])),
                "array \"U\": the last offset is -9223372036854775808: it must not be negative",
            ),
            (
                array("+l", 1).buffer(null()).buffer(at(&[0_i32, 7])).child(numbers(6)),
                "array \"+l\": the last offset is 7: the child has length 6",
            ),
            (views.buffer(at(&[-7_i64])), "array \"vu\": the size of buffers[2] is -7: it must not be negative"),
        ];
        for (column, said) in columns {
            // SAFETY: the buffers are static, and what is wrong with them is read by nobody else.
            let on_host = unsafe { column.build(Device::CPU) }.expect("well-formed");
            for copy in [on_host.copy_to(CUDA0, sim::on(stream)), on_host.copy()] {
                let refused = copy.expect_err("refused");
                assert_eq!((refused.status(), refused.message()), (DEVX_INVALID_BUFFERS, said));
            }
        }
    });
}

#[test]
fn the_plain_struct_of_arrow_is_for_host_memory() {
    with_stream(1, |stream| {
        let on_device = everything().copy_to(CUDA0, sim::on(stream)).expect("copied up");
        let mut out = ArrowArray::RELEASED;
        // SAFETY: there is room for an array.
        let refused = unsafe { on_device.export(&raw mut out) }.expect_err("refused");
        let said = "device is cuda:0: a plain ArrowArray is host memory";
        assert_eq!((refused.error.status(), refused.error.message()), (DEVX_DEVICE, said));
        assert!(out.release.is_none());
        let back = refused.returned.copy_to(Device::CPU, sim::on(stream)).expect("copied down");
        assert_eq!(shown(&back), shown(&everything()));
    });
}

#[test]
fn columns_of_one_batch_are_on_one_device() {
    with_stream(SEEDS, |stream| {
        // SAFETY: the buffers are static.
        let on_host = unsafe { numbers(3).build(Device::CPU) }.expect("well-formed");
        let on_device = on_host.copy_to(CUDA0, sim::on(stream)).expect("copied up");
        let refused = Batch::of_columns(&[("a", &on_host), ("b", &on_device)], Some(sim::on(stream)));
        let refused = refused.expect_err("two devices");
        let said = "column \"b\" is on cuda:0, the first one is on cpu:0";
        assert_eq!((refused.status(), refused.message()), (DEVX_MISMATCH, said));
    });
}

/// Pinned and managed memory that work on a stream fills can be read by the host when that work is done.
#[test]
fn the_host_copies_what_a_stream_has_filled() {
    let session = Session::new();
    let expected = shown(&everything());
    session.each(SEEDS, || {
        let stream = sim::stream();
        for kind in [DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED] {
            let device = Device { kind, id: 0 };
            let filled = everything().copy_to(device, sim::on(stream)).expect("copied");
            cu_ok!("cuStreamSynchronize", stream);
            assert_eq!(shown(&filled), expected);
            let copy = filled.copy().expect("the work is done");
            assert_eq!(shown(&copy), expected);
        }
        sim::settle();
        sim::destroy(stream);
    });
}

#[test]
fn nulls_on_the_device_are_counted_after_the_wait() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (producer, consumer) = (sim::stream(), sim::stream());
        let bits = array("i", 17).buffer(at(&[0xff_u8, 0x0f, 0])).buffer(at(&[0_i32; 17])).null_count(-1);
        // SAFETY: the buffers are static.
        let on_host = unsafe { bits.offset(0).build(Device::CPU) }.expect("well-formed");
        let on_device = on_host.copy_to(CUDA0, sim::on(producer)).expect("copied up");
        assert_eq!(on_device.root().null_count().expect_err("of a device").status(), DEVX_DEVICE);
        assert_eq!(on_device.root().null_count_on(sim::on(consumer)).expect("counted"), 5);
        drop(on_device);
        sim::settle();
        sim::destroy(producer);
        sim::destroy(consumer);
    });
}

#[test]
fn columns_and_matrices() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (producer, consumer) = (sim::stream(), sim::stream());
        let column = |from: i32| {
            let host = Tensor::from_vec(vec![from, from + 1, from + 2], &[3]).expect("three values");
            let tensor = host.copy_to(CUDA0, sim::on(producer)).expect("copied up");
            convert::column(&tensor, "", Copying::Never).expect("a view")
        };
        let (a, b, c) = (column(1), column(7), column(4));
        // Three allocations in an order that no allocator gives.
        let table = Batch::of_columns(&[("a", &c), ("b", &a), ("c", &b)], Some(sim::on(consumer))).expect("columns");
        assert!(matches!(convert::plan_matrix(&table).expect("a plan"), Plan::Copy { bytes: 36, .. }));
        let refused = convert::matrix(&table, Copying::IfNeeded, None).expect_err("no stream");
        assert_eq!(refused.message(), "a copy of data on cuda:0 needs a stream");
        let matrix = convert::matrix(&table, Copying::IfNeeded, Some(sim::on(consumer))).expect("gathered");
        drop((a, b, c, table));
        assert_eq!((matrix.shape(), matrix.strides()), (&[3, 2 + 1][..], &[1, 3][..]));
        // Its columns are a batch again, without a copy.
        let table = convert::batch(&matrix, &["x", "y", "z"], Copying::Never).expect("a view");
        assert_eq!(convert::plan_matrix(&table).expect("a plan"), Plan::View);
        drop(matrix);
        let back = table.copy_to(Device::CPU, sim::on(producer)).expect("copied down");
        assert_eq!(shown(&back)[0], "{\"x\": 4, \"y\": 1, \"z\": 7}");
        drop((table, back));
        sim::settle();
        sim::destroy(producer);
        sim::destroy(consumer);
    });
}

/// Columns in two allocations may touch. A driver copies only from one of them at a time.
#[test]
fn columns_of_two_allocations_are_no_matrix_in_place() {
    const ROWS: usize = 1024;
    let session = Session::new();
    session.each(SEEDS, || {
        let stream = sim::stream();
        let manager = Shared::new(Driver::new().expect("a driver")).expect("a manager");
        let mut values: Vec<u32> = (0..2 * ROWS as u32).collect();
        let pinned = values.chunks_mut(ROWS).map(|half| {
            // SAFETY: the vector outlives the batch, which is given up below.
            unsafe { manager.pin(0, half.as_mut_ptr().cast(), size_of_val(half), HostFlags::default()) }
        });
        let pinned: Vec<_> = pinned.map(|owner| owner.expect("pinned")).collect();
        let halves = values.chunks(ROWS).zip(pinned).map(|(half, owner)| {
            array("I", ROWS as i64).buffer(null()).buffer(half.as_ptr().cast()).null_count(0).owner(owner)
        });
        let table = halves.fold(ArrayBuilder::batch(ROWS as i64), ArrayBuilder::child);
        // SAFETY: as above.
        let table = unsafe { table.build(Device { kind: DeviceType::CUDA_HOST, id: 0 }) }.expect("well-formed");

        let plan = convert::plan_matrix(&table).expect("a plan");
        assert!(matches!(plan, Plan::Copy { bytes: 8192, .. }), "{plan}");
        let matrix = convert::matrix(&table, Copying::IfNeeded, Some(sim::on(stream))).expect("gathered");
        let on_device = matrix.copy_to(CUDA0, sim::on(stream)).expect("copied up");
        on_device.check_pointers().expect("one allocation");
        drop((matrix, on_device, table));
        sim::settle();

        // In one allocation, which they fill, they are.
        // SAFETY: as above.
        let pinned = unsafe { manager.pin(0, values.as_mut_ptr().cast(), 8192, HostFlags::default()) };
        let halves = values
            .chunks(ROWS)
            .map(|half| array("I", ROWS as i64).buffer(null()).buffer(half.as_ptr().cast()).null_count(0));
        let table = halves.fold(ArrayBuilder::batch(ROWS as i64), ArrayBuilder::child).owner(pinned.expect("pinned"));
        // SAFETY: as above.
        let table = unsafe { table.build(Device { kind: DeviceType::CUDA_HOST, id: 0 }) }.expect("well-formed");
        assert_eq!(convert::plan_matrix(&table), Ok(Plan::View));
        drop(table);
        sim::settle();
        drop(values);
        sim::destroy(stream);
    });
}

/// Whether data is ready is asked once, not for each of its rows: the answer could also change in between.
#[test]
fn the_driver_is_asked_once_whether_bools_are_ready() {
    const ROWS: i64 = 1000;
    let session = Session::new();
    session.each(1, || {
        let stream = sim::stream();
        let bits = array("b", ROWS).buffer(null()).buffer(at(&[0b1010_0110_u8; 125])).null_count(0);
        // SAFETY: the buffer is static.
        let bits = unsafe { bits.build(Device::CPU) }.expect("well-formed");
        let pinned = bits.copy_to(Device { kind: DeviceType::CUDA_HOST, id: 0 }, sim::on(stream)).expect("copied");
        cu_ok!("cuStreamSynchronize", stream);
        let before = sim::calls("*");
        let bools = convert::tensor(pinned.root(), Copying::IfNeeded).expect("readable");
        let asked = sim::calls("*") - before;
        assert!(asked < 20, "{asked} calls of the driver");
        let back = convert::column(&bools, "", Copying::IfNeeded).expect("bits");
        assert_eq!((bools.shape(), shown(&back)), (&[ROWS][..], shown(&bits)));
        drop((bits, pinned, bools, back));
        sim::settle();
        sim::destroy(stream);
    });
}
