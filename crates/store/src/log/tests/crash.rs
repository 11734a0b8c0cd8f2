//! The writer dies during a write.

use super::*;

const RECORDS: u64 = 12;

fn text(number: u64) -> String {
    format!("line {number} ä€🦀\n").repeat(1 + usize::try_from(number % 3).unwrap())
}

fn stream_of(number: u64) -> Stream {
    match number % 3 {
        0 => Stream::Stderr,
        _ => Stream::Stdout,
    }
}

/// Appends the missing records.
fn write(store: &Store, output_bytes_max: u64) {
    let mut log = store.log_file(&id(), output_bytes_max).unwrap();
    for number in log.agent_seq() + 1..=RECORDS {
        let text = text(number);
        // Every record begins and ends inside a character.
        let cut = text.len() - 1 - (usize::try_from(number).unwrap() % 3);
        let (begin, end) = text.as_bytes().split_at(cut);
        let mut data = end.to_vec();
        data.extend_from_slice(begin);
        log.append(number, stream_of(number), number, &data)
            .unwrap();
    }
}

/// Writes a log, damages its newest file at each position, and checks that the next writer produces
/// the same log.
fn survives(output_bytes_max: u64, mut damage: impl FnMut(&[u8], usize) -> Vec<u8>) {
    let (directory, store) = store();
    write(&store, output_bytes_max);
    let whole = read_all(&store, 1 << 20);
    let logs: Vec<_> = log_files(directory.path())
        .into_iter()
        .map(|path| (std::fs::read(&path).unwrap(), path))
        .collect();
    let newest = crate::log::layout::Layout::on_disk(&directory.path().join("logs"), &id());
    let newest = newest.unwrap().parts.last().unwrap().number;
    let newest = crate::log::part::path(&directory.path().join("logs"), &id(), newest);
    let good = std::fs::read(&newest).unwrap();
    for at in 0..good.len() {
        std::fs::write(&newest, damage(&good, at)).unwrap();
        let (seen, _) = read_all(&store, 1 << 20);
        assert!(
            whole.0.starts_with(&seen),
            "a reader saw what was not written, at {at}"
        );
        write(&store, output_bytes_max);
        assert_eq!(read_all(&store, 1 << 20), whole, "at {at}");
        for (bytes, path) in &logs {
            std::fs::write(path, bytes).unwrap();
        }
    }
}

#[test]
fn a_head_that_is_cut_anywhere_goes_on_at_its_last_whole_record() {
    survives(PLENTY, |good, at| good[..at].to_vec());
}

#[test]
fn a_head_that_ends_in_zeros_goes_on_at_its_last_whole_record() {
    survives(PLENTY, |good, at| {
        let mut bytes = good.to_vec();
        bytes[at..].fill(0);
        bytes
    });
}

#[test]
fn a_head_with_a_wrong_byte_goes_on_at_its_last_whole_record() {
    let mut flip = 1_u8;
    survives(PLENTY, |good, at| {
        let mut bytes = good.to_vec();
        bytes[at] ^= flip;
        flip = flip.wrapping_mul(5) | 1;
        bytes
    });
}

#[test]
fn a_tail_segment_that_is_cut_anywhere_goes_on_at_its_last_whole_record() {
    survives(600, |good, at| good[..at].to_vec());
}

#[test]
fn what_follows_the_last_whole_record_is_cut_off() {
    let (directory, store) = store();
    write(&store, PLENTY);
    let path = &log_files(directory.path())[0];
    let good = std::fs::read(path).unwrap();
    let mut bytes = good.clone();
    bytes.extend_from_slice(&[0xff; 10_000]);
    std::fs::write(path, bytes).unwrap();
    drop(store.log_file(&id(), PLENTY).unwrap());
    assert_eq!(std::fs::read(path).unwrap(), good);
}
