//! What policy does not let in: told to the operator here and nowhere else, one event each.

use hotcell_domain::{Caller, PolicyError};

/// Who listens to these events alone asks for this target.
const TARGET: &str = "hotcell::policy";

/// Tells the operator who was refused what by which rule. `what` is an image's name or a
/// container's: none of them holds a secret.
pub fn tell_refusal(caller: &Caller, what: &impl std::fmt::Display, refusal: &PolicyError) {
    tracing::info!(
        target: TARGET,
        rule = refusal.rule(),
        principal = %caller.principal,
        client = caller.client.as_ref().map(hotcell_domain::Name::as_str),
        %what,
        reason = %refusal,
        "denied"
    );
}
