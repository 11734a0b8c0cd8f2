//! A root filesystem made of the host's own programs and libraries, read-only.
//!
//! It has `/usr` and what belongs to it, and a synthetic `/etc` with only those host files that
//! programs need to run: no accounts, no secrets, no service configuration.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::attr;
use super::builder::{Builder, InvalidSpec, Kind, c_path, kind_of};
use crate::spec::{LaunchSpec, USER_ID};

const SHOWN: u64 = attr::RDONLY | attr::NOSUID | attr::NODEV;

/// Top-level directories with the system's programs: links into `/usr` on most hosts, real
/// directories on others.
const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Empty directories that programs expect to find.
const EMPTY: [(&CStr, u32); 7] = [
    (c"home", 0o755),
    (c"mnt", 0o755),
    (c"opt", 0o755),
    (c"root", 0o700),
    (c"run", 0o755),
    (c"srv", 0o755),
    (c"var", 0o755),
];

/// Files of the host's `/etc` that are shown, where they exist. Of a language's settings, those
/// that come with its package and that it does not run without; files for the operator's own
/// settings (`Renviron.site`, `php.ini`) may contain secrets, and are not shown.
const ETC: [&str; 22] = [
    "R/Makeconf",
    "R/Renviron",
    "R/javaconf",
    "R/ldpaths",
    "R/repositories",
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "matplotlibrc",
    "mime.types",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
];

/// Debian's keys for its packages, by the names that they have had.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
];

/// Directories of settings, about whose absence apt complains.
const APT_DIRECTORIES: [&CStr; 4] = [
    c"etc/apt",
    c"etc/apt/apt.conf.d",
    c"etc/apt/preferences.d",
    c"etc/apt/sources.list.d",
];

/// Subdirectories of `/etc` that contain some of the above.
const ETC_PARENTS: [(&str, &CStr); 5] = [
    ("R", c"etc/R"),
    ("pki", c"etc/pki"),
    ("pki/ca-trust", c"etc/pki/ca-trust"),
    ("pki/tls", c"etc/pki/tls"),
    ("ssl", c"etc/ssl"),
];

impl Builder {
    /// Builds the root in the current directory.
    pub(super) fn host_root(&mut self, spec: &LaunchSpec) -> Result<(), InvalidSpec> {
        for name in SYSTEM {
            self.show(Path::new("/"), name, "")?;
        }
        for (path, mode) in EMPTY {
            self.mkdir(path, mode);
        }
        self.symlink(c"var/tmp", c"../tmp");
        self.symlink(c"var/run", c"../run");
        for path in [c"dev", c"proc", c"sys", c"tmp", c"workspace"] {
            self.mkdir(path, 0o755);
        }
        self.etc(spec)
    }

    fn etc(&mut self, spec: &LaunchSpec) -> Result<(), InvalidSpec> {
        self.mkdir(c"etc", 0o755);
        for (path, contents) in synthetic(&spec.name) {
            self.file(path, contents);
        }
        for (name, path) in ETC_PARENTS {
            if kind_of(&Path::new("/etc").join(name)) == Some(Kind::Directory) {
                self.mkdir(path, 0o755);
            }
        }
        for name in ETC {
            self.show(Path::new("/etc"), name, "etc/")?;
        }
        for name in java_directories() {
            self.show(Path::new("/etc"), &name, "etc/")?;
        }
        self.apt();
        self.php()
    }

    /// On Debian, where packages come from. The host's own list may contain credentials, and is not
    /// shown.
    fn apt(&mut self) {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let keyring = KEYRINGS.into_iter().find(|path| Path::new(path).exists());
        let codename = codename(&release).filter(|_| Path::new("/usr/bin/apt-get").exists());
        let Some((keyring, codename)) = keyring.zip(codename) else {
            return;
        };
        for path in APT_DIRECTORIES {
            self.mkdir(path, 0o755);
        }
        self.file(
            c"etc/apt/sources.list.d/debian.sources",
            sources(codename, keyring),
        );
    }

    /// Shows which extensions each PHP has, and how they are loaded.
    fn php(&mut self) -> Result<(), InvalidSpec> {
        let versions = php_versions();
        if !versions.is_empty() {
            self.mkdir(c"etc/php", 0o755);
        }
        for version in versions {
            for parent in [
                format!("etc/php/{version}"),
                format!("etc/php/{version}/cli"),
            ] {
                self.mkdir(&c_path(parent)?, 0o755);
            }
            for shown in ["mods-available", "cli/conf.d"] {
                let name = format!("php/{version}/{shown}");
                self.show(Path::new("/etc"), &name, "etc/")?;
            }
        }
        Ok(())
    }

    /// Shows the host's `parent/name` under the same name: as a link if it is a link into `/usr`,
    /// else as a read-only mount. Skips it if it does not exist.
    fn show(&mut self, parent: &Path, name: &str, prefix: &str) -> Result<(), InvalidSpec> {
        let source = parent.join(name);
        let at = c_path(format!("{prefix}{name}"))?;
        let Some(kind) = kind_of(&source) else {
            return Ok(());
        };
        if let Some(target) = link_into_usr(&source) {
            self.symlink(&at, &c_path(target)?);
            return Ok(());
        }
        match kind {
            Kind::Directory => self.mkdir(&at, 0o755),
            Kind::File => self.file(&at, Vec::new()),
        }
        let slot_name = if prefix.is_empty() {
            "show the host's programs"
        } else {
            "show the host's files"
        };
        self.bind(slot_name, c_path(source)?, at, SHOWN);
        Ok(())
    }
}

/// The name of the release, if it is one of Debian.
fn codename(release: &str) -> Option<&str> {
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key));
        line.map(|value| value.trim_matches('"'))
    };
    let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase());
    (value("ID=") == Some("debian")).then_some(())?;
    value("VERSION_CODENAME=").filter(is_name)
}

/// The sources that Debian's installer writes.
fn sources(codename: &str, keyring: &str) -> String {
    format!(
        "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: {codename} {codename}-updates\n\
         Components: main\nSigned-By: {keyring}\n\n\
         Types: deb\nURIs: http://deb.debian.org/debian-security\nSuites: {codename}-security\n\
         Components: main\nSigned-By: {keyring}\n"
    )
}

/// The target of a link that leads into `/usr`.
fn link_into_usr(path: &Path) -> Option<PathBuf> {
    fs::symlink_metadata(path)
        .ok()?
        .is_symlink()
        .then_some(())?;
    let target = fs::canonicalize(path).ok()?;
    target.starts_with("/usr").then_some(target)
}

/// Debian keeps parts of each Java installation in `/etc`; without them it does not start.
fn java_directories() -> Vec<String> {
    const DIRECTORIES_MAX: usize = 8;
    let entries = fs::read_dir("/etc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("java"))
        .take(DIRECTORIES_MAX)
        .collect()
}

/// Debian has a directory for each version of PHP.
fn php_versions() -> Vec<String> {
    const VERSIONS_MAX: usize = 4;
    let is_version = |name: &String| {
        name.bytes()
            .all(|byte| byte == b'.' || byte.is_ascii_digit())
    };
    let entries = fs::read_dir("/etc/php").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(is_version)
        .take(VERSIONS_MAX)
        .collect()
}

fn synthetic(name: &str) -> Vec<(&'static CStr, String)> {
    let passwd = format!(
        "root:x:0:0:root:/root:/bin/sh\n\
         user:x:{USER_ID}:{USER_ID}:user:/workspace:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    let group = format!("root:x:0:\ntty:x:5:\nuser:x:{USER_ID}:\nnogroup:x:65534:\n");
    let hosts = format!("127.0.0.1 localhost {name}\n::1 localhost ip6-localhost ip6-loopback\n");
    let nsswitch = "passwd: files\ngroup: files\nhosts: files dns\n\
                    networks: files\nprotocols: files\nservices: files\n";
    vec![
        (c"etc/passwd", passwd),
        (c"etc/group", group),
        (c"etc/hosts", hosts),
        (c"etc/hostname", format!("{name}\n")),
        (c"etc/nsswitch.conf", nsswitch.to_owned()),
        (c"etc/resolv.conf", String::new()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_release_of_debian_has_sources() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        assert_eq!(codename(debian), Some("bookworm"));
        let quoted = "ID=\"debian\"\nVERSION_CODENAME=\"trixie\"\n";
        assert_eq!(codename(quoted), Some("trixie"));
        for text in [
            "",
            "ID=debian\n",
            "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n",
            "ID=debian\nVERSION_CODENAME=x y\n",
        ] {
            assert_eq!(codename(text), None, "{text}");
        }
    }
}
