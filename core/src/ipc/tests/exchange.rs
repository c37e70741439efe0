//! Exports to another process: as a view if possible, as a copy if allowed, with the whole description.

use std::os::fd::{AsRawFd, OwnedFd};

use super::{duplicates, import_batch, import_tensor, nobody, numbers_and_texts, shared};
use crate::abi::types::*;
use crate::arrow::Batch;
use crate::arrow::builder::ArrayBuilder;
use crate::convert::Plan;
use crate::device::Device;
use crate::dlpack::Copying;
use crate::dtype::DType;
use crate::error::Error;
use crate::ipc::descriptor::{BatchPart, MAX_PART};
use crate::ipc::memory::{Mapping, Origin, file, seal};
use crate::ipc::{Exported, Peer, allocate_tensor, copy_batch, export_batch, export_tensor, plan_batch, plan_tensor};
use crate::memory::Owner;
use crate::tensor::{Flags, Tensor, TensorDesc};

#[test]
fn memory_of_one_process_is_copied_if_that_is_allowed() {
    let private = Tensor::from_vec(vec![1_i32, 2, 3, 4], &[2, 2]).expect("a tensor");
    assert!(matches!(plan_tensor(&private), Plan::Copy { bytes: 16, .. }));
    let error = export_tensor(&private, Copying::Never).expect_err("not allowed");
    assert_eq!(error.status(), DEVX_COPY_REQUIRED, "{error}");
    let exported = export_tensor(&private, Copying::IfNeeded).expect("copied");
    let imported = import(&exported).expect("imported");
    assert_eq!(imported.as_slice::<i32>(), Ok(&[1, 2, 3, 4][..]));
    assert!(imported.flags() == Flags::default() && imported.data() != private.data());
    assert_eq!(plan_tensor(&imported), Plan::View);

    let batch = numbers_and_texts();
    assert!(matches!(plan_batch(&batch), Plan::Copy { bytes: 192, .. }));
    export_batch(&batch, Copying::Never).expect_err("not allowed");
    let copy = copy_batch(&batch).expect("copied");
    assert_eq!(plan_batch(&copy), Plan::View);
    let exported = export_batch(&copy, Copying::Never).expect("a view");
    let imported = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect("imported");
    assert_eq!(imported.column_named("n").expect("there").values::<i64>(), Ok(&[1, 2, 3][..]));
    let text = imported.column_named("t").expect("there");
    assert_eq!(text.text(2), Ok("ccc"));
}

/// Each column has its own memory, which can be shared.
fn columns_apart(count: i32) -> Batch {
    let column = |i: i32| {
        let tensor = shared(&[i, i + 1]);
        let column = ArrayBuilder::new(&i.to_string(), "i", 2).buffer(std::ptr::null()).buffer(tensor.data());
        column.owner(Owner::new(tensor))
    };
    let columns = (0..count).map(column).fold(ArrayBuilder::batch(2), ArrayBuilder::child);
    // SAFETY: each tensor has the two values of its column, and the column keeps it.
    unsafe { columns.build(Device::CPU) }.expect("built")
}

#[test]
fn more_regions_than_go_along_are_copied() {
    let most = columns_apart(64);
    assert_eq!(plan_batch(&most), Plan::View);
    assert_eq!(export_batch(&most, Copying::Never).expect("a view").files().len(), 64);
    let more = columns_apart(65);
    let plan = plan_batch(&more);
    let why = "the memory lies in more than 64 regions";
    assert!(matches!(&plan, Plan::Copy { bytes, reason } if *bytes > 0 && reason.contains(why)), "{plan}");
    let error = export_batch(&more, Copying::Never).expect_err("not allowed");
    assert!(error.status() == DEVX_COPY_REQUIRED && error.message().contains(why), "{error}");
    for copying in [Copying::IfNeeded, Copying::Always] {
        let exported = export_batch(&more, copying).expect("copied");
        assert_eq!(exported.files().len(), 1);
        let imported = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect("imported");
        assert_eq!(imported.column(64).expect("there").values::<i32>(), Ok(&[64, 65][..]));
    }
}

/// A process may have few files open at a time, so offers of memory in one file share its descriptors.
#[test]
fn exports_of_one_file_share_its_descriptors() {
    let whole = shared(&[1, 2, 3, 4]);
    let part = whole.slice(0, 1, 2).expect("a part");
    let rows =
        ArrayBuilder::batch(4).child(ArrayBuilder::new("n", "i", 4).buffer(std::ptr::null()).buffer(whole.data()));
    // SAFETY: the tensor has four values, and the batch keeps it.
    let rows = unsafe { rows.owner(Owner::new(whole.clone())).build(Device::CPU) }.expect("built");
    let tensors = [&whole, &part, &part].map(|tensor| export_tensor(tensor, Copying::Never).expect("a view"));
    let batches = [&rows, &rows].map(|rows| export_batch(rows, Copying::Never).expect("a view"));
    let number = |exported: &Exported| exported.files()[0].as_raw_fd();
    let [first, second, third] = tensors.each_ref().map(number);
    assert_eq!((first, first), (second, third));
    let [read, again] = batches.each_ref().map(number);
    assert_eq!(read, again);
    assert_ne!(read, first, "what may not be written");
    for exported in &batches {
        let imported = import_batch(exported.descriptor(), duplicates(exported), nobody()).expect("imported");
        assert_eq!(imported.column(0).expect("there").values::<i32>(), Ok(&[1, 2, 3, 4][..]));
    }
}

/// Columns whose names have `bytes` bytes in all, in memory that can be shared.
fn with_names_of(bytes: usize) -> Batch {
    const COLUMNS: usize = 20;
    let tensor = shared(&[1, 2]);
    let column = |i| {
        let name = "n".repeat(bytes / COLUMNS + usize::from(i < bytes % COLUMNS));
        ArrayBuilder::new(&name, "i", 2).buffer(std::ptr::null()).buffer(tensor.data())
    };
    let columns = (0..COLUMNS).map(column).fold(ArrayBuilder::batch(2), ArrayBuilder::child);
    // SAFETY: the tensor has two values, and the batch keeps it.
    unsafe { columns.owner(Owner::new(tensor)).build(Device::CPU) }.expect("built")
}

#[test]
fn what_has_no_room_in_a_descriptor_is_impossible() {
    let nameless = with_names_of(0);
    let room = MAX_PART - BatchPart::bytes_of(nameless.schema(), |node| nameless.buffers(node).len());
    let most = with_names_of(room);
    assert_eq!(plan_batch(&most), Plan::View);
    for copying in [Copying::Never, Copying::Always] {
        export_batch(&most, copying).expect("exported");
    }
    let more = with_names_of(room + 1);
    let plan = plan_batch(&more);
    let why = format!("the batch has 21 fields, which take {} bytes of a descriptor: there is room for", MAX_PART + 1);
    assert!(matches!(&plan, Plan::Impossible { reason } if reason.contains(&why)), "{plan}");
    for copying in [Copying::Never, Copying::IfNeeded, Copying::Always] {
        let error = export_batch(&more, copying).expect_err("too long");
        assert!(error.status() == DEVX_IMPOSSIBLE && error.message().contains(&why), "{error}");
    }
}

/// A producer need not have room for the first offset if there are no elements.
#[test]
fn nothing_is_read_of_an_empty_batch() {
    // An unreadable address: a read ends the test with a signal.
    let nowhere = std::ptr::without_provenance(64);
    let texts = ["u", "U"]
        .map(|format| ArrayBuilder::new("t", format, 0).buffer(std::ptr::null()).buffer(nowhere).buffer(nowhere));
    let lists = ArrayBuilder::new("l", "+l", 0).buffer(std::ptr::null()).buffer(nowhere);
    let numbers = ArrayBuilder::new("n", "i", 0).buffer(nowhere).buffer(nowhere);
    let columns = texts.into_iter().chain([lists.child(numbers)]);
    // SAFETY: without elements there is nothing to read.
    let batch =
        unsafe { columns.fold(ArrayBuilder::batch(0), ArrayBuilder::child).build(Device::CPU) }.expect("a batch");
    let copy = copy_batch(&batch).expect("copied");
    assert_eq!((copy.length(), copy.n_columns()), (0, 3));
    let exported = export_batch(&batch, Copying::IfNeeded).expect("copied");
    let imported = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect("imported");
    for column in imported.columns() {
        let first = column.buffers()[1].cast::<i32>();
        assert!(first.addr().is_multiple_of(8), "{first:?}");
        // SAFETY: consumers read the first offset even if there are no elements.
        assert_eq!(unsafe { column.buffers()[1].cast::<i32>().read() }, 0, "{:?}", column.field());
    }
}

/// Consumers read the size of each data buffer that exists.
#[test]
fn views_of_no_rows_have_no_data() {
    let (data, sizes) = ([0_u8; 16], [16_i64]);
    let views = ArrayBuilder::new("v", "vu", 0);
    let views = [std::ptr::null(), std::ptr::null(), data.as_ptr().cast(), sizes.as_ptr().cast()]
        .into_iter()
        .fold(views, ArrayBuilder::buffer);
    // SAFETY: the buffers outlive the batch.
    let batch = unsafe { views.build(Device::CPU) }.expect("a batch");
    let exported = export_batch(&batch, Copying::IfNeeded).expect("copied");
    let imported = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect("imported");
    assert_eq!(imported.root().buffers(), [std::ptr::null(); 3]);
}

/// Where one piece of memory ends, another one may begin, whose contents are not part of the first one.
#[test]
fn data_behind_the_end_of_a_region_is_in_the_next_one() {
    // SAFETY: a call of the system.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a size");
    // Whole pages, which the system places without gaps.
    let pages: Vec<_> = (0..64).map(|_| shared(&vec![i32::from_ne_bytes(*b"text"); page / 4])).collect();
    let behind = |end: &Tensor| pages.iter().find(|next| next.data().addr() == end.data().addr() + page);
    let (offsets, data) = pages.iter().find_map(|page| Some((page, behind(page)?))).expect("one behind the other");
    let rows = page / 4 - 1;
    let starts: Vec<_> = (0..=rows as i32).map(|row| 4 * row).collect();
    // SAFETY: there is room for one more offset than rows, and nobody else knows of the memory.
    unsafe { offsets.data().cast::<i32>().copy_from_nonoverlapping(starts.as_ptr(), starts.len()) };
    let texts = ArrayBuilder::new("t", "u", rows as i64).buffer(std::ptr::null()).buffer(offsets.data());
    let texts = texts.buffer(data.data()).owner(Owner::new((offsets.clone(), data.clone())));
    // SAFETY: the owner keeps the memory of all offsets and bytes.
    let batch = unsafe { texts.build(Device::CPU) }.expect("a batch");
    let exported = export_batch(&batch, Copying::Never).expect("a view");
    assert_eq!(exported.files().len(), 2);
    let imported = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect("imported");
    assert_eq!(imported.root().text(rows as i64 - 1), Ok("text"));
}

/// If there are no bytes of data, nobody can say in which piece of memory they are.
#[test]
fn texts_without_a_byte_can_be_shared_as_a_copy() {
    let (offsets, data) = ([0_i32; 4], [0_u8; 1]);
    let texts = ArrayBuilder::new("t", "u", 3).buffer(std::ptr::null()).buffer(offsets.as_ptr().cast());
    // SAFETY: the buffers outlive the batch.
    let batch = unsafe { texts.buffer(data.as_ptr().cast()).build(Device::CPU) }.expect("a batch");
    let copy = copy_batch(&batch).expect("copied");
    assert_eq!((plan_batch(&copy), copy_batch(&copy).map(|copy| plan_batch(&copy))), (Plan::View, Ok(Plan::View)));
    for (given, copying) in [(&batch, Copying::IfNeeded), (&copy, Copying::Never)] {
        let exported = export_batch(given, copying).expect("shared");
        let imported = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect("imported");
        assert_eq!(imported.root().text(2), Ok(""));
    }
}

/// If the system were asked for this much, it would bring down the whole machine.
#[test]
fn more_than_the_machine_has_is_refused_at_once() {
    let error = allocate_tensor(DType::UINT8, &[1 << 50]).expect_err("a petabyte");
    assert_eq!(error.status(), DEVX_OUT_OF_MEMORY);
    assert!(error.message().contains("1125899906842624 bytes of shared memory could not be allocated"), "{error}");
}

#[test]
fn views_keep_their_strides_offsets_and_flags() {
    let whole = shared(&(0..24).collect::<Vec<_>>());
    let desc = TensorDesc {
        // SAFETY: within the 24 elements.
        data: unsafe { whole.data().cast::<i32>().add(23) }.cast(),
        device: Device::CPU,
        dtype: DType::INT32,
        shape: &[3, 2],
        strides: Some(&[-8, -1]),
        byte_offset: 0,
        flags: Flags::READ_ONLY,
    };
    // SAFETY: all elements are within those of `whole`, which the owner keeps.
    let view = unsafe { Tensor::from_raw_parts(&desc, Owner::new(whole)) }.expect("a view");
    let imported = import(&export_tensor(&view, Copying::Never).expect("a view")).expect("imported");
    assert_eq!(
        (imported.shape(), imported.strides(), imported.flags()),
        (&[3, 2][..], &[-8, -1][..], Flags::READ_ONLY)
    );
    let copy = imported.copy().expect("copied");
    assert_eq!(copy.as_slice::<i32>(), Ok(&[23, 22, 15, 14, 7, 6][..]));
    let empty = allocate_tensor(DType::INT32, &[0, 4]).expect("nothing to allocate");
    let imported = import(&export_tensor(&empty, Copying::Never).expect("a view")).expect("imported");
    assert_eq!((imported.shape(), imported.data().is_null()), (&[0, 4][..], true));
}

/// All importers share the copy, so none of them may write it either.
#[test]
fn the_copy_of_a_read_only_tensor_cannot_be_written() {
    let values = [1_i32, 2, 3, 4];
    let of = |strides, flags| TensorDesc {
        data: values.as_ptr().cast_mut().cast(),
        device: Device::CPU,
        dtype: DType::INT32,
        shape: &[2, 2],
        strides,
        byte_offset: 0,
        flags,
    };
    for copying in [Copying::IfNeeded, Copying::Always] {
        for strides in [None, Some(&[1_i64, 2][..])] {
            // SAFETY: the values outlive the tensors.
            let made = |flags| unsafe { Tensor::from_raw_parts(&of(strides, flags), Owner::none()) }.expect("a tensor");
            let fixed = export_tensor(&made(Flags::READ_ONLY), copying).expect("copied");
            assert_eq!(import(&fixed).expect("imported").flags(), Flags::READ_ONLY);
            let modes = duplicates(&fixed)
                .into_iter()
                .map(|fd| rustix::fs::fcntl_getfl(fd).expect("the mode") & rustix::fs::OFlags::ACCMODE);
            assert_eq!(modes.collect::<Vec<_>>(), [rustix::fs::OFlags::RDONLY]);
            let free = export_tensor(&made(Flags::default()), copying).expect("copied");
            assert_eq!(import(&free).expect("imported").flags(), Flags::default());
        }
    }
}

/// An importer that may not write hands the memory on to others that may not either.
#[test]
fn a_read_only_import_is_read_only_for_those_it_is_shared_with() {
    let tensor = shared(&[1, 2, 3]);
    let desc = TensorDesc {
        data: tensor.data(),
        device: Device::CPU,
        dtype: DType::INT32,
        shape: &[3],
        strides: None,
        byte_offset: 0,
        flags: Flags::READ_ONLY,
    };
    // SAFETY: the owner keeps the memory.
    let fixed = unsafe { Tensor::from_raw_parts(&desc, Owner::new(tensor.clone())) }.expect("a tensor");
    let first = import(&export_tensor(&fixed, Copying::Never).expect("exported")).expect("imported");
    assert_ne!(first.data(), tensor.data());
    let second = import(&export_tensor(&first, Copying::Never).expect("exported again")).expect("imported again");
    assert_eq!((first.flags(), second.flags()), (Flags::READ_ONLY, Flags::READ_ONLY));
    assert_eq!(second.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
}

fn import(exported: &Exported) -> Result<Tensor, Error> {
    import_tensor(exported.descriptor(), duplicates(exported), nobody())
}

/// Two files can have the same number; here the same file stands for both.
#[test]
fn a_file_is_not_another_one_that_is_mapped() {
    let fd = file("number", 4096).expect("a file");
    let twin = || fd.try_clone().expect("duplicated");
    let first = Mapping::map(twin(), 4096, true, Origin::Peer).expect("mapped");
    rustix::fs::ftruncate(&fd, 8192).expect("longer");
    seal(&fd).expect("sealed");
    let error = Mapping::open(twin(), 8192, true).expect_err("not the same");
    assert_eq!(error.status(), DEVX_INVALID_ARGUMENT);
    assert!(error.message().starts_with("region.bytes is 8192, but of the file "), "{error}");
    assert!(error.message().contains(" 4096 bytes are mapped here"), "{error}");
    let new = Mapping::map(twin(), 8192, true, Origin::New).expect("mapped anew");
    assert!(new.bytes() == 8192 && new.address() != first.address());
    drop((first, new));
    assert_eq!(Mapping::open(twin(), 8192, true).expect("mapped").bytes(), 8192);
}

#[test]
fn files_that_are_not_what_the_descriptor_says_are_refused() {
    let tensor = shared(&[1, 2, 3]);
    let exported = export_tensor(&tensor, Copying::Never).expect("exported");
    let with = |fds| import_tensor(exported.descriptor(), fds, nobody()).expect_err("refused");
    let sealed = |bytes| {
        let fd = file("test", bytes).expect("a file");
        seal(&fd).expect("sealed");
        fd
    };
    let pipe = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
    let cases: [(Vec<OwnedFd>, &str); 6] = [
        (vec![], "there are 0 file descriptors, the regions have 1"),
        (vec![sealed(12), sealed(12)], "there are 2 file descriptors, the regions have 1"),
        (vec![file("test", 12).expect("a file")], "seals 0x0: its memory could be cut off"),
        (vec![pipe()], "is no memory file: it has no seals"),
        (vec![sealed(11)], "region.bytes is 12, but the file has 11"),
        (vec![sealed(4096)], "region.bytes is 12, but the file has 4096"),
    ];
    for (fds, text) in cases {
        let error = with(fds);
        assert!(error.status() == DEVX_INVALID_ARGUMENT && error.message().contains(text), "{error}");
    }
    let error = import_batch(exported.descriptor(), duplicates(&exported), nobody()).expect_err("a tensor");
    assert_eq!(error.status(), DEVX_MISMATCH);
    let released = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = std::sync::Arc::clone(&released);
    let keep = Owner::on_release(move || flag.store(true, std::sync::atomic::Ordering::SeqCst));
    import_tensor(exported.descriptor(), vec![sealed(11)], Peer { id: 0, keep }).expect_err("refused");
    assert!(released.load(std::sync::atomic::Ordering::SeqCst), "a refused import gives up what it was to keep");
}
