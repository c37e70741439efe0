//! The Rust program of pairs.py.
#![expect(clippy::panic, reason = "a peer that cannot go on ends, and says why")]
#![expect(clippy::indexing_slicing, reason = "as above")]

use std::collections::HashMap;
use std::fmt::Write;
use std::io::{BufRead, stdin};
use std::time::{Duration, Instant};

use devexchange_core::arrow::ArrayBuilder;
use devexchange_core::dlpack::Copying;
use devexchange_core::ipc::{self, Server};
use devexchange_core::{Batch, DType, Device, DeviceType, Flags, Owner, Result, Stream, Tensor, TensorDesc, ledger};

const HALVES: [f64; 2] = [1.5, 2.5];
const LONG: Duration = Duration::from_secs(120);

/// An array with a validity bitmap, or with none if it has no nulls.
fn array(name: &str, format: &str, rows: i64, valid: Option<&'static u8>) -> ArrayBuilder {
    ArrayBuilder::new(name, format, rows).buffer(valid.map_or(std::ptr::null(), |bits| std::ptr::from_ref(bits).cast()))
}

fn over<T>(values: &'static [T]) -> *const core::ffi::c_void {
    values.as_ptr().cast()
}

fn batch(rows: i64) -> Result<Batch> {
    let list = array("l", "+l", rows, Some(&0b011)).buffer(over(&[0, 2, 2, 2]));
    let letters = array("", "u", 2, None).buffer(over(&[0, 1, 2])).buffer(over(b"xy"));
    let members = array("st", "+s", rows, None).child(array("a", "l", rows, None).buffer(over(&[1_i64, 2, 3])));
    let table = ArrayBuilder::batch(rows)
        .child(array("n", "l", rows, Some(&0b1011)).buffer(over(&[9_i64, 1, 0, 3])).offset(1))
        .child(array("s", "u", rows, Some(&0b101)).buffer(over(&[0, 1, 1, 8])).buffer(over("aZürich".as_bytes())))
        .child(list.child(array("item", "l", 2, None).buffer(over(&[1_i64, 2]))))
        .child(array("d", "c", rows, None).buffer(over(&[0_i8, 1, 0])).dictionary(letters))
        .child(members.child(array("b", "g", rows, None).buffer(over(&[0.5, 1.5, 2.5]))))
        .child(array("m", "b", rows, Some(&0b101)).buffer(over(&[0b001_u8])));
    // SAFETY: the buffers are constants, and as long as the arrays say.
    unsafe { table.build(Device::CPU) }.map_err(|refused| refused.error)
}

/// A tensor of two values; `data` must outlive it.
fn two(data: *const impl Sized, dtype: DType, stride: i64, flags: Flags) -> Result<Tensor> {
    let (data, strides) = (data.cast_mut().cast(), Some(&[stride][..]));
    let desc = TensorDesc { data, device: Device::CPU, dtype, shape: &[2], strides, byte_offset: 0, flags };
    // SAFETY: `data` has two values at this stride, valid while the tensor is used; no peer writes to either value.
    unsafe { Tensor::from_raw_parts(&desc, Owner::none()) }.map_err(|refused| refused.error)
}

fn shared_memory(tensor: &Tensor) -> *mut i32 {
    tensor.data().cast()
}

fn offer_all(server: &Server, shared: &Tensor, stream: Option<Stream>) -> Result<()> {
    server.offer_tensor("shared", shared, Copying::Never)?;
    // SAFETY: the tensor has six values, so this is the address of the second.
    let view = two(unsafe { shared_memory(shared).add(1) }, DType::INT32, 2, Flags::READ_ONLY)?;
    server.offer_tensor("view", &view, Copying::Never)?;
    let copied = two(HALVES.as_ptr(), DType::FLOAT64, 1, Flags::default())?;
    server.offer_tensor("copied", &copied, Copying::IfNeeded)?;
    server.offer_tensor("none", &ipc::allocate_tensor(DType::INT32, &[0, 3])?, Copying::Never)?;
    server.offer_batch("rows", &batch(3)?, Copying::IfNeeded)?;
    server.offer_batch("no rows", &batch(0)?, Copying::IfNeeded)?;
    if let Some(stream) = stream {
        let mut made = Tensor::allocate(Device::new(DeviceType::CUDA, 0)?, DType::FLOAT64, &[2], Some(stream))?;
        // SAFETY: the memory was allocated just now, and nothing else uses it.
        unsafe { made.write(HALVES.map(f64::to_ne_bytes).as_flattened(), Some(stream)) }?;
        // SAFETY: the write that fills the memory was queued on this stream.
        unsafe { made.produced_on(stream) }?;
        server.offer_tensor("device", &made, Copying::IfNeeded)?;
    }
    Ok(())
}

fn show_tensor(name: &str, tensor: &Tensor, stream: Option<Stream>) -> Result<String> {
    let mut copy = [0; 16];
    let mut data = tensor.data().cast_const();
    if let (false, Some(stream)) = (tensor.device().is_host(), stream) {
        tensor.read(&mut copy, Some(stream))?;
        data = copy.as_ptr().cast();
    }
    let (shape, strides, dtype) = (tensor.shape(), tensor.strides(), tensor.dtype().to_dlpack());
    let extents = shape.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
    let read_only = if tensor.flags().has(Flags::READ_ONLY) { " read-only" } else { "" };
    let columns = shape[shape.len() - 1];
    let elements = (0..shape.iter().product()).map(|i: i64| {
        let row = if shape.len() == 2 { i / columns * strides[0] } else { 0 };
        let at = (row + i % columns * strides[shape.len() - 1]) as usize;
        match tensor.dtype() == DType::INT32 {
            // SAFETY: the index is within the shape, and the peers offer these two element types only.
            true => unsafe { data.cast::<i32>().wrapping_add(at).read() }.to_string(),
            // SAFETY: as above.
            false => unsafe { data.cast::<f64>().wrapping_add(at).read_unaligned() }.to_string(),
        }
    });
    let elements = elements.collect::<Vec<_>>().join(" ");
    Ok(format!("{name} {}{} {extents}{read_only} [{elements}]; ", dtype.code, dtype.bits))
}

fn show_batch(name: &str, batch: &Batch) -> Result<String> {
    let mut shown = format!("{name} {}", batch.length());
    for column in batch.columns() {
        let rows = (0..column.length()).map(|row| column.value(row).map(|value| value.to_string()));
        let _ = write!(shown, " {}:{}", column.field().name(), rows.collect::<Result<Vec<_>>>()?.join(","));
    }
    Ok(shown + "; ")
}

#[derive(Default)]
struct Imported {
    tensors: Vec<Tensor>,
    batches: Vec<Batch>,
}

impl Imported {
    fn take(address: &str, stream: Option<Stream>) -> Result<(Self, String)> {
        let (client, mut all, mut shown) = (ipc::connect(address)?, Self::default(), String::new());
        for name in ["shared", "view", "copied", "none", "device"].iter().take(if stream.is_some() { 5 } else { 4 }) {
            // SAFETY: the peers write only to the first element of "shared", one peer at a time, and none during this read.
            let tensor = unsafe { client.import_tensor(name) }?;
            shown += &show_tensor(name, &tensor, stream)?;
            all.tensors.push(tensor);
        }
        for name in ["rows", "no rows"] {
            // SAFETY: the peers export valid Arrow arrays and write to no batch.
            let batch = unsafe { client.import_batch(name) }?;
            shown += &show_batch(name, &batch)?;
            all.batches.push(batch);
        }
        Ok((all, shown))
    }
}

fn run(address: &str, stream: Option<Stream>) -> Result<()> {
    let server = Server::bind(address)?;
    let shared = ipc::allocate_tensor(DType::INT32, &[2, 3])?;
    let first = shared_memory(&shared);
    // SAFETY: the tensor has six values, and no other process has it yet.
    unsafe { first.cast::<[i32; 6]>().write([1, 2, 3, 4, 5, 6]) };
    offer_all(&server, &shared, stream)?;
    println!("ready");
    let mut held = HashMap::new();
    for line in stdin().lock().lines().map_while(|line| line.ok()) {
        let (verb, address) = line.split_once(' ').unwrap_or((&line, ""));
        match verb {
            "import" => {
                let (all, shown) = Imported::take(address, stream)?;
                held.insert(address.to_owned(), all);
                println!("{shown}");
            }
            "write" => {
                // SAFETY: pairs.py lets one process at a time write or read.
                unsafe { *shared_memory(&held[address].tensors[0]) += 1 };
                println!("written");
            }
            // SAFETY: as above; `shared` lives until the end of this function.
            "look" => println!("{} {} {}", unsafe { first.read() }, server.leases(), ledger::outstanding()),
            "release" => {
                for imported in held.drain().map(|(_, imported)| imported) {
                    if let (Some(stream), Some(device)) = (stream, imported.tensors.get(4)) {
                        device.used_on(stream)?;
                    }
                }
                println!("released");
            }
            other => panic!("what is {other}"),
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_default();
    run(&address, arguments.next().map(|_| Stream::create(0)).transpose()?)?;
    let end = Instant::now() + LONG;
    while ledger::outstanding() != 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("outstanding {}", ledger::outstanding());
    Ok(())
}
