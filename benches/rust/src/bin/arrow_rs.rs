//! Export and import of record batches and schemas with arrow-rs, as a user of its API does it. It has no device
//! structs, so these are plain `ArrowArray`s.

#![no_main]

use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, from_ffi_and_data_type, to_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, ListArray, RecordBatch, RecordBatchReader, StringArray, StructArray,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};
use bench::{ARRAY_WIDTHS, Bench, READ_WIDTH, ROWS, RUST_WIDTHS, SCHEMA_WIDTH, STREAM_WIDTHS};

/// A column over the static values, whose buffer has a share of the owner.
fn column(owner: &Arc<()>) -> ArrayRef {
    let values = bench::column();
    let start = NonNull::from(values).cast();
    // SAFETY: `values` is static, and has so many bytes.
    let buffer = unsafe { Buffer::from_custom_allocation(start, size_of_val(values), Arc::new(owner.clone())) };
    Arc::new(Int32Array::new(ScalarBuffer::new(buffer, 0, ROWS), None))
}

fn table(columns: usize) -> RecordBatch {
    let owner = Arc::new(());
    let fields: Vec<_> = (0..columns).map(|i| Field::new(format!("c{i}"), DataType::Int32, true)).collect();
    let arrays = (0..columns).map(|_| column(&owner)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("a batch")
}

/// Exports a batch and imports it as another one, through both structs.
fn there_and_back(batch: &RecordBatch) -> RecordBatch {
    let (array, schema) = to_ffi(&StructArray::from(batch.clone()).to_data()).expect("export");
    // SAFETY: `to_ffi` made both structs, of the same array.
    let seen = unsafe { from_ffi(array, &schema) }.expect("import");
    RecordBatch::from(StructArray::from(seen))
}

struct WithSchema(RecordBatch);

impl Bench for WithSchema {
    fn set_up(columns: usize) -> Self {
        Self(table(columns))
    }

    fn once(&mut self) {
        assert!(there_and_back(&self.0).num_columns() == self.0.num_columns());
    }
}

/// The sum of the addresses of the columns' values.
fn addresses(batch: &RecordBatch) -> usize {
    let address = |column: &ArrayRef| column.as_primitive::<Int32Type>().values().as_ptr().addr();
    batch.columns().iter().fold(0, |sum: usize, column| sum.wrapping_add(address(column)))
}

/// Like `WithSchema`, but also reads the columns.
struct Read(RecordBatch);

impl Bench for Read {
    fn set_up(columns: usize) -> Self {
        Self(table(columns))
    }

    fn once(&mut self) {
        let sum = addresses(&there_and_back(&self.0));
        assert!(sum == bench::column().as_ptr().addr().wrapping_mul(self.0.num_columns()));
    }
}

/// Like `WithSchema`, with the nodes of `nested` in `benches/c/data.c`.
struct Nested(WithSchema);

impl Bench for Nested {
    fn set_up(_: usize) -> Self {
        let owner = Arc::new(());
        let ends = || OffsetBuffer::new(ScalarBuffer::from(vec![0; ROWS + 1]));
        let texts = || Arc::new(StringArray::new(ends(), Buffer::from([0]), None));
        let numbers = column(&owner).as_primitive::<Int32Type>().clone();
        let word = DictionaryArray::new(numbers, texts());
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let list = ListArray::new(item, ends(), column(&owner), None);
        let parts =
            Fields::from(vec![Field::new("number", DataType::Int32, true), Field::new("text", DataType::Utf8, true)]);
        let pair = StructArray::new(parts, vec![column(&owner), texts()], None);
        let columns: [(&str, ArrayRef); 3] =
            [("word", Arc::new(word)), ("list", Arc::new(list)), ("pair", Arc::new(pair))];
        Self(WithSchema(RecordBatch::try_from_iter(columns).expect("a batch")))
    }

    fn once(&mut self) {
        self.0.once();
    }
}

/// Like `WithSchema`, but the consumer already has the type.
struct SchemaAgreed {
    batch: RecordBatch,
    data_type: DataType,
}

impl Bench for SchemaAgreed {
    fn set_up(columns: usize) -> Self {
        let batch = table(columns);
        let data_type = DataType::Struct(batch.schema().fields().clone());
        Self { batch, data_type }
    }

    fn once(&mut self) {
        let array = FFI_ArrowArray::new(&StructArray::from(self.batch.clone()).to_data());
        // SAFETY: the array was just exported, and has that type.
        let seen = unsafe { from_ffi_and_data_type(array, self.data_type.clone()) }.expect("import");
        let batch = RecordBatch::from(StructArray::from(seen));
        assert!(batch.num_columns() == self.batch.num_columns());
    }
}

/// Like `SchemaAgreed`, but of a new batch each time.
struct Made {
    schema: SchemaRef,
    agreed: SchemaAgreed,
}

impl Bench for Made {
    fn set_up(columns: usize) -> Self {
        let agreed = SchemaAgreed::set_up(columns);
        Self { schema: agreed.batch.schema(), agreed }
    }

    fn once(&mut self) {
        let owner = Arc::new(());
        let columns = (0..self.schema.fields().len()).map(|_| column(&owner)).collect();
        self.agreed.batch = RecordBatch::try_new(self.schema.clone(), columns).expect("a batch");
        self.agreed.once();
    }
}

/// Reads the columns of a batch.
struct Columns(RecordBatch);

impl Bench for Columns {
    fn set_up(columns: usize) -> Self {
        Self(table(columns))
    }

    fn once(&mut self) {
        assert!(addresses(&self.0) == bench::column().as_ptr().addr().wrapping_mul(self.0.num_columns()));
    }
}

/// The types of `mixed_formats` in `benches/c/data.c`.
fn mixed_schema(columns: usize) -> Schema {
    let types = [
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Utf8,
        DataType::Boolean,
        DataType::Binary,
        DataType::Date32,
    ];
    let field = |(i, data_type): (usize, &DataType)| Field::new(format!("c{i}"), data_type.clone(), true);
    Schema::new(types.iter().cycle().take(columns).enumerate().map(field).collect::<Vec<_>>())
}

struct ExportSchema(Schema);

impl Bench for ExportSchema {
    fn set_up(columns: usize) -> Self {
        Self(mixed_schema(columns))
    }

    fn once(&mut self) {
        drop(FFI_ArrowSchema::try_from(&self.0).expect("export"));
    }
}

/// Imports a schema. arrow-rs reads the producer's struct, and leaves its release to the caller.
struct ImportSchema(FFI_ArrowSchema);

impl Bench for ImportSchema {
    fn set_up(columns: usize) -> Self {
        Self(FFI_ArrowSchema::try_from(&mixed_schema(columns)).expect("export"))
    }

    fn once(&mut self) {
        let seen = Schema::try_from(&self.0).expect("import");
        assert!(seen.fields().len() == SCHEMA_WIDTH as usize);
    }
}

/// A reader that returns the same batch without end.
struct Endless(RecordBatch);

impl Iterator for Endless {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(Ok(self.0.clone()))
    }
}

impl RecordBatchReader for Endless {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

struct Stream(RecordBatchStreamReader);

impl Bench for Stream {
    fn set_up(columns: usize) -> Self {
        let stream = FFI_ArrowArrayStream::new(Box::new(Endless(table(columns))));
        Self(RecordBatchStreamReader::try_new(stream).expect("import"))
    }

    fn once(&mut self) {
        let batch = self.0.next().expect("no end").expect("a batch");
        assert!(batch.num_rows() == ROWS);
    }
}

fn add() {
    for width in ARRAY_WIDTHS {
        bench::add::<WithSchema>(c"device-array/with-schema", width);
        bench::add::<SchemaAgreed>(c"device-array/schema-agreed", width);
        bench::add::<Made>(c"device-array/made", width);
    }
    for width in RUST_WIDTHS {
        bench::add::<Read>(c"rust/batch-read", width);
    }
    bench::add::<Nested>(c"device-array/nested", 0);
    bench::add::<Columns>(c"batch-columns", READ_WIDTH);
    bench::add::<ExportSchema>(c"schema/export", SCHEMA_WIDTH);
    bench::add::<ImportSchema>(c"schema/import", SCHEMA_WIDTH);
    for width in STREAM_WIDTHS {
        bench::add::<Stream>(c"stream/plain", width);
    }
}

bench::benches!(c"arrow-rs", add);
