//! Docker itself dies under load, or the server does, and containers go on: the same proof.

use std::collections::BTreeSet;
use std::time::Duration;

use hotcell_engine::docker::Flavor;

use super::load::Load;
use super::number;
use super::proof::Proof;
use crate::crash::moment::Moments;
use crate::server_engines::{expect_nothing_left, home, serve};
use crate::support::engines::Private;
use crate::support::home::Home;
use crate::support::server::Server;

/// Rounds of the other kind for each round of this kind, which takes many times as long.
const ROUNDS_PER_ROUND: u64 = 10;

const CALLERS: u64 = 2;

/// Calls of each caller between two strikes, unless its server dies before.
const CALLS: u64 = 10;

/// The longest that a strike waits: about as long as those calls take.
const WAIT_MS_MAX: u64 = 2_000;

/// Containers go on while Docker is away.
const LIVE_RESTORE: [(&str, &str); 1] = [("HOTCELL_ENGINE_OPTIONS", "--live-restore")];

struct EngineRound<'a> {
    seed: u64,
    moments: Moments,
    private: &'a Private,
    home: Home,
    loads: Vec<Load>,
}

impl<'a> EngineRound<'a> {
    fn new(seed: u64, private: &'a Private) -> Self {
        Self {
            seed,
            moments: Moments::of(seed),
            private,
            home: home(private),
            loads: (0..CALLERS).map(|number| Load::new(seed, number)).collect(),
        }
    }

    fn run(mut self) {
        // The engine, then what the seed says.
        let mut server = self.strike(true, self.serve());
        for _ in 0..self.moments.below(2) {
            let is_engine = self.moments.below(2) == 0;
            server = self.strike(is_engine, server);
        }
        server.kill();
        let server = self.serve();
        let memories = self.loads.iter().map(|load| &load.memory);
        let proof = Proof {
            seed: self.seed,
            home: &self.home,
            struck: &BTreeSet::new(),
            engine_died: true,
            memories: memories.collect(),
        };
        proof.demand();
        proof.end_all();
        assert!(server.terminate().success(), "seed {}", self.seed);
        expect_nothing_left(self.private, &self.home);
        self.expect_only_unstarted_forgotten();
        proof.nothing_disagrees("after the server has stopped");
    }

    /// Fails if a process of a container that a caller was told of still runs. Docker, killed while
    /// it starts a container, forgets it and leaves its process; nothing but the host can end that.
    /// It has not answered then that the container runs, so no caller can have been told of it.
    fn expect_only_unstarted_forgotten(&self) {
        let forgotten = self.private.end_forgotten();
        let containers = self.loads.iter().flat_map(|load| &load.memory.containers);
        for id in containers.filter_map(|container| container.id.as_ref()) {
            let lines = forgotten.iter();
            let left: Vec<_> = lines.filter(|line| line.contains(id.as_str())).collect();
            assert!(left.is_empty(), "seed {}: {id}: {left:?}", self.seed);
        }
        for line in &forgotten {
            let is_first = ["containerd-shim", "runc init", "hotcell-agent init"];
            let is_first = is_first.iter().any(|command| line.contains(command));
            assert!(is_first, "seed {}: it was in use: {line}", self.seed);
            eprintln!("seed {}: Docker forgot {line}", self.seed);
        }
    }

    fn serve(&self) -> Server {
        let more = ["--warm", "0", "--spawns-per-minute", "100000"];
        serve(&self.home, Flavor::Docker, &more)
    }

    /// Lets the callers work and kills the engine or the server meanwhile. Returns the server that
    /// runs then.
    fn strike(&mut self, is_engine: bool, server: Server) -> Server {
        let wait = Duration::from_micros(self.moments.below(WAIT_MS_MAX * 1000));
        let (home, loads, private) = (&self.home, &mut self.loads, self.private);
        let server = std::thread::scope(|scope| {
            for load in loads {
                scope.spawn(move || load.work(home, CALLS));
            }
            // A moment that is not known before is the point here: there is no event to wait for.
            std::thread::sleep(wait);
            if is_engine {
                private.kill();
                private.start_again(&LIVE_RESTORE);
                return Some(server);
            }
            server.kill();
            None
        });
        server.unwrap_or_else(|| self.serve())
    }
}

#[test]
fn docker_dies_under_load_and_nothing_that_was_acknowledged_is_lost() {
    let Some(private) = Private::start_own(Flavor::Docker, &LIVE_RESTORE) else {
        return;
    };
    let first = number("HOTCELL_CHAOS_SEED", 0);
    let rounds = number("HOTCELL_CHAOS_ROUNDS", super::ROUNDS) / ROUNDS_PER_ROUND;
    for seed in first..first + rounds.max(1) {
        super::told_by_seed(seed, "docker_dies_under_load", || {
            EngineRound::new(seed, &private).run();
        });
    }
}
