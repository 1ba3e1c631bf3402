//! Decides whether an answer is compressed, by its head and the request's. Reads no content.

use crate::tower::compression::Authenticated;
use http::{HeaderMap, Method, StatusCode, header};
use selvedge_proto::encoding::{Accepted, Coding};
use selvedge_proto::field::{members, trim};

/// What decides, beside requests and answers.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) bytes_min: u64,
    /// In the order of preference.
    pub(super) codings: Vec<Coding>,
    pub(super) authenticated: Authenticated,
}

/// What of a request decides.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) accepted: Accepted,
    pub(super) who: Who,
    pub(super) kind: Kind,
}

/// Whether the client says who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Anybody,
    Somebody,
}

/// What is asked for, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Content,
    /// The head of an answer alone.
    Head,
    /// That something is done, and what comes of it.
    Deed,
    /// A way through, which has no content.
    Connect,
}

impl Asked {
    pub(super) fn of(method: &Method, fields: &HeaderMap) -> Self {
        Self {
            accepted: Accepted::parse(fields.get_all(header::ACCEPT_ENCODING).iter().map(|value| value.as_bytes())),
            who: match fields.contains_key(header::AUTHORIZATION) || fields.contains_key(header::COOKIE) {
                true => Who::Somebody,
                false => Who::Anybody,
            },
            kind: match *method {
                Method::HEAD => Kind::Head,
                Method::CONNECT => Kind::Connect,
                _ if method.is_safe() => Kind::Content,
                _ => Kind::Deed,
            },
        }
    }
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It stays as it is, for every client.
    Alone,
    /// It stays as it is, and another client may get another.
    Varies,
    /// It says that nothing has changed, of content that may be compressed.
    Unchanged,
    /// It gets this coding.
    Coded(Coding),
}

/// Judges an answer whose content has this length, where it is known.
pub(super) fn judge(
    asked: &Asked,
    settings: &Settings,
    status: StatusCode,
    fields: &HeaderMap,
    length: Option<u64>,
) -> Verdict {
    let is_without_content = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
        || (asked.kind == Kind::Connect && status.is_success());
    if is_without_content || is_final(fields) {
        return Verdict::Alone;
    }
    if status == StatusCode::NOT_MODIFIED {
        // Most do not say of what type the content is that has not changed.
        let may_be_coded = !fields.contains_key(header::CONTENT_TYPE) || shrinks(fields);
        return if may_be_coded { Verdict::Unchanged } else { Verdict::Alone };
    }
    if !shrinks(fields) {
        return Verdict::Alone;
    }
    //= RFC 9110 §15.3.7: a part has the Vary that the whole would have
    if status == StatusCode::PARTIAL_CONTENT || fields.contains_key(header::CONTENT_RANGE) {
        return Verdict::Varies;
    }
    if length.is_some_and(|length| length < settings.bytes_min.max(1)) {
        return Verdict::Alone;
    }
    let is_secret = asked.who == Who::Somebody || fields.contains_key(header::SET_COOKIE);
    if is_secret && settings.authenticated == Authenticated::LeftAlone {
        return Verdict::Varies;
    }
    asked.accepted.choose_from(settings.codings.iter().copied()).map_or(Verdict::Varies, Verdict::Coded)
}

/// Whether what an answer says of its content holds for these bytes alone.
fn is_final(fields: &HeaderMap) -> bool {
    // Digests are of the bytes that are sent (RFC 9530 §2, §3), and the application's to make.
    let said_of_bytes = ["content-digest", "repr-digest", "digest", "content-md5"];
    //= RFC 9110 §7.7: no-transform forbids it
    //= RFC 9111 §5.2.2.6: and so does this
    let mut directives = fields.get_all(header::CACHE_CONTROL).iter().flat_map(|value| members(value.as_bytes()));
    fields.contains_key(header::CONTENT_ENCODING)
        || said_of_bytes.into_iter().any(|name| fields.contains_key(name))
        || directives.any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}

/// Types under these names are compressed already, or have content of any kind.
const TYPES_AS_THEY_ARE: [&str; 33] = [
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

/// What types begin with whose content is compressed already, or each of whose messages is.
const TYPES_THAT_BEGIN: [&str; 6] = [
    "application/grpc",
    "application/vnd.oasis.opendocument.",
    "application/vnd.openxmlformats-officedocument.",
    "audio/",
    "image/",
    "video/",
];

/// Whether content of this answer's type gets smaller. Content without a type may be anything.
fn shrinks(fields: &HeaderMap) -> bool {
    let Some(value) = fields.get(header::CONTENT_TYPE) else { return false };
    let name = value.as_bytes().split(|&b| b == b';').next().map_or(&[][..], trim);
    let begins = |with: &str| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with.as_bytes()));
    let ends = |with: &str| {
        name.len().checked_sub(with.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(with.as_bytes()))
    };
    if name.eq_ignore_ascii_case(b"image/svg+xml") {
        return true;
    }
    !name.is_empty()
        && !TYPES_THAT_BEGIN.into_iter().any(begins)
        && !TYPES_AS_THEY_ARE.into_iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
        && !["+zip", "+gzip", "+zstd"].into_iter().any(ends)
}
