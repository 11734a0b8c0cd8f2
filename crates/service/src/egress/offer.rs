//! Questions that the owner of a container is asked by a form, while one of its calls is open.
//!
//! ```text
//! question ─▶ offer, of one call ─┬─ answered, here or elsewhere: closed
//!                                 ├─ declined: stays open, and is offered no more
//!                                 └─ dropped, because the call has ended: offered to another call
//! ```

use std::sync::Arc;

use hotcell_domain::Caller;
use hotcell_egress::Guest;
use tokio::sync::watch;

use super::ask::{EgressQuestion, view};
use crate::container::LiveContainer;
use crate::status::WHOLE;
use crate::{Action, Inner, Service};

/// A question that one call asks its user. It stays open, so that others may answer it meanwhile.
/// Dropped, it is offered to another call of the owner, unless it was declined.
pub struct EgressOffer {
    question: EgressQuestion,
    container: Arc<LiveContainer>,
    guest: Arc<Guest>,
    offers: Offers,
    is_declined: bool,
}

/// Tells open calls that there may be a question to take.
#[derive(Clone, Default)]
pub(super) struct Offers(watch::Sender<u64>);

impl Offers {
    pub(super) fn announce(&self) {
        self.0.send_modify(|count| *count += 1);
    }
}

impl Service {
    /// Waits for a question about a container of the caller's own that nobody is asked by a form.
    /// Admins are not asked about containers of others.
    pub async fn next_egress_offer(&self, caller: &Caller) -> EgressOffer {
        // Hearing that there is a question tells nothing; each look for one is an operation.
        let environment = &self.inner.without_operation().environment;
        let mut offers = environment.egress.offers.0.subscribe();
        loop {
            // Most servers never have a question, so their calls do not look for one.
            let has_any = *offers.borrow_and_update() > 0;
            if has_any && let Some(offer) = self.take_egress_offer(caller) {
                return offer;
            }
            if offers.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn take_egress_offer(&self, caller: &Caller) -> Option<EgressOffer> {
        let (operation, inner) = self.begin(caller, Action::SystemStatus, &WHOLE);
        let owned = inner.registry.owned_by(&caller.principal);
        let taken = owned
            .iter()
            .find_map(|container| inner.take_from(container));
        // A read-only operation does not wait for its audit event.
        drop(operation.end());
        taken
    }
}

impl Inner {
    fn take_from(&self, container: &Arc<LiveContainer>) -> Option<EgressOffer> {
        let guest = container.egress()?.guest()?;
        let question = guest.take_question()?;
        Some(EgressOffer {
            question: view(container, question),
            container: Arc::clone(container),
            guest,
            offers: self.environment.egress.offers.clone(),
            is_declined: false,
        })
    }
}

impl EgressOffer {
    /// What is asked.
    pub fn question(&self) -> &EgressQuestion {
        &self.question
    }

    /// Waits until the question is answered or too old to be, or its container is gone.
    pub async fn closed(&self) {
        tokio::select! {
            () = self.guest.question_closed(&self.question.id) => {}
            () = self.container.until_removed() => {}
        }
    }

    /// Leaves the question to the command line.
    pub fn decline(mut self) {
        self.is_declined = true;
    }
}

impl Drop for EgressOffer {
    fn drop(&mut self) {
        if !self.is_declined {
            self.guest.give_back_question(&self.question.id);
            self.offers.announce();
        }
    }
}
