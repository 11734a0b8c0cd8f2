//! What things are called in the engine, and the labels by which they are found again.

use std::collections::HashMap;

use hotcell_domain::ContainerId;

/// Which container something belongs to.
const CONTAINER_LABEL: &str = "io.hotcell.container";

/// Which server something belongs to.
pub(super) const SCOPE_LABEL: &str = "io.hotcell.scope";

/// The version of Hotcell that made something.
const VERSION_LABEL: &str = "io.hotcell.version";

/// What a container or volume is for.
const ROLE_LABEL: &str = "io.hotcell.role";

/// When a container ends.
pub(super) const LIFETIME_LABEL: &str = "io.hotcell.lifetime";

/// The digest of the image a container was made of, or its id if no registry gave it one.
pub(super) const DIGEST_LABEL: &str = "io.hotcell.image.digest";

/// The engine's own name of the image a container was made of.
pub(super) const IMAGE_LABEL: &str = "io.hotcell.image.id";

/// What a container was asked to be, see [`crate::stored_spec`].
pub(super) const SPEC_LABEL: &str = "io.hotcell.spec";

/// Unix seconds at which something was made, by our clock.
pub(super) const MADE_LABEL: &str = "io.hotcell.made";

/// The role of the volume with the agent, and of the container that fills it.
const AGENT_ROLE: &str = "agent";

/// The role of a container of ours, and of its volume.
const CONTAINER_ROLE: &str = "container";

/// [`LIFETIME_LABEL`] of a container that ends with its owner, and of any other.
pub(super) const WITH_OWNER: &str = "owner";
pub(super) const UNTIL_DESTROYED: &str = "destroyed";

/// Labels of one thing. A container has those of its image too, whatever they are: so each
/// label that is read anywhere is set on each container.
pub(super) type Labels = HashMap<String, String>;

/// The engine's name of a container, and of its volume.
pub(super) fn of(id: &ContainerId) -> String {
    format!("hotcell-{id}")
}

/// The engine's name of the container that fills the agent's volume for a container.
pub(super) fn of_filler(id: &ContainerId) -> String {
    format!("hotcell-{id}-agent")
}

/// The labels of everything we make.
fn common(scope: &str) -> Labels {
    let made = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    [
        (SCOPE_LABEL, scope.to_owned()),
        (VERSION_LABEL, env!("CARGO_PKG_VERSION").to_owned()),
        (MADE_LABEL, made.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// The labels of a container and its volume.
pub(super) fn labels(scope: &str, id: &ContainerId) -> Labels {
    let mut labels = common(scope);
    labels.insert(CONTAINER_LABEL.to_owned(), id.to_string());
    labels.insert(ROLE_LABEL.to_owned(), CONTAINER_ROLE.to_owned());
    labels
}

/// The labels of the agent's volume, and of a container that fills it.
pub(super) fn of_agent(scope: &str) -> Labels {
    let mut labels = common(scope);
    labels.insert(ROLE_LABEL.to_owned(), AGENT_ROLE.to_owned());
    labels.insert(CONTAINER_LABEL.to_owned(), String::new());
    labels
}

/// A filter for our containers and their volumes. Containers that fill a volume may be among
/// what it finds, see [`owner`].
pub(super) fn filter_containers(scope: &str) -> HashMap<String, Vec<String>> {
    filter(scope, CONTAINER_LABEL.to_owned())
}

/// A filter for volumes with the agent, and for the containers that fill them.
pub(super) fn filter_agents(scope: &str) -> HashMap<String, Vec<String>> {
    filter(scope, format!("{ROLE_LABEL}={AGENT_ROLE}"))
}

fn filter(scope: &str, label: String) -> HashMap<String, Vec<String>> {
    let labels = vec![format!("{SCOPE_LABEL}={scope}"), label];
    HashMap::from([("label".to_owned(), labels)])
}

/// Whose container it is, if it is one of ours.
pub(super) fn owner(scope: &str, labels: Option<&Labels>) -> Option<ContainerId> {
    let labels = labels?;
    if labels.get(SCOPE_LABEL)? != scope {
        return None;
    }
    ContainerId::parse(labels.get(CONTAINER_LABEL)?).ok()
}

/// How long ago it was made, by our clock; nothing if it does not say.
pub(super) fn age_seconds(labels: &Labels) -> Option<u64> {
    let made: u64 = labels.get(MADE_LABEL)?.parse().ok()?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Some(now.ok()?.as_secs().saturating_sub(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_scope_is_ours() {
        let id = ContainerId::from_parts(1, [7; 10]);
        let labels = labels("here", &id);
        assert_eq!(owner("here", Some(&labels)), Some(id));
        assert_eq!(owner("there", Some(&labels)), None);
        assert_eq!(owner("here", None), None);
    }

    #[test]
    fn a_label_that_is_no_id_of_ours_names_nobody() {
        let mut labels = common("here");
        labels.insert(CONTAINER_LABEL.to_owned(), "../../etc".to_owned());
        assert_eq!(owner("here", Some(&labels)), None);
    }
}
