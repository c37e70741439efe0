//! Export and import of tensors and batches by the crate, without the C functions, as a program in Rust does it.

#![no_main]

use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use bench::{Bench, ROWS, RUST_WIDTHS, SHAPE};
use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::abi::types::DevxOwner;
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::dlpack::{self, Owned, Request};
use devexchange_core::{Batch, Column, DType, Device, Flags, Owner, Schema, Tensor, TensorDesc};

fn tensor(owner: Owner) -> Tensor {
    let desc = TensorDesc {
        data: bench::matrix().cast(),
        device: Device::CPU,
        dtype: DType::FLOAT32,
        shape: &SHAPE,
        strides: None,
        byte_offset: 0,
        flags: Flags::default(),
    };
    // SAFETY: the memory is static, and as large as the shape says.
    unsafe { Tensor::from_raw_parts(&desc, owner) }.expect("a tensor")
}

fn import(handed: Owned<DLManagedTensorVersioned>) {
    let handed = NonNull::new(black_box(handed.into_raw())).expect("a struct");
    // SAFETY: `into_raw` gave the struct up, so this is its only owner.
    let seen = unsafe { Owned::from_raw(handed) }.import().expect("import");
    assert!(seen.as_slice::<f32>().expect("values").len() == 6);
}

struct Shared(Tensor);

impl Bench for Shared {
    fn set_up(_: usize) -> Self {
        Self(tensor(Owner::none()))
    }

    fn once(&mut self) {
        import(dlpack::share(&self.0, &Request::default()).expect("share"));
    }
}

struct Moved(u64);

unsafe extern "C" fn count(released: *mut c_void) {
    // SAFETY: `once` keeps the number alive until the release.
    unsafe { *released.cast::<u64>() += 1 }
}

impl Bench for Moved {
    fn set_up(_: usize) -> Self {
        Self(0)
    }

    fn once(&mut self) {
        let mut released = self.0;
        let owner = DevxOwner { context: (&raw mut released).cast(), release: Some(count) };
        // SAFETY: `count` is called before `released` goes out of scope.
        let made = tensor(unsafe { Owner::from_raw(owner) });
        import(dlpack::export(made, &Request::default()).expect("export"));
        assert!(released == self.0 + 1);
        self.0 = released;
    }
}

fn table(columns: usize) -> Batch {
    let names: Vec<_> = (0..columns).map(|i| CString::new(format!("c{i}")).expect("a name")).collect();
    let mut fields = vec![FieldDesc::batch(columns as u32)];
    fields.extend(names.iter().map(|name| FieldDesc::new(name, c"i")));
    let schema = Schema::new(&fields).expect("a schema");
    let (none, buffers) = ([ptr::null()], [ptr::null(), bench::column().as_ptr().cast()]);
    let node = |buffers| NodeDesc { length: ROWS as i64, null_count: 0, offset: 0, buffers };
    let mut nodes = vec![node(&none[..])];
    nodes.resize(columns + 1, node(&buffers));
    // SAFETY: the buffers are static, and as large as the nodes say.
    unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, Owner::none()) }.expect("a batch")
}

/// Exports a batch, imports it as another one, through both structs, and reads its columns.
struct Read(Batch);

impl Bench for Read {
    fn set_up(columns: usize) -> Self {
        Self(table(columns))
    }

    fn once(&mut self) {
        let mut array = MaybeUninit::<ArrowDeviceArray>::uninit();
        let mut schema = MaybeUninit::<ArrowSchema>::uninit();
        // SAFETY: there is room for the struct.
        unsafe { self.0.clone().export_device(array.as_mut_ptr()) }.expect("export");
        // SAFETY: there is room for the struct.
        unsafe { self.0.schema().export(schema.as_mut_ptr()) }.expect("export");
        // SAFETY: both structs were just exported, and nothing else uses them.
        let seen = unsafe { Batch::import_pair_device(array.as_mut_ptr(), schema.as_mut_ptr()) }.expect("import");
        let address = |column: Column<'_>| column.values::<i32>().expect("int32").as_ptr().addr();
        let sum = seen.columns().fold(0_usize, |sum, column| sum.wrapping_add(address(column)));
        assert!(sum == bench::column().as_ptr().addr().wrapping_mul(self.0.n_columns()));
    }
}

fn add() {
    bench::add::<Shared>(c"rust/tensor-round-trip", 0);
    bench::add::<Moved>(c"rust/tensor-moved", 0);
    for width in RUST_WIDTHS {
        bench::add::<Read>(c"rust/batch-read", width);
    }
}

bench::benches!(c"devexchange", add);
