//! Standard output and standard error.

/// Prints a text to standard output.
#[allow(clippy::print_stdout, reason = "the command line prints its results here")]
pub(crate) fn print(text: &str) {
    println!("{text}");
}

/// Prints an error to standard error.
#[allow(clippy::print_stderr, reason = "the command line prints its errors here")]
pub(crate) fn report_error(text: &str) {
    eprintln!("{text}");
}
