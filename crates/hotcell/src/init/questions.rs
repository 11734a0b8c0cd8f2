//! Questions to the person at the terminal. They go to stderr, so that stdout holds the results.

use std::io::{BufRead, Read, Write};

use anyhow::{Context, Result, bail, ensure};

/// A longer line is no answer.
const LINE_BYTES_MAX: u64 = 1024;

/// Wrong answers to one question.
const TRIES_MAX: usize = 5;

/// Asks on `output` and reads from `input`.
pub(super) struct Questions<R, W> {
    pub(super) input: R,
    pub(super) output: W,
}

impl<R: BufRead, W: Write> Questions<R, W> {
    /// Asks until the answer passes the check; an empty line takes the default.
    pub(super) fn ask<T>(
        &mut self,
        question: &str,
        default: &str,
        check: impl Fn(&str) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..TRIES_MAX {
            write!(self.output, "{question} [{default}] ").context("ask")?;
            self.output.flush().context("ask")?;
            let line = self.line()?;
            let answer = if line.is_empty() { default } else { &line };
            match check(answer) {
                Ok(answer) => return Ok(answer),
                Err(error) => writeln!(self.output, "  {error:#}").context("ask")?,
            }
        }
        bail!("no answer after {TRIES_MAX} tries; `hotcell init --help` lists the flags")
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let input = self.input.by_ref().take(LINE_BYTES_MAX);
        let mut input = std::io::BufReader::with_capacity(1, input);
        let read = input.read_line(&mut line).context("read the answer")?;
        ensure!(read > 0, "there was no answer; nothing was written");
        Ok(line.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(input: &str) -> (Result<u32>, String) {
        let mut output = Vec::new();
        let mut questions = Questions {
            input: input.as_bytes(),
            output: &mut output,
        };
        let check = |text: &str| text.parse::<u32>().context("must be a number");
        let answer = questions.ask("How many?", "7", check);
        (answer, String::from_utf8(output).expect("text"))
    }

    #[test]
    fn an_empty_line_takes_the_default_and_a_wrong_answer_asks_again() {
        assert_eq!(asked("\n").0.expect("an answer"), 7);
        let (answer, said) = asked("many\n 8 \n");
        assert_eq!(answer.expect("an answer"), 8);
        assert_eq!(said.matches("How many? [7]").count(), 2);
        assert!(said.contains("must be a number"), "{said}");
    }

    #[test]
    fn nobody_is_asked_for_ever() {
        assert!(asked("").0.is_err());
        assert!(asked(&"x\n".repeat(100)).0.is_err());
        assert!(asked(&"1".repeat(100_000)).0.is_err());
    }
}
