//! Translates a command into what the agent executes.

use std::time::Duration;

use hotcell_agent_client::bounds::{
    ARGV_ENV_BYTES_MAX, GRACE_MS_MAX, IMAGE_ENV_BYTES_MAX, IMAGE_ENV_MAX, PATH_BYTES_MAX,
};
use hotcell_agent_client::{
    Cleanup, Command as AgentCommand, Hello, Interpreter, Variable, Winsize,
};
use hotcell_domain::{Command, Env, Stdin};
use hotcell_ledger::Arguments;

use crate::ServiceError;
use crate::file::WORKSPACE;

/// The `TERM` of commands on a terminal.
const TERM: &str = "xterm-256color";

/// Limit on a command with the caller's variables. The rest of the agent's limit is reserved for
/// the image's variables, which are only known in the container.
const COMMAND_BYTES_MAX: usize = ARGV_ENV_BYTES_MAX - IMAGE_ENV_BYTES_MAX - 8 * IMAGE_ENV_MAX;

/// User and group of the container's root.
const ROOT: (u32, u32) = (0, 0);

/// Writes a command's arguments for the audit log: only the names of variables, only the size of
/// stdin.
pub(super) fn note(command: &Command, arguments: &mut Arguments) {
    arguments.argv("cmd", command.argv());
    arguments.text("cwd", command.cwd());
    arguments.names("env", command.env.iter().map(|(name, _)| name));
    if let Some(text) = command.stdin().text() {
        arguments.number("stdin_bytes", text.len() as u64);
    }
    if let Some(timeout) = command.timeout() {
        arguments.number("timeout_s", timeout.as_secs());
    }
    arguments.flag("as_root", command.as_root);
    arguments.flag("tty", command.tty);
}

/// The properties of a container that its commands depend on.
#[derive(Debug, Clone)]
pub(super) struct CommandContext<'a> {
    /// Environment variables of its image.
    pub(super) image: &'a [Variable],
    /// Variables that its egress profile needs.
    pub(super) egress: &'a Env,
    /// Environment variables for every exec in the container.
    pub(super) env: &'a Env,
    /// The agent's path of `/workspace`.
    pub(super) root: &'a str,
    /// Grace period between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
}

/// Builds the agent's command. The same arguments give the same command, so the agent recognizes a
/// repeated start.
pub(super) fn for_agent(command: &Command, context: &CommandContext<'_>) -> AgentCommand {
    let image = context.image.iter();
    let image = image.map(|(name, value)| (&name[..], &value[..]));
    let mut env = Env::of_container(context.root, command.tty.then_some(TERM), image);
    env.extend(context.egress);
    env.extend(context.env);
    env.extend(&command.env);
    let bytes = |text: &str| text.as_bytes().to_vec();
    AgentCommand {
        argv: command.argv().iter().map(|part| bytes(part)).collect(),
        env: env
            .iter()
            .map(|(name, value)| (bytes(name), bytes(value)))
            .collect(),
        cwd: beneath(command.cwd(), context.root).into_bytes(),
        user: command.as_root.then_some(ROOT),
        timeout: command.timeout(),
        grace: context.grace.min(Duration::from_millis(GRACE_MS_MAX)),
        stdin: *command.stdin() != Stdin::Empty,
        input: None,
        tty: command.tty.then_some(Winsize {
            rows: command.size.rows,
            cols: command.size.cols,
        }),
        warm_interpreter: command.warm_python.then_some(Interpreter::Python),
        // Ends its background processes, if nothing else.
        cleanup: command.ends_background.then_some(Cleanup {
            remove: None,
            report: None,
        }),
    }
}

/// The environment of a command that sets no variables, in a container that sets none.
pub(crate) fn environment(hello: &Hello) -> Vec<Variable> {
    let image = hello.env.iter();
    let image = image.map(|(name, value)| (&name[..], &value[..]));
    let env = Env::of_container(&hello.root, None, image);
    let bytes = |text: &str| text.as_bytes().to_vec();
    let pairs = env.iter();
    pairs
        .map(|(name, value)| (bytes(name), bytes(value)))
        .collect()
}

/// Rejects a command that exceeds the agent's limits.
pub(super) fn check(command: &Command, env: &Env) -> Result<(), ServiceError> {
    let context = CommandContext {
        image: &[],
        egress: &Env::default(),
        env,
        root: WORKSPACE,
        grace: Duration::ZERO,
    };
    let asked = for_agent(command, &context);
    if asked.cwd.len() >= PATH_BYTES_MAX {
        return Err(invalid(format!(
            "cwd must be shorter than {PATH_BYTES_MAX} bytes"
        )));
    }
    // Counted as the agent does: each string costs its NUL and a pointer.
    let argv: usize = asked.argv.iter().map(|part| part.len() + 9).sum();
    let env = asked.env.iter();
    let env: usize = env.map(|(name, value)| name.len() + value.len() + 10).sum();
    if argv + env > COMMAND_BYTES_MAX {
        return Err(invalid(format!(
            "cmd and env have more than {COMMAND_BYTES_MAX} bytes together; write long input to a file or pass it as stdin"
        )));
    }
    Ok(())
}

fn invalid(reason: String) -> ServiceError {
    ServiceError::Invalid { reason }
}

/// Translates a directory below `/workspace` to the agent's path.
fn beneath(cwd: &str, root: &str) -> String {
    match cwd.strip_prefix(WORKSPACE) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{root}{rest}"),
        Some(_) | None => cwd.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Env {
        let mut env = Env::default();
        for (name, value) in pairs {
            env.set(name, value).unwrap();
        }
        env
    }

    fn value(command: &AgentCommand, name: &str) -> Option<String> {
        let found = command.env.iter().find(|(each, _)| each == name.as_bytes());
        found.map(|(_, value)| String::from_utf8(value.clone()).unwrap())
    }

    #[test]
    fn an_execs_variables_go_before_the_containers_and_those_before_the_images() {
        let mut command = Command::new(vec!["env".into()]).unwrap();
        command.env = env(&[("A", "exec")]);
        command.tty = true;
        let container = env(&[("A", "container"), ("LANG", "C")]);
        let image = [("LANG", "image"), ("ONLY", "image"), ("HOME", "/root")];
        let image = image.map(|(name, value)| (name.into(), value.into()));
        let context = CommandContext {
            image: &image,
            egress: &env(&[("A", "egress"), ("B", "egress")]),
            env: &container,
            root: "/workspace",
            grace: Duration::from_secs(3),
        };
        let asked = for_agent(&command, &context);
        assert_eq!(value(&asked, "A").as_deref(), Some("exec"));
        assert_eq!(value(&asked, "B").as_deref(), Some("egress"));
        assert_eq!(value(&asked, "LANG").as_deref(), Some("C"));
        assert_eq!(value(&asked, "ONLY").as_deref(), Some("image"));
        assert_eq!(value(&asked, "HOME").as_deref(), Some("/workspace"));
        assert_eq!(value(&asked, "TERM").as_deref(), Some(TERM));
        assert!(value(&asked, "PATH").is_some());
    }

    #[test]
    fn the_workspace_is_where_the_agent_has_it() {
        assert_eq!(beneath("/workspace", "/r"), "/r");
        assert_eq!(beneath("/workspace/a", "/r"), "/r/a");
        assert_eq!(beneath("/workspace2", "/r"), "/workspace2");
        assert_eq!(beneath("/tmp", "/r"), "/tmp");
    }

    #[test]
    fn what_no_agent_would_take_is_refused_at_once() {
        let command = Command::new(vec!["true".into()]).unwrap();
        let large = "x".repeat(120 << 10);
        let names: Vec<_> = (0..9).map(|number| format!("V{number}")).collect();
        let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), &*large)).collect();
        assert!(check(&command, &env(&[])).is_ok());
        assert!(matches!(
            check(&command, &env(&pairs)),
            Err(ServiceError::Invalid { .. })
        ));
    }
}
