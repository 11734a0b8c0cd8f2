//! What containers may reach: the settings of the service, and `hotcell egress`.

mod check;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use hotcell_egress::{Ask, ProfileName, Settings};
use hotcell_service::AssignedEgress;

use crate::cli::{
    AuditArgs, AuditCommand, AuditQueryArgs, EgressArgs, EgressCommand, EgressLogArgs,
};
use crate::config::Tables;
use crate::{audit, client};

/// Runs the subcommand.
pub(crate) fn manage(arguments: &EgressArgs, tables: &Tables) -> Result<ExitCode> {
    match &arguments.command {
        EgressCommand::Check(arguments) => check::run(arguments, &tables.egress),
        EgressCommand::Log(arguments) => log(arguments),
        EgressCommand::Pending(arguments) => client::egress_pending(arguments),
        EgressCommand::Allow(arguments) => client::egress_allow(arguments),
        EgressCommand::Deny(arguments) => client::egress_deny(arguments),
        EgressCommand::Reload(arguments) => client::reload(arguments),
    }
}

/// `[egress]`, with the profile that the command line names instead of the default.
pub(crate) fn settings(file: &Settings, default: Option<&ProfileName>) -> Settings {
    let mut settings = file.clone();
    if let Some(default) = default {
        settings.default = default.clone();
    }
    settings
}

/// The same for a process without a server, of which nobody can answer a question: it asks none.
pub(crate) fn settings_without_server(file: &Settings, default: Option<&ProfileName>) -> Settings {
    Settings {
        ask: Ask::Off,
        ..settings(file, default)
    }
}

/// `[principal.NAME]` and `[images.egress]`, with the images that aliases stand for.
pub(crate) fn assigned(tables: &Tables) -> AssignedEgress {
    let images = tables.image_egress.iter();
    let images = images.map(|(name, profile)| (tables.aliases.resolve(name), profile.clone()));
    AssignedEgress {
        principals: tables.principals.clone(),
        images: images.collect(),
    }
}

/// Where the authority of a state directory lives. It is created with the first container that has a
/// profile.
pub(crate) fn directory(state: &Path) -> PathBuf {
    state.join("egress")
}

fn log(arguments: &EgressLogArgs) -> Result<ExitCode> {
    let events: &[&str] = if arguments.denied {
        &["EGRESS_DENY"]
    } else {
        &[
            "EGRESS_OPEN",
            "EGRESS_DENY",
            "EGRESS_CLOSE",
            "EGRESS_ASK",
            "EGRESS_ANSWER",
        ]
    };
    let query = AuditQueryArgs {
        principal: None,
        event: events.iter().map(|&name| name.to_owned()).collect(),
        outcome: None,
        target: arguments.container.clone(),
        span: arguments.span.clone(),
        json: arguments.json,
        place: arguments.place.clone(),
    };
    audit::run(&AuditArgs {
        command: AuditCommand::Query(query),
    })
}
