//! Several file operations in one call: atomic, or each on its own.

use bytes::Bytes;
use hotcell_agent_api::bounds::{BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX};
use hotcell_agent_api::v1::batch_operation::Operation as Raw;
use hotcell_agent_api::v1::{BatchReply, BatchRequest, BatchResult, BatchWrite, FileInfo};

use super::beneath::Beneath;
use super::blocking::Stop;
use super::copy::Copy;
use super::error::Error;
use super::journal::Journal;
use super::path::RelPath;
use super::read::FileReader;
use super::relocate::{Delete, Mkdir, Move};
use super::stage::{Direct, Stage};
use super::write::{Received, Write};

/// A batch of valid operations.
#[derive(Debug)]
pub(super) struct Batch {
    operations: Vec<Operation>,
    atomic: bool,
    /// How many bytes the reply may still grow by.
    budget: usize,
}

#[derive(Debug)]
enum Operation {
    Read(RelPath),
    Write(Write, Bytes),
    Delete(Delete),
    Move(Move),
    Copy(Copy),
    Mkdir(Mkdir),
}

#[derive(Default)]
struct Outcome {
    info: Option<FileInfo>,
    data: Bytes,
}

impl Batch {
    /// Parses every operation and sums up the size of content and paths. An invalid operation is
    /// reported by its index.
    pub(super) fn parse(request: BatchRequest, root: &[u8]) -> Result<Self, Error> {
        if request.operations.len() > BATCH_OPERATIONS_MAX {
            return Err(Error::Invalid("the batch has too many operations"));
        }
        let mut used = 0;
        let mut operations = Vec::with_capacity(request.operations.len());
        for (index, raw) in request.operations.into_iter().enumerate() {
            let wrong = |source: Error| Error::Undone {
                index,
                source: Box::new(source),
            };
            let raw = raw
                .operation
                .ok_or(Error::Invalid("an operation is empty"))
                .map_err(wrong)?;
            used += weight(&raw);
            operations.push(Operation::parse(raw, root).map_err(wrong)?);
        }
        let budget = BATCH_BYTES_MAX
            .checked_sub(used)
            .ok_or(Error::Invalid("the batch holds too many bytes"))?;
        Ok(Self {
            operations,
            atomic: request.atomic,
            budget,
        })
    }

    /// Applies the operations in order. The lock is held until all are done or undone, but not
    /// while leftovers are removed.
    pub(super) fn apply(
        self,
        root: &Beneath,
        stop: &Stop,
        lock: impl Sized,
    ) -> Result<BatchReply, Error> {
        if !self.atomic {
            return Ok(self.each(root, stop));
        }
        let mut journal = Journal::open(root)?;
        let done = self.all(root, &mut journal, stop);
        let done = done.map_err(|(index, source)| undo(&mut journal, index, source));
        drop(lock);
        journal.clear();
        done
    }

    /// Applies all operations, or reports which one failed.
    fn all(
        mut self,
        root: &Beneath,
        journal: &mut Journal,
        stop: &Stop,
    ) -> Result<BatchReply, (usize, Error)> {
        let mut results = Vec::with_capacity(self.operations.len());
        for (index, operation) in self.operations.iter().enumerate() {
            let outcome = operation
                .apply(root, journal, true, &mut self.budget, stop)
                .map_err(|source| (index, source))?;
            results.push(outcome.into_result());
        }
        Ok(BatchReply { results })
    }

    fn each(mut self, root: &Beneath, stop: &Stop) -> BatchReply {
        let mut results = Vec::with_capacity(self.operations.len());
        for operation in &self.operations {
            let mut stage = Direct::copying();
            let applied = operation.apply(root, &mut stage, false, &mut self.budget, stop);
            results.push(match applied {
                Ok(outcome) => {
                    stage.keep();
                    outcome.into_result()
                }
                Err(error) => failed(&error),
            });
        }
        BatchReply { results }
    }
}

impl Operation {
    fn parse(raw: Raw, root: &[u8]) -> Result<Self, Error> {
        Ok(match raw {
            Raw::Read(read) => Self::Read(RelPath::parse(&read.path, root)?),
            Raw::Write(BatchWrite { header, data }) => {
                let header = header.ok_or(Error::Invalid("a write has no header"))?;
                Self::Write(Write::parse(&header, root)?, data)
            }
            Raw::Delete(delete) => Self::Delete(Delete::parse(&delete, root)?),
            Raw::Move(request) => Self::Move(Move::parse(&request, root)?),
            Raw::Copy(request) => Self::Copy(Copy::parse(&request, root)?),
            Raw::Mkdir(request) => Self::Mkdir(Mkdir::parse(&request, root)?),
        })
    }

    fn apply(
        &self,
        root: &Beneath,
        stage: &mut impl Stage,
        undoable: bool,
        budget: &mut usize,
        stop: &Stop,
    ) -> Result<Outcome, Error> {
        stop.check()?;
        let outcome = match self {
            Self::Read(path) => {
                let source = FileReader::open(root, path)?;
                let data = source.content(*budget)?;
                Outcome {
                    info: Some(source.info),
                    data,
                }
            }
            Self::Write(write, data) => {
                let location = write.locate(root, stage)?;
                let received = Received::complete(data.clone());
                write.finish(&location, received, stage, undoable)?.into()
            }
            Self::Delete(delete) => {
                let location = delete.locate(root)?;
                delete.apply(&location, stage, stop)?;
                Outcome::default()
            }
            Self::Move(request) => request.apply(root, stage, stop)?.into(),
            Self::Copy(copy) => {
                let made = copy.make(root, stage, stop)?;
                copy.finish(made, stage)?.into()
            }
            Self::Mkdir(mkdir) => mkdir.apply(root, stage)?.into(),
        };
        outcome.charge(budget)
    }
}

impl Outcome {
    /// Deducts the size of this outcome from the reply's budget.
    fn charge(self, budget: &mut usize) -> Result<Self, Error> {
        let target = self.info.as_ref().map_or(0, |info| info.target.len());
        *budget = budget
            .checked_sub(self.data.len() + target)
            .ok_or(Error::Exhausted("the reply would be too large"))?;
        Ok(self)
    }

    fn into_result(self) -> BatchResult {
        BatchResult {
            info: self.info,
            data: self.data,
            ..BatchResult::default()
        }
    }
}

impl From<FileInfo> for Outcome {
    fn from(info: FileInfo) -> Self {
        Self {
            info: Some(info),
            data: Bytes::new(),
        }
    }
}

fn undo(journal: &mut Journal, index: usize, source: Error) -> Error {
    let source = Box::new(source);
    match journal.undo() {
        Ok(()) => Error::Undone { index, source },
        Err(staging) => Error::HalfUndone {
            index,
            source,
            staging,
        },
    }
}

fn failed(error: &Error) -> BatchResult {
    BatchResult {
        code: (error.code() as i32).cast_unsigned(),
        message: error.to_string(),
        current_etag: error.current_etag().unwrap_or_default().to_owned(),
        ..BatchResult::default()
    }
}

/// The size of an operation: its content and its paths, which are repeated in the reply.
fn weight(raw: &Raw) -> usize {
    match raw {
        Raw::Read(read) => read.path.len(),
        Raw::Write(write) => {
            write.data.len() + write.header.as_ref().map_or(0, |header| header.path.len())
        }
        Raw::Delete(delete) => delete.path.len(),
        Raw::Move(request) => request.path.len() + request.dest_path.len(),
        Raw::Copy(request) => request.path.len() + request.dest_path.len(),
        Raw::Mkdir(request) => request.path.len(),
    }
}
