//! Each client's file before and after, as golden files in `tests/golden/mcp_config`.
//! `HOTCELL_GOLDEN=write cargo test -p hotcell --bin hotcell mcp_config` writes them anew.

use std::path::{Path, PathBuf};

use hotcell_upstream::Launch;
use hotcell_upstream::sources::{Places, discovered};

use super::clients::{Base, CLIENTS, Client, Language};
use super::edit;
use super::install::{self, Outcome};
use super::server::{Server, Token, Url, Via};

const NAME: &str = "hotcell";

fn local(via: Option<&str>) -> Server {
    let via = via.map(|via| Via::parse(via).expect("a way"));
    let flags = ["--toolsets".to_owned(), "code".to_owned()];
    Server::program(Path::new("/usr/bin/hotcell"), via.as_ref(), &flags).expect("a program")
}

fn remote() -> Server {
    Server::Remote {
        url: Url::parse("http://build.example:8000").expect("an address"),
        token: Some(Token::parse("hc_example").expect("a token")),
    }
}

fn golden(client: &Client, name: &str) -> PathBuf {
    let end = match client.language {
        Language::Json { .. } => "json",
        Language::Toml { .. } => "toml",
        Language::YamlTable { .. } | Language::YamlList { .. } => "yaml",
    };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mcp_config");
    directory.join(client.name).join(format!("{name}.{end}"))
}

fn before(client: &Client) -> String {
    std::fs::read_to_string(golden(client, "before")).expect("each client has a file before")
}

fn with(client: &Client, text: &str, server: &Server) -> String {
    let entry = (client.entry)(server, NAME);
    edit::with_entry(client, text, NAME, &entry).expect("edited")
}

#[test]
fn each_client_is_written_as_its_golden_files_show() {
    for client in &CLIENTS {
        for (name, text, server) in [
            ("after", before(client), local(None)),
            ("new", String::new(), local(None)),
            ("remote", String::new(), remote()),
            ("ssh", String::new(), local(Some("ssh:me@build.example"))),
            ("wsl", String::new(), local(Some("wsl"))),
        ] {
            let (path, written) = (golden(client, name), with(client, &text, &server));
            if std::env::var_os("HOTCELL_GOLDEN").is_some_and(|wish| wish == "write") {
                std::fs::write(&path, &written).expect("write a golden file");
            }
            let wanted = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(written, wanted, "{}", path.display());
        }
    }
}

#[test]
fn writing_twice_changes_nothing_and_undoing_gives_the_file_back() {
    for client in &CLIENTS {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("below/file");
        std::fs::create_dir(directory.path().join("below")).expect("a directory");
        let entry = (client.entry)(&local(None), NAME);
        let write = || install::write(client, &file, NAME, &entry).expect("written");
        let undo = || install::undo(client, &file, NAME).expect("undone");
        std::fs::write(&file, before(client)).expect("a file");
        assert_eq!(write(), Outcome::Written, "{}", client.name);
        assert_eq!(write(), Outcome::Unchanged, "{}", client.name);
        assert_eq!(
            std::fs::read_to_string(install::backup_of(&file)).expect("a backup"),
            before(client),
            "{}",
            client.name
        );
        assert_eq!(undo(), Outcome::Restored);
        assert_eq!(
            std::fs::read_to_string(&file).expect("it is there"),
            before(client),
            "{}",
            client.name
        );
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(write(), Outcome::Created);
        assert_eq!(undo(), Outcome::Removed, "{}", client.name);
        let left = std::fs::read_dir(directory.path().join("below")).expect("a directory");
        assert_eq!(left.count(), 0, "{}", client.name);
        assert_eq!(undo(), Outcome::Absent);
    }
}

#[test]
fn undoing_keeps_what_others_changed_since() {
    for client in &CLIENTS {
        let text = before(client);
        let changed = |text: &str| match client.language {
            Language::Json { .. } => text.replacen('{', "{ /* later */", 1),
            Language::Toml { .. } | Language::YamlTable { .. } | Language::YamlList { .. } => {
                format!("# later\n{text}")
            }
        };
        let now = changed(&with(client, &text, &local(None)));
        let undone = edit::without_entry(client, &now, Some(&text), NAME)
            .expect("undone")
            .expect("a file");
        assert!(undone.contains("later"), "{}", client.name);
        let has_it = |text: &str| edit::has_entry(client, text, NAME).expect("read");
        assert_eq!(has_it(&undone), has_it(&text), "{}", client.name);
        assert!(!undone.contains("--toolsets"), "{}", client.name);
    }
}

#[test]
fn a_file_that_cannot_be_edited_is_left_alone() {
    for client in &CLIENTS {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        let broken =
            "{ not: [ a file\n\textensions: &a\nmcpServers: *a\nextensions: *a\n[mcp_servers";
        std::fs::write(&file, broken).expect("a file");
        let entry = (client.entry)(&local(None), NAME);
        let error = install::write(client, &file, NAME, &entry).expect_err("refused");
        assert!(format!("{error:#}").contains("by hand"), "{error:#}");
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), broken);
        assert!(!install::backup_of(&file).exists(), "{}", client.name);
    }
}

/// Code mode reads the files of the same programs: both sides must mean the same.
#[test]
fn what_is_written_is_what_code_mode_discovers() {
    let mut count = 0;
    for client in CLIENTS
        .iter()
        .filter(|client| !matches!(client.name, "gemini" | "goose" | "continue"))
    {
        let home = tempfile::tempdir().expect("a directory");
        let base = match client.places.base {
            Base::Home => home.path().to_owned(),
            Base::Config => home.path().join(".config"),
            Base::Codex => home.path().join(".codex"),
        };
        let entry = (client.entry)(&local(None), NAME);
        install::write(client, &base.join(client.places.path), NAME, &entry).expect("written");
        let found = discovered(&Places {
            directory: home.path().join("nowhere"),
            home: Some(home.path().to_owned()),
            config: Some(home.path().join(".config")),
            codex: Some(home.path().join(".codex")),
            own_program: None,
        });
        let [server] = &found.servers[..] else {
            panic!("{}: {found:?}", client.name);
        };
        assert_eq!(server.name.as_str(), NAME);
        assert_eq!(server.source.program, client.title);
        let Launch::Stdio(program) = &server.launch else {
            panic!("{}: {:?}", client.name, server.launch);
        };
        assert_eq!(program.command.as_literal(), Some("/usr/bin/hotcell"));
        let last = program.arguments.last().and_then(|last| last.as_literal());
        assert_eq!(last, Some("code"), "{}", client.name);
        count += 1;
    }
    assert_eq!(count, 7);
}
