//! One round: load, strikes, and the proof.

use std::collections::BTreeSet;
use std::time::Duration;

use hotcell_domain::ContainerId;

use super::load::Load;
use super::proof::Proof;
use super::strike::{self, Victim};
use crate::crash::moment::Moments;
use crate::support::home::Home;
use crate::support::server::Server;

/// Callers at once.
const CALLERS: u64 = 3;

/// Calls of each caller between two strikes, unless its server dies before.
const CALLS: u64 = 25;

/// The longest that a strike waits: about as long as those calls take.
const WAIT_MS_MAX: u64 = 500;

pub(crate) struct Round {
    seed: u64,
    moments: Moments,
    home: Home,
    loads: Vec<Load>,
    /// Containers whose agent was killed.
    struck: BTreeSet<String>,
    /// All that were ever seen.
    seen: BTreeSet<ContainerId>,
}

impl Round {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            moments: Moments::of(seed),
            home: Home::new(),
            loads: (0..CALLERS).map(|number| Load::new(seed, number)).collect(),
            struck: BTreeSet::new(),
            seen: BTreeSet::new(),
        }
    }

    pub(crate) fn run(mut self) {
        let mut server = self.serve();
        for _ in 0..=self.moments.below(3) {
            let victim = Victim::of(&mut self.moments);
            server = self.strike(victim, server);
        }
        // The proof is asked of a server that has recovered everything.
        server.kill();
        let server = self.serve();
        let memories = self.loads.iter().map(|load| &load.memory);
        let proof = Proof {
            seed: self.seed,
            home: &self.home,
            struck: &self.struck,
            engine_died: false,
            memories: memories.collect(),
        };
        proof.demand();
        self.seen.extend(self.home.containers());
        proof.end_all();
        assert!(server.terminate().success(), "seed {}", self.seed);
        let seen: Vec<_> = self.seen.iter().cloned().collect();
        self.home.assert_empty(&seen);
        proof.nothing_disagrees("after the server has stopped");
    }

    fn serve(&self) -> Server {
        // Small segments, so that some are sealed in each round; a pool, so that some containers
        // are handed out.
        let arguments = ["--drain-grace-s", "0", "--warm", "1"];
        let more = [
            "--audit-segment-bytes",
            "8k",
            "--spawns-per-minute",
            "100000",
        ];
        self.home.serve_with(&[arguments, more].concat())
    }

    /// Lets the callers work and kills one process meanwhile. Returns the server that runs then.
    fn strike(&mut self, victim: Victim, server: Server) -> Server {
        let wait = Duration::from_micros(self.moments.below(WAIT_MS_MAX * 1000));
        let (home, loads) = (&self.home, &mut self.loads);
        let (moments, struck) = (&mut self.moments, &mut self.struck);
        let server = std::thread::scope(|scope| {
            for load in loads {
                scope.spawn(move || load.work(home, CALLS));
            }
            // A moment that is not known before is the point here: there is no event to wait for.
            std::thread::sleep(wait);
            match victim {
                Victim::Server => {
                    server.kill();
                    return None;
                }
                Victim::Launcher => drop(strike::launcher(server.pid())),
                Victim::Agent => strike::agent(home, moments, struck),
            }
            Some(server)
        });
        self.seen.extend(self.home.containers());
        server.unwrap_or_else(|| self.serve())
    }
}
