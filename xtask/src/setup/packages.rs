//! Debian packages: installed only when the program is missing, all in one step, and without starting a service.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Part, run_with_retries};
use crate::command::{command, output};
use weir_parties::exists;
use weir_parties::peer::find_program;

/// Programs that a part takes from Debian, and the package of each.
fn programs(part: Part) -> &'static [(&'static str, &'static str)] {
    match part {
        // For libFuzzer.
        Part::Compiler => &[("cc", "gcc"), ("c++", "g++")],
        // Redis 7.0 on Debian 12, and the programs that a reader of the tutorials uses by hand, in a network of their own.
        Part::Servers => &[
            ("redis-server", "redis-server"),
            ("redis-cli", "redis-tools"),
            ("curl", "curl"),
            ("openssl", "openssl"),
            ("pkill", "procps"),
            ("ip", "iproute2"),
        ],
        // Debian calls twemproxy nutcracker. Envoy comes with the Python environment. The others are load programs of `weir lab`,
        // and what makes a certificate for it.
        Part::Peers => &[
            ("haproxy", "haproxy"),
            ("nutcracker", "nutcracker"),
            ("nginx", "nginx"),
            ("wrk", "wrk"),
            ("h2load", "nghttp2-client"),
            ("redis-benchmark", "redis-tools"),
            ("openssl", "openssl"),
        ],
        Part::Http2 => &[("nghttp", "nghttp2-client"), ("h2load", "nghttp2-client")],
        Part::Browser => &[("chromium", "chromium")],
        Part::Prometheus => &[("prometheus", "prometheus"), ("promtool", "prometheus")],
        Part::Packaging => &[
            ("systemd-analyze", "systemd"),
            ("ip", "iproute2"),
            ("logrotate", "logrotate"),
            ("pgrep", "procps"),
            ("strip", "binutils"),
            ("man", "man-db"),
            ("zsh", "zsh"),
            ("fish", "fish"),
        ],
        // Redis's own tests are Tcl and come as a source package.
        Part::RedisSuite => &[
            ("redis-cli", "redis-tools"),
            ("redis-benchmark", "redis-tools"),
            ("tclsh", "tcl"),
            ("dpkg-source", "dpkg-dev"),
        ],
        // Debian keeps the server's own programs off the PATH, a folder for each major.
        Part::Postgres => &[
            ("/usr/lib/postgresql/15/bin/postgres", "postgresql-15"),
            ("/usr/lib/postgresql/15/bin/pg_basebackup", "postgresql-client-15"),
            ("psql", "postgresql-client-15"),
            ("pgbouncer", "pgbouncer"),
            ("pgpool", "pgpool2"),
        ],
        Part::PostgresDrivers | Part::AsyncpgSuite | Part::AiSdks | Part::AiPeers | Part::FlagsPeer => &[],
        Part::Unleash | Part::FlagSdks | Part::S3 => &[],
        Part::Mongodb | Part::MongodbDrivers | Part::PymongoSuite => &[],
        Part::Python | Part::Node | Part::Go | Part::Java | Part::RedisPySuite | Part::GoRedisSuite => &[],
    }
}

/// `invoke-rc.d` asks this file before it starts a service; status 101 means "do not".
const POLICY_FILE: &str = "/usr/sbin/policy-rc.d";

/// Installs what `parts` need of the system, in one step.
pub fn ensure(parts: &[Part]) -> Result<()> {
    let missing = missing(parts);
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

fn missing(parts: &[Part]) -> Vec<&'static str> {
    let programs = parts.iter().flat_map(|part| programs(*part));
    let mut missing: Vec<&str> =
        programs.filter(|(program, _)| find_program(program).is_none()).map(|(_, package)| *package).collect();
    if parts.iter().any(|part| part.needs_python()) && !has_venv() {
        missing.push("python3-venv");
    }
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Debian splits the support for virtual environments from Python.
fn has_venv() -> bool {
    output(&mut command(Path::new("/"), &["python3", "-c", "import ensurepip"])).is_ok()
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
