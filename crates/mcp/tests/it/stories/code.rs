//! `execute_code`, `sandbox_read_file`, `sandbox_write_file`, `sandbox_list_files`.

use serde_json::{Value, json};

use crate::world::{World, call, ok, refused, shown, somebody};

/// A value with what differs from run to run masked.
fn told(value: &Value) -> String {
    let mut value = value.clone();
    value["duration_ms"] = "N".into();
    shown(&value)
}

#[tokio::test]
async fn a_snippet_is_one_call() {
    let world = World::new().await;
    let client = world.client().await;
    let code = "import sys; print('hello'); print('oops', file=sys.stderr); sys.exit(3)";
    let said = ok(&client, "execute_code", json!({ "code": code })).await;
    let text = said.text.replace(|c: char| c.is_ascii_digit(), "N");
    insta::assert_snapshot!(text.replace("NN", "N").replace("NN", "N"), @r"
    hello
    [stderr]
    oops
    [failed; exit code N; N ms; session default (new)]
    ");
    insta::assert_snapshot!(told(&said.structured), @r#"
    {
      "artifacts": [],
      "duration_ms": "N",
      "exit_code": 3,
      "session": "default",
      "session_is_new": true,
      "status": "failed",
      "stderr": "oops\n",
      "stdout": "hello\n",
      "truncated": false,
      "usage": {
        "max_rss_bytes": "N",
        "stderr_bytes": 5,
        "stdout_bytes": 6,
        "system_ms": "N",
        "user_ms": "N",
        "wall_ms": "N"
      }
    }
    "#);
}

#[tokio::test]
async fn files_go_in_and_out_of_a_session() {
    let world = World::new().await;
    let client = world.client().await;
    let missing = refused(&client, "sandbox_read_file", json!({ "path": "a" })).await;
    insta::assert_snapshot!(missing, @r"
    not_found: there is no session default
    hint: execute_code and sandbox_write_file make a session; list_containers shows those that you have
    ");
    ok(
        &client,
        "sandbox_write_file",
        json!({ "path": "d/a", "content": "/w==", "encoding": "base64" }),
    )
    .await;
    let run = json!({ "language": "sh", "code": "wc -c < d/a > b", "files": [{ "path": "c", "content": "C" }] });
    let ran = ok(&client, "execute_code", run).await;
    assert_eq!(ran.structured["session_is_new"], false);
    let read = ok(&client, "sandbox_read_file", json!({ "path": "b" })).await;
    assert_eq!(read.structured["content"], "1\n");
    let listed = ok(&client, "sandbox_list_files", json!({ "path": "." })).await;
    let paths = listed.structured["entries"].as_array().unwrap().iter();
    let paths: Vec<&str> = paths.filter_map(|entry| entry["path"].as_str()).collect();
    for path in ["/workspace/b", "/workspace/c", "/workspace/d"] {
        assert!(paths.contains(&path), "{paths:?}");
    }
    let out = refused(
        &client,
        "sandbox_read_file",
        json!({ "path": "/etc/passwd" }),
    )
    .await;
    assert!(out.starts_with("denied: "), "{out}");
    let other = world.client_with(somebody("other"), false).await;
    let foreign = refused(&other, "sandbox_read_file", json!({ "path": "b" })).await;
    assert!(foreign.starts_with("not_found: "), "{foreign}");
}

#[tokio::test]
async fn a_notebook_keeps_variables_and_tells_the_value_of_the_last_expression() {
    let world = World::new().await;
    let client = world.client().await;
    let run = async |code: &str| {
        // Only what never ends shall be too slow, however busy this machine is.
        let timeout_s = if code.starts_with("while") {
            0.5
        } else {
            120.0
        };
        let arguments = json!({ "code": code, "stateful": true, "timeout_s": timeout_s });
        ok(&client, "execute_code", arguments).await
    };
    let first = run("import asyncio\nx = 20\nprint('begun')\nawait asyncio.sleep(0, x + 1)").await;
    assert_eq!(first.structured["result"], json!({ "text": "21" }));
    let text = first.text.replace(|c: char| c.is_ascii_digit(), "N");
    insta::assert_snapshot!(text.replace("NN", "N").replace("NN", "N"), @r"
    begun
    [result]
    N
    [succeeded; N ms; session default (new)]
    ");
    let second = run("class M:\n    def _repr_markdown_(self): return '# m'\n    def __repr__(self): return 'M()'\ndisplay(x, M())\n_ + x").await;
    assert_eq!(second.structured["result"]["text"], "41");
    let displayed =
        json!([{ "text": "20" }, { "text": "M()", "mime_type": "text/markdown", "data": "# m" }]);
    assert_eq!(second.structured["displayed"], displayed);
    assert!(
        second.text.starts_with("20\n# m\n[result]\n41\n"),
        "{}",
        second.text
    );

    let failed = run("def f():\n    return y\nf()").await;
    let stderr = failed.structured["stderr"].as_str().expect("text");
    assert!(
        stderr.contains("    return y\n")
            && stderr.ends_with("NameError: name 'y' is not defined\n"),
        "{stderr}"
    );
    assert!(!stderr.contains("hotcell"), "{stderr}");
    let slow = run("while True: pass").await;
    assert_eq!(slow.structured["status"], "timed_out");
    for rendering in [&slow.text, &slow.structured.to_string()] {
        assert!(rendering.contains("variables are kept"), "{rendering}");
    }
    assert_eq!(run("x").await.structured["result"]["text"], "20");
    let gone = run("import os; os._exit(1)").await;
    for rendering in [&gone.text, &gone.structured.to_string()] {
        assert!(rendering.contains("variables are gone"), "{rendering}");
    }
    let anew = run("'x' in dir()").await;
    assert_eq!(anew.structured["result"]["text"], "False");
    let note = anew.structured["note"].as_str().expect("a note");
    assert!(
        note.contains("new interpreter") && anew.text.contains(note),
        "{note}"
    );
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_with_the_next_step() {
    let world = World::new().await;
    let client = world.client().await;
    let cases = [
        json!({ "code": "x", "language": "klingon" }),
        json!({ "code": " \n" }),
        json!({ "code": "" }),
        json!({ "code": "1", "restart": true }),
        json!({ "code": "1", "stateful": true, "language": "sh" }),
        json!({ "code": "1", "packages": ["--index-url=x"] }),
        json!({ "code": "1", "session": "a\nb" }),
        json!({ "code": "1", "timeout_s": 0 }),
        json!({ "code": "1", "files": [{ "path": "a", "content": "?", "encoding": "base64" }] }),
    ];
    let mut said = Vec::new();
    for case in cases {
        said.push(refused(&client, "execute_code", case).await);
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    invalid_argument: `language`: `klingon` is not a language; there are python, bash, sh, javascript, typescript, ruby, perl, php, lua, go, rust, c, c++, java, r, sqlite
    hint: correct the argument and call again
    invalid_argument: `code`: there is nothing to run
    hint: correct the argument and call again
    invalid_argument: `code`: there is nothing to run
    hint: correct the argument and call again
    invalid_argument: `restart` is for the interpreter of `stateful` calls: set both
    hint: correct the argument and call again
    invalid_argument: `stateful` works with python only
    hint: correct the argument and call again
    invalid_argument: `packages`: `--index-url=x` is not a package: write a name, perhaps with a version (numpy, rich[jupyter]==13.7.0, flask>=3,<4)
    hint: correct the argument and call again
    invalid_argument: `session`: must be 1 to 256 bytes of text without control characters
    hint: correct the argument and call again
    invalid_argument: `timeout_s` must be a number from 0.001 to 3600, not 0
    hint: timeout_s: Ended after so many seconds; default 30
    invalid_argument: `files.content`: not base64: Invalid symbol 63, offset 0.
    hint: correct the argument and call again
    "#);
    // Whatever an interpreter makes of it, the code arrives byte for byte.
    let nul = json!({ "language": "sh", "code": "wc -c <\"$0\"\n#\0\n" });
    let nul = ok(&client, "execute_code", nul).await;
    assert_eq!(nul.structured["stdout"].as_str().unwrap().trim(), "15");
}

#[tokio::test]
async fn long_output_is_cut_alike_in_both_renderings() {
    let mut settings = hotcell_service::Settings::default();
    settings.code.output_chars_max = 100;
    let world = World::with(settings).await;
    let client = world.client().await;
    let code = "import sys; sys.stdout.write('a' * 60 + 'b' * 1000 + 'c' * 60); sys.stdout.flush(); sys.stdout.buffer.write(b'\\xff')";
    let said = call(&client, "execute_code", json!({ "code": code })).await;
    let stdout = said.structured["stdout"].as_str().unwrap();
    let start = format!(
        "{}\n[1021 bytes left out here; resource logs://e_",
        "a".repeat(50)
    );
    assert!(stdout.starts_with(&start), "{stdout}");
    assert!(
        stdout.ends_with(&format!("\n{}\u{fffd}", "c".repeat(49))),
        "{stdout}"
    );
    assert_eq!(said.structured["truncated"], true);
    assert!(
        said.structured["note"]
            .as_str()
            .unwrap()
            .contains("not UTF-8")
    );
    let whole = said.result.content[0].as_text().unwrap().text.clone();
    assert!(whole.starts_with(stdout), "{whole}");
    assert!(whole.contains("not UTF-8"), "{whole}");
}

#[tokio::test]
async fn a_picture_comes_without_structured_content_and_with_all_the_text() {
    let world = World::new().await;
    let client = world.client().await;
    let gif = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
    let files = json!([{ "path": "p", "content": gif, "encoding": "base64" }]);
    let code = "mkdir artifacts; cp p artifacts/p.gif; echo a,b > artifacts/t.csv; echo done";
    let request = json!({ "language": "sh", "code": code, "files": files });
    let said = ok(&client, "execute_code", request).await;
    assert!(said.structured.is_null());
    let kinds: Vec<_> = said
        .result
        .content
        .iter()
        .map(|block| {
            (
                block.as_text().is_some(),
                block.as_image().is_some(),
                block.as_resource_link().is_some(),
            )
        })
        .collect();
    assert_eq!(
        kinds,
        [
            (true, false, false),
            (false, true, false),
            (false, false, true)
        ]
    );
    let text = &said.text;
    assert!(text.starts_with("done\n[/workspace/artifacts/p.gif: image/gif of 1x1 pixels, 42 bytes, shown; workspace://c_"), "{text}");
    assert!(
        text.contains("[/workspace/artifacts/t.csv: text/csv, 4 bytes; workspace://c_"),
        "{text}"
    );
    assert!(!text.contains("R0lGOD"), "no base64 in the text");
}
