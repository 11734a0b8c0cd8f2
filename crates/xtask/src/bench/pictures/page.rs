//! The measured part of `docs/BENCHMARKS.md`, between two marks; what people wrote around it stays.

use std::path::Path;

use anyhow::{Context, Result};

use super::Drawn;
use crate::bench::host::{Host, version_of};
use crate::bench::readme::shown;
use crate::bench::samples::{Samples, Summary};

const BEGIN: &str = "<!-- measured: xtask bench pictures --write -->";
const END: &str = "<!-- measured: end -->";

/// Writes the pictures and replaces the measured part of the page.
pub(super) fn write(docs: &Path, program: &Path, drawn: &[Drawn]) -> Result<()> {
    let pictures = docs.join("pictures");
    std::fs::create_dir_all(&pictures)?;
    for one in drawn {
        std::fs::write(pictures.join(one.file), &one.svg)?;
    }
    let path = docs.join("BENCHMARKS.md");
    let page = std::fs::read_to_string(&path).context("read docs/BENCHMARKS.md")?;
    let measured = format!("{}{}", host(program), chapters(drawn));
    let page = replaced(&page, &measured).context("docs/BENCHMARKS.md has no marks")?;
    std::fs::write(&path, page).context("write docs/BENCHMARKS.md")
}

/// The page with another measured part.
fn replaced(page: &str, measured: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{measured}{END}{after}"))
}

fn host(program: &Path) -> String {
    let host = Host::look();
    let version = |program: &str| version_of(program).unwrap_or_else(|| "not installed".to_owned());
    format!(
        "| host | |\n|---|---|\n| processors | {} × {} |\n| memory | {} GiB |\n| kernel | {}, cgroup {} |\n| system | {} |\n\
         | load when it ended | {} |\n| Hotcell | {} |\n| Docker | {} |\n| Podman | {} |\n\n",
        host.processors,
        host.model,
        host.memory_gib,
        host.kernel,
        host.cgroups,
        host.system,
        host.load,
        version(&program.to_string_lossy()),
        version("docker"),
        version("podman"),
    )
}

fn chapters(drawn: &[Drawn]) -> String {
    drawn.iter().map(chapter).collect()
}

fn chapter(drawn: &Drawn) -> String {
    let Drawn {
        file,
        heading,
        text,
        samples,
        table,
        ..
    } = drawn;
    let mut lines = table.clone();
    lines.extend(samples.iter().flat_map(rows));
    format!(
        "## {heading}\n\n![{heading}](pictures/{file})\n\n{text}\n\n{}\n\n",
        lines.join("\n")
    )
}

fn rows(samples: &Samples) -> Vec<String> {
    let mut lines = vec![
        "| | p50 | 95 % interval of p50 | p95 | p99 | rounds |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(samples.summaries().map(|(row, one)| {
        let Summary {
            p50,
            p95,
            p99,
            median,
            rounds,
        } = one;
        let median = median.map_or("–".to_owned(), |(low, high)| {
            format!("{} – {}", shown(low), shown(high))
        });
        format!(
            "| {row} | {} | {median} | {} | {} | {rounds} |",
            shown(p50),
            shown(p95),
            shown(p99)
        )
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_people_wrote_around_the_figures_stays() {
        let page = format!("# Title\nbefore\n{BEGIN}\nold\n{END}\nafter\n");
        let page = replaced(&page, "new\n").expect("it has marks");
        assert_eq!(
            page,
            format!("# Title\nbefore\n{BEGIN}\n\nnew\n{END}\nafter\n")
        );
        assert_eq!(replaced("no marks", "new"), None);
    }

    #[test]
    fn a_chapter_has_a_picture_and_each_figure() {
        let mut samples = Samples::default();
        for ms in 1..=10 {
            samples.add("ours", Duration::from_millis(ms));
        }
        let said = chapter(&Drawn {
            file: "x.svg",
            heading: "Heading",
            text: "Text.".to_owned(),
            svg: String::new(),
            samples: Some(samples),
            table: Vec::new(),
        });
        assert!(said.contains("![Heading](pictures/x.svg)"), "{said}");
        assert!(
            said.contains("| ours | 6.0 ms | 2.0 ms – 9.0 ms | 10 ms | 10 ms | 10 |"),
            "{said}"
        );
    }
}
