//! Directory listings as HTML and as JSON.

use crate::support::client::Client;
use crate::support::program::Program;
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Names that would break an unescaped page or link.
const NAMES: [&str; 12] = [
    "<img src=x onerror=alert(1)>",
    "a&b \"c\".txt",
    "'quote'.txt",
    "100%.txt",
    "%3Cscript%3E.txt",
    "javascript:alert(1)",
    "q?x=y.txt",
    "hash#x.txt",
    "&lt;b&gt;.txt",
    "\u{fc}mlaut \u{4e2d}\u{6587}.txt",
    "--><style><script>",
    "{{template}}.txt",
];

fn tree() -> Tree {
    let tree = Tree::new();
    for name in NAMES {
        tree.write(format!("d/{name}"), name);
    }
    tree.write("d/sub & sub/index.html", "sub");
    // Files that are not served are not listed.
    tree.write("d/.hidden", "");
    tree.write("d/.git/config", "");
    tree.write(std::path::Path::new("d").join(OsStr::from_bytes(b"\xff\xfe.txt")), "");
    tree.write("d/line\nbreak", "");
    tree.write("d/back\\slash", "");
    tree.fifo("d/fifo");
    tree.symlink("missing", "d/dangling");
    tree.symlink("/etc/passwd", "d/outside");
    tree
}

/// Returns the links of a page, unescaped as by a browser.
fn links(page: &str) -> Vec<String> {
    let pieces = page.split(" href=\"").skip(1);
    let raw = pieces.map(|piece| piece.split_once('"').expect("the attribute ends with a quote").0);
    raw.map(|link| link.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        .collect()
}

fn json(client: &mut Client, target: &str) -> Value {
    let response = client.get_with(target, "Accept: application/json");
    assert_eq!((response.status, response.field("content-type")), (200, Some("application/json")), "{target}");
    serde_json::from_slice(&response.content).expect("the listing is JSON")
}

fn names(listing: &Value) -> Vec<&str> {
    let entries = listing["entries"].as_array().expect("the listing has entries");
    entries.iter().map(|entry| entry["name"].as_str().expect("an entry has a name")).collect()
}

#[test]
fn listings_are_off_by_default() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for target in ["/", "/d/"] {
        assert_eq!(client.get(target).status, 404);
        assert_eq!(client.get_with(target, "Accept: application/json").status, 404);
    }
}

#[test]
fn an_index_takes_precedence_over_a_listing() {
    let tree = tree();
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    assert_eq!(client.get("/d/sub%20&%20sub/").text(), "sub");
    assert_eq!(client.get_with("/d/sub%20&%20sub/", "Accept: application/json").text(), "sub");
    let redirect = client.get("/d?sort=size");
    assert_eq!((redirect.status, redirect.field("location")), (301, Some("/d/?sort=size")));
    assert_eq!(client.get("/missing/").status, 404);
    assert_eq!(client.request("POST", "/d/", "").status, 405);
}

#[test]
fn a_page_escapes_names() {
    let tree = tree();
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    let response = client.get("/d/");
    assert_eq!((response.status, response.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!((response.field("vary"), response.field("etag")), (Some("accept, accept-encoding"), None));
    let page = response.text().to_owned();
    for harm in ["<img", "<script", "<style><", "-->", "<b>", "onerror=alert(1)>\"", "href=\"javascript:", "href=\"//"]
    {
        assert!(!page.contains(harm), "{harm}");
    }
    for hidden in [".hidden", ".git", "fifo", "dangling", "outside", "line\nbreak"] {
        assert!(!page.contains(hidden), "{hidden}");
    }
    // A name with a control character is no path (400), but its file is not hidden.
    assert!(page.contains("<a href=\"./line%0Abreak\">line\\nbreak</a>"), "{page}");
    // Each link leads to the named file.
    let mut seen = 0;
    for link in links(&page).iter().filter(|link| link.starts_with("./")) {
        let response = client.get(&format!("/d/{}", &link[2..]));
        if link == "./line%0Abreak" {
            assert_eq!(response.status, 400, "{link}");
            continue;
        }
        assert_eq!(response.status, 200, "{link}");
        seen += 1;
        assert!(link.ends_with('/') || response.text().is_empty() || NAMES.contains(&response.text()), "{link}");
    }
    // Also the directory, a name that is not UTF-8, and one with a backslash.
    assert_eq!(seen, NAMES.len() + 3);
    assert!(page.contains("href=\"./%FF%FE.txt\"") && page.contains("href=\"./back%5Cslash\""));
    let others: Vec<_> = links(&page).into_iter().filter(|link| !link.starts_with("./")).collect();
    assert!(others.iter().all(|link| link.starts_with("../") || link.starts_with("?sort=")), "{others:?}");
    assert!(page.contains("(UTC)") && page.contains("<time datetime="), "the time zone is stated");
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;") && page.contains("a&amp;b &quot;c&quot;.txt"));
}

#[test]
fn headings_are_links_that_sort() {
    let tree = tree();
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    for (query, expected) in [
        ("", ["?sort=name&order=desc", "?sort=size&order=asc", "?sort=modified&order=asc"]),
        ("?sort=name&order=desc", ["?sort=name&order=asc", "?sort=size&order=asc", "?sort=modified&order=asc"]),
        ("?sort=size&order=asc", ["?sort=name&order=asc", "?sort=size&order=desc", "?sort=modified&order=asc"]),
        ("?sort=modified&order=desc", ["?sort=name&order=asc", "?sort=size&order=asc", "?sort=modified&order=asc"]),
        ("?sort=%3Cscript%3E", ["?sort=name&order=desc", "?sort=size&order=asc", "?sort=modified&order=asc"]),
    ] {
        let response = client.get(&format!("/d/{query}"));
        let headings: Vec<_> = links(response.text()).into_iter().filter(|link| link.starts_with('?')).collect();
        assert_eq!(headings, expected, "{query}");
        assert!(!response.text().contains("<script"));
    }
}

#[test]
fn the_query_sorts_and_directories_are_first() {
    let tree = Tree::new();
    for (name, size, seconds) in [("b", 3, 10), ("C", 1, 30), ("a", 2, 20), ("d", 2, 20)] {
        tree.write(name, "x".repeat(size));
        tree.set_modified(name, Duration::from_secs(seconds));
    }
    tree.create_dir("z");
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    for (query, expected) in [
        ("", "z a b C d"),
        ("?order=desc", "z d C b a"),
        ("?sort=name&order=desc", "z d C b a"),
        ("?sort=size", "z C a d b"),
        ("?sort=size&order=desc", "z b d a C"),
        ("?sort=modified", "z b a d C"),
        ("?order=desc&sort=modified", "z C d a b"),
        ("?sort=nonsense&order=nonsense", "z a b C d"),
    ] {
        assert_eq!(names(&json(&mut client, &format!("/{query}"))).join(" "), expected, "{query}");
        let page = client.get(&format!("/{query}"));
        let shown: Vec<String> = links(page.text()).into_iter().filter(|link| link.starts_with("./")).collect();
        let shown: Vec<&str> =
            shown.iter().map(|link| link[2..].trim_end_matches('/')).filter(|l| !l.is_empty()).collect();
        assert_eq!(shown.join(" "), expected, "{query}");
    }
}

#[test]
fn json_has_a_fixed_structure() {
    let tree = tree();
    tree.set_modified("d/100%.txt", Duration::from_secs(784_111_777));
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    let listing = json(&mut client, "/d/");
    let keys = |value: &Value| -> Vec<String> { value.as_object().expect("an object").keys().cloned().collect() };
    assert_eq!(keys(&listing), ["entries", "page", "pages", "path", "total", "truncated"]);
    assert_eq!((&listing["path"], &listing["truncated"]), (&Value::from("/d/"), &Value::from(false)));
    let mut found = names(&listing);
    assert_eq!(found.remove(0), "sub & sub");
    found.sort_unstable();
    let mut expected = [&NAMES[..], &["back\\slash", "line\nbreak", "\u{fffd}\u{fffd}.txt"]].concat();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let entries = listing["entries"].as_array().unwrap();
    let directory = &entries[0];
    assert_eq!(
        (keys(directory), &directory["type"]),
        (["modified", "name", "type"].map(str::to_owned).into(), &Value::from("directory"))
    );
    let file = entries.iter().find(|entry| entry["name"] == "100%.txt").unwrap();
    assert_eq!(keys(file), ["modified", "name", "size", "type"]);
    assert_eq!((&file["type"], &file["size"]), (&Value::from("file"), &Value::from(8)));
    assert_eq!(file["modified"], "1994-11-06T08:49:37Z");
    let bytes = entries.iter().find(|entry| entry["name"] == "\u{fffd}\u{fffd}.txt").unwrap();
    assert_eq!(bytes["href"], "%FF%FE.txt", "a name that is no text has its encoded form");
    let broken = entries.iter().find(|entry| entry["name"] == "line\nbreak").unwrap();
    assert_eq!(broken["href"], "line%0Abreak");
    assert_eq!(json(&mut client, "/")["path"], "/");
}

#[test]
fn accept_selects_page_or_json() {
    let tree = tree();
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    for (accept, is_json) in [
        ("", false),
        ("Accept: */*", false),
        ("Accept: text/html", false),
        ("Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
        ("Accept: application/json", true),
        ("Accept: APPLICATION/JSON", true),
        ("Accept: application/json, */*;q=0.1", true),
        ("Accept: application/json, text/html;q=0.9", true),
        ("Accept: application/json;q=0.5, text/html", false),
        ("Accept: application/json, text/html", false),
        ("Accept: application/json;q=0", false),
        ("Accept: text/html;q=0.1\nAccept: application/json", true),
        ("Accept: image/png", false),
    ] {
        let response = client.get_with("/d/", accept);
        let kind = if is_json { "application/json" } else { "text/html; charset=utf-8" };
        assert_eq!((response.status, response.field("content-type")), (200, Some(kind)), "{accept}");
        assert_eq!(response.field("vary"), Some("accept, accept-encoding"), "{accept}");
    }
}

#[test]
fn links_are_listed_as_their_targets() {
    let tree = Tree::new();
    tree.write("d/file.txt", "12345");
    tree.create_dir("d/dir");
    tree.symlink("file.txt", "d/to-file");
    tree.symlink("dir", "d/to-dir");
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    let listing = json(&mut client, "/d/");
    assert_eq!(names(&listing), ["dir", "to-dir", "file.txt", "to-file"]);
    assert_eq!(listing["entries"][3]["size"], 5);
    assert_eq!(client.get("/d/to-file").text(), "12345");
    assert_eq!(client.get("/d/to-dir/").status, 200);
}

#[test]
fn pages_of_a_large_directory_have_every_entry_in_order() {
    const FILES: usize = 10_500;
    let tree = Tree::new();
    let large = tree.create_dir("large");
    for number in 0..FILES {
        std::fs::File::create(large.join(format!("{number:05}.jpg"))).unwrap();
    }
    tree.create_dir("large/zz");
    tree.write("large/newest.txt", "x");
    tree.set_modified("large/newest.txt", Duration::from_secs(4_000_000_000));
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    let first = json(&mut client, "/large/");
    assert_eq!((&first["page"], &first["pages"], &first["total"]), (&1.into(), &3.into(), &(FILES + 2).into()));
    assert_eq!((names(&first).len(), names(&first)[0], &first["truncated"]), (5_000, "zz", &Value::from(false)));
    let (second, third) = (json(&mut client, "/large/?page=2"), json(&mut client, "/large/?page=3"));
    let mut all: Vec<_> = [&first, &second, &third].into_iter().flat_map(names).skip(1).collect();
    assert!(all.is_sorted() && all.len() == FILES + 1, "all entries are sorted before they are cut into pages");
    all.dedup();
    assert_eq!(all.len(), FILES + 1);
    let by_time = json(&mut client, "/large/?sort=modified&order=desc");
    assert_eq!(names(&by_time)[..2], ["zz", "newest.txt"]);
    assert_eq!(names(&json(&mut client, "/large/?filter=NEW")), ["newest.txt"]);
    assert_eq!(names(&json(&mut client, "/large/?page=99")), names(&third), "the last page");

    // A page of HTML has fewer entries, and links to the others.
    let (mut target, mut seen) = ("/large/?order=desc".to_owned(), 0);
    loop {
        let page = client.get(&target);
        let links = links(page.text());
        seen += links.iter().filter(|link| link.starts_with("./")).count();
        let text = page.text();
        let Some((before, _)) = text.split_once("\" rel=\"next\"") else { break };
        let next = before.rsplit_once("href=\"").expect("a link").1.replace("&amp;", "&");
        assert!(next.starts_with("?sort=name&order=desc&page="), "{next}");
        target = format!("/large/{next}");
    }
    assert_eq!(seen, FILES + 2);
    let filtered = client.get("/large/?filter=0001%20");
    assert!(filtered.text().contains("value=\"0001\"") && filtered.text().contains("with this filter"));
}

#[test]
fn unread_listings_are_bounded_and_released() {
    const CLIENTS: usize = 80;
    let tree = Tree::new();
    let large = tree.create_dir("large");
    for number in 0..2_001 {
        // Long in a link and in a page, so that the kernel cannot buffer a whole page for a client that does not read.
        std::fs::File::create(large.join(format!("{number:04}{}", "\"".repeat(240)))).unwrap();
    }
    let program = Program::serve_with(&tree, &["--listing", "--workers", "1"]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| program.connect()).collect();
    clients.iter_mut().for_each(|client| client.send_request("GET", "/large/", ""));
    let heads: Vec<_> = clients.iter_mut().map(|client| client.receive_head().expect("a response")).collect();
    for head in &heads {
        match head.status {
            200 => assert!(head.length() > 4 << 20, "{head:?}"),
            status => assert_eq!((status, head.field("retry-after")), (503, Some("1")), "{head:?}"),
        }
    }
    let served = heads.iter().filter(|head| head.status == 200).count();
    assert!((1..CLIENTS).contains(&served), "{served} listings are buffered for clients that do not read");
    // Files are still served.
    let mut client = program.connect();
    assert_eq!(client.get(&format!("/large/0000{}", "%22".repeat(240))).status, 200);
    // The listings are released with their connections.
    drop(clients);
    wait_until("listings are served again", || {
        let response = client.get_with("/large/", "Accept: application/json");
        assert!(matches!(response.status, 200 | 503), "{response:?}");
        (response.status == 200).then_some(())
    });
    assert_eq!(names(&json(&mut client, "/large/")).len(), 2_001);
    let exit = program.stop();
    assert!(exit.err.contains("503 too many directory listings are in progress"), "{}", exit.err);
}
