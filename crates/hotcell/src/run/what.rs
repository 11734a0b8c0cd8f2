//! What to run: code, a file or a command.

use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hotcell_agent_client::{Command, Hello, Variable, WriteOptions};
use hotcell_domain::{Env, Language};

use super::container::Running;
use crate::cli::RunArgs;
use crate::terminal;

/// The largest source we copy into a container.
const SOURCE_BYTES_MAX: u64 = 10 << 20;

/// What to run.
pub(super) enum What {
    /// A source file of this name and content.
    Source {
        language: &'static Language,
        name: String,
        content: Bytes,
    },
    /// A command as it is.
    Command,
}

impl What {
    /// Reads the code, before any container is made.
    pub(super) fn read(arguments: &RunArgs) -> Result<Self> {
        if let Some(code) = &arguments.code {
            let language = arguments.lang.or_else(|| Language::by_name("python"));
            let language = language.context("python is a language")?;
            let name = format!("main.{}", language.extension);
            let content = Bytes::copy_from_slice(code.as_bytes());
            return Ok(Self::Source {
                language,
                name,
                content,
            });
        }
        match &arguments.file {
            Some(file) => Self::read_file(file, arguments.lang),
            None => Ok(Self::Command),
        }
    }

    fn read_file(path: &Path, language: Option<&'static Language>) -> Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let language = language.or_else(|| Language::by_extension(extension?));
        let Some(language) = language else {
            bail!(
                "cannot tell the language of {} by its name; use --lang",
                path.display()
            );
        };
        let mut content = Vec::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(SOURCE_BYTES_MAX + 1).read_to_end(&mut content));
        read.with_context(|| format!("read {}", path.display()))?;
        if content.len() as u64 > SOURCE_BYTES_MAX {
            bail!("{} is larger than {SOURCE_BYTES_MAX} bytes", path.display());
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.map_or_else(|| format!("main.{}", language.extension), str::to_owned);
        Ok(Self::Source {
            language,
            name,
            content: content.into(),
        })
    }

    /// Puts the source where the command finds it, and answers the command.
    pub(super) async fn prepare(self, arguments: &RunArgs, running: &Running) -> Result<Command> {
        let rest = arguments
            .command
            .iter()
            .map(|argument| argument.clone().into_vec());
        let argv: Vec<Vec<u8>> = match self {
            Self::Command => rest.collect(),
            Self::Source {
                language,
                name,
                content,
            } => {
                let agent = running.agent();
                agent
                    .write_all(name.as_bytes(), content, WriteOptions::default())
                    .await
                    .context("copy the code into the container")?;
                let path = format!("{}/{name}", agent.hello().root);
                language
                    .argv(&path)
                    .into_iter()
                    .map(String::into_bytes)
                    .chain(rest)
                    .collect()
            }
        };
        Ok(Command {
            argv,
            env: environment(arguments, running.agent().hello())?,
            cwd: running.agent().hello().root.clone().into_bytes(),
            user: None,
            timeout: arguments.timeout,
            grace: super::follow::GRACE,
            stdin: true,
            tty: arguments.tty.then(terminal::size),
        })
    }
}

fn environment(arguments: &RunArgs, hello: &Hello) -> Result<Vec<Variable>> {
    let term = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
    let term = arguments.tty.then_some(term.as_str());
    let mut env = Env::of_container("/workspace", term, hello.variables());
    for variable in &arguments.env {
        if let Some((name, value)) = variable.split_once('=') {
            env.set(name, value)?;
            continue;
        }
        let value =
            std::env::var_os(variable).with_context(|| format!("{variable} is not set here"))?;
        let value = std::str::from_utf8(value.as_bytes())
            .with_context(|| format!("the value of {variable} is not UTF-8"))?;
        env.set(variable, value)?;
    }
    let bytes = |text: &str| text.as_bytes().to_vec();
    Ok(env
        .iter()
        .map(|(name, value)| (bytes(name), bytes(value)))
        .collect())
}
