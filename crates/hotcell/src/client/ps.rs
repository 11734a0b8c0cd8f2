//! `hotcell ps`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Server;
use super::print_json;
use crate::cli::PsArgs;
use crate::terminal::{self, plain};

#[derive(Deserialize)]
struct ContainerList {
    containers: Vec<Value>,
}

/// Headings and fields; the first only where several principals are shown.
const WITH_OWNER: [(&str, &str); 7] = [
    ("PRINCIPAL", "principal"),
    ("CONTAINER", "container_id"),
    ("ALIAS", "alias"),
    ("IMAGE", "image"),
    ("STATUS", "status"),
    ("CREATED", "created_at"),
    ("EXPIRES", "expires_at"),
];

pub(super) async fn ps(arguments: &PsArgs) -> Result<ExitCode> {
    let server = Server::connect(&arguments.state).await?;
    let asked = json!({ "include_stopped": arguments.all, "all": arguments.all });
    let listed: ContainerList = server.call("list_containers", asked).await?;
    if arguments.json {
        print_json(&json!({ "containers": listed.containers })).await?;
    } else {
        let columns = if arguments.all {
            &WITH_OWNER[..]
        } else {
            &WITH_OWNER[1..]
        };
        let table = table(columns, &listed.containers);
        let written = terminal::write(tokio::io::stdout(), table.as_bytes()).await;
        written.context("write to stdout")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Columns as wide as their widest cell.
fn table(columns: &[(&str, &str)], containers: &[Value]) -> String {
    let heading = columns.iter().map(|(heading, _)| (*heading).to_owned());
    let cell = |container: &Value, field: &str| match &container[field] {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text).replace('\n', " "),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    let row = |container| {
        columns
            .iter()
            .map(|(_, field)| cell(container, field))
            .collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(heading.collect())
        .chain(containers.iter().map(row))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_what_is_missing_is_a_dash() {
        let containers = [
            json!({"container_id": "c_1", "alias": "a-long-alias", "image": "host", "status": "running", "created_at": "2026-01-01T00:00:00Z"}),
        ];
        assert_eq!(
            table(&WITH_OWNER[1..], &containers),
            "CONTAINER  ALIAS         IMAGE  STATUS   CREATED               EXPIRES\n\
             c_1        a-long-alias  host   running  2026-01-01T00:00:00Z  -\n"
        );
    }
}
