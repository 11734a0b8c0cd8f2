//! A list of very many containers.

use std::time::Instant;

use hotcell_domain::{ContainerId, ContainerSpec, EngineId, ImageRef, Labels, Phase};
use hotcell_store::{AttachmentRow, ContainerRow};

use crate::fixture::{Fixture, me, name, somebody_else};

const CONTAINERS: u64 = 2_000;

/// A row of another engine: listed, but needs no process.
fn row(number: u64) -> ContainerRow {
    let owner = if number < CONTAINERS {
        me()
    } else {
        somebody_else()
    };
    ContainerRow {
        id: ContainerId::from_parts(1_000 + number, [0; 10]),
        principal: owner.principal,
        alias: None,
        spec: ContainerSpec::new(ImageRef::Host),
        image_digest: None,
        engine: EngineId::named("another"),
        labels: Labels::default(),
        is_persistent: true,
        key: None,
        phase: Phase::Running,
        created_unix_ms: 1_000 + number,
        last_used_unix_ms: 1_000 + number,
        expires_unix_ms: None,
        ended_unix_ms: None,
        is_warm: false,
        session: None,
        egress: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_containers_is_listed_with_its_own_attachments() {
    let fixture = Fixture::new();
    {
        let store = fixture.store().await;
        for number in 0..=CONTAINERS {
            let row = row(number);
            let attachment = AttachmentRow {
                container: row.id.clone(),
                client_name: name("client"),
                session_id: name(&number.to_string()),
                attached_unix_ms: number,
            };
            store.insert_container(row, 0).await.unwrap();
            if number % 100 == 0 {
                store.attach(attachment, 8).await.unwrap();
            }
        }
    }
    let service = fixture.start().await;
    let began = Instant::now();
    let views = service.containers(&me(), false).await.unwrap();
    eprintln!("{} containers listed in {:?}", views.len(), began.elapsed());
    assert_eq!(views.len() as u64, CONTAINERS);
    for (number, view) in views.iter().enumerate() {
        let sessions: Vec<_> = view
            .attachments
            .iter()
            .map(|one| one.session_id.as_str())
            .collect();
        let own = number.to_string();
        let expected: &[&str] = if number % 100 == 0 { &[&own] } else { &[] };
        assert_eq!(sessions, expected, "of container {number}");
    }
}
