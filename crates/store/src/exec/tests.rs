use hotcell_domain::{ExecStatus, Stdin, Usage};

use super::*;
use crate::PageCursor;
use crate::samples::{at_once, container, end, exec, name, store};

fn with_key(number: u64, key: &str) -> ExecRow {
    ExecRow {
        key: Some(name(key)),
        ..exec(number)
    }
}

fn with_secrets(number: u64) -> ExecRow {
    let mut row = exec(number);
    row.command.env.set("TOKEN", "hunter2").unwrap();
    row.command
        .set_stdin(Stdin::Text("hunter3".to_owned()))
        .unwrap();
    row
}

#[tokio::test]
async fn an_exec_is_read_back_as_it_was_noted() {
    let (directory, store) = store();
    let full = ExecRow {
        key: Some(name("key")),
        oom_kills_before: 3,
        ..with_secrets(5)
    };
    store.insert_exec(full.clone(), 0).await.unwrap();
    store.insert_exec(exec(4), 0).await.unwrap();
    assert_eq!(
        store
            .exec(Principal::local(), full.id.clone())
            .await
            .unwrap(),
        Some(full.clone())
    );
    assert_eq!(
        store.exec(Principal::local(), exec(6).id).await.unwrap(),
        None
    );
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.active_execs().await.unwrap(), [exec(4), full]);
}

#[tokio::test]
async fn an_ended_exec_keeps_its_end_and_loses_its_secrets() {
    let (directory, store) = store();
    let row = with_secrets(1);
    store.insert_exec(row.clone(), 0).await.unwrap();
    let ended = ExecEnd {
        exit_code: Some(0),
        reason: Some("done".to_owned()),
        usage: Some(Usage {
            stdout_bytes: 7,
            ..Usage::default()
        }),
        ..end(ExecStatus::Succeeded)
    };
    store
        .end_exec(row.id.clone(), ended.clone(), 9)
        .await
        .unwrap();
    let again = end(ExecStatus::Lost);
    store.end_exec(row.id.clone(), again, 10).await.unwrap();
    let expected = ExecRow {
        end: Some(ended),
        ended_unix_ms: Some(9),
        ..exec(1)
    };
    assert_eq!(
        store.exec(Principal::local(), row.id).await.unwrap(),
        Some(expected)
    );
    assert!(store.active_execs().await.unwrap().is_empty());
    drop(store);
    let file = std::fs::read(directory.path().join("hotcell.db")).unwrap();
    let holds = |secret: &[u8]| file.windows(secret.len()).any(|part| part == secret);
    assert!(!holds(b"hunter2") && !holds(b"hunter3"));
}

#[tokio::test]
async fn only_a_final_status_ends_an_exec_that_is_there() {
    let (_directory, store) = store();
    store.insert_exec(exec(1), 0).await.unwrap();
    let running = store
        .end_exec(exec(1).id, end(ExecStatus::Running), 5)
        .await;
    assert!(matches!(running, Err(StoreError::Failed { .. })));
    assert_eq!(store.active_execs().await.unwrap().len(), 1);
    let unknown = store.end_exec(exec(2).id, end(ExecStatus::Lost), 5).await;
    assert!(matches!(unknown, Err(StoreError::Failed { .. })));
}

#[tokio::test]
async fn the_same_key_in_the_same_container_means_the_same_exec_until_it_is_too_old() {
    let (_directory, store) = store();
    let insert = |row, since| store.insert_exec(row, since);
    assert_eq!(insert(with_key(10, "k"), 0).await.unwrap(), ExecInsert::New);
    let before = ExecInsert::Existing(Box::new(with_key(10, "k")));
    assert_eq!(insert(with_key(20, "k"), 10).await.unwrap(), before);
    let mut elsewhere = with_key(20, "k");
    elsewhere.container = container(2).id;
    assert_eq!(insert(elsewhere, 0).await.unwrap(), ExecInsert::New);
    assert_eq!(
        insert(with_key(30, "k"), 11).await.unwrap(),
        ExecInsert::New
    );
}

#[tokio::test]
async fn ended_execs_are_listed_in_one_container_or_in_all() {
    let (_directory, store) = store();
    for number in 1..=4 {
        let mut row = exec(number);
        row.container = container(number % 2).id;
        store.insert_exec(row, 0).await.unwrap();
        let ended = end(ExecStatus::Succeeded);
        store
            .end_exec(exec(number).id, ended, 100 - number)
            .await
            .unwrap();
    }
    let created = async |container, count_max| {
        let principal = Principal::local();
        let rows = store
            .ended_execs_page(principal, container, None, count_max)
            .await;
        let rows = rows.unwrap();
        rows.iter()
            .map(|row| row.created_unix_ms)
            .collect::<Vec<_>>()
    };
    assert_eq!(created(None, 3).await, [4, 3, 2]);
    assert_eq!(created(Some(container(0).id), 9).await, [4, 2]);
    assert_eq!(created(Some(container(0).id), 1).await, [4]);
    let foreign = Principal::new(name("somebody"));
    let rows = store
        .ended_execs_page(foreign, Some(container(0).id), None, 9)
        .await;
    assert!(rows.unwrap().is_empty());
}

#[tokio::test]
async fn pages_of_ended_execs_follow_each_other_also_within_one_millisecond() {
    let (_directory, store) = store();
    for number in 1..=7 {
        let row = ExecRow {
            created_unix_ms: number / 3,
            ..exec(number)
        };
        store.insert_exec(row, 0).await.unwrap();
        let ended = end(ExecStatus::Succeeded);
        store.end_exec(exec(number).id, ended, 9).await.unwrap();
    }
    for container in [None, Some(container(1).id)] {
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = store.ended_execs_page(Principal::local(), container.clone(), after, 2);
            let page = page.await.unwrap();
            assert!(page.len() <= 2);
            let Some(last) = page.last() else { break };
            after = Some(PageCursor {
                created_unix_ms: last.created_unix_ms,
                id: last.id.clone(),
            });
            seen.extend(page.into_iter().map(|row| row.id));
        }
        let newest_first: Vec<_> = (1..=7).rev().map(|number| exec(number).id).collect();
        assert_eq!(seen, newest_first);
    }
}

#[test]
fn of_many_who_ask_under_one_key_at_once_one_gets_a_new_exec() {
    let (_directory, store) = store();
    let answers = at_once(async |number| {
        let asked = store.insert_exec(with_key(number, "k"), 0);
        asked.await.unwrap()
    });
    let new = answers
        .iter()
        .filter(|answer| **answer == ExecInsert::New)
        .count();
    assert_eq!(new, 1);
}

#[tokio::test]
async fn an_ended_exec_keeps_the_first_of_its_arguments_and_lists_hold_no_more() {
    let (_directory, store) = store();
    let mut long = vec!["echo".to_owned()];
    long.extend(vec!["x".repeat(20_000); 4]);
    let row = ExecRow {
        command: Command::new(long).unwrap(),
        ..exec(1)
    };
    store.insert_exec(row.clone(), 0).await.unwrap();
    let living = store
        .exec(Principal::local(), row.id.clone())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(living.command, row.command);
    let ended = end(ExecStatus::Succeeded);
    store.end_exec(row.id.clone(), ended, 9).await.unwrap();
    let kept = store
        .exec(Principal::local(), row.id)
        .await
        .unwrap()
        .unwrap();
    let bytes = |argv: &[String]| argv.iter().map(String::len).sum::<usize>();
    let kept = bytes(kept.command.argv());
    assert!(
        (ARGV_BYTES_KEPT - 20..=ARGV_BYTES_KEPT).contains(&kept),
        "{kept}"
    );
    let listed = store
        .ended_execs_page(Principal::local(), None, None, 9)
        .await
        .unwrap();
    assert!(bytes(&listed[0].argv) <= 1 << 10);
    assert_eq!(listed[0].argv[0], "echo");
}
