//! Views: tensors and batches over the memory of another one, the whole. A view keeps the whole alive. Work with a view is
//! work with the whole, whose release waits for it.

use crate::arrow::Batch;
use crate::error::Result;
use crate::memory::Owner;
use crate::order::{GiveUp, Ready, Uses};
use crate::runtime::cuda::lost::Held;
use crate::stream::Stream;
use crate::tensor::{Flags, Tensor};

/// The whole that a view is of. A view of a view usually refers to the same whole, so it costs no more than a view.
#[derive(Clone)]
pub(crate) enum Whole {
    Tensor(Tensor),
    Batch(Batch),
}

impl Whole {
    pub(crate) fn uses(&self) -> &Uses {
        match self {
            Self::Tensor(tensor) => tensor.uses(),
            Self::Batch(batch) => batch.uses(),
        }
    }

    /// The owner of the whole, if it is one of this library's.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Tensor(tensor) => Some(tensor.owner()),
            Self::Batch(batch) => batch.owner(),
        }
    }

    fn into_owner(self) -> Owner {
        match self {
            Self::Tensor(tensor) => tensor.into_owner(),
            Self::Batch(batch) => batch.into_owner(),
        }
    }
}

impl GiveUp for Whole {
    fn note(&mut self, stream: Stream) -> Result<()> {
        self.uses().add(stream)
    }

    fn give_up(self) {}

    fn keep(self) -> Held {
        self.into_owner().into()
    }
}

/// What makes a tensor or batch a view (`set_view`) once it describes memory with [`View::owner`].
pub(crate) struct View {
    ready: Ready,
    whole: Whole,
}

impl View {
    pub(crate) fn of_tensor(tensor: &Tensor) -> Self {
        // A copy may be a view itself. Whether it has a single holder is known only if nobody refers to its whole directly.
        let whole = if tensor.flags().has(Flags::IS_COPIED) { None } else { tensor.uses().whole() };
        let whole = whole.unwrap_or_else(|| Whole::Tensor(tensor.clone()));
        Self { ready: tensor.ready().again(), whole }
    }

    pub(crate) fn of_batch(batch: &Batch) -> Self {
        let whole = batch.uses().whole().unwrap_or_else(|| Whole::Batch(batch.clone()));
        Self { ready: batch.ready().again(), whole }
    }

    pub(crate) fn owner(&self) -> Owner {
        self.whole.clone().into_owner()
    }

    /// When the view may be touched, and where its uses are noted.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(crate) fn order(self) -> Result<(Ready, Uses)> {
        Ok((self.ready, Uses::of_view(self.whole)?))
    }
}
