//! File descriptions (`FileInfo`).

use std::os::fd::AsFd;

use bytes::Bytes;
use hotcell_agent_api::v1::{FileInfo, FileType as Kind};
use rustix::fs::{FileType, Stat};

use super::error::{Error, Step};
use super::etag::etag;

/// Describes a file by its metadata; `target` is where a symlink points.
pub(super) fn describe(path: &[u8], stat: &Stat, target: Vec<u8>) -> FileInfo {
    FileInfo {
        path: Bytes::copy_from_slice(path),
        r#type: kind(stat).into(),
        size: size(stat),
        mode: stat.st_mode & 0o7777,
        mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        uid: stat.st_uid,
        gid: stat.st_gid,
        etag: etag(stat),
        target: target.into(),
    }
}

/// Describes an open file, which may be an `O_PATH` descriptor of a symlink.
pub(super) fn describe_open(path: &[u8], fd: impl AsFd) -> Result<FileInfo, Error> {
    let stat = rustix::fs::fstat(&fd).step("stat the file")?;
    let target = if is(&stat, FileType::Symlink) {
        read_link(fd, b"").step("read the symlink")?
    } else {
        Vec::new()
    };
    Ok(describe(path, &stat, target))
}

pub(super) fn read_link(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    rustix::fs::readlinkat(dir, name, Vec::new()).map(std::ffi::CString::into_bytes)
}

pub(super) fn is(stat: &Stat, wanted: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == wanted
}

pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Combines seconds and nanoseconds; saturates at the ends of the range.
pub(super) fn nanoseconds(seconds: i64, nanoseconds: u64) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::try_from(nanoseconds).unwrap_or(0))
}

fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Kind::Other,
    }
}
