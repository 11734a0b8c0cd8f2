//! One suite, owned by no engine, that every engine must pass.
//!
//! ```text
//! hotcell_testkit::conformance_tests!(subject);
//!
//! async fn subject() -> hotcell_testkit::conformance::Subject { … }
//! ```
//!
//! Each case gets an engine of its own, runs under a deadline and fails if the engine
//! still lists a container afterwards, whatever the case itself did. Cases ask only for
//! `/bin/sh` and coreutils or busybox inside, so that small images pass.

mod archive;
mod batch;
mod cancel;
mod container;
mod egress;
mod escape;
mod exec;
mod exec_input;
mod file;
mod lifecycle;
mod limits;
mod list;
mod restart;
mod resume;
mod root;
mod run;
mod sealed;
mod sealed_host;
mod warm;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hotcell_domain::{ImageRef, Policy};

use hotcell_engine::Engine;

pub use list::names;
pub use run::run;

/// An engine under test, and what the suite needs to know about it.
pub struct Subject {
    /// The engine. Nothing else uses its containers.
    pub engine: Arc<dyn Engine>,
    /// Must have `/bin/sh` and coreutils or busybox; if it is a registry image, it sets
    /// `FROM_IMAGE=yes`.
    pub image: ImageRef,
    /// Must admit the image, and root if [`Traits::root`] is claimed.
    pub policy: Policy,
    /// What the engine claims to support.
    pub traits: Traits,
    /// Opens another engine over the same state, as a restarted server would.
    pub reopen: Option<Reopen>,
    /// Whatever must live as long as the engine: a state directory, a daemon.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Opens another engine over the state of the first.
pub type Reopen = Box<dyn Fn() -> BoxedEngine + Send + Sync>;

/// An engine that is being opened.
pub type BoxedEngine = Pin<Box<dyn Future<Output = Arc<dyn Engine>> + Send>>;

/// What an engine claims to support beyond starting an agent. A case about something else is
/// excluded, and says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent claim, written by name where an engine is tested"
)]
pub struct Traits {
    /// Real containers: the whole profile applies.
    pub sealed: bool,
    /// Processes see a Linux kernel and its `/proc`.
    pub linux: bool,
    /// Processes that outlive their parent stay with their exec.
    pub orphans: bool,
    /// The container has its own cgroup namespace.
    pub cgroup_namespace: bool,
    /// The container's ids differ from the host's.
    pub user_namespace: bool,
    /// Limits are enforced as far as [`hotcell_engine::Container::enforced`] says.
    pub limits: bool,
    /// An exec can run as the container's root.
    pub root: bool,
}

impl Traits {
    /// Everything that can be claimed.
    pub const ALL: Self = Self {
        sealed: true,
        linux: true,
        orphans: true,
        cgroup_namespace: true,
        user_namespace: true,
        limits: true,
        root: true,
    };
}

/// An error or a panic fails the case.
type Outcome = anyhow::Result<()>;

/// One case of the suite.
struct Case {
    name: &'static str,
    body: for<'a> fn(&'a Subject) -> Pin<Box<dyn Future<Output = Outcome> + 'a>>,
}

/// Whether the engine claims a feature; if not, the case is excluded.
fn claimed(claim: bool, what: &str) -> bool {
    if !claim {
        crate::not_claimed(&format!("the engine does not claim {what}"));
    }
    claim
}
