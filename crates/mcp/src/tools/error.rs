//! The errors that a model reads when a tool fails: a stable code, a sentence, and the next step.
//! All of them are decided in this file.
//!
//! Host paths, SQL and engine text stay out: internal errors go to the log, under an incident
//! number that the message repeats.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use hotcell_domain::{OverQuota, PolicyError, QuotaKind};
use hotcell_service::ServiceError;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde_json::json;

/// The longest message.
const MESSAGE_CHARS_MAX: usize = 1024;

/// Stable error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// An argument is invalid.
    InvalidArgument,
    /// It does not exist, or belongs to another principal.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The current state does not allow the call.
    Conflict,
    /// A rule forbids it.
    Denied,
    /// A limit was reached, or the disk is full.
    ResourceExhausted,
    /// A timeout.
    DeadlineExceeded,
    /// The client cancelled it.
    Cancelled,
    /// It is not available now; a retry may succeed.
    Unavailable,
    /// An error of the server, logged under an incident number.
    Internal,
}

/// Why a tool failed.
#[derive(Debug)]
pub struct ToolError {
    code: Code,
    message: String,
    hint: String,
    current_etag: Option<String>,
    /// Further information for the caller: fields of the structured content, and lines of the text.
    details: Option<Box<(JsonObject, String)>>,
}

impl Code {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::Conflict => "conflict",
            Self::Denied => "denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Cancelled => "cancelled",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// The default next step.
    fn hint(self) -> &'static str {
        match self {
            Self::InvalidArgument => "correct the argument and call again",
            Self::NotFound => "check the name; it may be gone or belong to somebody else",
            Self::AlreadyExists => "use what is there, or choose another name",
            Self::Conflict => "look at how it is now, then decide again",
            Self::Denied => "do it another way; calling again will not help",
            Self::ResourceExhausted => "free something or ask for less, then call again",
            Self::DeadlineExceeded => "call again, with more time if there is such an argument",
            Self::Cancelled => "call again if it is still wanted",
            Self::Unavailable => "wait a moment and call again",
            Self::Internal => "call again; if it stays so, tell the operator the incident number",
        }
    }
}

impl ToolError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: code.hint().to_owned(),
            current_etag: None,
            details: None,
        }
    }

    /// An invalid argument.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// An argument that its type rejected.
    pub(crate) fn argument(name: &str, error: impl std::fmt::Display) -> Self {
        Self::invalid(format!("`{name}`: {error}"))
    }

    /// Arguments that match the schema but cannot be deserialized.
    pub(crate) fn arguments(error: &serde_json::Error) -> Self {
        Self::invalid(error.to_string())
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(Code::Cancelled, "the request was cancelled")
    }

    pub(crate) fn not_found(what: &'static str, name: &str) -> Self {
        let name = name.to_owned();
        ServiceError::NotFound { what, name }.into()
    }

    /// The error for a caller without admin rights.
    pub(crate) fn admin_only(tool: &str) -> Self {
        Self::new(Code::Denied, format!("{tool} is for the operator")).with_hint(crate::ADMIN_HINT)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    pub(crate) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Adds information to both renderings.
    pub(crate) fn with_details(mut self, fields: JsonObject, text: String) -> Self {
        self.details = Some(Box::new((fields, text)));
        self
    }

    /// Sets the next step for file operations, unless there is one.
    pub(crate) fn about_files(self) -> Self {
        if self.hint != self.code.hint() {
            return self;
        }
        let hint = if self.current_etag.is_some() {
            Some(
                "read it again with fs_read; to change it as it is now, pass its current_etag as if_match_etag",
            )
        } else {
            file_hint(self.code, &self.message)
        };
        match hint {
            Some(hint) => self.with_hint(hint),
            None => self,
        }
    }

    /// The file's current etag, if an etag did not match.
    pub(crate) fn current_etag(&self) -> Option<&str> {
        self.current_etag.as_deref()
    }

    pub(crate) fn hint(&self) -> &str {
        &self.hint
    }

    /// The stable code, from which HTTP derives a status.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The sentence, without control characters.
    pub(crate) fn message(&self) -> String {
        let shown = |c: char| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        };
        self.message
            .chars()
            .take(MESSAGE_CHARS_MAX)
            .map(shown)
            .collect()
    }

    /// The error as a part of a larger answer.
    pub fn to_json(&self) -> serde_json::Value {
        let mut value = json!({
            "code": self.code.as_str(),
            "message": self.message(),
            "hint": self.hint,
        });
        if let Some(etag) = &self.current_etag {
            value["current_etag"] = etag.as_str().into();
        }
        if let (Some(details), Some(object)) = (&self.details, value.as_object_mut()) {
            object.extend(details.0.clone());
        }
        value
    }

    /// For requests without error results: resources, prompts, tasks.
    pub(crate) fn into_protocol(self) -> ErrorData {
        let data = Some(self.to_json());
        let message = self.message();
        match self.code {
            Code::NotFound => ErrorData::resource_not_found(message, data),
            Code::Internal | Code::Unavailable => ErrorData::internal_error(message, data),
            Code::InvalidArgument
            | Code::AlreadyExists
            | Code::Conflict
            | Code::Denied
            | Code::ResourceExhausted
            | Code::DeadlineExceeded
            | Code::Cancelled => ErrorData::invalid_params(message, data),
        }
    }
}

impl From<ToolError> for CallToolResult {
    fn from(error: ToolError) -> Self {
        let structured = error.to_json();
        let mut text = format!("{}: {}", error.code.as_str(), error.message());
        if let Some(etag) = &error.current_etag {
            text.push_str("; current_etag: ");
            text.push_str(etag);
        }
        if let Some(details) = &error.details {
            text.push('\n');
            text.push_str(&details.1);
        }
        text.push_str("\nhint: ");
        text.push_str(&error.hint);
        let mut result = Self::error(vec![ContentBlock::text(text)]);
        result.structured_content = Some(structured);
        result
    }
}

impl From<ServiceError> for ToolError {
    fn from(error: ServiceError) -> Self {
        let message = error.to_string();
        match error {
            ServiceError::Invalid { .. } => Self::invalid(message),
            ServiceError::NotFound { what, .. } => {
                Self::new(Code::NotFound, message).with_hint(where_to_look(what))
            }
            ServiceError::AlreadyExists { .. } => Self::new(Code::AlreadyExists, message),
            ServiceError::Conflict { current_etag, .. } => Self {
                current_etag,
                ..Self::new(Code::Conflict, message)
            },
            ServiceError::Batch { cause, .. } => Self::from(*cause).with_message(message),
            ServiceError::Denied { .. } => Self::new(Code::Denied, message),
            ServiceError::Refused(refusal) => {
                Self::new(Code::Denied, message).with_hint(way_around(&refusal))
            }
            ServiceError::Exhausted { .. } => Self::new(Code::ResourceExhausted, message),
            ServiceError::OverQuota(excess) => over_quota(&excess, message),
            ServiceError::Deadline { .. } => Self::new(Code::DeadlineExceeded, message),
            ServiceError::Unavailable { source, .. } => {
                if let Some(source) = source {
                    tracing::warn!(error = %chain(&*source), "{message}");
                }
                Self::new(Code::Unavailable, message)
            }
            ServiceError::Halted { hint, .. } => {
                Self::new(Code::Unavailable, message).with_hint(hint)
            }
            ServiceError::Internal { step, source } => internal(step, &*source),
        }
    }
}

/// Names the quota, its limit and its usage, in fields for programs, too, and says what to end.
fn over_quota(excess: &OverQuota, message: String) -> ToolError {
    let mut fields = JsonObject::new();
    fields.insert("quota".to_owned(), excess.quota.as_str().into());
    fields.insert("limit".to_owned(), excess.limit.into());
    fields.insert("used".to_owned(), excess.used.into());
    if let Some(seconds) = excess.retry_after_s {
        fields.insert("retry_after_s".to_owned(), seconds.into());
    }
    let wait = excess.retry_after_s;
    let wait = wait.map(|seconds| format!(", retry_after_s: {seconds}"));
    let line = format!(
        "quota: {}, limit: {}, used: {}{}",
        excess.quota,
        excess.limit,
        excess.used,
        wait.unwrap_or_default()
    );
    let hint = match excess.quota {
        QuotaKind::Containers => {
            "kill a container that you no longer need (list_containers shows them), then call again"
        }
        QuotaKind::Execs => {
            "wait for an exec to end, or cancel one with exec_cancel (list_execs shows them), then call again"
        }
        QuotaKind::SpawnsPerMinute => {
            "wait for retry_after_s seconds, or go on in a container that you have (list_containers shows them)"
        }
        QuotaKind::DiskBytes => {
            "kill a container that you no longer need (list_containers shows them), or ask for less with `disk`, then call again"
        }
        QuotaKind::OutputBytes => {
            "cancel an exec that writes much output (list_execs shows them), or wait for one to end, then call again"
        }
    };
    ToolError::new(Code::ResourceExhausted, message)
        .with_details(fields, line)
        .with_hint(hint)
}

/// Logs an internal error, and tells the model only its incident number.
fn internal(step: &str, source: &(dyn std::error::Error + 'static)) -> ToolError {
    let incident = incident();
    tracing::error!(incident, error = %chain(source), "could not {step}");
    let message = format!("something went wrong inside the server (incident {incident})");
    ToolError::new(Code::Internal, message)
}

/// An incident number to find in the log: the time, and a counter of this process.
fn incident() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    format!("{seconds:x}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push_str(": ");
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

/// What a caller can do when policy denies a request.
fn way_around(refusal: &PolicyError) -> &'static str {
    match refusal {
        PolicyError::Rootfs => "name an OCI image, or leave `image` out",
        PolicyError::Network => "leave `network` out: a container needs none to run code",
        PolicyError::Egress { .. } => {
            "name one of those as `egress`, or ask the operator to add it to `profiles` of [egress]"
        }
        PolicyError::Root => "leave `as_root` out: /workspace is writable without",
        PolicyError::Registry { .. } => "name an image of one of those, or leave `image` out",
        PolicyError::Image { .. } => "leave `image` out, or ask the operator which are allowed",
        PolicyError::NoDigest { .. } => "name it as NAME@sha256:…, or leave `image` out",
        PolicyError::LocalImage { .. } => "name an image of a registry, or leave `image` out",
        PolicyError::AboveMaximum {
            limit: "memory", ..
        } => "ask for less memory, or ask the operator to raise --memory-max",
        PolicyError::AboveMaximum { limit: "cpus", .. } => {
            "ask for fewer cpus, or ask the operator to raise --cpus-max"
        }
        PolicyError::AboveMaximum { limit: "disk", .. } => {
            "ask for less disk, or ask the operator to raise --disk-max"
        }
        PolicyError::AboveMaximum { .. } => {
            "ask for fewer pids, or ask the operator to raise --pids-max"
        }
        PolicyError::AboveTotal {
            limit: "memory", ..
        } => {
            "kill a container that is not needed, ask for less memory, or ask the operator to raise --memory-total"
        }
        PolicyError::AboveTotal { .. } => {
            "kill a container that is not needed, ask for fewer pids, or ask the operator to raise --pids-total"
        }
    }
}

/// The next step after an error of the container's agent, recognized by its message.
fn file_hint(code: Code, message: &str) -> Option<&'static str> {
    let says = |words: &str| message.contains(words);
    Some(match code {
        Code::Denied if says("root is protected") || says("must end in a name") => {
            "/workspace itself stays; name something in it: fs_list shows what there is"
        }
        Code::Denied if says("permission denied") || says("not permitted") || says("read-only") => {
            "user 1000 may not do that there: fs_stat shows the mode"
        }
        Code::Denied => "paths must stay below /workspace, also through symlinks",
        Code::Conflict if says("it is a directory") => "call fs_list to see what is in it",
        Code::Conflict if says("destination is a directory") => {
            "name a file in that directory, or another path"
        }
        Code::Conflict if says("not empty") => "pass recursive=true to remove it with all it holds",
        Code::Conflict => "call fs_stat to see what is there now, then decide again",
        Code::ResourceExhausted if says("disk") => "free space with fs_delete, then call again",
        Code::AlreadyExists => "leave if_none_match out to replace it, or choose another name",
        Code::InvalidArgument
        | Code::NotFound
        | Code::ResourceExhausted
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unavailable
        | Code::Internal => return None,
    })
}

fn where_to_look(what: &str) -> &'static str {
    match what {
        "container" => "call list_containers to see what there is, or spawn to make one",
        "exec" => "call list_execs with include_finished=true to see what there is",
        "file" => "call fs_list to see what there is",
        "session" => {
            "execute_code and sandbox_write_file make a session; list_containers shows those that you have"
        }
        "image" => "check its name and tag; a private one needs credentials of the operator's",
        _ => Code::NotFound.hint(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(error: ServiceError) -> String {
        let result = CallToolResult::from(ToolError::from(error));
        assert_eq!(result.is_error, Some(true));
        result.content[0].as_text().unwrap().text.clone()
    }

    #[test]
    fn what_went_wrong_inside_stays_inside() {
        let source = std::io::Error::other("SELECT * FROM containers: /var/lib/secret");
        let said = said(ServiceError::Internal {
            step: "read the store",
            source: source.into(),
        });
        assert!(said.starts_with("internal: something went wrong inside the server (incident "));
        assert!(
            !said.contains("secret") && !said.contains("SELECT"),
            "{said}"
        );
    }

    #[test]
    fn a_missing_container_says_where_to_look() {
        let error = ServiceError::NotFound {
            what: "container",
            name: "my\x1b[0mapp".to_owned(),
        };
        insta::assert_snapshot!(said(error), @r"
        not_found: there is no container my�[0mapp
        hint: call list_containers to see what there is, or spawn to make one
        ");
    }

    #[test]
    fn a_denial_keeps_its_own_next_step() {
        let hint = |reason: &str| {
            let reason = reason.to_owned();
            let error = ToolError::from(ServiceError::Denied { reason });
            error.about_files().hint().to_owned()
        };
        assert!(hint("the root is protected").contains("itself stays"));
        assert!(hint("could not open the file: permission denied").contains("fs_stat"));
        assert!(hint("the path leads out of the root").contains("below /workspace"));
    }

    #[test]
    fn a_quota_says_which_how_much_and_what_to_end() {
        let error = || {
            ServiceError::OverQuota(OverQuota {
                quota: QuotaKind::SpawnsPerMinute,
                limit: 6,
                used: 6,
                retry_after_s: Some(10),
            })
        };
        insta::assert_snapshot!(said(error()), @r"
        resource_exhausted: you have created 6 containers within a minute, and your quota is 6
        quota: spawns_per_minute, limit: 6, used: 6, retry_after_s: 10
        hint: wait for retry_after_s seconds, or go on in a container that you have (list_containers shows them)
        ");
        let json = ToolError::from(error()).to_json();
        assert_eq!(
            (&json["quota"], &json["limit"], &json["used"]),
            (&json!("spawns_per_minute"), &json!(6), &json!(6))
        );
    }

    #[test]
    fn each_quota_names_itself_its_limit_and_what_to_end_in_both_renderings() {
        for quota in QuotaKind::ALL {
            let excess = OverQuota {
                quota,
                limit: 4_711,
                used: 4_712,
                retry_after_s: None,
            };
            let result = CallToolResult::from(ToolError::from(ServiceError::OverQuota(excess)));
            let text = &result.content[0].as_text().unwrap().text;
            let line = format!("quota: {quota}, limit: 4711, used: 4712");
            assert!(text.starts_with("resource_exhausted: "), "{text}");
            assert!(text.contains(&line), "{text}");
            let json = result.structured_content.as_ref().unwrap();
            assert_eq!(json["code"], "resource_exhausted", "{json}");
            assert_eq!(json["quota"], quota.as_str(), "{json}");
            assert_eq!(
                (&json["limit"], &json["used"]),
                (&json!(4_711), &json!(4_712))
            );
            let hint = json["hint"].as_str().unwrap();
            assert!(text.contains(hint), "{text}");
            let ways = ["kill", "exec_cancel", "fs_delete", "wait for"];
            assert!(ways.iter().any(|way| hint.contains(way)), "{quota}: {hint}");
        }
    }

    #[test]
    fn a_conflict_carries_the_current_etag() {
        let error = ServiceError::Conflict {
            reason: "the file has changed".to_owned(),
            current_etag: Some("abc".to_owned()),
        };
        assert_eq!(ToolError::from(error).to_json()["current_etag"], "abc");
    }
}
