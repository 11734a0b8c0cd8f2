//! Parses an agent's answers without a connection, for fuzz targets and tests.
//!
//! Each function takes arbitrary bytes or messages and panics if a value beyond its bound gets
//! through.

use hotcell_agent_api::bounds::{
    CHUNK_BYTES_MAX, ENGINE_ENV_MAX, EXEC_ID_BYTES_MAX, EXECS_MAX, IMAGE_ENV_MAX, LIST_ENTRIES_MAX,
    PATH_BYTES_MAX, is_tunnel_purpose,
};
use hotcell_agent_api::v1::{
    self, BatchResult, ExecEvent, HelloReply, ListExecsReply, ListReply, TunnelEvent,
    TunnelListeners, TunnelReply,
};
use prost::Message;
use tonic::{Code, Status};

use crate::error::{ETAG_BYTES_MAX, MESSAGE_CHARS_MAX};
use crate::exec::{SequenceCheck, parse_execs};
use crate::file::parse_result;
use crate::tunnel::{IncomingCheck, check_reply};
use crate::{
    AgentError, AgentRefusal, Event, EventKind, ExitCause, FileInfo, Hello, NotebookEvent,
    NotebookFrame, Page,
};

/// Parses the bytes as each kind of answer; a parse error is fine.
pub fn answers(bytes: &[u8]) {
    if let Ok(reply) = HelloReply::decode(bytes) {
        hello(reply);
    }
    if let Ok(event) = ExecEvent::decode(bytes) {
        events([event.clone(), event]);
    }
    if let Ok(reply) = ListExecsReply::decode(bytes) {
        execs(reply);
    }
    if let Ok(reply) = ListReply::decode(bytes) {
        page(reply, 100);
    }
    if let Ok(info) = v1::FileInfo::decode(bytes) {
        file(info);
    }
    if let Ok(result) = BatchResult::decode(bytes) {
        batch_result(result);
    }
    if let (Ok(table), Ok(event)) = (TunnelListeners::decode(bytes), TunnelEvent::decode(bytes)) {
        tunnels(table, [event.clone(), event]);
    }
    if let Ok(reply) = TunnelReply::decode(bytes) {
        tunnel_reply(reply);
    }
    notebook(bytes);
    if let Some((code, message)) = bytes.split_first() {
        let message = String::from_utf8_lossy(message).into_owned();
        status(&Status::new(Code::from(i32::from(*code)), message));
    }
}

/// Frames from a notebook's channel.
pub fn notebook(bytes: &[u8]) {
    let frames = crate::notebook::parse_all(bytes).unwrap_or_default();
    let ends = frames.into_iter().filter_map(|frame| match frame {
        NotebookFrame::Event(NotebookEvent::End(end)) => Some(end),
        NotebookFrame::Event(_) | NotebookFrame::Stdout(_) | NotebookFrame::Stderr(_) => None,
    });
    for value in ends.flat_map(|end| end.result.into_iter().chain(end.displayed)) {
        assert!(value.text.len() <= bytes.len());
    }
}

/// The first answer on every connection.
pub fn hello(reply: HelloReply) {
    if let Ok(hello) = Hello::parse(reply) {
        assert!(hello.version.chars().count() <= MESSAGE_CHARS_MAX);
        assert!(hello.root.starts_with('/') && hello.root.len() <= PATH_BYTES_MAX);
        assert!(hello.env.len() <= IMAGE_ENV_MAX + ENGINE_ENV_MAX);
        assert_plain(&hello.version);
        assert_plain(&hello.root);
    }
}

/// The list of listeners, then incoming connections.
pub fn tunnels(table: TunnelListeners, events: impl IntoIterator<Item = TunnelEvent>) {
    let Ok(mut check) = IncomingCheck::parse(table) else {
        return;
    };
    let mut last_id = 0;
    for event in events {
        let Ok((id, purpose)) = check.take(event) else {
            return;
        };
        assert!(id > last_id && is_tunnel_purpose(&purpose));
        last_id = id;
    }
}

/// One message of a tunnel.
pub fn tunnel_reply(reply: TunnelReply) {
    assert!(check_reply(reply.clone(), true).is_err());
    if let Ok(Some(data)) = check_reply(reply, false) {
        assert!((1..=CHUNK_BYTES_MAX).contains(&data.len()));
    }
}

/// A stream of events from its beginning.
pub fn events(events: impl IntoIterator<Item = ExecEvent>) {
    let mut order = SequenceCheck::after(0);
    let mut last: Option<Event> = None;
    for event in events {
        let Ok(event) = order.take(event) else { return };
        let before = last.as_ref();
        assert_eq!(event.seq, before.map_or(0, |last| last.seq) + 1);
        assert!(!before.is_some_and(|last| matches!(last.kind, EventKind::Exit(_))));
        assert_event(&event);
        last = Some(event);
    }
}

fn assert_event(event: &Event) {
    match &event.kind {
        EventKind::Started(_) => assert_eq!(event.seq, 1),
        EventKind::Output(_, data) => assert!((1..=CHUNK_BYTES_MAX).contains(&data.len())),
        EventKind::Exit(exit) => {
            if let ExitCause::NotStarted { step, errno } = &exit.cause {
                assert!(step.chars().count() <= MESSAGE_CHARS_MAX && (1..4096).contains(errno));
                assert_plain(step);
            }
            if let Some(changes) = &exit.changes {
                assert!(changes.files.len() <= LIST_ENTRIES_MAX as usize);
                changes.files.iter().for_each(assert_file);
            }
        }
    }
}

/// A list of execs.
pub fn execs(reply: ListExecsReply) {
    if let Ok(execs) = parse_execs(reply.execs) {
        assert!(execs.len() <= EXECS_MAX);
        for exec in execs {
            assert!((1..=EXEC_ID_BYTES_MAX).contains(&exec.exec_id.len()));
            assert!(exec.acked_seq <= exec.last_seq);
            assert_plain(&exec.exec_id);
        }
    }
}

/// A page of a listing with at most `limit` entries.
pub fn page(reply: ListReply, limit: u32) {
    if let Ok(page) = Page::parse(reply, limit) {
        assert!(page.entries.len() <= limit.min(LIST_ENTRIES_MAX) as usize);
        assert!(
            page.next_cursor
                .is_none_or(|cursor| cursor.len() <= PATH_BYTES_MAX)
        );
        page.entries.iter().for_each(assert_file);
    }
}

/// The metadata of a file.
pub fn file(info: v1::FileInfo) {
    if let Ok(info) = FileInfo::parse(info) {
        assert_file(&info);
    }
}

fn assert_file(info: &FileInfo) {
    let paths = [Some(&info.path), info.target.as_ref()];
    for path in paths.into_iter().flatten() {
        assert!(path.len() <= PATH_BYTES_MAX && !path.contains(&0));
    }
    assert!(!info.path.starts_with(b"/") && info.mode <= 0o7777);
    assert_etag(&info.etag);
}

/// The result of one operation of a batch.
pub fn batch_result(result: BatchResult) {
    match parse_result(result) {
        Ok(outcome) => outcome.info.iter().for_each(assert_file),
        Err(error) => assert_error(&error),
    }
}

/// A gRPC status.
pub fn status(status: &Status) {
    assert_error(&AgentError::from(status.clone()));
}

fn assert_error(error: &AgentError) {
    assert_plain(&error.to_string());
    if let AgentError::Refused { refusal, message } = error {
        assert!(message.chars().count() <= MESSAGE_CHARS_MAX);
        if let AgentRefusal::Conflict {
            current_etag: Some(etag),
        } = refusal
        {
            assert_etag(etag);
        }
    }
}

fn assert_etag(etag: &str) {
    assert!((1..=ETAG_BYTES_MAX).contains(&etag.len()));
    assert!(etag.bytes().all(|byte| byte.is_ascii_hexdigit()));
}

fn assert_plain(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hotcell_agent_api::v1::exec_event::Event as WireEvent;
    use proptest::collection::vec;
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;

    /// Mostly text that a real agent could send, sometimes anything.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[0-9a-f]{0,70}",
            "/?[a-z./]{0,20}",
            any::<String>(),
            Just("x\u{1b}]0;".repeat(2000)),
        ]
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        let long = [CHUNK_BYTES_MAX, CHUNK_BYTES_MAX + 1, PATH_BYTES_MAX + 1];
        prop_oneof![
            text().prop_map(Bytes::from),
            vec(any::<u8>(), 0..40).prop_map(Bytes::from),
            proptest::sample::select(long.to_vec()).prop_map(|size| vec![b'x'; size].into()),
        ]
    }

    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![0_u32..6, 0_u32..5000, any::<u32>()]
    }

    prop_compose! {
        fn exit()(cause in -1..7, code in of(number()), signal in of(number()), step in text(), errno in of(number()), big: u64, files in of(vec(info(), 0..3))) -> v1::Exit {
            v1::Exit {
                cause,
                code,
                signal,
                start_error: errno.map(|errno| v1::StartError { step, errno }),
                usage: Some(v1::Usage { wall_us: big, user_us: big, ..v1::Usage::default() }),
                changes: files.map(|files| v1::Changes { files, more: big > 1 }),
            }
        }
    }

    fn happening() -> impl Strategy<Value = Option<WireEvent>> {
        of(prop_oneof![
            number().prop_map(|pid| WireEvent::Started(v1::Started { pid })),
            (0..4, bytes())
                .prop_map(|(stream, data)| WireEvent::Output(v1::Output { stream, data })),
            exit().prop_map(WireEvent::Exit),
        ])
    }

    /// Numbers are mostly correct; otherwise only the first event would be tested.
    fn stream() -> impl Strategy<Value = Vec<ExecEvent>> {
        vec((happening(), 0_u8..10, any::<u64>()), 0..12).prop_map(|happenings| {
            let numbered = happenings.into_iter().zip(1_u64..);
            numbered
                .map(|((event, odd, number), next)| ExecEvent {
                    seq: if odd == 0 { number } else { next },
                    unix_ms: number,
                    event,
                })
                .collect()
        })
    }

    prop_compose! {
        fn info()(path in bytes(), r#type in -1..7, mode in number(), etag in text(), target in bytes(), size: u64, mtime_ns: i64) -> v1::FileInfo {
            v1::FileInfo { path, r#type, size, mode, mtime_ns, uid: mode, gid: mode, etag, target }
        }
    }

    proptest! {
        #[test]
        fn whatever_a_hello_says_is_plain_or_refused(
            protocol in 0_u32..3, version in text(), boot_id in bytes(), root in text(), uid: u32,
            env in vec((bytes(), bytes()), 0..4),
        ) {
            let env = env.into_iter().map(|(name, value)| v1::EnvVar { name, value }).collect();
            hello(HelloReply { protocol, version, boot_id, root, uid, gid: uid, can_switch_user: true, env, protocol_max: uid, features: u64::from(uid) });
        }

        #[test]
        fn whatever_events_come_they_are_in_order_and_in_bounds(stream in stream()) {
            events(stream);
        }

        #[test]
        fn whatever_a_file_is_said_to_be_is_in_bounds(info in info(), code in number(), message in text(), etag in text(), data in bytes()) {
            file(info.clone());
            batch_result(BatchResult { code, message, info: Some(info), data, current_etag: etag });
        }

        #[test]
        fn whatever_is_listed_is_in_bounds(entries in vec(info(), 0..6), next_cursor in bytes(), limit in 0_u32..6) {
            page(ListReply { entries, next_cursor }, limit);
        }

        #[test]
        fn whatever_execs_are_listed_can_be_held(ids in vec((text(), 0_u64..4, 0_u64..4), 0..8), repeat in 0_usize..200) {
            let listed = ids.iter().cycle().take(ids.len() * repeat);
            let execs = listed.map(|(exec_id, last_seq, acked_seq)| v1::ExecInfo {
                exec_id: exec_id.clone(),
                running: false,
                last_seq: *last_seq,
                acked_seq: *acked_seq,
                stdin_accepted: u64::MAX,
            });
            execs_of(execs.collect());
        }

        #[test]
        fn whatever_bytes_are_sent_nothing_breaks(bytes in vec(any::<u8>(), 0..200)) {
            answers(&bytes);
        }
    }

    fn execs_of(listed: Vec<v1::ExecInfo>) {
        execs(ListExecsReply { execs: listed });
    }

    #[test]
    fn an_honest_stream_is_passed_on_to_its_exit() {
        let mut order = SequenceCheck::after(0);
        let event = |seq, event| ExecEvent {
            seq,
            unix_ms: 0,
            event: Some(event),
        };
        let output = v1::Output {
            stream: 1,
            data: "x".into(),
        };
        let exit = v1::Exit {
            cause: 1,
            code: Some(0),
            ..v1::Exit::default()
        };
        let honest = [
            event(1, WireEvent::Started(v1::Started { pid: 2 })),
            event(2, WireEvent::Output(output)),
            event(3, WireEvent::Exit(exit)),
        ];
        for event in honest {
            order.take(event).unwrap();
        }
    }
}
