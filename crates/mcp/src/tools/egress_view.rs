//! What a command reached and what was refused, as clients see it.

use hotcell_service::{EgressReport, EgressView, ProfileView};
use schemars::JsonSchema;
use serde_json::{Value, json};

/// Denials that the line of text names; the structured content has all.
const NAMED_MAX: usize = 3;

/// What it reached and was refused
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
pub(super) struct Egress {
    denied: Vec<Denial>,
    connections: u64,
    bytes_down: u64,
    bytes_up: u64,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
struct Denial {
    host: String,
    port: u16,
    count: u64,
    reason: String,
    hint: String,
}

pub(super) fn structured(report: &EgressReport) -> Value {
    let denied = report.denied.iter().map(|denial| {
        json!({
            "host": denial.host,
            "port": denial.port,
            "count": denial.count,
            "reason": denial.reason,
            "hint": denial.hint,
        })
    });
    json!({
        "denied": denied.collect::<Vec<_>>(),
        "connections": report.connections,
        "bytes_down": report.bytes_down,
        "bytes_up": report.bytes_up,
    })
}

/// What was refused, in one line; `None` if nothing was.
pub(super) fn line(report: &EgressReport) -> Option<String> {
    let denied = &report.denied;
    let (first, more) = (denied.first()?, denied.len().saturating_sub(NAMED_MAX));
    let named = denied.iter().take(NAMED_MAX);
    let named = named.map(|one| format!("{}:{} ({})", one.host, one.port, one.reason));
    let named: Vec<String> = named.collect();
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let hint = &first.hint;
    Some(format!("egress denied: {}{more}; {hint}", named.join(", ")))
}

/// The profiles that a caller may name: the content of `hotcell://egress`.
pub(crate) fn profiles(view: &EgressView) -> Value {
    let profile = |profile: &ProfileView| {
        json!({
            "name": profile.name,
            "allow": profile.allow,
            "deny": profile.deny,
            "include": profile.include,
            "open": profile.is_open,
        })
    };
    json!({
        "default": view.default,
        "profiles": view.profiles.iter().map(profile).collect::<Vec<_>>(),
        "use": "spawn with egress=NAME; programs use real host names and need no proxy settings",
    })
}

#[cfg(test)]
mod tests {
    use hotcell_service::EgressDenial;

    use super::*;

    #[test]
    fn a_line_names_what_was_refused_and_what_to_do() {
        let denial = |number: u16| EgressDenial {
            host: format!("h{number}.example.com"),
            port: 443,
            count: 1,
            reason: "not listed".to_owned(),
            hint: "ask the operator".to_owned(),
        };
        let mut report = EgressReport::default();
        assert_eq!(line(&report), None);
        report.denied = (0..5).map(denial).collect();
        assert_eq!(
            line(&report).unwrap(),
            "egress denied: h0.example.com:443 (not listed), h1.example.com:443 (not listed), \
             h2.example.com:443 (not listed) and 2 more; ask the operator"
        );
    }
}
