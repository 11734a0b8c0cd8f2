//! Asking the user about a call of a script.

use async_trait::async_trait;
use hotcell_codemode::{Asked, Asker, Question};
use serde_json::json;

use crate::asking::{Filled, Form, Forms};

#[async_trait]
impl Asker for Forms {
    async fn ask(&self, question: Question) -> Asked {
        decided(&Self::ask(self, form(&question)).await)
    }
}

/// The form that the user sees. Names and arguments are others' words, so they are on lines of
/// their own.
fn form(question: &Question) -> Form {
    let message = format!(
        "A script wants to call a tool of another MCP server.\nserver: {}\ntool: {}\narguments: {}\nreason: {}",
        plain(&question.server),
        plain(&question.tool),
        plain(&question.arguments),
        plain(&question.reason),
    );
    let schema = json!({
        "type": "object",
        "properties": {
            "allow": {"type": "boolean", "title": "Allow this call", "default": false},
        },
        "required": ["allow"],
    });
    Form { message, schema }
}

fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Only a form that was sent with `allow` set is a yes.
fn decided(filled: &Filled) -> Asked {
    match filled {
        Filled::Sent(content) if content.get("allow") == Some(&json!(true)) => Asked::Yes,
        Filled::Sent(_) | Filled::Declined => Asked::No,
        Filled::Nobody => Asked::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_form_that_allows_is_a_yes() {
        let sent = |content| decided(&Filled::Sent(content));
        assert_eq!(sent(json!({"allow": true})), Asked::Yes);
        for content in [json!({"allow": false}), json!({"allow": "true"}), json!(7)] {
            assert_eq!(sent(content), Asked::No);
        }
        assert_eq!(decided(&Filled::Declined), Asked::No);
        assert_eq!(decided(&Filled::Nobody), Asked::Nobody);
    }
}
