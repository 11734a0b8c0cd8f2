//! Certificates that the agent has programs inside trust.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::path::Path;
use std::process::Command;

use hotcell_agent_api::bounds::AUTHORITY_BYTES_MAX;
use hotcell_agent_api::v1::{TrustReply, TrustRequest};
use tonic::{Code, Status};

use super::harness::Agent;

/// Below the root of the harness's agents.
const ROOT: &str = "/tmp";

const USUAL_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A directory that the agent can write to.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(ROOT).unwrap()
}

/// A certificate that nobody else has.
pub(crate) fn authority(directory: &Path) -> String {
    let path = directory.join("authority.pem");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=Test"])
        .arg("-keyout")
        .arg(directory.join("key.pem"))
        .arg("-out")
        .arg(&path)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    std::fs::read_to_string(path).unwrap()
}

pub(crate) async fn trust(
    agent: &Agent,
    authority: &str,
    directory: &Path,
) -> Result<TrustReply, Status> {
    let relative = directory.strip_prefix(ROOT).unwrap().to_str().unwrap();
    let request = TrustRequest {
        authority: authority.as_bytes().to_vec().into(),
        directory: format!("{relative}/new/trust").into_bytes().into(),
    };
    let reply = agent.client.clone().trust(request).await;
    reply.map(tonic::Response::into_inner)
}

pub(crate) fn read(path: &[u8]) -> Vec<u8> {
    std::fs::read(std::str::from_utf8(path).unwrap()).unwrap()
}

#[tokio::test]
async fn programs_inside_can_trust_the_images_certificates_and_the_authority() {
    let agent = Agent::start().await;
    let directory = directory();
    let authority = authority(directory.path());
    // Twice, as after a restart of the server.
    for _ in 0..2 {
        let reply = trust(&agent, &authority, directory.path()).await.unwrap();
        assert_eq!(read(&reply.authority), authority.as_bytes());
        let bundle = String::from_utf8(read(&reply.bundle)).unwrap();
        assert!(bundle.starts_with(&authority));
        let certificates = bundle.matches("BEGIN CERTIFICATE").count();
        let usual = std::fs::read_to_string(USUAL_BUNDLE).unwrap_or_default();
        assert_eq!(certificates, 1 + usual.matches("BEGIN CERTIFICATE").count());
        assert_eq!(java_entries(&reply.java_store), Some(certificates));
    }
}

/// The entries that Java finds in a store without a password; a machine without Java is asked for
/// the number that the store begins with.
fn java_entries(store: &[u8]) -> Option<usize> {
    let path = std::str::from_utf8(store).unwrap();
    let listed = Command::new("keytool")
        .args(["-list", "-J-Duser.language=en", "-keystore", path])
        .stdin(std::process::Stdio::null())
        .output();
    if let Ok(listed) = listed {
        let said = String::from_utf8_lossy(&listed.stdout);
        return Some(said.matches("trustedCertEntry").count());
    }
    let count = read(store)[8..12].try_into().ok()?;
    usize::try_from(u32::from_be_bytes(count)).ok()
}

#[tokio::test]
async fn what_is_no_authority_is_refused_and_leaves_nothing() {
    let agent = Agent::start().await;
    let directory = directory();
    let large = "x".repeat(AUTHORITY_BYTES_MAX + 1);
    for wrong in ["", "text", &large] {
        let refused = trust(&agent, wrong, directory.path()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    assert!(!directory.path().join("new").exists());
}

#[tokio::test]
async fn a_link_that_leads_out_of_the_root_is_not_followed() {
    let agent = Agent::start().await;
    let directory = directory();
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    std::os::unix::fs::symlink(outside.path(), directory.path().join("new")).unwrap();
    let authority = authority(directory.path());
    let refused = trust(&agent, &authority, directory.path()).await;
    assert!(refused.is_err());
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}
