//! Which calls are allowed, denied, or somebody's decision.
//!
//! Of the rules that fit a call the most specific one counts: more literal characters in `server`,
//! then in `tool`, then a test of an argument; of two that are equal, the stricter one. Without a
//! rule, what the server says of its tool decides: read-only is allowed, destructive is asked; for a
//! tool of which it says nothing, the server's default counts, then that of all servers.

use serde_json::{Map, Value};

use crate::{Pin, ToolDefinition};

/// What happens to a call. Later ones are stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// It is made.
    Allow,
    /// Somebody is asked.
    Ask,
    /// It is not made.
    Deny,
}

impl Decision {
    /// Parses a word of a configuration.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "allow" => Ok(Self::Allow),
            "ask" => Ok(Self::Ask),
            "deny" => Ok(Self::Deny),
            _ => Err("must be allow, ask or deny".to_owned()),
        }
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// The operator's word on some calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// What the operator calls it.
    pub name: String,
    /// A glob of server names.
    pub server: String,
    /// A glob of tool names.
    pub tool: String,
    /// Fits only calls with such an argument.
    pub argument: Option<ArgumentTest>,
    /// What happens.
    pub decision: Decision,
}

/// A test of one argument. A call that lacks the argument does not fit.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgumentTest {
    /// A JSON pointer into the arguments, such as `/path`.
    pub pointer: String,
    /// A glob that its text fits.
    pub glob: Option<String>,
    /// The smallest number that fits.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

/// All rules.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy {
    /// In any order.
    pub rules: Vec<Rule>,
    /// For tools whose servers say nothing of them.
    pub default: Option<Decision>,
}

/// A decision and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) decision: Decision,
    pub(crate) reason: String,
}

impl Policy {
    pub(crate) fn decide(
        &self,
        server: &str,
        tool: &ToolDefinition,
        pin: &Pin,
        arguments: &Map<String, Value>,
    ) -> Verdict {
        let by_rule = self.by_rule(server, &tool.name, arguments);
        let mut verdict = by_rule.unwrap_or_else(|| self.by_annotations(tool));
        if let Pin::Changed { difference } = pin
            && verdict.decision < Decision::Ask
        {
            verdict = Verdict {
                decision: Decision::Ask,
                reason: format!("its definition has changed since it was approved: {difference}"),
            };
        }
        verdict
    }

    fn by_rule(&self, server: &str, tool: &str, arguments: &Map<String, Value>) -> Option<Verdict> {
        let fits = |rule: &&Rule| rule.fits(server, tool, arguments);
        let best = self
            .rules
            .iter()
            .filter(fits)
            .max_by_key(|rule| rule.rank())?;
        Some(Verdict {
            decision: best.decision,
            reason: format!("rule `{}`", best.name),
        })
    }

    fn by_annotations(&self, tool: &ToolDefinition) -> Verdict {
        let (decision, reason) = if tool.is_read_only {
            (Decision::Allow, "it only reads")
        } else if tool.is_destructive == Some(true) {
            (
                Decision::Ask,
                "it says of itself that it may destroy something",
            )
        } else {
            let default = tool.default.or(self.default).unwrap_or(Decision::Allow);
            (
                default,
                "the default for tools that say nothing of themselves",
            )
        };
        Verdict {
            decision,
            reason: reason.to_owned(),
        }
    }
}

impl Rule {
    fn fits(&self, server: &str, tool: &str, arguments: &Map<String, Value>) -> bool {
        glob(&self.server, server)
            && glob(&self.tool, tool)
            && self
                .argument
                .as_ref()
                .is_none_or(|test| test.fits(arguments))
    }

    fn rank(&self) -> (usize, usize, bool, Decision) {
        let literal = |glob: &str| glob.chars().filter(|c| !"*?[]{}".contains(*c)).count();
        let (server, tool) = (literal(&self.server), literal(&self.tool));
        (server, tool, self.argument.is_some(), self.decision)
    }
}

impl ArgumentTest {
    fn fits(&self, arguments: &Map<String, Value>) -> bool {
        let Some(found) = pointed(arguments, &self.pointer) else {
            return false;
        };
        let text = found
            .as_str()
            .map_or_else(|| found.to_string(), str::to_owned);
        let number = found.as_f64();
        let fits = |bound: Option<f64>, test: fn(f64, f64) -> bool| {
            bound.is_none_or(|bound| number.is_some_and(|number| test(number, bound)))
        };
        self.glob
            .as_ref()
            .is_none_or(|pattern| glob(pattern, &text))
            && fits(self.min, |number, min| number >= min)
            && fits(self.max, |number, max| number <= max)
    }
}

/// The value that a JSON pointer points to.
fn pointed<'a>(arguments: &'a Map<String, Value>, pointer: &str) -> Option<&'a Value> {
    let mut parts = pointer.strip_prefix('/')?.split('/');
    let name = |part: &str| part.replace("~1", "/").replace("~0", "~");
    let mut value = arguments.get(&name(parts.next()?))?;
    for part in parts {
        value = match value {
            Value::Object(object) => object.get(&name(part))?,
            Value::Array(array) => array.get(part.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    Some(value)
}

/// Whether a text fits a glob. `*` also stands for slashes: names of servers have some, and a rule
/// on paths means everything below.
fn glob(pattern: &str, text: &str) -> bool {
    let wide = pattern.replace('/', "\u{1}");
    fast_glob::glob_match(wide.as_bytes(), text.replace('/', "\u{1}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(name: &str, server: &str, tool: &str, decision: Decision) -> Rule {
        Rule {
            name: name.to_owned(),
            server: server.to_owned(),
            tool: tool.to_owned(),
            argument: None,
            decision,
        }
    }

    fn tool(name: &str) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            ..ToolDefinition::default()
        }
    }

    fn decided(policy: &Policy, server: &str, name: &str, arguments: Value) -> Decision {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object")
        };
        let verdict = policy.decide(server, &tool(name), &Pin::Same, &arguments);
        verdict.decision
    }

    #[test]
    fn the_most_specific_rule_counts() {
        let policy = Policy {
            rules: vec![
                rule("all", "*", "*", Decision::Deny),
                rule("git", "git", "*", Decision::Allow),
                rule("push", "git", "push*", Decision::Ask),
            ],
            default: None,
        };
        assert_eq!(decided(&policy, "git", "log", json!({})), Decision::Allow);
        assert_eq!(
            decided(&policy, "git", "push_all", json!({})),
            Decision::Ask
        );
        assert_eq!(decided(&policy, "files", "read", json!({})), Decision::Deny);
    }

    #[test]
    fn of_equal_rules_the_stricter_counts() {
        let policy = Policy {
            rules: vec![
                rule("a", "x", "y", Decision::Deny),
                rule("b", "x", "y", Decision::Allow),
            ],
            default: None,
        };
        assert_eq!(decided(&policy, "x", "y", json!({})), Decision::Deny);
    }

    #[test]
    fn arguments_are_tested_by_glob_and_range() {
        let test = |pointer: &str, glob: Option<&str>, min, max| Rule {
            argument: Some(ArgumentTest {
                pointer: pointer.to_owned(),
                glob: glob.map(str::to_owned),
                min,
                max,
            }),
            ..rule("t", "s", "t", Decision::Deny)
        };
        let policy = |rule| Policy {
            rules: vec![rule],
            default: None,
        };
        let path = policy(test("/path", Some("/etc/*"), None, None));
        assert_eq!(
            decided(&path, "s", "t", json!({"path": "/etc/a/b"})),
            Decision::Deny
        );
        assert_eq!(
            decided(&path, "s", "t", json!({"path": "/tmp/a"})),
            Decision::Allow
        );
        assert_eq!(decided(&path, "s", "t", json!({})), Decision::Allow);
        let much = policy(test("/order/0/amount", None, Some(100.0), None));
        let order = |amount: u32| json!({"order": [{"amount": amount}]});
        assert_eq!(decided(&much, "s", "t", order(100)), Decision::Deny);
        assert_eq!(decided(&much, "s", "t", order(99)), Decision::Allow);
        assert_eq!(
            decided(&much, "s", "t", json!({"order": "x"})),
            Decision::Allow
        );
    }

    #[test]
    fn without_a_rule_the_tools_own_words_decide() {
        let policy = Policy::default();
        let decide =
            |tool: &ToolDefinition, pin: &Pin| policy.decide("s", tool, pin, &Map::new()).decision;
        let reads = ToolDefinition {
            is_read_only: true,
            ..tool("a")
        };
        let destroys = ToolDefinition {
            is_destructive: Some(true),
            ..tool("a")
        };
        let changed = Pin::Changed {
            difference: "description".to_owned(),
        };
        assert_eq!(decide(&reads, &Pin::Same), Decision::Allow);
        assert_eq!(decide(&destroys, &Pin::Same), Decision::Ask);
        assert_eq!(decide(&tool("a"), &Pin::New), Decision::Allow);
        assert_eq!(decide(&reads, &changed), Decision::Ask);
        let of_careful_server = ToolDefinition {
            default: Some(Decision::Deny),
            ..tool("a")
        };
        assert_eq!(decide(&of_careful_server, &Pin::Same), Decision::Deny);
        let reads_there = ToolDefinition {
            is_read_only: true,
            ..of_careful_server
        };
        assert_eq!(decide(&reads_there, &Pin::Same), Decision::Allow);
    }
}
