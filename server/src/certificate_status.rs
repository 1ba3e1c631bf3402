//! The output of `selvedge certificates`, as text or JSON.

use crate::certificates::CertificateStatus;
use crate::process::StatusFormat;
use std::fmt::Write;

/// Formats the state of certificates at a time in Unix seconds.
pub(crate) fn format(all: &[CertificateStatus], format: StatusFormat, now: i64) -> String {
    match format {
        StatusFormat::Json => serde_json::to_string(all).expect("the state has texts and numbers only"),
        StatusFormat::Text if all.is_empty() => "the server gets no certificate by itself".to_owned(),
        StatusFormat::Text => text(all, now),
    }
}

fn text(all: &[CertificateStatus], now: i64) -> String {
    let width = all.iter().map(|status| status.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for CertificateStatus { name, source, expires, last_error, next_attempt, record } in all {
        let state = match expires {
            Some(until) if *until < now => "expired".to_owned(),
            Some(until) => format!("valid for {}", duration(until - now)),
            None => "none yet".to_owned(),
        };
        // A write to a text cannot fail.
        let _ = writeln!(text, "{name:width$}  {source:5}  {state}");
        if let Some(error) = last_error {
            let next = next_attempt.map(|at| format!("; next attempt in {}", duration((at - now).max(0))));
            let _ = writeln!(text, "{:width$}  {error}{}", "", next.unwrap_or_default());
        }
        if let Some(record) = record {
            let _ = writeln!(text, "{:width$}  {record}", "");
        }
    }
    text
}

fn duration(seconds: i64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_line_and_its_error_another() {
        let status = |name: &str, expires, error: Option<&str>| CertificateStatus {
            name: name.to_owned(),
            source: "acme",
            expires,
            last_error: error.map(str::to_owned),
            next_attempt: error.map(|_| 1060),
            record: error.map(|_| "_x.b. IN TXT \"y\"".to_owned()),
        };
        let all = [status("a.example.com", Some(1000 + 90 * 86_400), None), status("b", None, Some("it is down"))];
        let expected = "a.example.com  acme   valid for 90 days\n\
                        b              acme   none yet\n\
                        \x20              it is down; next attempt in 60 s\n\
                        \x20              _x.b. IN TXT \"y\"\n";
        assert_eq!(format(&all, StatusFormat::Text, 1000), expected);
        assert!(format(&all, StatusFormat::Json, 1000).contains(r#""next_attempt":1060"#));
        assert_eq!(format(&[], StatusFormat::Text, 1000), "the server gets no certificate by itself");
    }
}
