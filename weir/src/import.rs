//! `weir import`: the configuration of another proxy as a `weir.toml`.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use weir_import::{Files, Format};

/// Bytes of an input file, and of all that it includes together. Default 16 MiB: generated files of thousands of servers fit.
const INPUT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Files that are included, those that are included twice counted twice; and files that one pattern may name.
const INCLUDED_FILES_MAX: usize = 4096;

/// Convert the configuration of another proxy to a weir.toml. Notes on standard error list directives without a counterpart.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Exit status: 0, the file was imported, with or without notes; 1, the file has a mistake; 2, wrong usage.\n\n\
                  Examples:\n  \
                  weir import nginx /etc/nginx/nginx.conf > weir.toml\n  \
                  weir import haproxy /etc/haproxy/haproxy.cfg --output weir.toml\n  \
                  weir import unleash-edge --env-file edge.env -- edge --upstream-url https://unleash.example.com\n  \
                  weir check weir.toml"
)]
pub enum ImportCommand {
    /// Convert nginx.conf and its included files, or a file with only server blocks.
    Nginx(ImportArgs),
    /// Convert haproxy.cfg.
    Haproxy(ImportArgs),
    /// Convert an Envoy bootstrap with static resources, in YAML or JSON.
    Envoy(ImportArgs),
    /// Convert nutcracker.yml of twemproxy.
    Twemproxy(ImportArgs),
    /// Convert pgbouncer.ini, its included files, and the users of its auth_file.
    Pgbouncer(ImportArgs),
    /// Convert the command line and the environment of Unleash Edge. Secrets become variables that are to be set.
    UnleashEdge(UnleashEdgeArgs),
}

/// The files that are read and written.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file to read.
    file: PathBuf,

    /// Write the result to this file, which must not exist yet [default: standard output].
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// The command line of Unleash Edge.
#[derive(Debug, Args)]
pub struct UnleashEdgeArgs {
    /// File with the environment of Unleash Edge, one NAME=value per line.
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,

    /// Write the result to this file, which must not exist yet [default: standard output].
    #[arg(long, short)]
    output: Option<PathBuf>,

    /// The command line of Unleash Edge, behind `--`.
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

impl UnleashEdgeArgs {
    /// The input of the import: variables, and a word of the command line in each line.
    fn text(&self) -> Result<String, String> {
        let environment = match &self.env_file {
            Some(file) => read(file).map_err(|why| format!("{}: {why}", file.display()))?,
            None => String::new(),
        };
        match self.words.iter().any(|word| word.contains('\n')) {
            true => Err("a word of the command line has a line break".to_owned()),
            false => Ok(format!("{environment}\n{}", self.words.join("\n"))),
        }
    }
}

/// Imports a command line.
fn run_unleash_edge(args: &UnleashEdgeArgs) -> Result<(), String> {
    let folder = Folder::new(PathBuf::new(), 0);
    let imported = weir_import::import(Format::UnleashEdge, "command line", &args.text()?, &folder);
    deliver(&imported.map_err(|mistake| mistake.to_string())?, args.output.as_deref())
}

pub fn run(command: &ImportCommand) -> Result<(), String> {
    let (format, args) = match command {
        ImportCommand::Nginx(args) => (Format::Nginx, args),
        ImportCommand::Haproxy(args) => (Format::Haproxy, args),
        ImportCommand::Envoy(args) => (Format::Envoy, args),
        ImportCommand::Twemproxy(args) => (Format::Twemproxy, args),
        ImportCommand::Pgbouncer(args) => (Format::Pgbouncer, args),
        ImportCommand::UnleashEdge(args) => return run_unleash_edge(args),
    };
    let text = read(&args.file).map_err(|why| format!("{}: {why}", args.file.display()))?;
    let directory = args.file.parent().unwrap_or(Path::new("")).to_owned();
    let name = args.file.display().to_string();
    let folder = Folder::new(directory, text.len());
    let imported = weir_import::import(format, &name, &text, &folder).map_err(|mistake| mistake.to_string())?;
    deliver(&imported, args.output.as_deref())
}

/// Prints the notes, and writes the result.
fn deliver(imported: &weir_import::Imported, output: Option<&Path>) -> Result<(), String> {
    for note in &imported.notes {
        eprintln!("{note}");
    }
    match imported.notes.len() {
        0 => {}
        1 => eprintln!("1 note: it is a comment in the result too"),
        count => eprintln!("{count} notes: they are comments in the result too"),
    }
    match output {
        None => print(&imported.toml),
        Some(file) => write_new(file, &imported.toml).map_err(|why| format!("{}: {why}", file.display())),
    }
}

/// Prints to stdout. A reader that has read enough is no failure.
fn print(text: &str) -> Result<(), String> {
    use std::io::Write as _;
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("stdout: {error}")),
        _ => Ok(()),
    }
}

fn write_new(file: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    fs::File::create_new(file)?.write_all(text.as_bytes())
}

/// The text of a file, a pipe too, up to the bound.
fn read(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = File::open(file).map_err(|error| error.to_string())?;
    file.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > INPUT_BYTES_MAX {
        return Err(format!("has more than {INPUT_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

/// Where included files are looked for, and how much of them has been read.
struct Folder {
    directory: PathBuf,
    files: Cell<usize>,
    bytes: Cell<u64>,
}

impl Folder {
    /// `bytes` is the length of the file that includes others.
    fn new(directory: PathBuf, bytes: usize) -> Self {
        Self { directory, files: Cell::new(0), bytes: Cell::new(bytes as u64) }
    }

    /// The files of a pattern: of the directory, or else of the one above, where nginx.conf is if the file is one of sites-enabled.
    fn find(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let above = self.directory.parent().unwrap_or(Path::new(".."));
        let mut found = Vec::new();
        for directory in [self.directory.as_path(), above] {
            let path = directory.join(pattern);
            found = match pattern.contains(['*', '?', '[']) {
                false if path.exists() => vec![path],
                false => Vec::new(),
                true => expand(&path)?,
            };
            if !found.is_empty() {
                return Ok(found);
            }
        }
        match pattern.contains(['*', '?', '[']) {
            true => Ok(found),
            false => Err(format!("{}: there is no such file", self.directory.join(pattern).display())),
        }
    }

    /// Counts an included file. It may be included by many, each of them by many.
    fn count(&self, text: &str) -> Result<(), String> {
        self.files.set(self.files.get() + 1);
        self.bytes.set(self.bytes.get() + text.len() as u64);
        match (self.files.get() > INCLUDED_FILES_MAX, self.bytes.get() > INPUT_BYTES_MAX) {
            (true, _) => Err(format!("more than {INCLUDED_FILES_MAX} files are included")),
            (_, true) => Err(format!("all files together have more than {INPUT_BYTES_MAX} bytes")),
            _ => Ok(()),
        }
    }
}

impl Files for Folder {
    fn matching(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
        let contents = |file: &PathBuf| {
            let name = file.display().to_string();
            // A device or a pipe may never end.
            let text = match file.is_file() {
                true => read(file).map_err(|why| format!("{name}: {why}"))?,
                false => return Err(format!("{name}: is no regular file")),
            };
            self.count(&text)?;
            Ok((name, text))
        };
        self.find(pattern)?.iter().map(contents).collect()
    }
}

/// The files that a pattern names, part of the path by part, in the order of their names. None is no mistake: nginx takes that too.
fn expand(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str();
        let text = part.to_string_lossy();
        if !text.contains(['*', '?', '[']) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut next = Vec::new();
        for folder in &found {
            let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let Ok(entries) = fs::read_dir(here) else { continue };
            for entry in entries {
                let name = entry.map_err(|error| format!("{}: {error}", folder.display()))?.file_name();
                // A star does not stand for hidden files.
                let is_hidden = name.to_string_lossy().starts_with('.') && !text.starts_with('.');
                if !is_hidden && matches(text.as_bytes(), name.to_string_lossy().as_bytes()) {
                    next.push(folder.join(&name));
                }
            }
            if next.len() > INCLUDED_FILES_MAX {
                return Err(format!("names more than {INCLUDED_FILES_MAX} files"));
            }
        }
        next.sort();
        found = next;
    }
    found.retain(|path| path.is_file());
    Ok(found)
}

/// Whether a name has the form of a pattern with `*`, `?` and `[a-z]`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // The last star, and how much of the name it stood for.
    let (mut at, mut of, mut star) = (0, 0, None);
    while of < name.len() {
        let step = match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, of));
                at += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => class(&pattern[at..], name[of]),
            Some(byte) => (*byte == name[of]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(step), _) => (at, of) = (at + step, of + 1),
            (None, Some((behind, from))) => {
                star = Some((behind, from + 1));
                (at, of) = (behind, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Bytes of a class that has `byte` in it; `None`: it has not.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let end = pattern.iter().skip(2).position(|byte| *byte == b']')? + 2;
    let inner = &pattern[1..end];
    let (is_negated, inner) = match inner.strip_prefix(b"!").or_else(|| inner.strip_prefix(b"^")) {
        Some(rest) => (true, rest),
        None => (false, inner),
    };
    let mut at = 0;
    let mut is_in = false;
    while at < inner.len() {
        match inner[at..] {
            [from, b'-', to, ..] => {
                is_in |= (from..=to).contains(&byte);
                at += 3;
            }
            [one, ..] => {
                is_in |= one == byte;
                at += 1;
            }
            [] => break,
        }
    }
    (is_in != is_negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, name) in
            [("*.conf", "a.conf"), ("*", ""), ("a?c", "abc"), ("[a-c]x", "bx"), ("[!a]x", "bx"), ("*a*b", "xaayb")]
        {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("*.conf", "a.confx"), ("?", ""), ("[a-c]x", "dx"), ("[!a]x", "ax"), ("a*", "b")] {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_found_in_the_order_of_their_names_and_an_existing_result_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let sites = folder.path().join("sites");
        fs::create_dir(&sites).expect("a folder");
        for (name, text) in [("b.conf", "b;"), ("a.conf", "a;"), (".hidden.conf", "h;"), ("c.txt", "c;")] {
            fs::write(sites.join(name), text).expect("written");
        }
        let files = Folder::new(folder.path().to_owned(), 0);
        let texts = |pattern: &str| {
            files.matching(pattern).map(|all| all.into_iter().map(|(_, text)| text).collect::<Vec<_>>())
        };
        assert_eq!(texts("s*/*.conf"), Ok(vec!["a;".to_owned(), "b;".to_owned()]));
        assert_eq!(texts("none/*.conf"), Ok(Vec::new()));
        assert_eq!(texts("sites/c.txt"), Ok(vec!["c;".to_owned()]));
        assert!(texts("sites/none.conf").is_err());
        let file = folder.path().join("weir.toml");
        assert!(write_new(&file, "one").is_ok() && write_new(&file, "two").is_err());
        assert_eq!(fs::read_to_string(&file).expect("the file"), "one");
    }

    #[test]
    fn files_that_include_each_other_many_times_are_refused_and_so_is_what_never_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        for depth in 0..7 {
            let text = format!("include {}.conf;\n", depth + 1).repeat(100);
            fs::write(folder.path().join(format!("{depth}.conf")), text).expect("written");
        }
        fs::write(folder.path().join("7.conf"), "server { listen 1; }\n").expect("written");
        let import = |text: &str| {
            let files = Folder::new(folder.path().to_owned(), text.len());
            weir_import::import(Format::Nginx, "n", text, &files).expect_err("refused").message
        };
        let why = import("include 0.conf;");
        assert!(why.ends_with(&format!(": more than {INCLUDED_FILES_MAX} files are included")), "{why}");
        assert_eq!(import("include /dev/zero;"), "include /dev/zero: /dev/zero: is no regular file");
        fs::write(folder.path().join("large.conf"), "#".repeat(5 << 20)).expect("written");
        let why = import(&"include large.conf;\n".repeat(4));
        assert_eq!(why, format!("include large.conf: all files together have more than {INPUT_BYTES_MAX} bytes"));
        assert_eq!(read(Path::new("/dev/zero")), Err(format!("has more than {INPUT_BYTES_MAX} bytes")));
    }

    #[test]
    fn what_is_not_beside_a_site_is_looked_for_beside_the_configuration_that_includes_it() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["sites-enabled", "snippets"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        fs::write(folder.path().join("snippets/tls.conf"), "above;").expect("written");
        fs::write(folder.path().join("proxy_params"), "above;").expect("written");
        let files = Folder::new(folder.path().join("sites-enabled"), 0);
        for pattern in ["snippets/tls.conf", "snippets/*.conf", "proxy_params"] {
            let texts = files.matching(pattern).map(|all| all.into_iter().map(|(_, text)| text).collect::<Vec<_>>());
            assert_eq!(texts, Ok(vec!["above;".to_owned()]), "{pattern}");
        }
        fs::write(folder.path().join("sites-enabled/proxy_params"), "beside;").expect("written");
        assert_eq!(files.matching("proxy_params").expect("found")[0].1, "beside;");
    }
}
