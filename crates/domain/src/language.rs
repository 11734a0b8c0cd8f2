//! The languages of snippets: their names, how they are detected in an image and how they are run.
//! All code about languages uses this table.

/// A language, recognized by its names and its file extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Language {
    /// The name that users write.
    pub name: &'static str,
    /// Other names that users may write.
    pub aliases: &'static [&'static str],
    /// The extension of its source files, without the dot.
    pub extension: &'static str,
    /// The program that runs or compiles it.
    pub program: &'static str,
    probe: Probe,
    how: How,
}

/// How to find out whether an image can run a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// The program exists.
    Program,
    /// This shell command succeeds.
    Succeeds(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Runs the program with these arguments, then the source file.
    Interpret(&'static [&'static str]),
    /// Runs this line of shell for the source file `$f`; further arguments are the snippet's.
    Shell(&'static str),
    /// Compiles the source file `$f` to the executable `$o` by this shell command, unless there is
    /// one already of the same content, and runs that.
    Compile(&'static str),
}

/// All supported languages; an image may lack some of the programs.
pub const LANGUAGES: &[Language] = &[
    interpreted("python", &["python3", "py"], "py", "python3"),
    interpreted("bash", &[], "bash", "bash"),
    interpreted("sh", &["shell"], "sh", "sh"),
    interpreted("javascript", &["node", "js"], "js", "node"),
    Language {
        // Older versions of Node do not know the flag.
        probe: Probe::Succeeds("node --experimental-strip-types -e 0"),
        how: How::Interpret(&["--experimental-strip-types", "--no-warnings"]),
        ..interpreted("typescript", &["ts"], "ts", "node")
    },
    interpreted("ruby", &["rb"], "rb", "ruby"),
    interpreted("perl", &["pl"], "pl", "perl"),
    interpreted("php", &[], "php", "php"),
    interpreted("lua", &[], "lua", "lua"),
    compiled("go", &["golang"], "go", "go", r#"go build -o "$o" "$f""#),
    compiled("rust", &["rs"], "rs", "rustc", r#"rustc -o "$o" "$f""#),
    compiled("c", &[], "c", "cc", r#"cc -o "$o" "$f" -lm"#),
    compiled("c++", &["cpp", "cxx"], "cpp", "c++", r#"c++ -o "$o" "$f""#),
    Language {
        // The launcher compiles in memory, with the compiler that only a development kit has.
        probe: Probe::Succeeds("command -v java javac"),
        how: How::Interpret(&["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]),
        ..interpreted("java", &[], "java", "java")
    },
    Language {
        how: How::Interpret(&["--no-save", "--no-restore"]),
        ..interpreted("r", &["rscript"], "R", "Rscript")
    },
    Language {
        how: How::Shell(r#"exec sqlite3 -batch -bail "${1:-:memory:}" <"$f""#),
        ..interpreted("sqlite", &["sqlite3", "sql"], "sql", "sqlite3")
    },
];

/// Keeps compiled programs below `$HOME`, named by the digest of language and source, so that the
/// same snippet is compiled once per container. A program is renamed into place when it is
/// complete, so concurrent compilations do not interfere. Code in the container may replace it, and
/// gains nothing by that.
const COMPILE_BEFORE: &str = r#"d=$HOME/.hotcell/build; m=$d/$1 o=$d/$1.$$ f=$2; shift 2
[ -x "$m" ] || { mkdir -p "$d" && "#;
const COMPILE_AFTER: &str = r#" && mv -f "$o" "$m"; } || exit
exec "$m" "$@""#;
const SHELL_BEFORE: &str = "f=$2; shift 2; ";

const fn interpreted(
    name: &'static str,
    aliases: &'static [&'static str],
    extension: &'static str,
    program: &'static str,
) -> Language {
    Language {
        name,
        aliases,
        extension,
        program,
        probe: Probe::Program,
        how: How::Interpret(&[]),
    }
}

const fn compiled(
    name: &'static str,
    aliases: &'static [&'static str],
    extension: &'static str,
    program: &'static str,
    command: &'static str,
) -> Language {
    Language {
        how: How::Compile(command),
        ..interpreted(name, aliases, extension, program)
    }
}

impl Language {
    /// Finds a language by name or alias.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        let name = name.to_ascii_lowercase();
        LANGUAGES
            .iter()
            .find(|one| one.name == name || one.aliases.contains(&name.as_str()))
    }

    /// Finds a language by file extension.
    pub fn by_extension(extension: &str) -> Option<&'static Self> {
        LANGUAGES
            .iter()
            .find(|one| one.extension.eq_ignore_ascii_case(extension))
    }

    /// Whether a shell runs it, which an image may lack.
    pub fn needs_shell(&self) -> bool {
        match self.how {
            How::Interpret(_) => false,
            How::Shell(_) | How::Compile(_) => true,
        }
    }

    /// The command that runs a source file. A compiled program is kept under the name `digest`,
    /// which must be that of the language and the source.
    pub fn argv(&self, source: &str, digest: &str) -> Vec<String> {
        let script = |script: String| {
            let words = ["sh", "-c", &script, "sh", digest, source];
            words.map(str::to_owned).to_vec()
        };
        match self.how {
            How::Interpret(arguments) => std::iter::once(self.program)
                .chain(arguments.iter().copied())
                .chain([source])
                .map(str::to_owned)
                .collect(),
            How::Shell(line) => script(format!("{SHELL_BEFORE}{line}")),
            How::Compile(command) => script(format!("{COMPILE_BEFORE}{command}{COMPILE_AFTER}")),
        }
    }

    /// A shell script that prints the name of each language that can run in its container, one per
    /// line.
    pub fn probe_script() -> String {
        let probe = |language: &Self| {
            let probe = match language.probe {
                Probe::Program => format!("command -v {}", language.program),
                Probe::Succeeds(command) => command.to_owned(),
            };
            format!("{probe} >/dev/null 2>&1 && echo {}\n", language.name)
        };
        let probes: String = LANGUAGES.iter().map(probe).collect();
        format!("{probes}true\n")
    }

    /// The languages that a run of [`Language::probe_script`] printed, in the order of the table.
    /// Other output is ignored.
    pub fn probed(output: &str) -> Vec<&'static Self> {
        let is_named = |language: &&Self| output.lines().any(|line| line == language.name);
        LANGUAGES.iter().filter(is_named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> &'static Language {
        Language::by_name(name).expect("it is in the table")
    }

    #[test]
    fn no_two_languages_share_a_name() {
        let names = || {
            LANGUAGES
                .iter()
                .flat_map(|one| one.aliases.iter().chain([&one.name]))
        };
        for name in names() {
            assert_eq!(names().filter(|other| *other == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn languages_are_found_by_what_people_write() {
        let name = |text: &str| Language::by_name(text).map(|one| one.name);
        assert_eq!(name("JavaScript"), Some("javascript"));
        assert_eq!(name("node"), Some("javascript"));
        assert_eq!(name("SQL"), Some("sqlite"));
        assert_eq!(name("cobol"), None);
        let named = |text: &str| Language::by_extension(text).map(|one| one.name);
        assert_eq!(named("py"), Some("python"));
        assert_eq!(named("r"), Some("r"));
    }

    #[test]
    fn a_source_file_is_one_argument_however_it_is_named() {
        for name in ["c", "sqlite", "java"] {
            let argv = named(name).argv("/workspace/a b;c.c", "d");
            assert_eq!(argv.last().map(String::as_str), Some("/workspace/a b;c.c"));
        }
    }

    #[test]
    fn only_known_languages_are_taken_from_a_probe() {
        let probed = Language::probed("bash\n\u{1b}[0m\npython\npython2\nsh extra\n");
        let names: Vec<&str> = probed.iter().map(|language| language.name).collect();
        assert_eq!(names, ["python", "bash"]);
        assert!(Language::probe_script().contains("command -v python3 >/dev/null"));
    }
}
