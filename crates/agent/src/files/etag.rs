//! The one etag formula, for read, write, stat, list and batch.

use rustix::fs::Stat;

use super::info::nanoseconds;

/// Sixteen hex digits over inode, size, modification time and change time.
///
/// Content is not read, so an etag costs no more than a stat. The inode reveals a replaced file
/// (our own writes always replace); the size and both times reveal a file that was changed in
/// place. Unlike the modification time, a process cannot set the change time back. Known limit:
/// before Linux 6.13, two in-place changes of the same size within one timer tick (1 to 10 ms) have
/// the same etag. It also changes with the mode or the link count.
pub(super) fn etag(stat: &Stat) -> String {
    let parts = [
        stat.st_ino,
        stat.st_size.cast_unsigned(),
        nanoseconds(stat.st_mtime, stat.st_mtime_nsec).cast_unsigned(),
        nanoseconds(stat.st_ctime, stat.st_ctime_nsec).cast_unsigned(),
    ];
    let mixed = parts
        .into_iter()
        .fold(0, |state, part| scramble(state ^ part));
    format!("{mixed:016x}")
}

/// Mixes every bit into the whole word. A bijection, so that two values of one field never collide
/// while the other fields are equal.
fn scramble(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
