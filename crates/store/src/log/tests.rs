//! Properties of whole logs, whatever is written and whenever the writer dies.

mod crash;
mod read;
mod retain;

use std::path::{Path, PathBuf};

use hotcell_domain::{ExecId, Stream};
use proptest::prelude::*;

use super::utf8::unfinished;
use super::{LogMessage, LogPage};
use crate::samples::store;
use crate::{Store, StoreError};

const PLENTY: u64 = 64 << 20;

fn id() -> ExecId {
    ExecId::from_parts(1, [1; 10])
}

/// The whole log, in pages of about `bytes_max`.
fn read_all(store: &Store, bytes_max: usize) -> (Vec<LogMessage>, u64) {
    let mut messages = Vec::new();
    let mut seq = 0;
    loop {
        let page = store.read_log_file(&id(), seq, bytes_max).unwrap();
        assert_eq!(
            page.next_seq,
            page.messages.last().map_or(seq, |one| one.seq)
        );
        seq = page.next_seq;
        messages.extend(page.messages);
        if !page.has_more {
            return (messages, page.truncated_bytes);
        }
    }
}

fn of_stream(messages: &[LogMessage], stream: Stream) -> Vec<u8> {
    let chosen = messages.iter().filter(|message| message.stream == stream);
    chosen.flat_map(|message| message.data.to_vec()).collect()
}

fn log_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("logs")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)]
}

#[derive(Debug, Clone)]
enum Step {
    Append(Stream, Vec<u8>),
    Reopen,
    Read(usize),
}

/// Texts cut at any point, and bytes that are not UTF-8.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..12),
        3 => prop::collection::vec(prop::sample::select("aß€🦀".as_bytes().to_vec()), 0..6),
        1 => prop::collection::vec(any::<u8>(), 0..2000),
    ];
    let cut = ("[aß€🦀]{1,40}", 1..5_usize).prop_map(|(text, size)| {
        let pieces = text.as_bytes().chunks(size);
        pieces.map(<[u8]>::to_vec).collect::<Vec<_>>()
    });
    let one = prop_oneof![
        6 => (stream(), bytes).prop_map(|(stream, bytes)| vec![Step::Append(stream, bytes)]),
        3 => (stream(), cut).prop_map(|(stream, pieces)| {
            let append = |piece| Step::Append(stream, piece);
            pieces.into_iter().map(append).collect()
        }),
        1 => Just(vec![Step::Reopen]),
        1 => (1..500_usize).prop_map(|bytes_max| vec![Step::Read(bytes_max)]),
    ];
    prop::collection::vec(one, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_byte_of_each_stream_comes_back_and_no_character_is_split(
        steps in steps(), bytes_max in 1..5000_usize,
    ) {
        let (_directory, store) = store();
        let mut log = store.log_file(&id(), PLENTY).unwrap();
        let mut written = [Vec::new(), Vec::new()];
        let mut seq = 0;
        for (number, step) in (1_u64..).zip(steps) {
            match step {
                Step::Append(stream, bytes) => {
                    seq = log.append(number, stream, number, &bytes).unwrap();
                    written[stream as usize].extend(bytes);
                }
                Step::Reopen => {
                    drop(log);
                    log = store.log_file(&id(), PLENTY).unwrap();
                }
                Step::Read(bytes_max) => {
                    let (messages, _) = read_all(&store, bytes_max);
                    for stream in [Stream::Stdout, Stream::Stderr] {
                        let all = &written[stream as usize];
                        let held_back = unfinished(all);
                        let ready = &all[..all.len() - held_back];
                        prop_assert_eq!(of_stream(&messages, stream), ready);
                    }
                }
            }
            prop_assert_eq!(log.last_seq(), seq);
        }
        let last = log.finish(u64::MAX, 9).unwrap();
        prop_assert_eq!(log.finish(u64::MAX, 9).unwrap(), last);
        let (messages, truncated) = read_all(&store, bytes_max);
        prop_assert_eq!(truncated, 0);
        for stream in [Stream::Stdout, Stream::Stderr] {
            prop_assert_eq!(&of_stream(&messages, stream), &written[stream as usize]);
            // A split character would be decoded differently in two halves.
            let whole = String::from_utf8_lossy(&written[stream as usize]);
            let chosen = messages.iter().filter(|one| one.stream == stream);
            let pieces = chosen.map(|one| String::from_utf8_lossy(&one.data));
            prop_assert_eq!(pieces.collect::<String>(), whole);
        }
        let numbers: Vec<u64> = messages.iter().map(|one| one.seq).collect();
        prop_assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
        prop_assert!(messages.iter().all(|one| !one.data.is_empty()));
    }
}

#[test]
fn an_exec_that_wrote_nothing_has_an_empty_log_and_no_file() {
    let (directory, store) = store();
    let empty = LogPage {
        messages: vec![],
        next_seq: 7,
        has_more: false,
        truncated_bytes: 0,
    };
    assert_eq!(store.read_log_file(&id(), 7, 100).unwrap(), empty);
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    assert_eq!(log.append(3, Stream::Stdout, 1, b"").unwrap(), 0);
    assert_eq!(log.finish(4, 1).unwrap(), 0);
    assert_eq!((log.agent_seq(), log.last_seq()), (4, 0));
    assert_eq!(store.read_log_file(&id(), 7, 100).unwrap(), empty);
    assert!(log_files(directory.path()).is_empty());
}

#[test]
fn what_is_here_already_is_not_added_again_unless_it_has_no_number() {
    let (_directory, store) = store();
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    log.append(1, Stream::Stdout, 1, b"a").unwrap();
    log.append(2, Stream::Stdout, 1, b"b").unwrap();
    drop(log);
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    assert_eq!(log.agent_seq(), 2);
    assert_eq!(log.append(1, Stream::Stdout, 1, b"a").unwrap(), 2);
    assert_eq!(log.append(2, Stream::Stderr, 1, b"b").unwrap(), 2);
    assert_eq!(log.append(0, Stream::Stdout, 1, b"c").unwrap(), 3);
    assert_eq!(log.append(3, Stream::Stdout, 1, b"d").unwrap(), 4);
    assert_eq!(of_stream(&read_all(&store, 100).0, Stream::Stdout), b"abcd");
}

#[test]
fn half_a_character_is_no_message_and_outlives_its_writer() {
    let (_directory, store) = store();
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    assert_eq!(log.append(1, Stream::Stdout, 1, b"\xe2").unwrap(), 0);
    assert_eq!(log.append(2, Stream::Stderr, 1, b"\xf0\x9f").unwrap(), 0);
    assert_eq!(read_all(&store, 100).0, []);
    drop(log);
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    assert_eq!((log.agent_seq(), log.last_seq()), (2, 0));
    assert_eq!(log.append(3, Stream::Stdout, 5, b"\x82\xac!").unwrap(), 1);
    assert_eq!(log.finish(4, 6).unwrap(), 2);
    let (messages, _) = read_all(&store, 100);
    let said: Vec<_> = messages
        .iter()
        .map(|one| (one.seq, one.unix_ms, &one.data[..]))
        .collect();
    assert_eq!(said, [(1, 5, "€!".as_bytes()), (2, 6, b"\xf0\x9f")]);
}

#[test]
fn a_server_that_dies_after_finish_is_told_the_exit_again() {
    let (_directory, store) = store();
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    log.append(1, Stream::Stdout, 1, b"a\xc3").unwrap();
    log.append(2, Stream::Stderr, 1, b"\xc3").unwrap();
    log.finish(3, 1).unwrap();
    assert_eq!(log.agent_seq(), 3);
    drop(log);
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    assert_eq!((log.agent_seq(), log.last_seq()), (2, 3));
    assert_eq!(log.finish(3, 1).unwrap(), 3);
}

#[test]
fn a_second_writer_is_refused_while_the_first_lives() {
    let (_directory, store) = store();
    let log = store.log_file(&id(), PLENTY).unwrap();
    let refused = store.log_file(&id(), PLENTY).map(drop);
    assert!(matches!(refused, Err(StoreError::Failed { .. })));
    drop(log);
    assert!(store.log_file(&id(), PLENTY).is_ok());
}

#[test]
fn a_log_that_is_deleted_under_its_writer_takes_no_more() {
    let (directory, store) = store();
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    log.append(1, Stream::Stdout, 1, b"a").unwrap();
    std::fs::remove_file(&log_files(directory.path())[0]).unwrap();
    let refused = log.append(2, Stream::Stdout, 1, b"b");
    assert!(matches!(refused, Err(StoreError::Failed { .. })));
    assert_eq!((log.agent_seq(), log.last_seq()), (1, 1));
    assert_eq!(store.read_log_file(&id(), 0, 10).unwrap().messages, []);
}

#[test]
fn more_than_a_record_holds_is_refused() {
    let (_directory, store) = store();
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    let large = vec![b'x'; super::record::PAYLOAD_BYTES_MAX - 3];
    assert_eq!(log.append(1, Stream::Stdout, 1, &large).unwrap(), 1);
    let larger = vec![b'x'; large.len() + 1];
    assert!(log.append(2, Stream::Stdout, 1, &larger).is_err());
    assert_eq!(of_stream(&read_all(&store, 10).0, Stream::Stdout), large);
}
