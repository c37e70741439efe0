//! Answers of Java that native threads wait for. They ask with a token ([`ask`](crate::queue::ask)) and never enter the
//! JVM; a Java thread answers.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use devexchange_core::Error;
use devexchange_core::abi::types::DevxStatus;
use jni::Env;
use jni::objects::JString;
use jni::sys::{jint, jlong};

/// The threads that wait for an answer, by the number of the question. `None` when no more answers come.
pub(crate) struct Answers<A>(Mutex<Option<BTreeMap<jlong, SyncSender<A>>>>);

impl<A> Answers<A> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Some(BTreeMap::new())))
    }

    fn waiting(&self) -> MutexGuard<'_, Option<BTreeMap<jlong, SyncSender<A>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a question, which no other thread may be asking now, and waits for the answer. `None` if no more answers
    /// come because the JVM is exiting.
    pub(crate) fn wait(&self, question: jlong, ask: impl FnOnce()) -> Option<A> {
        let (sender, answer) = sync_channel(1);
        self.waiting().as_mut()?.insert(question, sender);
        ask();
        answer.recv().ok()
    }

    /// Gives the answer to the thread that waits; if none does, the answer is dropped.
    pub(crate) fn give(&self, question: jlong, answer: A) {
        let sender = self.waiting().as_mut().and_then(|waiting| waiting.remove(&question));
        if let Some(sender) = sender {
            // The channel has room for the one answer. It only fails if nobody waits any more.
            let _ = sender.send(answer);
        }
    }

    /// Ends every wait, present and future.
    pub(crate) fn close(&self) {
        let left = self.waiting().take();
        drop(left);
    }
}

/// The error for what a Java callback threw.
pub(crate) fn thrown(env: &Env<'_>, status: jint, driver_code: jint, text: &JString<'_>) -> Error {
    let text = text.try_to_string(env).unwrap_or_else(|_| "a callback failed, and its text cannot be read".to_owned());
    Error::driver(DevxStatus(status), driver_code, text)
}
