//! `generate redis-commands`: asks real servers what their commands are and writes the table of `weir-analysis`.
//!
//! ```text
//! cargo xtask generate redis-commands --server redis-6.2=127.0.0.1:16262 --server redis-7.0=127.0.0.1:17070 \
//!     --server valkey-9.1=127.0.0.1:19090 [--out dataplane/analysis] [--golden-only]
//! ```
//!
//! Servers are named oldest first: when two describe a command differently the later one wins, and the table remembers
//! which of them know it. The same run refreshes the replies in `tests/it/golden/*.txt`; the requests there are written
//! by hand, the replies never are.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, str};

use anyhow::{Context, Result, bail, ensure};

/// Servers that fit the bit set of a table row.
const SERVERS_MAX: usize = 8;
/// Nesting of a COMMAND reply is 7; anything deeper is not a Redis server.
const REPLY_DEPTH_MAX: usize = 16;
/// Longest bulk string or array of a COMMAND reply that is believed.
const REPLY_LENGTH_MAX: usize = 1 << 20;
/// A local server answers at once; a dead one must not hang the run.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the generator; `args` stand behind `generate redis-commands`.
pub fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let mut servers = Vec::new();
    for (label, address) in &options.servers {
        let connection = Connection::open(address).with_context(|| format!("server {label}"))?;
        servers.push((label.clone(), connection));
    }
    if !options.golden_only {
        let mut merged = BTreeMap::new();
        for (bit, (label, connection)) in servers.iter_mut().enumerate() {
            let count = merge(&mut merged, bit, &connection.call(&[b"COMMAND"])?)
                .with_context(|| format!("COMMAND of {label}"))?;
            println!("{label}: {count} commands and subcommands");
        }
        write_table(&options.out.join("src/redis"), &options, &merged)?;
    }
    for file in fs::read_dir(options.out.join("tests/it/golden"))? {
        refresh_golden(&file?.path(), &mut servers)?;
    }
    Ok(())
}

struct Options {
    servers: Vec<(String, String)>,
    out: PathBuf,
    golden_only: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the workspace")?;
        let mut options = Self { servers: Vec::new(), out: root.join("dataplane/analysis"), golden_only: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--server" => {
                    let (label, address) = value()?.split_once('=').context("--server wants LABEL=HOST:PORT")?;
                    options.servers.push((label.to_owned(), address.to_owned()));
                }
                "--out" => options.out = PathBuf::from(value()?),
                "--golden-only" => options.golden_only = true,
                other => bail!("unknown option {other}; known: --server LABEL=HOST:PORT, --out DIR, --golden-only"),
            }
        }
        ensure!(!options.servers.is_empty(), "name at least one --server LABEL=HOST:PORT, oldest first");
        ensure!(options.servers.len() <= SERVERS_MAX, "at most {SERVERS_MAX} servers fit a row");
        Ok(options)
    }
}

// === RESP2, as much as COMMAND needs ===

#[derive(Debug, Clone, PartialEq)]
enum Reply {
    Text(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    Array(Vec<Reply>),
    Null,
}

impl Reply {
    fn items(&self) -> Result<&[Reply]> {
        match self {
            Self::Array(items) => Ok(items),
            other => bail!("expected an array, got {other:?}"),
        }
    }

    fn text(&self) -> Result<&str> {
        match self {
            Self::Text(text) => Ok(str::from_utf8(text)?),
            other => bail!("expected a string, got {other:?}"),
        }
    }

    fn integer(&self) -> Result<i64> {
        match self {
            Self::Integer(value) => Ok(*value),
            other => bail!("expected an integer, got {other:?}"),
        }
    }

    /// Value of a key in a flattened map.
    fn field(&self, name: &str) -> Result<&Reply> {
        let pair = self.items()?.chunks_exact(2).find(|pair| pair[0].text().is_ok_and(|key| key == name));
        pair.map(|pair| &pair[1]).with_context(|| format!("no field {name}"))
    }
}

struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            write!(request, "${}\r\n", arg.as_ref().len())?;
            request.extend_from_slice(arg.as_ref());
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        self.reply(0)
    }

    fn reply(&mut self, depth: usize) -> Result<Reply> {
        ensure!(depth <= REPLY_DEPTH_MAX, "reply is nested deeper than {REPLY_DEPTH_MAX}");
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        ensure!(line.len() >= 3, "connection closed in a reply");
        line.truncate(line.len() - 2);
        let (kind, rest) = (line[0], &line[1..]);
        match kind {
            b'+' => return Ok(Reply::Text(rest.to_vec())),
            b'-' => return Ok(Reply::Error(rest.to_vec())),
            _ => {}
        }
        let number: i64 = str::from_utf8(rest)?.parse()?;
        let length = usize::try_from(number).unwrap_or(0);
        ensure!(length <= REPLY_LENGTH_MAX || kind == b':', "reply of {length} elements");
        match kind {
            b':' => Ok(Reply::Integer(number)),
            b'$' | b'*' if number < 0 => Ok(Reply::Null),
            b'$' => {
                let mut text = vec![0; length + 2];
                self.stream.read_exact(&mut text)?;
                text.truncate(length);
                Ok(Reply::Text(text))
            }
            b'*' => Ok(Reply::Array((0..length).map(|_| self.reply(depth + 1)).collect::<Result<_>>()?)),
            other => bail!("unknown reply type {:?}", char::from(other)),
        }
    }
}

// === From replies to rows ===

struct Row {
    arity: i64,
    flags: Vec<String>,
    categories: Vec<String>,
    keys: Vec<KeySpec>,
    container: bool,
    servers: u8,
    /// The tips `request_policy` and `response_policy`, as Rust names.
    policies: (String, String),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct KeySpec {
    flags: Vec<String>,
    begin: String,
    find: String,
}

/// Adds the COMMAND reply of server number `bit`; returns the number of commands with subcommands.
fn merge(rows: &mut BTreeMap<String, Row>, bit: usize, reply: &Reply) -> Result<usize> {
    let mut count = 0;
    for entry in reply.items()? {
        merge_entry(rows, bit, entry)?;
        count += 1;
        for subcommand in entry.items()?.get(9).map_or(Ok(&[][..]), Reply::items)? {
            merge_entry(rows, bit, subcommand)?;
            count += 1;
        }
    }
    Ok(count)
}

fn merge_entry(rows: &mut BTreeMap<String, Row>, bit: usize, entry: &Reply) -> Result<()> {
    let fields = entry.items()?;
    ensure!(fields.len() >= 7, "COMMAND entry of {} elements; Redis 6.0 or later is needed", fields.len());
    let name = fields[0].text()?.to_ascii_lowercase();
    let (keys, container) = match (fields.get(8), fields.get(9)) {
        (Some(specs), Some(subcommands)) => {
            (specs.items()?.iter().map(key_spec).collect::<Result<_>>()?, !subcommands.items()?.is_empty())
        }
        _ => (legacy_key_specs(fields)?, false),
    };
    let known = rows.get(&name);
    let arity = fields[1].integer()?;
    let row = Row {
        arity: known.map_or(arity, |row| laxer_arity(row.arity, arity)),
        flags: names(&fields[2])?,
        categories: names(&fields[6])?,
        keys,
        container: container || known.is_some_and(|row| row.container),
        servers: known.map_or(0, |row| row.servers) | 1 << bit,
        policies: (policy(fields, "request_policy:")?, policy(fields, "response_policy:")?),
    };
    rows.insert(name, row);
    Ok(())
}

/// The value of a tip in upper camel case; without the tip, `Default`.
fn policy(fields: &[Reply], tip: &str) -> Result<String> {
    for text in fields.get(7).map_or(Ok(&[][..]), Reply::items)? {
        if let Some(value) = text.text()?.strip_prefix(tip) {
            let words = value.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..]);
            return Ok(words.collect());
        }
    }
    Ok("Default".to_owned())
}

/// The arity that no server is stricter than: the gateway must not refuse what the server behind it would run.
fn laxer_arity(one: i64, other: i64) -> i64 {
    if one == other { one } else { -one.abs().min(other.abs()) }
}

/// Flag and category names as Rust constants, sorted so that two runs give the same file.
fn names(list: &Reply) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for name in list.items()? {
        let name = name.text()?.trim_start_matches('@');
        names.push(match name {
            "RO" | "RW" | "OW" | "RM" => name.to_owned(),
            other => other.to_ascii_uppercase().replace('-', "_"),
        });
    }
    names.sort();
    Ok(names)
}

fn key_spec(spec: &Reply) -> Result<KeySpec> {
    let begin = spec.field("begin_search")?;
    let at = |field: &str| begin.field("spec")?.field(field);
    let begin = match begin.field("type")?.text()? {
        "index" => format!("Index({})", at("index")?.integer()?),
        "keyword" => {
            let (word, start) = (at("keyword")?.text()?, at("startfrom")?.integer()?);
            format!("Keyword {{ word: {word:?}, start: {start} }}")
        }
        "unknown" => "Unknown".to_owned(),
        other => bail!("begin_search {other}"),
    };
    let find = spec.field("find_keys")?;
    let at = |field: &str| find.field("spec")?.field(field)?.integer();
    let find = match find.field("type")?.text()? {
        "range" => {
            format!("Range {{ last: {}, step: {}, limit: {} }}", at("lastkey")?, at("keystep")?, at("limit")?)
        }
        "keynum" => {
            let (number, first, step) = (at("keynumidx")?, at("firstkey")?, at("keystep")?);
            format!("KeyNum {{ number: {number}, first: {first}, step: {step} }}")
        }
        "unknown" => "Unknown".to_owned(),
        other => bail!("find_keys {other}"),
    };
    Ok(KeySpec { flags: names(spec.field("flags")?)?, begin, find })
}

/// Redis before 7.0 gives first, last and step only. An absolute last becomes one relative to the first.
fn legacy_key_specs(fields: &[Reply]) -> Result<Vec<KeySpec>> {
    let (first, last, step) = (fields[3].integer()?, fields[4].integer()?, fields[5].integer()?);
    let (begin, find) = if names(&fields[2])?.iter().any(|flag| flag == "MOVABLEKEYS") {
        ("Unknown".to_owned(), "Unknown".to_owned())
    } else if first == 0 {
        return Ok(Vec::new());
    } else {
        let last = if last < 0 { last } else { last - first };
        (format!("Index({first})"), format!("Range {{ last: {last}, step: {step}, limit: 0 }}"))
    };
    Ok(vec![KeySpec { flags: vec!["RW".to_owned()], begin, find }])
}

// === From rows to Rust ===

fn write_table(folder: &Path, options: &Options, rows: &BTreeMap<String, Row>) -> Result<()> {
    let mut lists: Vec<&[KeySpec]> = rows.values().map(|row| &row.keys[..]).filter(|keys| !keys.is_empty()).collect();
    lists.sort();
    lists.dedup();
    let labels: Vec<&str> = options.servers.iter().map(|(label, _)| label.as_str()).collect();
    let header = format!(
        "// Generated from the COMMAND replies of {}. Do not edit; to regenerate:\n// cargo xtask generate redis-commands{}\n",
        labels.join(", "),
        labels.iter().fold(String::new(), |line, label| line + " --server " + label + "=HOST:PORT"),
    );
    let table = folder.join("table");
    fs::create_dir_all(&table)?;
    write_key_specs(&table.join("key_specs.rs"), &header, &lists)?;
    for (file, what, subcommands) in
        [("commands.rs", "Commands, without subcommands", false), ("subcommands.rs", "Subcommands of containers", true)]
    {
        let rows = rows.iter().filter(|(name, _)| name.contains('|') == subcommands);
        write_rows(&table.join(file), &header, what, rows, &lists)?;
    }
    let text = format!(
        "{header}//! The command table as the servers report it; classes are added by `Command::row`.\n\n\
         #[rustfmt::skip]\npub(super) mod commands;\n#[rustfmt::skip]\nmod key_specs;\n#[rustfmt::skip]\npub(super) mod subcommands;\n\n\
         /// Servers whose tables were merged, oldest first. Those before 7.0 do not list subcommands.\n\
         pub static SERVERS: &[&str] = &[{}];\n",
        labels.iter().map(|label| format!("{label:?}")).collect::<Vec<_>>().join(", "),
    );
    fs::write(folder.join("table.rs"), text)?;
    Ok(())
}

fn write_key_specs(path: &Path, header: &str, lists: &[&[KeySpec]]) -> Result<()> {
    let mut text = format!(
        "{header}//! Distinct lists of key specs.\n\n\
         use super::super::command::{{BeginSearch as B, FindKeys as K, KeyFlags as F, KeySpec}};\n\n"
    );
    for (index, list) in lists.iter().enumerate() {
        let specs = list.iter().map(|spec| {
            let flags = constants("F", &spec.flags);
            format!("KeySpec::new({flags}, B::{}, K::{})", spec.begin, spec.find)
        });
        let specs = specs.collect::<Vec<_>>().join(", ");
        writeln!(text, "pub(super) const K{index}: &[KeySpec] = &[{specs}];")?;
    }
    write_short(path, text)
}

fn write_rows<'a>(
    path: &Path,
    header: &str,
    what: &str,
    rows: impl Iterator<Item = (&'a String, &'a Row)>,
    lists: &[&[KeySpec]],
) -> Result<()> {
    let mut text = format!(
        "{header}//! {what}: name, arity, flags, categories, key specs, container, servers; policies over shards.\n\n\
         use super::super::command::{{Categories as C, Command, Flags as F, RequestPolicy as Q, ResponsePolicy as S}};\n\
         use super::key_specs::*;\n\n\
         pub(in super::super) const ROWS: &[Command] = &[\n",
    );
    for (name, row) in rows {
        let keys = match lists.binary_search(&&row.keys[..]) {
            Ok(index) => format!("K{index}"),
            Err(_) => "&[]".to_owned(),
        };
        let policies = match (row.policies.0.as_str(), row.policies.1.as_str()) {
            ("Default", "Default") => String::new(),
            (request, response) => format!(".over_shards(Q::{request}, S::{response})"),
        };
        writeln!(
            text,
            "    Command::row({name:?}, {}, {}, {}, {keys}, {}, {:#b}){policies},",
            row.arity,
            constants("F", &row.flags),
            constants("C", &row.categories),
            row.container,
            row.servers,
        )?;
    }
    text.push_str("];\n");
    write_short(path, text)
}

fn constants(of: &str, names: &[String]) -> String {
    let list: Vec<String> = names.iter().map(|name| format!("{of}::{name}")).collect();
    format!("&[{}]", list.join(", "))
}

/// No file of the workspace passes 600 lines, generated ones included.
fn write_short(path: &Path, text: String) -> Result<()> {
    let lines = text.lines().count();
    ensure!(lines <= 600, "{} would have {lines} lines: split it further", path.display());
    fs::write(path, text).with_context(|| path.display().to_string())
}

// === Golden replies ===

/// Line that names the servers whose replies a golden file records.
const GOLDEN_SERVERS: &str = "# replies of: ";

/// Sends every `> request` of a golden file to the servers it names and rewrites the replies below it.
fn refresh_golden(path: &Path, servers: &mut [(String, Connection)]) -> Result<()> {
    let old = fs::read_to_string(path)?;
    let wanted = old.lines().find_map(|line| line.strip_prefix(GOLDEN_SERVERS));
    let wanted: Vec<&str> =
        wanted.with_context(|| format!("{}: no line '{GOLDEN_SERVERS}…'", path.display()))?.split(", ").collect();
    for label in &wanted {
        let given = servers.iter().any(|(server, _)| server == label);
        ensure!(given, "{} wants replies of {label}; give it with --server", path.display());
    }
    let mut text = String::new();
    for line in old.lines() {
        if let Some(request) = line.strip_prefix("> ") {
            let args = unquote(request).with_context(|| format!("{}: {line}", path.display()))?;
            writeln!(text, "{line}")?;
            for (label, connection) in servers.iter_mut().filter(|(label, _)| wanted.contains(&label.as_str())) {
                writeln!(text, "{label} {}", printed(&connection.call(&args)?))?;
            }
        } else if line.is_empty() || line.starts_with('#') {
            writeln!(text, "{line}")?;
        }
    }
    fs::write(path, text)?;
    println!("{}: replies refreshed", path.display());
    Ok(())
}

/// Blank-separated words; `"…"` with `\n`, `\xHH` and friends as `escape_ascii` prints them; `"…"*N` repeats.
fn unquote(line: &str) -> Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let word = if let Some(quoted) = rest.strip_prefix('"') {
            let (word, behind) = unescape(quoted)?;
            let (repeat, behind) = match behind.strip_prefix('*') {
                Some(count) => count.split_once(' ').unwrap_or((count, "")),
                None => ("1", behind),
            };
            rest = behind;
            word.repeat(repeat.parse()?)
        } else {
            let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = behind;
            word.as_bytes().to_vec()
        };
        words.push(word);
        rest = rest.trim_start();
    }
    Ok(words)
}

/// Text up to the closing quote, and what stands behind the quote.
fn unescape(quoted: &str) -> Result<(Vec<u8>, &str)> {
    let mut word = Vec::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((word, &quoted[at + 1..])),
            '\\' => match chars.next().context("line ends in a backslash")?.1 {
                'n' => word.push(b'\n'),
                'r' => word.push(b'\r'),
                't' => word.push(b'\t'),
                'x' => {
                    let hex = quoted.get(at + 2..at + 4).context("\\x wants two digits")?;
                    word.push(u8::from_str_radix(hex, 16)?);
                    chars.nth(1);
                }
                other => word.extend_from_slice(other.to_string().as_bytes()),
            },
            other => word.extend_from_slice(other.to_string().as_bytes()),
        }
    }
    bail!("unbalanced quotes")
}

fn printed(reply: &Reply) -> String {
    match reply {
        Reply::Text(text) => format!("\"{}\"", text.escape_ascii()),
        Reply::Error(text) => format!("-\"{}\"", text.escape_ascii()),
        Reply::Integer(value) => format!(":{value}"),
        Reply::Null => "null".to_owned(),
        Reply::Array(items) => items.iter().map(printed).collect::<Vec<_>>().join(" "),
    }
}
