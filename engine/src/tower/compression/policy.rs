//! Decides from the request head and response head whether a response is compressed. Never reads content.

use http::{HeaderMap, Method, StatusCode, header};
use selvedge_proto::encoding::{AcceptedCodings, Coding};
use selvedge_proto::field::{list_members, trim};

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
pub(super) struct PolicySettings {
    pub(super) bytes_min: u64,
    /// In order of preference.
    pub(super) codings: Vec<Coding>,
    pub(super) authenticated: Authenticated,
}

/// The facts about a request that the decision depends on.
#[derive(Clone, Debug)]
pub(super) struct RequestFacts {
    pub(super) accepted: AcceptedCodings,
    pub(super) credentials: Credentials,
    pub(super) method_class: MethodClass,
}

/// Whether the request has credentials (`Authorization` or `Cookie`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    Absent,
    Present,
}

/// The class of the request method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MethodClass {
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
    pub(super) fn of(method: &Method, fields: &HeaderMap) -> Self {
        Self {
            accepted: AcceptedCodings::parse(
                fields.get_all(header::ACCEPT_ENCODING).iter().map(|value| value.as_bytes()),
            ),
            credentials: match fields.contains_key(header::AUTHORIZATION) || fields.contains_key(header::COOKIE) {
                true => Credentials::Present,
                false => Credentials::Absent,
            },
            method_class: match *method {
                Method::HEAD => MethodClass::Head,
                Method::CONNECT => MethodClass::Connect,
                _ if method.is_safe() => MethodClass::Safe,
                _ => MethodClass::Unsafe,
            },
        }
    }
}

/// How to treat a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompressionDecision {
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
pub(super) fn decide(
    request: &RequestFacts,
    settings: &PolicySettings,
    status: StatusCode,
    fields: &HeaderMap,
    length: Option<u64>,
) -> CompressionDecision {
    let is_without_content = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
        || (request.method_class == MethodClass::Connect && status.is_success());
    if is_without_content || forbids_encoding(fields) {
        return CompressionDecision::Skip;
    }
    if status == StatusCode::NOT_MODIFIED {
        // Most 304 responses have no Content-Type.
        let may_be_encoded = !fields.contains_key(header::CONTENT_TYPE) || is_compressible(fields);
        return if may_be_encoded { CompressionDecision::NotModified } else { CompressionDecision::Skip };
    }
    if !is_compressible(fields) {
        return CompressionDecision::Skip;
    }
    //= RFC 9110 §15.3.7: a 206 has the Vary field of the complete response
    if status == StatusCode::PARTIAL_CONTENT || fields.contains_key(header::CONTENT_RANGE) {
        return CompressionDecision::SkipWithVary;
    }
    if length.is_some_and(|length| length < settings.bytes_min.max(1)) {
        return CompressionDecision::Skip;
    }
    let may_contain_secrets = request.credentials == Credentials::Present || fields.contains_key(header::SET_COOKIE);
    if may_contain_secrets && settings.authenticated == Authenticated::Skip {
        return CompressionDecision::SkipWithVary;
    }
    request
        .accepted
        .choose_from(settings.codings.iter().copied())
        .map_or(CompressionDecision::SkipWithVary, CompressionDecision::Encode)
}

/// Returns whether fields of the response forbid another encoding of its content.
fn forbids_encoding(fields: &HeaderMap) -> bool {
    // Digests cover the transferred bytes (RFC 9530 §2, §3), and only the application can compute them.
    let digest_fields = ["content-digest", "repr-digest", "digest", "content-md5"];
    //= RFC 9110 §7.7: no-transform forbids it
    //= RFC 9111 §5.2.2.6: no-transform in a response forbids it
    let mut directives = fields.get_all(header::CACHE_CONTROL).iter().flat_map(|value| list_members(value.as_bytes()));
    fields.contains_key(header::CONTENT_ENCODING)
        || digest_fields.into_iter().any(|name| fields.contains_key(name))
        || directives.any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}

/// Types that are already compressed or may contain any content.
const INCOMPRESSIBLE_TYPES: [&str; 33] = [
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

/// Returns whether content of this type usually shrinks. Content without a type may be anything.
fn is_compressible(fields: &HeaderMap) -> bool {
    let Some(value) = fields.get(header::CONTENT_TYPE) else { return false };
    let name = value.as_bytes().split(|&b| b == b';').next().map_or(&[][..], trim);
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
