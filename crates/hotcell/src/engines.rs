//! Opens the engine: the named one, or the first in the list that works.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use hotcell_engine::{Engine, EngineKind, EngineSetup};
use hotcell_image::Credentials;

use crate::cli::EngineChoice;
use crate::state;

/// The list of engines; tests pass their own.
pub(crate) type Kinds = &'static [&'static dyn EngineKind];

/// An engine that works, and its entry in the list.
pub(crate) struct OpenedEngine {
    pub(crate) kind: &'static dyn EngineKind,
    pub(crate) engine: Arc<dyn Engine>,
}

/// The engines that `auto` tried in vain, by name, each with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
pub(crate) struct NoEngine(Vec<(&'static str, String)>);

impl NoEngine {
    /// Adds an engine that does not work.
    pub(crate) fn push(&mut self, kind: &dyn EngineKind, reason: String) {
        self.0.push((kind.name(), reason));
    }

    /// Explains why the chosen engine is used.
    pub(crate) fn reason(&self, chosen: &dyn EngineKind) -> String {
        let broken: Vec<_> = self.0.iter().map(named).collect();
        match &broken[..] {
            [] => "it works here and comes first".to_owned(),
            broken => format!(
                "{} cannot be used; {} can",
                broken.join(", "),
                chosen.name()
            ),
        }
    }
}

impl fmt::Display for NoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken: Vec<_> = self.0.iter().map(named).collect();
        write!(f, "no engine works here: {}", broken.join("; "))
    }
}

fn named((name, reason): &(&str, String)) -> String {
    format!("{name} ({reason})")
}

/// The setup of all engines, before the operator's settings are applied.
pub(crate) fn setup(state: &Path) -> EngineSetup {
    EngineSetup {
        state: state.to_owned(),
        prepare_state: |state| Ok(state::prepare(state)?),
        images: state::images(state),
        launcher: PathBuf::from("/proc/self/exe"),
        agent: hotcell_agent_image::AGENT,
        runtime: None,
        require_limits: false,
        allow_plain_tcp: false,
        credentials: Credentials::of_user(),
    }
}

/// Opens the engine that the operator chose and makes sure that it works.
pub(crate) async fn open(
    choice: EngineChoice,
    kinds: Kinds,
    setup: &EngineSetup,
) -> Result<OpenedEngine> {
    match choice {
        EngineChoice::Auto => open_first(kinds, setup).await,
        EngineChoice::Named(kind) => match kind.open(setup).await {
            Ok(engine) => Ok(OpenedEngine { kind, engine }),
            Err(missing) => Err(anyhow!("{} cannot be used: {missing}", kind.name())),
        },
    }
}

async fn open_first(kinds: Kinds, setup: &EngineSetup) -> Result<OpenedEngine> {
    let mut broken = NoEngine::default();
    for kind in kinds {
        match kind.open(setup).await {
            Ok(engine) => {
                let reason = broken.reason(*kind);
                tracing::info!(engine = kind.name(), reason, "chose an engine");
                return Ok(OpenedEngine {
                    kind: *kind,
                    engine,
                });
            }
            Err(missing) => broken.push(*kind, missing.reason),
        }
    }
    Err(anyhow!(
        "{broken}; `hotcell doctor` tells what is missing and how to fix it"
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use async_trait::async_trait;
    use clap::builder::{PossibleValue, TypedValueParser};
    use hotcell_engine::{Diagnosis, EngineMissing, EngineView};
    use hotcell_testkit::fake::{Fake, Faults};

    use super::*;

    /// An engine that is in no real list.
    #[derive(Debug)]
    pub(crate) struct MadeUp {
        pub(crate) name: &'static str,
        pub(crate) works: bool,
    }

    #[async_trait]
    impl EngineKind for MadeUp {
        fn name(&self) -> &'static str {
            self.name
        }

        fn title(&self) -> &'static str {
            self.name
        }

        fn summary(&self) -> &'static str {
            "Runs on steam"
        }

        fn default_image(&self) -> &'static str {
            "coal:1"
        }

        async fn open(&self, setup: &EngineSetup) -> Result<Arc<dyn Engine>, EngineMissing> {
            if !self.works {
                return Err(no_coal());
            }
            let fake = Fake::new(setup.launcher.clone(), setup.state.clone(), Faults::none());
            Ok(Arc::new(fake))
        }

        async fn look(&self, _: &EngineSetup) -> Result<EngineView, EngineMissing> {
            Err(no_coal())
        }

        async fn diagnose(&self, _: &EngineSetup) -> Diagnosis {
            if self.works {
                return Diagnosis::good("under pressure".to_owned());
            }
            Diagnosis::missing(no_coal(), "nothing moves")
        }
    }

    fn no_coal() -> EngineMissing {
        EngineMissing {
            reason: "no coal".to_owned(),
            fix: "buy some".to_owned(),
        }
    }

    const COLD: MadeUp = MadeUp {
        name: "cold",
        works: false,
    };
    const COLDER: MadeUp = MadeUp {
        name: "colder",
        works: false,
    };

    const STEAM: MadeUp = MadeUp {
        name: "steam",
        works: true,
    };

    fn nowhere() -> EngineSetup {
        setup(Path::new("/nonexistent"))
    }

    #[tokio::test]
    async fn a_new_row_can_be_named_on_the_command_line() {
        static KINDS: Kinds = &[&COLD];
        let parser = EngineChoice::parser(KINDS);
        let values: Vec<_> = parser.possible_values().expect("a list").collect();
        let names: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
        assert_eq!(names, ["auto", "cold"]);
        let help = values[1].get_help().map(ToString::to_string);
        assert_eq!(help.as_deref(), Some("Runs on steam"));
        let command = clap::Command::new("test");
        let parsed = parser.parse_ref(&command, None, "cold".as_ref());
        let chosen = parsed.expect("it is in the list");
        let refused = open(chosen, KINDS, &nowhere()).await.err();
        assert_eq!(
            refused.expect("it does not work").to_string(),
            "cold cannot be used: no coal; buy some"
        );
    }

    #[tokio::test]
    async fn auto_tries_every_row_in_order_and_tells_why_each_cannot_be_used() {
        static KINDS: Kinds = &[&COLD, &COLDER];
        let refused = open(EngineChoice::Auto, KINDS, &nowhere()).await.err();
        assert_eq!(
            refused.expect("none works").to_string(),
            "no engine works here: cold (no coal); colder (no coal); \
             `hotcell doctor` tells what is missing and how to fix it"
        );
    }

    #[tokio::test]
    async fn auto_takes_the_first_row_that_works_and_its_default_image() {
        static KINDS: Kinds = &[&COLD, &STEAM, &COLDER];
        let opened = open(EngineChoice::Auto, KINDS, &nowhere()).await;
        let opened = opened.map(|opened| (opened.kind.name(), opened.kind.default_image()));
        assert_eq!(opened.expect("one works"), ("steam", "coal:1"));
    }

    #[test]
    fn a_choice_says_what_came_before_it() {
        let mut broken = NoEngine::default();
        assert_eq!(broken.reason(&COLD), "it works here and comes first");
        broken.push(&COLD, "no coal".to_owned());
        assert_eq!(
            broken.reason(&COLDER),
            "cold (no coal) cannot be used; colder can"
        );
    }
}
