//! The host that containers reach, on loopback, and the configuration that lets them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

const PROGRAM: &str = include_str!("origin.py");

pub(super) const RAW: &str = "raw.example.com";
pub(super) const RAW_PORT: u16 = 7000;
const TLS: &str = "tls.example.com";

/// So that nothing is paced, and no budget is used up.
const UNLIMITED: &str = "limits = { rate = \"1t\", down = \"1t\", up = \"1t\" }";

/// Hosts of the policy that is large.
pub(super) const HOSTS: usize = 10_000;

/// A running origin; it is ended on drop, and its directory removed.
pub(super) struct Origin {
    process: Child,
    directory: PathBuf,
    raw: u16,
    tls: u16,
}

impl Origin {
    pub(super) fn start() -> Result<Self> {
        let name = format!("hotcell-bench-origin-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory)?;
        let program = directory.join("origin.py");
        std::fs::write(&program, PROGRAM)?;
        make_certificate(&directory)?;
        let mut process = Command::new("/usr/bin/python3")
            .arg(program)
            .args(["cert.pem", "key.pem"].map(|file| directory.join(file)))
            .stdout(Stdio::piped())
            .spawn()
            .context("start the origin with /usr/bin/python3")?;
        let mut ports = String::new();
        let stdout = process.stdout.take().context("its stdout is a pipe")?;
        BufReader::new(stdout).read_line(&mut ports)?;
        let (raw, tls) = ports.trim().split_once(' ').context("two ports")?;
        let (raw, tls) = (raw.parse()?, tls.parse()?);
        let this = Self {
            process,
            directory,
            raw,
            tls,
        };
        this.configure(0)?;
        Ok(this)
    }

    /// Writes the configuration, whose policy also allows so many other hosts.
    pub(super) fn configure(&self, others: usize) -> Result<()> {
        let (raw, tls) = (self.raw, self.tls);
        let others: Vec<String> = (0..others)
            .map(|number| format!("\"host-{number}.example.org\""))
            .collect();
        let rule = format!("[[egress.NAME.rule]]\nhost = \"{TLS}\"\naccess = \"read\"\n");
        let profile = |name: &str, more: &str| {
            let rule = rule.replace("NAME", name);
            format!("[egress.{name}]\nallow = [\"{RAW}:{RAW_PORT}\"]\n{more}\n{rule}")
        };
        let text = format!(
            "[egress]\nprofiles = [\"fast\", \"paced\", \"kept\"]\n\
             hosts = {{ \"{RAW}:{RAW_PORT}\" = \"127.0.0.1:{raw}\", \"{TLS}:443\" = \"127.0.0.1:{tls}\" }}\n\
             {}{}{}[egress.other]\nallow = [{}]\n",
            profile("fast", UNLIMITED),
            profile("paced", "limits = { down = \"1t\" }"),
            profile("kept", &format!("cache = true\n{UNLIMITED}")),
            others.join(", "),
        );
        Ok(std::fs::write(self.configuration(), text)?)
    }

    pub(super) fn configuration(&self) -> PathBuf {
        self.directory.join("hotcell.toml")
    }

    /// Its certificate, which is its own authority.
    pub(super) fn certificate(&self) -> PathBuf {
        self.directory.join("cert.pem")
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where things are for a program of this host.
    pub(super) fn places(&self) -> Value {
        json!({ "raw": ["127.0.0.1", self.raw], "tls": ["127.0.0.1", self.tls], "server_name": TLS })
    }

    /// Where things are for a program in a container.
    pub(super) fn places_inside() -> Value {
        json!({ "raw": [RAW, RAW_PORT], "tls": [TLS, 443], "server_name": TLS })
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn make_certificate(directory: &Path) -> Result<()> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=bench"])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-addext", &format!("subjectAltName=DNS:{TLS}")])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(directory.join("key.pem"))
        .arg("-out")
        .arg(directory.join("cert.pem"))
        .stderr(Stdio::null())
        .status()
        .context("make a certificate with openssl")?;
    ensure!(made.success(), "openssl: {made}");
    Ok(())
}
