//! HTTP with server-sent events, as it was before 2025-03-26: one stream from the server, and an address
//! to which messages are posted, which the stream's first event names.

use std::sync::Arc;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response, Url};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::Parcel;
use super::client::{self, HttpClient};
use super::events::Events;
use crate::bounds::STOP_GRACE;
use crate::rpc::{Failure, Peer};
use crate::settings::{Endpoint, Environment, Redactor};

/// A server of the first generation.
pub(crate) struct Sse {
    client: Arc<HttpClient>,
    peer: Arc<Peer>,
    /// Where messages go, once the server has said it.
    address: watch::Receiver<Option<Url>>,
    #[expect(dead_code, reason = "dropped, it ends")]
    reading: AbortOnDropHandle<()>,
}

impl Sse {
    /// Begins to connect.
    pub(crate) fn new(
        endpoint: &Endpoint,
        environment: Environment<'_>,
        peer: &Arc<Peer>,
    ) -> Result<(Self, Redactor), String> {
        let (client, redactor) = HttpClient::new(endpoint, environment)?;
        let client = Arc::new(client);
        let (sender, address) = watch::channel(None);
        let reading = tokio::spawn(read(Arc::clone(&client), Arc::clone(peer), sender));
        let link = Self {
            client,
            peer: Arc::clone(peer),
            address,
            reading: AbortOnDropHandle::new(reading),
        };
        Ok((link, redactor))
    }

    pub(crate) async fn send(&self, parcel: Parcel) -> Result<(), Failure> {
        let mut address = self.address.clone();
        let known = address
            .wait_for(Option::is_some)
            .await
            .map(|address| address.clone());
        match known {
            Ok(Some(address)) => post(&self.client, address, parcel.body).await,
            Ok(None) | Err(_) => Err(Failure::Closed(self.peer.closed().await)),
        }
    }

    pub(crate) fn stop(&self) {
        self.peer.close("it was stopped");
    }
}

async fn post(
    client: &HttpClient,
    address: Url,
    body: impl Into<reqwest::Body>,
) -> Result<(), Failure> {
    let request = client
        .to(Method::POST, address)
        .header(CONTENT_TYPE, "application/json")
        .body(body);
    let response = client::sent(request).await?;
    if response.status().is_success() {
        return Ok(());
    }
    Err(client::refusal(response, false).await)
}

/// Reads the stream until it ends, which ends the connection.
async fn read(client: Arc<HttpClient>, peer: Arc<Peer>, address: watch::Sender<Option<Url>>) {
    let request = client
        .request(Method::GET)
        .header(ACCEPT, "text/event-stream");
    let ended = tokio::select! {
        _ = peer.closed() => return,
        ended = async { drain(client::sent(request).await?, &client, &peer, &address).await } => ended,
    };
    let why = match ended {
        Ok(()) => "it ended the connection".to_owned(),
        Err(Failure::Unreachable) => "it cannot be reached".to_owned(),
        Err(Failure::Refused(status)) => {
            format!("it refused the request with HTTP status {status}")
        }
        Err(Failure::Closed(why)) => why.to_string(),
        Err(Failure::Protocol(why)) => why.to_owned(),
        Err(Failure::TooLarge) => "an answer was too large".to_owned(),
        Err(Failure::Rpc(_) | Failure::SessionLost) => "it refused the connection".to_owned(),
    };
    peer.close(why);
}

async fn drain(
    response: Response,
    client: &HttpClient,
    peer: &Peer,
    address: &watch::Sender<Option<Url>>,
) -> Result<(), Failure> {
    if !response.status().is_success() {
        return Err(client::refusal(response, false).await);
    }
    let mut events = Events::of(response);
    while let Some(event) = events.next().await? {
        if event.name == "endpoint" {
            let url = client.neighbour(event.data.trim());
            let url = url.ok_or(Failure::Protocol("it sends messages to another server"))?;
            address.send_replace(Some(url));
            continue;
        }
        for reply in peer.receive(&event.data) {
            let url = address.borrow().clone();
            if let Some(url) = url {
                let _ = tokio::time::timeout(STOP_GRACE, post(client, url, reply)).await;
            }
        }
    }
    Ok(())
}
