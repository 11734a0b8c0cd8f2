//! agent-image
