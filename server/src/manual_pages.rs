//! `selvedge manual-pages`.

use crate::cli;
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::Path;

/// Writes the manual page of each command to a folder, which is created if it is missing.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn write(folder: &Path) -> Result<(), String> {
    let failed = |path: &Path, error: io::Error| format!("cannot write {}: {error}", path.display());
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (name, page) in pages().map_err(|error| failed(folder, error))? {
        let file = folder.join(name);
        fs::write(&file, page).map_err(|error| failed(&file, error))?;
    }
    Ok(())
}

/// Returns the file name and the text of each page.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = vec![("selvedge.1".to_owned(), page(command.clone())?)];
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("selvedge-{}", sub.get_name());
        pages.push((format!("{name}.1"), page(sub.clone().name(name))?));
    }
    Ok(pages)
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let pages = pages().expect("writing to memory does not fail");
        for command in cli::command().get_subcommands() {
            let name = format!("selvedge-{}.1", command.get_name());
            let (_, page) = pages.iter().find(|(own, _)| *own == name).unwrap_or_else(|| panic!("{name} is missing"));
            let text = String::from_utf8_lossy(page);
            assert!(text.contains(".TH") && text.contains(".SH SYNOPSIS"), "{name}: {text}");
        }
        assert_eq!(pages[0].0, "selvedge.1");
    }
}
