//! Egress on Docker, Podman and gVisor: a real resolver asks for names inside, and programs reach what their
//! profile allows and are told of the rest.

use hotcell_engine::docker::Flavor;
use serde_json::json;

use crate::server_egress::{HOST, Origin, output, run};
use crate::server_engines::{expect_nothing_left, home, serve};
use crate::support::engines::Private;

/// Looks names up with the C library, connects by them, and to a port that is not listed.
const SCRIPT: &str = r#"
import socket, sys, urllib.error, urllib.request
host = sys.argv[1]
looked_up = lambda name: socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
print(looked_up(host))
print(urllib.request.urlopen(f"http://{host}/a").read().decode())
try:
    urllib.request.urlopen("https://refused.example.com/")
except urllib.error.HTTPError as error:
    print(error.code)
for port in (80, 81):
    stream = socket.socket()
    print(port, stream.connect_ex((looked_up(host), port)) == 0)
try:
    looked_up("printer")
except socket.gaierror:
    print("no such name")
"#;

fn expect_names(flavor: Flavor, runtime: Option<&str>) {
    let Some(private) = Private::start_with(flavor, runtime) else {
        return;
    };
    let origin = Origin::start();
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), origin.config(&[HOST])).expect("it is ours");
    let home = home(&private).with("HOTCELL_CONFIG", &file.path().display().to_string());
    let more: Vec<&str> = runtime.map_or(vec![], |runtime| vec!["--runtime", runtime]);
    let server = serve(&home, flavor, &more);
    let mut client = server.client();
    let spawn = json!({ "alias": "cell", "egress": "work", "image": private.python() });
    let made = client.ok("spawn", spawn);
    assert_eq!(made["egress"], "work", "{made}");
    let script = json!({ "container_id": "cell", "path": "a.py", "content": SCRIPT });
    client.ok("fs_write", script);
    let ran = run(&mut client, "cell", &format!("python3 a.py {HOST} 2>&1"));
    let said = output(&ran);
    let (address, rest) = said.split_once('\n').expect("lines");
    assert!(address.starts_with("127.77."), "{said} {ran}");
    let expected = "plain /a\n403\n80 True\n81 False\nno such name\n";
    assert_eq!(rest, expected, "{ran}");
    let denied = &ran["egress"]["denied"][0];
    assert_eq!(denied["host"], "refused.example.com", "{ran}");
    client.ok("kill", json!({ "container_id": "cell" }));
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
}

#[test]
fn names_are_the_way_out_on_docker() {
    expect_names(Flavor::Docker, None);
}

#[test]
fn names_are_the_way_out_on_docker_with_gvisor() {
    expect_names(Flavor::Docker, Some("runsc"));
}

#[test]
fn names_are_the_way_out_on_podman() {
    expect_names(Flavor::Podman, None);
}
