//! How an exec ended, as JSON.

use hotcell_domain::{ExecEnd, ExecStatus, NotStarted, Usage};
use serde::{Deserialize, Serialize};

use crate::container::spec::{json, said};

#[derive(Serialize, Deserialize)]
struct StoredEnd {
    status: String,
    exit_code: Option<u8>,
    signal: Option<u8>,
    reason: Option<String>,
    not_started: Option<String>,
    usage: Option<StoredUsage>,
}

#[derive(Serialize, Deserialize)]
struct StoredUsage {
    wall_ms: u64,
    user_ms: u64,
    system_ms: u64,
    max_rss_bytes: u64,
    stdout_bytes: u64,
    stderr_bytes: u64,
}

pub(super) fn write(end: &ExecEnd) -> String {
    json(&StoredEnd {
        status: end.status.as_str().to_owned(),
        exit_code: end.exit_code,
        signal: end.signal,
        reason: end.reason.clone(),
        not_started: end.not_started.map(|cause| cause.as_str().to_owned()),
        usage: end.usage.map(|usage| StoredUsage {
            wall_ms: usage.wall_ms,
            user_ms: usage.user_ms,
            system_ms: usage.system_ms,
            max_rss_bytes: usage.max_rss_bytes,
            stdout_bytes: usage.stdout_bytes,
            stderr_bytes: usage.stderr_bytes,
        }),
    })
}

pub(super) fn read(text: &str) -> Result<ExecEnd, String> {
    let stored: StoredEnd = serde_json::from_str(text).map_err(said)?;
    let status = ExecStatus::parse(&stored.status).filter(|status| status.is_final());
    Ok(ExecEnd {
        status: status.ok_or("not a final status")?,
        exit_code: stored.exit_code,
        signal: stored.signal,
        reason: stored.reason,
        not_started: stored.not_started.as_deref().map(cause).transpose()?,
        usage: stored.usage.map(|usage| Usage {
            wall_ms: usage.wall_ms,
            user_ms: usage.user_ms,
            system_ms: usage.system_ms,
            max_rss_bytes: usage.max_rss_bytes,
            stdout_bytes: usage.stdout_bytes,
            stderr_bytes: usage.stderr_bytes,
        }),
    })
}

fn cause(word: &str) -> Result<NotStarted, &'static str> {
    NotStarted::parse(word).ok_or("not a cause of not starting")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_is_read_back() {
        for status in ExecStatus::ALL
            .into_iter()
            .filter(|status| status.is_final())
        {
            let full = ExecEnd {
                status,
                exit_code: Some(255),
                signal: Some(9),
                reason: Some("\"because\"".to_owned()),
                not_started: None,
                usage: Some(Usage {
                    wall_ms: 1,
                    user_ms: 2,
                    system_ms: 3,
                    max_rss_bytes: u64::MAX,
                    stdout_bytes: 5,
                    stderr_bytes: 6,
                }),
            };
            assert_eq!(read(&write(&full)), Ok(full.clone()));
            let bare = ExecEnd {
                exit_code: None,
                signal: None,
                reason: None,
                usage: None,
                ..full
            };
            assert_eq!(read(&write(&bare)), Ok(bare));
        }
    }

    #[test]
    fn why_it_was_not_started_is_read_back_and_may_be_missing() {
        let old =
            r#"{"status":"failed","exit_code":null,"signal":null,"reason":null,"usage":null}"#;
        let bare = read(old).unwrap();
        assert_eq!(bare.not_started, None);
        for cause in NotStarted::ALL {
            let end = ExecEnd {
                not_started: Some(cause),
                ..bare.clone()
            };
            assert_eq!(read(&write(&end)), Ok(end));
        }
    }

    #[test]
    fn what_is_no_end_is_not_read() {
        for text in [
            "",
            "{}",
            r#"{"status":"running"}"#,
            r#"{"status":"odd"}"#,
            r#"{"status":"failed","not_started":"odd"}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
