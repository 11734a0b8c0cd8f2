//! Where inputs come from: a line editor on a terminal, or plain lines.

use std::io::{BufRead, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::mpsc as std_mpsc;

use anyhow::{Context as _, Result, anyhow, bail};
use hotcell_domain::Language;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use tokio::sync::mpsc;

use super::input::is_complete;

/// Inputs that are remembered.
const HISTORY_MAX: usize = 1000;

/// Longer inputs are not remembered: they were pasted.
const REMEMBERED_BYTES_MAX: usize = 16 << 10;

/// What the tab key inserts.
const INDENT: &str = "    ";

/// Where inputs come from: a thread of its own, which waits for keys. Whoever ends us need not wait
/// for one.
pub(super) struct Inputs {
    ask: std_mpsc::Sender<()>,
    answers: mpsc::Receiver<Result<Input>>,
    /// The terminal as it was.
    modes: Option<Termios>,
}

/// What somebody typed.
pub(super) enum Input {
    Code(String),
    /// Ctrl-C: what was typed is thrown away.
    Nothing,
    End,
}

/// A line editor.
struct Terminal {
    editor: Editor<Rules, FileHistory>,
    prompt: String,
    history: Option<PathBuf>,
}

struct Rules(&'static Language);

enum Source {
    Terminal(Box<Terminal>),
    Lines(&'static Language),
}

impl Inputs {
    pub(super) fn open(language: &'static Language) -> Result<Self> {
        let modes = tcgetattr(stdin()).ok();
        let (ask, asked) = std_mpsc::channel();
        let (answer, answers) = mpsc::channel(1);
        let read = move || {
            let mut source = Source::open(language);
            while let Ok(()) = asked.recv() {
                let input = match &mut source {
                    Ok(source) => source.next(),
                    Err(error) => Err(anyhow!("{error:#}")),
                };
                if answer.blocking_send(input).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("hotcell-input".to_owned());
        thread.spawn(read).context("start a thread")?;
        Ok(Self {
            ask,
            answers,
            modes,
        })
    }

    /// Waits for the next input. Dropped, it goes on waiting for that input, and must not be called
    /// again.
    pub(super) async fn next(&mut self) -> Result<Input> {
        let _ = self.ask.send(());
        let input = self.answers.recv().await;
        input.unwrap_or_else(|| bail!("the thread that reads inputs has ended"))
    }

    /// Gives the terminal back although an input is being read.
    pub(super) fn restore_terminal(&self) {
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(stdin(), OptionalActions::Flush, modes);
        }
    }
}

impl Source {
    fn open(language: &'static Language) -> Result<Self> {
        if !std::io::stdin().is_terminal() {
            return Ok(Self::Lines(language));
        }
        Ok(Self::Terminal(Box::new(Terminal::open(language)?)))
    }

    fn next(&mut self) -> Result<Input> {
        match self {
            Self::Terminal(terminal) => terminal.next(),
            Self::Lines(language) => next_lines(language),
        }
    }
}

impl Terminal {
    fn open(language: &'static Language) -> Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_MAX)
            .and_then(|config| config.history_ignore_dups(true))
            .context("configure the line editor")?
            .bracketed_paste(true)
            .build();
        let history = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).context("start the line editor")?;
        editor.set_helper(Some(Rules(language)));
        let history = history_file(language);
        if let Some(file) = &history {
            // There is none yet, or it is not ours to read.
            let _ = editor.load_history(file);
        }
        let prompt = match language.name {
            "python" => ">>> ".to_owned(),
            name => format!("{name}> "),
        };
        Ok(Self {
            editor,
            prompt,
            history,
        })
    }

    fn next(&mut self) -> Result<Input> {
        match self.editor.readline(&self.prompt) {
            Ok(code) => {
                self.remember(&code);
                Ok(Input::Code(code))
            }
            Err(ReadlineError::Interrupted) => Ok(Input::Nothing),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(error).context("read from the terminal"),
        }
    }

    /// Written at once: whoever closes the window wants to find it too.
    fn remember(&mut self, code: &str) {
        let is_worth_it = !code.trim().is_empty() && code.len() <= REMEMBERED_BYTES_MAX;
        if !is_worth_it || !matches!(self.editor.add_history_entry(code.trim_end()), Ok(true)) {
            return;
        }
        let Some(file) = &self.history else {
            return;
        };
        if let Some(directory) = file.parent() {
            let mut create = std::fs::DirBuilder::new();
            let _ = create.recursive(true).mode(0o700).create(directory);
        }
        if let Err(error) = self.editor.append_history(file) {
            tracing::debug!(%error, "an input is not remembered");
        }
    }
}

/// Reads an input from something that is no terminal. What is not complete at its end is run too.
fn next_lines(language: &Language) -> Result<Input> {
    let mut text = String::new();
    let mut stdin = std::io::stdin().lock();
    loop {
        let read = stdin.read_line(&mut text).context("read stdin")?;
        if read == 0 {
            let is_end = text.trim().is_empty();
            return Ok(if is_end {
                Input::End
            } else {
                Input::Code(text)
            });
        }
        let line = text.strip_suffix('\n').unwrap_or(&text);
        if is_complete(language, line) {
            return Ok(Input::Code(text));
        }
    }
}

/// In the user's state directory, whatever state directory a server has.
fn history_file(language: &Language) -> Option<PathBuf> {
    let directory = |name| std::env::var_os(name).map(PathBuf::from);
    let state = directory("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(directory("HOME")?.join(".local/state")))?;
    let name = language.name.replace('+', "p");
    Some(state.join("hotcell").join(format!("repl_history_{name}")))
}

impl Validator for Rules {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(if is_complete(self.0, context.input()) {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

impl Completer for Rules {
    type Candidate = String;

    fn complete(
        &self,
        _: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((at, vec![INDENT.to_owned()]))
    }
}

impl Hinter for Rules {
    type Hint = String;
}

impl Highlighter for Rules {}

impl Helper for Rules {}
