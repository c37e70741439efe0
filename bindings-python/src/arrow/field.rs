//! Fields: what a schema says of each of its arrays.

use std::hash::{Hash, Hasher};

use devexchange_core::Schema as CoreSchema;
use devexchange_core::abi::arrow_data::{ARROW_FLAG_DICTIONARY_ORDERED, ARROW_FLAG_MAP_KEYS_SORTED};
use devexchange_core::arrow::Field as CoreField;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::arrow::{metadata, schema};
use crate::python::error::{Result, wrong_type};
use crate::python::handle::Kept;

/// One field of a schema: a name, a type, and the fields below it.
///
/// It comes from `Schema.fields`, `Schema.root` or `Column.field`. Two fields are equal if their names, formats, flags and
/// metadata are equal, and so are all fields below them.
#[pyclass(frozen, eq, hash, module = "devexchange", weakref)]
pub(crate) struct Field {
    schema: Kept<CoreSchema>,
    node: usize,
}

impl Field {
    /// `field` is one of `schema`.
    pub(crate) fn of(schema: &CoreSchema, field: CoreField<'_>) -> Self {
        Self { schema: Kept::new(schema.clone()), node: field.node() }
    }

    fn get(&self) -> CoreField<'_> {
        match self.schema.field(self.node) {
            Some(field) => field,
            None => unreachable!("the node was one of this schema's"),
        }
    }

    fn has_flag(&self, flag: i64) -> bool {
        self.get().flags() & flag != 0
    }
}

/// The fields below a field of a schema.
pub(crate) fn children(schema: &CoreSchema, field: CoreField<'_>) -> Vec<Field> {
    field.children().map(|child| Field::of(schema, child)).collect()
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Hash for Field {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.get().name(), self.get().format()).hash(state);
    }
}

#[pymethods]
impl Field {
    #[new]
    #[pyo3(signature = (*_arguments, **_options), text_signature = None)]
    fn refuse_new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Result<Self> {
        wrong_type!("Field has no constructor: Schema.fields, Schema.root and Column.field give one")
    }

    /// Name; empty if there is none.
    #[getter]
    fn name(&self) -> &str {
        self.get().name()
    }

    /// Format string (Arrow C data interface); for a dictionary, the format of its indices.
    #[getter]
    fn format(&self) -> &str {
        self.get().format()
    }

    /// Name of the type, for people; for a dictionary, the types of indices and values, as in "int32 -> utf8".
    #[getter]
    fn r#type(&self) -> String {
        self.get().type_name().to_string()
    }

    /// All flags (Arrow C data interface, `ARROW_FLAG_…`), unknown ones included.
    #[getter]
    fn flags(&self) -> i64 {
        self.get().flags()
    }

    /// Whether values may be null.
    #[getter]
    fn nullable(&self) -> bool {
        self.get().is_nullable()
    }

    /// Whether the order of the dictionary has a meaning.
    #[getter]
    fn ordered(&self) -> bool {
        self.has_flag(ARROW_FLAG_DICTIONARY_ORDERED)
    }

    /// Whether the keys within each row of a map are sorted.
    #[getter]
    fn keys_sorted(&self) -> bool {
        self.has_flag(ARROW_FLAG_MAP_KEYS_SORTED)
    }

    /// Metadata. Bytes that are not UTF-8 become surrogates, as in file names.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        metadata::of_pairs(py, self.get().metadata())
    }

    /// The fields of a struct, a list, a map, a union, ….
    #[getter]
    fn children(&self) -> Vec<Self> {
        children(&self.schema, self.get())
    }

    /// The field of the dictionary's values; None if the values are not indices into a dictionary.
    #[getter]
    fn dictionary(&self) -> Option<Self> {
        self.get().dictionary().map(|values| Self::of(&self.schema, values))
    }

    /// The time zone of a timestamp; empty if it has none, and for other types.
    #[getter]
    fn timezone(&self) -> &str {
        self.get().timezone()
    }

    /// The number that stands for each child of a union; empty for other types.
    #[getter]
    fn type_ids(&self) -> Vec<i8> {
        let (field, ids) = (self.get(), self.get().type_ids());
        ids.iter().flat_map(|ids| (0..field.n_children()).filter_map(|child| ids.id(child))).collect()
    }

    /// The name of the extension type, which says what the values mean beyond their format; None if there is none.
    #[getter]
    fn extension_name<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyString>>> {
        Ok(self.get().extension().map(|(name, _)| metadata::text(py, name)).transpose()?)
    }

    /// The parameters of the extension type, in a form that its name defines; empty if there are none.
    #[getter]
    fn extension_metadata<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyString>> {
        Ok(metadata::text(py, self.get().extension().map_or(b"", |(_, parameters)| parameters))?)
    }

    /// Refuses, for `pickle` and `copy`.
    fn __reduce__(&self) -> Result<()> {
        wrong_type!("a Field cannot be pickled: the fields of pyarrow.schema(schema) can be pickled")
    }

    fn __repr__(&self) -> String {
        let field = self.get();
        let (name, kind) = (field.name(), schema::plain(field.type_name()));
        let below = if field.n_children() > 0 { format!(" ({})", schema::children(field)) } else { String::new() };
        let nulls = if field.is_nullable() { "" } else { ", not null" };
        format!("<devexchange.Field {name:?}: {kind}{below}{nulls}>")
    }
}
