//! Archives that we send to the engine: a few entries, made in memory.

use std::io;

use tar::{Builder, EntryType, Header};

/// Who owns a container's workspace.
pub(super) const USER_ID: u64 = 1000;

/// Everybody may read and run it, nobody may change it.
const PROGRAM_MODE: u32 = 0o555;

/// The owner may change it, everybody else may look.
const WORKSPACE_MODE: u32 = 0o755;

/// Gives the directory into which it is unpacked to the container's user.
///
/// Its one entry is called `/`: engines take that for the directory itself, while they
/// skip one that is called `.`.
pub(super) fn ownership() -> io::Result<Vec<u8>> {
    let mut header = header(EntryType::Directory, WORKSPACE_MODE, USER_ID, 0);
    header.as_old_mut().name[0] = b'/';
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, io::empty())?;
    builder.into_inner()
}

/// Files of root's that everybody may read and run, in this order.
pub(super) fn files(files: &[(&str, &[u8])]) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (name, content) in files {
        let size = content.len() as u64;
        let mut entry = header(EntryType::Regular, PROGRAM_MODE, 0, size);
        builder.append_data(&mut entry, name, *content)?;
    }
    builder.into_inner()
}

fn header(kind: EntryType, mode: u32, owner: u64, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(owner);
    header.set_gid(owner);
    header.set_size(size);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    header.set_mtime(now.map_or(0, |now| now.as_secs()));
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_given_away_by_one_entry_called_slash() {
        let bytes = ownership().expect("memory is enough");
        let mut archive = tar::Archive::new(&bytes[..]);
        let entries: Vec<_> = archive.entries().expect("entries").collect();
        let [Ok(entry)] = &entries[..] else {
            panic!("{}", entries.len());
        };
        assert_eq!(&*entry.path_bytes(), b"/");
        assert_eq!(entry.header().uid().expect("a uid"), USER_ID);
    }

    #[test]
    fn files_keep_their_order() {
        let bytes = files(&[("prog", b"content"), ("mark", b"")]).expect("memory is enough");
        let mut archive = tar::Archive::new(&bytes[..]);
        let names: Vec<_> = archive
            .entries()
            .expect("entries")
            .map(|entry| entry.expect("an entry").path_bytes().into_owned())
            .collect();
        assert_eq!(names, [b"prog".to_vec(), b"mark".to_vec()]);
    }
}
