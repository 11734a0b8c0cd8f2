//! `hotcell serve`. Each setting is also a variable of the environment and a key of the
//! configuration file: its section there is the heading of its struct.

use clap::Args;

use super::{
    AuditLogArgs, AuthArgs, CeilingArgs, CodeArgs, CodemodeArgs, CountArgs, DefaultImageArgs,
    DiscoveryArgs, EngineArgs, LimitArgs, OtelArgs, PermissionArgs, QuotaArgs, SelectionArgs,
    ServerArgs, StateArgs, StorageArgs, WarmArgs,
};
use crate::image::PolicyArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  hotcell serve                                  # http://127.0.0.1:8000/mcp
  hotcell serve --transport stdio                # for a desktop client
  hotcell serve --toolsets workspace --port 9000

Also read: HOTCELL_LOG (error, warn, info, debug, trace, or by part: warn,hotcell_service=debug),
DOCKER_HOST, DOCKER_TLS_VERIFY, DOCKER_CERT_PATH and CONTAINER_HOST (where engines are),
DOCKER_CONFIG (credentials of registries), HTTPS_PROXY, XDG_STATE_HOME";

/// The arguments of `hotcell serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    #[command(flatten)]
    pub(crate) access: EngineArgs,

    #[command(flatten)]
    pub(crate) permissions: PermissionArgs,

    #[command(flatten)]
    pub(crate) default: DefaultImageArgs,

    #[command(flatten)]
    pub(crate) images: PolicyArgs,

    #[command(flatten)]
    pub(crate) auth: AuthArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) ceilings: CeilingArgs,

    #[command(flatten)]
    pub(crate) counts: CountArgs,

    #[command(flatten)]
    pub(crate) quotas: QuotaArgs,

    #[command(flatten)]
    pub(crate) warm: WarmArgs,

    #[command(flatten)]
    pub(crate) code: CodeArgs,
    #[command(flatten)]
    pub(crate) codemode: CodemodeArgs,

    #[command(flatten)]
    pub(crate) discovery: DiscoveryArgs,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    #[command(flatten)]
    pub(crate) audit: AuditLogArgs,

    #[command(flatten)]
    pub(crate) otel: OtelArgs,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(arguments: &[&str]) -> Result<ServeArgs, clap::Error> {
        let line = ["hotcell", "serve"].iter().chain(arguments);
        let command = Cli::try_parse_from(line)?.into_command();
        let Command::Serve(arguments) = command else {
            panic!("not serve but {command:?}")
        };
        Ok(*arguments)
    }

    #[test]
    fn without_a_command_it_serves() {
        let command = Cli::try_parse_from(["hotcell"]).map(Cli::into_command);
        assert!(matches!(command, Ok(Command::Serve(_))));
    }

    #[test]
    fn worker_threads_are_bounded_and_one_per_core_unless_set() {
        let threads = |text| parse(&["--worker-threads", text]).map(|it| it.server.worker_threads);
        assert_eq!(threads("3").ok(), Some(Some(3)));
        assert!(threads("0").is_err() && threads("1025").is_err());
        assert_eq!(
            parse(&[]).map(|it| it.server.worker_threads).ok(),
            Some(None)
        );
    }

    #[test]
    fn a_reserve_is_a_size_or_nothing() {
        let reserve = |text| parse(&["--reserve-bytes", text]).map(|it| it.storage.reserve_bytes);
        assert_eq!(reserve("0").ok(), Some(Some(0)));
        assert_eq!(reserve("1g").ok(), Some(Some(1 << 30)));
        assert_eq!(
            parse(&[]).map(|it| it.storage.reserve_bytes).ok(),
            Some(None)
        );
    }

    #[test]
    fn senseless_settings_are_refused() {
        for [flag, value] in [
            ["--port", "65536"],
            ["--transport", "carrier-pigeon"],
            ["--engine", "steam"],
            ["--toolsets", "everything"],
            ["--toolsets", ""],
            ["--codemode-output", "xml"],
            ["--codemode-default", "maybe"],
            ["--codemode-calls-max", "0"],
            ["--auth", "maybe"],
            ["--bearer-token", "too-short"],
            ["--path", "mcp"],
            ["--path", "/"],
            ["--path", "/a/"],
            ["--path", "/a/../b"],
            ["--path", "/{x}"],
            ["--path", "/sse"],
            ["--path", "/v1/x"],
            ["--public-url", "ftp://example.org"],
            ["--public-url", "https://"],
            ["--public-url", "https://example.org/?x"],
            ["--drain-grace-s", "-1"],
            ["--execs-running-max", "0"],
            ["--output-bytes-max", "1"],
            ["--logs-bytes-max", "1"],
            ["--ended-execs-max", "-1"],
            ["--reserve-bytes", "much"],
            ["--default-image", "a b"],
            ["--memory", "1"],
            ["--cpus", "0"],
            ["--pids", "1"],
            ["--memory-max", "1"],
            ["--cpus-max", "0"],
            ["--pids-max", "many"],
            ["--memory-total", "17t"],
            ["--pids-total", "0"],
            ["--tmp", "-1"],
            ["--warm", "65"],
            ["--warm-image", "python"],
            ["--warm-image", "python=65"],
            ["--warm-image", "a b=1"],
            ["--warm-check-s", "0"],
            ["--code-image", "a b"],
            ["--code-timeout-s", "0"],
            ["--session-idle-s", "soon"],
            ["--max-output-size", "99"],
            ["--otel-endpoint", "127.0.0.1:4318"],
            ["--otel-endpoint", "http://u:p@127.0.0.1:4318"],
        ] {
            assert!(parse(&[flag, value]).is_err(), "{flag} {value}");
        }
    }
}
