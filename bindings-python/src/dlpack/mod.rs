//! DLPack both ways, through capsules (array API) and through the function tables of types (DLPack 1.3): requests to
//! producers and exports to consumers. Nothing here knows our own Python type.

pub(crate) mod address;
pub(crate) mod capsule;
pub(crate) mod consumer;
mod exchange;
pub(crate) mod export;
pub(crate) mod import;
mod offer;
mod request;
pub(crate) mod version;
pub(crate) mod wanted;
