//! Tests of the parts that need no server program. `checks/observed.py` runs the whole example.

use crate::export_command;
use crate::load::{LoadClient, LoadRequest};
use crate::upstreams::{Behaviour, Upstreams};
use std::io;
use std::time::Duration;

const ANY_PORT: &str = "127.0.0.1:0";
const LIST: LoadRequest = LoadRequest { line: "GET /api/orders", fields: "", content: "", statuses: &[200] };
const ADD: LoadRequest = LoadRequest { line: "POST /api/orders", fields: "", content: "twill", statuses: &[201] };
const CLIENT: LoadClient = LoadClient { address: "192.0.2.7", pause: Duration::ZERO, requests: &[] };

#[test]
fn the_second_server_follows_its_pattern() {
    let upstreams = Upstreams::start(ANY_PORT, ANY_PORT).unwrap();
    let flaky = upstreams.addresses()[1].to_string();
    let mut connection = None;
    for number in 0..80 {
        let request = if number % 2 == 0 { &LIST } else { &ADD };
        let outcome = CLIENT.send(request, &flaky, &mut connection);
        let expected = match Behaviour::of(number) {
            Behaviour::Close => Err(io::ErrorKind::UnexpectedEof),
            Behaviour::Unavailable => Ok(503),
            Behaviour::Respond | Behaviour::Slow => Ok(request.statuses[0]),
        };
        assert_eq!(outcome.map_err(|error| error.kind()), expected, "request {number}");
    }
}

#[test]
fn commands_in_another_shell_need_the_variables_of_the_configuration() {
    let set = |variables: &[(&str, &str)]| {
        export_command(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    };
    assert_eq!(set(&[("PATH", "/bin"), ("OBSERVED_FOLDER", "/tmp/copy")]), None);
    assert_eq!(
        set(&[("OBSERVED_SITE", "127.0.0.1:30080"), ("PATH", "/bin"), ("OBSERVED_RATE", "5")]).as_deref(),
        Some("export OBSERVED_RATE=5 OBSERVED_SITE=127.0.0.1:30080")
    );
}

#[test]
fn the_pattern_has_three_failures_in_sequence_one_503_and_one_slow_response() {
    let of_kind = |kind| (0..40).filter(|number| Behaviour::of(*number) == kind).collect::<Vec<u64>>();
    assert_eq!(of_kind(Behaviour::Close), [10, 11, 12]);
    assert_eq!(of_kind(Behaviour::Unavailable), [20]);
    assert_eq!(of_kind(Behaviour::Slow), [30]);
    assert_eq!(Behaviour::of(50), Behaviour::Close, "the pattern begins again");
}

#[test]
fn the_first_server_responds_to_all_requests() {
    let upstreams = Upstreams::start(ANY_PORT, ANY_PORT).unwrap();
    let steady = upstreams.addresses()[0].to_string();
    let mut connection = None;
    for _ in 0..20 {
        assert_eq!(CLIENT.send(&LIST, &steady, &mut connection).unwrap(), 200);
        assert_eq!(CLIENT.send(&ADD, &steady, &mut connection).unwrap(), 201);
    }
}

#[test]
fn the_command_line_has_an_optional_time() {
    let of = |arguments: &[&str]| crate::seconds(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(of(&["--seconds", "5"]), Ok(Some(5)));
    assert!(of(&["--seconds", "x"]).is_err() && of(&["5"]).is_err());
}
