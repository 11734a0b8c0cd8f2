//! Tests that no method bypasses the guard, and how operations are counted.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Methods of the service that do nothing for a caller. One more here needs a reason.
const WITHOUT_OPERATION: [&str; 12] = [
    "auth_failed",
    "code_output_chars_max",
    "default_image",
    "default_profile",
    "image_aliases",
    "is_ready",
    "is_unrecordable",
    "maxima",
    "next_egress_offer",
    "resolve_image",
    "responds",
    "stop",
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The name of the function that a line begins, if it does.
fn function_name(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    let is_declared =
        line.trim_start().starts_with("pub") || line.trim_start().starts_with("async");
    let end = rest.find(['(', '<'])?;
    is_declared.then(|| &rest[..end])
}

#[test]
fn only_what_does_nothing_for_a_caller_goes_past_the_guard() {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    let mut past = Vec::new();
    for file in files
        .iter()
        .filter(|file| !file.ends_with("operation.rs") && !file.ends_with("operation/tests.rs"))
    {
        let text = fs::read_to_string(file).unwrap();
        let mut function = "";
        for line in text.lines() {
            function = function_name(line).unwrap_or(function);
            if line.contains("without_operation()") {
                past.push(function.to_owned());
            }
        }
    }
    past.sort();
    assert_eq!(past, WITHOUT_OPERATION);
}

#[test]
fn each_action_has_a_name_of_its_own() {
    for action in Action::ALL {
        assert_eq!(Action::of_tool(action.as_str()), Some(action));
    }
    assert_eq!(Action::of_tool("unlink"), None);
}
