//! agent-client
