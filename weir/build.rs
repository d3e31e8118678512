//! Names the build for `weir --version`, the commit and the profile of cargo; and lays out the program.
//!
//! The commit is `WEIR_COMMIT` where that is set, as a package build from a tarball does; else the commit that git has checked
//! out here; else `unknown`. Changes that are not committed do not show. After a commit cargo compiles this crate again and no
//! other.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Digits of a commit that are kept. Twelve are unique in a repository of any size.
const DIGITS: usize = 12;

/// The word for a commit that nothing names.
const UNKNOWN: &str = "unknown";

/// Files of git that change when another commit is checked out.
const WATCHED: [&str; 3] = ["HEAD", "logs/HEAD", "packed-refs"];

fn main() {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the folder of the package")).join("..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names the output folder"));
    // Code that seldom runs stands apart from all other: of a gateway at rest 0.6 MiB less are in memory.
    println!("cargo:rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=WEIR_COMMIT");
    for file in watched(&root) {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    println!("cargo:rustc-env=WEIR_COMMIT={}", commit(&root, env::var("WEIR_COMMIT").ok().as_deref()));
    let fallback = env::var("PROFILE").unwrap_or_default();
    println!("cargo:rustc-env=WEIR_PROFILE={}", profile(&out).unwrap_or(&fallback));
}

/// The first digits of `named`, else of the commit that is checked out at `root`.
pub(crate) fn commit(root: &Path, named: Option<&str>) -> String {
    let named = named.map(str::trim).filter(|commit| !commit.is_empty()).map(str::to_owned);
    let commit = named.or_else(|| checked_out(root)).unwrap_or_else(|| UNKNOWN.to_owned());
    // A line end would become a command for cargo.
    commit.chars().filter(char::is_ascii_alphanumeric).take(DIGITS).collect()
}

/// A tree from a tarball may lie within the repository of something else, whose commit says nothing about the tree.
fn checked_out(root: &Path) -> Option<String> {
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    let is_ours = top.canonicalize().ok()? == root.canonicalize().ok()?;
    is_ours.then(|| git(root, &["rev-parse", "HEAD"])).flatten()
}

/// Only files that exist: cargo runs the script at each build for one that does not.
pub(crate) fn watched(root: &Path) -> Vec<PathBuf> {
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    let names = WATCHED.into_iter().chain(branch.as_deref());
    let paths = names.filter_map(|name| git(root, &["rev-parse", "--git-path", name]));
    paths.map(|path| root.join(path)).filter(|path| path.is_file()).collect()
}

/// Output of git; `None` if git is missing or fails.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// `debug`, `release`, `dist`: the output folder is `PROFILE/build/PACKAGE/out`. The variable of that name knows two profiles only.
pub(crate) fn profile(out: &Path) -> Option<&str> {
    let build = out.ancestors().nth(2).filter(|folder| folder.ends_with("build"))?;
    build.parent()?.file_name()?.to_str()
}
