//! Archives that we send to the engine: a few entries, built in memory.

use std::io;

use hotcell_domain::Profile;
use tar::{Builder, EntryType, Header};

/// The owner of a container's workspace.
pub(super) const USER_ID: u64 = Profile::USER_ID as u64;

/// Readable and executable for everybody, writable for nobody.
const PROGRAM_MODE: u32 = 0o555;

/// Writable for the owner, readable for everybody.
const WORKSPACE_MODE: u32 = 0o755;

/// An archive that makes the container's user the owner of the directory it is unpacked into.
///
/// Its one entry is called `/`: engines apply that to the directory itself, and skip an entry
/// called `.`.
pub(super) fn ownership() -> io::Result<Vec<u8>> {
    let mut header = header(EntryType::Directory, WORKSPACE_MODE, USER_ID, 0);
    header.as_old_mut().name[0] = b'/';
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, io::empty())?;
    builder.into_inner()
}

/// Files of root that everybody can read and execute, in this order.
pub(super) fn files(files: &[(&str, &[u8])]) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (name, content) in files {
        let size = content.len() as u64;
        let mut entry = header(EntryType::Regular, PROGRAM_MODE, 0, size);
        builder.append_data(&mut entry, name, *content)?;
    }
    builder.into_inner()
}

/// Whether an archive holds exactly one regular file, with this content.
pub(super) fn is_one_file(archive: &[u8], content: &[u8]) -> bool {
    let mut archive = tar::Archive::new(archive);
    let Ok(mut entries) = archive.entries() else {
        return false;
    };
    let is_it = |entry: io::Result<tar::Entry<'_, _>>| -> io::Result<bool> {
        let mut entry = entry?;
        if entry.header().entry_type() != EntryType::Regular || entry.size() != content.len() as u64
        {
            return Ok(false);
        }
        let mut found = Vec::with_capacity(content.len());
        io::Read::read_to_end(&mut entry, &mut found)?;
        Ok(found == content)
    };
    let first = entries
        .next()
        .is_some_and(|entry| is_it(entry).unwrap_or(false));
    first && entries.next().is_none()
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
    fn a_file_is_known_by_all_its_bytes() {
        let one = |content: &[u8]| files(&[("agent", content)]).expect("memory is enough");
        assert!(is_one_file(&one(b"agent"), b"agent"));
        assert!(!is_one_file(&one(b"agenT"), b"agent"));
        assert!(!is_one_file(&one(b"agent and more"), b"agent"));
        assert!(!is_one_file(&one(b"agent")[..512], b"agent"));
        assert!(!is_one_file(b"", b"agent"));
        assert!(!is_one_file(b"no archive at all", b"agent"));
        let two = files(&[("agent", b"agent"), ("agent", b"other")]);
        assert!(!is_one_file(&two.expect("memory is enough"), b"agent"));
    }

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
