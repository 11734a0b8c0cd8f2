//! Pushes the image to a registry, by the distribution protocol over plain HTTP: one on loopback, or behind a tunnel. Blobs first,
//! then the manifest, which makes the image appear.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The longest body of an answer that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Pushes an OCI layout as `HOST:PORT/NAME:TAG`.
pub(super) fn push(layout: &[u8], name: &str, tag: &str) -> Result<()> {
    let (host, repository) = name
        .split_once('/')
        .context("--push takes HOST:PORT/NAME")?;
    let files = files(layout)?;
    let read = |path: &str| {
        files
            .get(path)
            .with_context(|| format!("the image has no {path}"))
    };
    let index: Value = serde_json::from_slice(read("index.json")?)?;
    let digest = |descriptor: &Value| descriptor["digest"].as_str().unwrap_or_default().to_owned();
    let blob = |digest: &str| read(&format!("blobs/{}", digest.replace(':', "/")));
    let top = &index["manifests"][0];
    let bytes = blob(&digest(top))?;
    let manifest: Value = serde_json::from_slice(bytes)?;
    let layers = manifest["layers"].as_array().into_iter().flatten();
    for part in layers.chain([&manifest["config"]]) {
        let digest = digest(part);
        upload(host, repository, &digest, blob(&digest)?)?;
    }
    let kind = top["mediaType"].as_str().unwrap_or_default();
    let path = format!("/v2/{repository}/manifests/{tag}");
    ask(host, "PUT", &path, kind, bytes)?;
    eprintln!("pushed {name}:{tag} ({})", digest(top));
    Ok(())
}

/// Uploads a blob in one piece, to the place that the registry names.
fn upload(host: &str, repository: &str, digest: &str, bytes: &[u8]) -> Result<()> {
    let began = ask(
        host,
        "POST",
        &format!("/v2/{repository}/blobs/uploads/"),
        "",
        &[],
    )?;
    let place = began
        .get("location")
        .context("the registry names no place")?;
    let place = place.split_once("://").map_or(place.as_str(), |(_, rest)| {
        rest.find('/').map_or("/", |at| &rest[at..])
    });
    let sign = if place.contains('?') { '&' } else { '?' };
    let path = format!("{place}{sign}digest={digest}");
    ask(host, "PUT", &path, "application/octet-stream", bytes).map(drop)
}

/// Asks on a connection of its own; returns the headers of the answer, whose names are in lower case.
fn ask(
    host: &str,
    method: &str,
    path: &str,
    kind: &str,
    body: &[u8],
) -> Result<BTreeMap<String, String>> {
    let mut stream = TcpStream::connect(host).with_context(|| format!("connect to {host}"))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)?;
    let mut answer = BufReader::new(stream.take(ANSWER_BYTES_MAX));
    let mut status = String::new();
    answer.read_line(&mut status)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        answer.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut said = Vec::new();
    let is_good = status
        .split(' ')
        .nth(1)
        .is_some_and(|code| code.starts_with('2'));
    if !is_good {
        answer.read_to_end(&mut said)?;
    }
    ensure!(
        is_good,
        "{method} {path}: {} {}",
        status.trim(),
        String::from_utf8_lossy(&said)
    );
    Ok(headers)
}

/// The files of a tar archive.
fn files(layout: &[u8]) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(layout).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_str().context("an odd path")?.to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        found.insert(path, bytes);
    }
    Ok(found)
}
