//! The control files of the package: name, version, dependencies, configuration files, checksums.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::command::{command, output};
use crate::workspace::Workspace;

/// Files of an administrator, which an upgrade keeps.
const CONFIGURATION: &str = "/etc/logrotate.d/weir\n/etc/weir/weir.toml\n";

/// The maintainer, if neither `DEBFULLNAME` nor `DEBEMAIL` names one: a name that is clearly no real address.
const MAINTAINER: (&str, &str) = ("Authors of Weir", "nobody@weir.invalid");

/// Debian's word for this machine, such as `amd64`.
///
/// # Errors
/// dpkg is missing.
pub fn architecture() -> Result<String> {
    Ok(output(&mut command(Path::new("/"), &["dpkg", "--print-architecture"]))?.trim().to_owned())
}

/// The version of the package: the wanted one, or that of the program.
///
/// # Errors
/// dpkg could not compare it with others.
pub fn version(workspace: &Workspace, wanted: Option<&str>) -> Result<String> {
    let packages = workspace.metadata.workspace_packages();
    let own = packages.iter().find(|package| package.name == "weir").context("the package weir")?;
    let version = wanted.map_or_else(|| own.version.to_string(), str::to_owned);
    output(&mut command(Path::new("/"), &["dpkg", "--validate-version", &version]))?;
    Ok(version)
}

/// Writes them for the staged tree.
///
/// # Errors
/// The program in the tree is missing or names no version of the C library.
pub fn write(stage: &Path, version: &str) -> Result<()> {
    let folder = stage.join("DEBIAN");
    let program = fs::read(stage.join("usr/bin/weir")).context("the program")?;
    let c_library = glibc(&program).context("the program is linked with no version of the GNU C library")?;
    let size = output(&mut command(stage, &["du", "--summarize", "--apparent-size", "--exclude=DEBIAN", "."]))?;
    let size = size.split_whitespace().next().context("du prints a size")?.to_owned();
    let named = |variable, otherwise: &str| std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned());
    let (name, address) = (named("DEBFULLNAME", MAINTAINER.0), named("DEBEMAIL", MAINTAINER.1));
    let architecture = architecture()?;
    let text = format!(
        "Package: weir\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {name} <{address}>\n\
         Installed-Size: {size}\nDepends: libc6 (>= {c_library}), libgcc-s1, passwd, init-system-helpers (>= 1.54~)\n\
         Recommends: ca-certificates\nSuggests: logrotate\nSection: net\nPriority: optional\n\
         Description: gateway for Redis, HTTP and TCP that measures what passes through it\n \
         Weir accepts connections of Redis, HTTP/1.1, HTTP/2, gRPC, WebSocket and TCP,\n \
         with limits on everything, and passes them on to servers. It reloads and\n \
         upgrades without losing a connection, and has its own load generator.\n"
    );
    fs::write(folder.join("control"), text)?;
    fs::write(folder.join("conffiles"), CONFIGURATION)?;
    let sums = ["sh", "-c", "find etc usr -type f | LC_ALL=C sort | xargs -d '\\n' md5sum"];
    let sums = output(&mut command(stage, &sums))?;
    ensure!(sums.contains("usr/bin/weir"), "the program has no checksum");
    fs::write(folder.join("md5sums"), sums)?;
    Ok(())
}

/// The newest version of the GNU C library that a program needs: its symbols name one each.
fn glibc(program: &[u8]) -> Option<String> {
    const PREFIX: &[u8] = b"GLIBC_2.";
    let versions = program.windows(PREFIX.len()).enumerate().filter(|(_, bytes)| *bytes == PREFIX).map(|(at, _)| {
        let digits = program[at + PREFIX.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_u32, |number, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
    });
    versions.max().map(|minor| format!("2.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_needed_version_of_the_c_library_counts() {
        assert_eq!(glibc(b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0").as_deref(), Some("2.34"));
        assert_eq!(glibc(b"\x7fELF"), None);
    }

    #[test]
    fn a_version_that_dpkg_cannot_compare_is_refused() {
        let workspace = Workspace::load().expect("cargo describes the workspace");
        assert_eq!(version(&workspace, None).expect("a version"), env!("CARGO_PKG_VERSION"));
        assert_eq!(version(&workspace, Some("0.1.0+git1")).expect("a version"), "0.1.0+git1");
        assert!(version(&workspace, Some("v 1")).is_err());
    }
}
