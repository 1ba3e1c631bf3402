//! The variables of a request (RFC 3875 §4.1).
//!
//! A variable is made of a field only if exactly one field can make it. `A_B` and `A-B` would make one variable, so a name
//! with another byte than a letter, a digit or `-` is left out. `Proxy` is left out, since many programs take `HTTP_PROXY`
//! for the address of a proxy.

use crate::field::KnownField;
use crate::head::RequestHead;
use core::net::{IpAddr, SocketAddr};

/// The path of a script, and the part of the path after it. Both are decoded once.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptPath<'a> {
    /// SCRIPT_NAME: the path that leads to the script. Empty for the root.
    pub script_name: &'a str,
    /// PATH_INFO: the rest of the path, with its leading slash. Empty without one.
    pub path_info: &'a str,
    /// SCRIPT_FILENAME: the file of the script.
    pub script_file: Option<&'a str>,
    /// DOCUMENT_ROOT. PATH_TRANSLATED is PATH_INFO beneath it.
    pub document_root: Option<&'a str>,
}

/// What the variables of a request are made of.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRequest<'a> {
    /// The head.
    pub head: &'a RequestHead,
    /// The bytes that the head refers to.
    pub head_bytes: &'a [u8],
    /// The path.
    pub path: ScriptPath<'a>,
    /// The method. It differs from that of the head after a local redirect, as does the query.
    pub method: &'a str,
    /// The query, empty without one.
    pub query: &'a str,
    /// Whether the client uses TLS.
    pub is_secure: bool,
    /// The client: its address, and the port of the connection, which is left out if it is 0.
    pub client: SocketAddr,
    /// The address and port at which the request was received; `None` for a Unix socket.
    pub server: Option<SocketAddr>,
    /// The user that the server has authenticated.
    pub user: Option<&'a str>,
    /// The length of the content; `None` without content.
    pub content_length: Option<u64>,
    /// SERVER_SOFTWARE.
    pub software: &'a str,
}

/// Receives variables.
pub trait Variables {
    /// Takes one variable. No name occurs twice.
    fn variable(&mut self, name: &[u8], value: &[u8]);
}

impl<F: FnMut(&[u8], &[u8])> Variables for F {
    fn variable(&mut self, name: &[u8], value: &[u8]) {
        self(name, value);
    }
}

/// Passes each variable of a request to `to`.
pub fn for_each_variable(request: &ScriptRequest<'_>, to: &mut impl Variables) {
    let &ScriptRequest { head, head_bytes, .. } = request;
    let target_path = head.target.path.of(head_bytes);
    let query = head.target.query.map(|span| span.of(head_bytes));
    to.variable(b"GATEWAY_INTERFACE", b"CGI/1.1");
    to.variable(b"SERVER_SOFTWARE", request.software.as_bytes());
    to.variable(b"SERVER_PROTOCOL", head.version.as_str().as_bytes());
    to.variable(b"REQUEST_METHOD", request.method.as_bytes());
    to.variable(b"QUERY_STRING", request.query.as_bytes());
    let mut uri = target_path.to_vec();
    if let Some(query) = query {
        uri.push(b'?');
        uri.extend_from_slice(query);
    }
    to.variable(b"REQUEST_URI", &uri);
    // PHP's own program runs only what a server has directed to it.
    to.variable(b"REDIRECT_STATUS", b"200");
    path_variables(&request.path, to);
    connection_variables(request, to);
    if let Some(length) = request.content_length {
        to.variable(b"CONTENT_LENGTH", length.to_string().as_bytes());
    }
    if let Some(content_type) = head.get(head_bytes, "content-type") {
        to.variable(b"CONTENT_TYPE", content_type);
    }
    field_variables(request, to);
}

fn path_variables(path: &ScriptPath<'_>, to: &mut impl Variables) {
    let document_uri = [path.script_name, path.path_info].concat();
    to.variable(b"SCRIPT_NAME", path.script_name.as_bytes());
    to.variable(b"DOCUMENT_URI", document_uri.as_bytes());
    if let Some(file) = path.script_file {
        to.variable(b"SCRIPT_FILENAME", file.as_bytes());
    }
    if let Some(root) = path.document_root {
        to.variable(b"DOCUMENT_ROOT", root.as_bytes());
    }
    //= RFC 3875 §4.1.6: if PATH_INFO is empty, PATH_TRANSLATED is not set
    if !path.path_info.is_empty() {
        to.variable(b"PATH_INFO", path.path_info.as_bytes());
        if let Some(root) = path.document_root {
            to.variable(b"PATH_TRANSLATED", [root, path.path_info].concat().as_bytes());
        }
    }
}

fn connection_variables(request: &ScriptRequest<'_>, to: &mut impl Variables) {
    let host = request.head.authority.and_then(|span| {
        let authority = span.of(request.head_bytes);
        to.variable(b"HTTP_HOST", authority);
        crate::target::Host::parse(authority).ok()
    });
    let (scheme, default_port) = if request.is_secure { ("https", 443) } else { ("http", 80) };
    // A request of HTTP/1.0 may have no host, and the variable is never empty (§4.1.14).
    to.variable(b"SERVER_NAME", host.map_or(b"localhost", |host| host.name));
    //= RFC 3875 §4.1.15: the port on which the request is received, which the Host field of a client may contradict
    let port = request.server.map_or(default_port, |server| server.port());
    to.variable(b"SERVER_PORT", port.to_string().as_bytes());
    if let Some(server) = request.server {
        to.variable(b"SERVER_ADDR", server.ip().to_canonical().to_string().as_bytes());
    }
    to.variable(b"REQUEST_SCHEME", scheme.as_bytes());
    if request.is_secure {
        to.variable(b"HTTPS", b"on");
    }
    let address: IpAddr = request.client.ip().to_canonical();
    to.variable(b"REMOTE_ADDR", address.to_string().as_bytes());
    if request.client.port() != 0 {
        to.variable(b"REMOTE_PORT", request.client.port().to_string().as_bytes());
    }
    if let Some(user) = request.user {
        to.variable(b"REMOTE_USER", user.as_bytes());
        to.variable(b"AUTH_TYPE", b"Basic");
    }
}

/// Whether a field with this lower-case name becomes no variable.
fn is_left_out(name: &[u8], request: &ScriptRequest<'_>) -> bool {
    let is_ambiguous = !name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-');
    is_ambiguous
        || match name {
            // Variables of their own.
            b"content-length" | b"content-type" | b"host" => true,
            b"proxy" | b"proxy-authorization" => true,
            // They are about the connection of the client or the framing of the content, which the script does not see.
            b"connection" | b"expect" | b"keep-alive" | b"proxy-connection" | b"te" | b"trailer"
            | b"transfer-encoding" | b"upgrade" => true,
            //= RFC 3875 §4.1.18: credentials that the server has checked are not passed
            b"authorization" => request.user.is_some(),
            _ => false,
        }
}

fn field_variables(request: &ScriptRequest<'_>, to: &mut impl Variables) {
    let fields = || request.head.fields(request.head_bytes);
    let named_by_connection = |name: &[u8]| {
        let mut values = request.head.values(request.head_bytes, KnownField::Connection);
        // A name that the client lists is about its connection, except those that this server must never lose.
        values.any(|value| crate::field::list_members(value).any(|member| member.eq_ignore_ascii_case(name)))
            && !matches!(name, b"authorization" | b"cookie" | b"forwarded")
            && !name.starts_with(b"x-forwarded-")
    };
    for (index, (name, first)) in fields().enumerate() {
        let lower = name.to_ascii_lowercase();
        let is_known = fields().take(index).any(|(other, _)| other.eq_ignore_ascii_case(name));
        if is_known || is_left_out(&lower, request) || named_by_connection(&lower) {
            continue;
        }
        //= RFC 3875 §4.1.18: fields of one name become one variable with the list of their values
        let separator: &[u8] = if lower == b"cookie" { b"; " } else { b", " };
        let mut value = first.to_vec();
        for (_, more) in fields().skip(index + 1).filter(|(other, _)| other.eq_ignore_ascii_case(name)) {
            value.extend_from_slice(separator);
            value.extend_from_slice(more);
        }
        let mut variable = b"HTTP_".to_vec();
        variable.extend(lower.iter().map(|b| if *b == b'-' { b'_' } else { b.to_ascii_uppercase() }));
        to.variable(&variable, &value);
    }
}

/// Appends the variables in the encoding of SCGI: a netstring of names and values, CONTENT_LENGTH first. `encoded` has
/// them without CONTENT_LENGTH, each with a NUL after its name and its value.
pub fn write_scgi(content_length: u64, encoded: &[u8], out: &mut Vec<u8>) {
    let start = format!("CONTENT_LENGTH\0{content_length}\0SCGI\x001\0");
    out.extend_from_slice(format!("{}:{start}", start.len() + encoded.len()).as_bytes());
    out.extend_from_slice(encoded);
    out.push(b',');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageLimits;
    use crate::http1::parse_request;
    use std::collections::BTreeMap;

    fn variables(head_text: &str, change: impl FnOnce(&mut ScriptRequest<'_>)) -> BTreeMap<String, String> {
        let text = head_text.replace('\n', "\r\n") + "\r\n\r\n";
        let mut head = RequestHead::default();
        assert_eq!(parse_request(text.as_bytes(), &MessageLimits::default(), &mut head), Ok(true), "{text}");
        let mut request = ScriptRequest {
            head: &head,
            head_bytes: text.as_bytes(),
            path: ScriptPath::default(),
            method: std::str::from_utf8(head.method_span.of(text.as_bytes())).unwrap(),
            query: head.target.query.map_or("", |span| std::str::from_utf8(span.of(text.as_bytes())).unwrap()),
            is_secure: false,
            client: "192.0.2.1:1234".parse().unwrap(),
            server: Some("192.0.2.80:8443".parse().unwrap()),
            user: None,
            content_length: None,
            software: "x",
        };
        change(&mut request);
        let mut all = BTreeMap::new();
        for_each_variable(&request, &mut |name: &[u8], value: &[u8]| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(all.insert(text(name), text(value)), None, "{} occurs once", text(name));
        });
        all
    }

    #[test]
    fn variables_of_a_request() {
        let text = "POST /a%20b.php/x?q=%2F&r HTTP/1.1\nHost: A.example:8080\nContent-Type: text/plain\nContent-Length: 3\n\
                    Cookie: a=1\nX-One: 1\nCookie: b=2\nx-one: 2";
        let got = variables(text, |request| {
            request.path = ScriptPath {
                script_name: "/a b.php",
                path_info: "/x",
                script_file: Some("/srv/a b.php"),
                document_root: Some("/srv"),
            };
            request.content_length = Some(3);
            request.is_secure = true;
        });
        let expected = [
            ("CONTENT_LENGTH", "3"),
            ("CONTENT_TYPE", "text/plain"),
            ("DOCUMENT_ROOT", "/srv"),
            ("DOCUMENT_URI", "/a b.php/x"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("HTTPS", "on"),
            ("HTTP_COOKIE", "a=1; b=2"),
            ("HTTP_HOST", "A.example:8080"),
            ("HTTP_X_ONE", "1, 2"),
            ("PATH_INFO", "/x"),
            ("PATH_TRANSLATED", "/srv/x"),
            ("QUERY_STRING", "q=%2F&r"),
            ("REDIRECT_STATUS", "200"),
            ("REMOTE_ADDR", "192.0.2.1"),
            ("REMOTE_PORT", "1234"),
            ("REQUEST_METHOD", "POST"),
            ("REQUEST_SCHEME", "https"),
            ("REQUEST_URI", "/a%20b.php/x?q=%2F&r"),
            ("SCRIPT_FILENAME", "/srv/a b.php"),
            ("SCRIPT_NAME", "/a b.php"),
            ("SERVER_ADDR", "192.0.2.80"),
            ("SERVER_NAME", "A.example"),
            ("SERVER_PORT", "8443"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_SOFTWARE", "x"),
        ];
        assert_eq!(got, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn fields_that_no_script_gets() {
        let text = "GET / HTTP/1.1\nHost: a\nProxy: http://evil\nX_A: 1\nX.A: 2\nX-A: 3\nConnection: x-hop, cookie\nX-Hop: 1\n\
                    Cookie: c\nUpgrade: x\nTE: trailers\nProxy-Authorization: p\nKeep-Alive: 5\nAuthorization: secret";
        let fields = |user| {
            let all = variables(text, |request| request.user = user);
            all.into_iter().filter(|(name, _)| name.starts_with("HTTP_")).collect::<Vec<_>>()
        };
        let with = |more: &[(&str, &str)]| {
            let mut all = vec![("HTTP_COOKIE", "c"), ("HTTP_HOST", "a"), ("HTTP_X_A", "3")];
            all.splice(0..0, more.iter().copied());
            all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(fields(None), with(&[("HTTP_AUTHORIZATION", "secret")]));
        assert_eq!(fields(Some("alice")), with(&[]), "the server has checked the credentials");
    }

    #[test]
    fn requests_without_host_query_and_port() {
        let got = variables("GET http://b.example HTTP/1.0", |request| {
            request.client = "[::ffff:192.0.2.7]:0".parse().unwrap();
            request.user = Some("alice");
            request.server = None;
        });
        let get = |name: &str| got.get(name).map(String::as_str);
        assert_eq!(get("REMOTE_ADDR"), Some("192.0.2.7"));
        assert_eq!(
            (get("REMOTE_PORT"), get("PATH_INFO"), get("PATH_TRANSLATED"), get("HTTPS")),
            (None, None, None, None)
        );
        assert_eq!((get("REMOTE_USER"), get("AUTH_TYPE")), (Some("alice"), Some("Basic")));
        assert_eq!((get("SERVER_NAME"), get("SERVER_PORT")), (Some("b.example"), Some("80")));
        assert_eq!(get("SERVER_ADDR"), None);
        assert_eq!((get("QUERY_STRING"), get("CONTENT_LENGTH"), get("CONTENT_TYPE")), (Some(""), None, None));
        assert_eq!(variables("GET / HTTP/1.0", |_| ())["SERVER_NAME"], "localhost");
        assert_eq!(variables("GET / HTTP/1.1\nHost: [::1]:81", |_| ())["SERVER_NAME"], "[::1]");
    }

    #[test]
    fn scgi_is_a_netstring_with_the_length_first() {
        let mut out = Vec::new();
        write_scgi(27, b"REQUEST_METHOD\0POST\0", &mut out);
        assert_eq!(out, b"45:CONTENT_LENGTH\x0027\x00SCGI\x001\x00REQUEST_METHOD\0POST\0,");
    }
}
