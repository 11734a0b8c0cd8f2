//! Names to addresses, and addresses to connections, in one place: what was checked is what is
//! dialled.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::HostName;
use crate::address::AddressRules;

/// Lookups at once; each takes a thread of the runtime's pool.
const LOOKUPS_MAX: usize = 64;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer is used again.
const CACHE_TIME: Duration = Duration::from_secs(30);
const CACHE_MAX: usize = 4096;
/// Addresses of one name that are considered.
const ADDRESSES_MAX: usize = 16;
/// How long one address may take to answer, and all of them.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a name could not be resolved or reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DialError {
    /// The host's resolver says that there is no such name.
    #[error("the name does not exist")]
    NoSuchName,
    /// The host's resolver did not answer.
    #[error("the name could not be resolved")]
    LookupFailed,
    /// Each of its addresses is private, local or the host's own.
    #[error("the name resolves to addresses that are private, local or this host's own")]
    Private,
    /// None of its addresses answered.
    #[error("the host did not answer")]
    Unreachable,
}

/// Resolves and dials.
#[derive(Debug)]
pub(crate) struct Dialler {
    lookups: Semaphore,
    cache: Mutex<HashMap<HostName, Cached>>,
}

/// When a name was looked up, and its addresses.
type Cached = (Instant, Arc<[IpAddr]>);

impl Default for Dialler {
    fn default() -> Self {
        Self {
            lookups: Semaphore::new(LOOKUPS_MAX),
            cache: Mutex::default(),
        }
    }
}

impl Dialler {
    /// The addresses of a name that may be dialled.
    pub(crate) async fn resolve(
        &self,
        name: &HostName,
        rules: &AddressRules,
    ) -> Result<Vec<IpAddr>, DialError> {
        let all = self.lookup(name).await?;
        let allowed: Vec<IpAddr> = all
            .iter()
            .copied()
            .filter(|address| rules.may_dial(*address))
            .collect();
        if allowed.is_empty() {
            return Err(DialError::Private);
        }
        Ok(allowed)
    }

    /// Connects to a name, at an address that may be dialled and at no other.
    pub(crate) async fn dial(
        &self,
        name: &HostName,
        port: u16,
        rules: &AddressRules,
    ) -> Result<TcpStream, DialError> {
        let addresses = self.resolve(name, rules).await?;
        let dialling = async {
            for address in addresses {
                if let Ok(stream) = connect(SocketAddr::new(address, port)).await {
                    return Ok(stream);
                }
            }
            Err(DialError::Unreachable)
        };
        let dialled = timeout(DIAL_TIMEOUT, dialling).await;
        dialled.unwrap_or(Err(DialError::Unreachable))
    }

    async fn lookup(&self, name: &HostName) -> Result<Arc<[IpAddr]>, DialError> {
        if let Some(cached) = self.cached(name) {
            return Ok(cached);
        }
        let _permit = self.lookups.acquire().await;
        // The final dot keeps the host's search domains out.
        let asked = format!("{name}.:0");
        let found = timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host(asked)).await;
        let found = found.map_err(|_| DialError::LookupFailed)?;
        let found = found.map_err(|error| lookup_error(&error))?;
        let addresses: Arc<[IpAddr]> = found
            .map(|address| address.ip())
            .take(ADDRESSES_MAX)
            .collect();
        if addresses.is_empty() {
            return Err(DialError::NoSuchName);
        }
        self.remember(name, &addresses);
        Ok(addresses)
    }

    fn cached(&self, name: &HostName) -> Option<Arc<[IpAddr]>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, addresses) = cache.get(name)?;
        (since.elapsed() < CACHE_TIME).then(|| Arc::clone(addresses))
    }

    pub(crate) fn remember(&self, name: &HostName, addresses: &Arc<[IpAddr]>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHE_MAX {
            cache.retain(|_, (since, _)| since.elapsed() < CACHE_TIME);
        }
        if cache.len() < CACHE_MAX {
            cache.insert(name.clone(), (Instant::now(), Arc::clone(addresses)));
        }
    }
}

/// Connects to exactly this address.
pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    if stream.peer_addr()?.ip().to_canonical() != address.ip().to_canonical() {
        return Err(io::Error::other("connected to another address"));
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The standard library tells the two apart only in words.
fn lookup_error(error: &io::Error) -> DialError {
    let text = error.to_string();
    let is_unknown = ["Name or service not known", "No address associated"]
        .iter()
        .any(|known| text.contains(known));
    if is_unknown {
        DialError::NoSuchName
    } else {
        DialError::LookupFailed
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn what_a_name_resolves_to_is_checked_before_it_is_dialled() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Whoever may dial it reaches it.
        connect(address).await.unwrap();
        let (dialler, rules) = (Dialler::default(), AddressRules::default());
        let name = HostName::parse("rebound.example.com").unwrap();
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        for private in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(mapped)] {
            let found: Arc<[IpAddr]> = Arc::new([private]);
            dialler.remember(&name, &found);
            let reached = dialler.dial(&name, address.port(), &rules).await;
            assert_eq!(reached.map(drop), Err(DialError::Private), "{private}");
        }
    }

    #[tokio::test]
    async fn of_mixed_answers_only_what_may_be_dialled_is() {
        let (dialler, rules) = (Dialler::default(), AddressRules::default());
        let name = HostName::parse("mixed.example.com").unwrap();
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        let found: Arc<[IpAddr]> = Arc::new([
            parse("169.254.169.254"),
            parse("64:ff9b::a9fe:a9fe"),
            parse("10.0.0.1"),
            parse("192.0.43.7"),
            parse("::ffff:127.0.0.1"),
        ]);
        dialler.remember(&name, &found);
        let allowed = dialler.resolve(&name, &rules).await.unwrap();
        assert_eq!(allowed, [parse("192.0.43.7")]);
    }
}
