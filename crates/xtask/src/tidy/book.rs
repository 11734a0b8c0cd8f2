//! Checks the documents: each link leads to a file and a heading that exist, and each page of docs is
//! in the book's summary.

use super::Source;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Complaints about the documents.
pub(crate) fn complaints(sources: &[Source]) -> Vec<String> {
    let pages = sources.iter().filter(|source| is_page(&source.path));
    let mut complaints: Vec<String> = pages.flat_map(|page| broken(page, sources)).collect();
    let Some(summary) = sources.iter().find(|source| source.path == SUMMARY) else {
        return complaints;
    };
    let chapters: Vec<String> = links(&summary.text)
        .filter_map(|link| resolved(SUMMARY, link))
        .collect();
    let pages = sources.iter().map(|source| &source.path);
    let missing = pages.filter(|path| {
        let is_chapter = is_page(path) && path.starts_with("docs/") && *path != SUMMARY;
        is_chapter && !chapters.contains(path)
    });
    complaints.extend(missing.map(|path| format!("{path} is not in {SUMMARY}")));
    complaints
}

fn is_page(path: &str) -> bool {
    std::path::Path::new(path)
        .extension()
        .is_some_and(|end| end == "md")
}

/// The links of a page that lead nowhere.
fn broken(page: &Source, sources: &[Source]) -> Vec<String> {
    let leads_nowhere = |link: &&str| {
        let Some(path) = resolved(&page.path, link) else {
            return !is_elsewhere(link);
        };
        let below = format!("{path}/");
        let target = sources.iter().find(|source| source.path == path);
        let anchor = link.split_once('#').map(|(_, anchor)| anchor);
        match (target, anchor) {
            (Some(target), Some(anchor)) => {
                !headings(&target.text).any(|heading| heading == anchor)
            }
            (Some(_), None) => false,
            (None, _) => !sources.iter().any(|source| source.path.starts_with(&below)),
        }
    };
    let bad = links(&page.text).filter(leads_nowhere);
    bad.map(|link| format!("{}: the link `{link}` leads nowhere", page.path))
        .collect()
}

fn is_elsewhere(link: &str) -> bool {
    ["http://", "https://", "mailto:"]
        .iter()
        .any(|start| link.starts_with(start))
}

/// The targets of `[text](target)` outside of code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    outside_code(text).flat_map(|line| {
        // Every second piece is code.
        line.split('`').step_by(2).flat_map(|piece| {
            piece
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
        })
    })
}

fn outside_code(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The path from the repository's root that a link of `page` leads to; `None` if it leaves the repository.
fn resolved(page: &str, link: &str) -> Option<String> {
    if is_elsewhere(link) {
        return None;
    }
    let path = link.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return Some(page.to_owned());
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let headings = outside_code(text).filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(page: &str, summary: &str) -> Vec<String> {
        complaints(&[
            Source::of("docs/guide/a.md", page),
            Source::of(SUMMARY, summary),
            Source::of("docs/adr/0001-x.md", "# X\n"),
            Source::of("README.md", "# Top\n## How fast, then?\n"),
        ])
    }

    const WHOLE: &str = "[A](guide/a.md)\n[X](adr/0001-x.md)\n";

    #[test]
    fn links_that_lead_somewhere_pass() {
        let page = "# A\n[a](../../README.md) [b](../../README.md#how-fast-then) [c](#a) [d](https://x.example/y) [e](../adr)\n\
                    `[code](nowhere)`\n```\n[code](nowhere)\n```\n[f](../adr/0001-x.md)\n";
        assert_eq!(of(page, WHOLE), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_named() {
        for link in [
            "b.md",
            "../../README.md#how-slow",
            "#b",
            "../../../outside.md",
            "",
        ] {
            let said = of(&format!("# A\n[x]({link}z)\n"), WHOLE);
            assert_eq!(said.len(), 1, "{link}");
        }
    }

    #[test]
    fn a_page_that_is_in_no_chapter_is_named() {
        assert_eq!(
            of("# A\n", "[X](adr/0001-x.md)\n"),
            ["docs/guide/a.md is not in docs/SUMMARY.md"]
        );
    }
}
