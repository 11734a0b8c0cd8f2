//! The one etag formula, for read, write, stat, list and batch.

use rustix::fs::Stat;

use super::info::nanoseconds;

/// Sixteen hex digits over inode, size, modification time and change time.
///
/// Content is not read, so an etag costs no more than a stat. The inode catches a
/// file that was replaced (our own writes always replace), the size and both times
/// one that was changed in place; the change time cannot be set back by a process
/// as the modification time can. The limit is the kernel's clock: before Linux 6.13
/// two changes of the same size in place within one timer tick (1 to 10 ms) have the
/// same etag. It also changes when only the mode or the link count does.
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

/// Spreads every bit over the whole word: a bijection, so that no two values of one
/// field can collide while the others stay.
fn scramble(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
