//! The end of a command that leaves nothing behind: its source goes, and its files are reported.

use std::collections::HashMap;
use std::time::Duration;

use hotcell_agent_api::bounds::LIST_ENTRIES_MAX;
use hotcell_agent_api::v1::{self, Changes, DeleteRequest, FileInfo, FileType, ListRequest};
use tokio::time::timeout;

use super::Files;
use super::error::Error;
use super::list::Listing;
use super::path::RelPath;

/// How long each listing may take. A directory that takes longer is reported as incomplete: a
/// process that fills it must not delay the end of its exec for ever.
const LISTING_TIME_MAX: Duration = Duration::from_secs(5);

/// A valid request, before its exec starts.
#[derive(Debug)]
pub(super) struct Cleanup {
    remove: Option<DeleteRequest>,
    report: Option<ListRequest>,
}

/// A cleanup whose exec runs.
#[derive(Debug)]
pub struct PendingCleanup {
    files: Files,
    asked: Cleanup,
    before: Listed,
}

/// Regular files by path, with their etags.
#[derive(Debug, Default)]
struct Listed {
    files: Vec<FileInfo>,
    has_more: bool,
}

impl Cleanup {
    /// Checks the paths. `root` is the directory that absolute paths must start with.
    pub(super) fn parse(asked: v1::Cleanup, root: &[u8]) -> Result<Self, Error> {
        let remove = (!asked.remove.is_empty()).then_some(DeleteRequest {
            path: asked.remove,
            ..DeleteRequest::default()
        });
        let report = (!asked.report.is_empty()).then_some(ListRequest {
            path: asked.report,
            recursive: true,
            limit: LIST_ENTRIES_MAX,
            ..ListRequest::default()
        });
        if let Some(remove) = &remove {
            RelPath::parse(&remove.path, root)?;
        }
        if let Some(report) = &report {
            Listing::parse(report, root)?;
        }
        Ok(Self { remove, report })
    }
}

impl Files {
    /// Notes what a command finds, before it starts.
    pub async fn begin_cleanup(&self, asked: v1::Cleanup) -> Result<PendingCleanup, Error> {
        let asked = Cleanup::parse(asked, &self.root_path)?;
        let before = self.regular_files(asked.report.as_ref()).await;
        Ok(PendingCleanup {
            files: self.clone(),
            asked,
            before,
        })
    }

    /// What is there at the moment; nothing if it cannot be listed. Whoever runs in the container
    /// may have put anything in the directory's place.
    async fn regular_files(&self, asked: Option<&ListRequest>) -> Listed {
        let Some(asked) = asked else {
            return Listed::default();
        };
        match timeout(LISTING_TIME_MAX, self.list(asked.clone())).await {
            Ok(Ok(mut page)) => {
                page.entries.retain(|file| file.r#type() == FileType::File);
                Listed {
                    files: page.entries,
                    has_more: !page.next_cursor.is_empty(),
                }
            }
            Ok(Err(_)) => Listed::default(),
            Err(_) => Listed {
                has_more: true,
                ..Listed::default()
            },
        }
    }
}

impl PendingCleanup {
    /// Removes the file and compares the directory, after the last process of the exec.
    pub async fn finish(self) -> Changes {
        if let Some(remove) = self.asked.remove {
            // The command may have removed it, or put something else there, which stays.
            let _ = self.files.delete(remove).await;
        }
        let now = self.files.regular_files(self.asked.report.as_ref()).await;
        let known = self.before.files.iter();
        let known: HashMap<_, _> = known.map(|file| (&file.path, &file.etag)).collect();
        let is_news = |file: &FileInfo| known.get(&file.path) != Some(&&file.etag);
        Changes {
            files: now.files.into_iter().filter(is_news).collect(),
            more: self.before.has_more || now.has_more,
        }
    }
}
