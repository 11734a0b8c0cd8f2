//! Snippets in images, on every engine: Python warmed up and plain, with variables and without, other languages, files,
//! and what an image without Python answers.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hotcell_engine::docker::Flavor;
use hotcell_testkit::image::{Layer, image};
use hotcell_testkit::registry::Canned;
use hotcell_testkit::{Need, skip, skip_part};
use serde_json::{Value, json};

use crate::server_engines::{expect_nothing_left, home};
use crate::support::engines::{IMAGE, Private};
use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::{scratch, wait_until};

/// Makes a picture of one red pixel without any package.
const PICTURE: &str = r"
import os, struct, zlib
def part(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
os.makedirs('artifacts', exist_ok=True)
with open('artifacts/red.png', 'wb') as file:
    file.write(b'\x89PNG\r\n\x1a\n' + part(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0)))
    file.write(part(b'IDAT', zlib.compress(b'\0\xff\0\0')) + part(b'IEND', b''))
";

/// The program of Node that strips types, which the tests of clients install.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/bin/node");

/// Gathers the files of an image with Python, as tests/engines does for Docker.
const GATHERER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/engines/start");

fn run(client: &mut Client, mut request: Value) -> Value {
    request["timeout_s"] = json!(100);
    client.ok("execute_code", request)
}

/// Runs Python, which prints this.
fn python(client: &mut Client, code: &str, prints: &str) {
    let ran = run(client, json!({ "code": code }));
    assert_eq!(
        (&ran["stdout"], &ran["exit_code"]),
        (&json!(prints), &json!(0)),
        "{ran}"
    );
}

/// What everybody expects of snippets, in an image with Python.
fn expect_snippets(client: &mut Client, can_warm: bool) {
    let code = "import sys; print('hello', sys.argv[1], sys.stdin.read()); sys.exit(3)";
    for is_cold in [false, true, false] {
        let request = json!({ "code": code, "args": ["a b"], "stdin": "in", "cold": is_cold });
        let ran = run(client, request);
        assert_eq!(
            (&ran["stdout"], &ran["exit_code"]),
            (&json!("hello a b in\n"), &json!(3)),
            "{ran}"
        );
    }
    expect_warm(client, can_warm);
    let cell = |code: &str| json!({ "code": code, "stateful": true });
    run(client, cell("import math\nx = 41"));
    let ran = run(client, cell("x + int(math.cos(0))"));
    assert_eq!(ran["result"]["text"], "42", "{ran}");
    let ran = run(
        client,
        json!({ "language": "sh", "code": "echo hello \"$1\"; exit 3", "args": ["a b"] }),
    );
    assert_eq!(
        (&ran["stdout"], &ran["exit_code"]),
        (&json!("hello a b\n"), &json!(3)),
        "{ran}"
    );
    expect_picture(client);
    expect_session(client);
}

/// Only its command line shows that a warmed interpreter runs a script. gVisor has no subreapers, so none is warmed there.
fn expect_warm(client: &mut Client, can_warm: bool) {
    let code = "print('sys.argv.pop' in open('/proc/self/cmdline').read())";
    let mut is_warm = |is_cold: bool| {
        let ran = run(client, json!({ "code": code, "cold": is_cold }));
        ran["stdout"] == "True\n"
    };
    assert!(!is_warm(true));
    if can_warm {
        wait_until("an interpreter is warm", || is_warm(false));
    }
}

fn expect_picture(client: &mut Client) {
    let shown = client.call("execute_code", json!({ "code": PICTURE, "timeout_s": 100 }));
    let content = shown["content"].as_array().unwrap();
    let picture = content.iter().find(|block| block["type"] == "image");
    let picture = picture.unwrap_or_else(|| panic!("no picture: {shown}"));
    assert_eq!(picture["mimeType"], "image/png");
    let data = BASE64_STANDARD.decode(picture["data"].as_str().unwrap());
    assert!(data.unwrap().starts_with(b"\x89PNG"));
}

/// Files stay for the next call, other sessions have none of them, and a session that was killed is new.
fn expect_session(client: &mut Client) {
    python(client, "open('kept', 'w').write('x')", "");
    python(client, "print(open('kept').read())", "x\n");
    let missing = "import os; print(os.path.exists('kept'))";
    let other = run(client, json!({ "code": missing, "session": "other" }));
    assert_eq!(
        (&other["stdout"], &other["session_is_new"]),
        (&json!("False\n"), &json!(true))
    );
    let listed = client.ok("list_containers", json!({}));
    let sessions = listed["containers"].as_array().unwrap().iter();
    for session in sessions {
        client.ok("kill", json!({ "container_id": session["container_id"] }));
    }
    let again = run(client, json!({ "code": missing }));
    assert_eq!(
        (&again["stdout"], &again["session_is_new"]),
        (&json!("False\n"), &json!(true))
    );
}

/// An image without Python says what it has, and runs that.
fn expect_without_python(client: &mut Client) {
    let refused = client.call("execute_code", json!({ "code": "print(1)" }));
    let said = &refused["structuredContent"];
    assert_eq!(said["code"], "invalid_argument", "{refused}");
    let message = said["message"].as_str().unwrap();
    assert!(
        message.contains("cannot run python; it has sh"),
        "{message}"
    );
    let ran = run(
        client,
        json!({ "language": "sh", "code": "echo still here" }),
    );
    assert_eq!(ran["stdout"], "still here\n", "{ran}");
}

fn expect_on(flavor: Flavor, runtime: Option<&str>) {
    let Some(private) = Private::start_with(flavor, runtime) else {
        return;
    };
    let home = home(&private);
    let serve = |image: &str| {
        let mut arguments = vec!["--engine", flavor.name(), "--default-image", image];
        arguments.extend(["--drain-grace-s", "0", "--admin-over-http"]);
        arguments.extend(
            runtime
                .into_iter()
                .flat_map(|runtime| ["--runtime", runtime]),
        );
        home.serve_with(&arguments)
    };
    let server = serve(private.python());
    expect_snippets(&mut server.client(), runtime.is_none());
    assert!(server.terminate().success());
    let server = serve(IMAGE);
    expect_without_python(&mut server.client());
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
}

#[test]
fn snippets_run_on_docker() {
    expect_on(Flavor::Docker, None);
}

#[test]
fn snippets_run_on_docker_with_gvisor() {
    expect_on(Flavor::Docker, Some("runsc"));
}

#[test]
fn snippets_run_on_podman() {
    expect_on(Flavor::Podman, None);
}

/// Runs a program that makes something.
fn make(program: &mut Command) -> Vec<u8> {
    let made = program.output().unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{program:?}: {said}");
    made.stdout
}

fn layer(archive: &Path) -> Layer {
    Layer {
        tar: std::fs::read(archive).unwrap(),
        blob: make(Command::new("gzip").arg("-1c").arg(archive)),
    }
}

/// The files of Python and of a shell, as a layer.
fn python_layer(directory: &Path) -> Layer {
    make(
        Command::new("bash")
            .args([GATHERER, "python"])
            .arg(directory),
    );
    layer(&directory.join("python.tar"))
}

/// Node and what it is linked to. None where the clients are not installed.
fn node_layer(directory: &Path) -> Option<Layer> {
    let node = Path::new(NODE).canonicalize().ok()?;
    let root = directory.join("node");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy(&node, root.join("bin/node")).unwrap();
    let linked = String::from_utf8(make(Command::new("ldd").arg(&node))).unwrap();
    for library in linked
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let place = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(library, place).unwrap();
    }
    let archive: PathBuf = directory.join("node.tar");
    make(
        Command::new("tar")
            .arg("-C")
            .arg(&root)
            .arg("-cf")
            .arg(&archive)
            .arg("."),
    );
    Some(layer(&archive))
}

fn expect_types_to_be_stripped(client: &mut Client) {
    let code = "interface Named { name: string }\n\
                const greet = (one: Named, times: number = 2): string => `hello ${one.name}`.repeat(times);\n\
                console.log(greet({ name: process.argv[2] as string }, 1)); process.exit(3)";
    let ran = run(
        client,
        json!({ "language": "typescript", "code": code, "args": ["a b"] }),
    );
    assert_eq!(
        (&ran["stdout"], &ran["exit_code"]),
        (&json!("hello a b\n"), &json!(3)),
        "{ran}"
    );
    assert_eq!(ran["stderr"], "", "{ran}");
}

#[test]
fn snippets_run_in_an_image_of_a_registry_on_the_embedded_engine() {
    if !Path::new(GATHERER).exists() || !Path::new("/bin/busybox").exists() {
        return skip(Need::Programs, "busybox, and the source tree");
    }
    let (home, files, runtime) = (
        Home::operated(),
        scratch(),
        tokio::runtime::Runtime::new().unwrap(),
    );
    let node = node_layer(files.path());
    let layers: Vec<_> = [Some(python_layer(files.path())), node.clone()]
        .into_iter()
        .flatten()
        .collect();
    let registry = runtime.block_on(Canned::serving(&image(&layers), vec![]));
    let name = format!("{}/x", registry.host);
    let arguments = [
        "--engine",
        "embedded",
        "--allowed-registries",
        &registry.host,
        "--default-image",
        &name,
    ];
    let server = home.serve_with(&[&arguments[..], &["--drain-grace-s", "0"]].concat());
    let mut client = server.client();
    expect_snippets(&mut client, true);
    match node {
        Some(_) => expect_types_to_be_stripped(&mut client),
        None => skip_part(Need::Clients, "Node of the clients"),
    }
    assert!(server.terminate().success());
}
