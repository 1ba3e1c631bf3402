//! Recognizes the configurations of other servers and other formats, so that a paste gets one line and not many problems.

/// What a text seems to be, and the page that helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForeignFormat {
    pub(super) name: &'static str,
    pub(super) page: &'static str,
    /// Byte offset of the line that shows it.
    pub(super) at: usize,
}

const NGINX: (&str, &str) = ("a configuration of nginx", "docs/from-nginx.md");
const APACHE: (&str, &str) = ("a configuration of Apache", "docs/from-apache.md");
const CADDY: (&str, &str) = ("a Caddyfile", "docs/from-caddy.md");
const FERRON: (&str, &str) = ("a configuration of Ferron", "docs/configuration.md");
const YAML: (&str, &str) = ("YAML", "docs/configuration.md");
const TOML: (&str, &str) = ("TOML", "docs/configuration.md");
const JSON: (&str, &str) = ("JSON", "docs/configuration.md");

/// Most lines that are looked at.
const LINES_MAX: usize = 400;

/// Directives that stand at the start of a line in one server's configuration only.
const NGINX_WORDS: [&str; 14] = [
    "server_name",
    "proxy_pass",
    "fastcgi_pass",
    "ssl_certificate",
    "worker_processes",
    "worker_connections",
    "location",
    "add_header",
    "try_files",
    "client_max_body_size",
    "include mime.types",
    "upstream",
    "rewrite ^",
    "return 30",
];
const APACHE_WORDS: [&str; 14] = [
    "<VirtualHost",
    "<Directory",
    "<IfModule",
    "<Location",
    "<Files",
    "RewriteEngine",
    "RewriteRule",
    "RewriteCond",
    "DocumentRoot",
    "ServerName",
    "LoadModule",
    "ProxyPass",
    "DirectoryIndex",
    "AllowOverride",
];
const CADDY_WORDS: [&str; 12] = [
    "reverse_proxy",
    "file_server",
    "encode gzip",
    "encode zstd",
    "php_fastcgi",
    "root *",
    "handle_path",
    "handle {",
    "tls internal",
    "redir ",
    "import ",
    "header {",
];
const FERRON_WORDS: [&str; 4] = ["globals {", "snippet \"", "wwwredirect", "fcgi_php"];

/// Recognizes a text that has problems. `None` if it seems to be KDL.
pub(super) fn recognize(text: &str) -> Option<ForeignFormat> {
    let found = |(name, page): (&'static str, &'static str), at| Some(ForeignFormat { name, page, at });
    let mut lines = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n').take(LINES_MAX) {
        let trimmed = line.trim();
        let at = offset + (line.len() - line.trim_start().len());
        if !trimmed.is_empty() && !trimmed.starts_with(['#', ';']) && !trimmed.starts_with("//") {
            lines.push((at, trimmed));
        }
        offset += line.len();
    }
    let &(first_at, first) = lines.first()?;
    // A configuration of this server with words of another one: each word is a problem of its own.
    if lines.iter().any(|(_, line)| ["site \"", "listen \""].iter().any(|own| line.starts_with(own))) {
        return None;
    }
    if is_json(text.trim_start_matches('\u{feff}').trim_start()) {
        return found(JSON, first_at);
    }
    let starting = |words: &[&str]| {
        lines.iter().find(|(_, line)| words.iter().any(|word| starts_with_word(line, word))).map(|&(at, _)| at)
    };
    if let Some(at) = starting(&APACHE_WORDS) {
        return found(APACHE, at);
    }
    // In nginx, a block opens with `name {` and every other line ends with a semicolon.
    let ends_with_semicolons = lines.iter().filter(|(_, line)| line.ends_with(';')).count() * 3 >= lines.len();
    if ends_with_semicolons
        && let Some(at) = starting(&NGINX_WORDS).or_else(|| starting(&["server {", "http {", "events {"]))
    {
        return found(NGINX, at);
    }
    if let Some(at) = starting(&CADDY_WORDS) {
        return found(CADDY, at);
    }
    if let Some(at) = starting(&FERRON_WORDS) {
        return found(FERRON, at);
    }
    if let Some(&(at, _)) = lines.iter().find(|(_, line)| is_toml_table(line)) {
        return found(TOML, at);
    }
    if first == "---" || lines.iter().filter(|(_, line)| is_yaml_key(line)).count() * 2 > lines.len() {
        return found(YAML, first_at);
    }
    None
}

/// Whether a line starts with a word that ends there.
fn starts_with_word(line: &str, word: &str) -> bool {
    let ends_in_word = word.ends_with(|c: char| c.is_ascii_alphanumeric());
    line.strip_prefix(word)
        .is_some_and(|rest| !ends_in_word || !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-'))
}

fn is_json(text: &str) -> bool {
    let inner = text.strip_prefix(['{', '[']).map(str::trim_start);
    inner.is_some_and(|inner| inner.starts_with(['"', '{', '[']) && inner.contains("\":"))
}

/// `[section]` or `[[section]]`.
fn is_toml_table(line: &str) -> bool {
    let inner = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
    inner.is_some_and(|inner| {
        let name = inner.trim_start_matches('[').trim_end_matches(']');
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.\" ".contains(&b))
    })
}

/// `key:`, `key: value` or `- item`.
fn is_yaml_key(line: &str) -> bool {
    if line.starts_with("- ") {
        return true;
    }
    let Some((key, value)) = line.split_once(':') else { return false };
    let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_\"'".contains(&b));
    is_key && (value.is_empty() || value.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pastes_are_recognized() {
        for (text, name) in [
            ("server {\n  listen 80;\n  server_name a;\n}\n", "a configuration of nginx"),
            ("# site\nlocation / {\n  try_files $uri $uri/ =404;\n}\n", "a configuration of nginx"),
            ("events {}\nhttp {\n  sendfile on;\n  tcp_nopush on;\n}\n", "a configuration of nginx"),
            ("<VirtualHost *:80>\n  DocumentRoot /srv\n</VirtualHost>\n", "a configuration of Apache"),
            ("RewriteEngine On\nRewriteRule ^a$ /b [L]\n", "a configuration of Apache"),
            ("example.com {\n\troot * /srv\n\tfile_server\n}\n", "a Caddyfile"),
            ("example.com\nreverse_proxy localhost:9000\n", "a Caddyfile"),
            ("globals {\n    default_http_port 80\n}\n", "a configuration of Ferron"),
            ("server:\n  port: 80\n  root: /srv\n", "YAML"),
            ("---\nsites:\n- name: a\n", "YAML"),
            ("[server]\nport = 80\n", "TOML"),
            ("{\n  \"server\": { \"port\": 80 }\n}\n", "JSON"),
        ] {
            assert_eq!(recognize(text).map(|format| format.name), Some(name), "{text}");
        }
        for text in [
            "",
            "site \"a\" { rot \"x\"; }",
            "listen \"[::]:80\"\nsite \"a\" {\n    header \"A\" \"b: c\"\n    route \"/x\" { redirect \"/y\"; }\n}\n",
            "site \"a\" {\n    server_name \"b\"\n    root \"x\"\n}\n",
        ] {
            assert_eq!(recognize(text), None, "{text}");
        }
    }
}
