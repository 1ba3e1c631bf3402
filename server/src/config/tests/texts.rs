//! Our parser and the `kdl` crate parse every text to equal nodes.

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

/// Compares both parsers for a text that is valid KDL without type annotations.
fn check(text: &str) {
    let document = KdlDocument::parse_v2(text).unwrap_or_else(|error| panic!("{text:?}: {:?}", error.diagnostics));
    let mut problems = Vec::new();
    let ours: Vec<_> = read(text, 0, &mut problems).iter().map(plain).collect();
    assert!(problems.is_empty(), "{text:?}: {problems:?}");
    let theirs: Vec<_> = document.nodes().iter().map(plain_of_crate).collect();
    assert_eq!(ours, theirs, "{text:?}");
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
    ] {
        check(text);
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
