//! A server with a container in it.

use serde_json::json;

use super::home::Home;
use super::mcp::Client;
use super::server::Server;

/// A server, a client of it, and where it keeps its state.
pub(crate) struct Served {
    pub client: Client,
    pub server: Server,
    pub home: Home,
}

impl Served {
    /// With one container, `cell`.
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

    /// Ends the server. Nothing may be left of its containers.
    pub(crate) fn end(self) {
        let ids = self.home.containers();
        assert!(self.server.terminate().success());
        self.home.assert_empty(&ids);
    }
}
