//! What is kept of output beyond the limit.

use super::*;
use crate::log::reader::MESSAGES_MAX;

/// The output as pairs of stream and byte, in order.
fn flat(messages: &[LogMessage]) -> Vec<(Stream, u8)> {
    let bytes = |one: &LogMessage| {
        let stream = one.stream;
        let data = one.data.to_vec();
        data.into_iter().map(move |byte| (stream, byte))
    };
    messages.iter().flat_map(bytes).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_first_and_the_last_half_stay_and_the_rest_is_counted(
        pieces in prop::collection::vec((stream(), "[a-z]{1,80}", prop::bool::weighted(0.03)), 1..300),
        output_bytes_max in 0..4000_u64,
        bytes_max in 1..3000_usize,
    ) {
        let (directory, store) = store();
        let mut log = store.log_file(&id(), output_bytes_max).ok();
        let mut written = Vec::new();
        for (number, (stream, text, reopen)) in (1_u64..).zip(pieces) {
            if reopen {
                drop(log);
                log = store.log_file(&id(), output_bytes_max).ok();
            }
            let log = log.as_mut().unwrap();
            log.append(number, stream, number, text.as_bytes()).unwrap();
            written.extend(text.bytes().map(|byte| (stream, byte)));
        }
        for is_living in [true, false] {
            log = log.filter(|_| is_living);
            let (messages, truncated) = read_all(&store, bytes_max);
            let kept = flat(&messages);
            let truncated = usize::try_from(truncated).unwrap();
            prop_assert_eq!(kept.len() + truncated, written.len());
            let half = usize::try_from(output_bytes_max.div_ceil(2)).unwrap();
            let on_disk = on_disk(directory.path());
            prop_assert!(truncated == 0 || on_disk >= 2 * half);
            let gap = messages.windows(2).position(|two| two[0].seq + 1 != two[1].seq);
            prop_assert_eq!(gap.is_some(), truncated > 0);
            let head = flat(&messages[..gap.map_or(messages.len(), |at| at + 1)]).len();
            prop_assert_eq!(&kept[..head], &written[..head]);
            prop_assert_eq!(&kept[head..], &written[head + truncated..]);
            let head_bytes = log_files(directory.path())
                .first()
                .map_or(0, |path| path.metadata().unwrap().len());
            prop_assert!(truncated == 0 || head_bytes >= half as u64);
            // At most the two halves, one segment, and per file a header and the record that did
            // not fit.
            prop_assert!(on_disk <= 2 * half + half / 8 + 10 * (48 + 36 + 80));
        }
    }
}

/// The total size of all files.
fn on_disk(directory: &Path) -> usize {
    let files = log_files(directory);
    let sizes = files.iter().map(|path| path.metadata().unwrap().len());
    usize::try_from(sizes.sum::<u64>()).unwrap()
}

#[test]
fn single_bytes_take_no_more_of_the_disk_than_their_bound() {
    let (directory, store) = store();
    let output_bytes_max = 64 << 10;
    let mut log = store.log_file(&id(), output_bytes_max).unwrap();
    for number in 1..=20_000 {
        log.append(number, Stream::Stdout, 1, b"x").unwrap();
    }
    let bound = usize::try_from(output_bytes_max + output_bytes_max / 16).unwrap();
    let on_disk = on_disk(directory.path());
    assert!(on_disk <= bound + 10 * 100, "{on_disk}");
    assert!(on_disk >= bound - bound / 8, "{on_disk}");
    assert_eq!(store.logs.bytes(&id()), on_disk as u64);
    let (messages, truncated) = read_all(&store, 1000);
    assert_eq!(messages.len() as u64 + truncated, 20_000);
    assert!(truncated > 0);
}

#[test]
fn a_page_has_a_bound_on_its_messages_too() {
    let (_directory, store) = store();
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    let count = MESSAGES_MAX as u64 + 5;
    for number in 1..=count {
        log.append(number, Stream::Stdout, 1, b"x").unwrap();
    }
    let first = store.read_log_file(&id(), 0, 1 << 20).unwrap();
    assert_eq!((first.messages.len(), first.has_more), (MESSAGES_MAX, true));
    let rest = store.read_log_file(&id(), first.next_seq, 1 << 20).unwrap();
    assert_eq!((rest.messages.len(), rest.has_more), (5, false));
    assert_eq!(rest.next_seq, count);
}

#[test]
fn segments_never_have_more_names_than_there_are() {
    let (directory, store) = store();
    for (round, output_bytes_max) in (0_u64..).zip([100, 5000, 40, 100_000, 300]) {
        let mut log = store.log_file(&id(), output_bytes_max).unwrap();
        for number in 1..=400 {
            let number = round * 400 + number;
            log.append(number, Stream::Stdout, 1, &[b'x'; 50]).unwrap();
            // Whichever names the segments have at the moment, all of them are found.
            if number % 10 == 0 {
                assert_eq!(store.logs.bytes(&id()), on_disk(directory.path()) as u64);
            }
        }
        assert!(log_files(directory.path()).len() <= 10);
        let (messages, truncated) = read_all(&store, 1000);
        let kept = messages.len() as u64 * 50;
        assert_eq!(kept + truncated, (round + 1) * 400 * 50);
    }
}
