//! One entry, as hotcell.toml and other programs write it.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::name::ServerName;
use crate::settings::{
    DefaultAction, Endpoint, Entry, Launch, Principals, Program, Source, Template, Timeouts,
};
use crate::text::on_one_line;

/// The keys of an entry in hotcell.toml.
pub const KEYS: [&str; 15] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "transport",
    "headers",
    "bearer_token",
    "principals",
    "summary",
    "default",
    "enabled",
    "start_timeout_s",
    "call_timeout_s",
    "idle_timeout_s",
];

/// Values of one entry: arguments, variables, headers, principals.
const VALUES_MAX: usize = 256;
/// Bytes of one value.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The longest timeout: a day.
const SECONDS_MAX: f64 = 86_400.0;

/// What is wrong with an entry; never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", key.as_ref().map(|key| format!("`{key}` ")).unwrap_or_default())]
pub struct EntryError {
    /// The key that it is about.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
}

/// The fields of an entry.
struct Fields<'a> {
    fields: &'a Map<String, Value>,
    is_ours: bool,
}

/// Parses an entry; `None` if it is disabled. In hotcell.toml unknown keys are errors; entries of other
/// programs have keys that mean nothing to us.
pub fn parse_entry(
    name: ServerName,
    fields: &Map<String, Value>,
    source: Source,
) -> Result<Option<Entry>, EntryError> {
    let is_ours = source.program == "hotcell.toml";
    let fields = Fields { fields, is_ours };
    if is_ours
        && let Some(key) = fields
            .fields
            .keys()
            .find(|key| !KEYS.contains(&key.as_str()))
    {
        return Err(wrong(key, "is not a key of an MCP server"));
    }
    if !fields.is_enabled()? {
        return Ok(None);
    }
    Ok(Some(Entry {
        name,
        source,
        launch: fields.launch()?,
        timeouts: fields.timeouts()?,
        principals: match fields.texts("principals")? {
            Some(globs) => Principals::matching(globs),
            None => Principals::all(),
        },
        summary: fields
            .text(&["summary", "description"])?
            .map(|text| on_one_line(text, 200)),
        default: fields.default_action()?,
    }))
}

fn wrong(key: &str, message: &str) -> EntryError {
    EntryError {
        key: Some(on_one_line(key, 64)),
        message: message.to_owned(),
    }
}

impl<'a> Fields<'a> {
    fn is_enabled(&self) -> Result<bool, EntryError> {
        let flag = |key: &str| match self.fields.get(key) {
            None => Ok(None),
            Some(value) => value
                .as_bool()
                .map(Some)
                .ok_or_else(|| wrong(key, "must be true or false")),
        };
        let is_disabled = !self.is_ours && flag("disabled")?.unwrap_or(false);
        Ok(flag("enabled")?.unwrap_or(true) && !is_disabled)
    }

    /// Only our own file decides this: what other programs call so means something else.
    fn default_action(&self) -> Result<Option<DefaultAction>, EntryError> {
        if !self.is_ours {
            return Ok(None);
        }
        match self.text(&["default"])? {
            None => Ok(None),
            Some("allow") => Ok(Some(DefaultAction::Allow)),
            Some("ask") => Ok(Some(DefaultAction::Ask)),
            Some("deny") => Ok(Some(DefaultAction::Deny)),
            Some(_) => Err(wrong("default", "must be allow, ask or deny")),
        }
    }

    fn launch(&self) -> Result<Launch, EntryError> {
        let url = self.text(if self.is_ours {
            &["url"]
        } else {
            &["url", "serverUrl", "httpUrl", "uri"]
        })?;
        let kind = self.text(if self.is_ours {
            &["transport"]
        } else {
            &["type", "transport"]
        })?;
        match (self.fields.get("command"), url) {
            (Some(_), Some(_)) => Err(wrong("url", "and `command` exclude each other")),
            (Some(_), None) => {
                if kind.is_some_and(|kind| kind != "stdio") {
                    return Err(wrong(
                        "transport",
                        "must be `stdio` where there is a `command`",
                    ));
                }
                self.program().map(Launch::Stdio)
            }
            (None, Some(url)) => {
                let endpoint = Endpoint {
                    url: self.template("url", url)?,
                    headers: self.headers()?,
                };
                match kind {
                    None
                    | Some("http" | "streamable-http" | "streamableHttp" | "streamable_http") => {
                        Ok(Launch::Http(endpoint))
                    }
                    Some("sse") => Ok(Launch::Sse(endpoint)),
                    Some(_) => Err(wrong(
                        "transport",
                        "must be `http` or `sse` where there is a `url`",
                    )),
                }
            }
            (None, None) => Err(EntryError {
                key: None,
                message: "it has neither a `command` nor a `url`".to_owned(),
            }),
        }
    }

    fn program(&self) -> Result<Program, EntryError> {
        // Zed wrote the command as an object.
        let nested = self
            .fields
            .get("command")
            .and_then(Value::as_object)
            .filter(|_| !self.is_ours);
        let inner = nested.map(|fields| Fields {
            fields,
            is_ours: false,
        });
        let (fields, key) = inner
            .as_ref()
            .map_or((self, "command"), |inner| (inner, "path"));
        let command = fields.text(&[key])?.filter(|command| !command.is_empty());
        let command = command.ok_or_else(|| wrong("command", "must be the name of a program"))?;
        let arguments = fields.texts("args")?.unwrap_or_default();
        let arguments = arguments
            .iter()
            .map(|argument| self.template("args", argument))
            .collect::<Result<_, _>>()?;
        let directory = self.text(&["cwd"])?.map(PathBuf::from);
        Ok(Program {
            command: self.template("command", command)?,
            arguments,
            environment: fields.pairs("env")?,
            directory,
        })
    }

    fn headers(&self) -> Result<Vec<(String, Template)>, EntryError> {
        let mut headers = self.pairs("headers")?;
        if !self.is_ours {
            headers.extend(self.pairs("http_headers")?);
            for (name, variable) in self.strings("env_http_headers")? {
                headers.push((
                    name,
                    self.template("env_http_headers", &format!("${{ENV:{variable}}}"))?,
                ));
            }
        }
        let bearer = match self.text(&["bearer_token"])? {
            Some(token) => Some(format!("Bearer {token}")),
            None => self
                .text(&["bearer_token_env_var"])?
                .map(|variable| format!("Bearer ${{ENV:{variable}}}")),
        };
        if let Some(bearer) = bearer {
            headers.push((
                "authorization".to_owned(),
                self.template("bearer_token", &bearer)?,
            ));
        }
        Ok(headers)
    }

    fn timeouts(&self) -> Result<Timeouts, EntryError> {
        let usual = Timeouts::default();
        Ok(Timeouts {
            start: self
                .seconds(&["start_timeout_s", "startup_timeout_sec"])?
                .unwrap_or(usual.start),
            call: self
                .seconds(&["call_timeout_s", "tool_timeout_sec"])?
                .unwrap_or(usual.call),
            idle: self.seconds(&["idle_timeout_s"])?.unwrap_or(usual.idle),
        })
    }

    fn seconds(&self, keys: &[&str]) -> Result<Option<Duration>, EntryError> {
        let Some((key, value)) = self.first(keys) else {
            return Ok(None);
        };
        let seconds = value
            .as_f64()
            .filter(|seconds| *seconds > 0.0 && *seconds <= SECONDS_MAX);
        let seconds =
            seconds.ok_or_else(|| wrong(key, "must be more than 0 and at most 86400 seconds"))?;
        Ok(Some(Duration::from_secs_f64(seconds)))
    }

    fn first<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &'a Value)> {
        keys.iter()
            .find_map(|key| self.fields.get(*key).map(|value| (*key, value)))
    }

    fn text(&self, keys: &[&str]) -> Result<Option<&'a str>, EntryError> {
        let Some((key, value)) = self.first(keys) else {
            return Ok(None);
        };
        let text = value.as_str().filter(|text| text.len() <= VALUE_BYTES_MAX);
        text.map(Some).ok_or_else(|| wrong(key, "must be a string"))
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, EntryError> {
        let Some(value) = self.fields.get(key) else {
            return Ok(None);
        };
        let values = value.as_array().filter(|values| values.len() <= VALUES_MAX);
        let text = |value: &Value| {
            value
                .as_str()
                .filter(|text| text.len() <= VALUE_BYTES_MAX)
                .map(str::to_owned)
        };
        let texts = values.and_then(|values| values.iter().map(text).collect::<Option<Vec<_>>>());
        texts
            .map(Some)
            .ok_or_else(|| wrong(key, "must be a list of strings"))
    }

    /// Names and values, such as variables; numbers and booleans are taken as text.
    fn strings(&self, key: &str) -> Result<Vec<(String, String)>, EntryError> {
        let Some(value) = self.fields.get(key) else {
            return Ok(Vec::new());
        };
        let error = || wrong(key, "must be a table of strings");
        let pairs = value
            .as_object()
            .filter(|pairs| pairs.len() <= VALUES_MAX)
            .ok_or_else(error)?;
        let pairs = pairs.iter().map(|(name, value)| {
            let is_plain = value.is_number() || value.is_boolean();
            let text = value.as_str().map_or_else(
                || is_plain.then(|| value.to_string()),
                |text| Some(text.to_owned()),
            );
            let text = text
                .filter(|text| text.len() <= VALUE_BYTES_MAX && !text.contains('\0'))
                .ok_or_else(error)?;
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(error());
            }
            Ok((name.clone(), text))
        });
        pairs.collect()
    }

    fn pairs(&self, key: &str) -> Result<Vec<(String, Template)>, EntryError> {
        let pairs = self.strings(key)?.into_iter();
        pairs
            .map(|(name, text)| Ok((name, self.template(key, &text)?)))
            .collect()
    }

    fn template(&self, key: &str, text: &str) -> Result<Template, EntryError> {
        let parsed = if self.is_ours {
            Template::parse(text)
        } else {
            Template::parse_discovered(text)
        };
        parsed.map_err(|error| wrong(key, &format!("is wrong: {error}")))
    }
}

/// The JSON Schema of an entry in hotcell.toml.
pub fn entry_schema() -> Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let pairs = json!({ "type": "object", "additionalProperties": { "type": ["string", "number", "boolean"] } });
    let seconds = json!({ "type": "number", "exclusiveMinimum": 0, "maximum": SECONDS_MAX });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "command": text, "args": texts, "env": pairs, "cwd": text,
            "url": text, "transport": { "enum": ["stdio", "http", "sse"] }, "headers": pairs, "bearer_token": text,
            "principals": texts, "summary": text, "default": { "enum": ["allow", "ask", "deny"] }, "enabled": { "type": "boolean" },
            "start_timeout_s": seconds, "call_timeout_s": seconds, "idle_timeout_s": seconds,
        },
    })
}
