//! `selvedge completions`.

use crate::cli::{self, CompletedShell};
use clap_complete::{Shell, generate};
use std::io::{self, Write};

/// Prints the completions of the command line for a shell.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn print(shell: CompletedShell) -> Result<(), String> {
    io::stdout().write_all(&script(shell)).map_err(|error| format!("cannot write the completions: {error}"))
}

fn script(shell: CompletedShell) -> Vec<u8> {
    let shell = match shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut cli::command(), "selvedge", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_completes_commands_and_options() {
        for shell in [CompletedShell::Bash, CompletedShell::Zsh, CompletedShell::Fish] {
            let script = String::from_utf8(script(shell)).expect("a script is text");
            for part in ["hash-password", "clean-urls", "reopen-logs"] {
                assert!(script.contains(part), "{shell:?}: {part}");
            }
        }
    }
}
