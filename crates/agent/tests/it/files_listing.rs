//! Pages, order, globs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::time::{Duration, Instant};

use hotcell_agent_api::v1::*;
use tonic::Code;

use crate::bench::*;

/// All pages, with the size of each.
async fn pages(bench: &Bench, request: ListRequest) -> (Vec<String>, Vec<usize>) {
    let (mut paths, mut sizes, mut cursor) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let page = ListRequest {
            cursor: cursor.into(),
            ..request.clone()
        };
        let page = bench.files.list(page).await.unwrap();
        sizes.push(page.entries.len());
        paths.extend(
            page.entries
                .iter()
                .map(|entry| String::from_utf8_lossy(&entry.path).into_owned()),
        );
        cursor = page.next_cursor.to_vec();
        if cursor.is_empty() {
            return (paths, sizes);
        }
    }
}

#[tokio::test]
async fn a_tree_is_listed_in_path_order_whatever_the_page_size() {
    let bench = Bench::in_memory();
    for path in ["a/b/c", "a/z", "a.txt", "a-/x", "b", "c/d/e/f"] {
        bench.put(path, "");
    }
    bench.link("a/link", &bench.outside);
    let expected = [
        "a", "a/b", "a/b/c", "a/link", "a/z", "a-", "a-/x", "a.txt", "b", "c", "c/d", "c/d/e",
        "c/d/e/f",
    ];
    for limit in 1..=14 {
        let (paths, sizes) = pages(
            &bench,
            ListRequest {
                limit,
                ..list("", true)
            },
        )
        .await;
        assert_eq!(paths, expected, "limit {limit}");
        assert!(
            sizes
                .iter()
                .all(|size| *size <= limit as usize && *size > 0)
        );
    }
    let (paths, _) = pages(
        &bench,
        ListRequest {
            limit: 2,
            ..list("c", true)
        },
    )
    .await;
    assert_eq!(paths, ["c/d", "c/d/e", "c/d/e/f"]);
    let (paths, _) = pages(
        &bench,
        ListRequest {
            limit: 2,
            ..list("", false)
        },
    )
    .await;
    assert_eq!(paths, ["a", "a-", "a.txt", "b", "c"]);
}

#[tokio::test]
async fn five_thousand_entries_come_in_pages_each_once() {
    let bench = Bench::in_memory();
    for n in 0..5000 {
        bench.put(&format!("many/{n:05}"), "");
    }
    let expected: Vec<_> = (0..5000).map(|n| format!("many/{n:05}")).collect();
    let (paths, sizes) = pages(&bench, list("many", false)).await;
    assert_eq!((paths, sizes), (expected, vec![1000; 5]));
}

#[tokio::test]
async fn a_page_is_bounded_in_bytes_too() {
    let bench = Bench::in_memory();
    for n in 0..300 {
        let target = "t/".repeat(2000);
        std::os::unix::fs::symlink(target, bench.root.join(format!("{n:03}"))).unwrap();
    }
    let (paths, sizes) = pages(&bench, list("", false)).await;
    assert_eq!(paths.len(), 300);
    assert!(sizes.len() > 1 && sizes.iter().all(|size| size * 4000 <= 1 << 20));
}

#[tokio::test]
async fn a_cursor_survives_the_removal_of_what_it_names() {
    let bench = Bench::in_memory();
    for path in ["a/x", "b/y", "c"] {
        bench.put(path, "");
    }
    let after = |cursor: &str| ListRequest {
        cursor: cursor.to_owned().into(),
        ..list("", true)
    };
    bench.delete("b", true).await.unwrap();
    assert_eq!(bench.list(after("b/y")).await.unwrap(), [b"c"]);
    assert_eq!(bench.list(after("a/x/gone/deeper")).await.unwrap(), [b"c"]);
    assert_eq!(
        code(bench.list(after("../x")).await),
        Code::PermissionDenied
    );
    assert_eq!(
        code(
            bench
                .list(ListRequest {
                    recursive: false,
                    ..after("a/x")
                })
                .await
        ),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn a_glob_is_matched_against_the_path_below_the_listed_directory() {
    let bench = Bench::in_memory();
    for path in ["src/main.rs", "src/lib/a.rs", "src/lib/a.py", "readme.md"] {
        bench.put(path, "");
    }
    let globbed = |glob: &str, path: &str| ListRequest {
        glob: glob.to_owned(),
        ..list(path, true)
    };
    assert_eq!(
        bench.list(globbed("**/*.rs", "")).await.unwrap(),
        [&b"src/lib/a.rs"[..], b"src/main.rs"]
    );
    assert_eq!(
        bench.list(globbed("*.rs", "src")).await.unwrap(),
        [b"src/main.rs"]
    );
    assert_eq!(
        bench
            .list(globbed("lib/*.{rs,py}", "src"))
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        code(bench.list(globbed("{a", "")).await),
        Code::InvalidArgument
    );
    assert_eq!(
        code(bench.list(globbed(&"a".repeat(1025), "")).await),
        Code::InvalidArgument
    );
    assert_eq!(
        code(bench.list(globbed(&"{a,*}".repeat(10), "")).await),
        Code::InvalidArgument
    );
    for limit in [0, 1001] {
        assert_eq!(
            code(
                bench
                    .list(ListRequest {
                        limit,
                        ..list("", false)
                    })
                    .await
            ),
            Code::InvalidArgument
        );
    }
    assert_eq!(
        code(bench.list(list("readme.md", false)).await),
        Code::FailedPrecondition
    );
    assert_eq!(
        code(bench.list(list("missing", false)).await),
        Code::NotFound
    );
}

#[tokio::test]
async fn a_page_that_would_take_too_long_ends_early_with_a_cursor() {
    let bench = Bench::in_memory();
    let dir = vec!["a".repeat(250); 15].join("/");
    for n in 0..300 {
        bench.put(&format!("{dir}/{}{n:03}", "a".repeat(200)), "");
    }
    let glob = format!("**/{{{}}}b", ["*a*"; 64].join(","));
    let request = ListRequest {
        glob,
        ..list("", true)
    };
    let started = Instant::now();
    bench.files.list(request).await.unwrap();
    // Generous, because the machine may be busy.
    assert!(
        started.elapsed() < Duration::from_mins(2),
        "{:?}",
        started.elapsed()
    );
}
