//! `cargo xtask dist`: what people install. An archive, a Debian package, an OCI image, checksums and
//! a bill of materials.
//!
//! The same program and the same commit give the same bytes: entries are sorted, belong to root,
//! and bear the time of the commit; nothing of this host is written.

mod archive;
mod contents;
mod deb;
mod oci;
mod push;
mod sbom;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::workspace;

/// What is built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The name of the file of checksums.
const CHECKSUMS: &str = "SHA256SUMS";

/// What goes into a release.
pub(crate) struct Release {
    pub(crate) version: String,
    /// The time of every entry, in seconds since 1970.
    pub(crate) epoch_s: u64,
    /// The program.
    pub(crate) binary: Vec<u8>,
    /// The root of the source, with documents and units.
    pub(crate) source: PathBuf,
}

/// A file of the release.
pub(crate) struct Product {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// `dist [--binary PATH] [--out DIRECTORY] [--push HOST:PORT/NAME]`: builds the program if none is given. The image is also
/// pushed to a registry that is asked without TLS, as one on loopback is.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (mut binary, mut out, mut to) = (None, workspace::target().join("dist"), None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--binary" => binary = Some(PathBuf::from(value?)),
            "--out" => out = PathBuf::from(value?),
            "--push" => to = Some(value?.clone()),
            _ => bail!("dist [--binary PATH] [--out DIRECTORY] [--push HOST:PORT/NAME]"),
        }
    }
    let binary = binary.map_or_else(build, Ok)?;
    let release = release(&binary)?;
    let sbom = sbom::write(&crate::tidy::metadata()?, &release)?;
    let products = products(&release, sbom)?;
    save(&products, &out)?;
    for product in &products {
        eprintln!(
            "{} ({} KiB)",
            out.join(&product.name).display(),
            product.bytes.len() >> 10
        );
    }
    if let Some(name) = to {
        let layout = products
            .iter()
            .find(|product| product.name.ends_with("-oci.tar"));
        push::push(
            &layout.context("there is no image")?.bytes,
            &name,
            &release.version,
        )?;
    }
    Ok(())
}

/// The Debian package with this program, for those who try it.
pub(crate) fn debian_package(binary: &Path) -> Result<Vec<u8>> {
    Ok(deb::package(&release(binary)?)?.bytes)
}

fn release(binary: &Path) -> Result<Release> {
    Ok(Release {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch_s: epoch_s()?,
        binary: std::fs::read(binary).with_context(|| format!("read {}", binary.display()))?,
        source: workspace::root(),
    })
}

/// Everything but what is read from Cargo, which the caller hands in.
fn products(release: &Release, sbom: Product) -> Result<Vec<Product>> {
    let mut products = vec![
        archive::release(release)?,
        deb::package(release)?,
        oci::layout(release)?,
        sbom,
    ];
    products.sort_by(|one, other| one.name.cmp(&other.name));
    let line = |product: &Product| {
        format!(
            "{}  {}\n",
            hex(&Sha256::digest(&product.bytes)),
            product.name
        )
    };
    let sums: String = products.iter().map(line).collect::<Vec<_>>().concat();
    products.push(Product {
        name: CHECKSUMS.to_owned(),
        bytes: sums.into_bytes(),
    });
    Ok(products)
}

fn save(products: &[Product], out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
    for Product { name, bytes } in products {
        std::fs::write(out.join(name), bytes).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}

/// Builds the static program that ships.
fn build() -> Result<PathBuf> {
    let root = workspace::root();
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    // Paths of this host do not stand in the program: they would make two builds differ.
    let flags = format!(
        "-C target-feature=+crt-static --remap-path-prefix={}=/hotcell --remap-path-prefix={}=/cargo",
        root.display(),
        home.context("find Cargo's home")?
    );
    let status = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "hotcell",
            "--target",
            TARGET,
        ])
        .env("RUSTFLAGS", flags)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .current_dir(&root)
        .status()
        .context("run cargo")?;
    ensure!(status.success(), "hotcell does not build");
    Ok(workspace::target().join(TARGET).join("release/hotcell"))
}

/// `SOURCE_DATE_EPOCH`, else the time of the commit; 0 in an archive without a repository.
fn epoch_s() -> Result<u64> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return epoch
            .trim()
            .parse()
            .context("SOURCE_DATE_EPOCH is not a number of seconds");
    }
    let asked = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(workspace::root())
        .output();
    let told = asked.ok().filter(|output| output.status.success());
    let told = told.and_then(|output| String::from_utf8(output.stdout).ok());
    Ok(told.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat()
}
