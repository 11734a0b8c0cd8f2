//! Well-framed but false answers.

use bytes::Bytes;
use hotcell_agent_api::v1::exec_event::Event;
use hotcell_agent_api::v1::read_reply::Reply;
use hotcell_agent_api::v1::{
    self, BatchReply, BatchResult, ExecEvent, ExportReply, FileInfo, InputReply, ListExecsReply,
    ListReply, ReadReply,
};
use hotcell_agent_client::bounds::{CHUNK_BYTES_MAX, EXECS_MAX, LIST_ENTRIES_MAX};
use hotcell_agent_client::{AgentError, Command, Operation, Precondition};

use crate::fake::{Answer, DEADLINE, agent, framed, messages, raw_frame};

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work)
        .await
        .expect("every case ends in time")
}

/// Follows an exec; returns its number of events, or the error.
async fn followed(answer: Answer) -> Result<usize, AgentError> {
    let agent = agent(answer).await;
    in_time(async {
        let mut follow = agent.start("e", &Command::new(["true"])).await?;
        let mut count = 0;
        while let Some(event) = follow.next().await? {
            follow.ack(event.seq);
            count += 1;
        }
        Ok(count)
    })
    .await
}

fn event(seq: u64, event: Event) -> ExecEvent {
    ExecEvent {
        seq,
        unix_ms: 0,
        event: Some(event),
    }
}

fn started(seq: u64) -> ExecEvent {
    event(seq, Event::Started(v1::Started { pid: 2 }))
}

fn output(seq: u64, stream: i32, bytes: usize) -> ExecEvent {
    let data = vec![b'x'; bytes].into();
    event(seq, Event::Output(v1::Output { stream, data }))
}

fn exit(seq: u64, change: fn(&mut v1::Exit)) -> ExecEvent {
    let mut exit = v1::Exit {
        cause: 1,
        code: Some(0),
        ..v1::Exit::default()
    };
    change(&mut exit);
    event(seq, Event::Exit(exit))
}

#[tokio::test(start_paused = true)]
async fn an_honest_exec_is_believed() {
    let honest = [started(1), output(2, 1, CHUNK_BYTES_MAX), exit(3, |_| ())];
    assert_eq!(followed(messages(&honest)).await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn events_out_of_order_or_out_of_bounds_break_the_protocol() {
    let empty = ExecEvent {
        seq: 1,
        ..ExecEvent::default()
    };
    let lies: [&[ExecEvent]; 17] = [
        &[],
        &[empty],
        &[started(0)],
        &[started(2)],
        &[started(u64::MAX)],
        &[started(1), started(2)],
        &[started(1), output(1, 1, 1)],
        &[started(1), output(3, 1, 1)],
        &[started(1), output(2, 0, 1)],
        &[started(1), output(2, 7, 1)],
        &[started(1), output(2, 1, 0)],
        &[started(1), output(2, 1, CHUNK_BYTES_MAX + 1)],
        &[started(1), exit(2, |exit| exit.code = Some(256))],
        &[started(1), exit(2, |exit| exit.cause = 0)],
        &[exit(1, |exit| exit.cause = 4)],
        &[exit(1, |_| ()), output(2, 1, 1)],
        &[exit(1, |_| ()), exit(2, |_| ())],
    ];
    for lie in lies {
        let error = followed(messages(lie)).await;
        assert!(
            matches!(error, Err(AgentError::Protocol(_))),
            "{error:?}: {lie:?}"
        );
    }
}

/// A file as an honest agent tells of it.
fn changed() -> FileInfo {
    FileInfo {
        path: "artifacts/plot.png".into(),
        r#type: 1,
        etag: "0123abcd".into(),
        ..FileInfo::default()
    }
}

fn exit_with(files: Vec<FileInfo>) -> [ExecEvent; 2] {
    let exit = v1::Exit {
        cause: 1,
        code: Some(0),
        changes: Some(v1::Changes { files, more: false }),
        ..v1::Exit::default()
    };
    [started(1), event(2, Event::Exit(exit))]
}

#[tokio::test(start_paused = true)]
async fn changes_are_so_many_regular_files_or_break_the_protocol() {
    let most = vec![changed(); LIST_ENTRIES_MAX as usize];
    assert_eq!(followed(messages(&exit_with(most.clone()))).await, Ok(2));
    let lies = [
        [most, vec![changed()]].concat(),
        vec![FileInfo {
            r#type: 2,
            ..changed()
        }],
        vec![FileInfo {
            r#type: 3,
            target: "/etc/passwd".into(),
            ..changed()
        }],
        vec![FileInfo {
            path: "/etc/passwd".into(),
            ..changed()
        }],
        vec![FileInfo {
            etag: "not one".into(),
            ..changed()
        }],
    ];
    for lie in lies {
        let error = followed(messages(&exit_with(lie.clone()))).await;
        assert!(
            matches!(error, Err(AgentError::Protocol(_))),
            "{error:?}: {} files, {:?}",
            lie.len(),
            lie[0]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_is_an_error_and_not_an_end() {
    let first = framed(&started(1));
    let broken = [
        Answer::Body(
            vec![first.clone(), raw_frame(0, None, &[0xff; 9])],
            Some((0, String::new())),
        ),
        Answer::Body(
            vec![first.clone(), raw_frame(0, Some(1 << 30), b"")],
            Some((0, String::new())),
        ),
        Answer::Body(vec![first.clone()], Some((13, "oh".into()))),
        Answer::Body(vec![first.clone()], Some((0, String::new()))),
        Answer::HangUp(vec![first]),
        Answer::Reset,
    ];
    for answer in broken {
        let what = format!("{answer:?}");
        assert!(followed(answer).await.is_err(), "{what}");
    }
}

fn info(change: impl FnOnce(&mut FileInfo)) -> FileInfo {
    let mut info = FileInfo {
        path: "a".into(),
        r#type: 1,
        size: 10,
        mode: 0o644,
        etag: "0123456789abcdef".into(),
        ..FileInfo::default()
    };
    change(&mut info);
    info
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_is_refused() {
    let lies = [
        info(|info| info.r#type = 0),
        info(|info| info.r#type = 77),
        info(|info| info.path = "/etc/passwd".into()),
        info(|info| info.path = vec![b'x'; 5000].into()),
        info(|info| info.path = "a\0b".into()),
        info(|info| info.target = vec![b'x'; 5000].into()),
        info(|info| info.etag = "\x1b[2J".into()),
        info(|info| info.etag = "a".repeat(65)),
        info(|info| info.etag = String::new()),
    ];
    for lie in lies {
        let agent = agent(messages(std::slice::from_ref(&lie))).await;
        let error = in_time(agent.stat(b"a", false)).await;
        assert!(matches!(error, Err(AgentError::Protocol(_))), "{lie:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_that_are_too_long_or_lead_nowhere_are_refused() {
    let page = |entries: usize, next_cursor: &'static [u8]| ListReply {
        entries: vec![info(|_| ()); entries],
        next_cursor: Bytes::from_static(next_cursor),
    };
    for lie in [page(11, b""), page(1, b"here"), page(1, &[b'x'; 5000])] {
        let agent = agent(messages(&[lie])).await;
        let error = in_time(agent.list(b"", true, None, 10, Some(b"here"))).await;
        assert!(matches!(error, Err(AgentError::Protocol(_))), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_execs_than_fit_and_odd_names_are_refused() {
    let exec = |id: &str| v1::ExecInfo {
        exec_id: id.to_owned(),
        ..v1::ExecInfo::default()
    };
    for lie in [
        vec![exec("e"); EXECS_MAX + 1],
        vec![exec("")],
        vec![exec("a\nb")],
    ] {
        let agent = agent(messages(&[ListExecsReply { execs: lie }])).await;
        let error = in_time(agent.list_execs()).await;
        assert!(matches!(error, Err(AgentError::Protocol(_))), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn input_that_was_not_taken_is_not_taken_for_taken() {
    let agent = agent(messages(&[InputReply { accepted: 3 }])).await;
    let error = in_time(agent.input("e", 0, Bytes::from_static(b"four"), false)).await;
    assert!(matches!(error, Err(AgentError::Protocol(_))), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_a_result_for_each_operation_and_plain_words() {
    let delete = Operation::Delete {
        path: b"a".to_vec(),
        recursive: true,
        precondition: Precondition::Any,
    };
    let reply = |results| messages(&[BatchReply { results }]);
    for results in [vec![], vec![BatchResult::default(); 2]] {
        let agent = agent(reply(results)).await;
        let error = in_time(agent.batch(vec![delete.clone()], true)).await;
        assert!(matches!(error, Err(AgentError::Protocol(_))), "{error:?}");
    }
    let loud = BatchResult {
        code: 9,
        message: "\x1b[2J".repeat(1000),
        current_etag: "\x1b[2J".into(),
        ..BatchResult::default()
    };
    let agent = agent(reply(vec![loud])).await;
    let results = in_time(agent.batch(vec![delete], false)).await.unwrap();
    let said = format!("{:?}", results[0]);
    assert!(!said.contains("[2J\u{1b}") && said.len() < 4096, "{said}");
    assert!(said.contains("current_etag: None"), "{said}");
}

/// What a read of at most `limit` bytes collects.
async fn collected(limit: Option<u64>, replies: Answer) -> Result<Vec<u8>, AgentError> {
    let agent = agent(replies).await;
    in_time(async {
        let (_, reader) = agent.read(b"a", 0, limit).await?;
        reader.collect(1 << 20).await
    })
    .await
}

fn data(bytes: usize) -> ReadReply {
    ReadReply {
        reply: Some(Reply::Data(vec![0; bytes].into())),
    }
}

fn described() -> ReadReply {
    ReadReply {
        reply: Some(Reply::Info(info(|_| ()))),
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_is_what_was_asked_for_and_no_more() {
    assert_eq!(
        collected(Some(4), messages(&[described(), data(4)])).await,
        Ok(vec![0; 4])
    );
    let lies: [&[ReadReply]; 7] = [
        &[],
        &[data(4)],
        &[ReadReply { reply: None }],
        &[described(), described()],
        &[described(), data(5)],
        &[described(), data(0)],
        &[described(), data(CHUNK_BYTES_MAX + 1)],
    ];
    for lie in lies {
        let error = collected(Some(4), messages(lie)).await;
        assert!(
            matches!(error, Err(AgentError::Protocol(_))),
            "{error:?}: {lie:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_archive_without_end_is_cut_and_costs_no_memory() {
    let before = most_memory_kib();
    let piece = ExportReply {
        data: vec![0; CHUNK_BYTES_MAX].into(),
    };
    let agent = agent(Answer::Endless(framed(&piece))).await;
    let read = async {
        let mut reader = agent.export(b"", &[], &[]).await?;
        for _ in 0..2000 {
            reader.next().await?;
        }
        reader.collect(1 << 20).await
    };
    let error = in_time(read).await;
    assert!(matches!(error, Err(AgentError::Protocol(_))), "{error:?}");
    let grown = most_memory_kib() - before;
    assert!(grown < 32 << 10, "{grown} KiB for 64 MiB that went by");
}

#[tokio::test(start_paused = true)]
async fn an_endless_stream_of_nothing_ends() {
    let agent = agent(Answer::Endless(framed(&ExportReply::default()))).await;
    let read = async { agent.export(b"", &[], &[]).await?.collect(1 << 20).await };
    assert!(matches!(in_time(read).await, Err(AgentError::Protocol(_))));
}

#[tokio::test(start_paused = true)]
async fn a_message_over_the_bound_is_refused_by_its_length_alone() {
    let before = most_memory_kib();
    for _ in 0..50 {
        let huge = raw_frame(0, Some(u32::MAX), &[0; 64]);
        let agent = agent(Answer::Body(vec![huge], None)).await;
        let error = in_time(agent.stat(b"a", false)).await;
        assert!(matches!(error, Err(AgentError::Protocol(_))), "{error:?}");
    }
    assert!(most_memory_kib() - before < 32 << 10);
}

/// The peak memory of this process.
fn most_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = peak.and_then(|peak| peak.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("the kernel tells")
}
