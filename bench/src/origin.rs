//! Where servers come from: found or built, and what they say of their version.

use crate::process::probe::installed;
use crate::servers::{AXUM, SELVEDGE, bench_folder};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a server comes from.
pub(crate) enum Origin {
    /// The workspace.
    Selvedge,
    /// Installed programs, by name.
    Program(&'static str),
    /// A C file under `peers/`.
    C(&'static str),
    /// A Haskell file under `peers/`.
    Haskell(&'static str),
    /// A program of the workspace `peers/rust`.
    Rust(&'static str),
}

impl Origin {
    /// Finds or builds it.
    ///
    /// # Errors
    /// When it is not here.
    pub(crate) fn locate(&self, work: &Path) -> Result<PathBuf> {
        let built = work.join("peers");
        fs::create_dir_all(&built)?;
        match *self {
            Self::Selvedge => selvedge(),
            Self::Program(name) => program(name),
            Self::C(source) => {
                let program = built.join("floor");
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

    /// What a program of this origin says of its version, when it is asked with these words.
    pub(crate) fn version(&self, program: &Path, asked: &[&str]) -> String {
        match *self {
            Self::Rust(name) => locked_version(name),
            Self::C(_) => "this workspace".to_owned(),
            Self::Haskell(_) => output(Command::new("ghc-pkg").args(["field", "warp", "version", "--simple-output"])),
            Self::Selvedge | Self::Program(_) => output(Command::new(program).args(asked)),
        }
    }
}

/// The server of this workspace, built now, or the one that `SELVEDGE` names.
fn selvedge() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("SELVEDGE") {
        return Ok(program.into());
    }
    let workspace = bench_folder().parent().context("the workspace")?;
    build(
        Command::new("cargo").args(["build", "--release", "--quiet", "-p", "selvedge-server"]).current_dir(workspace),
    )?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    Ok(target.join("release/selvedge"))
}

/// An installed program; Debian keeps servers where only root looks.
fn program(name: &str) -> Result<PathBuf> {
    let mut places: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    places.extend(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    places.into_iter().map(|place| place.join(name)).find(|path| path.is_file()).context("not installed")
}

fn build(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    if !installed(&name) {
        bail!("{name} is not installed");
    }
    let out = command.output().with_context(|| format!("running {name}"))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        bail!("{name} failed: {}", text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing"));
    }
    Ok(())
}

fn is_newer(product: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified()).ok();
    time(product).is_some_and(|made| time(source).is_none_or(|written| made >= written))
}

/// The first line that a program says.
fn output(command: &mut Command) -> String {
    let Ok(out) = command.output() else { return "unknown".to_owned() };
    let text = [out.stdout, out.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown").to_owned()
}

/// The version of the library under one of the small Rust programs, from their lock file.
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
