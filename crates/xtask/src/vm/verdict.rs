//! The machine's reports about its profiles, and whether they are a pass.

/// The reports so far. It starts as a failure: only lines with the token make it a pass.
#[derive(Debug)]
pub(crate) struct Verdict {
    token: String,
    expected: Vec<String>,
    ended: Vec<(String, String)>,
    done: bool,
}

impl Verdict {
    /// Expects each of `profiles` to report status 0, with `token`.
    pub(crate) fn new(token: &str, profiles: &[String]) -> Self {
        Self {
            token: token.to_owned(),
            expected: profiles.to_vec(),
            ended: Vec::new(),
            done: false,
        }
    }

    /// Processes a line of the results port; returns what a reader should see of it. The token may
    /// be anywhere in the line, because a job's last line may lack a newline.
    pub(crate) fn hear(&mut self, line: &str) -> Option<String> {
        let Some((job, words)) = line.split_once(&self.token) else {
            return Some(line.to_owned());
        };
        let words: Vec<&str> = words.split_whitespace().collect();
        match words.as_slice() {
            ["begin", profile] => return Some(format!("{job}--- vm: {profile}")),
            ["end", profile, status] => {
                let end = ((*profile).to_owned(), (*status).to_owned());
                self.ended.push(end);
            }
            ["done"] => self.done = true,
            _ => return Some(line.to_owned()),
        }
        (!job.is_empty()).then(|| job.to_owned())
    }

    /// Whether the machine reported a regular end.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// The problems, as sentences; empty if all passed.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for profile in &self.expected {
            match self.ended.iter().find(|(name, _)| name == profile) {
                None => complaints.push(format!("profile {profile} did not end")),
                Some((_, status)) if status == "0" => {}
                Some((_, status)) => {
                    complaints.push(format!("profile {profile} ended with status {status}"));
                }
            }
        }
        if !self.done {
            complaints.push("the machine stopped before it was done".to_owned());
        }
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Vec<String> {
        let mut verdict = Verdict::new("T0", &["root".to_owned(), "plain".to_owned()]);
        for line in lines {
            verdict.hear(line);
        }
        verdict.complaints()
    }

    #[test]
    fn all_profiles_ended_well_and_done_is_a_pass() {
        let lines = [
            "T0 begin root",
            "T0 end root 0",
            "T0 end plain 0",
            "T0 done",
        ];
        assert!(heard(&lines).is_empty());
    }

    #[test]
    fn silence_is_a_failure() {
        assert_eq!(heard(&[]).len(), 3);
    }

    #[test]
    fn a_bad_status_is_named() {
        let said = heard(&["T0 end root 0", "T0 end plain 99", "T0 done"]);
        assert_eq!(said, ["profile plain ended with status 99"]);
    }

    #[test]
    fn a_line_without_the_token_ends_nothing() {
        let said = heard(&["T0 end root 0", "end plain 0", "T1 end plain 0", "T0 done"]);
        assert_eq!(said, ["profile plain did not end"]);
    }

    #[test]
    fn a_job_whose_last_line_does_not_end_is_heard_and_shown() {
        let mut verdict = Verdict::new("T0", &["root".to_owned()]);
        assert_eq!(verdict.hear("halfT0 end root 0").as_deref(), Some("half"));
        assert_eq!(verdict.hear("T0 done"), None);
        assert!(verdict.complaints().is_empty());
    }

    #[test]
    fn a_panic_after_the_last_profile_is_still_a_failure() {
        let said = heard(&["T0 end root 0", "T0 end plain 0"]);
        assert_eq!(said, ["the machine stopped before it was done"]);
    }
}
