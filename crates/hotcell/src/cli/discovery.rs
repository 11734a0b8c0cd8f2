//! Where the user's other MCP servers are found.

use clap::Args;

/// Settings of the user's other MCP servers, besides `[upstream.NAME]`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Discovery")]
pub(crate) struct DiscoveryArgs {
    /// Find MCP servers in the files of Claude Code, Claude Desktop, Cursor, VS Code, Windsurf, Zed, Codex, in ./.mcp.json, ./mcp-servers and ~/.config/mcp/servers; none is started before it is named in a call
    #[arg(long, env = "HOTCELL_DISCOVER")]
    pub(crate) discover: bool,

    /// MCP servers as JSON (an object with `mcpServers`), or a file with it
    #[arg(
        long,
        value_name = "FILE_OR_JSON",
        env = "HOTCELL_UPSTREAM_CONFIG",
        hide_env_values = true
    )]
    pub(crate) upstream_config: Option<String>,

    /// Use entries of those sources that are Hotcell itself
    #[arg(long, env = "HOTCELL_CODEMODE_ALLOW_SELF")]
    pub(crate) codemode_allow_self: bool,
}
