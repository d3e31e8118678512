//! The server behind every gateway: the lab's own origin, or nginx. Both answer `/N` with a body of N bytes, and count.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use weir_parties::cpu::family;
use weir_parties::peer::{find_program, version_line};
use weir_parties::place::free_port;
use weir_parties::process::{Launch, Process};

use super::row::HttpRow;
use crate::bench::peers::Goal;
use crate::bench::peers::weir::{ask, release_build};
use crate::bench::place::Place;
use crate::workspace::Workspace;

/// Where both tell how many requests they have answered.
const COUNT_PATH: &str = "/requests";
/// What nginx writes into its configuration: a larger body is a file.
const INLINE_BYTES_MAX: usize = 2_048;

/// Which program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginKind {
    /// `weir lab origin http`.
    Lab,
    /// nginx that returns fixed text, or a file.
    Nginx,
}

impl OriginKind {
    /// By its word on the command line.
    pub(crate) fn named(word: &str) -> Result<Self> {
        match word {
            "lab" => Ok(Self::Lab),
            "nginx" => Ok(Self::Nginx),
            _ => bail!("--origin takes lab or nginx, not `{word}`"),
        }
    }
}

/// A running origin.
pub(crate) struct HttpOrigin {
    kind: OriginKind,
    process: Process,
    /// Its port on loopback.
    pub(crate) port: u16,
    /// As it calls itself.
    pub(crate) version: String,
}

impl HttpOrigin {
    /// Starts it on a port of its own.
    pub(crate) fn start(
        workspace: &Workspace,
        place: &Place,
        kind: OriginKind,
        weir_command: Option<&str>,
    ) -> Result<Self> {
        let port = free_port()?;
        let (words, version) = match kind {
            OriginKind::Lab => lab(workspace, port, weir_command)?,
            OriginKind::Nginx => nginx(place, port)?,
        };
        let mut process = Process::start(Launch::new("origin", Some(&place.origin_cpu), words), place.path())?;
        process.wait_for_port(port)?;
        Ok(Self { kind, process, port, version })
    }

    /// The server without a gateway.
    pub(crate) fn goal(&self) -> Goal {
        Goal { port: self.port, tls_ca: None }
    }

    /// Its processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        // nginx's worker is a child of its master.
        family(self.process.id()).unwrap_or_else(|_| vec![self.process.id()])
    }

    /// Requests that it has answered.
    pub(crate) fn requests(&self) -> Result<u64> {
        let answer = ask(self.port, "GET", COUNT_PATH)?;
        ensure!(answer.status == 200, "{COUNT_PATH} of the origin gave status {}", answer.status);
        let count = match self.kind {
            OriginKind::Lab => answer.body.trim().parse().ok(),
            OriginKind::Nginx => nginx_count(&answer.body),
        };
        count.with_context(|| format!("{COUNT_PATH} of the origin gave `{}`", answer.body))
    }
}

/// The program that has the lab.
pub(crate) fn program(workspace: &Workspace, weir_command: Option<&str>) -> Result<String> {
    Ok(match weir_command {
        Some(command) => command.split_whitespace().next().context("--weir-command names a program")?.to_owned(),
        None => release_build(workspace)?.to_string_lossy().into_owned(),
    })
}

/// The command, and the version.
fn lab(workspace: &Workspace, port: u16, weir_command: Option<&str>) -> Result<(Vec<String>, String)> {
    let program = program(workspace, weir_command)?;
    let version = format!("`weir lab origin http` of {}, one thread", version_line(&program, &["--version"]));
    let bind = format!("127.0.0.1:{port}");
    Ok(([&*program, "lab", "origin", "http", "--bind", &bind].map(str::to_owned).to_vec(), version))
}

/// Writes its configuration; the same two.
fn nginx(place: &Place, port: u16) -> Result<(Vec<String>, String)> {
    let program = find_program("nginx").context("no nginx on the PATH (Debian: apt install nginx)")?;
    let program = program.to_string_lossy().into_owned();
    let folder = place.path().join("origin");
    std::fs::create_dir(&folder)?;
    for bytes in HttpRow::sizes() {
        std::fs::write(folder.join(bytes.to_string()), "x".repeat(bytes))?;
    }
    let config = folder.join("nginx.conf");
    std::fs::write(&config, nginx_config(&folder.to_string_lossy(), port))?;
    let version = format!("{}, one worker", version_line(&program, &["-v"]));
    Ok((vec![program, "-c".into(), config.to_string_lossy().into_owned()], version))
}

fn nginx_config(folder: &str, port: u16) -> String {
    let mut text = format!(
        "user root;\ndaemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log stderr warn;\n\
         events {{ worker_connections 16384; }}\n\
         http {{\n  access_log off;\n  server_tokens off;\n  etag off;\n  sendfile on;\n  open_file_cache max=16 inactive=1h;\n  \
         keepalive_requests 1000000000;\n  keepalive_timeout 1h;\n"
    );
    // Writing to a string does not fail.
    for part in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "  {part}_temp_path {folder}/{part};");
    }
    let _ = writeln!(text, "  server {{\n    listen 127.0.0.1:{port} backlog=4096;\n    root {folder};");
    for bytes in HttpRow::sizes().into_iter().filter(|bytes| *bytes <= INLINE_BYTES_MAX) {
        let _ = writeln!(text, "    location = /{bytes} {{ return 200 \"{}\"; }}", "x".repeat(bytes));
    }
    let _ = writeln!(text, "    location = {COUNT_PATH} {{ stub_status; }}\n  }}\n}}");
    text
}

/// The third number below `server accepts handled requests`.
fn nginx_count(body: &str) -> Option<u64> {
    body.lines().nth(2)?.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_nginx_is_read() {
        let body = "Active connections: 2 \nserver accepts handled requests\n 16 16 27089 \nReading: 0 Writing: 1\n";
        assert_eq!(nginx_count(body), Some(27_089));
        assert_eq!(nginx_count("Active connections: 2"), None);
    }

    #[test]
    fn large_bodies_are_files() {
        let text = nginx_config("/f", 1);
        assert!(text.contains("location = /1024 {") && !text.contains("/65536"), "{text}");
    }
}
