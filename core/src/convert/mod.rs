//! Conversions of tensors to Arrow and of Arrow to tensors: which need no copy, which need one, and which are
//! impossible. The plan can be asked for before anything is taken.
//!
//! * A column of numbers is a vector; one of fixed-size lists has one dimension more for each level: [`tensor()`],
//!   [`column()`].
//! * A column of type `arrow.fixed_shape_tensor` says the shape of its values: [`tensor()`], [`fixed_shape_column()`].
//! * A record batch of equal columns is a matrix: [`matrix()`], [`batch()`].
//!
//! ```
//! use devexchange_core::convert::{self, Plan};
//! use devexchange_core::dlpack::Copying;
//! use devexchange_core::{Batch, Result, Tensor};
//!
//! # fn main() -> Result<()> {
//! let points = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
//! assert_eq!(convert::plan_column(&points), Plan::View);
//! let column = convert::column(&points, "point", Copying::Never)?;
//! let table = Batch::of_columns(&[("point", &column)], None)?;
//! assert_eq!((table.length(), table.schema().root().child(0).unwrap().format()), (3, "+w:2"));
//!
//! let seen = convert::tensor(table.column(0).unwrap(), Copying::Never)?;
//! assert_eq!((seen.shape(), seen.data()), (points.shape(), points.data()));
//!
//! // Columns of a row-major matrix are apart in memory.
//! assert!(matches!(convert::plan_batch(&points), Plan::Copy { bytes: 24, .. }));
//! let copied = convert::batch(&points, &["x", "y"], Copying::IfNeeded)?;
//! assert_eq!(copied.column_named("y").unwrap().values::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```

mod column;
mod fixed_shape;
mod matrix;
mod tensor;

pub use column::{column, plan_column};
pub use fixed_shape::{fixed_shape_column, plan_fixed_shape_column};
pub use matrix::{batch, matrix, plan_batch, plan_matrix};
pub use tensor::{plan_tensor, tensor};

use std::borrow::Cow;
use std::fmt;

use crate::abi::types::{
    DEVX_OUT_OF_MEMORY, DEVX_PLAN_COPY, DEVX_PLAN_IMPOSSIBLE, DEVX_PLAN_REASON_BYTES, DEVX_PLAN_VIEW, DevxPlan,
};
use crate::device::Device;
use crate::dlpack::Copying;
use crate::error::{Error, Result, refuse};
use crate::text;

/// How a conversion can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// As a view of the same memory.
    View,
    /// Only with a copy.
    Copy {
        /// Bytes that the copy writes.
        bytes: usize,
        /// Why a view is not possible.
        reason: Cow<'static, str>,
    },
    /// Not at all.
    Impossible {
        /// Why.
        reason: Cow<'static, str>,
    },
}

impl Plan {
    /// Returns whether the conversion has to copy, if this policy allows it at all.
    ///
    /// # Errors
    /// `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE`, with the reason.
    pub fn allow(self, policy: Copying) -> Result<bool> {
        match (self, policy) {
            (Self::Impossible { reason }, _) => refuse!(DEVX_IMPOSSIBLE, "{reason}"),
            (Self::Copy { bytes, reason }, Copying::Never) => {
                refuse!(DEVX_COPY_REQUIRED, "{reason}: a copy of {bytes} bytes is needed, which was not allowed")
            }
            (Self::View, Copying::Never | Copying::IfNeeded) => Ok(false),
            _ => Ok(true),
        }
    }
}

impl Plan {
    /// The plan for data on `device` if the host makes the copy: then the host must be able to read the data.
    fn by_the_host(self, device: Device) -> Self {
        match self {
            Self::Copy { reason, .. } if !device.is_host() => impossible(format_args!(
                "{reason}, and a copy is made by the host, which cannot read {device}: copy_to first"
            )),
            plan => plan,
        }
    }

    /// The plan as the C record.
    pub fn to_raw(&self) -> DevxPlan {
        let (kind, copy_bytes, why) = match self {
            Self::View => (DEVX_PLAN_VIEW, 0, ""),
            Self::Copy { bytes, reason } => (DEVX_PLAN_COPY, *bytes as i64, &**reason),
            Self::Impossible { reason } => (DEVX_PLAN_IMPOSSIBLE, 0, &**reason),
        };
        let mut reason = [0; DEVX_PLAN_REASON_BYTES];
        text::fill(why, &mut reason);
        DevxPlan { kind, reserved: 0, copy_bytes, reason }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::View => f.write_str("view"),
            Self::Copy { bytes, reason } => write!(f, "copy of {bytes} bytes: {reason}"),
            Self::Impossible { reason } => write!(f, "impossible: {reason}"),
        }
    }
}

fn impossible(reason: fmt::Arguments<'_>) -> Plan {
    Plan::Impossible { reason: in_words(reason) }
}

/// The plan of a conversion that this error makes impossible. A lack of memory does not: it stays an error.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`.
pub(crate) fn impossible_as(error: Error) -> Result<Plan> {
    if error.status() == DEVX_OUT_OF_MEMORY { Err(error) } else { Ok(impossible(format_args!("{error}"))) }
}

/// Formats a reason, if there is memory for it.
pub(crate) fn in_words(reason: fmt::Arguments<'_>) -> Cow<'static, str> {
    text::formatted(reason).unwrap_or("there is no memory to say why".into())
}
