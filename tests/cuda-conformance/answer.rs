//! Answers: short texts that are the same on every run.

/// An answer of a driver: the name and number of a result, or a few words.
pub(crate) type Answer = String;

/// The beginning of the answer to a question that makes no sense on this machine; the reason follows.
pub(crate) const SKIPPED: &str = "skipped: ";

pub(crate) const SUCCESS: &str = "success";
pub(crate) const INVALID_VALUE: &str = "CUDA_ERROR_INVALID_VALUE (1)";
pub(crate) const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY (2)";
pub(crate) const NOT_INITIALIZED: &str = "CUDA_ERROR_NOT_INITIALIZED (3)";
pub(crate) const DEINITIALIZED: &str = "CUDA_ERROR_DEINITIALIZED (4)";
pub(crate) const INVALID_DEVICE: &str = "CUDA_ERROR_INVALID_DEVICE (101)";
pub(crate) const INVALID_CONTEXT: &str = "CUDA_ERROR_INVALID_CONTEXT (201)";
pub(crate) const INVALID_HANDLE: &str = "CUDA_ERROR_INVALID_HANDLE (400)";
pub(crate) const ILLEGAL_STATE: &str = "CUDA_ERROR_ILLEGAL_STATE (401)";
pub(crate) const NOT_FOUND: &str = "CUDA_ERROR_NOT_FOUND (500)";
pub(crate) const NOT_READY: &str = "CUDA_ERROR_NOT_READY (600)";
pub(crate) const CONTEXT_IS_DESTROYED: &str = "CUDA_ERROR_CONTEXT_IS_DESTROYED (709)";
pub(crate) const NOT_PERMITTED: &str = "CUDA_ERROR_NOT_PERMITTED (800)";
pub(crate) const NOT_SUPPORTED: &str = "CUDA_ERROR_NOT_SUPPORTED (801)";

/// A result of the driver as an answer. The names are those of `cuda.h`: the driver is not asked, because it may be broken.
pub(crate) fn said(code: u32) -> Answer {
    match (code, simcuda::Code(code).name()) {
        (0, _) => SUCCESS.to_owned(),
        (401, _) => ILLEGAL_STATE.to_owned(),
        (_, Some(name)) => format!("{name} ({code})"),
        (_, None) => format!("code {code}"),
    }
}

/// Several results, each with the name of its call. If all are the same, only that result, without names.
pub(crate) fn all_said(results: &[(&str, Answer)]) -> Answer {
    match results {
        [(_, first), rest @ ..] if rest.iter().all(|(_, other)| other == first) => first.clone(),
        _ => results.iter().map(|(name, answer)| format!("{name}: {answer}")).collect::<Vec<_>>().join("; "),
    }
}

pub(crate) fn skipped(why: &str) -> Answer {
    format!("{SKIPPED}{why}")
}
