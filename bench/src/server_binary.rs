//! Finds or builds the binaries of the servers, and reads their versions.

use crate::names::{AXUM, SELVEDGE, bench_folder};
use crate::process::probe::is_installed;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source of a server's binary.
pub(crate) enum ServerBinary {
    /// Built from the workspace.
    Selvedge,
    /// An installed program with this name.
    Program(&'static str),
    /// Compiled from a C file below `peers/`.
    C(&'static str),
    /// Compiled from a Haskell file below `peers/`.
    Haskell(&'static str),
    /// A program of the workspace `peers/rust`, built by cargo.
    Rust(&'static str),
}

impl ServerBinary {
    /// Finds or builds the binary, and returns its path.
    ///
    /// # Errors
    /// If the program is not installed or the build fails.
    pub(crate) fn locate(&self, work: &Path) -> Result<PathBuf> {
        let built = work.join("peers");
        fs::create_dir_all(&built)?;
        match *self {
            Self::Selvedge => build_selvedge(),
            Self::Program(name) => find_program(name),
            Self::C(source) => {
                let program = built.join("baseline-epoll");
                let source = bench_folder().join("peers").join(source);
                build(Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source))?;
                Ok(program)
            }
            Self::Haskell(source) => {
                let (source, program) = (bench_folder().join("peers").join(source), built.join("warp"));
                if !is_newer(&program, &source) {
                    let objects = built.join("haskell");
                    build(
                        Command::new("ghc")
                            .args(["-v0", "-O2", "-threaded", "-rtsopts", "-outputdir"])
                            .arg(objects)
                            .arg("-o")
                            .arg(&program)
                            .arg(source),
                    )?;
                }
                Ok(program)
            }
            Self::Rust(name) => {
                let manifest = bench_folder().join("peers/rust/Cargo.toml");
                build(
                    Command::new("cargo")
                        .args(["build", "--release", "--quiet", "--locked", "--bin", name, "--manifest-path"])
                        .arg(manifest)
                        .arg("--target-dir")
                        .arg(&built),
                )?;
                Ok(built.join("release").join(name))
            }
        }
    }

    /// Returns the version of a program: from a lock file or package, or the first line of its output for the
    /// arguments `version_arguments`.
    pub(crate) fn version(&self, program: &Path, version_arguments: &[&str]) -> String {
        match *self {
            Self::Rust(name) => locked_version(name),
            Self::C(_) => "this workspace".to_owned(),
            Self::Haskell(_) => {
                first_output_line(Command::new("ghc-pkg").args(["field", "warp", "version", "--simple-output"]))
            }
            Self::Selvedge | Self::Program(_) => first_output_line(Command::new(program).args(version_arguments)),
        }
    }
}

/// Builds the server of this workspace, or returns the path in the variable `SELVEDGE`.
fn build_selvedge() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("SELVEDGE") {
        return Ok(program.into());
    }
    let workspace = bench_folder().parent().context("the bench is not in a workspace")?;
    build(
        Command::new("cargo").args(["build", "--release", "--quiet", "-p", "selvedge-server"]).current_dir(workspace),
    )?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    Ok(target.join("release/selvedge"))
}

/// Finds an installed program. Debian installs servers in `sbin`, which is not in the `PATH` of ordinary users.
fn find_program(name: &str) -> Result<PathBuf> {
    let mut directories: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    directories.extend(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    directories.into_iter().map(|directory| directory.join(name)).find(|path| path.is_file()).context("not installed")
}

fn build(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    if !is_installed(&name) {
        bail!("{name} is not installed");
    }
    let out = command.output().with_context(|| format!("cannot run {name}"))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        bail!("{name} failed: {}", text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no error output"));
    }
    Ok(())
}

fn is_newer(product: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified()).ok();
    time(product).is_some_and(|made| time(source).is_none_or(|written| made >= written))
}

/// Runs a program and returns the first line of its output.
fn first_output_line(command: &mut Command) -> String {
    let Ok(out) = command.output() else { return "unknown".to_owned() };
    let text = [out.stdout, out.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown").to_owned()
}

/// Returns the version of the library of a small Rust program, from the lock file.
fn locked_version(program: &str) -> String {
    let library = match program {
        "peer-hyper" => "hyper",
        "peer-axum" => AXUM,
        "peer-axum-selvedge" => SELVEDGE,
        "peer-actix" => "actix-web",
        _ => "tokio",
    };
    let lock = fs::read_to_string(bench_folder().join("peers/rust/Cargo.lock")).unwrap_or_default();
    let wanted = format!("name = \"{library}\"");
    let mut lines = lock.lines().skip_while(|line| *line != wanted);
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = ")).unwrap_or("unknown");
    format!("{library} {}", version.trim_matches('"'))
}
