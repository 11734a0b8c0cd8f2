//! Requests and archives without a server, for the fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if something out of bounds gets through.

use std::path::Path;

use hotcell_agent_api::bounds::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use hotcell_agent_api::v1::{
    BatchRequest, CopyRequest, DeleteRequest, ExecStart, ImportHeader, ListRequest, MkdirRequest,
    MoveRequest, WriteHeader,
};
use prost::Message;
use tokio::sync::{Mutex, mpsc};

use super::batch::Batch;
use super::beneath::Beneath;
use super::blocking::Stop;
use super::cleanup::Cleanup;
use super::copy::Copy;
use super::glob::Glob;
use super::import::{Import, Piece};
use super::list::Listing;
use super::path::RelPath;
use super::relocate::{Delete, Mkdir, Move};
use super::write::Write;
use crate::exec::Start;

const ROOT: &[u8] = b"/workspace";

/// Parses the bytes as each kind of request.
pub fn requests(bytes: &[u8]) {
    path(bytes);
    decoded(bytes, |mut start: ExecStart| {
        drop(Start::parse(&start));
        drop(
            start
                .cleanup
                .take()
                .map(|asked| Cleanup::parse(asked, ROOT)),
        );
    });
    decoded(bytes, |request: ListRequest| {
        drop(Listing::parse(&request, ROOT));
    });
    decoded(bytes, |header: WriteHeader| {
        drop(Write::parse(&header, ROOT));
    });
    decoded(bytes, |request: DeleteRequest| {
        drop(Delete::parse(&request, ROOT));
    });
    decoded(bytes, |request: MoveRequest| {
        drop(Move::parse(&request, ROOT));
    });
    decoded(bytes, |request: CopyRequest| {
        drop(Copy::parse(&request, ROOT));
    });
    decoded(bytes, |request: MkdirRequest| {
        drop(Mkdir::parse(&request, ROOT));
    });
    decoded(bytes, |request: BatchRequest| {
        drop(Batch::parse(request, ROOT));
    });
    decoded(bytes, |header: ImportHeader| {
        drop(Import::parse(&header, ROOT));
    });
}

fn decoded<M: Message + Default>(bytes: &[u8], parse: impl FnOnce(M)) {
    if let Ok(message) = M::decode(bytes) {
        parse(message);
    }
}

fn path(bytes: &[u8]) {
    for parsed in [RelPath::parse(bytes, ROOT), RelPath::parse_inner(bytes)] {
        let Ok(path) = parsed else { continue };
        assert!(path.as_bytes().len() <= PATH_BYTES_MAX);
        assert!(!path.as_bytes().starts_with(b"/") && !path.as_bytes().contains(&0));
        for name in path.components() {
            assert!((1..=NAME_BYTES_MAX).contains(&name.len()) && name != b".");
        }
        if let Ok((dir, name)) = path.split() {
            assert_eq!(dir.child(name.as_bytes()), path);
            drop(dir.through(bytes));
        }
    }
    if let Ok(path) = RelPath::parse_inner(bytes) {
        assert!(path.components().all(|name| name != b".."));
    }
}

/// Parses the first line as a glob and matches the rest against it.
pub fn glob(bytes: &[u8]) {
    let (pattern, path) = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or((bytes, &b""[..]), |end| (&bytes[..end], &bytes[end + 1..]));
    let Ok(pattern) = std::str::from_utf8(pattern) else {
        return;
    };
    if let Ok(Some(glob)) = Glob::parse(pattern) {
        glob.matches(&path[..path.len().min(PATH_BYTES_MAX)]);
    }
}

/// Unpacks the bytes as an archive into `root`, within these bounds.
pub fn archive(bytes: &[u8], root: &Path, bytes_max: u64) {
    let header = ImportHeader {
        dest: "dest".into(),
        bytes_max,
        entries_max: 100,
    };
    let (Ok(import), Ok(root)) = (Import::parse(&header, ROOT), Beneath::open(root)) else {
        return;
    };
    let (sender, pieces) = mpsc::channel(2);
    for piece in [Piece::Data(bytes.to_vec().into()), Piece::End] {
        // The channel has room for both.
        let _ = sender.try_send(piece);
    }
    if let Ok(reply) = import.unpack(&root, pieces, &Mutex::new(()), &Stop::default()) {
        assert!(reply.bytes <= bytes_max && reply.entries <= 100);
    }
}
