//! The catalogue of all settings. The command line of `hotcell serve` defines them: whatever has a
//! flag and a `HOTCELL_*` variable is also a key of the configuration file.
//!
//! The section is the heading of the flag (`Warm pool` → `[warm_pool]`), the key is the flag's
//! name (`--memory-max` → `memory_max`), and the value is parsed as the flag's is.

use clap::builder::ArgAction;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use super::kind::Kind;
use super::problem::nearest;

/// The prefix of our environment variables.
pub(crate) const VARIABLES: &str = "HOTCELL_";

/// Words in the name of a setting whose value is secret.
const SECRETS: [&str; 3] = ["token", "secret", "password"];

/// The section of a flag whose struct has no heading; a test ensures that there is none.
const NO_HEADING: &str = "Other";

/// Flags that cannot be in the file: one selects it, and one is `default` of its section `[egress]`.
const NOT_IN_FILE: [&str; 2] = ["config", "egress"];

/// One setting.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// The flag, without its dashes: `memory-max`.
    pub(crate) flag: String,
    /// The id in clap.
    pub(super) id: String,
    /// The section in the file, derived from the heading of the help: `limits`.
    pub(crate) section: String,
    /// The key in the file, derived from the flag: `memory_max`.
    pub(crate) key: String,
    pub(crate) variable: String,
    /// The help text, one sentence without the default.
    pub(crate) help: String,
    /// The default, described in words if it depends on the host.
    pub(crate) default: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) is_list: bool,
    /// The separator of list items on the command line.
    delimiter: Option<char>,
    pub(crate) is_secret: bool,
    /// All allowed values, if they can be listed.
    pub(crate) choices: Vec<String>,
    pub(crate) value_name: String,
    /// A command that parses one value exactly as the command line does.
    checker: Command,
}

/// Whether the value of a flag of this name is not to be shown.
pub(super) fn is_secret_name(flag: &str) -> bool {
    SECRETS.iter().any(|word| flag.contains(word))
}

/// All settings, in the order of the help.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) settings: Vec<Setting>,
}

impl Catalogue {
    /// The settings of a command line that has the global flags and the command `serve`.
    pub(crate) fn of(root: &Command) -> Self {
        let serve = root.find_subcommand("serve").expect("`serve` is a command");
        let args = serve.get_arguments().chain(root.get_arguments());
        Self {
            settings: args.filter_map(Setting::of).collect(),
        }
    }

    pub(crate) fn by_flag(&self, flag: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.flag == flag)
    }

    pub(super) fn find(&self, section: &str, key: &str) -> Option<&Setting> {
        let is_it = |setting: &&Setting| setting.section == section && setting.key == key;
        self.settings.iter().find(is_it)
    }

    /// The setting with this key, in any section.
    pub(super) fn by_key(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// The sections, in the order in which they are first used.
    pub(crate) fn sections(&self) -> Vec<&str> {
        let mut sections: Vec<&str> = Vec::new();
        for setting in &self.settings {
            if !sections.contains(&setting.section.as_str()) {
                sections.push(&setting.section);
            }
        }
        sections
    }

    pub(crate) fn of_section<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Setting> {
        let is_there = move |setting: &&Setting| setting.section == section;
        self.settings.iter().filter(is_there)
    }
}

impl Setting {
    fn of(arg: &Arg) -> Option<Self> {
        let flag = arg.get_long()?.to_owned();
        let variable = arg.get_env()?.to_str()?.to_owned();
        if !is_setting(arg) {
            return None;
        }
        let heading = arg.get_help_heading().unwrap_or(NO_HEADING);
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let (help, told) = split_default(&help);
        let value_name = arg.get_value_names().and_then(|names| names.first());
        let choices = arg.get_possible_values();
        let kind = Kind::of(arg);
        let is_secret = is_secret_name(&flag);
        Some(Self {
            id: arg.get_id().to_string(),
            section: slug(heading),
            key: slug(&flag),
            variable,
            default: default(arg).or(told),
            help,
            is_list: is_list(arg),
            delimiter: arg.get_value_delimiter(),
            is_secret: is_secret || arg.is_hide_env_values_set(),
            choices: if kind == Kind::Boolean {
                Vec::new()
            } else {
                choices.iter().map(|it| it.get_name().to_owned()).collect()
            },
            kind,
            value_name: value_name.map(ToString::to_string).unwrap_or_default(),
            checker: checker(arg, &flag),
            flag,
        })
    }

    /// Checks a value as the command line would; `Err` says what is wrong with it.
    pub(crate) fn check(&self, text: &str) -> Result<(), String> {
        if let Some(delimiter) = self.delimiter.filter(|delimiter| text.contains(*delimiter)) {
            return Err(format!("must not contain `{delimiter}`"));
        }
        let word = format!("--{}={text}", self.flag);
        match self.checker.clone().try_get_matches_from([word]) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.reason(&error, text)),
        }
    }

    /// Why a value was rejected, without the parts that only make sense on a command line.
    fn reason(&self, error: &clap::Error, text: &str) -> String {
        if let Some(source) = std::error::Error::source(error) {
            return source.to_string();
        }
        if error.kind() != ErrorKind::InvalidValue || self.choices.is_empty() {
            return "is not a valid value".to_owned();
        }
        let choices = self.choices.iter().map(String::as_str);
        let known = match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(known)) => known.join(", "),
            _ => self.choices.join(", "),
        };
        match nearest(text, choices) {
            Some(near) => format!("must be one of {known}; did you mean `{near}`?"),
            None => format!("must be one of {known}"),
        }
    }
}

/// Whether a flag is a setting: it has one of our variables, and makes sense in a file.
pub(super) fn is_setting(arg: &Arg) -> bool {
    let variable = arg.get_env().and_then(std::ffi::OsStr::to_str);
    let is_ours = variable.is_some_and(|name| name.starts_with(VARIABLES));
    let flag = arg.get_long().unwrap_or_default();
    is_ours && !flag.is_empty() && !NOT_IN_FILE.contains(&flag)
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append) || arg.get_value_delimiter().is_some()
}

/// A command with only this flag: the check must not depend on other flags.
fn checker(arg: &Arg, flag: &str) -> Command {
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
    let action = if is_switch {
        ArgAction::Set
    } else {
        arg.get_action().clone()
    };
    let arg = Arg::new("value")
        .long(flag.to_owned())
        .action(action)
        .value_parser(arg.get_value_parser().clone());
    let command = Command::new("check").no_binary_name(true);
    command.disable_help_flag(true).arg(arg)
}

fn default(arg: &Arg) -> Option<String> {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return Some("false".to_owned());
    }
    let values = arg.get_default_values();
    let values = values.iter().map(|value| value.to_string_lossy());
    let values: Vec<_> = values.collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Removes `[default: …]` from the end of a help text.
fn split_default(help: &str) -> (String, Option<String>) {
    let split = help
        .strip_suffix(']')
        .and_then(|help| help.rsplit_once(" [default: "));
    match split {
        Some((help, default)) => (help.to_owned(), Some(default.to_owned())),
        None => (help.to_owned(), None),
    }
}

/// `Warm pool` → `warm_pool`, `memory-max` → `memory_max`.
fn slug(words: &str) -> String {
    let letter = |c: char| if c.is_alphanumeric() { c } else { '_' };
    words.to_lowercase().chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn catalogue() -> Catalogue {
        Catalogue::of(&Cli::command())
    }

    #[test]
    fn every_variable_of_serve_is_a_setting_with_a_section_and_a_help() {
        let catalogue = catalogue();
        assert!(catalogue.settings.len() > 40);
        for setting in &catalogue.settings {
            let section = &setting.section;
            assert_ne!(
                section,
                &slug(NO_HEADING),
                "{} has no heading",
                setting.flag
            );
            assert_ne!(setting.help, "", "{} has no help", setting.flag);
            let found = catalogue.find(&setting.section, &setting.key);
            assert_eq!(found.map(|it| &it.flag), Some(&setting.flag));
            let same = |other: &&Setting| other.key == setting.key;
            assert_eq!(catalogue.settings.iter().filter(same).count(), 1);
        }
        assert!(catalogue.by_flag("config").is_none());
    }

    #[test]
    fn a_setting_says_what_its_flag_says() {
        let catalogue = catalogue();
        let shown = |flag: &str| {
            let one = catalogue.by_flag(flag).expect("a flag of `serve`");
            let kind = (one.kind, one.is_list);
            let place = format!("[{}] {}", one.section, one.key);
            (place, kind, one.default.clone().unwrap_or_default())
        };
        let row = |place: &str, kind, default: &str| (place.to_owned(), kind, default.to_owned());
        for (flag, expected) in [
            ("port", row("[server] port", (Kind::Integer, false), "8000")),
            (
                "memory",
                row("[limits] memory", (Kind::Size, false), "512m"),
            ),
            ("cpus", row("[limits] cpus", (Kind::Number, false), "1")),
            ("pids", row("[limits] pids", (Kind::Integer, false), "256")),
            ("warm", row("[warm_pool] warm", (Kind::Integer, false), "1")),
            (
                "warm-image",
                row("[warm_pool] warm_image", (Kind::Text, true), ""),
            ),
            (
                "allow-network",
                row("[policy] allow_network", (Kind::Boolean, false), "false"),
            ),
            (
                "local-images",
                row("[images] local_images", (Kind::Boolean, false), "true"),
            ),
            (
                "reserve-bytes",
                row(
                    "[storage] reserve_bytes",
                    (Kind::Size, false),
                    "512m, or 2 % of a smaller disk",
                ),
            ),
            (
                "allowed-registries",
                row(
                    "[images] allowed_registries",
                    (Kind::Text, true),
                    "docker.io,ghcr.io",
                ),
            ),
        ] {
            assert_eq!(shown(flag), expected, "{flag}");
        }
    }

    #[test]
    fn a_value_is_checked_as_the_command_line_checks_it() {
        let catalogue = catalogue();
        let check = |flag: &str, text: &str| {
            let one = catalogue.by_flag(flag).expect("a flag of `serve`");
            one.check(text).err().unwrap_or_default()
        };
        assert_eq!(check("port", "8000"), "");
        assert_eq!(check("engine", "docker"), "");
        assert_eq!(check("allow-network", "true"), "");
        assert_eq!(check("allowed-host", "-x"), "");
        assert_ne!(check("port", "65536"), "");
        assert_eq!(
            check("execs-running-max", "0"),
            "must be a number from 1 to 64"
        );
        assert_eq!(
            check("engine", "dcker"),
            "must be one of auto, embedded, docker, podman; did you mean `docker`?"
        );
        assert_eq!(check("allowed-host", "a,b"), "must not contain `,`");
    }
}
