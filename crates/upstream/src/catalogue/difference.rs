//! What changed between two definitions of one tool, line by line.

use serde_json::Value;

use crate::definition::ToolDefinition;

/// Lines that are shown; the rest is counted.
const LINES_MAX: usize = 80;
/// Lines of each side that are compared; beyond them a part is shown as replaced.
const COMPARED_LINES_MAX: usize = 400;

/// `- ` before what was approved, `+ ` before what there is now.
pub(super) fn difference(before: &ToolDefinition, now: &ToolDefinition) -> String {
    let mut lines = Vec::new();
    let parts = [
        (
            "title",
            text(before.title.as_deref()),
            text(now.title.as_deref()),
        ),
        (
            "description",
            text(before.description.as_deref()),
            text(now.description.as_deref()),
        ),
        (
            "input schema",
            json(Some(&before.input_schema)),
            json(Some(&now.input_schema)),
        ),
        (
            "output schema",
            json(before.output_schema.as_ref()),
            json(now.output_schema.as_ref()),
        ),
        ("annotations", annotations(before), annotations(now)),
    ];
    for (part, old, new) in parts {
        if old != new {
            lines.push(format!("{part}:"));
            compare(&old, &new, &mut lines);
        }
    }
    if lines.is_empty() {
        return "something in the definition that is not shown (cut off, or other characters)"
            .to_owned();
    }
    let left_out = lines.len().saturating_sub(LINES_MAX);
    lines.truncate(LINES_MAX);
    if left_out > 0 {
        lines.push(format!("… {left_out} more lines"));
    }
    lines.join("\n")
}

fn text(text: Option<&str>) -> Vec<String> {
    text.map(|text| text.lines().map(str::to_owned).collect())
        .unwrap_or_default()
}

fn json(value: Option<&Value>) -> Vec<String> {
    let pretty = value
        .and_then(|value| serde_json::to_string_pretty(value).ok())
        .unwrap_or_default();
    let escaped = crate::text::quoted(&pretty, usize::MAX);
    escaped.lines().map(str::to_owned).collect()
}

fn annotations(tool: &ToolDefinition) -> Vec<String> {
    let hints = tool.annotations;
    let hints = [
        ("readOnlyHint", hints.read_only_hint),
        ("destructiveHint", hints.destructive_hint),
        ("idempotentHint", hints.idempotent_hint),
        ("openWorldHint", hints.open_world_hint),
    ];
    let said = hints
        .into_iter()
        .filter_map(|(name, hint)| Some(format!("{name}: {}", hint?)));
    said.collect()
}

/// The longest common subsequence, if both sides are short enough for it.
fn compare(old: &[String], new: &[String], lines: &mut Vec<String>) {
    if old.len() > COMPARED_LINES_MAX || new.len() > COMPARED_LINES_MAX {
        lines.extend(old.iter().map(|line| format!("- {line}")));
        lines.extend(new.iter().map(|line| format!("+ {line}")));
        return;
    }
    let lengths = common_lengths(old, new);
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || lengths[i + 1][j] >= lengths[i][j + 1]) {
            lines.push(format!("- {}", old[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", new[j]));
            j += 1;
        }
    }
}

fn common_lengths(old: &[String], new: &[String]) -> Vec<Vec<u32>> {
    let mut lengths = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i][j] = if old[i] == new[j] {
                lengths[i + 1][j + 1] + 1
            } else {
                lengths[i + 1][j].max(lengths[i][j + 1])
            };
        }
    }
    lengths
}
