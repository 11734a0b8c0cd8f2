//! Lists and shows containers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hotcell_domain::{Caller, ContainerId, ContainerRef, Principal};
use hotcell_engine::{Container, FileIds};
use hotcell_store::ContainerRow;

use super::{Attached, ContainerName, ContainerView};
use crate::container::LiveContainer;
use crate::operation::must_be_admin;
use crate::status::{ENGINE_TIMEOUT, WHOLE, limit_views};
use crate::{Action, Inner, Listing, PageRequest, Service, ServiceError};

/// Most ended containers of one principal on a page.
const ENDED_MAX: usize = 1000;

impl Service {
    /// The caller's containers, oldest first.
    pub async fn containers(
        &self,
        caller: &Caller,
        include_stopped: bool,
    ) -> Result<Vec<ContainerView>, ServiceError> {
        let all = PageRequest::default();
        let listing = self.containers_page(caller, include_stopped, &all).await?;
        Ok(listing.rows)
    }

    /// A page of the caller's containers.
    pub async fn containers_page(
        &self,
        caller: &Caller,
        include_stopped: bool,
        page: &PageRequest<ContainerId>,
    ) -> Result<Listing<ContainerView>, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::ListContainers, &WHOLE);
        let list = inner.list_containers(caller, include_stopped, page);
        operation.run(list).await
    }

    /// A page of the containers of all principals. Only for admins.
    pub async fn all_containers_page(
        &self,
        caller: &Caller,
        include_stopped: bool,
        page: &PageRequest<ContainerId>,
    ) -> Result<Listing<ContainerView>, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::ListContainers, &WHOLE);
        let list = async {
            must_be_admin(caller, "containers")?;
            inner.list_all_containers(include_stopped, page).await
        };
        operation.run(list).await
    }

    /// The names of the caller's live containers, oldest first. Asks neither the store nor the
    /// engine.
    pub fn container_names(&self, caller: &Caller) -> Vec<ContainerName> {
        let (operation, inner) = self.begin(caller, Action::ListContainers, &WHOLE);
        let names = inner.container_names(caller);
        // A read-only operation does not wait for its audit event.
        drop(operation.end());
        names
    }

    /// One of the caller's live containers.
    pub async fn container(
        &self,
        caller: &Caller,
        target: &ContainerRef,
    ) -> Result<ContainerView, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::ShowContainer, target);
        let show = async { inner.view_of(&inner.find(caller, target)?).await };
        operation.run(show).await
    }
}

impl Inner {
    async fn list_containers(
        &self,
        caller: &Caller,
        include_stopped: bool,
        page: &PageRequest<ContainerId>,
    ) -> Result<Listing<ContainerView>, ServiceError> {
        let engine = self.engine_infos().await;
        let views = self.views_of(&caller.principal, &engine, include_stopped, page);
        Ok(page.cut(sorted(views.await?)))
    }

    async fn list_all_containers(
        &self,
        include_stopped: bool,
        page: &PageRequest<ContainerId>,
    ) -> Result<Listing<ContainerView>, ServiceError> {
        let engine = self.engine_infos().await;
        let mut principals: BTreeSet<Principal> = self.registry.counts().into_keys().collect();
        if include_stopped {
            let store = &self.environment.store;
            principals.extend(store.principals_with_ended_containers().await?);
        }
        let mut views = Vec::new();
        for principal in &principals {
            let found = self.views_of(principal, &engine, include_stopped, page);
            views.extend(found.await?);
        }
        Ok(page.cut(sorted(views)))
    }

    async fn views_of(
        &self,
        principal: &Principal,
        engine: &HashMap<ContainerId, Container>,
        include_stopped: bool,
        page: &PageRequest<ContainerId>,
    ) -> Result<Vec<ContainerView>, ServiceError> {
        // Live containers are read before ended ones: a container that ends in between is then
        // listed twice (and deduplicated below) rather than not at all.
        let attachments = self.environment.store.attachments_of(principal.clone());
        let mut attachments = attachments.await?;
        let mut views = Vec::new();
        for container in self.registry.owned_by(principal) {
            let attached = attachments.remove(container.id()).unwrap_or_default();
            let attached = attached.into_iter().map(Attached::from).collect();
            let view = view(&container, engine.get(container.id()), attached);
            // A container in a final phase has no row among the ended ones until nothing is left of it.
            let is_wanted = include_stopped || !view.phase.is_final();
            if is_wanted && page.includes(view.created_unix_ms, &view.id) {
                views.push(view);
            }
        }
        if include_stopped {
            let (store, before) = (&self.environment.store, page.before.clone());
            let count_max = page.with_one_more(ENDED_MAX);
            let ended = store.ended_containers_page(principal.clone(), before, count_max);
            views.extend(ended.await?.iter().map(view_of_row));
        }
        Ok(views)
    }

    fn container_names(&self, caller: &Caller) -> Vec<ContainerName> {
        let mut containers = self.registry.owned_by(&caller.principal);
        containers.retain(|container| !container.phase().is_final());
        containers.sort_by_key(|container| (container.row.created_unix_ms, container.id().clone()));
        let name = |container: &Arc<LiveContainer>| ContainerName {
            id: container.id().clone(),
            alias: container.row.alias.clone(),
        };
        containers.iter().map(name).collect()
    }

    pub(crate) async fn view_of(
        &self,
        container: &Arc<LiveContainer>,
    ) -> Result<ContainerView, ServiceError> {
        // The engine may not know a container that is being created or ended.
        let inspected = self.environment.engine.inspect(container.id());
        let inspected = tokio::time::timeout(ENGINE_TIMEOUT, inspected).await;
        let info = inspected.ok().and_then(Result::ok);
        let attached = self.attached(container).await?;
        let mut view = view(container, info.as_ref(), attached);
        if container.has_disk_quota() {
            // Containers with a kernel quota are not measured periodically: the kernel knows their
            // usage at once.
            let used = self.environment.engine.disk_use(container.id());
            let used = tokio::time::timeout(ENGINE_TIMEOUT, used).await;
            view.disk_use = used.ok().and_then(Result::ok).flatten();
        }
        Ok(view)
    }

    async fn attached(&self, container: &LiveContainer) -> Result<Vec<Attached>, ServiceError> {
        let rows = self
            .environment
            .store
            .attachments(container.id().clone())
            .await?;
        Ok(rows.into_iter().map(Attached::from).collect())
    }

    /// What the engine reports about its containers. Empty if it does not answer: a list without
    /// memory usage is better than none.
    async fn engine_infos(&self) -> HashMap<ContainerId, Container> {
        let listed = tokio::time::timeout(ENGINE_TIMEOUT, self.environment.engine.list()).await;
        match listed {
            Ok(Ok(all)) => all.into_iter().map(|one| (one.id.clone(), one)).collect(),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the engine does not list its containers");
                HashMap::new()
            }
            Err(_) => {
                tracing::warn!("the engine does not list its containers in time");
                HashMap::new()
            }
        }
    }
}

fn sorted(mut views: Vec<ContainerView>) -> Vec<ContainerView> {
    views.sort_by(|one, other| age(one).cmp(&age(other)));
    // A container that ended in between was read twice.
    views.dedup_by(|one, other| one.id == other.id);
    views
}

/// The sort key of containers. A warm container was created before it was requested, so its id
/// alone would sort it too early.
fn age(view: &ContainerView) -> (u64, &ContainerId) {
    (view.created_unix_ms, &view.id)
}

/// Combines what the row, the supervisor and the engine know about a container.
pub(super) fn view(
    container: &LiveContainer,
    info: Option<&Container>,
    attachments: Vec<Attached>,
) -> ContainerView {
    let enforced = container.enforced().or(info.map(|info| info.enforced));
    let told = info.and_then(|info| info.image_digest.as_deref());
    let image_digest = container.image_digest().or(told).map(str::to_owned);
    ContainerView {
        phase: container.phase(),
        image_digest: image_digest.or_else(|| container.row.image_digest.clone()),
        enforced: enforced.map(limit_views).unwrap_or_default(),
        last_used_unix_ms: container.last_used_unix_ms(),
        memory_bytes: info.and_then(|info| info.memory_bytes),
        disk_use: container.disk().used(),
        cpu_time: info.and_then(|info| info.cpu_time),
        oom_kills: info.map_or(0, |info| info.oom_kills),
        workspace_ids: info.and_then(|info| info.file_ids).map(FileIds::as_str),
        attachments,
        ..view_of_row(&container.row)
    }
}

/// A container as its row describes it. The environment variables are not decoded: they may be
/// large.
pub(super) fn view_of_row(row: &ContainerRow) -> ContainerView {
    ContainerView {
        id: row.id.clone(),
        principal: row.principal.clone(),
        alias: row.alias.clone(),
        phase: row.phase,
        image: row.spec.image.clone(),
        image_digest: row.image_digest.clone(),
        engine: row.engine.name.clone(),
        is_persistent: row.is_persistent,
        is_warm: row.is_warm,
        labels: row.labels.clone(),
        session: row.session.clone(),
        network: row.spec.network,
        egress: row.egress.clone(),
        limits: row.spec.limits,
        enforced: Vec::new(),
        created_unix_ms: row.created_unix_ms,
        last_used_unix_ms: row.last_used_unix_ms,
        expires_unix_ms: row.expires_unix_ms,
        memory_bytes: None,
        disk_use: None,
        cpu_time: None,
        oom_kills: 0,
        workspace_ids: None,
        attachments: Vec::new(),
    }
}
