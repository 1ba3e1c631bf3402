//! No text makes the parser panic, overflow its stack or run without bound.

use super::{Memory, problems};
use proptest::prelude::*;

#[test]
fn malformed_texts_are_reported() {
    let deep = |open: &str, depth: usize| open.repeat(depth);
    for (text, expected) in [
        ("}".repeat(20_000), "this } has no matching {"),
        (deep("a {", 50_000), "nested more than 16 deep"),
        (deep("site \"a\" {\n", 50_000), "nested more than 16 deep"),
        (deep("/-{", 10_000), ""),
        (format!("a {}", "(".repeat(50_000)), "outside of quotes"),
        (format!("a {}", ")".repeat(50_000)), "outside of quotes"),
        (format!("listen {}", "=".repeat(60_000)), "selvedge.kdl:1:"),
        (format!("listen {}", "=a".repeat(30_000)), "selvedge.kdl:1:"),
        (format!("listen {}", "a=b=c ".repeat(10_000)), "selvedge.kdl:1:"),
        (format!("listen {}", "/-\n".repeat(20_000)), ""),
        (format!("listen \"{}\"", "\\u{zzzz".repeat(6_000)), "this escape is not known in KDL"),
        (format!("listen \"{}\"", "\u{1}{".repeat(6_000)), "U+0001"),
        (format!("listen \"\"\"\n{}  \"\"\"", "{\n".repeat(20_000)), "indented less"),
        (format!("listen #\"\"\"\n{}  \"\"\"#", "\"\n".repeat(20_000)), "indented less"),
        (format!("listen \"\"\"\n{}\\n\"\"\"", "a\\\n {\n".repeat(8_000)), "indented less"),
        ("a;".repeat(15_000), "and 5000 more"),
        (format!("listen {}", "#".repeat(60_000)), "selvedge.kdl:1:"),
        (format!("listen {}", "/- ".repeat(20_000)), ""),
        (format!("listen {}", "/* ".repeat(50_000)), "this comment does not end"),
        (format!("listen {}", "\\\n".repeat(20_000)), ""),
        (format!("listen {}", "a ".repeat(200_000)), "too many values"),
        (format!("listen \"{}\"", "x".repeat(1 << 20)), "is not an address"),
        (format!("listen \"é{}\"", "x".repeat(1 << 20)), "is not an address"),
        (format!("listen \"{}\"", "\\u{e9}".repeat(1 << 18)), "is not an address"),
        (format!("listen \"\"\"\n{}\"\"\"", "\\\n a\n".repeat(1 << 18)), "is not an address"),
        (format!("listen {}", "1".repeat(1 << 20)), "starts like a number"),
        (format!("listen 1.{}", "1_".repeat(1 << 20)), "selvedge.kdl:1:"),
        (format!("{} 1", "x".repeat(1 << 20)), "is not known"),
        ("listen \"".to_owned(), "does not end on its line"),
        ("listen \"\"\"\n".to_owned(), "does not end"),
        ("listen #\"\n".to_owned(), "does not end"),
        ("listen \"\\".to_owned(), "does not end"),
        ("listen 99999999999999999999999999999999999999999999999999".to_owned(), "selvedge.kdl:1:8"),
        ("limits { fields-max 0xffffffffffffffffffffffffffffffffffffff; }".to_owned(), "selvedge.kdl:1:"),
        (
            "limits { fields-max -1; body-bytes-max \"99999999999999999999TiB\"; header-timeout \"9999999999999999999d\"; }"
                .to_owned(),
            "out of range",
        ),
        ("(type)listen \"a\"".to_owned(), "outside of quotes"),
        ("1 2".to_owned(), "a value where a name"),
        ("{ a }".to_owned(), "braces without a name"),
        ("a { b } { c }".to_owned(), "a second block"),
        ("a { b } c".to_owned(), "directly after a closing brace"),
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
        let actual = problems(&text);
        assert!(actual.contains(expected), "{:?} gave {}", &text[..text.len().min(60)], &actual[..actual.len().min(500)]);
        assert!(!actual.contains('\0') && !actual.contains('\u{7f}'), "what is shown is fit for a terminal");
    }
}

#[test]
fn an_include_cycle_is_reported() {
    let mut memory = Memory::of("include \"a.kdl\"");
    memory.files.insert("a.kdl".into(), "include \"b.kdl\"".to_owned());
    memory.files.insert("b.kdl".into(), "\n  include \"a.kdl\"".to_owned());
    let problems = memory.read().unwrap_err().to_string();
    assert!(problems.contains("b.kdl:2:11: a.kdl includes itself"), "{problems}");
    assert!(problems.contains("selvedge.kdl > a.kdl > b.kdl"), "{problems}");
}

#[test]
fn depth_and_number_of_includes_are_limited() {
    let mut memory = Memory::of("include \"0.kdl\" \"0.kdl\"");
    for number in 0..40 {
        let next = number + 1;
        memory.files.insert(format!("{number}.kdl").into(), format!("include \"{next}.kdl\""));
    }
    memory.files.insert("40.kdl".into(), String::new());
    let problems = memory.read().unwrap_err().to_string();
    assert!(problems.contains("more than 16 deep"), "{problems}");

    // Each of 15 files includes the next one ten times.
    let mut memory = Memory::of("include \"0.kdl\"");
    for number in 0..14 {
        let next = number + 1;
        memory.files.insert(format!("{number}.kdl").into(), format!("include \"{next}.kdl\"\n").repeat(10));
    }
    memory.files.insert("14.kdl".into(), String::new());
    let problems = memory.read().unwrap_err().to_string();
    assert!(problems.contains("more than 200,000 files are included"), "{problems}");
}

/// Parts of odd configurations.
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
    fn no_sequence_of_pieces_panics(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..60)) {
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
        problems(&format!("limits {{ header-timeout \"{quoted}\"; head-bytes-max \"{quoted}\"; fields-max \"{quoted}\"; }}"));
    }
}
