//! RFC 3339 in UTC.

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// Days of 400 years of the Gregorian calendar, after which it repeats.
const ERA_DAYS: u64 = 146_097;

/// Formats milliseconds since 1970 as `2026-07-28T12:34:56.789Z`.
pub fn rfc3339(unix_ms: u64) -> String {
    let (year, month, day) = date(unix_ms / DAY_MS);
    let ms = unix_ms % DAY_MS;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    let milli = ms % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Parses a time with any offset, such as `2026-07-28T14:34:56+02:00`; `None` if it is invalid or
/// before 1970.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let at = rest.rfind(['Z', 'z', '+', '-'])?;
    let (time, offset) = rest.split_at(at);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let is_real = (1..=12).contains(&month) && hour < 24 && minute < 60 && second <= 60;
    if !is_real || !(1970..=9999).contains(&year) {
        return None;
    }
    let days = days_until(year, month, day)?;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    let utc = i64::try_from(seconds).ok()? - offset_seconds(offset)?;
    Some(u64::try_from(utc).ok()? * 1000 + milliseconds(fraction)?)
}

/// Parses numbers of fixed widths between separators.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width)?;
        *number = part
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

/// Parses thousandths of a second; further digits are ignored.
fn milliseconds(fraction: &str) -> Option<u64> {
    let is_legal = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let padded: String = fraction.chars().chain("00".chars()).take(3).collect();
    is_legal.then(|| padded.parse().ok())?
}

fn offset_seconds(offset: &str) -> Option<i64> {
    let (sign, rest) = match offset.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(0),
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let [hours, minutes] = numbers(rest, ':', [2, 2])?;
    let seconds = i64::try_from((hours * 60 + minutes) * 60).ok()?;
    (hours < 24 && minutes < 60).then_some(sign * seconds)
}

/// Days from 1970-01-01 to a date, if the date exists.
fn days_until(year: u64, month: u64, day: u64) -> Option<u64> {
    let year_from_march = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let from_march = (month + 9) % 12;
    let day_of_year = (153 * from_march + 2) / 5 + day - u64::from(day > 0);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * ERA_DAYS + day_of_era).checked_sub(719_468)?;
    (date(days) == (year, month, day)).then_some(days)
}

/// The date of a day counted from 1970-01-01. Years begin on the first of March here, so that the
/// leap day is the last day.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::{parse_rfc3339, rfc3339};

    #[test]
    fn dates_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599_001, "2024-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (unix_ms, text) in known {
            assert_eq!(rfc3339(unix_ms), text);
            assert_eq!(parse_rfc3339(text), Some(unix_ms));
        }
    }

    #[test]
    fn offsets_and_fractions_are_read() {
        let noon = parse_rfc3339("2026-07-28T12:00:00Z");
        assert!(noon.is_some());
        assert_eq!(parse_rfc3339("2026-07-28T14:30:00+02:30"), noon);
        assert_eq!(parse_rfc3339("2026-07-28t07:00:00.0-05:00"), noon);
        let later = parse_rfc3339("2026-07-28T12:00:00.123456789Z");
        assert_eq!(later, noon.map(|noon| noon + 123));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "T",
            "2026-07-28",
            "12:00:00Z",
            "2026-07-28T12:00:00",
            "2026-02-29T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-00-01T12:00:00Z",
            "2026-01-00T12:00:00Z",
            "2026-01-01T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-01-01T12:00:00+0200",
            "2026-01-01T12:00:00.Z",
            "2026-1-1T12:00:00Z",
            "1970-01-01T00:00:00+01:00",
            "2026-01-01T12:00:00é",
            "+026-01-01T12:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
