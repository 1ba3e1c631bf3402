//! Where settings are written.

use super::Memory;
use std::path::Path;

#[test]
fn places_are_those_of_written_settings() {
    let mut memory = Memory::of(
        "listen \"127.0.0.1:1\"\ninclude \"sites/a.kdl\"\nsnippet \"fields\" { header \"A\" \"1\"; }\nsite \"b\" {\n\
         use \"fields\"\nheader \"B\" \"2\"\nroute \"/x\" \"/y\" {\n\
         when { method \"GET\"\nnot { client \"10.0.0.1\"; }; }\ndeny\n}\n}\n",
    );
    memory.files.insert("sites/a.kdl".into(), "\nsite \"a\" { root \"r\"; }\n".to_owned());
    let configuration = memory.read().unwrap();
    let places = &configuration.places;
    let first = places.top("site", 0).unwrap();
    assert_eq!((first.place().file, first.place().line), (Path::new("sites/a.kdl"), 2));
    assert_eq!(first.inner("root", 0).unwrap().place(), first.place());
    assert!(first.inner("index", 0).is_none(), "a default is not written");
    assert!(first.inner("route", 0).is_none(), "it is in another block");
    let second = places.top("site", 1).unwrap();
    let line = |placed: Option<crate::config::PlacedSetting<'_>>| placed.map(|placed| placed.place().line);
    assert_eq!(second.place().line, 4);
    assert_eq!(second.count_of(&["header", "route"]), 3);
    let headers = [0, 1, 2].map(|number| line(second.inner_of(&["header", "header-add"], number)));
    assert_eq!(headers, [Some(3), Some(6), None], "the first one is in the snippet");
    let when = second.inner("route", 0).and_then(|route| route.inner("when", 0)).unwrap();
    assert_eq!([0, 1, 2].map(|number| line(when.inner_of(&[], number))), [Some(8), Some(9), None]);
    assert_eq!((line(places.top("listen", 0)), line(places.top("listen", 1))), (Some(1), None));
    assert_eq!(line(places.top("site", 2)), None);
}
