//! Decides from the request head and response head whether a response is compressed. Never reads content.

use crate::coding::fields::FieldLookup;
use selvedge_proto::StatusCode;
use selvedge_proto::encoding::{AcceptedCodings, Coding};
use selvedge_proto::field::{list_members, trim};
use selvedge_proto::method::Method;

/// Whether to compress responses that may contain secrets: those to requests with `Authorization` or
/// `Cookie`, and those with `Set-Cookie`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authenticated {
    /// Do not compress them.
    #[default]
    Skip,
    /// Compress them like other responses.
    ///
    /// An attacker who makes a client send requests, has text reflected in the response and sees
    /// its length can then guess secrets in it, byte by byte (BREACH). Safe only for responses that
    /// contain no secrets or no input of the request.
    Compress,
}

/// The settings that the decision depends on.
#[derive(Clone, Debug)]
pub(crate) struct PolicySettings {
    pub(crate) bytes_min: u64,
    /// In order of preference.
    pub(crate) codings: Vec<Coding>,
    pub(crate) authenticated: Authenticated,
}

/// The facts about a request that the decision depends on.
#[derive(Clone, Debug)]
pub(crate) struct RequestFacts {
    pub(crate) accepted: AcceptedCodings,
    pub(crate) credentials: Credentials,
    pub(crate) method_class: MethodClass,
}

/// Whether the request has credentials (`Authorization` or `Cookie`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    Absent,
    Present,
}

/// The class of the request method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MethodClass {
    /// A safe method other than HEAD.
    Safe,
    /// HEAD: the response has no content.
    Head,
    /// A method that changes state.
    Unsafe,
    /// CONNECT: a successful response has no content.
    Connect,
}

impl RequestFacts {
    /// Collects them from a method and fields.
    pub(crate) fn of(method_class: MethodClass, fields: &impl FieldLookup) -> Self {
        let has_credentials = fields.has("authorization") || fields.has("cookie");
        Self {
            accepted: AcceptedCodings::parse(fields.values("accept-encoding")),
            credentials: if has_credentials { Credentials::Present } else { Credentials::Absent },
            method_class,
        }
    }
}

impl MethodClass {
    /// Returns the class of a method.
    pub(crate) fn of(method: Method) -> Self {
        match method {
            Method::Head => Self::Head,
            Method::Connect => Self::Connect,
            Method::Get | Method::Options | Method::Trace => Self::Safe,
            Method::Post | Method::Put | Method::Delete | Method::Patch | Method::Other => Self::Unsafe,
        }
    }
}

/// How to treat a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompressionDecision {
    /// Leave it unchanged for all clients.
    Skip,
    /// Leave it unchanged, but add `Vary`, since another client may get it compressed.
    SkipWithVary,
    /// A 304 response whose content may be compressed: add `Vary` and set the client's ETag.
    NotModified,
    /// Compress it with this coding.
    Encode(Coding),
}

/// Decides on a response with this content length, if known.
pub(crate) fn decide(
    request: &RequestFacts,
    settings: &PolicySettings,
    status: StatusCode,
    fields: &impl FieldLookup,
    length: Option<u64>,
) -> CompressionDecision {
    let is_without_content = status.is_interim()
        || matches!(status.code(), 204 | 205)
        || (request.method_class == MethodClass::Connect && (200..300).contains(&status.code()));
    if is_without_content || forbids_encoding(fields) {
        return CompressionDecision::Skip;
    }
    if status == StatusCode::NOT_MODIFIED {
        // Most 304 responses have no Content-Type.
        let may_be_encoded = !fields.has("content-type") || is_compressible(fields);
        return if may_be_encoded { CompressionDecision::NotModified } else { CompressionDecision::Skip };
    }
    if !is_compressible(fields) {
        return CompressionDecision::Skip;
    }
    //= RFC 9110 §15.3.7: a 206 has the Vary field of the complete response
    if status.code() == 206 || fields.has("content-range") {
        return CompressionDecision::SkipWithVary;
    }
    if length.is_some_and(|length| length < settings.bytes_min.max(1)) {
        return CompressionDecision::Skip;
    }
    let may_contain_secrets = request.credentials == Credentials::Present || fields.has("set-cookie");
    if may_contain_secrets && settings.authenticated == Authenticated::Skip {
        return CompressionDecision::SkipWithVary;
    }
    request
        .accepted
        .choose_from(settings.codings.iter().copied())
        .map_or(CompressionDecision::SkipWithVary, CompressionDecision::Encode)
}

/// Returns whether fields of the response forbid another encoding of its content.
fn forbids_encoding(fields: &impl FieldLookup) -> bool {
    // Digests cover the transferred bytes (RFC 9530 §2, §3), and only the application can compute them.
    let digest_fields = ["content-digest", "repr-digest", "digest", "content-md5"];
    //= RFC 9110 §7.7: no-transform forbids it
    //= RFC 9111 §5.2.2.6: no-transform in a response forbids it
    let mut directives = fields.values("cache-control").flat_map(list_members);
    fields.has("content-encoding")
        || digest_fields.into_iter().any(|name| fields.has(name))
        || directives.any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}

/// Types that are already compressed or may contain any content.
const INCOMPRESSIBLE_TYPES: [&str; 34] = [
    "application/epub+zip",
    "application/font-woff",
    "application/font-woff2",
    "application/gzip",
    "application/java-archive",
    "application/octet-stream",
    "application/ogg",
    "application/pdf",
    "application/vnd.android.package-archive",
    "application/vnd.debian.binary-package",
    "application/vnd.ms-cab-compressed",
    "application/vnd.rar",
    "application/x-7z-compressed",
    "application/x-apple-diskimage",
    "application/x-bzip",
    "application/x-bzip2",
    "application/x-compress",
    "application/x-compressed-tar",
    "application/x-font-woff",
    "application/x-gzip",
    "application/x-lzip",
    "application/x-lzma",
    "application/x-rar-compressed",
    "application/x-rpm",
    "application/x-xz",
    "application/x-zip-compressed",
    "application/x-zstd",
    "application/zip",
    "application/zlib",
    "application/zstd",
    "font/woff",
    "font/woff2",
    "model/3mf",
    "multipart/x-mixed-replace",
];

/// Prefixes of types whose content, or each message of it, is already compressed.
const INCOMPRESSIBLE_PREFIXES: [&str; 6] = [
    "application/grpc",
    "application/vnd.oasis.opendocument.",
    "application/vnd.openxmlformats-officedocument.",
    "audio/",
    "image/",
    "video/",
];

/// Returns the media type without its parameters.
pub(crate) fn media_type(fields: &impl FieldLookup) -> Option<&[u8]> {
    fields.values("content-type").next()?.split(|&b| b == b';').next().map(trim)
}

/// Returns whether content of this type usually shrinks. Content without a type may be anything.
fn is_compressible(fields: &impl FieldLookup) -> bool {
    media_type(fields).is_some_and(shrinks)
}

/// Returns whether content of this media type, without parameters, usually shrinks.
pub(crate) fn shrinks(name: &[u8]) -> bool {
    let starts_with =
        |with: &str| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with.as_bytes()));
    let ends_with = |with: &str| {
        name.len().checked_sub(with.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(with.as_bytes()))
    };
    if name.eq_ignore_ascii_case(b"image/svg+xml") {
        return true;
    }
    !name.is_empty()
        && !INCOMPRESSIBLE_PREFIXES.into_iter().any(starts_with)
        && !INCOMPRESSIBLE_TYPES.into_iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
        && !["+zip", "+gzip", "+zstd"].into_iter().any(ends_with)
}
