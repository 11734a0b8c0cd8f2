//! Scripts in a real Python, with real servers that speak MCP on their standard streams. Only the
//! container is missing: the channel is a unix socket of this host.

mod fixture;
mod hostile;
mod scripts;
