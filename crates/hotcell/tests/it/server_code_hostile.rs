//! Snippets that mean harm: contained, told truthfully, and the next call is clean.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::server::Server;

fn serve(home: &Home) -> Server {
    home.serve_with(&["--drain-grace-s", "0"])
}

fn python(client: &mut Client, code: &str) -> Value {
    client.call("execute_code", json!({ "code": code, "timeout_s": 60 }))
}

/// A snippet after an attack has its own process and works.
fn is_clean(client: &mut Client) {
    let ran = client.ok("execute_code", json!({ "code": "print(6 * 7)" }));
    assert_eq!(
        (&ran["stdout"], &ran["status"]),
        (&json!("42\n"), &json!("succeeded")),
        "{ran}"
    );
    assert_eq!(ran["artifacts"], json!([]), "{ran}");
}

#[test]
fn what_fills_memory_processes_or_disks_is_told_and_over_with_its_call() {
    let home = Home::operated();
    let server = serve(&home);
    let mut client = server.client();
    let attacks = [
        (
            "data = []\nwhile True: data.append(bytearray(1 << 20))",
            "memory",
        ),
        (
            "import os\ntry:\n    while True:\n        if os.fork() == 0: os.execlp('sleep', 'sleep', '1000')\nexcept OSError as error: raise SystemExit(str(error))",
            "processes",
        ),
        (
            "with open('/tmp/full', 'wb') as file:\n    while True: file.write(b'x' * (1 << 20))",
            "/tmp",
        ),
        (
            "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
            "keeper",
        ),
        (
            "import os\nos.close(1); os.close(2)\nos._exit(5)",
            "streams",
        ),
    ];
    for (code, what) in attacks {
        let result = python(&mut client, code);
        assert_ne!(result["isError"], true, "{what}: {result}");
        let ran = &result["structuredContent"];
        assert_ne!(ran["status"], "succeeded", "{what}: {ran}");
        client.ok(
            "execute_code",
            json!({ "language": "sh", "code": "rm -f /tmp/full" }),
        );
        is_clean(&mut client);
    }
    assert!(server.terminate().success());
}

#[test]
fn artifacts_that_are_no_pictures_hurt_nobody() {
    let home = Home::operated();
    let server = serve(&home);
    let mut client = server.client();
    let traps = [
        // A sparse file of a terabyte, or as much as may be, that says it is a picture.
        "import os\nos.makedirs('artifacts', exist_ok=True)\nwith open('artifacts/a.png', 'wb') as file:\n    file.write(b'\\x89PNG\\r\\n\\x1a\\n')\n    size = 1 << 40\n    while size:\n        try: file.truncate(size); break\n        except OSError: size >>= 1",
        "import os\nos.makedirs('artifacts', exist_ok=True)\nos.mkfifo('artifacts/b.png')\nos.symlink('/etc/passwd', 'artifacts/c.png')\nos.symlink('b.png', 'artifacts/d.png')",
        // A header that promises 65535 x 65535 pixels.
        "import os, zlib, struct\nos.makedirs('artifacts', exist_ok=True)\ndef chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\nopen('artifacts/bomb.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 65535, 65535, 8, 6, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(bytes(1 << 24))) + chunk(b'IEND', b''))",
        "import os, shutil\nshutil.rmtree('artifacts')\nos.symlink('/', 'artifacts')",
        "import os\nos.remove('artifacts')\nos.mkfifo('artifacts')",
    ];
    for code in traps {
        let result = python(&mut client, code);
        assert_ne!(result["isError"], true, "{code}: {result}");
        let ran = &result["structuredContent"];
        assert_eq!(ran["status"], "succeeded", "no picture was shown: {result}");
        assert!(!result.to_string().contains("root:x:0"), "{result}");
        is_clean(&mut client);
    }
    assert!(server.terminate().success());
}

#[test]
fn a_hundred_thousand_artifacts_are_counted_and_not_listed() {
    let home = Home::operated();
    let server = serve(&home);
    let mut client = server.client();
    let code = "import os\nos.makedirs('artifacts')\nfor i in range(100000): os.close(os.open(f'artifacts/{i}', os.O_CREAT | os.O_WRONLY))";
    let ran = python(&mut client, code)["structuredContent"].clone();
    assert_eq!(ran["status"], "succeeded", "{ran}");
    assert!(ran["artifacts"].as_array().unwrap().len() <= 64);
    let note = ran["note"].as_str().unwrap();
    assert!(
        note.contains("further files are in /workspace/artifacts"),
        "{note}"
    );
    assert!(server.terminate().success());
}

#[test]
fn more_pictures_than_are_shown_come_as_links() {
    let home = Home::operated();
    let server = serve(&home);
    let mut client = server.client();
    // The smallest picture there is.
    let code = "import os, base64\nos.makedirs('artifacts')\ndata = base64.b64decode('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7')\nfor i in range(11): open(f'artifacts/{i:02}.gif', 'wb').write(data)";
    let result = python(&mut client, code);
    let kinds = |kind: &str| {
        let content = result["content"].as_array().unwrap();
        content.iter().filter(|block| block["type"] == kind).count()
    };
    assert_eq!((kinds("image"), kinds("resource_link")), (8, 3), "{result}");
    let link = result["content"].as_array().unwrap().last().unwrap();
    assert!(
        link["uri"].as_str().unwrap().starts_with("workspace://c_"),
        "{link}"
    );
    let read = client.request("resources/read", json!({ "uri": link["uri"] }));
    assert_eq!(read.unwrap()["contents"][0]["mimeType"], "image/gif");
    assert!(server.terminate().success());
}

#[test]
fn a_snippet_cannot_change_what_the_next_process_of_another_session_runs() {
    let home = Home::operated();
    let server = serve(&home);
    let mut client = server.client();
    let poison = "import pathlib\n\
        for name in ('sitecustomize.py', 'usercustomize.py', 'json.py'):\n    pathlib.Path(name).write_text('print(\"poisoned\")')\n\
        for file in pathlib.Path('.hotcell').rglob('*.py'): file.write_text('print(\"poisoned\")')";
    python(&mut client, poison);
    let other = json!({ "code": "import json; print('clean')", "session": "other" });
    assert_eq!(client.ok("execute_code", other)["stdout"], "clean\n");
    assert!(server.terminate().success());
}
