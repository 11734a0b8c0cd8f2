//! A running server with one container.

use serde_json::json;

use super::home::Home;
use super::mcp::Client;
use super::server::Server;

/// A server, a client connected to it, and its state directory.
pub(crate) struct Served {
    pub client: Client,
    pub server: Server,
    pub home: Home,
}

impl Served {
    /// Starts a server and spawns one container with the alias `cell`.
    pub(crate) fn with_cell() -> Self {
        let home = Home::new();
        let server = home.serve_with(&["--drain-grace-s", "0"]);
        let mut client = server.client();
        client.ok("spawn", json!({ "alias": "cell" }));
        Self {
            client,
            server,
            home,
        }
    }

    /// Stops the server and fails if anything of its containers is left.
    pub(crate) fn end(self) {
        let ids = self.home.containers();
        assert!(self.server.terminate().success());
        self.home.assert_empty(&ids);
    }
}
