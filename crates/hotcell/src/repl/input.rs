//! Whether what was typed is complete, or goes on in the next line.
//!
//! This only decides what Enter does. The interpreter alone knows the language; where we are wrong,
//! an empty line ends the input.

use hotcell_domain::Language;

/// Whether `text` can be run. `text` has no line end after its last line.
pub(super) fn is_complete(language: &Language, text: &str) -> bool {
    if text.trim().is_empty() {
        return true;
    }
    match language.name {
        "python" => python_is_complete(text),
        // A program of several lines, however its first lines look.
        "c" | "c++" | "go" | "rust" | "java" => ends_with_empty_line(text),
        "sqlite" => {
            let text = text.trim();
            text.ends_with(';') || text.starts_with('.') || ends_with_empty_line(text)
        }
        name => ends_with_empty_line(text) || !goes_on(text, blocks_of(name)),
    }
}

/// An empty line after the first.
fn ends_with_empty_line(text: &str) -> bool {
    let last = text.rsplit_once('\n');
    last.is_some_and(|(_, last)| last.trim().is_empty())
}

/// Words that begin a block at the start of a line, and the one that ends it.
type Blocks = (&'static [&'static str], &'static [&'static str]);

fn blocks_of(language: &str) -> Blocks {
    match language {
        "bash" | "sh" => (
            &["if", "for", "while", "until", "case", "select"],
            &["fi", "done", "esac"],
        ),
        "ruby" => (
            &[
                "def", "class", "module", "if", "unless", "while", "until", "begin", "case",
            ],
            &["end"],
        ),
        "lua" => (
            &["function", "local function", "if", "for", "while", "do"],
            &["end"],
        ),
        _ => (&[], &[]),
    }
}

/// Whether a bracket, a block or a line with a backslash is open.
fn goes_on(text: &str, (begin, end): Blocks) -> bool {
    let (mut depth, mut blocks) = (0_usize, 0_usize);
    for line in text.lines() {
        let code = without_strings(line);
        for c in code.chars() {
            match c {
                '(' | '[' | '{' => depth += 1,
                // `case x in a)` closes what nothing opened.
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        let is_begun = |word: &&&str| {
            let rest = code.trim_start().strip_prefix(**word);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        blocks += begin.iter().filter(is_begun).count();
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        let ended = words.filter(|word| end.contains(word)).count();
        blocks = blocks.saturating_sub(ended);
    }
    depth > 0 || blocks > 0 || text.ends_with('\\')
}

/// A line without what is quoted in it.
fn without_strings(line: &str) -> String {
    let mut code = String::with_capacity(line.len());
    let (mut quote, mut is_escaped) = (None, false);
    for c in line.chars() {
        match (quote, c) {
            (_, _) if is_escaped => is_escaped = false,
            (_, '\\') => is_escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'' | '`') => quote = Some(c),
            (None, c) => code.push(c),
            (Some(_), _) => {}
        }
    }
    code
}

/// What is open at the end of Python code.
#[derive(Default)]
struct PythonScan {
    depth: usize,
    /// A string in triple quotes.
    is_in_text: bool,
    ends_with_backslash: bool,
    /// Of the last line that is not the inside of a bracket or string.
    line: LastLine,
}

#[derive(Default)]
struct LastLine {
    is_indented: bool,
    first: Option<char>,
    last: Option<char>,
}

/// As the interactive interpreter has it: what opens a block ends with an empty line.
fn python_is_complete(text: &str) -> bool {
    let scan = PythonScan::of(text);
    if scan.depth > 0 || scan.is_in_text || scan.ends_with_backslash {
        return false;
    }
    let line = &scan.line;
    let is_block = line.is_indented || line.last == Some(':') || line.first == Some('@');
    !is_block || ends_with_empty_line(text)
}

impl PythonScan {
    fn of(text: &str) -> Self {
        let mut scan = Self::default();
        let mut rest = text;
        let mut is_line_start = true;
        while let Some(c) = rest.chars().next() {
            if is_line_start && scan.depth == 0 && !scan.ends_with_backslash {
                scan.begin_line(rest);
            }
            is_line_start = c == '\n';
            let taken = scan.take(c, rest);
            rest = &rest[taken..];
        }
        scan
    }

    /// Empty lines and comments are no lines.
    fn begin_line(&mut self, rest: &str) {
        let line = rest.lines().next().unwrap_or_default();
        let code = line.trim_start();
        if !code.is_empty() && !code.starts_with('#') {
            self.line = LastLine {
                is_indented: code.len() < line.len(),
                first: None,
                last: None,
            };
        }
    }

    /// Takes a character, a string or a comment; returns its length.
    fn take(&mut self, c: char, rest: &str) -> usize {
        self.ends_with_backslash = false;
        match c {
            '#' => return rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => {
                self.note(c);
                return self.take_string(c, rest);
            }
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            '\\' => {
                self.ends_with_backslash = rest.len() == 1;
                // The next line belongs to this one.
                return rest
                    .strip_prefix("\\\n")
                    .map_or(1, |after| rest.len() - after.len());
            }
            _ => {}
        }
        if !c.is_whitespace() {
            self.note(c);
        }
        c.len_utf8()
    }

    fn note(&mut self, c: char) {
        self.line.first.get_or_insert(c);
        self.line.last = Some(c);
    }

    /// A string that does not end in its line is an error, which the interpreter explains.
    fn take_string(&mut self, quote: char, rest: &str) -> usize {
        let triple: String = std::iter::repeat_n(quote, 3).collect();
        let (begin, is_long) = if rest.starts_with(&triple) {
            (3, true)
        } else {
            (1, false)
        };
        let mut is_escaped = false;
        for (at, c) in rest.char_indices().skip(begin) {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '\n' if !is_long => return at,
                c if c == quote && !is_long => return at + 1,
                c if c == quote && rest[at..].starts_with(&triple) => return at + 3,
                _ => {}
            }
        }
        self.is_in_text = is_long;
        rest.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn complete(language: &str, text: &str) -> bool {
        is_complete(Language::by_name(language).expect("a language"), text)
    }

    #[test]
    fn a_line_of_python_is_complete_unless_it_opens_something() {
        for text in [
            "1 + 1",
            "x = {'a': 1}",
            "print('(')  # (",
            "f'{x}:'",
            "s = 'it is :'",
            "d[1:]",
            "'''a'''",
            "x = 'unterminated",
            "a \\\n + b",
            "def f(): return 1\n",
            "(1,\n 2)",
            "'''\nif x:\n'''",
            "for x in y:\n    print(x)\nprint(2)",
            "    # only a comment",
            "",
        ] {
            assert!(complete("python", text), "{text:?}");
        }
        for text in [
            "for x in y:",
            "for x in y:  # why",
            "for x in y:\n    print(x)",
            "if a:\n    b\nelse:",
            "@cache",
            "print(",
            "x = [1,\n",
            "'''",
            "'''\n\n",
            "x = 1 + \\",
            "def f(a=')',\n",
            "if (a and\n    b):\n    c",
        ] {
            assert!(!complete("python", text), "{text:?}");
        }
    }

    #[test]
    fn an_empty_line_ends_a_block_of_python() {
        assert!(complete("python", "for x in y:\n    print(x)\n"));
        assert!(complete("python", "for x in y:\n    print(x)\n    "));
        assert!(!complete("python", "print(\n"));
    }

    #[test]
    fn other_languages_go_on_while_something_is_open() {
        for (language, text) in [
            ("bash", "echo ${x}"),
            ("bash", "for i in 1 2; do echo $i; done"),
            ("bash", "echo 'if ('"),
            ("sh", "if true; then\n echo 1\nfi"),
            ("ruby", "puts 1 if x"),
            ("ruby", "def f\n 1\nend"),
            ("javascript", "let x = {a: [1]}"),
            ("lua", "print('(')"),
            ("sqlite", "select 1;"),
            ("sqlite", ".tables"),
            ("c", "int main() { }\n"),
            ("perl", "if (1) {\n"),
        ] {
            assert!(complete(language, text), "{language}: {text:?}");
        }
        for (language, text) in [
            ("bash", "for i in 1 2; do"),
            ("bash", "echo \\"),
            ("sh", "if true; then\n echo 1"),
            ("ruby", "def f"),
            ("ruby", "[1,"),
            ("javascript", "function f() {"),
            ("lua", "local function f()"),
            ("sqlite", "select 1"),
            ("c", "int main() { }"),
        ] {
            assert!(!complete(language, text), "{language}: {text:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_typed_is_judged(text in "[a-z:@#'\"\\\\(){}\\[\\] \n\u{e4}]{0,60}") {
            for language in hotcell_domain::LANGUAGES {
                let _ = is_complete(language, &text);
            }
        }
    }
}
