//! An HTTP client for one server: its URL, its headers, and what may become of them.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};

use crate::bounds::RESULT_BYTES_MAX;
use crate::rpc::{Failure, RpcError};
use crate::settings::{Endpoint, Environment, Redactor, Resolved};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects that are followed, all within one origin: credentials go nowhere else.
const REDIRECTS_MAX: usize = 3;
/// What is read of a refusal.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Headers that the transport decides.
const OURS: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// One server's.
pub(super) struct HttpClient {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl HttpClient {
    /// Fills the variables in. The error names no value.
    pub(super) fn new(
        endpoint: &Endpoint,
        environment: Environment<'_>,
    ) -> Result<(Self, Redactor), String> {
        let missing = |name: String| format!("the environment variable {name} is not set");
        let url = endpoint.url.resolve(environment).map_err(missing)?;
        let parsed = Url::parse(url.expose())
            .ok()
            .filter(|url| ["http", "https"].contains(&url.scheme()));
        let parsed = parsed.ok_or("its URL is not one of http or https")?;
        let (mut headers, mut secrets): (_, Vec<Resolved>) = (HeaderMap::new(), Vec::new());
        secrets.extend(endpoint.url.variables().next().is_some().then_some(url));
        for (name, value) in &endpoint.headers {
            let value = value.resolve(environment).map_err(missing)?;
            let (name, header) = header(name, &value)?;
            headers.append(name, header);
            secrets.push(value);
        }
        let client = client(&parsed)?;
        Ok((
            Self {
                client,
                url: parsed,
                headers,
            },
            Redactor::new(secrets.iter()),
        ))
    }

    pub(super) fn request(&self, method: Method) -> RequestBuilder {
        self.to(method, self.url.clone())
    }

    pub(super) fn to(&self, method: Method, url: Url) -> RequestBuilder {
        self.client
            .request(method, url)
            .headers(self.headers.clone())
    }

    /// Another address of the same server; credentials are sent there.
    pub(super) fn neighbour(&self, address: &str) -> Option<Url> {
        self.url
            .join(address)
            .ok()
            .filter(|url| url.origin() == self.url.origin())
    }
}

fn header(name: &str, value: &Resolved) -> Result<(HeaderName, HeaderValue), String> {
    let shown = crate::text::on_one_line(name, 64);
    let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
    let parsed = parsed.filter(|name| !OURS.contains(&name.as_str()));
    let parsed = parsed.ok_or_else(|| format!("its header `{shown}` cannot be set"))?;
    let value = HeaderValue::from_str(value.expose());
    let mut value = value.map_err(|_| format!("the value of its header `{shown}` is not one"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

fn client(url: &Url) -> Result<Client, String> {
    // The first one in the process is used; any of them would do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let follow = Policy::custom(|attempt| {
        let is_same = attempt
            .previous()
            .first()
            .is_some_and(|first| first.origin() == attempt.url().origin());
        if is_same && attempt.previous().len() <= REDIRECTS_MAX {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let mut builder = Client::builder()
        .user_agent(concat!("hotcell/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .redirect(follow);
    if url.scheme() == "http" {
        // The certificates of this host would take memory for nothing.
        builder = builder.tls_certs_only([]);
    }
    builder
        .build()
        .map_err(|_| "the certificates of this host could not be read".to_owned())
}

/// Sends it; the failure says whether the server may have seen it.
pub(super) async fn sent(request: RequestBuilder) -> Result<Response, Failure> {
    request.send().await.map_err(|error| {
        if error.is_connect() {
            Failure::Unreachable
        } else {
            Failure::Closed("its connection was lost".into())
        }
    })
}

/// The whole body, if it is not too large.
pub(super) async fn body(response: Response) -> Result<String, Failure> {
    read(response, RESULT_BYTES_MAX)
        .await?
        .ok_or(Failure::TooLarge)
}

async fn read(mut response: Response, bytes_max: usize) -> Result<Option<String>, Failure> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > bytes_max => return Ok(None),
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(_) => return Err(Failure::Closed("its connection was lost".into())),
        }
    }
    let text = String::from_utf8(body);
    text.map(Some)
        .map_err(|_| Failure::Protocol("its answer is not UTF-8"))
}

/// Why a response is not a success. Some servers say it in a JSON-RPC error.
pub(super) async fn refusal(response: Response, has_session: bool) -> Failure {
    let status = response.status();
    if has_session && status == StatusCode::NOT_FOUND {
        return Failure::SessionLost;
    }
    let text = read(response, REFUSAL_BYTES_MAX)
        .await
        .ok()
        .flatten()
        .unwrap_or_default();
    let error = serde_json::from_str::<serde_json::Value>(&text).ok();
    let error =
        error.and_then(|body| serde_json::from_value::<RpcError>(body["error"].clone()).ok());
    match error {
        // Older servers have no status of their own for it.
        Some(error) if has_session && error.code == -32000 && error.message.contains("ession") => {
            Failure::SessionLost
        }
        Some(error) if status == StatusCode::BAD_REQUEST => Failure::Rpc(error),
        Some(_) | None => Failure::Refused(status.as_u16()),
    }
}
