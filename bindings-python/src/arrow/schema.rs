//! Schemas: in and out as Arrow, and their contents.

use std::fmt::Display;
use std::hash::{Hash, Hasher};

use devexchange_core::Schema as CoreSchema;
use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::arrow::{Field, Type};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrow::{capsule, export, field, metadata};
use crate::python::address::Address;
use crate::python::call::call_if_there;
use crate::python::error::{Result, wrong_type};
use crate::python::handle::Kept;

/// The schema of a batch: a tree of fields.
///
/// Two schemas are equal if the names, formats, flags and metadata of all their fields are equal.
#[pyclass(frozen, eq, hash, module = "devexchange", weakref)]
pub(crate) struct Schema(Kept<CoreSchema>);

impl Schema {
    pub(crate) fn new(schema: CoreSchema) -> Self {
        Self(Kept::new(schema))
    }

    pub(crate) fn get(&self) -> &CoreSchema {
        &self.0
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl Hash for Schema {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.root().children().for_each(|field| (field.name(), field.format()).hash(state));
    }
}

#[pymethods]
impl Schema {
    #[new]
    #[pyo3(signature = (*_arguments, **_options), text_signature = None)]
    fn refuse_new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Result<Self> {
        wrong_type!("Schema has no constructor: from_arrow makes one")
    }

    /// Names of the columns.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.0.root().children().map(Field::name).collect()
    }

    /// Format strings of the columns (Arrow C data interface); for a dictionary, the format of its indices.
    #[getter]
    fn formats(&self) -> Vec<&str> {
        self.0.root().children().map(Field::format).collect()
    }

    /// The columns: name, type and all else that the schema says of them.
    #[getter]
    fn fields(&self) -> Vec<field::Field> {
        field::children(&self.0, self.0.root())
    }

    /// The field that describes the whole array; for record batches a struct of the columns.
    #[getter]
    fn root(&self) -> field::Field {
        field::Field::of(&self.0, self.0.root())
    }

    /// Format string of the root; "+s" for record batches.
    #[getter]
    fn format(&self) -> &str {
        self.0.root().format()
    }

    /// Name of the root, often empty.
    #[getter]
    fn name(&self) -> &str {
        self.0.root().name()
    }

    /// Metadata of the root. Bytes that are not UTF-8 become surrogates, as in file names.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        metadata::of_pairs(py, self.0.root().metadata())
    }

    /// Returns a capsule with the schema (Arrow PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        export::schema(py, &self.0)
    }

    /// Takes a schema from the `ArrowSchema` at an address, and marks the struct as released.
    ///
    /// The address is not checked: there must be such a struct, and nobody else may use it meanwhile.
    #[staticmethod]
    #[pyo3(signature = (address, /))]
    fn import_arrow(address: Address) -> Result<Self> {
        // SAFETY: the caller vouches for the address.
        Ok(Self::new(unsafe { CoreSchema::import(address.pointer()) }?))
    }

    /// Fills in the `ArrowSchema` at an address; its consumer calls its release.
    ///
    /// The address is not checked.
    #[pyo3(signature = (address, /))]
    fn export_arrow(&self, address: Address) -> Result<()> {
        // SAFETY: as above.
        Ok(unsafe { self.0.export(address.pointer()) }?)
    }

    fn __len__(&self) -> usize {
        self.0.root().n_children()
    }

    /// Refuses, for `pickle` and `copy`.
    fn __reduce__(&self) -> Result<()> {
        wrong_type!("a Schema cannot be pickled: pyarrow.schema(schema) can be pickled")
    }

    fn __repr__(&self) -> String {
        format!("<devexchange.Schema {}>", fields(&self.0))
    }
}

/// The maximum number of fields that are shown.
const SHOWN: usize = 20;

/// Names and types of the columns, for people; just the type if there are no columns.
pub(crate) fn fields(schema: &CoreSchema) -> String {
    let root = schema.root();
    if root.ty() != Type::Struct || root.n_children() == 0 {
        return plain(root.type_name());
    }
    children(root)
}

/// Names and types of the fields below a field, for people.
pub(crate) fn children(parent: Field<'_>) -> String {
    let shown = |field: Field<'_>| format!("{}: {}", plain(field.name()), plain(field.type_name()));
    let shown = parent.children().take(SHOWN).map(shown);
    let more = parent.n_children().saturating_sub(SHOWN);
    shown.chain((more > 0).then(|| format!("… and {more} more"))).collect::<Vec<_>>().join(", ")
}

/// A name or a type (which has the name of a time zone in it) for people: quoted and escaped if it has characters that would
/// not be seen, or that a terminal would obey.
pub(crate) fn plain(text: impl Display) -> String {
    let text = text.to_string();
    let odd = |c: char| c != '\'' && c.escape_debug().len() > 1;
    if text.contains(odd) { format!("{text:?}") } else { text }
}

/// Takes the schema out of a capsule.
pub(crate) fn import(capsule: &Bound<'_, PyAny>) -> Result<CoreSchema> {
    let schema = capsule::claim::<ArrowSchema>(capsule)?;
    // SAFETY: a capsule of this name holds a valid struct, and this call has claimed it.
    Ok(unsafe { CoreSchema::import(schema.pointer) }?)
}

/// The schema that an object offers, if any.
pub(crate) fn exported(obj: &Bound<'_, PyAny>) -> Result<Option<CoreSchema>> {
    call_if_there(obj, intern!(obj.py(), "__arrow_c_schema__"))?.map(|capsule| import(&capsule)).transpose()
}

/// The schema that an object is, or offers.
pub(crate) fn wanted(obj: &Bound<'_, PyAny>) -> Result<CoreSchema> {
    match obj.cast::<Schema>() {
        Ok(schema) => Ok(schema.get().get().clone()),
        Err(_) => match exported(obj)? {
            Some(schema) => Ok(schema),
            None => wrong_type!("{} has no __arrow_c_schema__", obj.get_type()),
        },
    }
}
