//! An exec and its output, as text.

use std::fmt::Write as _;

use hotcell_domain::{ExecStatus, Stream};
use hotcell_service::{ExecView, Message};

use crate::words::{head, tail};

/// Output that is shown as text; structured content has all of it.
const TEXT_BYTES_MAX: usize = 32 << 10;

/// The output itself, its streams marked if there are both, then a line that tells how the
/// exec is and what to call next.
pub(super) fn render(view: &ExecView) -> String {
    let mut text = shortened(output(&view.messages), view);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    write!(text, "[{}]", status(view)).expect("writing to a string cannot fail");
    text
}

fn output(messages: &[Message]) -> String {
    let mut text = String::new();
    let mut last = Stream::Stdout;
    // Only the ends will be shown, so the middle of much output need not be read.
    for message in ends(messages) {
        if message.stream != last {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            writeln!(text, "[{}]", message.stream.as_str()).expect("it is a string");
            last = message.stream;
        }
        match std::str::from_utf8(&message.data) {
            Ok(data) => text.push_str(data),
            Err(_) => writeln!(text, "[{} bytes that are not text]", message.data.len())
                .expect("it is a string"),
        }
    }
    text
}

/// Messages from both ends, enough to fill the text.
fn ends(messages: &[Message]) -> impl Iterator<Item = &Message> {
    let enough = |part: &mut dyn Iterator<Item = &Message>| {
        let mut bytes = 0;
        part.take_while(|message| {
            let is_wanted = bytes <= TEXT_BYTES_MAX;
            bytes += message.data.len();
            is_wanted
        })
        .count()
    };
    let first = enough(&mut messages.iter());
    let rest = &messages[first..];
    let last = enough(&mut rest.iter().rev());
    messages[..first].iter().chain(&rest[rest.len() - last..])
}

fn shortened(text: String, view: &ExecView) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let (first, last) = (
        head(&text, TEXT_BYTES_MAX / 2),
        tail(&text, TEXT_BYTES_MAX / 2),
    );
    let id = &view.id;
    format!(
        "{first}\n[the middle is left out here; structured content has it, and so has exec_poll \
         with a small max_bytes, step by step, or the resource logs://{id}]\n{last}"
    )
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
    view.held_up
        .into_iter()
        .for_each(|reason| add(reason.to_owned()));
    if view.truncated_bytes > 0 {
        add(format!(
            "{} bytes of output were dropped",
            view.truncated_bytes
        ));
    }
    if !view.is_complete {
        let more = if view.status.is_final() {
            "more output"
        } else {
            "to go on"
        };
        add(format!(
            "{more}: exec_poll with after_seq={}",
            view.next_seq
        ));
    }
    if view.status == ExecStatus::Queued {
        add("it waits for a place".to_owned());
    }
    text
}
