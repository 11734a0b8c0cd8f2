//! Warm containers that an earlier server left.
//!
//! They are taken in again if they are wanted and well, else removed. Nobody has ever used
//! one, so they are never adopted as somebody's.

use std::sync::Arc;

use hotcell_domain::{ContainerId, Phase};
use hotcell_store::WarmRow;
use tokio::sync::Semaphore;

use super::{Pool, Warm};
use crate::ServiceError;
use crate::connection::Connection;

/// Containers that are looked at at once.
const LOOKS_MAX: usize = 16;

/// The stock of a container that belongs to none.
const NO_STOCK: usize = usize::MAX;

impl Pool {
    /// Claims what an earlier server noted as warm, so that nobody else settles it, and looks
    /// at each in the background. What another engine holds is left to a server on that.
    pub(crate) fn take_over(self: &Arc<Self>, rows: Vec<WarmRow>) {
        let turns = Arc::new(Semaphore::new(LOOKS_MAX));
        let here = self.environment.engine.name();
        let is_here = |row: &WarmRow| row.engine == here || row.engine.is_empty();
        for row in rows.into_iter().filter(is_here) {
            let wanted = row.spec.as_ref().and_then(|spec| self.stock_of(spec));
            let stock = wanted.unwrap_or(NO_STOCK);
            let has_place = wanted.is_some_and(|stock| {
                self.shelf()
                    .begin(stock, self.stocks[stock].wanted, &row.id)
            });
            if !has_place {
                self.shelf().begin_to_leave(stock, &row.id);
                self.remove_in_background(row.id, stock);
                continue;
            }
            let (pool, turns) = (Arc::clone(self), Arc::clone(&turns));
            let work = async move {
                let _turn = turns.acquire().await;
                pool.take_in(stock, row.id, row.created_unix_ms).await;
            };
            let closing = self.closing.clone();
            let work = async move { closing.run_until_cancelled(work).await };
            let work = self.makers.track_future(work);
            self.environment.tasks.spawn(work);
        }
    }

    /// Makes a found container a ready one, or removes it.
    async fn take_in(self: &Arc<Self>, stock: usize, id: ContainerId, created_unix_ms: u64) {
        let found = self.look_at(stock, &id, created_unix_ms).await;
        match &found {
            Ok(_) => tracing::info!(container.id = %id, "a warm container was found again"),
            Err(error) => {
                tracing::info!(container.id = %id, %error, "a warm container is of no use any more");
            }
        }
        let is_put = found.is_ok_and(|warm| self.put(&warm));
        if !is_put {
            self.refuse(&id, stock);
        }
    }

    async fn look_at(
        &self,
        stock: usize,
        id: &ContainerId,
        created_unix_ms: u64,
    ) -> Result<Arc<Warm>, ServiceError> {
        let engine = Arc::clone(&self.environment.engine);
        let container = engine.inspect(id).await?;
        if container.phase != Phase::Running {
            return Err(ServiceError::no_container(id));
        }
        let connection = Arc::new(Connection::new(engine, id.clone()));
        self.warm_up(&connection).await?;
        Ok(Warm::new(stock, connection, container, created_unix_ms))
    }
}
