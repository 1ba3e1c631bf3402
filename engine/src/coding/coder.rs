//! Encodes responses of any type: decides, changes the fields, and chooses the content.

use crate::coding::encoded_files::{CacheBounds, CacheLookup, EncodedFile, EncodedFiles, OnMiss, PendingEncoding};
use crate::coding::encoder::{CompressionLevel, Encoder};
use crate::coding::etags;
use crate::coding::fields::FieldMap;
use crate::coding::policy::{self, Authenticated, CompressionDecision, MethodClass, PolicySettings, RequestFacts};
use crate::file::{FileRange, FileStamp};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use selvedge_proto::encoding::Coding;
use selvedge_proto::field::list_members;
use std::sync::Arc;

/// Encodes the content of responses with gzip, Brotli or zstd, depending on `Accept-Encoding`.
///
/// [`Compression`](crate::Compression) is the tower layer for it, and documents which responses are encoded and how
/// their fields change. Clones share one cache of encoded files.
#[derive(Clone, Debug)]
pub struct ContentCoder {
    // One Arc, since each request clones the coder.
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
struct Shared {
    settings: PolicySettings,
    files: EncodedFiles,
}

/// The facts of a response that its encoding depends on, beside its fields.
pub(crate) struct ResponseFacts {
    pub(crate) status: StatusCode,
    /// The length of its content, if known.
    pub(crate) length: Option<u64>,
    /// The file that its content consists of.
    pub(crate) file: Option<FileRange>,
}

/// The content of a response whose fields are changed already.
pub(crate) enum CodedContent {
    /// Its own content.
    Unchanged,
    /// Its own content, encoded while it is sent.
    Encode(Box<Encoder>),
    /// This content.
    Bytes(Bytes),
    /// None, because the request is HEAD. The length of the encoded content is not known.
    HeadOnly,
    /// An encoded file, which [`ContentCoder::finish_file`] takes. The fields are not changed yet.
    Pending(Coding, PendingEncoding),
}

impl Default for ContentCoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ContentCoder {
    /// Creates a coder with default settings.
    pub fn new() -> Self {
        let settings = PolicySettings {
            bytes_min: 1024,
            codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            authenticated: Authenticated::Skip,
        };
        Self { shared: Arc::new(Shared { settings, files: EncodedFiles::new(CacheBounds::default()) }) }
    }

    /// Sets the minimum length in bytes of encoded content; default 1,024. Content of unknown length is always encoded.
    #[must_use]
    pub fn bytes_min(mut self, bytes: u64) -> Self {
        self.settings_mut().bytes_min = bytes;
        self
    }

    /// Sets the offered [codings](Coding) in order of preference, which decides between codings that the client weighs
    /// equally; default zstd, Brotli, gzip.
    #[must_use]
    pub fn codings(mut self, codings: impl IntoIterator<Item = Coding>) -> Self {
        self.settings_mut().codings = codings.into_iter().collect();
        self
    }

    /// Sets whether to encode responses that may contain secrets; default [`Authenticated::Skip`].
    #[must_use]
    pub fn authenticated(mut self, authenticated: Authenticated) -> Self {
        self.settings_mut().authenticated = authenticated;
        self
    }

    /// Sets the maximum size in bytes of the cache of encoded files; default 32 MiB. With 0, each file is encoded for
    /// each response.
    #[must_use]
    pub fn cache_bytes_max(self, bytes: usize) -> Self {
        self.with_cache_bounds(|bounds| bounds.bytes_max = bytes)
    }

    /// Sets the maximum size in bytes of a file that is cached in encoded form; default 4 MiB. A larger file is encoded
    /// for each response while it is sent.
    #[must_use]
    pub fn cache_file_bytes_max(self, bytes: u64) -> Self {
        self.with_cache_bounds(|bounds| bounds.file_bytes_max = bytes)
    }

    fn with_cache_bounds(mut self, set: impl FnOnce(&mut CacheBounds)) -> Self {
        let mut bounds = self.shared.files.bounds();
        set(&mut bounds);
        Arc::make_mut(&mut self.shared).files = EncodedFiles::new(bounds);
        self
    }

    fn settings_mut(&mut self) -> &mut PolicySettings {
        &mut Arc::make_mut(&mut self.shared).settings
    }

    /// Returns whether content of a media type and length is encoded, if client and response allow it.
    pub fn encodes(&self, media_type: &str, length: u64) -> bool {
        policy::shrinks(media_type.as_bytes()) && length >= self.encoded_bytes_min()
    }

    /// Returns the length from which content is encoded.
    pub(crate) fn encoded_bytes_min(&self) -> u64 {
        self.shared.settings.bytes_min.max(1)
    }

    /// Returns the offered codings in order of preference.
    pub fn offered_codings(&self) -> &[Coding] {
        &self.shared.settings.codings
    }

    /// Returns a file in this state and coding, if the cache has it.
    pub fn stored_file(&self, stamp: &FileStamp, coding: Coding) -> Option<EncodedFile> {
        self.shared.files.stored(stamp, coding)
    }

    pub(crate) fn files(&self) -> &EncodedFiles {
        &self.shared.files
    }

    /// Returns the most memory in bytes: the cache, encodings that requests wait for, and the one that is repeated at the
    /// highest level.
    pub fn bytes_max(&self) -> u64 {
        self.shared.files.bytes_max()
    }

    /// Adds the original ETags to `If-None-Match` and `If-Match`, where the client sent ETags of encoded content.
    /// Returns the client's `If-None-Match` lines if they contained such ETags.
    pub(crate) fn translate_etags(&self, request: &RequestFacts, fields: &mut impl FieldMap) -> Vec<Vec<u8>> {
        let is_offered = |coding: &Coding| self.shared.settings.codings.contains(coding);
        let mut requested = Vec::new();
        for name in ["if-none-match", "if-match"] {
            // `If-None-Match` may only match what the client can decode: a cache may send it on behalf of
            // another client. `If-Match` refers to the resource, which has one state in all codings.
            let for_content = request.method_class != MethodClass::Unsafe && name == "if-none-match";
            let accepts = |coding| is_offered(&coding) && (!for_content || request.accepted.accepts(coding));
            let lines: Vec<Vec<u8>> = fields.values(name).map(<[u8]>::to_vec).collect();
            let translated: Vec<_> = lines.iter().map(|line| etags::with_original_etags(line, accepts)).collect();
            if translated.iter().all(Option::is_none) {
                continue;
            }
            // Several lines are one list (RFC 9110 §5.3).
            let all: Vec<&[u8]> =
                lines.iter().zip(&translated).map(|(line, new)| new.as_ref().unwrap_or(line).as_slice()).collect();
            fields.replace(name, &all.join(&b", "[..]));
            if for_content {
                requested = lines;
            }
        }
        requested
    }

    /// Decides on a response, changes its fields, and chooses its content. `requested_etags` are the `If-None-Match`
    /// lines of the request.
    pub(crate) fn start(
        &self,
        request: &RequestFacts,
        requested_etags: &[Vec<u8>],
        response: ResponseFacts,
        fields: &mut impl FieldMap,
    ) -> CodedContent {
        let ResponseFacts { status, length, file } = response;
        let Shared { settings, files } = &*self.shared;
        let coding = match policy::decide(request, settings, status, fields, length) {
            CompressionDecision::Skip => return CodedContent::Unchanged,
            CompressionDecision::SkipWithVary => {
                add_vary(fields);
                return CodedContent::Unchanged;
            }
            CompressionDecision::NotModified => {
                add_vary(fields);
                self.set_not_modified_etag(requested_etags, fields);
                return CodedContent::Unchanged;
            }
            CompressionDecision::Encode(coding) => coding,
        };
        let is_head = request.method_class == MethodClass::Head;
        let on_miss = if is_head { OnMiss::Skip } else { OnMiss::Encode };
        match file.map_or(CacheLookup::Bypass, |file| files.find(&file, coding, on_miss)) {
            CacheLookup::Hit(encoded) => send_file(fields, coding, encoded),
            CacheLookup::Pending(encoding) => CodedContent::Pending(coding, encoding),
            CacheLookup::Bypass if is_head => {
                set_encoded_fields(fields, coding);
                CodedContent::HeadOnly
            }
            CacheLookup::Bypass => encode_while_sending(fields, coding, length),
        }
    }

    /// Changes the fields of a response whose file was pending, and chooses its content.
    pub(crate) fn finish_file(
        coding: Coding,
        encoded: Option<EncodedFile>,
        fields: &mut impl FieldMap,
    ) -> CodedContent {
        match encoded {
            Some(encoded) => send_file(fields, coding, encoded),
            None => encode_while_sending(fields, coding, None),
        }
    }

    /// Sets the ETag of a 304 response to the one that the client has sent.
    fn set_not_modified_etag(&self, requested_etags: &[Vec<u8>], fields: &mut impl FieldMap) {
        let Some(original) = fields.values("etag").next() else { return };
        let codings = &self.shared.settings.codings;
        let coding = requested_etags.iter().find_map(|list| etags::find_coding(list, original, codings));
        if let Some(encoded) = coding.and_then(|coding| etags::encoded_etag(original, coding)) {
            fields.replace("etag", &encoded);
        }
    }
}

fn send_file(fields: &mut impl FieldMap, coding: Coding, encoded: EncodedFile) -> CodedContent {
    match encoded {
        EncodedFile::Smaller(bytes) => {
            set_encoded_fields(fields, coding);
            CodedContent::Bytes(Bytes::clone(&bytes))
        }
        EncodedFile::NotSmaller => {
            add_vary(fields);
            CodedContent::Unchanged
        }
    }
}

fn encode_while_sending(fields: &mut impl FieldMap, coding: Coding, length: Option<u64>) -> CodedContent {
    let is_events = policy::media_type(fields).is_some_and(|name| name.eq_ignore_ascii_case(b"text/event-stream"));
    let level = if is_events { CompressionLevel::EventStream } else { CompressionLevel::WhileSending };
    match Encoder::new(coding, level, length) {
        Ok(encoder) => {
            set_encoded_fields(fields, coding);
            CodedContent::Encode(Box::new(encoder))
        }
        // Fall back to the content as it is.
        Err(_) => {
            add_vary(fields);
            CodedContent::Unchanged
        }
    }
}

/// Sets the fields for encoded content.
fn set_encoded_fields(fields: &mut impl FieldMap, coding: Coding) {
    fields.replace("content-encoding", coding.name().as_bytes());
    fields.remove_all("content-length");
    // Ranges would refer to the unencoded content (RFC 9110 §14.3).
    fields.remove_all("accept-ranges");
    let etag = fields.values("etag").next().and_then(|original| etags::encoded_etag(original, coding));
    if let Some(etag) = etag {
        fields.replace("etag", &etag);
    }
    add_vary(fields);
}

/// Adds `accept-encoding` to `Vary`, after its current members.
fn add_vary(fields: &mut impl FieldMap) {
    const NAME: &[u8] = b"accept-encoding";
    let mut merged = Vec::new();
    for value in fields.values("vary").flat_map(list_members) {
        if value == b"*" || value.eq_ignore_ascii_case(NAME) {
            return;
        }
        merged.extend_from_slice(value);
        merged.extend_from_slice(b", ");
    }
    merged.extend_from_slice(NAME);
    fields.replace("vary", &merged);
}
