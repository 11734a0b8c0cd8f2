//! The list of metrics in the documentation is the list of metrics there are.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// Name, type and help of each metric, as `/metrics` has them.
fn registered() -> BTreeMap<String, (String, String)> {
    let metrics = Metrics::default();
    // Families show themselves with their first series.
    metrics.operation_ended(Action::Metrics, Outcome::Ok, Duration::ZERO);
    metrics.engine.count_for_test();
    let packages = hotcell_egress::ProfileName::packages();
    metrics.egress.opened(&packages);
    metrics.egress.asked(&packages, "asked");
    metrics.egress.closed(&packages, 1, 1);
    let text = metrics.text(&Now::default());
    let mut all: BTreeMap<String, (String, String)> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let (Some("#"), Some(kind), Some(name), Some(rest)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let entry = all.entry(name.to_owned()).or_default();
        match kind {
            "TYPE" => rest.clone_into(&mut entry.0),
            "HELP" => rest.clone_into(&mut entry.1),
            _ => {}
        }
    }
    all
}

/// A row of the table; a counter is written with the ending that samples have.
fn row((name, (kind, help)): (&String, &(String, String))) -> String {
    let ending = if kind == "counter" { "_total" } else { "" };
    format!("| `{name}{ending}` | {kind} | {help} |")
}

#[test]
fn the_documentation_lists_every_metric_with_its_type_and_help() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/METRICS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let documented: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let registered: Vec<String> = registered().iter().map(row).collect();
    assert_eq!(
        documented,
        registered,
        "docs/METRICS.md should have these rows:\n{}",
        registered.join("\n")
    );
}

#[test]
fn every_name_is_a_known_one_or_ours() {
    let all = registered();
    assert!(all.len() > 25, "{}", all.len());
    for (name, (kind, help)) in &all {
        assert!(
            name.starts_with("mcp_devbench_") || name.starts_with("hotcell_"),
            "{name}"
        );
        assert!(!kind.is_empty() && help.len() > 10, "{name}");
    }
}
