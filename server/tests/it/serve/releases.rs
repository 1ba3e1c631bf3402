//! Sites as they are deployed: fixed times, swapped releases, links to shared folders, clean URLs.

use crate::support::configured::{Folder, get, request};
use crate::support::program::Program;
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// Sizes of files in memory, of open files, and of files that are hashed after the first response.
const SIZES: [usize; 3] = [12, 100_000, 17 << 20];
/// Fixed times of build tools: zero, Nix, Cloud Native Buildpacks, npm, Bazel, and those of a SOURCE_DATE_EPOCH.
const TIMES: [(u64, bool); 8] = [
    (0, false),
    (1, false),
    (315_532_801, false),
    (499_162_500, false),
    (946_684_800, false),
    (1_262_304_000, false),
    (1_262_304_001, true),
    (1_700_000_000, true),
];

/// Returns the tag of a file, once it is known.
fn tag(program: &Program, target: &str) -> String {
    let mut client = program.connect();
    wait_until("the tag is known", || client.request("HEAD", target, "").field("etag").map(str::to_owned))
}

#[test]
fn releases_with_fixed_times_have_tags_of_their_own() {
    let tree = Tree::new();
    let mut files = Vec::new();
    for (number, (time, has_date)) in TIMES.into_iter().enumerate() {
        for size in SIZES.into_iter().filter(|size| *size < 1 << 20 || number == 1) {
            let name = format!("{number}-{size}.js");
            for release in ["a", "b"] {
                let path = format!("{release}/{name}");
                tree.write(&path, release.repeat(size));
                tree.set_modified(&path, Duration::from_secs(time));
            }
            files.push((name, has_date));
        }
    }
    tree.symlink("a", "current");
    let serve = |release: &str| {
        let mut command = crate::support::program::selvedge_command();
        Program::start(command.arg("serve").arg(tree.path(release)).args(["--listen", "127.0.0.1:0"]))
    };
    let program = serve("current");
    let old: Vec<String> = files.iter().map(|(name, _)| tag(&program, &format!("/{name}"))).collect();
    // Another machine, or this one after a restart, has equal tags for equal content.
    let other = serve("a");
    for ((name, has_date), tag_here) in files.iter().zip(&old) {
        assert_eq!(tag(&other, &format!("/{name}")), *tag_here, "{name}");
        let head = other.connect().request("HEAD", &format!("/{name}"), "");
        assert_eq!(head.field("last-modified").is_some(), *has_date, "{name}");
    }
    other.stop();
    tree.symlink("b", "next");
    std::fs::rename(tree.path("next"), tree.path("current")).expect("a link can be renamed");
    let mut client = program.connect();
    wait_until("the next release is served", || {
        client.get_with("/0-12.js", "Range: bytes=0-0").text().starts_with('b').then_some(())
    });
    for ((name, _), tag) in files.iter().zip(&old) {
        let target = format!("/{name}");
        assert_eq!(client.get_with(&target, &format!("If-None-Match: {tag}")).status, 200, "{name}");
        let joined = client.get_with(&target, &format!("If-Range: {tag}\nRange: bytes=0-0"));
        assert_eq!(joined.status, 200, "two releases are not joined: {name}");
    }
    program.stop();
}

#[test]
fn no_date_is_later_than_that_of_the_response() {
    let tree = Tree::new();
    tree.write("future.txt", "x");
    tree.set_modified("future.txt", Duration::from_secs(7_000_000_000));
    let program = Program::serve(&tree);
    let response = program.connect().get("/future.txt");
    assert_eq!((response.status, response.field("last-modified")), (200, None));
    assert!(response.field("etag").is_some());
}

#[test]
fn links_lead_to_the_folders_of_the_setting() {
    let folder = Folder::new("");
    let settings = |links: &str| {
        format!(
            "log {{ access \"off\"; error \"stderr\" level=\"info\"; }}\nsite \"*\" {{ root \"www\"; listing #true; {links} }}"
        )
    };
    folder.write("www/real.txt", "real");
    folder.write("shared/deep/a.png", "png");
    folder.write("secret/s", "secret");
    let link = |target: &Path, name: &str| symlink(target, folder.path(name)).expect("a link can be created");
    link(&folder.path("www/real.txt"), "www/absolute.txt");
    link(&folder.path("shared"), "www/uploads");
    link(Path::new("../shared/deep"), "www/relative");
    link(&folder.path("secret"), "www/out");
    folder.configure(&settings(""));
    let program = folder.serve();
    assert_eq!(get(&program, "a.test", "/absolute.txt").text(), "real", "it stays within the root");
    for target in ["/uploads/deep/a.png", "/relative/a.png", "/out/s"] {
        assert_eq!(get(&program, "a.test", target).status, 404, "{target}");
    }
    wait_until("the reason is logged", || {
        let is_reason =
            |line: &String| line.contains(" info ") && line.contains("a symbolic link leads out of the root");
        program.error_lines().iter().any(is_reason).then_some(())
    });
    let listing = get(&program, "a.test", "/");
    assert!(listing.text().contains("absolute.txt") && !listing.text().contains("uploads"));
    program.stop();
    folder.configure(&settings("link-targets \"shared\""));
    let program = folder.serve();
    for target in ["/uploads/deep/a.png", "/relative/a.png"] {
        for _ in 0..2 {
            assert_eq!(get(&program, "a.test", target).text(), "png", "{target}");
        }
    }
    assert_eq!(get(&program, "a.test", "/out/s").status, 404);
    let listing = get(&program, "a.test", "/");
    assert!(listing.text().contains("uploads/") && !listing.text().contains("\"./out"), "{}", listing.text());
    program.stop();
}

#[test]
fn clean_urls_are_options_and_settings() {
    let tree = Tree::new();
    for name in ["index.html", "join.html", "join/dev.html", "docs/index.html"] {
        tree.write(name, name);
    }
    let check = |program: &Program, expected: &[(&str, &str)]| {
        for (target, to) in expected {
            let response = get(program, "a.test", target);
            let found = response.field("location").unwrap_or_else(|| response.text());
            assert_eq!(found, *to, "{target}");
        }
    };
    let program = Program::serve_with(&tree, &["--clean-urls"]);
    check(&program, &[("/join", "join.html"), ("/join/", "/join"), ("/join.html?a", "/join?a"), ("/docs", "/docs/")]);
    program.stop();
    let program = Program::serve_with(&tree, &["--clean-urls", "--trailing-slash", "add"]);
    check(
        &program,
        &[("/join", "/join/"), ("/join/", "join.html"), ("/join.html", "/join/"), ("/docs/", "docs/index.html")],
    );
    program.stop();
    let folder = Folder::new("site \"*\" { root \"www\"; clean-urls; trailing-slash remove; }");
    folder.write("www/join.html", "join.html");
    folder.write("www/docs/index.html", "docs/index.html");
    folder.write("www/join/x", "x");
    let program = folder.serve();
    check(&program, &[("/join", "join.html"), ("/join/", "/join"), ("/docs", "docs/index.html"), ("/docs/", "/docs")]);
    program.stop();
    // A folder without an index does not hide the page beside it.
    folder.configure("site \"*\" { root \"www\"; route \"/*\" { files { try-files \"*\" \"*.html\"; }; }; }");
    let program = folder.serve();
    check(&program, &[("/join", "join.html"), ("/docs", "/docs/")]);
    assert_eq!(get(&program, "a.test", "/join/").status, 404);
    program.stop();
}

#[test]
fn types_have_codings_and_a_setting() {
    let folder = Folder::new(
        "site \"*\" { root \"www\"; types \"application/x-mods\" \"mods\" \".modz\"; \
         route \"*.svgz\" { files; header \"Content-Encoding\" \"gzip\"; header \"X-Any\" \"1\"; }; }",
    );
    for name in ["a.svgz", "a.ts", "a.mods", "a.MODZ", "a.usdz"] {
        folder.write(&format!("www/{name}"), "x");
    }
    let program = folder.serve();
    for (target, media_type, coding) in [
        ("/a.svgz", "image/svg+xml", Some("gzip")),
        ("/a.ts", "video/mp2t", None),
        ("/a.mods", "application/x-mods", None),
        ("/a.MODZ", "application/x-mods", None),
        ("/a.usdz", "model/vnd.usdz+zip", None),
    ] {
        let response = get(&program, "a.test", target);
        let fields = (response.field("content-type"), response.field("content-encoding"));
        assert_eq!(fields, (Some(media_type), coding), "{target}");
    }
    let missing = get(&program, "a.test", "/none.svgz");
    assert_eq!((missing.status, missing.field("content-encoding"), missing.field("x-any")), (404, None, Some("1")));
    program.stop();
}

#[test]
fn users_follow_their_file_and_guesses_are_slowed_down() {
    let hash = |name: &str, password: &str| {
        let mut command = crate::support::program::selvedge_command();
        command.args(["hash-password", "--name", name]).stdin(std::process::Stdio::piped());
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("the program starts");
        let mut input = child.stdin.take().expect("standard input is a pipe");
        std::io::Write::write_all(&mut input, format!("{password}\n").as_bytes()).expect("the program reads");
        drop(input);
        let output = child.wait_with_output().expect("the program ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("the line is text")
    };
    let folder = Folder::new(
        "log { access \"off\"; error \"stderr\" level=\"info\"; }\n\
         site \"*\" { root \"www\"; basic-auth file=\"users\" wrong-max=3; }",
    );
    folder.write("www/index.html", "in");
    folder.write("users", &hash("ann", "pw"));
    let program = folder.serve();
    let mut client = program.connect();
    let mut status = |credentials: &str| {
        let line = format!("Authorization: Basic {credentials}");
        request(&mut client, "a.test", "GET /", &[&line]).status
    };
    // `ann:pw` and `bob:pw`.
    let (ann, bob, wrong) = ("YW5uOnB3", "Ym9iOnB3", "YW5uOndyb25n");
    assert_eq!(status(ann), 200);
    folder.write("users", &hash("bob", "pw"));
    wait_until("the file is read again", || {
        program.error_lines().iter().any(|line| line.contains("UsersReplaced")).then_some(())
    });
    assert_eq!((status(bob), status(ann)), (200, 401), "a removed user is refused at once");
    assert_eq!([status(wrong), status(wrong), status(wrong)], [401, 401, 429]);
    assert_eq!(status(bob), 200, "a known password is not slowed down");
    wait_until("each wrong password has a line", || {
        let lines = program.error_lines();
        let count =
            |text: &str| lines.iter().filter(|line| line.contains(text) && line.contains("peer=127.0.0.1:")).count();
        (count("401 wrong user name or password") == 3 && count("429 too many wrong passwords") == 1).then_some(())
    });
    program.stop();
    folder.write("users", "ann:$apr1$salt$hash\n");
    let checked = folder.run("check");
    assert!(checked.code == Some(1) && checked.err.contains("selvedge hash-password"), "{checked:?}");
}

#[test]
fn precompressed_files_with_cut_times_are_sent_and_old_ones_are_logged_once() {
    let tree = Tree::new();
    let time = Duration::new(1_700_000_000, 123_456_789);
    for (name, cut) in [
        ("seconds", Duration::from_secs(1_700_000_000)),
        ("microseconds", Duration::new(1_700_000_000, 123_456_000)),
        ("old", Duration::from_secs(1_600_000_000)),
        ("equal", time),
    ] {
        tree.write(format!("{name}.css"), "original");
        tree.set_modified(&format!("{name}.css"), time);
        tree.write(format!("{name}.css.gz"), "compressed");
        tree.set_modified(&format!("{name}.css.gz"), cut);
    }
    let program = Program::serve(&tree);
    for (name, is_sent) in [("seconds", true), ("microseconds", true), ("equal", true), ("old", false)] {
        for _ in 0..3 {
            let response = program.connect().get_with(&format!("/{name}.css"), "Accept-Encoding: gzip");
            let coding = is_sent.then_some("gzip");
            assert_eq!((response.status, response.field("content-encoding")), (200, coding), "{name}");
        }
    }
    let exit = program.stop();
    let lines: Vec<_> = exit.err.lines().filter(|line| line.contains("the .gz file is older")).collect();
    assert!(matches!(lines[..], [line] if line.contains(" info ") && line.contains("/old.css")), "{}", exit.err);
}

#[test]
fn each_outdated_precompressed_file_is_named_once() {
    let tree = Tree::new();
    let names: Vec<_> = (0..6).map(|number| format!("stale-{number}.css")).collect();
    for name in &names {
        tree.write(name, "original");
        for suffix in [".br", ".gz"] {
            tree.write(format!("{name}{suffix}"), "compressed");
            tree.set_modified(&format!("{name}{suffix}"), Duration::from_secs(1_600_000_000));
        }
    }
    let program = Program::serve(&tree);
    let mut client = program.connect();
    // All within a second, so that lines of one reason would be counted together.
    for name in names.iter().cycle().take(names.len() * 4) {
        let response = client.get_with(&format!("/{name}"), "Accept-Encoding: br, gzip");
        assert_eq!((response.text(), response.field("content-encoding")), ("original", None));
    }
    let exit = program.stop();
    for name in &names {
        let of_file = |line: &&str| line.contains(name.as_str());
        let lines: Vec<_> = exit.err.lines().filter(of_file).collect();
        assert!(matches!(lines[..], [line] if line.contains("the .br and .gz files are older")), "{}", exit.err);
    }
}

#[test]
fn included_lists_are_reloaded_when_they_change() {
    let folder = Folder::new(
        "log { access \"off\"; error \"stderr\" level=\"info\"; }\n\
         site \"*\" { root \"www\"; ip-access { include \"blocked.kdl\"; deny \"192.0.2.1\"; }; }",
    );
    folder.write("www/index.html", "in");
    folder.write("blocked.kdl", "deny \"192.0.2.2\"\n");
    let program = folder.serve();
    assert_eq!(get(&program, "a.test", "/").status, 200);
    folder.write("blocked.kdl", "deny \"127.0.0.0/8\"\n");
    wait_until("the list is in force", || (get(&program, "a.test", "/").status == 403).then_some(()));
    folder.write("blocked.kdl", "deny \"nonsense\"\n");
    wait_until("the refusal is logged", || {
        program.error_lines().iter().any(|line| line.contains("ReloadRefused")).then_some(())
    });
    assert_eq!(get(&program, "a.test", "/").status, 403, "the earlier list stays in force");
    program.stop();
}
