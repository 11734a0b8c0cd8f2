//! Snippets on the embedded engine, with the languages of this host.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hotcell_testkit::{Need, skip, skip_part};
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;

/// A program of each language: it greets its first argument and ends with 3. SQLite has no exit
/// codes.
const GREETERS: &[(&str, &str, &str)] = &[
    (
        "python",
        "python3",
        "import sys; print('hello', sys.argv[1]); sys.exit(3)",
    ),
    (
        "bash",
        "bash",
        "words=(hello \"$1\"); echo \"${words[@]}\"; exit 3",
    ),
    ("sh", "sh", "echo hello \"$1\"; exit 3"),
    (
        "javascript",
        "node",
        "console.log('hello', process.argv[2]); process.exit(3)",
    ),
    ("ruby", "ruby", "puts \"hello #{ARGV[0]}\"; exit 3"),
    ("perl", "perl", "print \"hello $ARGV[0]\\n\"; exit 3"),
    ("php", "php", "<?php echo \"hello $argv[1]\\n\"; exit(3);"),
    ("lua", "lua", "print('hello ' .. arg[1]); os.exit(3)"),
    (
        "go",
        "go",
        "package main\nimport (\"fmt\"; \"os\")\nfunc main() { fmt.Println(\"hello\", os.Args[1]); os.Exit(3) }",
    ),
    (
        "rust",
        "rustc",
        "fn main() { println!(\"hello {}\", std::env::args().nth(1).unwrap()); std::process::exit(3) }",
    ),
    (
        "c",
        "cc",
        "#include <stdio.h>\nint main(int n, char **v) { printf(\"hello %s\\n\", v[1]); return 3; }",
    ),
    (
        "c++",
        "c++",
        "#include <iostream>\nint main(int, char **v) { std::cout << \"hello \" << v[1] << std::endl; return 3; }",
    ),
    (
        "java",
        "javac",
        "public class Greeter { public static void main(String[] v) { System.out.println(\"hello \" + v[0]); System.exit(3); } }",
    ),
    (
        "r",
        "Rscript",
        "cat('hello', commandArgs(TRUE)[1], '\\n', sep=' '); quit(status = 3)",
    ),
];

fn has_program(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .any(|directory| std::path::Path::new(directory).join(name).exists())
        // What only root's PATH has is not in a container.
        && std::path::Path::new("/usr/bin").join(name).exists()
}

fn server(home: &Home) -> crate::support::server::Server {
    home.serve_with(&["--drain-grace-s", "0"])
}

fn run(client: &mut Client, language: &str, code: &str) -> Value {
    client.ok(
        "execute_code",
        json!({ "language": language, "code": code }),
    )
}

#[test]
fn each_language_of_this_host_runs_with_its_arguments_and_its_exit_code() {
    let home = Home::operated();
    let server = server(&home);
    let mut client = server.client();
    let mut missing = Vec::new();
    for (language, program, code) in GREETERS {
        let request =
            json!({ "language": language, "code": code, "args": ["a b"], "timeout_s": 300 });
        if !has_program(program) {
            assert_eq!(client.refused("execute_code", request), "invalid_argument");
            missing.push(*program);
            continue;
        }
        // The second time, what was compiled is there.
        for _ in 0..2 {
            let ran = client.ok("execute_code", request.clone());
            let stdout = ran["stdout"].as_str().unwrap();
            assert_eq!(stdout.trim_end(), "hello a b", "{language}: {ran}");
            assert_eq!(ran["exit_code"], 3, "{language}: {ran}");
        }
    }
    let languages = client.ok("system_status", json!({}))["languages"]["host"].clone();
    assert!(
        languages.as_array().unwrap().contains(&json!("python")),
        "{languages}"
    );
    assert!(server.terminate().success());
    if !missing.is_empty() {
        skip_part(Need::Programs, &missing.join(", "));
    }
}

#[test]
fn sqlite_reads_a_database_of_the_session() {
    if !has_program("sqlite3") {
        return skip(Need::Programs, "sqlite3");
    }
    let home = Home::operated();
    let server = server(&home);
    let mut client = server.client();
    let make = json!({ "language": "sqlite", "args": ["data.db"], "code": "create table t (x); insert into t values (42);" });
    assert_eq!(client.ok("execute_code", make)["exit_code"], 0);
    let read = json!({ "language": "sql", "args": ["data.db"], "code": "select x from t;" });
    assert_eq!(client.ok("execute_code", read)["stdout"], "42\n");
    let wrong = run(&mut client, "sqlite", "select * from nowhere;");
    assert_eq!(wrong["exit_code"], 1, "{wrong}");
    assert!(
        wrong["stderr"].as_str().unwrap().contains("nowhere"),
        "{wrong}"
    );
    assert!(server.terminate().success());
}

#[test]
fn what_was_compiled_is_compiled_once() {
    if !has_program("cc") {
        return skip(Need::Programs, "cc");
    }
    let home = Home::operated();
    let server = server(&home);
    let mut client = server.client();
    let code = "int main(void) { return 0; }";
    assert_eq!(run(&mut client, "c", code)["exit_code"], 0);
    let builds = "ls -i .hotcell/build";
    let first = run(&mut client, "sh", builds);
    assert_eq!(
        first["stdout"].as_str().unwrap().lines().count(),
        1,
        "{first}"
    );
    assert_eq!(run(&mut client, "c", code)["exit_code"], 0);
    assert_eq!(run(&mut client, "sh", builds)["stdout"], first["stdout"]);
    let broken = run(&mut client, "c", "int main(void) { return missing; }");
    assert_eq!(broken["status"], "failed", "{broken}");
    assert!(
        broken["stderr"].as_str().unwrap().contains("missing"),
        "{broken}"
    );
    assert_eq!(run(&mut client, "sh", builds)["stdout"], first["stdout"]);
    assert!(server.terminate().success());
}

/// The pictures of a result, decoded.
fn pictures(result: &Value) -> Vec<(String, Vec<u8>)> {
    let content = result["content"].as_array().unwrap();
    let images = content.iter().filter(|block| block["type"] == "image");
    images
        .map(|block| {
            let data = BASE64_STANDARD.decode(block["data"].as_str().unwrap());
            (
                block["mimeType"].as_str().unwrap().to_owned(),
                data.unwrap(),
            )
        })
        .collect()
}

fn has_module(name: &str) -> bool {
    let script = format!("import {name}");
    let mut python = std::process::Command::new("/usr/bin/python3");
    let done = python.args(["-c", &script]).output();
    done.is_ok_and(|done| done.status.success())
}

#[test]
fn figures_that_are_shown_or_left_open_come_back_as_pictures() {
    if !has_module("matplotlib") {
        return skip(Need::Programs, "python3-matplotlib");
    }
    let home = Home::operated();
    let server = server(&home);
    let mut client = server.client();
    let code = "import matplotlib.pyplot as plt\n\
                plt.plot([1, 2]); plt.show()\n\
                figure = plt.figure(); figure.gca().plot([2, 1]); figure.show()\n\
                plt.figure(); plt.plot([3, 3])\n\
                print('plotted')";
    let request = json!({ "code": code, "timeout_s": 300 });
    let result = client.call("execute_code", request);
    let pictures = pictures(&result);
    assert_eq!(pictures.len(), 3, "{result}");
    for (mime, data) in &pictures {
        assert_eq!(mime, "image/png");
        assert!(data.starts_with(b"\x89PNG"));
    }
    assert!(result.get("structuredContent").is_none_or(Value::is_null));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("plotted\n"), "{text}");
    assert_eq!(text.matches("640x480 pixels").count(), 3, "{text}");
    // The next call is about its own pictures alone.
    let next = run(&mut client, "python", "print(1)");
    assert_eq!(next["artifacts"], json!([]), "{next}");
    assert!(server.terminate().success());
}

#[test]
fn an_image_that_is_shown_comes_back_as_a_picture() {
    if !has_module("PIL") {
        return skip(Need::Programs, "python3-pil");
    }
    let home = Home::operated();
    let server = server(&home);
    let mut client = server.client();
    let code = "from PIL import Image, ImageDraw\nImage.new('RGB', (30, 20), 'red').show()\nimport PIL; print(PIL.__name__, bool(PIL.__version__))";
    let result = client.call("execute_code", json!({ "code": code, "timeout_s": 300 }));
    assert_eq!(pictures(&result).len(), 1, "{result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("PIL True\n"), "{text}");
    assert!(server.terminate().success());
}

#[test]
fn data_frames_are_printed() {
    if !has_module("pandas") {
        return skip(Need::Programs, "python3-pandas");
    }
    let home = Home::operated();
    let server = server(&home);
    let code = "import pandas\nprint(pandas.DataFrame({'a': [1, 2]}).sum()['a'])\npandas.DataFrame({'a': [1]}).to_csv('artifacts/t.csv')";
    let code = format!("import os\nos.makedirs('artifacts')\n{code}");
    let ran = server
        .client()
        .ok("execute_code", json!({ "code": code, "timeout_s": 300 }));
    assert_eq!(ran["stdout"], "3\n", "{ran}");
    assert_eq!(ran["artifacts"][0]["mime_type"], "text/csv", "{ran}");
    assert_eq!(ran["artifacts"][0]["path"], "/workspace/artifacts/t.csv");
    assert!(server.terminate().success());
}

#[test]
fn a_program_of_five_mebibytes_runs() {
    let home = Home::operated();
    let server = server(&home);
    let mut client = server.client();
    let code = format!("text = '{}'\nprint(len(text))", "x".repeat(5 << 20));
    let ran = run(&mut client, "python", &code);
    assert_eq!(ran["stdout"], format!("{}\n", 5 << 20), "{}", ran["stderr"]);
    assert!(server.terminate().success());
}

#[test]
fn a_session_comes_from_the_pool() {
    let home = Home::operated();
    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "1"]);
    let mut client = server.client();
    crate::support::wait_until("one is ready", || {
        client.ok("system_status", json!({}))["warm"][0]["ready"] == 1
    });
    let ready = home.containers();
    let ran = run(&mut client, "sh", "id -u");
    assert_eq!(
        (&ran["stdout"], &ran["session_is_new"]),
        (&json!("1000\n"), &json!(true))
    );
    let listed = client.ok("list_containers", json!({}));
    assert_eq!(listed["containers"][0]["container_id"], ready[0].as_str());
    assert_eq!(listed["containers"][0]["session"], "default");
    assert!(server.terminate().success());
}
