//! Restricts the addresses to which a registry without TLS can lead us.
//!
//! Anyone between us and such a registry can forge its answers and redirect us to any name. So a
//! name must not resolve to this host or to a network behind it. The check applies to the very
//! addresses that are connected to next.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;
use tokio::sync::OnceCell;

use super::address::is_public;

/// The environment variables that configure proxies.
const PROXY_VARIABLES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// Resolves names for one registry without TLS.
pub(super) struct GuardedResolver {
    /// The registry's own name, which the operator allowed.
    own: String,
    /// The addresses of that name from its first lookup, kept so that a later DNS answer cannot
    /// lead us elsewhere.
    addresses: Arc<OnceCell<Vec<SocketAddr>>>,
    is_loopback: bool,
    /// The proxies of this process, which the operator chose.
    proxies: Vec<String>,
}

impl GuardedResolver {
    pub(super) fn new(own: &str, is_loopback: bool) -> Self {
        let proxies = PROXY_VARIABLES.iter();
        let proxies = proxies.filter_map(|name| host_of(&std::env::var(name).ok()?));
        Self {
            own: own.to_owned(),
            addresses: Arc::default(),
            is_loopback,
            proxies: proxies.collect(),
        }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        if name == self.own {
            let addresses = Arc::clone(&self.addresses);
            return Box::pin(async move {
                let found = addresses.get_or_try_init(|| look_up(name)).await?;
                Ok(Box::new(found.clone().into_iter()) as Addrs)
            });
        }
        let is_proxy = self.proxies.contains(&name);
        let is_loopback = self.is_loopback;
        Box::pin(async move {
            let mut found = look_up(name).await?;
            let may_dial = |ip: IpAddr| {
                is_proxy || is_public(ip) || is_loopback && ip.to_canonical().is_loopback()
            };
            found.retain(|address| may_dial(address.ip()));
            if found.is_empty() {
                return Err("a redirect to a private address".into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The port is unknown here; 0 is replaced by the requested one.
async fn look_up(name: String) -> io::Result<Vec<SocketAddr>> {
    Ok(lookup_host((name, 0)).await?.collect())
}

/// The host in the value of a proxy variable, with or without a scheme.
fn host_of(address: &str) -> Option<String> {
    let url = Url::parse(address)
        .ok()
        .filter(Url::has_host)
        .or_else(|| Url::parse(&format!("http://{address}")).ok())?;
    url.host_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(guarded: &GuardedResolver, name: &str) -> Result<Vec<SocketAddr>, String> {
        let found = guarded.resolve(name.parse().unwrap()).await;
        found.map(Iterator::collect).map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn a_name_that_turns_out_to_be_this_host_is_not_dialled() {
        let guarded = GuardedResolver::new("registry.example", false);
        let error = found(&guarded, "localhost").await.unwrap_err();
        assert_eq!(error, "a redirect to a private address");
        let here = GuardedResolver::new("127.0.0.1", true);
        assert!(!found(&here, "localhost").await.unwrap().is_empty());
        let own = GuardedResolver::new("localhost", false);
        assert!(!found(&own, "localhost").await.unwrap().is_empty());
        let mut proxied = GuardedResolver::new("registry.example", false);
        proxied.proxies.push("localhost".to_owned());
        assert!(!found(&proxied, "localhost").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_registry_stays_where_it_was_when_it_was_first_looked_up() {
        let own = GuardedResolver::new("localhost", true);
        let first: Vec<SocketAddr> = vec!["192.0.2.7:0".parse().unwrap()];
        own.addresses.set(first.clone()).unwrap();
        assert_eq!(found(&own, "localhost").await, Ok(first));
    }

    #[test]
    fn proxies_are_read_as_people_write_them() {
        for text in [
            "http://proxy.lan:3128",
            "proxy.lan:3128",
            "socks5://u:p@proxy.lan",
        ] {
            assert_eq!(host_of(text).as_deref(), Some("proxy.lan"), "{text}");
        }
    }
}
