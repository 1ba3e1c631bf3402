//! What is known of a file: its representations, ready to be sent.

use super::mime::content_type;
use super::resolve::{Content, KnownStates, MEMORY_FILE_BYTES_MAX, Opened, Parts, State};
use bytes::Bytes;
use rustix::fs::fstat;
use selvedge::Request;
use selvedge::proto::date::HttpDate;
use selvedge::proto::encoding::{Accepted, Coding};
use selvedge::proto::field::{Fields, Known};
use selvedge::service::OpenFile;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a file is taken to be as it was. With the clock's own lag a change is seen
/// within a second.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// A file that changed so shortly ago may change again without its times showing it: they
/// move in steps of a few milliseconds.
const UNSETTLED: Duration = Duration::from_millis(100);

/// Whether a file's times would show its next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    Settled,
    Unsettled,
}

/// A file, in all its codings.
pub(in crate::site) struct Resource {
    pub(super) freshness: Freshness,
    identity: Representation,
    sidecars: Vec<(Coding, Representation)>,
}

/// One representation of a file (RFC 9110 §3.2).
#[derive(Clone)]
pub(super) struct Representation {
    /// Type, tag and date, as 200 and 206 have them.
    pub(super) fields: Rc<Fields>,
    /// Tag and date alone, as 304 has them.
    pub(super) fields_not_modified: Rc<Fields>,
    pub(super) etag: String,
    pub(super) modified: HttpDate,
    pub(super) content_type: String,
    pub(super) length: u64,
    pub(super) content: Kept,
    pub(super) state: State,
}

/// Where the bytes of a representation are.
#[derive(Clone)]
pub(super) enum Kept {
    Memory(Bytes),
    Open(Rc<OpenFile>),
}

impl Resource {
    pub(super) fn new(parts: Parts) -> Self {
        let kind = content_type(&parts.name);
        let vary = (!parts.sidecars.is_empty()).then_some("accept-encoding");
        let all = std::iter::once(&parts.identity).chain(parts.sidecars.iter().map(|(_, opened)| opened));
        let freshness = if all.map(|opened| opened.state).any(changed_just_now) {
            Freshness::Unsettled
        } else {
            Freshness::Settled
        };
        let make = |coding, opened| Representation::new(&kind, coding, vary, opened);
        Self {
            freshness,
            identity: make(None, parts.identity),
            sidecars: parts.sidecars.into_iter().map(|(coding, opened)| (coding, make(Some(coding), opened))).collect(),
        }
    }

    /// The same file with other fields. Bytes and open files are shared.
    pub(super) fn dressed(&self, dress: impl Fn(&mut Fields)) -> Self {
        let change = |representation: &Representation| {
            let mut dressed = representation.clone();
            dress(Rc::make_mut(&mut dressed.fields));
            dress(Rc::make_mut(&mut dressed.fields_not_modified));
            dressed
        };
        Self {
            freshness: self.freshness,
            identity: change(&self.identity),
            sidecars: self.sidecars.iter().map(|(coding, sidecar)| (*coding, change(sidecar))).collect(),
        }
    }

    /// Whether it was checked so shortly ago that it need not be checked again.
    pub(super) fn is_fresh(&self, checked: Duration, now: Duration) -> bool {
        now.saturating_sub(checked) < CHECK_INTERVAL
    }

    pub(super) fn states(&self) -> KnownStates {
        let sidecars = self.sidecars.iter().map(|(coding, sidecar)| (Some(*coding), sidecar.state));
        std::iter::once((None, self.identity.state)).chain(sidecars).collect()
    }

    /// The representation that the client likes best (RFC 9110 §12.5.3).
    pub(super) fn choose(&self, request: &Request) -> &Representation {
        if self.sidecars.is_empty() {
            return &self.identity;
        }
        let accepted = Accepted::parse(request.known_values(Known::AcceptEncoding));
        let chosen = accepted.choose(|coding| self.sidecars.iter().any(|(own, _)| *own == coding));
        let sidecar = self.sidecars.iter().find(|(coding, _)| Some(*coding) == chosen);
        sidecar.map_or(&self.identity, |(_, representation)| representation)
    }

    /// Bytes that it keeps in memory, for the cache's bound.
    pub(super) fn memory_bytes(&self) -> usize {
        self.representations().map(|representation| representation.memory_bytes() + 1024).sum()
    }

    /// Whether every file that is kept open is still in the state that is known of it.
    pub(super) fn is_as_known(&self) -> bool {
        self.representations().all(Representation::is_as_known)
    }

    /// Files that it keeps open, for the cache's bound.
    pub(super) fn open_files(&self) -> usize {
        self.representations().filter(|r| matches!(r.content, Kept::Open(_))).count()
    }

    fn representations(&self) -> impl Iterator<Item = &Representation> {
        std::iter::once(&self.identity).chain(self.sidecars.iter().map(|(_, representation)| representation))
    }
}

impl Representation {
    fn new(kind: &str, coding: Option<Coding>, vary: Option<&str>, opened: Opened) -> Self {
        let state = opened.state;
        let modified = HttpDate::from_unix(state.modified.0);
        let suffix = coding.map_or_else(String::new, |coding| format!("-{}", coding.name()));
        // The parts are kept apart, so that no two states share their digits.
        let etag = format!("\"{:x}.{:x}-{:x}{suffix}\"", state.modified.0, state.modified.1, state.length);
        let mut not_modified = Fields::new();
        let mut fields = Fields::new();
        let add = |fields: &mut Fields, name, value: &[u8]| {
            fields.append(name, value).expect("media types, tags and dates have no control octets");
        };
        add(&mut fields, "content-type", kind.as_bytes());
        if let Some(coding) = coding {
            add(&mut fields, "content-encoding", coding.name().as_bytes());
        }
        add(&mut fields, "accept-ranges", b"bytes");
        for fields in [&mut fields, &mut not_modified] {
            add(fields, "etag", etag.as_bytes());
            add(fields, "last-modified", &modified.format());
            if let Some(vary) = vary {
                add(fields, "vary", vary.as_bytes());
            }
        }
        Self {
            fields: Rc::new(fields),
            fields_not_modified: Rc::new(not_modified),
            etag,
            modified,
            content_type: kind.to_owned(),
            length: state.length,
            content: match opened.content {
                Content::Memory(bytes) => Kept::Memory(bytes.into()),
                Content::Open(file) => Kept::Open(Rc::new(OpenFile::new(file))),
            },
            state,
        }
    }

    fn memory_bytes(&self) -> usize {
        match &self.content {
            Kept::Memory(bytes) => bytes.len(),
            Kept::Open(_) => 0,
        }
    }

    /// Whether an open file is still in the state that is known of it.
    pub(super) fn is_as_known(&self) -> bool {
        match &self.content {
            Kept::Memory(_) => true,
            Kept::Open(file) if file.is_copied(&self.state.content()) => true,
            Kept::Open(file) => fstat(&***file).is_ok_and(|stat| State::of(&stat) == self.state),
        }
    }
}

/// Whether a file changed so shortly ago that its times may not show its next change.
pub(super) fn changed_just_now(state: State) -> bool {
    let since_epoch = |(seconds, nanoseconds): (i64, u32)| {
        u64::try_from(seconds).map_or(Duration::ZERO, |s| Duration::new(s, nanoseconds))
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(since_epoch(state.changed)) < UNSETTLED && since_epoch(state.changed) <= now + UNSETTLED
}

const _: () = assert!(MEMORY_FILE_BYTES_MAX < u32::MAX as u64, "a file in memory has a small length");
