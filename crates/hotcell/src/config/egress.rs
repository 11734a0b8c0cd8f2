//! `[egress]` and `[egress.NAME]`: what containers may reach.

use std::str::FromStr;

use hotcell_egress::{
    Access, Ask, AskWait, AskWaitError, FixedAddress, HostName, Limits, List, Pattern, ProfileEnv,
    ProfileName, ProfileSettings, Range, RuleSettings, SecretName, Settings, Tls,
};
use serde_json::{Value, json};

use super::kind::Kind;
use super::problem::Problem;
use super::table::{Entry, Table, TableSection, Tables};

/// The keys of `[egress]` that are no profiles.
const KEYS: [&str; 7] = [
    "default",
    "profiles",
    "private",
    "hosts",
    "cache_bytes_max",
    "ask",
    "ask_wait_s",
];

const PROFILE_KEYS: [&str; 11] = [
    "include", "lists", "allow", "deny", "access", "open", "strict", "cache", "env", "limits",
    "rule",
];

const LIMIT_KEYS: [&str; 4] = ["connections", "down", "up", "rate"];

const RULE_KEYS: [&str; 4] = ["host", "access", "tls", "secret"];

pub(super) const SECTION: TableSection = TableSection {
    path: "egress",
    help: "What containers may reach: the `default` profile (also `--egress`), the `profiles` that callers may name, and each profile as a table; `packages` is built in, and `env = \"proxy\"` in a profile points programs at its proxy by variables. With `ask = \"hold\"`, a connection to a host that is not listed waits `ask_wait_s` (20, at most 60) for a form of the MCP client, or `hotcell egress allow` or `deny`",
    example: "default = \"none\"\n\
              profiles = [\"packages\", \"work\"]\n\
              private = [\"10.1.2.0/24\"]\n\
              hosts = { \"mirror.example.com\" = \"10.1.2.3\" }\n\
              ask = \"hold\"\n\
              ask_wait_s = 30\n\
              work = { include = [\"packages\"], allow = [\"docs.example.com\", \"*.example.org\"], deny = [\"paste.example.org\"], limits = { connections = 64, down = \"4g\", up = \"256m\", rate = \"100m\" }, rule = [{ host = \"api.example.com\", access = [\"GET /**\", \"POST /repos/acme/**\"] }] }",
    schema,
    read,
};

fn schema() -> Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": text });
    let size = json!({ "type": ["string", "integer"] });
    let access = json!({ "type": ["string", "array"], "items": text });
    json!({
        "type": "object",
        "properties": {
            "default": text,
            "profiles": texts,
            "private": texts,
            "cache_bytes_max": size,
            "ask": { "enum": ["off", "hold"] },
            "ask_wait_s": { "type": "integer", "minimum": 1, "maximum": 60 },
            "hosts": { "type": "object", "additionalProperties": text },
        },
        "additionalProperties": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "include": texts,
                "lists": texts,
                "allow": texts,
                "deny": texts,
                "access": access,
                "open": { "type": "boolean" },
                "strict": { "type": "boolean" },
                "cache": { "type": "boolean" },
                "env": { "enum": ["none", "proxy"] },
                "limits": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "connections": { "type": "integer", "minimum": 1, "maximum": u16::MAX },
                        "down": size,
                        "up": size,
                        "rate": size,
                    },
                },
                "rule": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": false,
                        "required": ["host"],
                        "properties": {
                            "host": text,
                            "access": access,
                            "tls": { "enum": ["auto", "open", "splice"] },
                            "secret": text,
                        },
                    },
                },
            },
        },
    })
}

fn read(table: &Table<'_>, tables: &mut Tables, problems: &mut Vec<Problem>) {
    for entry in table.entries() {
        problems.extend(section_key(&entry, tables).err());
    }
}

fn section_key(entry: &Entry<'_>, tables: &mut Tables) -> Result<(), Problem> {
    match entry.name {
        "default" => tables.egress.default = tables.profile(entry)?,
        "profiles" => tables.egress.granted = tables.profiles(entry)?,
        name if KEYS.contains(&name) => return setting(entry, &mut tables.egress),
        name => {
            let table = entry
                .table()
                .map_err(|_| entry.unknown("key of [egress]:", KEYS))?;
            let name = profile_name(entry, name)?;
            let profile = profile(&table, tables)?;
            tables.egress.profiles.insert(name, profile);
        }
    }
    Ok(())
}

fn setting(entry: &Entry<'_>, settings: &mut Settings) -> Result<(), Problem> {
    match entry.name {
        "cache_bytes_max" => settings.cache_bytes_max = size(entry)?,
        "ask" => settings.ask = one(entry, entry.text()?, Ask::from_str)?,
        "ask_wait_s" => settings.ask_wait = ask_wait(entry)?,
        "private" => settings.private = parsed(entry, Range::from_str)?,
        "hosts" => {
            for host in entry.table()?.entries() {
                let (name, address) = fixed(&host)?;
                settings.hosts.insert(name, address);
            }
        }
        _ => return Err(entry.unknown("key of [egress]:", KEYS)),
    }
    Ok(())
}

fn profile(table: &Table<'_>, tables: &mut Tables) -> Result<ProfileSettings, Problem> {
    let mut profile = ProfileSettings::default();
    for entry in table.entries() {
        match entry.name {
            "include" => profile.include = tables.profiles(&entry)?,
            "lists" => profile.lists = parsed(&entry, List::parse)?,
            "allow" => profile.allow = parsed(&entry, Pattern::parse)?,
            "deny" => profile.deny = parsed(&entry, Pattern::parse)?,
            "access" => profile.access = access(&entry)?,
            "open" => profile.open = entry.of(Kind::Boolean)? == "true",
            "strict" => profile.strict = entry.of(Kind::Boolean)? == "true",
            "cache" => profile.cache = entry.of(Kind::Boolean)? == "true",
            "env" => profile.env = one(&entry, entry.text()?, ProfileEnv::from_str)?,
            "limits" => profile.limits = limits(&entry.table()?)?,
            "rule" => profile.rules = entry.tables()?.iter().map(rule).collect::<Result<_, _>>()?,
            _ => return Err(entry.unknown("key of a profile:", PROFILE_KEYS)),
        }
    }
    Ok(profile)
}

fn rule(table: &(usize, Table<'_>)) -> Result<RuleSettings, Problem> {
    let (at, table) = table;
    let (mut host, mut granted) = (None, Access::default());
    let (mut tls, mut secret) = (Tls::default(), None);
    for entry in table.entries() {
        match entry.name {
            "host" => host = Some(one(&entry, entry.text()?, Pattern::parse)?),
            "access" => granted = access(&entry)?,
            "tls" => tls = one(&entry, entry.text()?, Tls::from_str)?,
            "secret" => secret = Some(one(&entry, entry.text()?, SecretName::parse)?),
            _ => return Err(entry.unknown("key of a rule:", RULE_KEYS)),
        }
    }
    Ok(RuleSettings {
        host: host.ok_or_else(|| Problem::new(*at, "a rule needs a `host`"))?,
        access: granted,
        tls,
        secret,
    })
}

fn limits(table: &Table<'_>) -> Result<Limits, Problem> {
    let mut limits = Limits::default();
    for entry in table.entries() {
        match entry.name {
            "connections" => {
                limits.connections = number(&entry, &entry.of(Kind::Integer)?)?;
            }
            "down" => limits.down_bytes = size(&entry)?,
            "up" => limits.up_bytes = size(&entry)?,
            "rate" => limits.rate = size(&entry)?,
            _ => return Err(entry.unknown("limit:", LIMIT_KEYS)),
        }
    }
    Ok(limits)
}

fn ask_wait(entry: &Entry<'_>) -> Result<AskWait, Problem> {
    let text = entry.of(Kind::Integer)?;
    let seconds = text.parse().map_err(|_| AskWaitError);
    let wait = seconds.and_then(AskWait::from_seconds);
    wait.map_err(|error| entry.wrong(error.to_string()))
}

/// A size above 0: a limit of nothing would be a profile that allows nothing.
fn size(entry: &Entry<'_>) -> Result<u64, Problem> {
    let text = entry.of(Kind::Size)?;
    let bytes = hotcell_domain::Bytes::parse(&text);
    let bytes = bytes.map_err(|error| entry.wrong(format!("`{}` {error}", entry.name)))?;
    Ok(bytes.get())
}

fn number(entry: &Entry<'_>, text: &str) -> Result<u16, Problem> {
    let wrong = || entry.wrong(format!("`{}` must be from 1 to {}", entry.name, u16::MAX));
    let number = text.parse().map_err(|_| wrong())?;
    if number == 0 {
        Err(wrong())
    } else {
        Ok(number)
    }
}

/// `"read"`, or lines such as `["GET /**"]`.
fn access(entry: &Entry<'_>) -> Result<Access, Problem> {
    if let Ok(text) = entry.text() {
        return one(entry, text, Access::parse);
    }
    let lines = entry.texts()?;
    Access::parse_lines(lines.iter().map(|(_, line)| *line))
        .map_err(|error| entry.wrong(error.to_string()))
}

/// `NAME = "IP[:PORT]"` or `"NAME:PORT" = "IP[:PORT]"`.
fn fixed(entry: &Entry<'_>) -> Result<((HostName, Option<u16>), FixedAddress), Problem> {
    let (name, port) = match entry.name.rsplit_once(':') {
        Some((name, port)) => {
            let port: Result<u16, _> = port.parse();
            let port = port.ok().filter(|port| *port > 0);
            let wrong = || entry.misnamed("a port is a number from 1 to 65535");
            (name, Some(port.ok_or_else(wrong)?))
        }
        None => (entry.name, None),
    };
    let name = HostName::parse(name).map_err(|error| entry.misnamed(error.to_string()))?;
    let address = one(entry, entry.text()?, FixedAddress::from_str)?;
    Ok(((name, port), address))
}

fn profile_name(entry: &Entry<'_>, text: &str) -> Result<ProfileName, Problem> {
    ProfileName::parse(text).map_err(|error| entry.misnamed(error.to_string()))
}

fn one<T, E: std::fmt::Display>(
    entry: &Entry<'_>,
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, Problem> {
    parse(text).map_err(|error| entry.wrong(error.to_string()))
}

fn parsed<T, E: std::fmt::Display>(
    entry: &Entry<'_>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, Problem> {
    let texts = entry.texts()?;
    let item = |(at, text): &(usize, &str)| {
        parse(text).map_err(|error| Problem::new(*at, error.to_string()))
    };
    texts.iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;
    use hotcell_egress::Policy;

    use super::*;
    use crate::cli::Cli;
    use crate::config::{Catalogue, Document};

    fn read(text: &str) -> Result<Settings, String> {
        let catalogue = Catalogue::of(&Cli::command());
        let read = Document::read(Path::new("h.toml"), text, &catalogue);
        let read = read.map_err(|broken| broken.to_string())?;
        Ok(read.tables.egress)
    }

    #[test]
    fn the_example_is_a_policy() {
        let settings = read(&format!("[egress]\n{}\n", SECTION.example)).expect("it is valid");
        let policy = Policy::compile(&settings).expect("it compiles");
        let work = ProfileName::parse("work").unwrap();
        let profile = policy.profile(&work).expect("it is there");
        let name = |text| HostName::parse(text).unwrap();
        assert!(profile.decide(&name("a.example.org"), 443).is_ok());
        assert!(profile.decide(&name("paste.example.org"), 443).is_err());
        assert!(policy.is_granted(&work));
        assert!(policy.is_fixed(&name("mirror.example.com")));
    }

    #[test]
    fn rules_may_be_written_as_tables_of_their_own() {
        let text = "[egress]\nprofiles = ['work']\n[egress.work]\nallow = ['a.example.com']\n\
                    [[egress.work.rule]]\nhost = 'api.example.com'\naccess = 'read'\n\
                    [[egress.work.rule]]\nhost = 'git.example.com'\naccess = 'git-read'\n";
        let settings = read(text).expect("it is valid");
        let work = &settings.profiles[&ProfileName::parse("work").unwrap()];
        assert_eq!(work.rules.len(), 2);
        assert_eq!(work.rules[1].access, Access::GitRead);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, said) in [
            (
                "[egress]\ndefalt = 'x'\n",
                "2:1: unknown key of [egress]: `defalt`; did you mean `default`?",
            ),
            (
                "[egress]\nprofiles = 'x'\n",
                "2:12: `profiles` must be an array",
            ),
            ("[egress]\nprivate = ['10.0.0.0/99']\n", "2:12: "),
            ("[egress]\nask = 'yes'\n", "2:7: `yes`: ask is"),
            (
                "[egress]\nask_wait_s = 61\n",
                "2:14: `ask_wait_s` must be from 1 to 60",
            ),
            ("[egress.a]\nallow = ['ok.example.com', '*']\n", "2:28: "),
            (
                "[egress.a]\nalow = []\n",
                "2:1: unknown key of a profile: `alow`; did you mean `allow`?",
            ),
            ("[egress.a]\naccess = 'some'\n", "2:10: "),
            ("[egress.a]\nenv = 'socks'\n", "2:7: `socks`: env is"),
            (
                "[egress.a]\nlimits = { connections = 0 }\n",
                "2:26: `connections` must be from 1 to 65535",
            ),
            (
                "[[egress.a.rule]]\naccess = 'read'\n",
                "1:1: a rule needs a `host`",
            ),
            (
                "[egress]\nhosts = { 'a.example.com:x' = '127.0.0.1' }\n",
                "2:11: a port is",
            ),
            ("[egress]\nhosts = { 'a.example.com' = 'b' }\n", "2:29: "),
        ] {
            let refused = read(text).expect_err(text);
            assert!(
                refused.starts_with(&format!("h.toml:{said}")),
                "{text}: {refused}"
            );
        }
    }
}
