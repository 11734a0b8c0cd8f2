//! `execute_code`: runs a snippet.

use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{Installer, LANGUAGES, Language, Package};
use hotcell_service::{Abandonment, CodeFile, CodeRequest, Progress};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::watch;

use super::arguments::Encoding;
use super::code_view::{CodeView, Output};
use super::snippet::Snippet;
use super::{Answer, Code, Hints, Tool, ToolError, arguments, artifacts};
use crate::asking::{Attended, Ongoing};
use crate::call::Call;
use crate::{Server, Toolset};

/// Most bytes of one character in JSON.
const CHAR_BYTES_MAX: usize = 6;

pub(super) struct ExecuteCode;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Source, at most 10 MiB
    code: String,
    /// python, bash, sh, javascript, typescript, ruby, perl, php, lua, go, rust, c, c++, java, r or sqlite, as the image has
    #[serde(default = "python")]
    language: String,
    /// A name of your choice; each has its own container. Default: the one you always use
    session: Option<String>,
    /// Text to read
    stdin: Option<String>,
    /// Arguments
    #[serde(default)]
    #[schemars(extend("default" = null))]
    args: Vec<String>,
    /// Written first, all or none, 3 MiB
    #[serde(default)]
    #[schemars(extend("default" = null))]
    files: Vec<File>,
    /// To install first
    #[serde(default)]
    #[schemars(extend("default" = null))]
    packages: Vec<String>,
    /// Ended after so many seconds; default 30
    #[schemars(range(min = 0.001, max = 3_600))]
    timeout_s: Option<f64>,
    /// Python: keep variables for the next stateful call; the last expression is the result
    #[serde(default)]
    stateful: bool,
    /// Forget them first
    #[serde(default)]
    restart: bool,
    /// Use the plain interpreter
    #[serde(default)]
    cold: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// Below /workspace
    path: String,
    /// All of it
    content: String,
    /// Of content
    #[serde(default)]
    encoding: Encoding,
}

impl Tool for ExecuteCode {
    const NAME: &'static str = "execute_code";
    const DESCRIPTION: &'static str = "Run a snippet, by default Python, in a sealed container and get its output and exit code. Files in /workspace stay for the next call of the session. \
        Plots and files put into /workspace/artifacts come back as pictures and links.";
    const HINTS: Hints = Hints::DESTROYS;
    const SET: Toolset = Toolset::Code;
    const SHOWS_PICTURES: bool = true;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let request = params.request()?;
        let snippet = match &call.repeated {
            None => {
                let snippet = Snippet::start(server, call, request);
                Ongoing::begin(server, call, snippet, call.asking.open())
            }
            Some(repeated) => {
                let is_meant = |snippet: &Snippet| snippet.is_of(&request.source);
                let resumed = Ongoing::resume(server, call, repeated, is_meant);
                resumed.ok_or_else(gone)?
            }
        };
        let run = match snippet.attend(server, call).await? {
            Attended::Asks(input) => return Ok(Answer::needs(input)),
            Attended::Ended(snippet, run) => {
                snippet.answered();
                run
            }
        };
        let service = server.service();
        call.room(2 * CHAR_BYTES_MAX * service.code_output_chars_max())
            .await?;
        let output = service.code_output(&call.caller, &run.exec, &run.end, &run.owner);
        let output = output.await?;
        let shown = artifacts::show(server, call, &run).await;
        Ok(CodeView::new(run, output, shown).answer())
    }
}

fn gone() -> ToolError {
    let message = "no snippet of yours waits for this decision: it waited for ten minutes at most, or the server was restarted";
    ToolError::new(Code::NotFound, message)
        .with_hint("call execute_code again; files of the session are still there")
}

impl Params {
    fn packages(&self, language: &Language) -> Result<Vec<Package>, ToolError> {
        if self.packages.is_empty() {
            return Ok(Vec::new());
        }
        let installer = Installer::of(language).ok_or_else(|| {
            let error = "they can be installed for python, javascript and typescript";
            ToolError::argument("packages", error)
        })?;
        let parsed = Package::parse_all(&self.packages, installer);
        parsed.map_err(|error| ToolError::argument("packages", error))
    }

    fn request(self) -> Result<CodeRequest, ToolError> {
        let language = Language::by_name(&self.language);
        let language = language.ok_or_else(|| unknown_language(&self.language))?;
        if self.code.trim().is_empty() {
            return Err(ToolError::argument("code", "there is nothing to run"));
        }
        let packages = self.packages(language)?;
        Ok(CodeRequest {
            language,
            packages,
            step: watch::Sender::default(),
            source: Bytes::from(self.code),
            session: arguments::session(self.session.as_deref())?,
            files: self.files.into_iter().map(file).collect::<Result<_, _>>()?,
            arguments: self.args,
            stdin: self.stdin,
            timeout: self.timeout_s.map(Duration::from_secs_f64),
            is_cold: self.cold,
            stateful: self.stateful,
            restart: self.restart,
            progress: Progress::default(),
            abandonment: Abandonment::default(),
        })
    }
}

fn file(file: File) -> Result<CodeFile, ToolError> {
    Ok(CodeFile {
        path: super::file_path(file.path.as_bytes())?,
        data: file.encoding.decode("files.content", file.content)?.into(),
    })
}

fn unknown_language(name: &str) -> ToolError {
    let known: Vec<&str> = LANGUAGES.iter().map(|language| language.name).collect();
    let name = crate::text::truncate(name, 64);
    let error = format!("`{name}` is not a language; there are {}", known.join(", "));
    ToolError::argument("language", error)
}

fn python() -> String {
    "python".to_owned()
}
