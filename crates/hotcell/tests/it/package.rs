//! What `xtask dist` packs, as people install it: the Debian package in a fresh Debian, the image by a real Docker.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use hotcell_engine::docker::Flavor;
use hotcell_testkit::{Need, skip};
use serde_json::json;

use crate::clients::root;
use crate::support::engines::{IMAGE, Private};
use crate::support::http::Http;
use crate::support::mcp::Client;
use crate::support::registry::Registry;
use crate::support::{hotcell, own_address, scratch, wait_until};

/// What a container of ours may do, as packaging/docker/compose.yaml has it for the embedded engine.
const EMBEDDED: [&str; 8] = [
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
    "--security-opt=systempaths=unconfined",
    // A program that was built for a test is not static: it brings no library of its own.
    "--volume=/lib:/lib:ro",
    "--volume=/lib64:/lib64:ro",
    "--network=host",
];

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Packs the program under test, without what debuggers need, and pushes the image if a registry is named; returns the
/// directory of the products. `None`, and the test is skipped, if `xtask` was not built beside it.
fn packed(directory: &Path, registry: Option<&str>) -> Option<PathBuf> {
    // Once at a time: compressing takes a processor.
    static PACKING: Mutex<()> = Mutex::new(());
    let _alone = PACKING.lock();
    let xtask = hotcell().with_file_name("xtask");
    if !xtask.exists() {
        skip(Need::Programs, "xtask is not built");
        return None;
    }
    let (binary, out) = (directory.join("hotcell"), directory.join("dist"));
    succeed(Command::new("strip").arg("-o").arg(&binary).arg(hotcell()));
    let mut dist = Command::new(xtask);
    dist.current_dir(root())
        .arg("dist")
        .arg("--binary")
        .arg(&binary)
        .arg("--out")
        .arg(&out);
    if let Some(registry) = registry {
        dist.args(["--push", &format!("{registry}/hotcell")]);
    }
    succeed(&mut dist);
    Some(out)
}

/// The image that was pushed, as this engine has pulled it.
fn pulled(docker: &Private, registry: &Registry) -> String {
    let image = format!("{}/hotcell:{}", registry.host, env!("CARGO_PKG_VERSION"));
    docker.says(&["pull", "--quiet", &image]);
    image
}

/// What the server answers who asks for a file that does not exist: 404, if the token counts.
fn status(url: &str, token: Option<&str>) -> u16 {
    let mut http = Http::connect(url);
    if let Some(token) = token {
        http = http.with_token(token);
    }
    http.get("/v1/containers/none/files/f", &[]);
    http.status
}

fn succeed(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = (text(stdout), text(stderr));
    assert!(status.success(), "{command:?}: {stdout}\n{stderr}");
    stdout
}

#[test]
fn the_debian_package_works_in_a_fresh_debian_and_purging_it_leaves_nothing() {
    if !rustix::process::getuid().is_root() {
        return skip(Need::Root, "installing a package takes root");
    }
    let directory = scratch();
    let Some(out) = packed(directory.path(), None) else {
        return;
    };
    let files = std::fs::read_dir(out)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut packages = files.filter(|path| path.extension().is_some_and(|end| end == "deb"));
    let said = succeed(
        Command::new(root().join("tests/package/install"))
            .arg(packages.next().unwrap())
            .arg(target().join("package")),
    );
    for words in [
        "installed hotcell",
        "ran a command in a sealed container",
        "the server ran a snippet",
        "purged",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn docker_pulls_the_image_that_was_pushed_and_runs_it_as_an_ordinary_user() {
    let Some(docker) = Private::start(Flavor::Docker) else {
        return;
    };
    let Some(registry) = Registry::start() else {
        return;
    };
    let directory = scratch();
    if packed(directory.path(), Some(&registry.host)).is_none() {
        return;
    }
    let image = pulled(&docker, &registry);
    let user = docker.says(&["inspect", "--format", "{{.Config.User}}", &image]);
    assert_eq!(user.trim(), "65532:65532");
    let run = |words: &[&str]| docker.says(&[&["run"], &EMBEDDED[..], words].concat());
    let version = run(&["--rm", &image, "--version"]);
    assert!(version.starts_with("hotcell "), "{version}");
    // A sealed container inside: it sees the programs of the image, of which there is one.
    let inside = run(&["--rm", &image, "run", "--", "/usr/bin/hotcell", "--version"]);
    assert_eq!(inside, version);
    let address = own_address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let serve = [
        "--detach", &image, "serve", "--host", &host, "--port", &port,
    ];
    let container = run(&serve);
    let container = container.trim();
    wait_until("the server listens", || {
        std::net::TcpStream::connect(address).is_ok()
    });
    let token = docker.says(&[
        "exec",
        container,
        "/usr/bin/hotcell",
        "token",
        "add",
        "alice",
    ]);
    let url = format!("http://{address}");
    assert_eq!(status(&url, None), 401);
    wait_until("the token counts", || {
        status(&url, Some(token.trim())) == 404
    });
    docker.says(&["stop", container]);
    let ended = docker.says(&["inspect", "--format", "{{.State.ExitCode}}", container]);
    docker.says(&["rm", "--volumes", container]);
    assert_eq!(ended.trim(), "0");
}

/// `docker-compose` with packaging/docker/compose.yaml. The private Docker has no network, so the server listens on a
/// loopback address instead of a published port; and a program that was built for a test brings no library of its own.
struct Compose {
    directory: tempfile::TempDir,
    variables: [(&'static str, String); 2],
}

impl Compose {
    fn of(docker: &Private, address: std::net::SocketAddr) -> Self {
        let directory = scratch();
        let text = std::fs::read_to_string(root().join("packaging/docker/compose.yaml")).unwrap();
        for option in EMBEDDED
            .iter()
            .filter_map(|option| option.strip_prefix("--security-opt="))
        {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            let stands = |mark| text.contains(&format!("- {name}{mark}{value}\n"));
            assert!(
                stands(':') || stands('='),
                "{option} is not what the file says"
            );
        }
        let text: Vec<&str> = text
            .lines()
            .filter(|line| !line.contains("ports:"))
            .collect();
        std::fs::write(directory.path().join("compose.yaml"), text.join("\n")).unwrap();
        let ours = json!({ "services": { "hotcell": {
            "network_mode": "host",
            "environment": { "HOTCELL_HOST": address.ip().to_string(), "HOTCELL_PORT": address.port().to_string() },
            "volumes": [format!("{}:/var/run/docker.sock", docker.socket.display()), "/lib:/lib:ro", "/lib64:/lib64:ro"],
        } } });
        std::fs::write(directory.path().join("ours.yaml"), ours.to_string()).unwrap();
        let group = std::fs::metadata(&docker.socket).unwrap().gid();
        Self {
            directory,
            variables: [docker.address(), ("DOCKER_GID", group.to_string())],
        }
    }

    fn says(&self, words: &[&str]) -> String {
        let mut command = Command::new("docker-compose");
        command
            .current_dir(self.directory.path())
            .args(["--project-name", "composed", "--file", "compose.yaml"])
            .args(["--file", "ours.yaml", "--profile", "docker"])
            .args(words)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        succeed(&mut command)
    }
}

#[test]
fn compose_starts_a_server_that_makes_containers_with_the_docker_of_the_host() {
    let Some(docker) = Private::start(Flavor::Docker) else {
        return;
    };
    let Some(registry) = Registry::start() else {
        return;
    };
    if Command::new("docker-compose")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip(Need::Engines, "docker-compose is not installed");
    }
    let directory = scratch();
    if packed(directory.path(), Some(&registry.host)).is_none() {
        return;
    }
    docker.says(&["tag", &pulled(&docker, &registry), "hotcell"]);
    let address = own_address();
    let compose = Compose::of(&docker, address);
    compose.says(&["up", "--detach"]);
    wait_until("the server listens", || {
        std::net::TcpStream::connect(address).is_ok()
    });
    // As the comment in the file says.
    let token = compose.says(&["exec", "-T", "hotcell", "hotcell", "token", "add", "alice"]);
    let url = format!("http://{address}");
    wait_until("the token counts", || {
        status(&url, Some(token.trim())) == 404
    });
    let mut client = Client::http_by_token(&url, token.trim());
    let container = client.ok("spawn", json!({ "image": IMAGE }))["container_id"].clone();
    let command = json!({ "container_id": container, "cmd": ["id", "-u"], "wait_s": 50 });
    let exec = client.ok("exec_start", command)["exec_id"].clone();
    let ended = client.follow(&exec, |_| {});
    assert_eq!(ended["exit_code"], 0, "{ended}");
    let name = format!("hotcell-{}", container.as_str().unwrap());
    let names = || docker.says(&["ps", "--all", "--format", "{{.Names}}"]);
    assert!(names().contains(&name), "{}", names());
    compose.says(&["down", "--volumes"]);
    assert!(!names().contains(&name), "{}", names());
}
