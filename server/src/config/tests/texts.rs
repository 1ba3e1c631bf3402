//! Our parser and the `kdl` crate parse every text to equal nodes, and agree which values are invalid.

use crate::config::position::{Span, Texts};
use crate::config::text::{Entry, Node, Scalar, read};
use kdl::{KdlDocument, KdlNode, KdlValue};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// Prints a node without positions.
fn plain(node: &Node) -> String {
    let entry = |entry: &Entry| format!("{:?}={:?}", entry.name, entry.scalar);
    let entries: Vec<_> = node.entries.iter().flatten().map(entry).collect();
    let children = node.children.as_ref().map(|children| children.iter().map(plain).collect::<Vec<_>>());
    format!("{:?} {entries:?} {children:?}", node.name)
}

/// Prints a node of the crate in that form.
fn plain_of_crate(node: &KdlNode) -> String {
    let scalar = |value: &KdlValue| match value {
        KdlValue::String(text) => Scalar::Text(text.clone()),
        KdlValue::Integer(number) => Scalar::Integer(*number),
        KdlValue::Float(number) => Scalar::Float(*number),
        KdlValue::Bool(flag) => Scalar::Flag(*flag),
        KdlValue::Null => Scalar::Null,
    };
    let entries: Vec<_> = node
        .entries()
        .iter()
        .map(|entry| format!("{:?}={:?}", entry.name().map(|name| name.value().to_owned()), scalar(entry.value())))
        .collect();
    let children = node.children().map(|children| children.nodes().iter().map(plain_of_crate).collect::<Vec<_>>());
    format!("{:?} {entries:?} {children:?}", node.name().value())
}

/// Returns the nodes of our parser, or `None` if it reports a problem.
fn ours(text: &str) -> Option<Vec<String>> {
    let mut problems = Vec::new();
    let nodes = read(text, 0, &mut problems).iter().map(plain).collect();
    problems.is_empty().then_some(nodes)
}

/// Returns the nodes of the crate, or `None` if it reports a problem.
fn theirs(text: &str) -> Option<Vec<String>> {
    Some(KdlDocument::parse_v2(text).ok()?.nodes().iter().map(plain_of_crate).collect())
}

/// Compares both parsers for a text that is valid KDL without type annotations.
fn check(text: &str) {
    let nodes = ours(text);
    assert!(nodes.is_some(), "{text:?}");
    assert_eq!(nodes, theirs(text), "{text:?}");
}

#[test]
fn our_parser_agrees_with_the_crate() {
    for text in [
        "",
        "a",
        "\u{feff}a 1",
        "a;b;c",
        "a 1 2.5 -3 0x1f 1_000 1e3",
        "a \"b\" c d=e f=\"g\" h=1 i=#true j=#null k=#inf",
        "a {b;c {d 1}}",
        "a { }\nb {}",
        "a \\\n  1 \\ // more\n  2",
        "// first\na // second\n/* third /* nested */ */ b /* in */ 1",
        "/-a 1\nb /-1 2 /-c=3\nd /-{ e } { f }\n/- g { h }\ni { j } /-{ k }",
        "a \"\\\"\\\\\\n\\u{e9}\"\nb #\"raw \\ \"quotes\" \"#\nc ##\"#\"##",
        "a \"\"\"\n  one\n    two\n  \"\"\"\nb",
        "a #\"\"\"\n  one { }\n  \"\"\"# 1",
        "a \"with { and } and ; and // and /*\" 1",
        "a \"\\   \n   b\"",
        "a\r\nb \"c\" {\r\n d }\r",
        "\"quoted name\" \"property name\"=1",
        "héllo \"wörld\" ünï=\"çödé\"",
        "a\u{85}b\u{2028}c\u{a0}1",
        "-a --b .c a-b_c.d",
        "a 12345678901234567890123456789",
        "a 0x1F -0x1f +0o17 0b1_0 0xdead_beef_ -0 +1 1_ 0_1 00",
        "a 1.5 -1.5e3 +1_0.2_5E-2 1e+3 0e0 1_e1_",
        "a #inf #-inf #nan #null",
        "a - + . -. +.a -a +a .a -.a --1 a1 .- _1",
        "a \"\\u{0}\\u{10FFFF}\\u{00e9}\\b\\f\\s\\r\\t\"",
        "a \"\\\r\n\t b\\\u{2028}\"",
        "a \"\"\"\r\n  b\r\n\u{85}\t\r  c\u{2028}  \"\"\"",
        "a \"\"\"\n\"\"\" #\"\"\"\n\"\"\"#",
        "a \"\"\"\n  foo \\\nbar\n  baz\n  \\   \"\"\"",
        "a \"\"\"\n\tb\\nc \"\" d\n\t\"\"\"",
        "a ##\"\"\"\n b \"\"\"# \\u{zz} c\n \"\"\"##",
        "a b \\\n = \\\n 1",
    ] {
        check(text);
    }
}

#[test]
fn the_specification_decides_where_the_crate_differs() {
    let quote = Some(vec!["\"a\" [\"None=Text(\\\"\\\\\\\"\\\")\"] None".to_owned()]);
    let text = "a #\"\"\"\n\"\n\"\"\"#";
    assert_eq!((ours(text), theirs(text)), (quote, None));
    for text in ["a 0X1F", "a -inf", "a #\"\"\"\"#", "a #\"\"\"a\"\"\"#", "a \"\u{7f}\"", "a // \u{202e}\n"] {
        assert_eq!((ours(text), theirs(text).is_some()), (None, true), "{text:?}");
    }
}

#[test]
fn invalid_values_are_refused() {
    for value in [
        "true",
        "false",
        "null",
        "inf",
        "nan",
        "#True",
        "#",
        "##true",
        "#inf1",
        "1a",
        "1__.",
        "1.",
        "1.e1",
        "1e",
        "1e_1",
        "1._5",
        "-.5",
        ".5",
        "+.5",
        "0x",
        "0x_1",
        "0xg",
        "0o8",
        "0b2",
        "0b",
        "1.5.5",
        "1e1.5",
        "1-1",
        "170141183460469231731687303715884105728",
        "\"\\q\"",
        "\"\\u{}\"",
        "\"\\u{1234567}\"",
        "\"\\u{d800}\"",
        "\"\\u{110000}\"",
        "\"\\u41\"",
        "\"\\u{+41}\"",
        "\"\"\"a\"\"\"",
        "\"\"\"\na\"\"\"",
        "\"\"\"\n a\n  \"\"\"",
        "\"\"\"\n  a\\\n  \"\"\"",
        "\"\"\"\n a\n\\s\"\"\"",
        "#\"\"\"#",
        "#\"\"\"\n\ta\n \"\"\"#",
        "\"\0\"",
        "\u{feff}",
    ] {
        let text = format!("a {value}");
        assert_eq!((ours(&text), value), (None, value));
        assert_eq!((theirs(&text), value), (None, value));
    }
}

#[test]
fn positions_match_the_text() {
    for text in ["ab c=1 \"déf\" g=\"\\n\"", "ab c=1 \"def\" g=\"h\""] {
        let mut texts = Texts::default();
        texts.add(Path::new("f"), Arc::from(text));
        let nodes = read(text, 0, &mut Vec::new());
        let shown = |span: Span| {
            let position = texts.position(span);
            position.within.to_owned()
        };
        let entries = nodes[0].entries.as_ref().unwrap();
        assert_eq!(shown(nodes[0].name_at), "ab");
        assert_eq!(shown(entries[0].at), "c=1");
        assert_eq!(shown(entries[0].value_at), "1");
        assert!(matches!(shown(entries[1].at).as_str(), "\"déf\"" | "\"def\""));
        assert!(matches!(shown(entries[2].value_at).as_str(), "\"\\n\"" | "\"h\""));
    }
}

/// Whether the crate differs from the specification. It accepts `0X`, `0B` and `0O`, the word `-inf`, and raw strings of one line that
/// start with three quotes. It refuses a raw string of several lines whose content is a quote.
fn is_wrong_in_crate(value: &str) -> bool {
    let raw = value.strip_prefix("#\"\"\"");
    let is_one_line = raw.is_some_and(|rest| !rest.starts_with(['\r', '\n', '\u{2028}']));
    let is_quote = value.split_whitespace().collect::<String>() == "#\"\"\"\"\"\"\"#";
    ["0X", "0B", "0O"].iter().any(|prefix| value.contains(prefix)) || value == "-inf" || is_one_line || is_quote
}

/// Parts of strings.
const PIECES: [&str; 15] =
    ["a", "é", " ", "\t", "\"", "\\", "\\n", "\\\"", "\\s", "\\u{41}", "\\u{d800}", "\\ \t", "#", "'", "{"];

/// Generates values, most of which are nearly valid.
fn odd_value() -> impl Strategy<Value = String> {
    let piece = || prop::sample::select(&PIECES[..]);
    let line = (prop::sample::select(&["", " ", "  ", "\t", "\\ "][..]), prop::collection::vec(piece(), 0..4))
        .prop_map(|(indentation, pieces)| format!("{indentation}{}", pieces.concat()));
    let newline = prop::sample::select(&["\n", "\r\n", "\\\n", "\u{2028}"][..]);
    let lines = (prop::collection::vec((newline, line), 1..4), prop::sample::select(&["\n", "\n  ", "\n \\ "][..]))
        .prop_map(|(lines, end)| lines.iter().fold(String::new(), |all, (newline, line)| all + newline + line) + end);
    prop_oneof![
        "[-+]?(0x|0o|0b)?[0-9a-fA-F_]{1,5}",
        "[-+]?[0-9_]{1,4}(\\.[0-9_]{0,3})?([eE][-+]?[0-9_]{0,2})?",
        "[-+.a-fntu0-9_#]{1,5}",
        "#(-?inf|nan|true|null)[a-z]?",
        prop::collection::vec(piece(), 0..6).prop_map(|pieces| format!("\"{}\"", pieces.concat())),
        prop::collection::vec(piece(), 0..6).prop_map(|pieces| format!("#\"{}\"#", pieces.concat())),
        lines.clone().prop_map(|lines| format!("\"\"\"{lines}\"\"\"")),
        lines.prop_map(|lines| format!("#\"\"\"{lines}\"\"\"#")),
    ]
}

/// Generates values, most of them plain.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9.-]{0,8}"
            .prop_filter("no keyword", |word| !matches!(word.as_str(), "true" | "false" | "null" | "inf" | "nan")),
        "\"[ -!#-\\[\\]-~]{0,12}\"",
        "\"([a-zé ]|\\\\n|\\\\\"|\\\\\\\\){0,6}\"",
        "[0-9]{1,9}",
        "#(true|false|null)",
        "#\"[a-z\\\\ {};/]{0,6}\"#",
    ]
}

fn node(depth: u32) -> BoxedStrategy<String> {
    let entry = prop_oneof![value(), ("[a-z]{1,5}", value()).prop_map(|(name, value)| format!("x{name}={value}"))];
    let space = prop_oneof![Just(" "), Just("  "), Just("\t"), Just(" /* c */ "), Just(" \\\n ")];
    // No keyword starts with an m, as `nan` and `null` do with an n.
    let head = ("m[a-z-]{0,6}", prop::collection::vec((space, entry), 0..4))
        .prop_map(|(name, entries)| entries.iter().fold(name, |head, (space, entry)| format!("{head}{space}{entry}")));
    let end = prop_oneof![Just("\n"), Just(";"), Just(" // c\n"), Just("\n\n"), Just("\r\n")];
    if depth == 0 {
        return (head, end).prop_map(|(head, end)| format!("{head}{end}")).boxed();
    }
    let children = prop::option::of(prop::collection::vec(node(depth - 1), 0..3));
    (head, children, end)
        .prop_map(|(head, children, end)| match children {
            Some(children) => format!("{head} {{{}}}{end}", children.concat()),
            None => format!("{head}{end}"),
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn our_parser_agrees_with_the_crate_on_generated_texts(nodes in prop::collection::vec(node(2), 0..4)) {
        check(&nodes.concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn our_parser_agrees_with_the_crate_on_odd_values(value in odd_value()) {
        prop_assume!(!is_wrong_in_crate(&value));
        let text = format!("m {value}\n");
        prop_assert_eq!(ours(&text), theirs(&text), "{:?}", text);
    }
}
