//! Packing with a small program in place of ours.

use std::process::Command;

use serde_json::{Value, json};

use super::*;

fn release() -> Release {
    Release {
        version: "1.2.3".to_owned(),
        epoch_s: 1_700_000_000,
        binary: b"#!/bin/sh\necho hotcell 1.2.3\n".to_vec(),
        source: workspace::root(),
    }
}

fn metadata() -> Value {
    let package = |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
    let on = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
    let packages = [
        "hotcell",
        "hotcell-agent",
        "linked",
        "deeper",
        "tested",
        "of-agent",
    ]
    .map(package);
    json!({
        "packages": packages,
        "resolve": { "nodes": [
            { "id": "hotcell", "deps": [on("linked", Value::Null), on("tested", "dev".into())] },
            { "id": "hotcell-agent", "deps": [on("of-agent", Value::Null)] },
            { "id": "linked", "deps": [on("deeper", Value::Null)] },
            { "id": "deeper", "deps": [] }, { "id": "tested", "deps": [] }, { "id": "of-agent", "deps": [] },
        ] },
    })
}

fn packed() -> Vec<Product> {
    let release = release();
    let sbom = sbom::write(&metadata(), &release).expect("a bill of materials");
    products(&release, sbom).expect("products")
}

#[test]
fn packing_twice_gives_the_same_bytes() {
    let (one, other) = (packed(), packed());
    assert_eq!(one.len(), 5);
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(
            hex(&Sha256::digest(&one.bytes)),
            hex(&Sha256::digest(&other.bytes)),
            "{}",
            one.name
        );
    }
    let mut later = release();
    later.epoch_s += 1;
    let later = archive::release(&later).expect("an archive");
    assert!(
        one.iter().all(|product| product.bytes != later.bytes),
        "the time counts"
    );
}

#[test]
fn sha256sum_agrees_with_the_checksums() {
    let directory = tempfile::tempdir().expect("a directory");
    save(&packed(), directory.path()).expect("saved");
    let mut check = Command::new("sha256sum");
    check
        .args(["--check", "--strict", CHECKSUMS])
        .current_dir(directory.path());
    let output = check.output().expect("sha256sum runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn dpkg_reads_the_package_and_finds_the_program_the_units_and_the_pages() {
    let directory = tempfile::tempdir().expect("a directory");
    save(&packed(), directory.path()).expect("saved");
    let package = directory.path().join("hotcell_1.2.3_amd64.deb");
    let Ok(listed) = Command::new("dpkg-deb")
        .arg("--contents")
        .arg(&package)
        .output()
    else {
        // Not Debian: the other tests have seen the bytes.
        return;
    };
    assert!(
        listed.status.success(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let listed = String::from_utf8(listed.stdout).expect("text");
    for path in [
        "usr/bin/hotcell",
        "usr/lib/systemd/system/hotcell.service",
        "usr/lib/systemd/user/hotcell.service",
        "usr/share/man/man1/hotcell-serve.1.gz",
        "etc/hotcell/hotcell.toml",
    ] {
        assert!(
            listed
                .lines()
                .any(|line| line.ends_with(path) && line.contains(" 0/0 ")),
            "{path}\n{listed}"
        );
    }
    let control = Command::new("dpkg-deb")
        .arg("--field")
        .arg(&package)
        .output()
        .expect("dpkg-deb runs");
    assert!(String::from_utf8_lossy(&control.stdout).contains("Version: 1.2.3"));
}

#[test]
fn the_bill_of_materials_lists_what_is_linked_and_not_what_tests_use() {
    let sbom = sbom::write(&metadata(), &release()).expect("a bill of materials");
    let sbom: Value = serde_json::from_slice(&sbom.bytes).expect("JSON");
    let names: Vec<&str> = sbom["components"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["deeper", "hotcell-agent", "linked", "of-agent"]);
    assert_eq!(
        sbom["components"][0]["licenses"][0]["expression"],
        "MIT OR Apache-2.0"
    );
}

#[test]
fn each_blob_of_the_image_is_named_by_its_digest() {
    let layout = oci::layout(&release()).expect("an image");
    let mut archive = tar::Archive::new(&layout.bytes[..]);
    let mut blobs = 0;
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let path = entry
            .path()
            .expect("a path")
            .to_str()
            .expect("text")
            .to_owned();
        let Some(name) = path
            .strip_prefix("blobs/sha256/")
            .filter(|name| !name.is_empty())
        else {
            continue;
        };
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).expect("its bytes");
        assert_eq!(hex(&Sha256::digest(&bytes)), name);
        blobs += 1;
    }
    assert_eq!(blobs, 3);
}
