//! Recognizes secrets by their form.

/// Prefixes of known kinds of secrets, and their minimum length.
const BEGINNINGS: [(&str, usize); 49] = [
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("gldt-", 20),
    ("glrt-", 20),
    ("xoxb-", 15),
    ("xoxp-", 15),
    ("xoxa-", 15),
    ("xoxr-", 15),
    ("xoxs-", 15),
    ("xapp-", 15),
    ("xoxe-", 15),
    ("xoxe.", 15),
    ("sk-", 20),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("rk_test_", 16),
    ("whsec_", 16),
    ("AIza", 35),
    ("ya29.", 20),
    ("GOCSPX-", 20),
    ("npm_", 30),
    ("pypi-AgE", 20),
    ("dckr_pat_", 20),
    ("hf_", 30),
    ("SG.", 30),
    ("shpat_", 20),
    ("dop_v1_", 20),
    ("glsa_", 20),
    ("hvs.", 20),
    ("hvb.", 20),
    ("AGE-SECRET-KEY-1", 30),
    ("age-secret-key-1", 30),
    ("tskey-", 20),
    ("lin_api_", 20),
    ("nvapi-", 20),
    ("gsk_", 30),
    ("r8_", 30),
    ("pplx-", 30),
    ("xai-", 30),
    ("figd_", 20),
    ("PMAK-", 20),
    ("hc_", 30),
    ("hct_", 20),
];

/// Identifiers of AWS keys: four letters, then sixteen upper-case letters and digits.
const AWS: [&str; 7] = ["AKIA", "ASIA", "AGPA", "AIDA", "AROA", "ANPA", "ABIA"];

/// Whether a run of letters, digits, `_`, `-` and `.` is a secret.
pub(super) fn is_secret(run: &str) -> bool {
    let known = BEGINNINGS.iter();
    let begins = known
        .into_iter()
        .any(|(start, length)| run.len() >= *length && run.starts_with(start));
    begins || is_aws_id(run) || is_jwt(run)
}

fn is_aws_id(run: &str) -> bool {
    let is_upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    run.len() == 20 && AWS.iter().any(|start| run.starts_with(start)) && run.bytes().all(is_upper)
}

/// A header that begins `{"`, and a body; the signature may be empty.
fn is_jwt(run: &str) -> bool {
    let mut parts = run.split('.');
    let header = parts.next().unwrap_or_default();
    let body = parts.next().unwrap_or_default();
    header.starts_with("eyJ") && header.len() >= 10 && body.len() >= 8
}

/// Whether a byte can be part of such a run.
pub(super) fn is_run(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}
