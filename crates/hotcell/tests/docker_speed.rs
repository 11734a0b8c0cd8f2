//! How long things take through Docker. Prints, and fails only when something is badly wrong.

mod support;

use std::process::Command as Process;
use std::time::{Duration, Instant};

use hotcell_agent_client::{Agent, Command, WriteOptions};
use hotcell_domain::{ContainerSpec, ImageRef, Policy};
use hotcell_engine::docker::Flavor;
use hotcell_engine::{Docker, Engine};
use support::engines::{IMAGE, Private};
use support::new_id;

const ROUNDS: usize = 100;
const CREATES: usize = 5;

async fn run_true(agent: &Agent, round: usize) {
    let command = Command::new(["/bin/true"]);
    let id = format!("x{round}");
    let mut follow = agent.start(&id, &command).await.expect("it starts");
    while let Some(event) = follow.next().await.expect("the agent answers") {
        follow.ack(event.seq);
    }
    agent.forget(&id).await.expect("it is forgotten");
}

fn docker_exec(private: &Private, name: &str) {
    let host = format!("unix://{}", private.socket.display());
    let ran = Process::new("docker")
        .args(["-H", &host, "exec", name, "/bin/true"])
        .status()
        .expect("docker is there");
    assert!(ran.success());
}

fn show(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    eprintln!("{what}: p50 {:?} p95 {:?}", at(50), at(95));
    at(50)
}

#[tokio::test]
#[ignore = "a measurement; run it alone on a quiet machine"]
async fn an_exec_through_docker_takes_milliseconds() {
    let Some(private) = Private::start(Flavor::Docker) else {
        return;
    };
    let engine = Docker::new(private.config(Flavor::Docker, None));
    let spec = ContainerSpec::new(ImageRef::parse(IMAGE).expect("a reference"));
    let spec = Policy::default().admit(spec).expect("it is admitted");
    let (mut creates, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..CREATES {
        let (id, start) = (new_id(), Instant::now());
        engine.create(&id, &spec).await.expect("it is made");
        creates.push(start.elapsed());
        ids.push(id);
    }
    let agent = Agent::connect(engine.open(&ids[0]).await.expect("a stream"));
    let agent = agent.await.expect("the agent says hello");
    let (mut ours, mut theirs, mut writes, mut reads) = (vec![], vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        let start = Instant::now();
        run_true(&agent, round).await;
        ours.push(start.elapsed());
        if round % 5 == 0 {
            let start = Instant::now();
            docker_exec(&private, &format!("hotcell-{}", ids[0]));
            theirs.push(start.elapsed());
        }
        let data = vec![b'x'; 1024];
        let start = Instant::now();
        let written = agent.write_all(b"file", data.into(), WriteOptions::default());
        written.await.expect("it is written");
        writes.push(start.elapsed());
        let start = Instant::now();
        let read = agent.read(b"file", 0, None).await.expect("it is read");
        read.1.collect(4096).await.expect("all of it");
        reads.push(start.elapsed());
    }
    show("create", creates);
    let ours = show("exec true through the agent", ours);
    let theirs = show("docker exec true", theirs);
    let write = show("write 1 KB", writes);
    let read = show("read 1 KB", reads);
    eprintln!(
        "{:.0} times faster",
        theirs.as_secs_f64() / ours.as_secs_f64()
    );
    for id in ids {
        engine.destroy(&id).await.expect("it is destroyed");
    }
    assert!(ours < Duration::from_millis(50) && write.max(read) < Duration::from_millis(20));
}
