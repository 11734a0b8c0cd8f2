//! Reading continues while others write and segments are dropped.

use super::*;

#[test]
fn a_page_holds_one_message_at_least_and_about_what_was_asked_for_at_most() {
    let (_directory, store) = store();
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    for number in 1..=5 {
        log.append(number, Stream::Stdout, 1, &[b'x'; 100]).unwrap();
    }
    let seqs = |after_seq, bytes_max| {
        let page = store.read_log_file(&id(), after_seq, bytes_max).unwrap();
        let seqs: Vec<u64> = page.messages.iter().map(|one| one.seq).collect();
        (seqs, page.has_more)
    };
    assert_eq!(seqs(0, 1), (vec![1], true));
    assert_eq!(seqs(0, 0), (vec![1], true));
    assert_eq!(seqs(1, 250), (vec![2, 3], true));
    assert_eq!(seqs(3, 200), (vec![4, 5], false));
    assert_eq!(seqs(3, usize::MAX), (vec![4, 5], false));
    assert_eq!(seqs(5, 100), (vec![], false));
    assert_eq!(seqs(u64::MAX, 100), (vec![], false));
}

#[test]
fn reading_on_begins_where_the_last_page_ended() {
    let (_directory, store) = store();
    let mut log = store.log_file(&id(), PLENTY).unwrap();
    for number in 1..=100 {
        log.append(number, Stream::Stdout, 1, &[b'x'; 1000])
            .unwrap();
    }
    let mut seq = 0;
    for _ in 0..9 {
        seq = store.read_log_file(&id(), seq, 10_000).unwrap().next_seq;
        let position = store.logs.cursors().get(&id(), seq).unwrap();
        assert_eq!(position.offset, 48 + seq * 1036);
    }
    // At another position it works without a remembered cursor.
    let page = store.read_log_file(&id(), 17, 1).unwrap();
    assert_eq!(page.messages[0].seq, 18);
}

#[test]
fn a_reader_whose_place_was_dropped_goes_on_with_what_is_kept() {
    let (_directory, store) = store();
    let mut log = store.log_file(&id(), 1600).unwrap();
    let mut append = |numbers: std::ops::RangeInclusive<u64>| {
        for number in numbers {
            log.append(number, Stream::Stdout, 1, &[b'x'; 100]).unwrap();
        }
    };
    append(1..=12);
    let page = store.read_log_file(&id(), 8, 200).unwrap();
    assert_eq!((page.next_seq, page.has_more), (10, true));
    append(13..=100);
    let page = store.read_log_file(&id(), 10, 100).unwrap();
    assert_eq!(page.messages[0].seq, 100 - 8);
    assert_eq!(page.truncated_bytes, (100 - 6 - 9) * 100);
}

#[test]
fn readers_keep_up_with_a_writer_that_drops_segments() {
    let (_directory, store) = store();
    let last = 10_000;
    let text = |number: u64| format!("{number} ").repeat(1 + usize::try_from(number % 9).unwrap());
    std::thread::scope(|scope| {
        for bytes_max in [1, 700, 100_000] {
            let store = store.clone();
            scope.spawn(move || {
                let mut seq = 0;
                while seq < last {
                    let page = store.read_log_file(&id(), seq, bytes_max).unwrap();
                    for message in page.messages {
                        assert!(message.seq > seq);
                        seq = message.seq;
                        assert_eq!(message.data, text(seq), "message {seq}");
                    }
                }
            });
        }
        let mut log = store.log_file(&id(), 20_000).unwrap();
        for number in 1..=last {
            log.append(number, Stream::Stdout, 1, text(number).as_bytes())
                .unwrap();
        }
    });
}
