//! No text, however odd, makes the reading panic, overflow or run on.

use super::{Memory, problems};
use proptest::prelude::*;

#[test]
fn odd_texts_are_problems() {
    let deep = |open: &str, depth: usize| open.repeat(depth);
    for (text, said) in [
        ("}".repeat(20_000), "this } closes nothing"),
        (deep("a {", 50_000), "nest deeper than 16"),
        (deep("site \"a\" {\n", 50_000), "nest deeper than 16"),
        (deep("/-{", 10_000), ""),
        (format!("a {}", "(".repeat(50_000)), "outside of quotes"),
        (format!("a {}", ")".repeat(50_000)), "outside of quotes"),
        (format!("listen {}", "=".repeat(60_000)), "selvedge.kdl:1:"),
        (format!("listen {}", "=a".repeat(30_000)), "selvedge.kdl:1:"),
        (format!("listen {}", "a=b=c ".repeat(10_000)), "selvedge.kdl:1:"),
        (format!("listen {}", "/-\n".repeat(20_000)), ""),
        (format!("listen \"{}\"", "\\u{zzzz".repeat(6_000)), "an escape that KDL does not know"),
        (format!("listen \"{}\"", "\u{1}{".repeat(6_000)), "U+0001"),
        (format!("listen \"\"\"\n{}  \"\"\"", "{\n".repeat(20_000)), "indented less"),
        (format!("listen #\"\"\"\n{}  \"\"\"#", "\"\n".repeat(20_000)), "indented less"),
        (format!("listen \"\"\"\n{}\\n\"\"\"", "a\\\n {\n".repeat(8_000)), "indented less"),
        ("a;".repeat(15_000), "and 5000 more"),
        (format!("listen {}", "#".repeat(60_000)), "selvedge.kdl:1:"),
        (format!("listen {}", "/- ".repeat(20_000)), ""),
        (format!("listen {}", "/* ".repeat(50_000)), "this comment does not end"),
        (format!("listen {}", "\\\n".repeat(20_000)), ""),
        (format!("listen {}", "a ".repeat(200_000)), "one value too many"),
        (format!("listen \"{}\"", "x".repeat(1 << 20)), "is no address"),
        (format!("listen \"é{}\"", "x".repeat(1 << 20)), "longer than 64 KiB"),
        (format!("{} 1", "x".repeat(1 << 20)), "is not known"),
        ("listen \"".to_owned(), "does not end on its line"),
        ("listen \"\"\"\n".to_owned(), "does not end"),
        ("listen #\"\n".to_owned(), "does not end"),
        ("listen \"\\".to_owned(), "does not end"),
        ("listen 99999999999999999999999999999999999999999999999999".to_owned(), "selvedge.kdl:1:8"),
        ("limits { fields-max 0xffffffffffffffffffffffffffffffffffffff; }".to_owned(), "selvedge.kdl:1:"),
        (
            "limits { fields-max -1; body-bytes-max \"99999999999999999999TiB\"; head-time \"9999999999999999999d\"; }"
                .to_owned(),
            "out of range",
        ),
        ("(type)listen \"a\"".to_owned(), "outside of quotes"),
        ("1 2".to_owned(), "a value where a name"),
        ("{ a }".to_owned(), "braces without a name"),
        ("a { b } { c }".to_owned(), "a second pair of braces"),
        ("a { b } c".to_owned(), "right behind a closing brace"),
        ("listen \"\\u{110000}\"".to_owned(), "selvedge.kdl:1:"),
        ("listen \u{202e}\"a\"".to_owned(), "selvedge.kdl:1:"),
        ("\0".to_owned(), "selvedge.kdl:1:1"),
        ("include \"../\"".to_owned(), "selvedge.kdl:1:"),
        ("include \"/../*.kdl\"".to_owned(), ""),
        ("\u{feff}\u{feff}a".to_owned(), "selvedge.kdl:1:"),
        ("listen \"a\0b\" \"\u{7f}\"".to_owned(), "selvedge.kdl:1:"),
        (
            "site \"*.*.a\" \"*a\" \"a*\" \"\" \".\" \"..\" \"-\" \"[::1\" \"a:b:c\"".to_owned(),
            "wildcard in the wrong place",
        ),
        (
            "site a { route \"*a*b*c*\" { redirect \"/x/*/*/*/*/*\"; }; }".to_owned(),
            "5 `*` in the target, 4 in the pattern",
        ),
    ] {
        let came = problems(&text);
        assert!(came.contains(said), "{:?} gave {}", &text[..text.len().min(60)], &came[..came.len().min(500)]);
        assert!(!came.contains('\0') && !came.contains('\u{7f}'), "what is shown is fit for a terminal");
    }
}

#[test]
fn a_file_that_includes_itself_is_a_problem() {
    let mut memory = Memory::of("include \"a.kdl\"");
    memory.files.insert("a.kdl".into(), "include \"b.kdl\"".to_owned());
    memory.files.insert("b.kdl".into(), "\n  include \"a.kdl\"".to_owned());
    let problems = memory.read().unwrap_err().to_string();
    assert!(problems.contains("b.kdl:2:11: a.kdl includes itself"), "{problems}");
    assert!(problems.contains("selvedge.kdl > a.kdl > b.kdl"), "{problems}");
}

#[test]
fn includes_are_bounded_in_depth_and_in_all() {
    let mut memory = Memory::of("include \"0.kdl\" \"0.kdl\"");
    for number in 0..40 {
        let next = number + 1;
        memory.files.insert(format!("{number}.kdl").into(), format!("include \"{next}.kdl\""));
    }
    memory.files.insert("40.kdl".into(), String::new());
    let problems = memory.read().unwrap_err().to_string();
    assert!(problems.contains("more than 16 deep"), "{problems}");

    // Each of 15 files includes the next ten times over.
    let mut memory = Memory::of("include \"0.kdl\"");
    for number in 0..14 {
        let next = number + 1;
        memory.files.insert(format!("{number}.kdl").into(), format!("include \"{next}.kdl\"\n").repeat(10));
    }
    memory.files.insert("14.kdl".into(), String::new());
    let problems = memory.read().unwrap_err().to_string();
    assert!(problems.contains("more than 200,000 files are included"), "{problems}");
}

/// Pieces of which odd configurations are made.
const PIECES: [&str; 40] = [
    "listen",
    "site",
    "route",
    "log",
    "limits",
    "access",
    "files",
    "redirect",
    "when",
    "include",
    "header",
    " ",
    " ",
    "\n",
    "{",
    "}",
    ";",
    "\"",
    "\"*\"",
    "\"/a/*\"",
    "\"${\"",
    "\"${A:-}\"",
    "#true",
    "#\"",
    "\"#",
    "=",
    "\\",
    "/-",
    "/*",
    "*/",
    "//",
    "1",
    "\"5s\"",
    "é",
    "\u{2028}",
    "\0",
    "root=",
    "\"a.b\"",
    "\"\"\"",
    "respond 200",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        problems(&text);
    }

    #[test]
    fn no_mixture_of_pieces_panics(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..60)) {
        problems(&pieces.concat());
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_value_panics(value in "\\PC{0,30}") {
        let quoted = value.replace(['\\', '"'], "");
        for line in ["listen", "trusted-proxies", "site", "control", "user", "include"] {
            problems(&format!("{line} \"{quoted}\""));
        }
        problems(&format!("log {{ access \"{quoted}\" format=\"{quoted}\"; }}"));
        problems(&format!("site a {{ root \"{quoted}\"; route \"{quoted}\" {{ redirect \"{quoted}\"; }}; header \"{quoted}\" \"{quoted}\"; }}"));
        problems(&format!("limits {{ head-time \"{quoted}\"; head-bytes-max \"{quoted}\"; fields-max \"{quoted}\"; }}"));
    }
}
