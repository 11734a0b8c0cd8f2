//! Asking the user of a client that takes requests (before 2026-07-28).

use rmcp::RoleServer;
use rmcp::model::{ClientResult, ServerRequest};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, ServiceError};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::{DECISION_TIMEOUT, Filled, Form};

/// Why a form is withdrawn, as the client may show it.
const WITHDRAWN: &str = "nobody waits for the answer any more";

/// A form that the client shows. Dropped, it is withdrawn.
struct OpenForm(Option<RequestHandle<RoleServer>>);

/// Sends a form and waits for the answer.
pub(super) async fn ask(peer: &Peer<RoleServer>, form: &Form) -> Filled {
    let Some(request) = form.to_request() else {
        return Filled::Nobody;
    };
    let request = ServerRequest::ElicitRequest(request);
    let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
    let Ok(handle) = sent.await else {
        return Filled::Nobody;
    };
    let mut form = OpenForm(Some(handle));
    match timeout(DECISION_TIMEOUT, form.answered()).await {
        Ok(Ok(ClientResult::ElicitResult(result))) => Filled::new(&result.action, result.content),
        Ok(Ok(_) | Err(_)) => Filled::Nobody,
        Err(_) => Filled::Declined,
    }
}

impl OpenForm {
    async fn answered(&mut self) -> Result<ClientResult, ServiceError> {
        let Some(handle) = &mut self.0 else {
            return Err(ServiceError::TransportClosed);
        };
        let answer = (&mut handle.rx).await;
        // Nothing is left to withdraw.
        self.0 = None;
        answer.unwrap_or(Err(ServiceError::TransportClosed))
    }
}

impl Drop for OpenForm {
    fn drop(&mut self) {
        // Without a runtime the connection ends, and with it the form.
        if let (Some(handle), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(handle.cancel(Some(WITHDRAWN.to_owned())));
        }
    }
}
