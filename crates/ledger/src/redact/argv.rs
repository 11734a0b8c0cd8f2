//! Redacts command lines, in which a secret may be the word after its flag.

use std::borrow::Cow;

use super::keys::is_sensitive;
use super::{HIDDEN, redact};

/// Short flags for passwords: the program, the flag, whether the password may be the next word, and
/// whether it may be attached to the flag.
const FLAGS: [(&str, &str, bool, bool); 22] = [
    ("mysql", "-p", false, true),
    ("mysqldump", "-p", false, true),
    ("mysqladmin", "-p", false, true),
    ("mysqlimport", "-p", false, true),
    ("mariadb", "-p", false, true),
    ("mariadb-dump", "-p", false, true),
    ("mariadb-admin", "-p", false, true),
    ("sshpass", "-p", true, true),
    ("mongo", "-p", true, false),
    ("mongosh", "-p", true, false),
    ("mongodump", "-p", true, false),
    ("redis-cli", "-a", true, false),
    ("docker", "-p", true, false),
    ("podman", "-p", true, false),
    ("az", "-p", true, false),
    ("7z", "-p", false, true),
    ("7za", "-p", false, true),
    ("zip", "-P", true, false),
    ("unzip", "-P", true, false),
    ("ldapsearch", "-w", true, false),
    ("ldapadd", "-w", true, false),
    ("ldapmodify", "-w", true, false),
];

/// Programs that take a password only with the subcommand `login`: elsewhere `-p` is a port.
const LOGIN: [&str; 3] = ["docker", "podman", "az"];

/// Programs that take `user:password`.
const USER_FLAGS: [(&str, &[&str]); 3] = [
    ("curl", &["-u", "--user", "-U", "--proxy-user"]),
    ("http", &["-a", "--auth"]),
    ("https", &["-a", "--auth"]),
];

/// What is known from the previous words.
#[derive(Default)]
struct Context<'a> {
    program: &'a str,
    is_login: bool,
    next: Next,
}

/// The meaning of the next word.
#[derive(Default, Clone, Copy, PartialEq)]
enum Next {
    #[default]
    Word,
    Secret,
    /// `user:password`.
    User,
}

/// Redacts the words of a command line. A word with spaces is treated as a shell command.
pub fn redact_argv<'a>(argv: impl Iterator<Item = &'a str>) -> Vec<Cow<'a, str>> {
    let mut context = Context::default();
    argv.map(|word| {
        if word.contains(char::is_whitespace) {
            context.next = match context.next {
                Next::Secret => return hide_next(&mut context),
                Next::User | Next::Word => Next::Word,
            };
            return line(word);
        }
        context.hide(word)
    })
    .collect()
}

fn hide_next<'a>(context: &mut Context<'_>) -> Cow<'a, str> {
    context.next = Next::Word;
    Cow::Borrowed(HIDDEN)
}

/// Redacts a shell command: first as a text, then word by word.
fn line(text: &str) -> Cow<'_, str> {
    let hidden = redact(text);
    let mut context = Context::default();
    let mut shown = String::with_capacity(hidden.len());
    for piece in hidden.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end_matches(char::is_whitespace);
        let bare = word.trim_matches(['\'', '"']);
        let space = &piece[word.len()..];
        if bare.is_empty() {
            shown.push_str(piece);
        } else {
            // Redacted parts, and quoted parts with spaces, were already handled as text.
            let hidden = context.hide_bare(bare);
            shown.push_str(&word.replacen(bare, &hidden, 1));
            shown.push_str(space);
        }
        if word.ends_with([';', '|', '&']) || space == "\n" {
            context = Context::default();
        }
    }
    if shown == hidden {
        hidden
    } else {
        Cow::Owned(shown)
    }
}

impl<'a> Context<'a> {
    fn hide(&mut self, word: &'a str) -> Cow<'a, str> {
        let is_flag = word.starts_with('-') && !word.contains('=');
        if self.next == Next::Word && is_flag && is_sensitive(word) {
            self.next = Next::Secret;
            return Cow::Borrowed(word);
        }
        match self.hide_bare(word) {
            Cow::Borrowed(word) => redact(word),
            hidden @ Cow::Owned(_) => hidden,
        }
    }

    /// Redacts a word that only the previous words mark as a secret.
    fn hide_bare<'b>(&mut self, word: &'b str) -> Cow<'b, str>
    where
        'b: 'a,
    {
        match std::mem::take(&mut self.next) {
            Next::Secret if !word.starts_with('-') => return Cow::Owned(HIDDEN.to_owned()),
            Next::User => return user(word),
            Next::Secret | Next::Word => {}
        }
        if let Some(hidden) = self.flag(word) {
            return hidden;
        }
        self.is_login |= word == "login";
        let name = word.rsplit('/').next().unwrap_or(word);
        let is_program = FLAGS.iter().any(|(program, ..)| *program == name)
            || USER_FLAGS.iter().any(|(program, _)| *program == name);
        if is_program {
            self.program = name;
        }
        Cow::Borrowed(word)
    }

    fn flag<'b>(&mut self, word: &'b str) -> Option<Cow<'b, str>> {
        let mine = FLAGS.iter().find(|(program, ..)| *program == self.program);
        if let Some((program, flag, is_separate, is_attached)) = mine
            && (self.is_login || !LOGIN.contains(program))
        {
            if word == *flag && *is_separate {
                self.next = Next::Secret;
                return Some(Cow::Borrowed(word));
            }
            let attached = word.strip_prefix(flag).filter(|rest| !rest.is_empty());
            if *is_attached && attached.is_some() {
                return Some(Cow::Owned(format!("{flag}{HIDDEN}")));
            }
        }
        let (_, flags) = USER_FLAGS
            .iter()
            .find(|(program, _)| *program == self.program)?;
        if flags.contains(&word) {
            self.next = Next::User;
            return Some(Cow::Borrowed(word));
        }
        let flag = flags
            .iter()
            .find(|flag| flag.len() == 2 && word.starts_with(**flag))?;
        Some(Cow::Owned(format!("{flag}{}", user(&word[2..]))))
    }
}

/// Redacts the password in `user:password`.
fn user(word: &str) -> Cow<'_, str> {
    match word.split_once(':') {
        Some((name, password)) if !password.is_empty() => Cow::Owned(format!("{name}:{HIDDEN}")),
        _ => Cow::Borrowed(word),
    }
}
