//! Some rows of a batch, or one of its columns, as a separate batch.

use super::Column;
use crate::arrow::batch::{Batch, NodeDesc};
use crate::arrow::builder::described;
use crate::arrow::field::Field;
use crate::arrow::format::Type;
use crate::arrow::schema::Schema;
use crate::error::{Result, refuse};
use crate::memory::collected;
use crate::view::View;

impl Column<'_> {
    /// The `length` rows from row `offset` on.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_RANGE` if there are fewer rows.
    pub fn slice(self, offset: i64, length: i64) -> Result<Self> {
        if offset >= 0 && length >= 0 && offset.checked_add(length).is_some_and(|end| end <= self.length) {
            return Ok(self.seen(offset, length));
        }
        refuse!(DEVX_OUT_OF_RANGE, "offset is {offset} and length is {length}: there are {} rows", self.length)
    }

    /// The rows as a separate batch, which shares the memory. It is a record batch if the column is a struct.
    ///
    /// Nothing is copied, and work with the new batch ([`Batch::used_on`]) is work with the batch that the column
    /// belongs to.
    ///
    /// The root of the new batch starts at row 0 of its columns, because many consumers of record batches accept
    /// nothing else (Arrow C++ among them). Only a struct with nulls keeps an offset, because its validity buffer has
    /// one. A null count that is known for all rows is not known for some of them.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn share(self) -> Result<Batch> {
        let starts_at_0 = self.ty() == Type::Struct && self.known_null_count() == 0;
        let first_child = self.batch.schema().links(self.node).first_child as usize;
        let seen = |node: usize| {
            let child = node.checked_sub(first_child).filter(|_| starts_at_0).and_then(|index| self.child(index));
            child.unwrap_or(Self::whole(self.batch, node)).described()
        };
        let root = if starts_at_0 {
            NodeDesc { length: self.length, null_count: 0, offset: 0, buffers: &[std::ptr::null()] }
        } else {
            self.described()
        };
        let order = self.batch.schema().depth_first_from(self.node);
        let nodes = collected(order.map(|node| Ok(if node == self.node { root } else { seen(node) })))?;
        let (schema, view) = (self.schema()?, View::of_batch(self.batch));
        // SAFETY: the batch describes its memory, which the owner keeps alive.
        let mut shared = unsafe { Batch::from_raw_parts(&schema, self.batch.device(), &nodes, view.owner()) }?;
        shared.set_view(view)?;
        Ok(shared)
    }

    /// The schema of the column and all below it.
    fn schema(self) -> Result<Schema> {
        let all = self.batch.schema();
        if self.node == 0 {
            return Ok(all.clone());
        }
        let fields = all.depth_first_from(self.node).map(|node| Field::at(all, node));
        Schema::new(&collected(fields.map(|field| Ok(described(field, field.raw_name()))))?)
    }
}

impl<'a> Column<'a> {
    fn described(self) -> NodeDesc<'a> {
        let Self { offset, length, .. } = self;
        // Without rows, the offset says nothing, and PyArrow has been seen to take it for missing views.
        let offset = if length == 0 { 0 } else { offset };
        NodeDesc { length, null_count: self.known_null_count(), offset, buffers: self.buffers() }
    }
}

impl Batch {
    /// The `length` rows from row `offset` on, as a separate batch; see [`Column::share`].
    ///
    /// # Errors
    /// `DEVX_OUT_OF_RANGE` if there are fewer rows, `DEVX_OUT_OF_MEMORY`.
    pub fn slice(&self, offset: i64, length: i64) -> Result<Self> {
        self.root().slice(offset, length)?.share()
    }
}
