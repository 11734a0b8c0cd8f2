//! Trees that are too wide or too deep.

use std::collections::BTreeSet;

use hotcell_agent_client::{AgentRefusal, Precondition};

use super::container::{assert_well, export, in_time, is_refused, list};
use crate::support::TestContainer;

#[tokio::test]
async fn fifty_thousand_entries_come_in_pages_and_cost_no_memory() {
    let container = TestContainer::new().await;
    let made = container
        .python("import os\nos.mkdir('wide')\nfor n in range(50000): os.close(os.open(f'wide/{n:05}-' + 'x' * 100, os.O_CREAT | os.O_WRONLY))")
        .await;
    assert_eq!(made.code(), 0, "{}", made.stderr);
    let (mut seen, mut cursor) = (BTreeSet::new(), None);
    loop {
        let page = container
            .agent
            .list(b"wide", false, None, 1000, cursor.as_deref());
        let page = in_time(page).await.unwrap();
        assert!(page.entries.len() <= 1000);
        for entry in page.entries {
            assert!(seen.insert(entry.path), "an entry came twice");
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 50_000);
    let packed = in_time(
        container
            .agent
            .export(b"wide", &["**/00001*".to_owned()], &[]),
    )
    .await;
    let packed = in_time(packed.unwrap().collect(1 << 20)).await.unwrap();
    assert_eq!(tar::Archive::new(&packed[..]).entries().unwrap().count(), 1);
    // A part goes through the agent, the rest with the container.
    let half = container
        .sh("mkdir half && ls wide | head -n 20000 | sed 's,^,wide/,' | xargs mv -t half")
        .await;
    assert_eq!(half.code(), 0, "{}", half.stderr);
    let removed = container.agent.delete(b"half", true, Precondition::Any);
    assert_eq!(in_time(removed).await.unwrap(), 20_001);
    assert_well(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn five_thousand_levels_are_refused_deleted_and_destroyed() {
    let container = TestContainer::new().await;
    let made = container
        .python("import os\nfor top in ('one', 'two'):\n  os.chdir('/workspace')\n  for n in range(5000):\n    name = top if n == 0 else 'd'\n    os.mkdir(name)\n    os.chdir(name)\n  open('bottom', 'w').write('x')")
        .await;
    assert_eq!(made.code(), 0, "{}", made.stderr);
    let exhausted = [AgentRefusal::Exhausted];
    for error in [
        in_time(list(&container.agent, b"one", true))
            .await
            .unwrap_err(),
        in_time(export(&container.agent, b"one")).await.unwrap_err(),
        in_time(container.agent.copy(b"one", b"copy", false, true))
            .await
            .unwrap_err(),
    ] {
        assert!(is_refused(&error, &exhausted), "{error:?}");
    }
    assert_eq!(list(&container.agent, b"", false).await.unwrap().len(), 2);
    let removed = container.agent.delete(b"one", true, Precondition::Any);
    assert_eq!(in_time(removed).await.unwrap(), 5001);
    assert_well(&container).await;
    container.remove().await;
}
