//! `hotcell audit`: reads the audit log from its files. No server needs to run.

mod columns;
mod filter;
mod verify;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hotcell_ledger::{Tail, events, newest};

use self::columns::Columns;
use self::filter::Filter;
use crate::cli::{
    AuditArgs, AuditCommand, AuditExportArgs, AuditPlaceArgs, AuditQueryArgs, AuditTailArgs,
};
use crate::state;

/// How often `tail -f` checks for new events.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the subcommand.
pub(crate) fn run(arguments: &AuditArgs) -> Result<ExitCode> {
    let done = match &arguments.command {
        AuditCommand::Tail(arguments) => tail(arguments),
        AuditCommand::Query(arguments) => query(arguments),
        AuditCommand::Export(arguments) => export(arguments),
        AuditCommand::Verify(arguments) => return verify::run(arguments),
    };
    match done {
        // The reader of our output has gone away.
        Err(error) if is_closed(&error) => Ok(ExitCode::SUCCESS),
        done => done.map(|()| ExitCode::SUCCESS),
    }
}

fn is_closed(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The directory of the audit log, which may not exist.
pub(crate) fn place(place: &AuditPlaceArgs) -> Result<PathBuf> {
    match &place.audit_dir {
        Some(directory) => Ok(directory.clone()),
        None => Ok(state::directory(place.state.state_dir.clone())?.join("audit")),
    }
}

/// The directory of the audit log; an error if there is none.
fn directory(arguments: &AuditPlaceArgs) -> Result<PathBuf> {
    let directory = place(arguments)?;
    if !directory.is_dir() {
        bail!(
            "there is no audit log at {}; name its server's --state-dir or --audit-dir",
            directory.display()
        );
    }
    Ok(directory)
}

/// Prints events for people or for programs.
struct Printer<W: Write> {
    to: W,
    columns: Option<Columns>,
}

impl<W: Write> Printer<W> {
    fn new(to: W, is_json: bool) -> Self {
        let columns = (!is_json).then(Columns::default);
        Self { to, columns }
    }

    fn print(&mut self, line: &[u8]) -> io::Result<()> {
        if let Some(columns) = &mut self.columns {
            return self.to.write_all(columns.row(line).as_bytes());
        }
        self.to.write_all(line)?;
        self.to.write_all(b"\n")
    }
}

fn tail(arguments: &AuditTailArgs) -> Result<()> {
    let directory = directory(&arguments.place)?;
    let (lines, mut tail) = newest(&directory, arguments.lines).context("read the audit log")?;
    let mut printer = Printer::new(io::stdout().lock(), arguments.json);
    for line in lines {
        printer.print(&line)?;
    }
    if arguments.follow {
        follow(&mut tail, &mut printer)?;
    }
    Ok(())
}

/// Prints events as they come, until the reader of our output goes away.
fn follow<W: Write>(tail: &mut Tail, printer: &mut Printer<W>) -> Result<()> {
    loop {
        printer.to.flush()?;
        std::thread::sleep(LOOK_INTERVAL);
        let mut outcome = Ok(());
        tail.more(|line| {
            if outcome.is_ok() {
                outcome = printer.print(line);
            }
        })?;
        outcome?;
    }
}

fn query(arguments: &AuditQueryArgs) -> Result<()> {
    let filter = Filter::of(arguments);
    let to = BufWriter::new(io::stdout().lock());
    print_all(&arguments.place, &filter, Printer::new(to, arguments.json))
}

fn export(arguments: &AuditExportArgs) -> Result<()> {
    let filter = Filter::in_span(&arguments.span);
    let Some(path) = &arguments.file else {
        let to = BufWriter::new(io::stdout().lock());
        return print_all(&arguments.place, &filter, Printer::new(to, true));
    };
    let created = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let file = created.with_context(|| format!("create {}", path.display()))?;
    let to = BufWriter::new(&file);
    print_all(&arguments.place, &filter, Printer::new(to, true))?;
    file.sync_all().context("write the file to the disk")
}

fn print_all<W: Write>(
    place: &AuditPlaceArgs,
    filter: &Filter,
    mut printer: Printer<W>,
) -> Result<()> {
    let mut outcome = Ok(());
    events(&directory(place)?, |line| {
        if filter.matches(line) {
            outcome = printer.print(line);
        }
        match outcome {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })
    .context("read the audit log")?;
    outcome?;
    Ok(printer.to.flush()?)
}
