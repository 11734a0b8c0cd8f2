//! Records what a container's egress does: ledger events and metrics.
//!
//! A flood of connections is counted, not listed: per minute, a container has so many events of each
//! kind, and the first of the next minute tells how many were left out.

use std::sync::{Arc, Mutex, PoisonError};

use hotcell_domain::ContainerId;
use hotcell_egress::{Denial, Observer, Opened, ProfileName, Question};
use hotcell_ledger::{Arguments, Event, EventName, Outcome, Who};
use hotcell_store::ContainerRow;

use crate::environment::Environment;
use crate::operation::Recording;

/// Events of one kind that one container has per minute.
const EVENTS_MAX: u64 = 60;
const WINDOW_MS: u64 = 60_000;

/// Writes the events of one container.
pub(super) struct Recorder {
    environment: Arc<Environment>,
    container: ContainerId,
    principal: String,
    profile: ProfileName,
    opened: Mutex<Window>,
    denied: Mutex<Window>,
    asked: Mutex<Window>,
    closed: Mutex<Window>,
}

/// Events of one kind in one minute.
#[derive(Debug, Default)]
struct Window {
    since_unix_ms: u64,
    count: u64,
}

impl Window {
    /// Counts an event; if it is to be written, how many before it were left out.
    fn take(&mut self, now_unix_ms: u64) -> Option<u64> {
        if now_unix_ms.abs_diff(self.since_unix_ms) >= WINDOW_MS {
            let left_out = self.count.saturating_sub(EVENTS_MAX);
            *self = Self {
                since_unix_ms: now_unix_ms,
                count: 1,
            };
            return Some(left_out);
        }
        self.count += 1;
        (self.count <= EVENTS_MAX).then_some(0)
    }
}

impl Recorder {
    pub(super) fn new(
        environment: &Arc<Environment>,
        row: &ContainerRow,
        profile: &ProfileName,
    ) -> Self {
        Self {
            environment: Arc::clone(environment),
            container: row.id.clone(),
            principal: row.principal.as_str().to_owned(),
            profile: profile.clone(),
            opened: Mutex::default(),
            denied: Mutex::default(),
            asked: Mutex::default(),
            closed: Mutex::default(),
        }
    }

    fn record(
        &self,
        window: &Mutex<Window>,
        name: EventName,
        bytes: u64,
        note: impl FnOnce(&mut Arguments),
    ) {
        let settings = self.environment.settings();
        let Some(ledger) = &settings.ledger else {
            return;
        };
        let now_unix_ms = self.environment.clock.unix_ms();
        let mut window = window.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left_out) = window.take(now_unix_ms) else {
            return;
        };
        drop(window);
        let who = Who::Owner(&self.principal);
        let mut event = Event::new(name, now_unix_ms, who, self.container.as_str());
        event.arguments.text("profile", self.profile.as_str());
        note(&mut event.arguments);
        if left_out > 0 {
            event.arguments.number("left_out", left_out);
        }
        if name == EventName::EgressDeny {
            event.outcome = Outcome::Denied;
        }
        event.bytes = bytes;
        // Nobody waits: a connection is not held up by the disk of the audit log.
        drop(Recording::of(ledger, &event));
    }
}

impl Observer for Recorder {
    fn opened(&self, opened: &Opened) {
        self.environment.metrics.egress.opened(&self.profile);
        self.record(&self.opened, EventName::EgressOpen, 0, |arguments| {
            note_opened(opened, arguments);
        });
    }

    fn denied(&self, denial: &Denial) {
        self.environment.metrics.egress.denied(&self.profile);
        self.record(&self.denied, EventName::EgressDeny, 0, |arguments| {
            arguments.text("host", &denial.host);
            arguments.number("port", denial.port.into());
            arguments.text("reason", &denial.reason.to_string());
        });
    }

    fn asked(&self, question: &Question) {
        let metrics = &self.environment.metrics.egress;
        metrics.asked(&self.profile, "asked");
        self.record(&self.asked, EventName::EgressAsk, 0, |arguments| {
            arguments.text("question", &question.id);
            arguments.text("host", question.host.as_str());
            arguments.number("port", question.port.into());
        });
        self.environment.egress.offers.announce();
    }

    fn closed(&self, opened: &Opened, down: u64, up: u64) {
        let metrics = &self.environment.metrics.egress;
        metrics.closed(&self.profile, down, up);
        let bytes = down.saturating_add(up);
        self.record(&self.closed, EventName::EgressClose, bytes, |arguments| {
            note_opened(opened, arguments);
            arguments.number("bytes_down", down);
            arguments.number("bytes_up", up);
        });
    }
}

fn note_opened(opened: &Opened, arguments: &mut Arguments) {
    arguments.text("host", opened.host.as_str());
    arguments.number("port", opened.port.into());
    arguments.text("rule", &opened.rule);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_told_in_the_next_minute() {
        let mut window = Window::default();
        let now = 10 * WINDOW_MS;
        assert_eq!(window.take(now), Some(0));
        let written = (1..1000).filter(|_| window.take(now).is_some()).count();
        assert_eq!(written as u64, EVENTS_MAX - 1);
        assert_eq!(window.take(now + WINDOW_MS), Some(1000 - EVENTS_MAX));
        assert_eq!(window.take(now + WINDOW_MS), Some(0));
    }
}
