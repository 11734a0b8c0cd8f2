//! Selects the events to show.

use hotcell_domain::parse_rfc3339;
use serde_json::Value;

use crate::cli::{AuditQueryArgs, AuditSpanArgs};

/// Conditions on an event. `None` and empty lists match everything.
#[derive(Debug, Default)]
pub(super) struct Filter {
    principal: Option<String>,
    events: Vec<String>,
    outcome: Option<String>,
    target: Option<String>,
    since: Option<u64>,
    until: Option<u64>,
}

impl Filter {
    pub(super) fn of(arguments: &AuditQueryArgs) -> Self {
        Self {
            principal: arguments.principal.clone(),
            events: arguments.event.clone(),
            outcome: arguments.outcome.clone(),
            target: arguments.target.clone(),
            ..Self::in_span(&arguments.span)
        }
    }

    pub(super) fn in_span(span: &AuditSpanArgs) -> Self {
        Self {
            since: span.since,
            until: span.until,
            ..Self::default()
        }
    }

    /// Whether a line is an event that meets all conditions.
    pub(super) fn matches(&self, line: &[u8]) -> bool {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            return false;
        };
        let is = |wanted: &Option<String>, key: &str| {
            wanted.as_ref().is_none_or(|wanted| event[key] == *wanted)
        };
        let name = event["event"].as_str().unwrap_or_default();
        let is_event = |wanted: &String| wanted.eq_ignore_ascii_case(name);
        is(&self.principal, "principal")
            && is(&self.outcome, "outcome")
            && (self.events.is_empty() || self.events.iter().any(is_event))
            && self.is_about(&event)
            && self.is_in_span(&event)
    }

    fn is_about(&self, event: &Value) -> bool {
        let Some(target) = &self.target else {
            return true;
        };
        let places = [
            &event["target"],
            &event["created"],
            &event["args"]["container"],
        ];
        places.into_iter().any(|place| place == target)
    }

    fn is_in_span(&self, event: &Value) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        let time = event["time"].as_str().and_then(parse_rfc3339);
        time.is_some_and(|time| {
            self.since.is_none_or(|since| time >= since)
                && self.until.is_none_or(|until| time <= until)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &[u8] = br#"{"time":"2026-01-01T00:00:00.000Z","event":"EXEC_START","principal":"ann","target":"c_1","created":"e_1","outcome":"ok","args":{"container":"c_9"}}"#;

    fn is_shown(change: impl FnOnce(&mut Filter)) -> bool {
        let mut filter = Filter::default();
        change(&mut filter);
        filter.matches(EVENT)
    }

    #[test]
    fn an_event_must_be_all_that_is_asked_for() {
        assert!(is_shown(|_| {}));
        assert!(is_shown(|filter| filter.principal = Some("ann".into())));
        assert!(!is_shown(|filter| filter.principal = Some("bob".into())));
        assert!(is_shown(
            |filter| filter.events = vec!["FS_READ".into(), "exec_start".into()]
        ));
        assert!(!is_shown(|filter| filter.events = vec!["FS_READ".into()]));
        for target in ["c_1", "e_1", "c_9"] {
            assert!(
                is_shown(|filter| filter.target = Some(target.into())),
                "{target}"
            );
        }
        assert!(!is_shown(|filter| filter.target = Some("c_2".into())));
        assert!(!is_shown(|filter| filter.outcome = Some("denied".into())));
        let time = parse_rfc3339("2026-01-01T00:00:00Z");
        assert!(is_shown(
            |filter| (filter.since, filter.until) = (time, time)
        ));
        assert!(!is_shown(|filter| filter.since = time.map(|time| time + 1)));
        assert!(!is_shown(|filter| filter.until = time.map(|time| time - 1)));
    }
}
