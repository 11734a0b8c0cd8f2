//! What a container can see of its host: nothing.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::container::{Live, TestContainer};
use super::sealed::sealed;
use super::{Outcome, Subject, claimed};

/// The agent, a keeper, a shell and its children.
const PROCESSES_MAX: usize = 8;

/// Execs started under a stream of signals: enough to hit the critical moment.
const HAMMERED_EXECS: usize = 50;

/// Interfaces that the kernel adds to every network namespace once certain modules are loaded:
/// fallback tunnels that lead nowhere.
const FALLBACK_INTERFACES: [&str; 9] = [
    "tunl0", "gre0", "gretap0", "erspan0", "sit0", "ip6tnl0", "ip6gre0", "ip_vti0", "ip6_vti0",
];

pub(super) async fn there_is_no_network_but_loopback(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    let devices = container.said("cat /proc/net/dev").await?;
    let names = devices.lines().filter_map(|line| line.split_once(':'));
    let (mut loopback, mut strange) = (false, Vec::new());
    for (name, _) in names {
        match name.trim() {
            "lo" => loopback = true,
            name if FALLBACK_INTERFACES.contains(&name) => {}
            name => strange.push(name.to_owned()),
        }
    }
    assert!(loopback, "{devices}");
    assert!(strange.is_empty(), "{strange:?}");
    // Only the heading: no route.
    assert_eq!(
        container.said("cat /proc/net/route").await?.lines().count(),
        1
    );
    if !claimed(subject.traits.linux, "to run Linux") {
        return container.end().await;
    }
    // The table has the local address only once the interface is up.
    let table = container.said("cat /proc/net/fib_trie").await?;
    assert!(table.contains("127.0.0.1"), "loopback is down: {table}");
    container.end().await
}

pub(super) async fn the_host_name_is_its_own(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let inside = container.said("cat /proc/sys/kernel/hostname").await?;
    assert_ne!(inside, host);
    assert!(!inside.trim().is_empty());
    container.end().await
}

pub(super) async fn the_namespaces_are_its_own(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    let mut kinds = vec!["pid", "net"];
    if subject.traits.linux {
        kinds.extend(["mnt", "ipc", "uts"]);
    }
    if subject.traits.cgroup_namespace {
        kinds.push("cgroup");
    }
    if subject.traits.user_namespace {
        kinds.push("user");
    }
    for kind in kinds {
        let link = format!("/proc/self/ns/{kind}");
        let host = std::fs::read_link(&link)?;
        let inside = container.said(&format!("readlink {link}")).await?;
        assert_ne!(Path::new(inside.trim()), host);
    }
    container.end().await
}

pub(super) async fn init_is_the_agent_and_no_host_process_is_seen(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    let line = container.said("tr '\\0' ' ' < /proc/1/cmdline").await?;
    let mut words = line.split(' ');
    let program = words.next().context("init has no name")?;
    assert!(program.ends_with("hotcell-agent"), "{line}");
    assert_eq!(words.next(), Some("init"), "{line}");

    let script = "for f in /proc/[0-9]*; do echo ${f#/proc/}; done";
    let processes = container.said(script).await?;
    assert!(processes.lines().count() <= PROCESSES_MAX, "{processes}");
    let us = std::env::current_exe()?;
    let us = us.file_name().context("we have a name")?.to_string_lossy();
    let all = container
        .said("cat /proc/[0-9]*/cmdline 2> /dev/null; :")
        .await?;
    assert!(!all.contains(&*us), "{all}");
    container.end().await
}

pub(super) async fn the_agent_cannot_be_read_or_killed(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    let memory = ["head -c 1 /proc/1/mem"];
    let rest = [
        "cat /proc/1/maps",
        "cat /proc/1/environ",
        "readlink /proc/1/exe",
        "readlink /proc/1/root",
        "ls /proc/1/fd/",
        "ls /proc/1/map_files/",
    ];
    let told = rest.iter().filter(|_| subject.traits.linux);
    for script in memory.iter().chain(told) {
        let ran = container.shell(script).await?;
        assert_eq!(ran.stdout_text(), "", "`{script}` worked");
    }
    // On other kernels a process can end its own container.
    let signals = ["TERM", "INT", "HUP", "STOP", "SEGV", "KILL"];
    for signal in signals.iter().filter(|_| subject.traits.linux) {
        let script = format!("kill -{signal} 1");
        container.shell(&script).await.context(script)?;
    }
    if subject.traits.linux {
        hammer(&container).await.context("a hail of signals")?;
    }
    assert_eq!(container.said("echo alive").await?, "alive\n");
    let again = container.connect().await?;
    assert_eq!(again.hello().boot_id, container.agent.hello().boot_id);
    container.end().await
}

/// Sends signals continuously while the agent forks, when it has all of them blocked.
async fn hammer(container: &TestContainer<'_>) -> Outcome {
    let script =
        "echo ready; while :; do kill -TERM 1; kill -HUP 1; kill -USR1 1; kill -SEGV 1; done";
    let mut hail = Live::start(&container.agent, &container.sh(script)).await?;
    hail.until("ready").await?;
    for _ in 0..HAMMERED_EXECS {
        container.said("echo alive").await?;
    }
    container
        .agent
        .cancel(&hail.exec_id, Duration::ZERO)
        .await?;
    Ok(())
}

pub(super) async fn host_files_are_absent(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    let shadow = container.shell("cat /etc/shadow").await?;
    assert_eq!(shadow.stdout, b"");
    for directory in ["/root", "/home"] {
        let script = format!("ls -A {directory} 2> /dev/null; :");
        assert_eq!(container.said(&script).await?, "", "{directory}");
    }
    let canary = std::env::temp_dir().join(format!("hotcell-canary-{}", std::process::id()));
    std::fs::write(&canary, "host")?;
    let us = std::env::current_exe()?;
    for path in [&canary, &us] {
        let ran = container
            .shell(&format!("ls -d '{}'", path.display()))
            .await?;
        assert_ne!(ran.exit.code, Some(0), "{} is seen", path.display());
    }
    std::fs::remove_file(&canary)?;
    container.end().await
}

pub(super) async fn no_descriptor_is_inherited(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    // The directory that the shell itself reads is closed again by the time it is listed.
    let script = "for f in /proc/$$/fd/*; do readlink $f; done; :";
    let links = container.said(script).await?;
    let known = |link: &str| link.starts_with("pipe:") || link == "/dev/null";
    assert!(links.lines().all(known), "{links}");
    assert!(links.lines().count() <= 3, "{links}");
    container.end().await
}
