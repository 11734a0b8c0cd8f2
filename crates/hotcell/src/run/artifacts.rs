//! Saves what the command left in `/workspace/artifacts`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use hotcell_service::{FileInfo, FileKind, FilePath, List, ServiceError};

use super::container::RunContainer;
use crate::artifacts::{ArtifactDirectory, FILE_BYTES_MAX, FILES_MAX};
use crate::terminal::plain;

const DIRECTORY: &[u8] = b"artifacts";

/// Entries that are looked at; some of them are no files.
const ENTRIES_MAX: u32 = 1000;

/// Saves the files to `directory` and returns where they are. One that cannot be saved is told of,
/// and does not change how the command ended.
pub(super) async fn save(container: &RunContainer, directory: &Path) -> Result<Vec<PathBuf>> {
    let files = list(container).await?;
    let directory = ArtifactDirectory::new(directory);
    let mut saved = Vec::new();
    for file in files.iter().take(FILES_MAX) {
        let name = String::from_utf8_lossy(&file.path);
        match save_one(container, &directory, file, &name).await {
            Ok(path) => saved.push(path),
            Err(error) => {
                eprintln!(
                    "hotcell: {}",
                    plain(&format!("{name} is not saved: {error:#}"))
                );
            }
        }
    }
    if files.len() > FILES_MAX {
        let left = files.len() - FILES_MAX;
        eprintln!("hotcell: {left} more files in /workspace/artifacts are not saved");
    }
    Ok(saved)
}

async fn list(container: &RunContainer) -> Result<Vec<FileInfo>> {
    let path = FilePath::parse(DIRECTORY)?;
    let list = List {
        recursive: true,
        limit: ENTRIES_MAX,
        ..List::default()
    };
    let service = container.service();
    let listed = service.file_list(container.caller(), container.id(), &path, list);
    match listed.await {
        Ok(page) => {
            let mut files = page.entries;
            files.retain(|file| file.kind == FileKind::File);
            Ok(files)
        }
        // There is no such directory, it is none, or the container has ended.
        Err(ServiceError::NotFound { .. } | ServiceError::Invalid { .. }) => Ok(Vec::new()),
        Err(error) => {
            tracing::debug!(%error, "artifacts are not listed");
            Ok(Vec::new())
        }
    }
}

async fn save_one(
    container: &RunContainer,
    directory: &ArtifactDirectory,
    file: &FileInfo,
    name: &str,
) -> Result<PathBuf> {
    if file.size > FILE_BYTES_MAX {
        bail!(
            "it has {} bytes; {FILE_BYTES_MAX} are saved at most",
            file.size
        );
    }
    let path = FilePath::parse(&file.path)?;
    let service = container.service();
    let opened = service.file_read(container.caller(), container.id(), &path, 0, None);
    let (_, mut reader) = opened.await?;
    let mut saved = directory.create(name)?;
    while let Some(piece) = reader.next().await? {
        saved.write(&piece)?;
    }
    Ok(saved.complete())
}
