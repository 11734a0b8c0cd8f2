//! Times as people say them: `5 minutes ago`, `in 2 hours`.

use hotcell_domain::parse_rfc3339;

/// Units by size, in seconds.
const UNITS: [(u64, &str); 5] = [
    (604_800, "week"),
    (86_400, "day"),
    (3600, "hour"),
    (60, "minute"),
    (1, "second"),
];

/// A time of the protocol, seen from now; `None` if it is no time.
pub(super) fn relative(time: &str, now_unix_ms: u64) -> Option<String> {
    let at_ms = parse_rfc3339(time)?;
    let distance_s = at_ms.abs_diff(now_unix_ms) / 1000;
    let Some((size, unit)) = UNITS.iter().find(|(size, _)| distance_s >= *size) else {
        return Some("now".to_owned());
    };
    let count = distance_s / size;
    let plural = if count == 1 { "" } else { "s" };
    Some(if at_ms < now_unix_ms {
        format!("{count} {unit}{plural} ago")
    } else {
        format!("in {count} {unit}{plural}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotcell_domain::rfc3339;

    const NOW_MS: u64 = 1_800_000_000_000;

    #[test]
    fn a_time_is_told_in_its_largest_unit() {
        let said = |at_ms: u64| relative(&rfc3339(at_ms), NOW_MS).expect("a time");
        assert_eq!(said(NOW_MS - 999), "now");
        assert_eq!(said(NOW_MS - 1000), "1 second ago");
        assert_eq!(said(NOW_MS - 3_599_000), "59 minutes ago");
        assert_eq!(said(NOW_MS + 7_200_000), "in 2 hours");
        assert_eq!(said(NOW_MS - 86_400_000 * 20), "2 weeks ago");
        assert_eq!(relative("soon", NOW_MS), None);
    }
}
