//! A container exceeds its disk limit in every way that we know, without a filesystem quota: the
//! real server on its own engine.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic when the setup fails"
)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::attack::everyone_gets;
use crate::support::deadline;
use crate::support::home::Home;
use crate::support::mcp::Client;

/// Writes 22 MB to the open file `f`, with a limit of 16 MiB: far over it.
const FILL: &str = "\nfor _ in range(22): f.write(bytes(1000000)); f.flush()\nwait()";

/// Each attack leaves more than is allowed, and then waits to be ended.
const ATTACKS: [(&str, &str); 7] = [
    ("one large file", "f = open('d/large', 'wb')"),
    (
        "tiny files",
        "for n in range(12000): open(f'd/{n}', 'w').close()\nwait()",
    ),
    (
        "a large file in a directory that is closed",
        "g = open('d/large', 'wb'); os.chmod('d', 0)\nfor _ in range(18): g.write(bytes(1000000)); g.flush()\nwait()",
    ),
    (
        "a deleted file that is open",
        "f = open('d/large', 'wb'); os.unlink('d/large')",
    ),
    (
        "links to many files",
        "for n in range(22):\n    open(f'd/{n}', 'wb').write(bytes(1000000))\n    for m in range(9): os.link(f'd/{n}', f'd/{n}-{m}')\nwait()",
    ),
    (
        "a chain of directories too deep to look into",
        "os.chdir('d')\nfor _ in range(2000):\n    os.mkdir('d'); os.chdir('d')\nf = open('large', 'wb')",
    ),
    (
        "a process that its exec left behind",
        "parent = os.getpid()\nif os.fork(): sys.exit()\nos.setsid()\nwhile os.getppid() == parent: time.sleep(0.01)\nf = open('d/large', 'wb')",
    ),
];

fn script(attack: &str) -> String {
    let fill = if attack.contains("f = open") {
        FILL
    } else {
        ""
    };
    format!(
        "import os, sys, time\nos.makedirs('d', exist_ok=True)\ndef wait():\n    while True: time.sleep(1000)\n{attack}{fill}"
    )
}

fn start(client: &mut Client, container: &Value, attack: &str) -> Value {
    let cmd = ["python3", "-c", &script(attack)];
    let run = json!({ "container_id": container, "cmd": cmd });
    client.ok("exec_start", run)["exec_id"].clone()
}

fn stats(client: &mut Client, container: &Value) -> Value {
    let uri = format!("stats://{}", container.as_str().unwrap());
    let read = client.request("resources/read", json!({ "uri": uri }));
    let text = read.unwrap()["contents"][0]["text"].clone();
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

/// Waits until a condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < deadline(), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn poll(client: &mut Client, exec: &Value) -> Value {
    client.ok("exec_poll", json!({ "exec_id": exec, "wait_s": 1 }))
}

/// Makes one attack in a container of its own, from its begin until the container is as good as new.
fn is_ended_and_recovers(client: &mut Client, what: &str, attack: &str) {
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    let exec = start(client, &id, attack);
    let mut end = poll(client, &exec);
    until(what, || {
        end = poll(client, &exec);
        end["complete"] == true
    });
    expect_end(what, &end);
    let write = json!({ "container_id": id, "path": "more", "content": "x" });
    // Deleted files are freed as soon as no process has them open.
    if !what.starts_with("a deleted") {
        until(what, || {
            let answer = client.call("fs_write", write.clone());
            answer["structuredContent"]["code"] == "resource_exhausted"
        });
        let batch =
            json!({ "container_id": id, "operations": [{ "op": "mkdir", "path": "more" }] });
        let refused = client.refused("fs_batch", batch);
        assert_eq!(refused, "resource_exhausted", "{what}");
    }
    // A little over the limit, execs can still run to prepare for deleting.
    if what.ends_with("closed") {
        let open = json!({ "container_id": id, "cmd": ["chmod", "700", "d"], "wait_s": 40 });
        assert_eq!(client.ok("exec_start", open)["status"], "succeeded");
    }
    // Reading and deleting work.
    client.ok("fs_list", json!({ "container_id": id, "path": "." }));
    client.ok("fs_delete", json!({ "container_id": id, "path": "d" }));
    until(what, || {
        client.call("fs_write", write.clone())["isError"] != true
    });
    let run = json!({ "container_id": id, "cmd": ["echo", "alive"], "wait_s": 40 });
    let ran = client.ok("exec_start", run);
    assert_eq!(ran["status"], "succeeded", "{what}: {ran}");
}

/// The exec was ended for the disk's sake, and is told how to go on; one that has left another process
/// behind ended by itself.
fn expect_end(what: &str, end: &Value) {
    if what.starts_with("a process") {
        assert_eq!(end["status"], "succeeded", "{what}: {end}");
        return;
    }
    assert_eq!(end["status"], "disk_limit", "{what}: {end}");
    let reason = end["reason"].as_str().unwrap();
    assert!(
        reason.contains("disk limit of 16 MiB and 10000 files"),
        "{end}"
    );
    assert!(reason.contains("fs_delete"), "{end}");
}

#[test]
fn whatever_takes_too_much_of_the_disk_is_ended_and_what_is_deleted_is_free_again() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0", "--disk", "16m"]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    let told = stats(&mut client, &id);
    if told["enforced_by"]["disk"] == "project_quota" {
        assert!(server.terminate().success());
        let reason = "the kernel refuses what is to be noticed here";
        return hotcell_testkit::not_claimed(reason);
    }
    assert_eq!(told["enforced_by"]["disk"], "watched", "{told}");
    // At once: each waits for measurements most of the time.
    std::thread::scope(|scope| {
        for (what, attack) in ATTACKS {
            let mut client = server.client();
            scope.spawn(move || is_ended_and_recovers(&mut client, what, attack));
        }
    });
    assert!(server.terminate().success());
}

#[test]
fn what_only_looks_large_is_left_alone() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0", "--disk", "16m"]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    // A sparse file of a terabyte, and a file of ten megabytes with a hundred names.
    let attack = "os.truncate(os.open('d/sparse', os.O_CREAT | os.O_WRONLY), 1 << 40)
open('d/file', 'wb').write(bytes(10000000))
for n in range(100): os.link('d/file', f'd/{n}')
sys.stdin.read(1)
f = open('d/large', 'wb')";
    let cmd = ["python3", "-c", &script(attack)];
    let run = json!({ "container_id": id, "cmd": cmd });
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    until("it is measured", || {
        stats(&mut client, &id)["disk"]["used_files"].as_u64() >= Some(103)
            || stats(&mut client, &id)["enforced_by"]["disk"] == "project_quota"
    });
    assert_eq!(poll(&mut client, &exec)["status"], "running");
    // The same exec is ended once it really writes.
    let go = json!({ "exec_id": exec, "data": "x", "eof": true });
    client.ok("exec_input", go);
    until("it is ended", || {
        poll(&mut client, &exec)["complete"] == true
    });
    assert!(server.terminate().success());
}

/// Whoever could change the project id of a file, or the one that it passes on, would escape the
/// quota.
#[tokio::test]
async fn nobody_changes_the_project_of_a_file() {
    everyone_gets(
        r"
import fcntl, struct
fd = os.open('.', os.O_RDONLY)
none = struct.pack('IIIII8x', 0, 0, 0, 4711, 0)
print(attempt(fcntl.ioctl, fd, 0x401c5820, none))
print(attempt(fcntl.ioctl, fd, 0x40086602, struct.pack('q', 0)))
print(call(469, fd, b'', none, 24, 0x1000))
print(call(443, fd, 0x80000802, 0, ctypes.create_string_buffer(72)))
print(type(attempt(fcntl.ioctl, fd, 0x801c581f, bytes(28))) in (bytes, str))
",
        "ENOTTY\nENOTTY\nENOSYS\nEPERM\nTrue\n",
    )
    .await;
}
