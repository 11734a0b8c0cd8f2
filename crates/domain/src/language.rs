//! The languages of snippets, and how each is run.

/// A language, recognized by its names and its file extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Language {
    /// The name that users write.
    pub name: &'static str,
    /// Other names that users may write.
    pub aliases: &'static [&'static str],
    /// The extension of its source files, without the dot.
    pub extension: &'static str,
    /// The program that the image must contain.
    pub program: &'static str,
    how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Runs the program with these arguments, then the source file.
    Interpret(&'static [&'static str]),
    /// A shell script that compiles and runs the source file `$2` in a new directory `$1` below the
    /// temporary directory; further arguments are the program's.
    Script(&'static str),
}

/// All supported languages; an image may lack some of the programs.
pub const LANGUAGES: &[Language] = &[
    language(
        "python",
        &["python3", "py"],
        "py",
        "python3",
        How::Interpret(&[]),
    ),
    language("bash", &[], "bash", "bash", How::Interpret(&[])),
    language("sh", &["shell"], "sh", "sh", How::Interpret(&[])),
    language(
        "node",
        &["javascript", "js"],
        "js",
        "node",
        How::Interpret(&[]),
    ),
    language(
        "typescript",
        &["ts"],
        "ts",
        "node",
        How::Interpret(&["--experimental-strip-types", "--no-warnings"]),
    ),
    language("ruby", &["rb"], "rb", "ruby", How::Interpret(&[])),
    language("perl", &["pl"], "pl", "perl", How::Interpret(&[])),
    language("php", &[], "php", "php", How::Interpret(&[])),
    language("lua", &[], "lua", "lua", How::Interpret(&[])),
    language("go", &["golang"], "go", "go", How::Script(GO)),
    language("rust", &["rs"], "rs", "rustc", How::Script(RUST)),
    language("c", &[], "c", "cc", How::Script(C)),
    language("c++", &["cpp", "cxx"], "cpp", "c++", How::Script(CPP)),
];

// Go creates its own build directory and shares only a cache, which it locks.
const GO: &str = r#"f=$2; shift 2; export GOCACHE=/tmp/go GOFLAGS=-mod=mod; exec go run "$f" "$@""#;
const RUST: &str = r#"d=${TMPDIR:-/tmp}/$1; f=$2; shift 2; mkdir "$d" && rustc -o "$d/main" "$f" && exec "$d/main" "$@""#;
const C: &str = r#"d=${TMPDIR:-/tmp}/$1; f=$2; shift 2; mkdir "$d" && cc -o "$d/main" "$f" -lm && exec "$d/main" "$@""#;
const CPP: &str = r#"d=${TMPDIR:-/tmp}/$1; f=$2; shift 2; mkdir "$d" && c++ -o "$d/main" "$f" && exec "$d/main" "$@""#;

const fn language(
    name: &'static str,
    aliases: &'static [&'static str],
    extension: &'static str,
    program: &'static str,
    how: How,
) -> Language {
    Language {
        name,
        aliases,
        extension,
        program,
        how,
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
        LANGUAGES.iter().find(|one| one.extension == extension)
    }

    /// The command that runs a source file. Compiled files go to a new directory of this name below
    /// the temporary directory.
    pub fn argv(&self, source: &str, directory: &str) -> Vec<String> {
        let (program, arguments) = match self.how {
            How::Interpret(arguments) => (self.program, arguments.to_vec()),
            How::Script(script) => ("sh", vec!["-c", script, "sh", directory]),
        };
        std::iter::once(program)
            .chain(arguments)
            .chain([source])
            .map(str::to_owned)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            Language::by_name("JavaScript").map(|one| one.name),
            Some("node")
        );
        assert_eq!(
            Language::by_extension("py").map(|one| one.name),
            Some("python")
        );
        assert_eq!(Language::by_name("cobol"), None);
    }

    #[test]
    fn a_source_file_is_one_argument_however_it_is_named() {
        let argv = Language::by_name("c").map(|c| c.argv("/workspace/a b;c.c", "/tmp/x"));
        assert_eq!(
            argv.and_then(|argv| argv.last().cloned()),
            Some("/workspace/a b;c.c".into())
        );
    }
}
