//! Prompts for common tasks, for clients that offer them.

mod run_tests;
mod setup_node;
mod setup_python;

use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::Value;

/// The longest argument.
const ARGUMENT_BYTES_MAX: usize = 4096;

/// A text with placeholders.
struct PromptSpec {
    name: &'static str,
    description: &'static str,
    arguments: &'static [Argument],
    text: fn(Values<'_>) -> String,
}

/// Looks up the value of an argument.
type Values<'a> = &'a dyn Fn(&str) -> Option<String>;

/// An argument that a user may fill in.
struct Argument {
    name: &'static str,
    description: &'static str,
    is_required: bool,
}

const OFFERED: [PromptSpec; 3] = [setup_python::PROMPT, setup_node::PROMPT, run_tests::PROMPT];

/// The container to work in.
const CONTAINER: Argument = Argument {
    name: "container_id",
    description: "Container id or alias; empty: a new one",
    is_required: false,
};

pub(crate) fn list() -> Vec<Prompt> {
    OFFERED.iter().map(PromptSpec::listed).collect()
}

pub(crate) fn get(name: &str, arguments: &JsonObject) -> Result<GetPromptResult, ErrorData> {
    let mut offered = OFFERED.iter();
    let offered = offered
        .find(|offered| offered.name == name)
        .ok_or_else(|| {
            let name = crate::text::truncate(name, 64);
            ErrorData::invalid_params(format!("unknown prompt: {name}"), None)
        })?;
    offered.check(arguments)?;
    let value = |name: &str| {
        let text = arguments.get(name).and_then(Value::as_str).map(str::trim);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let message = PromptMessage::new_text(Role::User, (offered.text)(&value));
    Ok(GetPromptResult::new(vec![message]).with_description(offered.description))
}

impl PromptSpec {
    fn listed(&self) -> Prompt {
        let arguments = self.arguments.iter().map(|argument| {
            PromptArgument::new(argument.name)
                .with_description(argument.description)
                .with_required(argument.is_required)
        });
        Prompt::new(self.name, Some(self.description), Some(arguments.collect()))
    }

    fn check(&self, arguments: &JsonObject) -> Result<(), ErrorData> {
        for argument in self
            .arguments
            .iter()
            .filter(|argument| argument.is_required)
        {
            if !arguments.contains_key(argument.name) {
                return Err(refused(argument.name, "is missing"));
            }
        }
        for (name, value) in arguments {
            let is_known = self.arguments.iter().any(|argument| argument.name == name);
            let is_text = value
                .as_str()
                .is_some_and(|text| text.len() <= ARGUMENT_BYTES_MAX);
            if !is_known {
                return Err(refused(
                    crate::text::truncate(name, 64),
                    "is not an argument of this prompt",
                ));
            }
            if !is_text {
                return Err(refused(name, "must be a short text"));
            }
        }
        Ok(())
    }
}

fn refused(name: &str, why: &str) -> ErrorData {
    ErrorData::invalid_params(format!("`{name}` {why}"), None)
}

/// The first step of every prompt.
fn container_step(container: Option<String>) -> String {
    container.map_or_else(
        || {
            "Make a container with spawn (persistent=true) and use its container_id below."
                .to_owned()
        },
        |container| format!("Work in the container `{container}`."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, arguments: &Value) -> Result<String, ErrorData> {
        let result = get(name, arguments.as_object().unwrap())?;
        Ok(result.messages[0].content.as_text().unwrap().text.clone())
    }

    #[test]
    fn a_prompt_names_the_container_it_is_about() {
        for prompt in list() {
            let said = text(&prompt.name, &serde_json::json!({"container_id": "my-app"})).unwrap();
            assert!(said.contains("`my-app`"), "{said}");
        }
    }

    #[test]
    fn unknown_prompts_and_arguments_are_refused() {
        assert!(text("nothing", &serde_json::json!({})).is_err());
        assert!(text("setup_node", &serde_json::json!({"what": "x"})).is_err());
        assert!(text("setup_node", &serde_json::json!({"container_id": 5})).is_err());
    }
}
