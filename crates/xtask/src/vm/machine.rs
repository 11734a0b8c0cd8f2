//! One boot of the emulated machine. It never outlives the call: it powers itself off, the deadline
//! kills it by process id, or the kernel does when this process dies.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Lines buffered between the machine and us.
const LINES_QUEUED_MAX: usize = 1024;

/// A longer line is split.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// For the tests, and for what an attack uses outside of a container, at most 400 MiB.
const MEMORY_MIB: &str = "1536";

/// How a boot ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The machine stopped by itself: powered off or panicked.
    Stopped,
    /// It was still running at the deadline and was killed.
    DeadlinePassed,
}

/// Boots `image` with more `disks`; passes each line of the results port to `hear`.
pub(crate) fn boot(
    image: &Path,
    disks: &[PathBuf],
    console: &Path,
    deadline: Duration,
    hear: impl FnMut(&str),
) -> Result<Ending> {
    let mut child = command(image, disks, console)
        .spawn()
        .context("start qemu-system-x86_64")?;
    let results = child.stdout.take().context("qemu has no results port")?;
    let (sender, receiver) = sync_channel(LINES_QUEUED_MAX);
    let reader = std::thread::spawn(move || pump(results, &sender));
    let ending = listen(&receiver, deadline, hear);
    // Without a receiver, a reader that waits for room in the queue ends too.
    drop(receiver);
    end(&mut child)?;
    let _ = reader.join();
    Ok(ending)
}

/// Software emulation only: under `/dev/kvm` Linux guests hang on some hosts.
fn command(image: &Path, disks: &[PathBuf], console: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
        .args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-m",
            MEMORY_MIB,
        ])
        .args(["-smp", "2", "-display", "none", "-monitor", "none"])
        .args(["-nic", "none", "-no-reboot"])
        .arg("-kernel")
        .arg(image.join("vmlinuz"))
        .arg("-initrd")
        .arg(image.join("initrd"))
        .arg("-append")
        .arg("console=ttyS0 panic=-1 mitigations=off apparmor=1 security=apparmor")
        .args(["-drive", &drive(&image.join("root.ext4"))])
        .args(
            disks
                .iter()
                .flat_map(|disk| ["-drive".to_owned(), drive(disk)]),
        )
        .args(["-serial", &format!("file:{}", console.display())])
        // If the host side of a port is closed, the guest waits for ever; `stdio` closes it when
        // our stdin ends, a file never does.
        .args(["-chardev", "file,id=results,path=/proc/self/fd/1"])
        .args(["-device", "virtio-serial-pci"])
        .args(["-device", "virtserialport,chardev=results,name=results"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// The guest's writes go to an unlinked temporary file: the image stays clean.
fn drive(disk: &Path) -> String {
    format!("file={},format=raw,if=virtio,snapshot=on", disk.display())
}

fn pump(results: impl Read, lines: &SyncSender<String>) {
    let mut results = BufReader::new(results);
    loop {
        let mut line = Vec::new();
        let read = results
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']).to_owned();
        if lines.send(text).is_err() {
            return;
        }
    }
}

fn listen(lines: &Receiver<String>, deadline: Duration, mut hear: impl FnMut(&str)) -> Ending {
    let start = Instant::now();
    loop {
        let Some(left) = deadline.checked_sub(start.elapsed()) else {
            return Ending::DeadlinePassed;
        };
        match lines.recv_timeout(left) {
            Ok(line) => hear(&line),
            Err(RecvTimeoutError::Disconnected) => return Ending::Stopped,
            Err(RecvTimeoutError::Timeout) => return Ending::DeadlinePassed,
        }
    }
}

/// Kills the machine if it runs, and reaps it.
fn end(child: &mut Child) -> Result<()> {
    // An error means that it has already exited.
    let _ = child.kill();
    child.wait().context("wait for qemu")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_until_the_machine_stops() {
        let (sender, receiver) = sync_channel(LINES_QUEUED_MAX);
        pump("one\r\ntwo\nrest".as_bytes(), &sender);
        drop(sender);
        let mut heard = Vec::new();
        let ending = listen(&receiver, Duration::from_mins(1), |line| {
            heard.push(line.to_owned());
        });
        assert_eq!(ending, Ending::Stopped);
        assert_eq!(heard, ["one", "two", "rest"]);
    }

    #[test]
    fn an_endless_line_comes_in_bounded_pieces() {
        let (sender, receiver) = sync_channel(LINES_QUEUED_MAX);
        pump(vec![b'x'; 100_000].as_slice(), &sender);
        drop(sender);
        assert_eq!(
            receiver.iter().map(|line| line.len()).max(),
            Some(64 * 1024)
        );
    }

    #[test]
    fn a_silent_machine_meets_its_deadline() {
        let (_sender, receiver) = sync_channel(LINES_QUEUED_MAX);
        let ending = listen(&receiver, Duration::ZERO, |_| {});
        assert_eq!(ending, Ending::DeadlinePassed);
    }

    #[test]
    fn an_endless_talker_meets_its_deadline_too() {
        let (sender, receiver) = sync_channel(LINES_QUEUED_MAX);
        let talker = std::thread::spawn(move || while sender.send("more".to_owned()).is_ok() {});
        let ending = listen(&receiver, Duration::from_millis(1), |_| {});
        assert_eq!(ending, Ending::DeadlinePassed);
        drop(receiver);
        talker.join().unwrap();
    }

    #[test]
    fn only_software_emulation_is_asked_for() {
        let command = command("i".as_ref(), &["d".into()], "c".as_ref());
        let words: Vec<_> = command
            .get_args()
            .filter_map(|word| word.to_str())
            .collect();
        let accelerators = words.iter().filter(|word| **word == "-accel").count();
        assert_eq!(accelerators, 1);
        assert!(words.contains(&"tcg,thread=multi"));
    }
}
