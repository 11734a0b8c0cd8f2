//! A Debian package: an `ar` archive of three files. It is written here, because `dpkg-deb` is only
//! to be had on Debian, and the format is smaller than its command line.

use anyhow::Result;

use super::contents::{self, Entry, read};
use super::{Product, Release, archive};

/// Who answers for the package, as Debian asks.
const MAINTAINER: &str = "Hotcell <hotcell@localhost>";

/// The configuration, which `dpkg` keeps when a person has edited it.
const CONFIGURATION: &str = "etc/hotcell/hotcell.toml";

/// The package `hotcell_VERSION_amd64.deb`.
pub(super) fn package(release: &Release) -> Result<Product> {
    let mut entries = contents::entries(release)?;
    let configuration = read(&release.source, "packaging/debian/hotcell.toml")?;
    entries.push(Entry {
        path: CONFIGURATION.to_owned(),
        mode: 0o644,
        bytes: configuration,
    });
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let data = archive::gzip(&archive::tar(&entries, release.epoch_s)?)?;
    let control = archive::gzip(&archive::tar(
        &control(release, &entries)?,
        release.epoch_s,
    )?)?;
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, member) in [
        ("debian-binary", &b"2.0\n"[..]),
        ("control.tar.gz", &control),
        ("data.tar.gz", &data),
    ] {
        add(&mut bytes, name, release.epoch_s, member);
    }
    Ok(Product {
        name: format!("hotcell_{}_amd64.deb", release.version),
        bytes,
    })
}

/// What `dpkg` reads before it unpacks.
fn control(release: &Release, entries: &[Entry]) -> Result<Vec<Entry>> {
    let size_kib: usize = entries
        .iter()
        .map(|entry| entry.bytes.len().div_ceil(1024))
        .sum();
    let control = format!(
        "Package: hotcell\nVersion: {}\nArchitecture: amd64\nMaintainer: {MAINTAINER}\nInstalled-Size: {size_kib}\n\
         Depends: passwd\nRecommends: uidmap\nSuggests: docker.io | podman\nSection: admin\nPriority: optional\n\
         Description: sealed Linux containers for AI agents, over MCP\n \
         One static program that speaks the Model Context Protocol and gives agents\n \
         containers to work in, from namespaces, cgroups and seccomp, without a daemon.\n",
        release.version
    );
    let data = |path: &str, bytes: Vec<u8>| Entry {
        path: path.to_owned(),
        mode: 0o644,
        bytes,
    };
    let mut files = vec![
        data("conffiles", format!("/{CONFIGURATION}\n").into_bytes()),
        data("control", control.into_bytes()),
    ];
    for script in ["postinst", "postrm", "prerm"] {
        let bytes = read(&release.source, &format!("packaging/debian/{script}"))?;
        files.push(Entry {
            path: script.to_owned(),
            mode: 0o755,
            bytes,
        });
    }
    Ok(files)
}

/// Adds a member to an `ar` archive. Members begin at even positions.
fn add(archive: &mut Vec<u8>, name: &str, epoch_s: u64, member: &[u8]) {
    let header = format!(
        "{name:<16}{epoch_s:<12}{:<6}{:<6}{:<8}{:<10}`\n",
        0,
        0,
        "100644",
        member.len()
    );
    archive.extend(header.as_bytes());
    archive.extend(member);
    if member.len() % 2 == 1 {
        archive.push(b'\n');
    }
}
