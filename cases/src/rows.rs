//! Parses the case files into rows. An error has the file and the line.

use crate::escape::unescape;
use crate::verdict::Verdict;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fmt, fs, mem};

/// One row of a case file.
#[derive(Clone, Debug)]
pub struct Case {
    /// The expected behaviour in words; unique among all rows.
    pub name: String,
    /// The section that requires it, for example `RFC 9112 §6.3`.
    pub section: String,
    /// The path of the file, relative to the crate's folder.
    pub file: String,
    /// The line number of the name, counted from 1.
    pub line: usize,
    /// The bytes that the client sends.
    pub raw: Vec<u8>,
    /// The expected verdicts, one for each message.
    pub verdicts: Vec<Verdict>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} ({})", self.file, self.line, self.name, self.section)
    }
}

/// A syntax error in a case file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// The file.
    pub file: String,
    /// The line number, counted from 1.
    pub line: usize,
    /// The error in one sentence.
    pub text: String,
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// Loads the rows of all files, in the order of the file names.
///
/// # Panics
/// If a file cannot be read or parsed, or if two rows have one name. The message has file and line.
pub fn load_cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cases = Vec::new();
    for path in find_case_files(root) {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let file = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        cases.extend(parse_cases(&file, &text).unwrap_or_else(|problem| panic!("{problem}")));
    }
    let mut names = HashSet::new();
    for case in &cases {
        assert!(names.insert(&case.name), "{case}: this name is not unique");
    }
    cases
}

/// Lists the text files in the folders of `root`, sorted.
fn find_case_files(root: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let listing = fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
        listing.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    // The rows of `proxy/` are responses; `checks/proxy.py` reads them.
    let folders = entries(root).into_iter().filter(|path| path.is_dir() && !path.ends_with("proxy"));
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| entries(&folder)).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}

/// Parses the rows of one file.
///
/// # Errors
/// The first line that does not follow the format in the [crate's documentation](crate).
pub fn parse_cases(file: &str, text: &str) -> Result<Vec<Case>, CaseError> {
    let mut cases = Vec::new();
    let mut row: Vec<(usize, &str)> = Vec::new();
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    for (number, line) in lines.chain([(0, "")]) {
        if line.is_empty() && !row.is_empty() {
            cases.push(parse_row(file, &mem::take(&mut row))?);
        } else if !line.is_empty() && !line.starts_with('#') {
            row.push((number, line));
        }
    }
    Ok(cases)
}

fn parse_row(file: &str, row: &[(usize, &str)]) -> Result<Case, CaseError> {
    let (line, title) = row[0];
    let problem = |line: usize, text: String| CaseError { file: file.to_owned(), line, text };
    let (name, section) = title
        .split_once("  ")
        .map(|(name, section)| (name.trim(), section.trim()))
        .filter(|(name, section)| !name.is_empty() && section.starts_with("RFC "))
        .ok_or_else(|| problem(line, "a row must begin with its name, two spaces and `RFC`".to_owned()))?;
    let mut case = Case {
        name: name.to_owned(),
        section: section.to_owned(),
        file: file.to_owned(),
        line,
        raw: Vec::new(),
        verdicts: Vec::new(),
    };
    for &(number, text) in &row[1..] {
        add_line(&mut case, text).map_err(|text| problem(number, text))?;
    }
    if case.raw.is_empty() || case.verdicts.is_empty() {
        return Err(problem(line, "a row must have bytes and a verdict".to_owned()));
    }
    Ok(case)
}

fn add_line(case: &mut Case, text: &str) -> Result<(), String> {
    let (mark, rest) = text.split_once(' ').unwrap_or((text, ""));
    match mark {
        ">" | ">-" if !case.verdicts.is_empty() => Err("bytes must precede the verdicts".to_owned()),
        ">" => {
            case.raw.extend(unescape(rest)?);
            case.raw.extend_from_slice(b"\r\n");
            Ok(())
        }
        ">-" => {
            case.raw.extend(unescape(rest)?);
            Ok(())
        }
        "=" if case.verdicts.last().is_some_and(Verdict::is_last) => {
            Err("nothing is read after the previous verdict".to_owned())
        }
        "=" => {
            case.verdicts.push(Verdict::parse(rest)?);
            Ok(())
        }
        _ => Err("a line must begin with `>`, `>-`, `=` or `#`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_has_bytes_and_verdicts() {
        let text = "# comment\n\none row  RFC 9112 §3\n> GET / HTTP/1.1\n>\n>- x\\0\n= accept GET / keep\n= wait\n";
        let cases = parse_cases("f.txt", text).unwrap();
        assert_eq!(cases.len(), 1);
        assert_eq!((cases[0].name.as_str(), cases[0].section.as_str(), cases[0].line), ("one row", "RFC 9112 §3", 3));
        assert_eq!(cases[0].raw, b"GET / HTTP/1.1\r\n\r\nx\0");
        assert_eq!(cases[0].verdicts.len(), 2);
    }

    #[test]
    fn errors_have_file_and_line() {
        for (text, line) in [
            ("no section\n> x\n= wait", 1),
            ("a  RFC 1\n= wait", 1),
            ("a  RFC 1\n> x", 1),
            ("a  RFC 1\n> x\\q\n= wait", 2),
            ("a  RFC 1\n> x\n= perhaps", 3),
            ("a  RFC 1\n> x\n= wait\n> y", 4),
            ("a  RFC 1\n> x\n= reject ContentLengthWithTransferEncoding 400 close\n= wait", 4),
            ("a  RFC 1\nx\n= wait", 2),
        ] {
            let problem = parse_cases("f.txt", text).unwrap_err();
            assert_eq!((problem.file.as_str(), problem.line), ("f.txt", line), "{text}: {problem}");
        }
    }
}
