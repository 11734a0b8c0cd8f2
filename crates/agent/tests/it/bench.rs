//! A root directory, an outside that must stay untouched, and short forms of requests.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hotcell_agent::files::Files;
use hotcell_agent_api::v1::precondition::Precondition as Asked;
use hotcell_agent_api::v1::*;
use tokio_stream::StreamExt;
use tonic::{Code, Status};

pub(crate) const CANARY: &[u8] = b"untouched outside";

/// A root beside a directory that must not be reachable. Dropping it fails the test if the outside
/// changed or a temporary file was left.
pub(crate) struct Bench {
    pub files: Files,
    pub root: PathBuf,
    pub outside: PathBuf,
    _dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::within(tempfile::tempdir().expect("a temporary directory"))
    }

    /// On tmpfs, if there is one: for tests of many steps.
    pub(crate) fn in_memory() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self::within(dir.expect("a temporary directory"))
    }

    fn within(dir: tempfile::TempDir) -> Self {
        let (root, outside) = (dir.path().join("workspace"), dir.path().join("outside"));
        fs::create_dir(&root).expect("a root");
        fs::create_dir(&outside).expect("an outside");
        fs::write(outside.join("canary"), CANARY).expect("a canary");
        let files = Files::open(&root).expect("files");
        Self {
            files,
            root,
            outside,
            _dir: dir,
        }
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let full = self.root.join(path);
        fs::create_dir_all(full.parent().expect("a parent")).expect("parents");
        fs::write(full, content).expect("a file");
    }

    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.root.join(path)).expect("a symlink");
    }

    pub(crate) fn get(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.root.join(path)).ok()
    }

    /// Every path with its content, mode and inode.
    pub(crate) fn snapshot(&self) -> Vec<(String, Option<Vec<u8>>, u32, u64)> {
        let describe = |path: String| {
            let meta = fs::symlink_metadata(self.root.join(&path)).expect("metadata");
            let content = self.get(&path);
            (path, content, meta.mode(), meta.ino())
        };
        self.tree().into_iter().map(describe).collect()
    }

    pub(crate) fn make_fifo(&self, path: &str) {
        let (full, fifo) = (self.root.join(path), rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(rustix::fs::CWD, full, fifo, 0o644.into(), 0).expect("a FIFO");
    }

    pub(crate) async fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Status> {
        self.read_part(path, 0, None).await
    }

    pub(crate) async fn read_part(
        &self,
        path: impl AsRef<[u8]>,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Vec<u8>, Status> {
        let path = path.as_ref().to_vec().into();
        let mut replies = self
            .files
            .read(ReadRequest {
                path,
                offset,
                limit,
            })
            .await?;
        let mut content = Vec::new();
        while let Some(reply) = replies.next().await {
            if let Some(read_reply::Reply::Data(data)) = reply?.reply {
                content.extend_from_slice(&data);
            }
        }
        Ok(content)
    }

    pub(crate) async fn write(
        &self,
        path: impl AsRef<[u8]>,
        content: &[u8],
    ) -> Result<FileInfo, Status> {
        self.write_as(header(path), content).await
    }

    pub(crate) async fn write_as(
        &self,
        header: WriteHeader,
        content: &[u8],
    ) -> Result<FileInfo, Status> {
        self.files
            .write(tokio_stream::iter(upload(header, content)))
            .await
    }

    pub(crate) async fn stat(
        &self,
        path: impl AsRef<[u8]>,
        follow: bool,
    ) -> Result<FileInfo, Status> {
        let path = path.as_ref().to_vec().into();
        self.files.stat(StatRequest { path, follow }).await
    }

    pub(crate) async fn delete(
        &self,
        path: impl AsRef<[u8]>,
        recursive: bool,
    ) -> Result<u64, Status> {
        let path = path.as_ref().to_vec().into();
        let request = DeleteRequest {
            path,
            recursive,
            precondition: None,
        };
        Ok(self.files.delete(request).await?.removed)
    }

    pub(crate) async fn list(&self, request: ListRequest) -> Result<Vec<Vec<u8>>, Status> {
        let page = self.files.list(request).await?;
        Ok(page
            .entries
            .iter()
            .map(|entry| entry.path.to_vec())
            .collect())
    }

    pub(crate) async fn export(&self, request: ExportRequest) -> Result<Vec<u8>, Status> {
        let mut replies = self.files.export(request).await?;
        let mut archive = Vec::new();
        while let Some(reply) = replies.next().await {
            archive.extend_from_slice(&reply?.data);
        }
        Ok(archive)
    }

    pub(crate) async fn import(&self, dest: &str, archive: &[u8]) -> Result<ImportReply, Status> {
        let header = ImportHeader {
            dest: dest.as_bytes().to_vec().into(),
            ..Default::default()
        };
        self.import_as(header, archive).await
    }

    pub(crate) async fn import_as(
        &self,
        header: ImportHeader,
        archive: &[u8],
    ) -> Result<ImportReply, Status> {
        let first = import_request::Request::Header(header);
        let data = archive
            .chunks(32 << 10)
            .map(|chunk| import_request::Request::Data(chunk.to_vec().into()));
        let requests: Vec<_> = std::iter::once(first)
            .chain(data)
            .map(|request| {
                Ok(ImportRequest {
                    request: Some(request),
                })
            })
            .collect();
        self.files.import(tokio_stream::iter(requests)).await
    }

    /// Every path beneath the root, in order.
    pub(crate) fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        collect(&self.root, &self.root, &mut found);
        found.sort();
        found
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let names: Vec<_> = fs::read_dir(&self.outside)
            .expect("the outside")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, ["canary"], "the outside has changed");
        assert_eq!(
            fs::read(self.outside.join("canary")).expect("the canary"),
            CANARY
        );
        let left: Vec<_> = self
            .tree()
            .into_iter()
            .filter(|path| path.contains(".hotcell-"))
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

pub(crate) fn header(path: impl AsRef<[u8]>) -> WriteHeader {
    WriteHeader {
        path: path.as_ref().to_vec().into(),
        ..Default::default()
    }
}

pub(crate) fn upload(header: WriteHeader, content: &[u8]) -> Vec<Result<WriteRequest, Status>> {
    let first = write_request::Request::Header(header);
    let data = content
        .chunks(32 << 10)
        .map(|chunk| write_request::Request::Data(chunk.to_vec().into()));
    let end = write_request::Request::End(true);
    std::iter::once(first)
        .chain(data)
        .chain([end])
        .map(|request| {
            Ok(WriteRequest {
                request: Some(request),
            })
        })
        .collect()
}

/// An upload without its end.
pub(crate) fn broken_off(header: WriteHeader, content: &[u8]) -> Vec<Result<WriteRequest, Status>> {
    let mut requests = upload(header, content);
    requests.pop();
    requests
}

#[expect(clippy::unnecessary_wraps, reason = "the field it is for is optional")]
pub(crate) fn if_match(etag: &str) -> Option<Precondition> {
    Some(Precondition {
        precondition: Some(Asked::IfMatch(etag.to_owned())),
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the field it is for is optional")]
pub(crate) fn if_absent() -> Option<Precondition> {
    Some(Precondition {
        precondition: Some(Asked::IfAbsent(true)),
    })
}

pub(crate) fn list(path: &str, recursive: bool) -> ListRequest {
    ListRequest {
        path: path.as_bytes().to_vec().into(),
        recursive,
        limit: 1000,
        ..Default::default()
    }
}

#[track_caller]
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Status>) -> Code {
    result.expect_err("it should have failed").code()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn collect(root: &Path, dir: &Path, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let relative = path
            .strip_prefix(root)
            .expect("beneath the root")
            .as_os_str();
        found.push(String::from_utf8_lossy(relative.as_bytes()).into_owned());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(root, &path, found);
        }
    }
}
