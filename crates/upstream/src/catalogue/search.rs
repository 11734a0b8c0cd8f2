//! BM25 over the names, descriptions and argument names of tools.
//!
//! Words are lower case, split at case changes, digits and punctuation, and without a plural `s`. A
//! word of the query also finds longer words that begin with it, for less.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::definition::{Definitions, ToolDefinition};
use crate::name::ServerName;

/// How soon more of the same word stops to matter.
const K1: f32 = 1.2;
/// How much a long text counts against its words.
const B: f32 = 0.75;
/// How often a word counts where it stands.
const NAME_WEIGHT: f32 = 4.0;
const SERVER_WEIGHT: f32 = 2.0;
const TITLE_WEIGHT: f32 = 2.0;
const ARGUMENT_WEIGHT: f32 = 1.5;
const DESCRIPTION_WEIGHT: f32 = 1.0;
/// What a word that only begins as asked counts.
const PREFIX_WEIGHT: f32 = 0.4;
/// The shortest beginning that finds longer words.
const PREFIX_CHARS_MIN: usize = 3;
/// Words of a query that are used; words that a beginning finds.
const QUERY_WORDS_MAX: usize = 32;
const PREFIX_WORDS_MAX: usize = 64;
/// Words of one description that are indexed, and letters of one word.
const DESCRIPTION_WORDS_MAX: usize = 400;
const WORD_BYTES_MAX: usize = 40;

/// A tool that matches.
#[derive(Debug, Clone)]
pub struct Hit {
    /// Whose it is.
    pub server: ServerName,
    /// How well it matches; only good to compare within one search.
    pub score: f32,
    definitions: Arc<Definitions>,
    index: usize,
}

impl Hit {
    /// The tool.
    pub fn tool(&self) -> &ToolDefinition {
        &self.definitions.tools[self.index]
    }
}

struct Document {
    server: usize,
    tool: usize,
    length: f32,
}

/// An index over everything that is known.
pub(super) struct Index {
    servers: Vec<(ServerName, Arc<Definitions>)>,
    documents: Vec<Document>,
    /// Where each word stands, and how much it counts there.
    words: BTreeMap<String, Vec<(u32, f32)>>,
    mean_length: f32,
}

impl Index {
    pub(super) fn new(mut servers: Vec<(ServerName, Arc<Definitions>)>) -> Self {
        servers.sort_by(|one, other| one.0.cmp(&other.0));
        let (mut documents, mut words) = (Vec::new(), BTreeMap::<String, Vec<(u32, f32)>>::new());
        for (server, (name, definitions)) in servers.iter().enumerate() {
            let server_words = words_of(name.as_str());
            for (tool, definition) in definitions.tools.iter().enumerate() {
                let counts = counts(definition, &server_words);
                let length = counts.values().sum();
                let number = u32::try_from(documents.len()).unwrap_or(u32::MAX);
                for (word, count) in counts {
                    words.entry(word).or_default().push((number, count));
                }
                documents.push(Document {
                    server,
                    tool,
                    length,
                });
            }
        }
        let total: f32 = documents.iter().map(|document| document.length).sum();
        let mean_length = total / as_f32(documents.len().max(1));
        Self {
            servers,
            documents,
            words,
            mean_length: mean_length.max(1.0),
        }
    }

    /// The best first; of equals in the order of names.
    pub(super) fn search(&self, query: &str, servers: &[ServerName], limit: usize) -> Vec<Hit> {
        let wanted: HashSet<&ServerName> = servers.iter().collect();
        let is_wanted: Vec<bool> = self
            .servers
            .iter()
            .map(|(name, _)| wanted.contains(name))
            .collect();
        let mut scores: HashMap<u32, f32> = HashMap::new();
        let mut asked = words_of(query);
        asked.truncate(QUERY_WORDS_MAX);
        asked.sort();
        asked.dedup();
        for word in &asked {
            self.add(word, 1.0, &mut scores);
            if word.len() >= PREFIX_CHARS_MIN {
                let longer = self.words.range(word.clone()..).map(|(found, _)| found);
                let longer = longer
                    .take_while(|found| found.starts_with(word.as_str()))
                    .filter(|found| *found != word);
                for found in longer.take(PREFIX_WORDS_MAX) {
                    self.add(found, PREFIX_WEIGHT, &mut scores);
                }
            }
        }
        let mut best: Vec<(u32, f32)> = scores
            .into_iter()
            .filter(|(number, _)| is_wanted[self.document(*number).server])
            .collect();
        best.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        best.truncate(limit);
        best.into_iter()
            .map(|(number, score)| self.hit(number, score))
            .collect()
    }

    fn add(&self, word: &str, weight: f32, scores: &mut HashMap<u32, f32>) {
        let Some(places) = self.words.get(word) else {
            return;
        };
        let (all, with) = (as_f32(self.documents.len()), as_f32(places.len()));
        let rarity = ((all - with + 0.5) / (with + 0.5)).ln_1p();
        for (number, count) in places {
            let length = self.document(*number).length / self.mean_length;
            let often = count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
            *scores.entry(*number).or_default() += weight * rarity * often;
        }
    }

    fn document(&self, number: u32) -> &Document {
        &self.documents[usize::try_from(number).unwrap_or(usize::MAX)]
    }

    fn hit(&self, number: u32, score: f32) -> Hit {
        let document = self.document(number);
        let (server, definitions) = &self.servers[document.server];
        Hit {
            server: server.clone(),
            score,
            definitions: Arc::clone(definitions),
            index: document.tool,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of tools are small")]
fn as_f32(count: usize) -> f32 {
    count as f32
}

/// How much each word of a tool counts.
fn counts(tool: &ToolDefinition, server: &[String]) -> HashMap<String, f32> {
    let mut counts: HashMap<String, f32> = HashMap::new();
    let mut add = |words: Vec<String>, weight: f32| {
        for word in words {
            *counts.entry(word).or_default() += weight;
        }
    };
    add(words_of(&tool.name), NAME_WEIGHT);
    add(server.to_vec(), SERVER_WEIGHT);
    add(
        tool.title.as_deref().map(words_of).unwrap_or_default(),
        TITLE_WEIGHT,
    );
    let mut description = tool
        .description
        .as_deref()
        .map(words_of)
        .unwrap_or_default();
    description.truncate(DESCRIPTION_WORDS_MAX);
    add(description, DESCRIPTION_WEIGHT);
    if let Some(properties) = tool.input_schema["properties"].as_object() {
        for name in properties.keys() {
            add(words_of(name), ARGUMENT_WEIGHT);
        }
    }
    counts
}

/// `readFile_v2s` is `read`, `file`, `v`, `2`; nobody asks for the plural.
fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut last) = (String::new(), Kind::Other);
    for c in text.chars() {
        let kind = Kind::of(c);
        let begins = kind != last && !(last == Kind::Upper && kind == Kind::Lower);
        if begins || word.len() >= WORD_BYTES_MAX {
            push(&mut words, &mut word);
        }
        if kind != Kind::Other {
            word.extend(c.to_lowercase());
        }
        last = kind;
    }
    push(&mut words, &mut word);
    words
}

fn push(words: &mut Vec<String>, word: &mut String) {
    if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    if !word.is_empty() {
        words.push(std::mem::take(word));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Other,
}

impl Kind {
    fn of(c: char) -> Self {
        if c.is_numeric() {
            Self::Digit
        } else if c.is_uppercase() {
            Self::Upper
        } else if c.is_alphabetic() {
            Self::Lower
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str, arguments: &[&str]) -> ToolDefinition {
        let properties: serde_json::Map<_, _> = arguments
            .iter()
            .map(|name| ((*name).to_owned(), json!({})))
            .collect();
        ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: Some(description.to_owned()),
            input_schema: json!({ "type": "object", "properties": properties }),
            output_schema: None,
            annotations: crate::Annotations::default(),
            hash: [0; 32],
        }
    }

    fn found(query: &str, servers: &[&str]) -> Vec<String> {
        let name = |name: &str| ServerName::parse(name).unwrap();
        let files = Definitions {
            tools: vec![
                tool("read_file", "Reads a file as text", &["path"]),
                tool("writeFile", "Replaces a file", &["path", "content"]),
                tool(
                    "list_directory",
                    "Lists what a directory contains",
                    &["path"],
                ),
            ],
            ..Definitions::default()
        };
        let git = Definitions {
            tools: vec![
                tool(
                    "create_issue",
                    "Opens a ticket in a repository",
                    &["repository", "assignees"],
                ),
                tool(
                    "search",
                    "Finds repositories; a long text that mentions a file once and goes on and on",
                    &["q"],
                ),
            ],
            ..Definitions::default()
        };
        let index = Index::new(vec![
            (name("git"), Arc::new(git)),
            (name("files"), Arc::new(files)),
        ]);
        let servers: Vec<_> = servers.iter().map(|server| name(server)).collect();
        index
            .search(query, &servers, 3)
            .iter()
            .map(|hit| hit.tool().name.clone())
            .collect()
    }

    #[test]
    fn the_best_match_is_first() {
        let all = &["files", "git"];
        assert_eq!(found("read a file", all)[0], "read_file");
        assert_eq!(found("file write", all)[0], "writeFile");
        assert_eq!(found("ticket", all), ["create_issue"]);
        assert_eq!(found("assignee", all), ["create_issue"]);
        assert_eq!(found("repos", all)[0], "create_issue");
        assert_eq!(found("xyzzy", all), Vec::<String>::new());
        assert_eq!(found("", all), Vec::<String>::new());
    }

    #[test]
    fn only_servers_asked_for_are_searched() {
        assert_eq!(found("file", &["git"]), ["search"]);
        assert_eq!(found("file", &[]), Vec::<String>::new());
    }

    #[test]
    fn words_end_where_the_case_or_the_kind_changes() {
        assert_eq!(
            words_of("readFile_v2 HTTPServers übung"),
            ["read", "file", "v", "2", "httpserver", "übung"]
        );
        assert_eq!(words_of("class classes bus"), ["class", "classe", "bus"]);
    }
}
