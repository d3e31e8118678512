//! Debian packages: installed only when the program is missing, and without starting a service.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::run_with_retries;
use weir_parties::exists;
use weir_parties::peer::find_program;

/// Redis 7.0 on Debian 12.
const REDIS_PACKAGES: &[&str] = &["redis-server", "redis-tools"];
/// What people use by hand.
const HTTP_PACKAGES: &[&str] = &["curl"];
/// Debian calls twemproxy nutcracker. wrk is the load of `bench http`.
const PEER_PACKAGES: &[&str] = &["haproxy", "nutcracker", "nginx", "wrk"];
/// nghttp and h2load.
const HTTP2_PACKAGES: &[&str] = &["nghttp2-client"];
/// The browser, without a window.
const BROWSER_PACKAGES: &[&str] = &["chromium"];
/// For the C parts of aws-lc and libFuzzer.
const COMPILER_PACKAGES: &[&str] = &["gcc", "g++", "make"];
/// Redis's own tests are Tcl and come as a source package.
const SOURCE_PACKAGES: &[&str] = &["tcl", "dpkg-dev"];

/// `invoke-rc.d` asks this file before it starts a service; status 101 means "do not".
const POLICY_FILE: &str = "/usr/sbin/policy-rc.d";

/// The servers and tools of Redis 7.0, and curl.
pub fn ensure_servers() -> Result<()> {
    if !exists("redis-server") || !exists("redis-cli") {
        install(REDIS_PACKAGES)?;
    }
    if !exists("curl") {
        install(HTTP_PACKAGES)?;
    }
    Ok(())
}

/// The gateways that the lab compares with, and wrk. Envoy comes with the Python environment.
pub fn ensure_peers() -> Result<()> {
    // Each has its package's name.
    if PEER_PACKAGES.iter().all(|name| find_program(name).is_some()) {
        return Ok(());
    }
    install(PEER_PACKAGES)
}

/// Clients of HTTP/2.
pub fn ensure_http2() -> Result<()> {
    if exists("nghttp") && exists("h2load") {
        return Ok(());
    }
    install(HTTP2_PACKAGES)
}

/// A browser.
pub fn ensure_browser() -> Result<()> {
    if exists("chromium") {
        return Ok(());
    }
    install(BROWSER_PACKAGES)
}

/// A C and a C++ compiler.
pub fn ensure_compiler() -> Result<()> {
    if exists("cc") && exists("c++") {
        return Ok(());
    }
    install(COMPILER_PACKAGES)
}

/// Tcl, and what unpacks a source package.
pub fn ensure_source_tools() -> Result<()> {
    if exists("tclsh") && exists("dpkg-source") {
        return Ok(());
    }
    install(SOURCE_PACKAGES)
}

/// Support for virtual environments where the distribution splits it from Python.
pub fn ensure_venv() -> Result<()> {
    install(&["python3-venv"])
}

fn install(packages: &[&str]) -> Result<()> {
    if !exists("apt-get") {
        bail!("the tests need [{}]; this system has no apt-get: install them by hand", packages.join(", "));
    }
    let root = Path::new("/");
    let quiet = [("DEBIAN_FRONTEND", "noninteractive")];
    let _held_back = ServicesHeldBack::begin()?;
    run_with_retries(root, &["apt-get", "update", "-q"], &quiet)?;
    let mut words = vec!["apt-get", "install", "-y", "-q", "--no-install-recommends"];
    words.extend(packages);
    run_with_retries(root, &words, &quiet)
        .with_context(|| format!("the tests need [{}]; run as root or install them by hand", packages.join(", ")))
}

/// While this lives, package scripts start no service: the tests start servers of their own on
/// free ports, and a system Redis on its default port is no business of theirs.
struct ServicesHeldBack {
    /// The file to remove; `None` if the administrator already has a policy of their own.
    written: Option<PathBuf>,
}

impl ServicesHeldBack {
    fn begin() -> Result<Self> {
        let path = PathBuf::from(POLICY_FILE);
        if path.exists() {
            return Ok(Self { written: None });
        }
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(&path, "#!/bin/sh\nexit 101\n")
            .with_context(|| format!("cannot write {POLICY_FILE}: installing packages takes root"))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { written: Some(path) })
    }
}

impl Drop for ServicesHeldBack {
    fn drop(&mut self) {
        if let Some(path) = &self.written
            && let Err(error) = std::fs::remove_file(path)
        {
            eprintln!("setup: {} must be removed by hand: {error}", path.display());
        }
    }
}
