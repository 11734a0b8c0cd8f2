//! Translates an agent's file errors for the caller.

use hotcell_agent_client::{AgentError, AgentRefusal};

use crate::ServiceError;

/// What a lost connection leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The call changes nothing.
    None,
    /// The change may have been made.
    Unknown,
}

/// Converts an agent's error. `path` is the caller's; the agent's message contains none.
pub(super) fn from_agent(error: AgentError, path: &[u8], effect: Effect) -> ServiceError {
    let (refusal, message) = match error {
        AgentError::Refused { refusal, message } => (refusal, message),
        error @ (AgentError::Lost | AgentError::Protocol(_) | AgentError::Version { .. }) => {
            return unavailable(error, effect);
        }
        error @ AgentError::TooOld { .. } => return ServiceError::agent_too_old(&error),
    };
    of_refusal(refusal, message, path)
}

fn of_refusal(refusal: AgentRefusal, message: String, path: &[u8]) -> ServiceError {
    match refusal {
        AgentRefusal::Batch {
            index,
            is_undone,
            refusal,
        } => ServiceError::Batch {
            index,
            is_undone,
            cause: Box::new(of_refusal(*refusal, message, path)),
        },
        AgentRefusal::InvalidArgument => ServiceError::Invalid { reason: message },
        AgentRefusal::NotFound => ServiceError::NotFound {
            what: "file",
            name: shown(path),
        },
        AgentRefusal::AlreadyExists => ServiceError::AlreadyExists {
            what: "file",
            name: shown(path),
        },
        AgentRefusal::Conflict { current_etag } => ServiceError::Conflict {
            reason: message,
            current_etag,
        },
        AgentRefusal::Denied => ServiceError::Denied { reason: message },
        AgentRefusal::Exhausted => ServiceError::Exhausted { reason: message },
        AgentRefusal::Aborted => ServiceError::Conflict {
            reason: message,
            current_etag: None,
        },
        AgentRefusal::Internal => ServiceError::Internal {
            step: "do it in the container",
            source: message.into(),
        },
    }
}

fn unavailable(error: AgentError, effect: Effect) -> ServiceError {
    let reason = match effect {
        Effect::None => "the connection to the container was lost; ask again",
        Effect::Unknown => {
            "the connection to the container was lost; the change was made or was not: look before you repeat it"
        }
    };
    ServiceError::Unavailable {
        reason: reason.to_owned(),
        source: Some(Box::new(error)),
    }
}

/// The caller's own path as text; its length is bounded.
fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotcell_agent_client::Feature;

    fn refused(refusal: AgentRefusal) -> AgentError {
        AgentError::Refused {
            refusal,
            message: "why".into(),
        }
    }

    #[test]
    fn a_container_whose_agent_is_too_old_says_how_it_is_renewed() {
        let feature = Feature::Tunnel;
        let error = from_agent(AgentError::TooOld { feature }, b"a", Effect::None);
        let ServiceError::Halted { reason, hint } = error else {
            panic!("asking again does not help: {error:?}");
        };
        assert_eq!(reason, "the agent of this container is too old for tunnels");
        assert!(
            hint.contains("`kill`") && hint.contains("`spawn`"),
            "{hint}"
        );
        assert!(hint.contains("workspace"), "{hint}");
    }

    #[test]
    fn each_no_keeps_its_kind() {
        let said = |error| from_agent(error, b"a", Effect::None).to_string();
        assert_eq!(said(refused(AgentRefusal::NotFound)), "there is no file a");
        assert_eq!(
            said(refused(AgentRefusal::AlreadyExists)),
            "file a exists already"
        );
        assert_eq!(said(refused(AgentRefusal::Denied)), "why");
        let etag = Some("ab".to_owned());
        let changed = refused(AgentRefusal::Conflict {
            current_etag: etag.clone(),
        });
        assert!(matches!(
            from_agent(changed, b"a", Effect::Unknown),
            ServiceError::Conflict { current_etag, .. } if current_etag == etag
        ));
    }

    #[test]
    fn a_change_that_may_have_been_made_is_told_so() {
        let said = from_agent(AgentError::Lost, b"a", Effect::Unknown).to_string();
        assert!(said.contains("look before you repeat"), "{said}");
    }
}
