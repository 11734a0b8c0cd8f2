//! Files that are no plain files, or whose owner does not want them read.

use std::io::Read;

use hotcell_agent_client::{AgentError, AgentRefusal, FileKind, Precondition};

use super::container::{assert_well, background, export, in_time, is_refused, list, read, write};
use crate::support::{TestContainer, python, shell};

const WRONG_KIND: [AgentRefusal; 1] = [AgentRefusal::Conflict { current_etag: None }];

#[tokio::test]
async fn fifos_and_sockets_block_nobody() {
    let container = TestContainer::new().await;
    let made = container
        .python("import os, socket\nos.mkfifo('d.fifo')\nos.mkdir('d')\nos.mkfifo('d/fifo')\nsocket.socket(socket.AF_UNIX).bind('d/socket')\nopen('d/file','w').write('x')")
        .await;
    assert_eq!(made.code(), 0, "{}", made.stderr);
    for path in [b"d/fifo".as_slice(), b"d/socket", b"d.fifo"] {
        let info = in_time(container.agent.stat(path, true)).await.unwrap();
        assert_eq!(info.kind, FileKind::Other);
        for error in [
            in_time(read(&container.agent, path)).await.unwrap_err(),
            in_time(write(&container.agent, path, b"x"))
                .await
                .unwrap_err(),
            in_time(export(&container.agent, path)).await.unwrap_err(),
            in_time(container.agent.copy(path, b"copy", true, true))
                .await
                .unwrap_err(),
        ] {
            assert!(is_refused(&error, &WRONG_KIND), "{error:?}");
        }
    }
    // With somebody at the other end too.
    let reader = background(&container, &shell("echo ready; cat d/fifo")).await;
    let error = in_time(write(&container.agent, b"d/fifo", b"x"))
        .await
        .unwrap_err();
    assert!(is_refused(&error, &WRONG_KIND), "{error:?}");
    drop(reader);
    let packed = in_time(export(&container.agent, b"d")).await.unwrap();
    let mut archive = tar::Archive::new(&packed[..]);
    assert_eq!(archive.entries().unwrap().count(), 1);
    in_time(container.agent.copy(b"d", b"copy", false, true))
        .await
        .unwrap();
    assert_eq!(
        list(&container.agent, b"copy", true).await.unwrap().len(),
        1
    );
    let removed = container.agent.delete(b"d", true, Precondition::Any);
    assert_eq!(in_time(removed).await.unwrap(), 4);
    assert_well(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn a_lease_on_a_file_holds_up_nobody() {
    let container = TestContainer::new().await;
    write(&container.agent, b"leased", b"x").await.unwrap();
    let script = "import fcntl, os, signal, time\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nfd = os.open('/workspace/leased', os.O_RDWR)\nfcntl.fcntl(fd, 1024, fcntl.F_WRLCK)\nprint('ready', flush=True)\ntime.sleep(1000)";
    drop(background(&container, &python(script)).await);
    // The kernel would wait 45 s for the holder to give it up.
    let read = tokio::time::timeout(
        std::time::Duration::from_secs(30),
        read(&container.agent, b"leased"),
    );
    let error = read.await.expect("nobody waits for a lease").unwrap_err();
    assert!(is_refused(&error, &WRONG_KIND), "{error:?}");
    assert_well(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn a_sparse_terabyte_costs_neither_disk_nor_memory() {
    let container = TestContainer::new().await;
    assert_eq!(
        container.sh("mkdir d && truncate -s 1T d/big").await.code(),
        0
    );
    let end = (1 << 40) - 4;
    let (info, reader) = container
        .agent
        .read(b"d/big", end, Some(100))
        .await
        .unwrap();
    assert_eq!(info.size, 1 << 40);
    assert_eq!(in_time(reader.collect(100)).await.unwrap(), [0; 4]);
    let error = in_time(export(&container.agent, b"d")).await.unwrap_err();
    assert!(matches!(error, AgentError::Protocol(_)), "{error:?}");
    let error = in_time(read(&container.agent, b"d/big")).await.unwrap_err();
    assert!(matches!(error, AgentError::Protocol(_)), "{error:?}");
    in_time(container.agent.copy(b"d/big", b"copy", false, false))
        .await
        .unwrap();
    let used = container.sh("du -k copy | cut -f1").await.stdout;
    assert!(used.trim().parse::<u64>().unwrap() < 1024, "{used} KiB");
    assert_well(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn a_file_that_never_stops_growing_is_read_and_packed_to_an_end() {
    let container = TestContainer::new().await;
    let grower = "i=0; echo x > log; echo ready; while :; do i=$((i+1)); head -c 65536 /dev/zero >> log; \
        [ $((i % 64)) = 0 ] && : > log; done";
    drop(background(&container, &shell(grower)).await);
    for _ in 0..50 {
        let (info, reader) = in_time(container.agent.read(b"log", 0, None))
            .await
            .unwrap();
        let content = in_time(reader.collect(16 << 20)).await.unwrap();
        assert!(content.len() as u64 <= info.size);
        let packed = in_time(export(&container.agent, b"")).await.unwrap();
        assert!(is_whole(&packed));
        in_time(container.agent.copy(b"log", b"copy", true, false))
            .await
            .unwrap();
    }
    assert_well(&container).await;
    container.remove().await;
}

/// Whether every member has as many bytes as it says.
fn is_whole(packed: &[u8]) -> bool {
    let mut archive = tar::Archive::new(packed);
    let mut entries = archive.entries().expect("an archive");
    entries.all(|entry| {
        let mut entry = entry.expect("a member");
        let size = entry.size();
        std::io::copy(&mut entry.by_ref(), &mut std::io::sink()).expect("its bytes") == size
    })
}

#[tokio::test]
async fn a_thousand_links_to_one_file_are_bounded_like_a_thousand_files() {
    let container = TestContainer::new().await;
    let made = container
        .python("import os\nos.mkdir('d')\nopen('d/f','wb').write(b'x'*(1<<20))\nfor n in range(1000): os.link('d/f', f'd/{n}')")
        .await;
    assert_eq!(made.code(), 0, "{}", made.stderr);
    let error = in_time(export(&container.agent, b"d")).await.unwrap_err();
    assert!(matches!(error, AgentError::Protocol(_)), "{error:?}");
    assert_eq!(
        list(&container.agent, b"d", true).await.unwrap().len(),
        1001
    );
    let removed = container.agent.delete(b"d", true, Precondition::Any);
    assert_eq!(in_time(removed).await.unwrap(), 1002);
    assert_well(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn closed_directories_are_refused_and_go_with_the_container() {
    let container = TestContainer::new().await;
    let made = container
        .sh("mkdir -p closed/inner && echo x > closed/inner/file && mkdir open && echo x > open/secret && \
            chmod 000 open/secret closed/inner closed && mkdir -p nested/closed/deep && chmod 000 nested/closed")
        .await;
    assert_eq!(made.code(), 0, "{}", made.stderr);
    let denied = [AgentRefusal::Denied];
    for error in [
        in_time(read(&container.agent, b"open/secret"))
            .await
            .unwrap_err(),
        in_time(read(&container.agent, b"closed/inner/file"))
            .await
            .unwrap_err(),
        in_time(list(&container.agent, b"closed", true))
            .await
            .unwrap_err(),
        in_time(export(&container.agent, b"")).await.unwrap_err(),
        in_time(container.agent.copy(b"closed", b"copy", false, true))
            .await
            .unwrap_err(),
        in_time(container.agent.delete(b"closed", true, Precondition::Any))
            .await
            .unwrap_err(),
        in_time(write(&container.agent, b"closed/new", b"x"))
            .await
            .unwrap_err(),
    ] {
        assert!(is_refused(&error, &denied), "{error:?}");
    }
    // What can be listed is, and what cannot is left out.
    let entries = list(&container.agent, b"", true).await.unwrap();
    assert_eq!(entries.len(), 5, "{entries:?}");
    assert_well(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn files_of_the_containers_root_are_not_the_users_and_go_with_the_container() {
    let Some(container) = TestContainer::with_root().await else {
        return;
    };
    // Its root has no power over the user's own directories.
    assert_ne!(container.sh_as_root("touch mine").await.code(), 0);
    assert_eq!(container.sh("mkdir -m 777 all").await.code(), 0);
    let made = container
        .sh_as_root(
            "cd all && mkdir -p roots/inner && echo secret > roots/inner/file && echo x > loose && \
            cp /bin/true roots/suid && chmod 4755 roots/suid && chmod 600 roots/inner/file loose && \
            chmod 700 roots",
        )
        .await;
    assert_eq!(made.code(), 0, "{}", made.stderr);
    let denied = [AgentRefusal::Denied];
    for error in [
        in_time(read(&container.agent, b"all/loose"))
            .await
            .unwrap_err(),
        in_time(read(&container.agent, b"all/roots/inner/file"))
            .await
            .unwrap_err(),
        in_time(export(&container.agent, b"")).await.unwrap_err(),
        in_time(
            container
                .agent
                .delete(b"all/roots", true, Precondition::Any),
        )
        .await
        .unwrap_err(),
        in_time(write(&container.agent, b"all/roots/new", b"x"))
            .await
            .unwrap_err(),
    ] {
        assert!(is_refused(&error, &denied), "{error:?}");
    }
    // The directory is the user's, so whoever owns the file, it may go.
    let removed = container
        .agent
        .delete(b"all/loose", false, Precondition::Any);
    assert_eq!(in_time(removed).await.unwrap(), 1);
    assert_well(&container).await;
    container.remove().await;
}
