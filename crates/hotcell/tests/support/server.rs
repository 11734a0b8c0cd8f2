//! A server process: the real binary.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::deadline;
use super::home::Home;
use super::mcp::Client;

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    log: Receiver<String>,
    /// The log lines before it listened.
    before: Vec<String>,
    /// Where it listens: `http://127.0.0.1:PORT`.
    pub url: String,
}

impl Server {
    pub(crate) fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut child = home
            .command(&["serve", "--port", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let log = lines(child.stderr.take().expect("its stderr is a pipe"));
        let mut server = Self {
            child,
            log,
            before: Vec::new(),
            url: String::new(),
        };
        let line = server.wait_until_it_listens();
        let url = line
            .split_whitespace()
            .find_map(|word| word.split_once("http://"));
        let url = url.expect("the line has the URL").1;
        let authority = url.split('/').next().expect("there is a first part");
        server.url = format!("http://{authority}");
        server
    }

    /// A client over Streamable HTTP with a session.
    pub(crate) fn client(&self) -> Client {
        Client::http(&self.url)
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn authority(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory now.
    pub(crate) fn rss_bytes(&self) -> u64 {
        self.status_kib("VmRSS:") * 1024
    }

    /// Peak resident memory.
    pub(crate) fn peak_rss_bytes(&self) -> u64 {
        self.status_kib("VmHWM:") * 1024
    }

    fn status_kib(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.expect("a number of KiB")
    }

    fn wait_until_it_listens(&mut self) -> String {
        let until = Instant::now() + deadline();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.log.recv_timeout(left) else {
                panic!("it does not listen, but says {:#?}", self.before);
            };
            if line.contains("serving at http://") {
                return line;
            }
            self.before.push(line);
        }
    }

    /// The line with these words that it logged before it listened.
    pub(crate) fn said(&self, words: &str) -> &str {
        let line = self.before.iter().find(|line| line.contains(words));
        line.unwrap_or_else(|| panic!("never said {words:?}, but {:#?}", self.before))
    }

    /// Waits for a line of the log.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        wait_for(&self.log, words)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Kills it (SIGKILL).
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for its end. stdout carries only protocol messages, so with HTTP it must be empty.
    pub(crate) fn wait(mut self) -> ExitStatus {
        let status = wait(&mut self.child);
        let mut stdout = String::new();
        let pipe = self.child.stdout.take().expect("its stdout is a pipe");
        BufReader::new(pipe)
            .read_to_string(&mut stdout)
            .expect("its stdout is text");
        assert_eq!(stdout, "", "stdout is for the protocol alone");
        status
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self.log.try_iter() {
                eprintln!("its log: {line}");
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a line of a log.
pub(crate) fn wait_for(log: &Receiver<String>, words: &str) -> String {
    let mut said = log_until(log, words);
    said.pop().expect("the line with the words")
}

/// The log up to a line with these words; fails if that does not arrive in time.
pub(crate) fn log_until(log: &Receiver<String>, words: &str) -> Vec<String> {
    let until = Instant::now() + deadline();
    let mut said = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(line) = log.recv_timeout(left) else {
            panic!("never said {words:?}, but {said:#?}");
        };
        let is_it = line.contains(words);
        said.push(line);
        if is_it {
            return said;
        }
    }
}

/// Sends a signal to a running process.
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), signal).expect("it runs");
}

/// Runs a command to its end; fails if that takes too long.
pub(crate) fn output(command: &mut Command) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let stdout = collect(child.stdout.take().expect("its stdout is a pipe"));
    let stderr = collect(child.stderr.take().expect("its stderr is a pipe"));
    let status = wait(&mut child);
    let whole = |reading: JoinHandle<Vec<u8>>| reading.join().expect("it can be read");
    Output {
        status,
        stdout: whole(stdout),
        stderr: whole(stderr),
    }
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut data = Vec::new();
        from.read_to_end(&mut data).expect("a pipe can be read");
        data
    })
}

/// Waits for a process, with a deadline.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let until = Instant::now() + deadline();
    loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("it never ended");
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Reads the lines of a process's log as they arrive.
pub(crate) fn lines(stderr: ChildStderr) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // The test may have ended.
            let _ = send.send(line);
        }
    });
    receive
}
