//! `hotcell/interrupt`: the request by which `hotcell repl` interrupts the code that it runs. It is
//! no tool: a model that does not want an answer any more cancels its request, and gets none. A
//! person wants to see how far the code came.
//!
//! A call of `execute_code` says by [`REPL_KEY`] that it is such a person's. The handle there names
//! the call until it is answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hotcell_domain::{Caller, Name, Principal};
use rmcp::ErrorData;
use rmcp::model::{CustomResult, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The name of the request. Its parameter `handle` names the call.
pub const INTERRUPT_METHOD: &str = "hotcell/interrupt";

/// In the `_meta` of a call of `execute_code`: a handle that the caller chooses. The answer then
/// has structured content in any case, and pictures stay files.
pub const REPL_KEY: &str = "hotcell/repl";

/// The calls that can be interrupted now. As many as there are requests in flight, at most.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(Mutex<HashMap<Key, CancellationToken>>);

/// Handles are a principal's own: nobody interrupts the code of another.
type Key = (Principal, Name);

/// A call that can be interrupted for as long as this is kept.
pub(crate) struct Interruptible {
    all: Arc<Interrupts>,
    key: Key,
    interrupted: CancellationToken,
}

#[derive(Deserialize)]
struct Params {
    handle: String,
}

/// The handle in the `_meta` of a request, if it has one.
pub(crate) fn handle(meta: &JsonObject) -> Option<Name> {
    Name::parse(meta.get(REPL_KEY)?.as_str()?).ok()
}

/// Interrupts a call of the caller's, if there is one of this handle.
pub(crate) fn answer(
    all: &Interrupts,
    caller: &Caller,
    params: Option<Value>,
) -> Result<CustomResult, ErrorData> {
    let params = params.and_then(|params| serde_json::from_value::<Params>(params).ok());
    let handle = params.and_then(|params| Name::parse(&params.handle).ok());
    let handle =
        handle.ok_or_else(|| ErrorData::invalid_params("`handle` names a running call", None))?;
    let found = all.lock().get(&(caller.principal.clone(), handle)).cloned();
    let is_found = found.is_some();
    if let Some(call) = found {
        call.cancel();
    }
    Ok(CustomResult(json!({ "interrupted": is_found })))
}

impl Interrupts {
    pub(crate) fn register(self: &Arc<Self>, caller: &Caller, handle: Name) -> Interruptible {
        let key = (caller.principal.clone(), handle);
        let interrupted = CancellationToken::new();
        self.lock().insert(key.clone(), interrupted.clone());
        Interruptible {
            all: Arc::clone(self),
            key,
            interrupted,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interruptible {
    /// Waits until somebody asks for it.
    pub(crate) async fn interrupted(&self) {
        self.interrupted.cancelled().await;
    }
}

impl Drop for Interruptible {
    /// The newest call of a handle is the one that it names, so an older one may be gone already.
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(all: &Interrupts, caller: &Caller, handle: &str) -> bool {
        let answer = answer(all, caller, Some(json!({ "handle": handle })));
        answer.expect("a handle").0["interrupted"] == true
    }

    #[test]
    fn a_call_is_interrupted_by_its_own_principal_while_it_runs() {
        let all = Arc::new(Interrupts::default());
        let owner = Caller::local();
        let other = Caller {
            principal: Principal::new(Name::parse("token:other").expect("a name")),
            ..Caller::local()
        };
        let handle = Name::parse("h").expect("a name");
        let call = all.register(&owner, handle);
        assert!(!ask(&all, &other, "h") && !ask(&all, &owner, "another"));
        assert!(!call.interrupted.is_cancelled());
        assert!(ask(&all, &owner, "h"));
        assert!(call.interrupted.is_cancelled());
        drop(call);
        assert!(!ask(&all, &owner, "h"));
    }

    #[test]
    fn a_request_without_a_handle_is_refused() {
        let all = Interrupts::default();
        for params in [None, Some(json!({})), Some(json!({ "handle": "" }))] {
            assert!(answer(&all, &Caller::local(), params).is_err());
        }
    }
}
