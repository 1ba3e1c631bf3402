//! The representations of a file, ready to be sent.

use super::allowed_codings::AllowedCodings;
use super::encoded::EncodedContent;
use super::loaded::{
    ContentIdentity, FIXED_TIMES, KnownStamps, LoadedContent, LoadedFile, LoadedVariant, MEANINGFUL_FROM,
    MEMORY_FILE_BYTES_MAX,
};
use super::mime::{content_type, own_coding};
use crate::reasons::OUTDATED;
use bytes::Bytes;
use selvedge::proto::date::HttpDate;
use selvedge::proto::encoding::{AcceptedCodings, Coding};
use selvedge::proto::field::{Fields, KnownField};
use selvedge::service::{FileStamp, OpenFile};
use selvedge::{ContentCoder, Request};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// How long a file is served without a check for changes. With the clock's lag, a change is visible within one
/// second.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the time until which a file, a root or a directory that was checked now is used without another check.
pub(in crate::site) fn fresh_until(now: Duration) -> Duration {
    now + CHECK_INTERVAL
}

/// The memory of a list of fields without its lines, rounded up.
const FIELDS_BYTES: usize = 64;

/// Whether the next change of a file will change its timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stability {
    Stable,
    Unstable,
}

/// A file with all its content codings.
pub(in crate::site) struct Resource {
    /// The file name.
    name: Box<str>,
    pub(super) stability: Stability,
    identity: Representation,
    precompressed: Vec<(Coding, Representation)>,
    /// The codings that the server encodes the file in.
    encoded: Vec<(Coding, Representation)>,
    /// The reason why precompressed files are not sent, until it is logged.
    log_reason: Cell<Option<&'static str>>,
}

/// The fields of the responses with a representation.
#[derive(Clone)]
pub(super) struct RepresentationFields {
    /// The fields of 200 and 206: media type, entity tag, date.
    pub(super) full: Rc<Fields>,
    /// The fields of 304: entity tag and date.
    pub(super) not_modified: Rc<Fields>,
}

/// The fields of a file with the changes of the site.
pub(super) struct ChangedFields {
    /// In the order of [`Resource::select`].
    pub(super) of_representations: Box<[RepresentationFields]>,
    /// What the site's fields allow.
    pub(super) allowed: AllowedCodings,
}

/// One representation of a file (RFC 9110 §3.2).
pub(super) struct Representation {
    pub(super) fields: RepresentationFields,
    /// `None` until the content is known.
    pub(super) etag: Option<String>,
    /// `None` for a time that means nothing.
    pub(super) modified: Option<HttpDate>,
    pub(super) content_type: String,
    pub(super) length: u64,
    /// The content; of an encoded representation, that of the file.
    pub(super) storage: BodyStorage,
    pub(super) stamp: FileStamp,
    pub(super) encoded: Option<EncodedContent>,
}

/// What the representations of a file have in common.
struct FileFacts<'a> {
    media_type: &'a str,
    /// The coding that the file itself has.
    own: Option<Coding>,
    vary: Option<&'a str>,
}

/// Where the bytes of a representation are.
#[derive(Clone)]
pub(super) enum BodyStorage {
    Memory(Bytes),
    Open(Rc<OpenFile>),
}

impl Resource {
    /// Creates the representations of a file. With a coder, it is encoded in the codings without a precompressed file.
    pub(super) fn new(file: LoadedFile, coder: Option<&ContentCoder>) -> Self {
        let media_type = content_type(&file.name);
        let essence = media_type.split(';').next().unwrap_or_default().trim_end();
        let own = own_coding(&file.name);
        // A file with a coding of its own does not shrink.
        let coder = coder.filter(|coder| own.is_none() && coder.encodes(essence, file.identity.stamp.length));
        let vary = (!file.precompressed.is_empty() || coder.is_some()).then_some("accept-encoding");
        let now = SystemTime::now();
        let mut all = std::iter::once(&file.identity).chain(file.precompressed.iter().map(|(_, variant)| variant));
        let stability = if all.any(|variant| variant.stamp.changed_recently(now)) {
            Stability::Unstable
        } else {
            Stability::Stable
        };
        let facts = FileFacts { media_type: &media_type, own, vary };
        let make = |coding, variant: LoadedVariant| {
            Representation::new(&facts, coding, (variant.stamp, variant.identity), variant.content.into())
        };
        let content_identity = file.identity.identity;
        let identity = make(None, file.identity);
        let precompressed: Vec<_> =
            file.precompressed.into_iter().map(|(coding, variant)| (coding, make(Some(coding), variant))).collect();
        let is_missing = |coding: &Coding| precompressed.iter().all(|(available, _)| available != coding);
        let encode = |coder: &ContentCoder, coding| {
            let state = (identity.stamp, content_identity);
            let representation = Representation::new(&facts, Some(coding), state, identity.storage.clone());
            (coding, representation.encoded_by(coder.clone(), coding))
        };
        let encoded = coder.iter().flat_map(|coder| {
            coder.offered_codings().iter().copied().filter(is_missing).map(|coding| encode(coder, coding))
        });
        Self {
            stability,
            name: file.name.into(),
            encoded: encoded.collect(),
            identity,
            precompressed,
            log_reason: Cell::new(outdated_reason(&file.outdated)),
        }
    }

    /// Returns the file without a content coding.
    pub(super) fn identity(&self) -> &Representation {
        &self.identity
    }

    /// Returns the fields of each representation with these changes.
    pub(super) fn changed_fields(&self, apply: &dyn Fn(&mut Fields)) -> ChangedFields {
        let change = |representation: &Representation| {
            let mut changed = representation.fields.clone();
            apply(Rc::make_mut(&mut changed.full));
            apply(Rc::make_mut(&mut changed.not_modified));
            changed
        };
        let mut site_fields = Fields::new();
        apply(&mut site_fields);
        ChangedFields {
            of_representations: self.representations().map(change).collect(),
            allowed: AllowedCodings::of(&site_fields),
        }
    }

    /// Returns the file name.
    pub(in crate::site) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the media type.
    pub(in crate::site) fn media_type(&self) -> &str {
        &self.identity.content_type
    }

    /// Returns the length of the file in bytes.
    pub(in crate::site) fn identity_length(&self) -> u64 {
        self.identity.length
    }

    /// Returns the codings with a precompressed file, and those in which the server compresses the file.
    pub(in crate::site) fn codings(&self) -> (Vec<Coding>, Vec<Coding>) {
        let of =
            |representations: &[(Coding, Representation)]| representations.iter().map(|(coding, _)| *coding).collect();
        (of(&self.precompressed), of(&self.encoded))
    }

    /// Returns the reason to log, once.
    pub(super) fn take_log_reason(&self) -> Option<&'static str> {
        self.log_reason.take()
    }

    pub(super) fn stamps(&self) -> KnownStamps {
        let variants = self.precompressed.iter().map(|(coding, variant)| (Some(*coding), variant.stamp));
        KnownStamps {
            stamps: std::iter::once((None, self.identity.stamp)).chain(variants).collect(),
            is_pending: self.representations().any(|representation| representation.etag.is_none()),
        }
    }

    /// Selects the allowed representation that the client prefers (RFC 9110 §12.5.3). Returns its number and itself.
    pub(super) fn select(&self, request: &Request, allowed: AllowedCodings) -> (usize, &Representation) {
        if allowed == AllowedCodings::None || (self.precompressed.is_empty() && self.encoded.is_empty()) {
            return (0, &self.identity);
        }
        let accepted = AcceptedCodings::parse(request.known_field_values(KnownField::AcceptEncoding));
        // The bytes of encoded content may differ at another time or on another machine, so it has no ranges.
        let has_range = request.known_field(KnownField::Range).is_some();
        let can_be_sent = |representation: &Representation| {
            let permits = |encoded: &EncodedContent| !has_range && !encoded.is_useless();
            representation.encoded.as_ref().is_none_or(|encoded| allowed == AllowedCodings::All && permits(encoded))
        };
        let variants = || self.precompressed.iter().chain(&self.encoded);
        let chosen = accepted.choose(|coding| {
            variants().any(|(available, representation)| *available == coding && can_be_sent(representation))
        });
        let variant = variants().zip(1..).find(|((coding, _), _)| Some(*coding) == chosen);
        variant.map_or((0, &self.identity), |((_, representation), number)| (number, representation))
    }

    /// Returns the memory in bytes that counts towards the cache's limit.
    pub(super) fn memory_bytes(&self) -> usize {
        let encoded = self.encoded.len() * 1024;
        self.stored().map(|representation| representation.memory_bytes() + 1024).sum::<usize>() + encoded
    }

    /// Whether all open files still have their known stamps.
    pub(super) fn is_unchanged(&self) -> bool {
        self.stored().all(Representation::is_unchanged)
    }

    /// Returns the number of open files that count towards the cache's limit.
    pub(super) fn open_files(&self) -> usize {
        self.stored().filter(|r| matches!(r.storage, BodyStorage::Open(_))).count()
    }

    fn representations(&self) -> impl Iterator<Item = &Representation> {
        self.stored().chain(self.encoded.iter().map(|(_, representation)| representation))
    }

    /// Returns the representations that are files.
    fn stored(&self) -> impl Iterator<Item = &Representation> {
        std::iter::once(&self.identity).chain(self.precompressed.iter().map(|(_, representation)| representation))
    }
}

impl ChangedFields {
    /// Returns the memory in bytes that counts towards the cache's limit.
    pub(super) fn memory_bytes(&self) -> usize {
        self.of_representations.iter().map(RepresentationFields::memory_bytes).sum()
    }
}

impl RepresentationFields {
    /// Returns the memory in bytes that counts towards the cache's limit.
    pub(super) fn memory_bytes(&self) -> usize {
        [&self.full, &self.not_modified].iter().map(|fields| fields.capacity() + FIELDS_BYTES).sum()
    }
}

impl Representation {
    fn new(
        facts: &FileFacts<'_>,
        coding: Option<Coding>,
        (stamp, identity): (FileStamp, ContentIdentity),
        storage: BodyStorage,
    ) -> Self {
        let &FileFacts { media_type, own, vary } = facts;
        let modified = last_modified(&stamp, SystemTime::now());
        let suffix = coding.map_or_else(String::new, |coding| format!("-{}", coding.name()));
        let etag = match identity {
            ContentIdentity::Hash(hash) => Some(format!("\"{hash}{suffix}\"")),
            // The numbers are separated, so that two states never produce one tag.
            ContentIdentity::Time => {
                let (seconds, nanoseconds) = stamp.modified;
                Some(format!("\"{seconds:x}.{nanoseconds:x}-{:x}{suffix}\"", stamp.length))
            }
            ContentIdentity::Pending => None,
        };
        let mut not_modified = Fields::new();
        let mut fields = Fields::new();
        let add = |fields: &mut Fields, name, value: &[u8]| {
            fields.append(name, value).expect("media types, tags and dates have no control characters");
        };
        add(&mut fields, "content-type", media_type.as_bytes());
        for coding in own.into_iter().chain(coding) {
            add(&mut fields, "content-encoding", coding.name().as_bytes());
        }
        add(&mut fields, "accept-ranges", b"bytes");
        for fields in [&mut fields, &mut not_modified] {
            if let Some(etag) = &etag {
                add(fields, "etag", etag.as_bytes());
            }
            if let Some(modified) = modified {
                add(fields, "last-modified", &modified.format());
            }
            if let Some(vary) = vary {
                add(fields, "vary", vary.as_bytes());
            }
        }
        Self {
            fields: RepresentationFields { full: Rc::new(fields), not_modified: Rc::new(not_modified) },
            etag,
            modified,
            content_type: media_type.to_owned(),
            length: stamp.length,
            storage,
            stamp,
            encoded: None,
        }
    }

    /// Makes this the representation of the file that the coder encodes. Its entity tag is weak, because its bytes depend on
    /// the level and the version of the encoder.
    fn encoded_by(mut self, coder: ContentCoder, coding: Coding) -> Self {
        Rc::make_mut(&mut self.fields.full).remove("accept-ranges");
        self.etag = self.etag.map(|strong| format!("W/{strong}"));
        if let Some(etag) = &self.etag {
            for fields in [&mut self.fields.full, &mut self.fields.not_modified] {
                Rc::make_mut(fields).set("etag", etag).expect("tags have no control characters");
            }
        }
        self.encoded = Some(EncodedContent::new(coder, coding));
        self
    }

    fn memory_bytes(&self) -> usize {
        match &self.storage {
            BodyStorage::Memory(bytes) => bytes.len(),
            BodyStorage::Open(_) => 0,
        }
    }

    /// Whether an open file still has its known stamp.
    pub(super) fn is_unchanged(&self) -> bool {
        match &self.storage {
            BodyStorage::Memory(_) => true,
            BodyStorage::Open(file) if file.is_copied(&self.stamp) => true,
            BodyStorage::Open(file) => FileStamp::of(&***file).is_ok_and(|stamp| stamp == self.stamp),
        }
    }
}

impl From<LoadedContent> for BodyStorage {
    fn from(content: LoadedContent) -> Self {
        match content {
            LoadedContent::Memory(bytes) => Self::Memory(bytes.into()),
            LoadedContent::Open(file) => Self::Open(Rc::new(OpenFile::new(file))),
        }
    }
}

/// Returns the value of Last-Modified. `None` for a fixed time, and for one that is later than Date (RFC 9110 §8.8.2.1).
fn last_modified(stamp: &FileStamp, now: SystemTime) -> Option<HttpDate> {
    let seconds = stamp.modified.0;
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let is_fixed = seconds < MEANINGFUL_FROM || FIXED_TIMES.contains(&seconds);
    let is_meaningful = !is_fixed && u64::try_from(seconds).is_ok_and(|seconds| seconds <= now);
    is_meaningful.then(|| HttpDate::from_unix(seconds))
}

/// Returns why the precompressed files of these codings are not sent.
fn outdated_reason(codings: &[Coding]) -> Option<&'static str> {
    let bits = Coding::ALL.iter().enumerate().filter(|(_, coding)| codings.contains(coding));
    let number: usize = bits.map(|(place, _)| 1 << place).sum();
    OUTDATED.get(number.checked_sub(1)?).copied()
}

const _: () = assert!(MEMORY_FILE_BYTES_MAX < u32::MAX as u64, "a file in memory has a small length");
