//! An exec and its output, as text.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hotcell_domain::{ExecStatus, Stream};
use hotcell_service::{ExecView, Message};

use super::egress_view;

/// The output, with both streams marked if there are both, then a line with the status and the next
/// call.
pub(super) fn render(view: &ExecView) -> String {
    let mut text = output(&view.messages);
    let is_mid_line = !text.is_empty() && !text.ends_with('\n');
    if is_mid_line {
        text.push('\n');
    }
    let goes_on = if is_mid_line && !view.is_complete {
        "; the last line goes on"
    } else {
        ""
    };
    write!(text, "[{}{goes_on}]", status(view)).expect("writing to a string cannot fail");
    text
}

fn output(messages: &[Message]) -> String {
    let mut text = String::new();
    let mut last = Stream::Stdout;
    for message in messages {
        if message.stream != last {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            writeln!(text, "[{}]", message.stream.as_str()).expect("it is a string");
            last = message.stream;
        }
        if let Ok(data) = std::str::from_utf8(&message.data) {
            text.push_str(data);
        } else {
            let base64 = BASE64_STANDARD.encode(&message.data);
            let count = message.data.len();
            writeln!(text, "[{count} bytes as base64] {base64}").expect("it is a string");
        }
    }
    text
}

/// The next call, if more is to come.
pub(super) fn next_step(view: &ExecView) -> Option<String> {
    if view.is_complete {
        return None;
    }
    let (more, wait) = if view.status.is_final() {
        ("more output", "")
    } else {
        ("to go on", ", wait_s=50")
    };
    let (id, next) = (&view.id, view.next_seq);
    Some(format!(
        "{more}: exec_poll with exec_id={id}, after_seq={next}{wait}"
    ))
}

fn status(view: &ExecView) -> String {
    let mut text = format!("{} {}", view.id, view.status.as_str());
    let mut add = |part: String| {
        text.push_str("; ");
        text.push_str(&part);
    };
    if let Some(end) = &view.end {
        end.exit_code
            .into_iter()
            .for_each(|code| add(format!("exit code {code}")));
        end.signal
            .into_iter()
            .for_each(|signal| add(format!("signal {signal}")));
        end.reason.iter().for_each(|reason| add(reason.clone()));
        end.usage
            .iter()
            .for_each(|usage| add(format!("{} ms", usage.wall_ms)));
    }
    view.stalled
        .into_iter()
        .for_each(|reason| add(reason.to_owned()));
    if view.truncated_bytes > 0 {
        add(format!(
            "{} bytes from the middle of the output were not kept",
            view.truncated_bytes
        ));
    }
    view.egress
        .iter()
        .filter_map(egress_view::line)
        .for_each(&mut add);
    if view.status == ExecStatus::Queued {
        add("it waits for a place".to_owned());
    }
    next_step(view).into_iter().for_each(add);
    text
}
