//! Reads the files: text in, rows or a problem with file and line out.

use crate::escape::unescape;
use crate::verdict::Verdict;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fmt, fs, mem};

/// One row of a file.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is expected, in words; no other row has the same.
    pub name: String,
    /// The section that decides, as `RFC 9112 §6.3`.
    pub section: String,
    /// The file, beneath the folder of the cases.
    pub file: String,
    /// The line of the name.
    pub line: usize,
    /// What the client sends.
    pub raw: Vec<u8>,
    /// What becomes of it, message by message.
    pub verdicts: Vec<Verdict>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} ({})", self.file, self.line, self.name, self.section)
    }
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// One sentence.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// All rows of all files, in the order of the files' names.
///
/// # Panics
/// When a file cannot be read, with its name and the line, or when two rows share a name.
pub fn load() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cases = Vec::new();
    for path in files(root) {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        cases.extend(parse(&file, &text).unwrap_or_else(|problem| panic!("{problem}")));
    }
    let mut names = HashSet::new();
    for case in &cases {
        assert!(names.insert(&case.name), "{case}: another row has this name");
    }
    cases
}

/// The text files in the folders beneath `root`, sorted.
fn files(root: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let listing = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        listing.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let folders = entries(root).into_iter().filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| entries(&folder)).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}

/// The rows of one file.
///
/// # Errors
/// The first line that is not as the [crate's documentation](crate) says.
pub fn parse(file: &str, text: &str) -> Result<Vec<Case>, Problem> {
    let mut cases = Vec::new();
    let mut row: Vec<(usize, &str)> = Vec::new();
    let lines = text.lines().enumerate().map(|(place, line)| (place + 1, line));
    for (number, line) in lines.chain([(0, "")]) {
        if line.is_empty() && !row.is_empty() {
            cases.push(parse_row(file, &mem::take(&mut row))?);
        } else if !line.is_empty() && !line.starts_with('#') {
            row.push((number, line));
        }
    }
    Ok(cases)
}

fn parse_row(file: &str, row: &[(usize, &str)]) -> Result<Case, Problem> {
    let (line, title) = row[0];
    let problem = |line: usize, text: String| Problem { file: file.to_owned(), line, text };
    let (name, section) = title
        .split_once("  ")
        .map(|(name, section)| (name.trim(), section.trim()))
        .filter(|(name, section)| !name.is_empty() && section.starts_with("RFC "))
        .ok_or_else(|| problem(line, "a row begins with its name, two spaces and `RFC`".to_owned()))?;
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
        return Err(problem(line, "a row has bytes and a verdict".to_owned()));
    }
    Ok(case)
}

fn add_line(case: &mut Case, text: &str) -> Result<(), String> {
    let (mark, rest) = text.split_once(' ').unwrap_or((text, ""));
    match mark {
        ">" | ">-" if !case.verdicts.is_empty() => Err("bytes stand before verdicts".to_owned()),
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
            Err("nothing is read after the verdict before this one".to_owned())
        }
        "=" => {
            case.verdicts.push(Verdict::parse(rest)?);
            Ok(())
        }
        _ => Err("a line begins with `>`, `>-`, `=` or `#`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_its_bytes_and_its_verdicts() {
        let text = "# comment\n\none row  RFC 9112 §3\n> GET / HTTP/1.1\n>\n>- x\\0\n= accept GET / keep\n= wait\n";
        let cases = parse("f.txt", text).unwrap();
        assert_eq!(cases.len(), 1);
        assert_eq!((cases[0].name.as_str(), cases[0].section.as_str(), cases[0].line), ("one row", "RFC 9112 §3", 3));
        assert_eq!(cases[0].raw, b"GET / HTTP/1.1\r\n\r\nx\0");
        assert_eq!(cases[0].verdicts.len(), 2);
    }

    #[test]
    fn problems_name_file_and_line() {
        for (text, line) in [
            ("no section\n> x\n= wait", 1),
            ("a  RFC 1\n= wait", 1),
            ("a  RFC 1\n> x", 1),
            ("a  RFC 1\n> x\\q\n= wait", 2),
            ("a  RFC 1\n> x\n= perhaps", 3),
            ("a  RFC 1\n> x\n= wait\n> y", 4),
            ("a  RFC 1\n> x\n= reject TwoFramings 400 close\n= wait", 4),
            ("a  RFC 1\nx\n= wait", 2),
        ] {
            let problem = parse("f.txt", text).unwrap_err();
            assert_eq!((problem.file.as_str(), problem.line), ("f.txt", line), "{text}: {problem}");
        }
    }
}
