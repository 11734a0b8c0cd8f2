use hotcell_domain::{Alias, Phase, Principal};

use super::*;
use crate::samples::{at_once, container, name, store};

fn with_alias(number: u64, alias: &str) -> ContainerRow {
    ContainerRow {
        alias: Some(Alias::parse(alias).unwrap()),
        ..container(number)
    }
}

fn with_key(number: u64, key: &str) -> ContainerRow {
    ContainerRow {
        key: Some(name(key)),
        ..container(number)
    }
}

#[tokio::test]
async fn a_container_is_read_back_as_it_was_noted() {
    let (directory, store) = store();
    let mut full = with_alias(5, "web");
    full.key = Some(name("key"));
    full.image_digest = Some("sha256:0".to_owned());
    full.engine = EngineId::at("docker", "tcp://a:1".to_owned());
    full.labels.set("team", "ä").unwrap();
    full.is_persistent = true;
    full.expires_unix_ms = Some(u64::MAX >> 1);
    full.session = Some(name("a session"));
    full.spec.env.set("A", "b").unwrap();
    store.insert_container(full.clone(), 0).await.unwrap();
    store.insert_container(container(4), 0).await.unwrap();
    let listed = [container(4), full];
    assert_eq!(store.active_containers().await.unwrap(), listed);
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.active_containers().await.unwrap(), listed);
}

#[tokio::test]
async fn what_an_images_name_stood_for_is_noted_once_it_is_known() {
    let (_directory, store) = store();
    let id = || container(1).id;
    let made = |digest: Option<&str>| store.set_container_made(id(), digest.map(str::to_owned));
    assert!(made(None).await.is_err(), "there is no such container");
    store.insert_container(container(1), 0).await.unwrap();
    made(Some("sha256:0")).await.unwrap();
    made(None).await.unwrap();
    let running = ContainerRow {
        image_digest: Some("sha256:0".to_owned()),
        phase: Phase::Running,
        ..container(1)
    };
    assert_eq!(store.active_containers().await.unwrap(), [running]);
    let ended = store.set_container_phase(id(), Phase::Stopped, Some(5));
    ended.await.unwrap();
    made(None).await.unwrap();
    assert_eq!(store.active_containers().await.unwrap(), []);
}

#[tokio::test]
async fn the_engine_of_a_container_can_be_noted_later() {
    let (_directory, store) = store();
    let engine = EngineId::at("docker", "tcp://a:1".to_owned());
    let note = || store.set_container_engine(container(1).id, engine.clone());
    assert!(note().await.is_err(), "there is no such container");
    store.insert_container(container(1), 0).await.unwrap();
    note().await.unwrap();
    assert_eq!(store.active_containers().await.unwrap()[0].engine, engine);
}

#[tokio::test]
async fn the_same_key_means_the_same_container_until_it_is_too_old() {
    let (_directory, store) = store();
    let first = with_key(10, "k");
    let insert = |row, since| store.insert_container(row, since);
    assert_eq!(
        insert(first.clone(), 0).await.unwrap(),
        ContainerInsert::New
    );
    let before = ContainerInsert::Existing(Box::new(first.clone()));
    assert_eq!(insert(with_key(20, "k"), 10).await.unwrap(), before);
    let mut foreign = with_key(20, "k");
    foreign.principal = Principal::new(name("somebody"));
    assert_eq!(insert(foreign, 0).await.unwrap(), ContainerInsert::New);
    assert_eq!(
        insert(with_key(21, "other"), 0).await.unwrap(),
        ContainerInsert::New
    );
    assert_eq!(
        insert(with_key(30, "k"), 11).await.unwrap(),
        ContainerInsert::New
    );
    let newest = ContainerInsert::Existing(Box::new(with_key(30, "k")));
    assert_eq!(insert(with_key(40, "k"), 0).await.unwrap(), newest);
}

#[tokio::test]
async fn an_alias_is_taken_until_its_container_has_ended() {
    let (_directory, store) = store();
    store.insert_container(with_alias(1, "a"), 0).await.unwrap();
    let taken = store.insert_container(with_alias(2, "a"), 0).await;
    assert!(matches!(taken, Err(StoreError::AliasTaken)));
    let mut foreign = with_alias(3, "a");
    foreign.principal = Principal::new(name("somebody"));
    store.insert_container(foreign, 0).await.unwrap();
    let id = container(1).id;
    store
        .set_container_phase(id, Phase::Failed, Some(5))
        .await
        .unwrap();
    assert!(store.insert_container(with_alias(2, "a"), 0).await.is_ok());
}

#[tokio::test]
async fn an_id_that_is_there_already_is_a_failure_and_not_an_alias() {
    let (_directory, store) = store();
    store.insert_container(with_alias(1, "a"), 0).await.unwrap();
    let again = store.insert_container(container(1), 0).await;
    assert!(matches!(again, Err(StoreError::Failed { .. })), "{again:?}");
}

#[tokio::test]
async fn nothing_leaves_an_end() {
    let (_directory, store) = store();
    store.insert_container(container(1), 0).await.unwrap();
    let set = |phase, ended| store.set_container_phase(container(1).id, phase, ended);
    set(Phase::Running, None).await.unwrap();
    assert_eq!(
        store.active_containers().await.unwrap()[0].phase,
        Phase::Running
    );
    assert!(set(Phase::Stopped, None).await.is_err());
    assert!(set(Phase::Running, Some(9)).await.is_err());
    set(Phase::Stopped, Some(9)).await.unwrap();
    set(Phase::Failed, Some(10)).await.unwrap();
    set(Phase::Running, None).await.unwrap();
    let ended = store
        .ended_containers_page(Principal::local(), None, 9)
        .await
        .unwrap();
    assert_eq!(
        ended,
        [ContainerRow {
            phase: Phase::Stopped,
            ended_unix_ms: Some(9),
            ..container(1)
        }]
    );
    assert!(store.active_containers().await.unwrap().is_empty());
    let unknown = store
        .set_container_phase(container(2).id, Phase::Running, None)
        .await;
    assert!(matches!(unknown, Err(StoreError::Failed { .. })));
}

#[tokio::test]
async fn a_container_that_has_ended_loses_its_variables_and_no_other_does() {
    let (directory, store) = store();
    let with_secret = |number| {
        let mut row = container(number);
        let secret = format!("hunter{number}");
        row.spec.env.set("TOKEN", &secret).unwrap();
        row
    };
    for number in 1..=4 {
        let noted = store.insert_container(with_secret(number), 0);
        noted.await.unwrap();
    }
    let set = |number, phase, ended| store.set_container_phase(container(number).id, phase, ended);
    set(1, Phase::Stopped, Some(9)).await.unwrap();
    set(2, Phase::Failed, Some(9)).await.unwrap();
    set(3, Phase::Halted, None).await.unwrap();
    let halted = ContainerRow {
        phase: Phase::Halted,
        ..with_secret(3)
    };
    let living = [halted, with_secret(4)];
    assert_eq!(store.active_containers().await.unwrap(), living);
    let ended = store
        .ended_containers_page(Principal::local(), None, 9)
        .await
        .unwrap();
    assert_eq!(ended.len(), 2);
    assert!(ended.iter().all(|row| row.spec == container(1).spec));
    drop(store);
    let file = std::fs::read(directory.path().join("hotcell.db")).unwrap();
    let holds = |secret: &[u8]| file.windows(secret.len()).any(|part| part == secret);
    let held = [b"hunter1", b"hunter2", b"hunter3", b"hunter4"].map(|secret| holds(secret));
    assert_eq!(held, [false, false, true, true]);
}

#[tokio::test]
async fn ended_containers_are_listed_page_by_page_newest_first() {
    let (_directory, store) = store();
    for number in [3, 1, 2] {
        store.insert_container(container(number), 0).await.unwrap();
        let id = container(number).id;
        store
            .set_container_phase(id, Phase::Stopped, Some(50 - number))
            .await
            .unwrap();
    }
    let page = async |principal, after| {
        let page = store.ended_containers_page(principal, after, 2).await;
        page.unwrap()
    };
    let first = page(Principal::local(), None).await;
    let created = |rows: &[ContainerRow]| -> Vec<u64> {
        rows.iter().map(|row| row.created_unix_ms).collect()
    };
    assert_eq!(created(&first), [3, 2]);
    let after = PageCursor {
        created_unix_ms: 2,
        id: container(2).id,
    };
    assert_eq!(created(&page(Principal::local(), Some(after)).await), [1]);
    let foreign = Principal::new(name("somebody"));
    assert!(page(foreign, None).await.is_empty());
}

#[tokio::test]
async fn the_last_use_never_moves_back() {
    let (_directory, store) = store();
    store.insert_container(container(1), 0).await.unwrap();
    let id = || container(1).id;
    let used = vec![(id(), 20), (container(2).id, 30), (id(), 10)];
    store.touch_containers(used).await.unwrap();
    assert_eq!(
        store.active_containers().await.unwrap()[0].last_used_unix_ms,
        20
    );
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_and_does_not_hide_the_others() {
    let (_directory, store) = store();
    for number in 1..=3 {
        let key = number.to_string();
        store
            .insert_container(with_key(number, &key), 0)
            .await
            .unwrap();
    }
    let bad = container(2).id;
    let sql = "UPDATE containers SET spec = '{' WHERE id = ?";
    let id = bad.clone();
    store
        .database
        .run("break it", move |database| {
            Ok(database.read().execute(sql, [id.as_str()])?)
        })
        .await
        .unwrap();
    let listed = store.active_containers().await.unwrap();
    assert_eq!(listed, [with_key(1, "1"), with_key(3, "3")]);
    let error = store
        .insert_container(with_key(4, "2"), 0)
        .await
        .unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains(bad.as_str()), "{source}");
}

#[test]
fn of_many_who_ask_under_one_key_at_once_one_gets_a_new_container() {
    let (_directory, store) = store();
    let answers = at_once(async |number| {
        let mut row = with_alias(number, "shared");
        row.key = Some(name("k"));
        store.insert_container(row, 0).await.unwrap()
    });
    let new = answers
        .iter()
        .filter(|answer| **answer == ContainerInsert::New)
        .count();
    assert_eq!(new, 1);
    let ids: std::collections::BTreeSet<_> = answers
        .iter()
        .filter_map(|answer| match answer {
            ContainerInsert::Existing(row) => Some(row.id.clone()),
            ContainerInsert::New => None,
        })
        .collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn a_container_that_was_thought_to_have_ended_is_found_with_its_row() {
    let (_directory, store) = store();
    let found = |number| ContainerRow {
        phase: Phase::Running,
        engine: EngineId::at("docker", "tcp://a:1".to_owned()),
        ..container(number)
    };
    assert_eq!(store.adopt_container(found(1)).await.unwrap(), found(1));
    for number in [2, 3] {
        let row = ContainerRow {
            principal: Principal::new(name("owner")),
            ..with_alias(number, "web")
        };
        store.insert_container(row, 0).await.unwrap();
        let ended = store.set_container_phase(container(number).id, Phase::Failed, Some(9));
        ended.await.unwrap();
    }
    for (number, alias) in [(2, Some("web")), (3, None)] {
        let expected = ContainerRow {
            principal: Principal::new(name("owner")),
            alias: alias.map(|alias| Alias::parse(alias).unwrap()),
            ..found(number)
        };
        let adopted = store.adopt_container(found(number)).await.unwrap();
        assert_eq!(adopted, expected);
    }
    assert_eq!(store.active_containers().await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_session_has_one_container_that_lives_and_is_remembered_when_it_has_ended() {
    let (_directory, store) = store();
    let session = |number| ContainerRow {
        session: Some(name("s")),
        ..container(number)
    };
    let had = async || {
        let had = store.had_session(Principal::local(), name("s"));
        had.await.unwrap()
    };
    store.insert_container(session(1), 0).await.unwrap();
    assert!(store.insert_container(session(2), 0).await.is_err());
    assert!(!had().await, "the first one lives");
    let ended = store.set_container_phase(session(1).id, Phase::Stopped, Some(5));
    ended.await.unwrap();
    assert!(had().await);
    store.insert_container(session(2), 0).await.unwrap();
    let other = store.had_session(Principal::local(), name("t"));
    assert!(!other.await.unwrap());
    // One that was thought to have ended is no session any more: its name may be another's.
    let found = ContainerRow {
        phase: Phase::Running,
        ..session(1)
    };
    let adopted = store.adopt_container(found).await.unwrap();
    assert_eq!(adopted.session, None);
}
