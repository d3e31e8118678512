//! The configuration file that a command line means.

use std::{fmt::Write as _, fs::OpenOptions, io::Write as _, net::SocketAddr, path::Path};

use weir_engine::settings::Address;

use super::Protocol;

/// The name of the upstream in the file.
const UPSTREAM: &str = "server";

/// The configuration that a command line describes.
pub struct GeneratedConfig<'a> {
    /// Protocol of the listener.
    pub protocol: &'a Protocol,
    /// Where clients connect.
    pub listen: Address,
    /// The servers, at least one.
    pub upstreams: Vec<Address>,
    /// The servers speak TLS.
    pub is_tls: bool,
    /// Worker threads; `None`: one per core.
    pub workers: Option<u32>,
    /// The admin server; `None`: at its default address.
    pub admin: Option<SocketAddr>,
}

impl GeneratedConfig<'_> {
    /// The text of the file.
    pub fn text(&self) -> String {
        let word = self.protocol.word;
        let servers: Vec<String> = self.upstreams.iter().map(Address::to_string).collect();
        let quoted: Vec<String> = servers.iter().map(|server| quoted(server)).collect();
        let mut text = format!("# As: weir {word} {} {}{}\n", self.listen, servers.join(" "), self.flags());
        text.push_str("# Check it: weir check FILE. A key in words: weir explain KEY.\n");
        if let Some(workers) = self.workers {
            let _ = write!(text, "\n[runtime]\nworkers = {workers}\n");
        }
        if let Some(admin) = self.admin {
            let _ = write!(text, "\n[admin]\nbind = \"{admin}\"\n");
        }
        let _ = write!(
            text,
            "\n[[listener]]\nname = \"{word}\"\nprotocol = \"{word}\"\nbind = {}\nupstream = \"{UPSTREAM}\"\n{}\n\
             [[upstream]]\nname = \"{UPSTREAM}\"\nendpoints = [{}]\n",
            self::quoted(&self.listen.to_string()),
            self.protocol.listener_table,
            quoted.join(", ")
        );
        if self.is_tls {
            text.push_str("\n[upstream.tls]\n");
        }
        text
    }

    /// The flags of the command line that means this.
    fn flags(&self) -> String {
        let workers = self.workers.map(|workers| format!(" --workers {workers}"));
        let admin = self.admin.map(|admin| format!(" --admin {admin}"));
        let tls = self.is_tls.then(|| " --tls-upstream".to_owned());
        [workers, admin, tls].into_iter().flatten().collect()
    }
}

/// A string of TOML: its basic strings take what JSON writes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes the file, and says how to run it; `-` prints it.
///
/// # Errors
/// In words: the file is there and `is_forced` is false, or it cannot be written.
pub fn write(path: &Path, text: &str, is_forced: bool) -> Result<(), String> {
    if path == Path::new("-") {
        return std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("standard output: {error}"));
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).create_new(!is_forced);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => format!("{} exists; --force overwrites it", path.display()),
        _ => format!("cannot write {}: {error}", path.display()),
    })?;
    println!("wrote {}; next: weir run --config {}", path.display(), path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_overwritten_on_demand_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("weir.toml");
        assert_eq!(write(&path, "one, and long", false), Ok(()));
        let refusal = write(&path, "two", false).expect_err("it exists");
        assert!(refusal.contains("weir.toml exists; --force"), "{refusal}");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "one, and long");
        assert_eq!(write(&path, "two", true), Ok(()));
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "two");
        let nowhere = folder.path().join("no/folder/weir.toml");
        assert!(write(&nowhere, "one", true).is_err_and(|text| text.starts_with("cannot write")));
    }

    #[test]
    fn text_is_quoted_as_toml_reads_it() {
        assert_eq!(quoted("unix:/run/a \"b\"\\c.sock"), r#""unix:/run/a \"b\"\\c.sock""#);
    }
}
