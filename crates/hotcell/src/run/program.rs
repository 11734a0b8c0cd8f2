//! The program to run: code, a file or a command.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use hotcell_domain::{Command, Env, Language, Stdin, TerminalSize};
use hotcell_service::{SNIPPET_BYTES_MAX, Snippet};

use super::container::RunContainer;
use crate::cli::RunArgs;
use crate::terminal;

/// The program to run, validated before a container is created.
pub(super) struct Program {
    /// Code that is copied into the container.
    snippet: Option<Snippet>,
    /// The command, or the arguments of the code.
    words: Vec<String>,
    env: Env,
}

impl Program {
    pub(super) fn read(arguments: &RunArgs) -> Result<Self> {
        Ok(Self {
            snippet: read_snippet(arguments)?,
            words: arguments.command.iter().map(text).collect::<Result<_>>()?,
            env: environment(arguments)?,
        })
    }

    /// Copies the code into the container; returns the command.
    pub(super) async fn prepare(
        self,
        arguments: &RunArgs,
        container: &RunContainer,
    ) -> Result<Command> {
        let mut command = match self.snippet {
            Some(snippet) => container.stage(snippet, self.words).await?,
            None => Command::new(self.words)?,
        };
        match arguments.timeout {
            Some(timeout) => command.set_timeout_s(timeout.as_secs_f64())?,
            None => command.set_no_timeout(),
        }
        command.set_stdin(Stdin::Open)?;
        command.env.extend(&self.env);
        if arguments.tty {
            let size = terminal::size();
            command.tty = true;
            command.size = TerminalSize {
                rows: size.rows,
                cols: size.cols,
            };
        }
        Ok(command)
    }
}

fn read_snippet(arguments: &RunArgs) -> Result<Option<Snippet>> {
    if let Some(code) = &arguments.code {
        let language = arguments.lang.or_else(|| Language::by_name("python"));
        let language = language.context("python is a language")?;
        return Ok(Some(Snippet {
            language,
            path: format!("main.{}", language.extension),
            source: Bytes::copy_from_slice(code.as_bytes()),
        }));
    }
    let file = arguments.file.as_deref();
    file.map(|file| read_file(file, arguments.lang)).transpose()
}

fn read_file(path: &Path, language: Option<&'static Language>) -> Result<Snippet> {
    let extension = path.extension().and_then(OsStr::to_str);
    let language = language.or_else(|| Language::by_extension(extension?));
    let Some(language) = language else {
        bail!(
            "cannot tell the language of {} by its name; use --lang",
            path.display()
        );
    };
    let mut source = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| {
        file.take(SNIPPET_BYTES_MAX as u64 + 1)
            .read_to_end(&mut source)
    });
    read.with_context(|| format!("read {}", path.display()))?;
    if source.len() > SNIPPET_BYTES_MAX {
        bail!(
            "{} is larger than {SNIPPET_BYTES_MAX} bytes",
            path.display()
        );
    }
    let name = path.file_name().and_then(OsStr::to_str);
    Ok(Snippet {
        language,
        path: name.map_or_else(|| format!("main.{}", language.extension), str::to_owned),
        source: source.into(),
    })
}

fn text(word: &OsString) -> Result<String> {
    let text = word.to_str().map(str::to_owned);
    text.ok_or_else(|| anyhow!("the argument `{}` is not UTF-8", word.display()))
}

/// Variables in addition to those of every command in a container.
fn environment(arguments: &RunArgs) -> Result<Env> {
    let mut env = Env::default();
    if arguments.tty {
        let term = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
        env.set("TERM", &term)?;
    }
    for variable in &arguments.env {
        if let Some((name, value)) = variable.split_once('=') {
            env.set(name, value)?;
            continue;
        }
        let value =
            std::env::var_os(variable).with_context(|| format!("{variable} is not set here"))?;
        let value = value
            .to_str()
            .with_context(|| format!("the value of {variable} is not UTF-8"))?;
        env.set(variable, value)?;
    }
    Ok(env)
}
