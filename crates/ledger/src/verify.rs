//! Verifies the ledger.
//!
//! Every line is hashed, and no JSON is parsed. After a fault, verification continues with what the
//! line says about itself, so each fault is reported once and where it is.

use std::fmt;
use std::io;
use std::path::Path;

use crate::anchor::Anchor;
use crate::chain::{Link, Parts};
use crate::segment::{Found, Header, SegmentId, SegmentReader, list};

/// Most faults that are reported; further ones are only counted.
const FAULTS_MAX: usize = 100;

/// The result of a verification.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Number of events.
    pub events: u64,
    /// Number of segments.
    pub segments: usize,
    /// The first event.
    pub first_seq: Option<u64>,
    /// The last event, whose hash covers all before it.
    pub head: Link,
    /// Bytes of an incomplete last line: its server died, or is writing it now.
    pub torn_bytes: usize,
    /// Whether there was an anchor. Without one, truncation cannot be detected.
    pub is_anchored: bool,
    /// The first faults.
    pub faults: Vec<Fault>,
    /// Number of faults.
    pub faults_count: u64,
}

/// A fault and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The first and the last event that it is about.
    pub events: (u64, u64),
    /// The segment's first event and the line in the segment, if the fault has a position.
    pub place: Option<(u64, u64)>,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The event or its hash was changed.
    Changed,
    /// The line is not an event.
    Damaged,
    /// Events are missing.
    Missing,
    /// The event is out of order.
    OutOfPlace,
    /// The end is missing: the anchor is further.
    Truncated,
    /// The whole chain was rewritten: the anchor's event has another hash.
    Rewritten,
    /// A segment cannot be read.
    Unreadable,
}

struct Walk {
    verdict: Verdict,
    anchor: Option<Anchor>,
    /// The last event, by what its line says about itself.
    last: Option<Link>,
    /// Whether the hash of the last event is unknown.
    is_lost: bool,
    place: (u64, u64),
}

/// Verifies all segments, oldest first. The anchor must have been read before.
pub fn verify(directory: &Path, anchor: Option<Anchor>) -> io::Result<Verdict> {
    let segments = list(directory)?;
    let mut walk = Walk::new(anchor, segments.len());
    let newest = segments.last().copied();
    for id in segments {
        walk.segment(directory, id, Some(id) == newest);
    }
    walk.finish();
    Ok(walk.verdict)
}

impl Walk {
    fn new(anchor: Option<Anchor>, segments: usize) -> Self {
        Self {
            verdict: Verdict {
                events: 0,
                segments,
                first_seq: None,
                head: Link::START,
                torn_bytes: 0,
                is_anchored: anchor.is_some(),
                faults: Vec::new(),
                faults_count: 0,
            },
            anchor,
            last: None,
            is_lost: false,
            place: (0, 0),
        }
    }

    fn segment(&mut self, directory: &Path, id: SegmentId, is_newest: bool) {
        self.place = (id.0, 0);
        let read = SegmentReader::open(directory, id)
            .and_then(|mut reader| self.read(&mut reader, id, is_newest));
        match read {
            // Retention may have just removed it; missing events are detected below.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.last.is_none() => {}
            Err(_) => {
                let next = self.last.map_or(id.0, |last| last.seq + 1);
                self.fault(FaultKind::Unreadable, next, next);
                self.is_lost = true;
            }
            Ok(()) => {}
        }
    }

    fn read(
        &mut self,
        reader: &mut SegmentReader,
        id: SegmentId,
        is_newest: bool,
    ) -> io::Result<()> {
        let can_be_torn = is_newest && !reader.is_sealed();
        loop {
            self.place.1 += 1;
            match reader.next()? {
                Found::Line(line) if self.place.1 == 1 => self.header(line, id),
                Found::Line(line) => self.line(line),
                Found::Torn(bytes) if can_be_torn => {
                    self.verdict.torn_bytes = bytes;
                }
                Found::Torn(_) | Found::TooLong => {
                    let next = self.last.map_or(id.0, |last| last.seq + 1);
                    self.fault(FaultKind::Damaged, next, next);
                    self.is_lost = true;
                }
                Found::End => return Ok(()),
            }
        }
    }

    /// Checks a segment's header, which names the event that it continues after.
    fn header(&mut self, line: &[u8], id: SegmentId) {
        let before = Header::parse(line).map(|header| header.before);
        let Some(before) = before.filter(|before| before.seq + 1 == id.0) else {
            self.fault(FaultKind::Damaged, id.0, id.0);
            self.is_lost = true;
            self.last = self.last.or(Some(Link {
                seq: id.0 - u64::from(id.0 > 0),
                hash: Link::START.hash,
            }));
            return;
        };
        match self.last {
            None => {
                let first_kept = self
                    .anchor
                    .map_or(before.seq + 1, |anchor| anchor.first_kept);
                if before.seq >= first_kept {
                    self.fault(FaultKind::Missing, first_kept, before.seq);
                }
            }
            Some(last) if before.seq > last.seq => {
                self.fault(FaultKind::Missing, last.seq + 1, before.seq);
            }
            Some(last) if before.seq < last.seq => {
                self.fault(FaultKind::OutOfPlace, before.seq + 1, before.seq + 1);
            }
            Some(last) if before.hash != last.hash && !self.is_lost => {
                self.fault(FaultKind::Changed, last.seq, last.seq);
            }
            Some(_) => {}
        }
        self.last = Some(before);
        self.is_lost = false;
    }

    fn line(&mut self, line: &[u8]) {
        self.verdict.events += 1;
        let last = self.last.unwrap_or(Link::START);
        let next = last.seq + 1;
        let Some(parts) = Parts::of(line) else {
            self.fault(FaultKind::Damaged, next, next);
            self.last = Some(Link { seq: next, ..last });
            self.is_lost = true;
            return;
        };
        let seq = parts.link.seq;
        if seq < next {
            return self.out_of_place(seq);
        }
        if seq > next {
            self.fault(FaultKind::Missing, next, seq - 1);
        } else if !self.is_lost && !parts.follows(&last.hash) {
            self.fault(FaultKind::Changed, seq, seq);
        }
        self.verdict.first_seq.get_or_insert(seq);
        self.is_lost = false;
        self.last = Some(parts.link);
        self.compare_with_anchor(parts.link);
    }

    /// An event that was reported as missing is only out of order.
    fn out_of_place(&mut self, seq: u64) {
        let is_it = |fault: &Fault| fault.kind == FaultKind::Missing && fault.events == (seq, seq);
        if let Some(missed) = self.verdict.faults.iter().position(is_it) {
            self.verdict.faults.remove(missed);
            self.verdict.faults_count -= 1;
        }
        self.fault(FaultKind::OutOfPlace, seq, seq);
    }

    fn compare_with_anchor(&mut self, link: Link) {
        let anchored = self.anchor.map(|anchor| anchor.last);
        if anchored.is_some_and(|anchored| anchored.seq == link.seq && anchored.hash != link.hash) {
            self.fault(FaultKind::Rewritten, link.seq, link.seq);
        }
    }

    fn finish(&mut self) {
        let last = self.last.unwrap_or(Link::START);
        self.verdict.head = last;
        if let Some(anchor) = self.anchor
            && anchor.last.seq > last.seq
        {
            self.verdict.faults_count += 1;
            self.verdict.faults.push(Fault {
                kind: FaultKind::Truncated,
                events: (last.seq + 1, anchor.last.seq),
                place: None,
            });
        }
    }

    fn fault(&mut self, kind: FaultKind, from: u64, to: u64) {
        self.verdict.faults_count += 1;
        if self.verdict.faults.len() < FAULTS_MAX {
            self.verdict.faults.push(Fault {
                kind,
                events: (from, to),
                place: Some(self.place),
            });
        }
    }
}

impl Verdict {
    /// Whether there are no faults.
    pub fn is_whole(&self) -> bool {
        self.faults_count == 0
    }
}

impl FaultKind {
    /// The name for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Damaged => "damaged",
            Self::Missing => "missing",
            Self::OutOfPlace => "out_of_place",
            Self::Truncated => "truncated",
            Self::Rewritten => "rewritten",
            Self::Unreadable => "unreadable",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.events;
        if from == to {
            write!(f, "event {from} ")?;
        } else {
            write!(f, "events {from} to {to} ")?;
        }
        f.write_str(match self.kind {
            FaultKind::Changed => {
                "was changed, or the event before it: its hash does not follow from what is before"
            }
            FaultKind::Damaged => "cannot be read: the line is damaged",
            FaultKind::Missing => "missing",
            FaultKind::OutOfPlace => "out of place: moved or inserted",
            FaultKind::Truncated => "missing at the end: the server had written them",
            FaultKind::Rewritten => {
                "has not the hash that the server noted: the log was written anew"
            }
            FaultKind::Unreadable => "and what follows in the segment cannot be read",
        })?;
        match self.place {
            Some((segment, line)) => write!(f, " (segment {segment:020}, line {line})"),
            None => Ok(()),
        }
    }
}
