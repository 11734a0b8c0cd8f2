//! `hotcell pull` where things go wrong: credentials, crashes, crowds and disks.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use hotcell_testkit::image::{Made, digest, image, layer, noise};
use hotcell_testkit::registry::{self, Answer, Canned, not_found, status};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::support::wait_until;
use crate::support::{self, home::Home};

/// `ann:pw`.
const BASIC: &str = "authorization: Basic YW5uOnB3";

fn runtime() -> Runtime {
    Runtime::new().expect("a runtime")
}

fn made() -> Made {
    image(&[layer(&[("a", &noise(1 << 20))])])
}

fn blob_path(made: &Made) -> String {
    format!("/v2/x/blobs/{}", digest(&made.layers[0].blob))
}

fn pull(home: &Home, registry: &Canned) -> Command {
    let name = format!("{}/x", registry.host);
    let mut command = home.command(&["pull", &name, "--allowed-registries", &registry.host]);
    command.env("DOCKER_CONFIG", home.path());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What is in the store, in the making or made.
fn stored(home: &Home, directory: &str) -> usize {
    let path = home.path().join("images").join(directory);
    std::fs::read_dir(path).map_or(0, Iterator::count)
}

/// A registry that requires a password, with an image.
fn closed(made: &Made) -> impl Fn(&registry::Asked) -> Answer + Send + Sync + 'static {
    let manifest = made.manifest.clone();
    let blobs = [&made.config, &made.layers[0].blob].map(|blob| {
        let path = format!("/v2/x/blobs/{}", digest(blob));
        (path, blob.clone())
    });
    move |(path, headers)| {
        if !headers.contains(BASIC) {
            return status(
                "401 Unauthorized",
                "www-authenticate: Basic realm=\"x\"\r\n",
            );
        }
        if path == "/v2/x/manifests/latest" {
            return Answer::Body(manifest.clone());
        }
        let found = blobs.iter().find(|(known, _)| known == path);
        found.map_or_else(not_found, |(_, blob)| Answer::Body(blob.clone()))
    }
}

fn helper(home: &Home, name: &str, script: &str) {
    let path = home.path().join(format!("docker-credential-{name}"));
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("a program");
}

/// Pulls with this Docker configuration, and the helpers of the home on the path.
fn pull_with(home: &Home, registry: &Canned, config: &str) -> Output {
    let config = config.replace("HOST", &registry.host);
    std::fs::write(home.path().join("config.json"), config).expect("a file");
    let path = format!("{}:/usr/bin:/bin", home.path().display());
    let mut command = pull(home, registry);
    support::server::output(command.env("PATH", path))
}

#[test]
fn credentials_come_from_helpers_and_a_hostile_helper_is_refused() {
    let (home, runtime, made) = (Home::new(), runtime(), made());
    let registry = runtime.block_on(Canned::start(closed(&made)));
    let answer = r#"echo '{"ServerURL":"x","Username":"ann","Secret":"pw"}'"#;
    let ours = format!(
        r#"read host; [ "$1 $host" = "get {}" ] && {answer}"#,
        registry.host
    );
    helper(&home, "good", &ours);
    helper(
        &home,
        "none",
        "cat >/dev/null; echo credentials not found; exit 1",
    );
    helper(&home, "garbage", "cat >/dev/null; echo hunter2");
    helper(&home, "huge", "cat >/dev/null; yes hunter2");
    for (config, words) in [
        (r#"{"credHelpers": {"HOST": "none"}}"#, "denies access"),
        (
            r#"{"credsStore": "none"}"#,
            "log in with `docker login 127.0.0.1:",
        ),
        (
            r#"{"credHelpers": {"HOST": "garbage"}}"#,
            "says nothing sensible",
        ),
        (r#"{"credHelpers": {"HOST": "huge"}}"#, "says too much"),
        (
            r#"{"credHelpers": {"HOST": "absent"}}"#,
            "docker-credential-absent",
        ),
        (r#"{"credHelpers": {"HOST": "../bin/sh"}}"#, "no plain name"),
        ("{", "no Docker configuration"),
    ] {
        let output = pull_with(&home, &registry, config);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{config}: {told}");
        assert!(told.contains(words), "{config}: {told}");
        assert!(!told.contains("hunter2"), "a secret: {told}");
        assert_eq!(stored(&home, "refs"), 0);
    }
    // A file that is named is read in place of the usual one, and must be there.
    let named = home.path().join("named.json");
    let config = r#"{"auths": {"HOST": {"auth": "YW5uOnB3"}}}"#;
    for (content, is_good) in [(None, false), (Some("{}"), false), (Some(config), true)] {
        if let Some(content) = content {
            std::fs::write(&named, content.replace("HOST", &registry.host)).expect("a file");
        }
        let mut command = pull(&home, &registry);
        let output = support::server::output(command.arg("--docker-config").arg(&named));
        let told = text(&output.stderr);
        assert_eq!(output.status.success(), is_good, "{content:?}: {told}");
        let is_missing = content.is_none();
        assert_eq!(told.contains("open --docker-config"), is_missing, "{told}");
    }
    for config in [
        r#"{"credHelpers": {"HOST": "good"}, "credsStore": "garbage"}"#,
        r#"{"credsStore": "good"}"#,
        r#"{"auths": {"https://HOST/v2/": {"auth": "YW5uOnB3"}}, "credsStore": "garbage"}"#,
    ] {
        let output = pull_with(&home, &registry, config);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

#[test]
fn a_pull_that_was_killed_is_continued_by_the_next() {
    let (home, runtime, made) = (Home::new(), runtime(), made());
    let half = made.layers[0].blob.len() / 2;
    let registry = runtime.block_on(Canned::stalling_once(&made));
    let mut killed = pull(&home, &registry).spawn().expect("it starts");
    let (blob, tar) = (&made.layers[0].blob, &made.layers[0].tar);
    let file = format!("{}-{}", digest(blob).hex(), digest(tar).hex());
    let file = home.path().join("images/blobs").join(file);
    let has_half = || std::fs::metadata(&file).is_ok_and(|it| it.len() == half as u64);
    wait_until("half of the layer is here", has_half);
    killed.kill().expect("it runs");
    killed.wait().expect("it is ours");
    assert_eq!((stored(&home, "refs"), stored(&home, "layers")), (0, 0));

    let output = support::server::output(&mut pull(&home, &registry));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let range = format!("range: bytes={half}-");
    let asked = registry.asked();
    assert!(asked.iter().any(|(_, headers)| headers.contains(&range)));
    assert_eq!((stored(&home, "blobs"), stored(&home, "new")), (0, 0));
}

#[test]
fn two_processes_that_pull_the_same_fetch_it_once() {
    let (home, runtime, made) = (Home::new(), runtime(), made());
    let (blob, path, rest) = (
        made.layers[0].blob.clone(),
        blob_path(&made),
        Arc::new(Notify::new()),
    );
    let held = Answer::Held(blob.clone(), 10, Arc::clone(&rest));
    let registry = runtime.block_on(Canned::serving(&made, vec![(path.clone(), held)]));
    let start = || pull(&home, &registry).stdout(Stdio::piped()).spawn();
    let first = start().expect("it starts");
    let times = || {
        registry
            .asked()
            .iter()
            .filter(|(asked, _)| *asked == path)
            .count()
    };
    wait_until("the layer is asked for", || times() == 1);
    let second = start().expect("it starts");
    wait_until("the second waits", || is_waiting(&second, home.path()));
    rest.notify_waiters();
    let [first, second] =
        [first, second].map(|child| child.wait_with_output().expect("it is ours"));
    assert!(first.status.success() && second.status.success());
    assert_eq!(text(&first.stdout), text(&second.stdout));
    assert_eq!(times(), 1);
}

/// Whether a process has one of the store's locks open.
fn is_waiting(child: &Child, state: &Path) -> bool {
    let locks = state.join("images/locks");
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id()));
    let mut open = open.into_iter().flatten().flatten();
    open.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(&locks)))
}

#[test]
fn a_disk_that_is_full_or_read_only_is_told_and_nothing_half_made_is_left() {
    let (home, runtime, made) = (Home::new(), runtime(), made());
    let registry = runtime.block_on(Canned::serving(&made, Vec::new()));
    let state = home.path().join("state");
    std::fs::create_dir(&state).expect("a directory");
    for (prepare, words) in [
        (
            "mount -t tmpfs -o size=1500k,mode=700 none $D",
            "No space left on device",
        ),
        (
            "mount -t tmpfs -o mode=700 none $D && mkdir $D/images && mount -o remount,bind,ro $D",
            "Read-only file system",
        ),
    ] {
        let script = format!(
            "{prepare} && {{ \"$@\"; code=$?; \
             ls $D/images/new $D/images/refs $D/images/layers 2>/dev/null | grep -v : | tr -d '\\n'; exit $code; }}"
        );
        let pull = pull(&home, &registry);
        let is_root = rustix::process::geteuid().is_root();
        let mut command = Command::new("unshare");
        command
            .args(if is_root {
                &["--mount"][..]
            } else {
                &["--mount", "--map-root-user"]
            })
            .args(["sh", "-c", &script, "sh"])
            .arg(pull.get_program())
            .args(pull.get_args())
            .env("D", &state)
            .env("HOTCELL_STATE_DIR", &state)
            .stdin(Stdio::null());
        let output = support::server::output(&mut command);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(words), "{told}");
        assert_eq!(text(&output.stdout), "", "something is left");
    }
}
