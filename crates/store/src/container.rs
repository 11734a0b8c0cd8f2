//! Containers: the desired state.

pub(crate) mod spec;

use hotcell_domain::{Alias, ContainerId, ContainerSpec, EngineId, Labels, Name, Phase, Principal};
use rusqlite::{Connection, named_params, params};

use crate::database::{Database, Fault};
use crate::row::{FromRow, RowError, RowReader, all, first, sql_count, sql_ms};
use crate::{PageCursor, Store, StoreError, page};

/// A container as requested, and its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRow {
    /// Chosen by the service before the engine creates it.
    pub id: ContainerId,
    /// The owner.
    pub principal: Principal,
    /// Its second name; free for other containers once `ended_unix_ms` is set.
    pub alias: Option<Alias>,
    /// The requested spec. Its variables are deleted when the container ends: they may contain
    /// secrets.
    pub spec: ContainerSpec,
    /// The digest that the image's name had when the container was created, if it has one.
    pub image_digest: Option<String>,
    /// The engine that runs it.
    pub engine: EngineId,
    /// Set by its owner.
    pub labels: Labels,
    /// Whether only `kill` ends it.
    pub is_persistent: bool,
    /// The idempotency key of the request.
    pub key: Option<Name>,
    /// Its current phase.
    pub phase: Phase,
    /// When it was requested.
    pub created_unix_ms: u64,
    /// When it was last used, accurate to a few seconds.
    pub last_used_unix_ms: u64,
    /// When it will be ended.
    pub expires_unix_ms: Option<u64>,
    /// When it ended.
    pub ended_unix_ms: Option<u64>,
    /// Whether it came from the warm pool.
    pub is_warm: bool,
    /// The name of the session that it is; free for another container once `ended_unix_ms` is set.
    pub session: Option<Name>,
    /// The name of its egress profile; `None`: it reaches nothing.
    pub egress: Option<Name>,
}

/// The result of storing a request for a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerInsert {
    /// The row was stored.
    New,
    /// The same principal has used the same key before.
    Existing(Box<ContainerRow>),
}

impl Store {
    /// Stores a new container, unless its principal used the same key at `keys_since_unix_ms` or
    /// later.
    pub async fn insert_container(
        &self,
        row: ContainerRow,
        keys_since_unix_ms: u64,
    ) -> Result<ContainerInsert, StoreError> {
        let query = move |database: &mut Database| {
            let transaction = database.write()?;
            if let Some(before) = by_key(&transaction, &row, keys_since_unix_ms)? {
                return Ok(ContainerInsert::Existing(Box::new(before)));
            }
            insert(&transaction, &row)?;
            transaction.commit()?;
            Ok(ContainerInsert::New)
        };
        self.database.run("note a container", query).await
    }

    /// Stores a container that was found running, and returns its row. If there is a row that says
    /// it has ended, that row is revived: without variables, which are deleted by then, and without
    /// its alias if another container has it now. Otherwise `row` is stored.
    pub async fn adopt_container(&self, row: ContainerRow) -> Result<ContainerRow, StoreError> {
        let query = move |database: &mut Database| {
            let transaction = database.write()?;
            let before = revive(&transaction, &row)?;
            if before.is_none() {
                insert(&transaction, &row)?;
            }
            transaction.commit()?;
            Ok(before.unwrap_or(row))
        };
        self.database.run("note a container", query).await
    }

    /// All containers that have not ended, oldest first.
    pub async fn active_containers(&self) -> Result<Vec<ContainerRow>, StoreError> {
        let sql = "SELECT * FROM containers WHERE ended_unix_ms IS NULL
                   ORDER BY created_unix_ms, id";
        self.database
            .run("list containers", move |database| {
                all(&mut database.read().prepare_cached(sql)?, [])
            })
            .await
    }

    /// The newest container that the principal of `wanted` asked for under the same key, at
    /// `keys_since_unix_ms` or later.
    pub async fn container_with_key_of(
        &self,
        wanted: ContainerRow,
        keys_since_unix_ms: u64,
    ) -> Result<Option<ContainerRow>, StoreError> {
        let query =
            move |database: &mut Database| by_key(database.read(), &wanted, keys_since_unix_ms);
        self.database.run("look up a container", query).await
    }

    /// Whether a principal has had a session of this name that has ended and is still remembered.
    pub async fn had_session(&self, principal: Principal, name: Name) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM containers
                   WHERE principal = ? AND session = ? AND ended_unix_ms IS NOT NULL)";
        self.database
            .run("look up a session", move |database| {
                let mut statement = database.read().prepare_cached(sql)?;
                Ok(statement.query_row([principal.as_str(), name.as_str()], |row| row.get(0))?)
            })
            .await
    }

    /// How many containers each principal has asked for at `unix_ms` or later.
    pub async fn spawns_since(&self, unix_ms: u64) -> Result<Vec<(Principal, u64)>, StoreError> {
        let sql = "SELECT principal, count(*) FROM containers WHERE created_unix_ms >= ?
                   GROUP BY principal";
        self.database
            .run("count containers", move |database| {
                let mut statement = database.read().prepare_cached(sql)?;
                let counted = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
                let rows = statement.query_map([sql_ms(unix_ms)], counted)?;
                let rows = rows.collect::<Result<Vec<(String, i64)>, _>>()?;
                let named = |(name, count): (String, i64)| {
                    let principal = Principal::new(Name::parse(&name).ok()?);
                    Some((principal, count.unsigned_abs()))
                };
                Ok(rows.into_iter().filter_map(named).collect())
            })
            .await
    }

    /// Ended containers of a principal that are still stored, newest first: at most `count_max`
    /// after the cursor.
    pub async fn ended_containers_page(
        &self,
        principal: Principal,
        after: Option<PageCursor<ContainerId>>,
        count_max: usize,
    ) -> Result<Vec<ContainerRow>, StoreError> {
        let sql = "SELECT * FROM containers WHERE principal = ? AND ended_unix_ms IS NOT NULL
                       AND (created_unix_ms, id) < (?, ?)
                   ORDER BY created_unix_ms DESC, id DESC LIMIT ?";
        self.database
            .run("list containers", move |database| {
                let (created, id) = page::before(after.as_ref(), ContainerId::as_str);
                let params = params![principal.as_str(), created, id, sql_count(count_max)];
                all(&mut database.read().prepare_cached(sql)?, params)
            })
            .await
    }

    /// Sets the phase of a container. A final phase needs `ended_unix_ms` and deletes the
    /// variables. A container that has ended stays unchanged.
    pub async fn set_container_phase(
        &self,
        id: ContainerId,
        phase: Phase,
        ended_unix_ms: Option<u64>,
    ) -> Result<(), StoreError> {
        self.database
            .run("note a container's phase", move |database| {
                if phase.is_final() != ended_unix_ms.is_some() {
                    return Err(Fault::Misuse("a container ends when its phase is final"));
                }
                let transaction = database.write()?;
                set_phase(&transaction, &id, phase, ended_unix_ms)?;
                transaction.commit()?;
                if ended_unix_ms.is_some() {
                    database.note_forgotten();
                }
                Ok(())
            })
            .await
    }

    /// Marks a container as running and stores its image digest. A container that has ended stays
    /// unchanged.
    pub async fn set_container_made(
        &self,
        id: ContainerId,
        image_digest: Option<String>,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE containers SET image_digest = coalesce(?, image_digest) WHERE id = ?";
        self.database
            .run("note a container", move |database| {
                let transaction = database.write()?;
                set_phase(&transaction, &id, Phase::Running, None)?;
                let mut statement = transaction.prepare_cached(sql)?;
                statement.execute(params![image_digest, id.as_str()])?;
                drop(statement);
                Ok(transaction.commit()?)
            })
            .await
    }

    /// Sets the engine of a container.
    pub async fn set_container_engine(
        &self,
        id: ContainerId,
        engine: EngineId,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE containers SET engine = ?, engine_host = ? WHERE id = ?";
        self.database
            .run("note a container's engine", move |database| {
                let transaction = database.write()?;
                let params = params![engine.name, engine.host, id.as_str()];
                let found = transaction.prepare_cached(sql)?.execute(params)?;
                if found == 0 {
                    return Err(Fault::missing("container", &id));
                }
                Ok(transaction.commit()?)
            })
            .await
    }

    /// Updates when containers were last used; unknown ids are ignored.
    pub async fn touch_containers(&self, used: Vec<(ContainerId, u64)>) -> Result<(), StoreError> {
        let sql = "UPDATE containers SET last_used_unix_ms = max(last_used_unix_ms, ?)
                   WHERE id = ?";
        self.database
            .run("note the use of containers", move |database| {
                let transaction = database.write()?;
                for (id, unix_ms) in &used {
                    let mut statement = transaction.prepare_cached(sql)?;
                    statement.execute(params![sql_ms(*unix_ms), id.as_str()])?;
                }
                Ok(transaction.commit()?)
            })
            .await
    }
}

pub(crate) fn by_key(
    connection: &Connection,
    row: &ContainerRow,
    since_unix_ms: u64,
) -> Result<Option<ContainerRow>, Fault> {
    let Some(key) = &row.key else {
        return Ok(None);
    };
    let sql = "SELECT * FROM containers
               WHERE principal = ? AND key = ? AND created_unix_ms >= ?
               ORDER BY created_unix_ms DESC LIMIT 1";
    let params = params![row.principal.as_str(), key.as_str(), sql_ms(since_unix_ms)];
    first(&mut connection.prepare_cached(sql)?, params)
}

pub(crate) fn insert(connection: &Connection, row: &ContainerRow) -> Result<(), Fault> {
    let sql = "INSERT INTO containers VALUES (
        :id, :principal, :alias, :spec, :image_digest, :engine, :labels, :is_persistent, :key,
        :phase, :created, :last_used, :expires, :ended, :is_warm, :env, :engine_host, :session,
        :egress)";
    let is_living = row.ended_unix_ms.is_none();
    let done = connection.prepare_cached(sql)?.execute(named_params! {
        ":id": row.id.as_str(),
        ":principal": row.principal.as_str(),
        ":alias": row.alias.as_ref().map(Alias::as_str),
        ":spec": spec::write(&row.spec).map_err(Fault::Misuse)?,
        ":image_digest": row.image_digest,
        ":engine": row.engine.name,
        ":labels": spec::write_labels(&row.labels),
        ":is_persistent": row.is_persistent,
        ":key": row.key.as_ref().map(Name::as_str),
        ":phase": row.phase.as_str(),
        ":created": sql_ms(row.created_unix_ms),
        ":last_used": sql_ms(row.last_used_unix_ms),
        ":expires": row.expires_unix_ms.map(sql_ms),
        ":ended": row.ended_unix_ms.map(sql_ms),
        ":is_warm": row.is_warm,
        ":env": is_living.then(|| spec::write_env(&row.spec.env)),
        ":engine_host": row.engine.host,
        ":session": row.session.as_ref().map(Name::as_str),
        ":egress": row.egress.as_ref().map(Name::as_str),
    });
    match done {
        Err(error) if Fault::is_duplicate(&error) => Err(Fault::AliasTaken),
        done => Ok(done.map(|_| ())?),
    }
}

/// Revives the row of a container that was thought to have ended, with the phase and the engine of
/// `found`. It is no session any more: its owner was told that the session had ended.
fn revive(connection: &Connection, found: &ContainerRow) -> Result<Option<ContainerRow>, Fault> {
    let sql = "UPDATE containers SET
                   phase = :phase, engine = :engine, engine_host = :engine_host,
                   ended_unix_ms = NULL,
                   alias = iif(EXISTS (
                       SELECT 1 FROM containers AS other
                       WHERE other.principal = containers.principal
                           AND other.alias = containers.alias
                           AND other.ended_unix_ms IS NULL AND other.id != containers.id
                   ), NULL, alias),
                   session = NULL
               WHERE id = :id
               RETURNING *";
    let params = named_params! {
        ":id": found.id.as_str(),
        ":phase": found.phase.as_str(),
        ":engine": found.engine.name,
        ":engine_host": found.engine.host,
    };
    first(&mut connection.prepare_cached(sql)?, params)
}

fn set_phase(
    connection: &Connection,
    id: &ContainerId,
    phase: Phase,
    ended_unix_ms: Option<u64>,
) -> Result<(), Fault> {
    // An ended container keeps its other columns, and can still be found.
    let sql = "UPDATE containers SET
                   phase = iif(ended_unix_ms IS NULL, :phase, phase),
                   ended_unix_ms = coalesce(ended_unix_ms, :ended),
                   env = iif(:ended IS NULL, env, NULL)
               WHERE id = :id";
    let found = connection.prepare_cached(sql)?.execute(named_params! {
        ":id": id.as_str(),
        ":phase": phase.as_str(),
        ":ended": ended_unix_ms.map(sql_ms),
    })?;
    if found == 0 {
        return Err(Fault::missing("container", id));
    }
    Ok(())
}

impl FromRow for ContainerRow {
    const TABLE: &'static str = "container";

    fn from_row(row: &RowReader<'_>) -> Result<Self, RowError> {
        let env: Option<String> = row.raw("env")?;
        Ok(Self {
            id: row.parsed("id", ContainerId::parse)?,
            principal: Principal::new(row.parsed("principal", Name::parse)?),
            alias: row.maybe("alias", Alias::parse)?,
            spec: row.parsed("spec", |text| spec::read(text, env.as_deref()))?,
            image_digest: row.raw("image_digest")?,
            engine: row.engine()?,
            labels: row.parsed("labels", spec::read_labels)?,
            is_persistent: row.raw("is_persistent")?,
            key: row.maybe("key", Name::parse)?,
            phase: row.parsed("phase", |word| Phase::parse(word).ok_or("not a phase"))?,
            created_unix_ms: row.ms("created_unix_ms")?,
            last_used_unix_ms: row.ms("last_used_unix_ms")?,
            expires_unix_ms: row.maybe_ms("expires_unix_ms")?,
            ended_unix_ms: row.maybe_ms("ended_unix_ms")?,
            is_warm: row.raw("is_warm")?,
            session: row.maybe("session", Name::parse)?,
            egress: row.maybe("egress", Name::parse)?,
        })
    }
}

#[cfg(test)]
mod tests;
