//! The files to serve, created on disk before the first measurement.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of cold files. Together they are more than a round of the default length requests.
const COLD_COUNT: usize = 600;
const COLD_BYTES: usize = 256 * 1024;
/// The maximum number of files of the Rust documentation.
const DOCUMENTS_MAX: usize = 50_000;
/// The number of prepared picks in Zipf order; they repeat after that.
const ZIPF_PICKS: usize = 1 << 16;

/// A file of a fixed size at the top of the site.
pub(crate) struct SizedFile {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
}

/// The Warp article's file.
pub(crate) const SMALL: SizedFile = SizedFile { name: "small.html", bytes: 151 };
/// The file of the Haskell Web Server's Figure 1.
pub(crate) const KIB: SizedFile = SizedFile { name: "1k.html", bytes: 1024 };
/// The file that slow readers request.
pub(crate) const MIB: SizedFile = SizedFile { name: "1m.html", bytes: 1024 * 1024 };
/// All file sizes of the `sizes` workload.
pub(crate) const SIZES: [SizedFile; 5] = [
    KIB,
    SizedFile { name: "16k.html", bytes: 16 * 1024 },
    SizedFile { name: "64k.html", bytes: 64 * 1024 },
    MIB,
    SizedFile { name: "100m.html", bytes: 100 * 1024 * 1024 },
];

/// The content of the `hello` workload; the baseline servers read it from a file.
pub(crate) const HELLO: &str = "HELLO, WORLD";

/// The directory that is served.
pub(crate) struct BenchSite {
    pub(crate) root: PathBuf,
}

impl BenchSite {
    /// Creates missing files below `root`.
    pub(crate) fn create(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(root.join("cold"))?;
        for SizedFile { name, bytes } in [SMALL].iter().chain(&SIZES) {
            create_file(&root.join(name), *bytes)?;
        }
        create_file(&root.join("hello"), 0)?;
        fs::write(root.join("hello"), HELLO)?;
        for number in 0..COLD_COUNT {
            create_file(&root.join(cold_name(number)), COLD_BYTES)?;
        }
        Ok(Self { root })
    }

    /// Opens the cold files and returns them with their paths.
    pub(crate) fn cold_files(&self) -> Result<Vec<(File, String)>> {
        (0..COLD_COUNT)
            .map(|number| {
                let name = cold_name(number);
                Ok((File::open(self.root.join(&name)).context("cannot open a cold file")?, format!("/{name}")))
            })
            .collect()
    }

    /// Mirrors the Rust documentation below the root, and returns its paths and a Zipf order of them.
    pub(crate) fn documents(&self) -> Result<(Vec<String>, Vec<u32>)> {
        let source = documentation()?;
        let mirror = self.root.join("docs");
        let mut paths = Vec::new();
        collect(&source, Path::new(""), &mut paths)?;
        paths.sort();
        paths.truncate(DOCUMENTS_MAX);
        if !self.root.join("docs-complete").exists() {
            for path in &paths {
                mirror_file(&source.join(path), &mirror.join(path))?;
            }
            File::create(self.root.join("docs-complete"))?;
        }
        for path in &paths {
            fs::read(mirror.join(path))?; // into the page cache: this workload does not measure the disk
        }
        let mut random = Random(0x5E1F_ED6E);
        for last in (1..paths.len()).rev() {
            paths.swap(last, random.below(last + 1));
        }
        let order = zipf(paths.len(), &mut random);
        Ok((paths.into_iter().map(|path| format!("/docs/{path}")).collect(), order))
    }
}

fn cold_name(number: usize) -> String {
    format!("cold/{number:03}.html")
}

fn create_file(path: &Path, bytes: usize) -> Result<()> {
    if fs::metadata(path).is_ok_and(|facts| facts.len() == bytes as u64) {
        return Ok(());
    }
    const LINE: &[u8] = b"<p>A selvedge is the self-finished edge that keeps cloth from fraying.</p>\n";
    let content: Vec<u8> = LINE.iter().copied().cycle().take(bytes).collect();
    let mut file = File::create(path).with_context(|| format!("{}", path.display()))?;
    file.write_all(&content)?;
    // Write the file to disk, so that the page cache can drop it.
    file.sync_all()?;
    Ok(())
}

/// Returns the directory of the installed Rust documentation.
fn documentation() -> Result<PathBuf> {
    let out =
        Command::new("rustc").args(["--print", "sysroot"]).output().context("cannot run rustc --print sysroot")?;
    let root = PathBuf::from(String::from_utf8(out.stdout)?.trim()).join("share/doc/rust/html");
    anyhow::ensure!(root.is_dir(), "the Rust documentation is not installed (rustup component add rust-docs)");
    Ok(root)
}

/// Collects the files below `under`. Skips names that need an escape in a URL, and hidden files, which some
/// servers refuse.
fn collect(root: &Path, under: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(under))? {
        let entry = entry?;
        let path = under.join(entry.file_name());
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./-_".contains(&byte));
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        match path.to_str().filter(|text| plain(text) && !hidden) {
            Some(_) if entry.file_type()?.is_dir() => collect(root, &path, found)?,
            Some(text) if entry.metadata()?.len() > 0 => found.push(text.to_owned()),
            _ => {}
        }
    }
    Ok(())
}

/// Creates a hard link to a file, or a copy if the file system does not allow links. A copy is readable for a
/// server that runs as the user `nobody`.
fn mirror_file(source: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target.parent().context("the file has no parent directory")?)?;
    if target.exists() {
        return Ok(());
    }
    if fs::hard_link(source, target).is_err() {
        fs::copy(source, target).with_context(|| format!("cannot copy {}", source.display()))?;
        fs::set_permissions(target, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Returns [`ZIPF_PICKS`] picks among `count` indices. The k-th has a probability proportional to 1/k.
fn zipf(count: usize, random: &mut Random) -> Vec<u32> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=count)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let pick = |random: &mut Random| {
        let at = random.fraction() * sum;
        u32::try_from(sums.partition_point(|limit| *limit < at).min(count - 1)).expect("the number of files fits u32")
    };
    (0..ZIPF_PICKS).map(|_| pick(random)).collect()
}

/// A generator of pseudo-random numbers with a fixed sequence (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_prefers_low_indices_and_stays_in_bounds() {
        let order = zipf(100, &mut Random(1));
        let count = |wanted: u32| order.iter().filter(|pick| **pick == wanted).count();
        assert!(count(0) > count(9) && count(9) > count(90));
        assert!(order.iter().all(|pick| *pick < 100));
    }
}
