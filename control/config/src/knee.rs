//! Results of `weir lab knee --json`: how much a listener carries.
//!
//! The file is the lab's, and the gateway may not know the lab; so these are the few fields it needs, read by name. A
//! test of the binary writes a result with the lab's own types and reads it here. `checks::knee` compares the fields
//! that belong to other keys (protocol, workers).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use toml::de::DeTable;

use crate::document::Node;
use crate::reader::Reader;
use crate::secret::readable_file;
use crate::texts::string;
use crate::value::{Shape, Value};

/// Bytes of a result. Default 1 MiB: the lab's own have some 10 KB, a hundred trials some 100 KB.
pub const KNEE_BYTES_MAX: u64 = 1024 * 1024;

/// Name and version of the file that is understood.
const SCHEMA: &str = "weir.lab.result/1";
/// At the end of the row of a search that is nothing to size from.
const QUICK: &str = ", quick look";
/// At the end of the row of a search in front of the lab's own back end.
const SYNTHETIC: &str = ", synthetic back end";
/// The outcomes that come with a knee, as the file writes them.
const VERIFIED: &str = "verified";
const AT_CEILING: &str = "at_ceiling";

/// How a right file is made.
const HOW: &str = "write it with: weir lab knee SCENARIO.toml --behind HOST:PORT --json FILE";

/// A file with a knee in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KneeFile {
    /// As it is opened.
    pub(crate) path: PathBuf,
    /// Digest of the contents, so that a new result under the same name is a change.
    digest: u64,
    pub(crate) measured: Measured,
}

/// Contents of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) requests_per_second: f64,
    pub(crate) budget_vcpu: f64,
    pub(crate) protocol: String,
    pub(crate) run_id: String,
    /// Seconds since 1970.
    pub(crate) ended: u64,
    /// The load could not be raised further: the true knee is not below.
    pub(crate) is_at_ceiling: bool,
    pub(crate) is_synthetic: bool,
    pub(crate) has_tls: bool,
    /// How much the gateway observed of itself: `off`, `on` or `capture-all`.
    pub(crate) telemetry: &'static str,
    pub(crate) kernel: Option<String>,
    pub(crate) cpu_model: Option<String>,
}

impl Value for KneeFile {
    fn shape() -> Shape {
        Shape::Text { what: "the path of a result of weir lab knee", example: "results/redis-real.json" }
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = string(node, &Self::shape(), reader)?;
        if text.is_empty() || text.contains('\0') {
            let help = "write the path of a result of weir lab knee --json";
            reader.wrong_value(node, format!("`{}` is not a path", node.path), help);
            return None;
        }
        let contents = readable_file(node, Path::new(text), KNEE_BYTES_MAX, reader)?;
        let path = reader.directory.join(text);
        match measured(&contents.bytes) {
            Ok(measured) => {
                let mut hasher = DefaultHasher::new();
                contents.bytes.hash(&mut hasher);
                Some(Self { path, digest: hasher.finish(), measured })
            }
            Err(KneeFileError { what, help }) => {
                reader.wrong_value(node, format!("`{}`: {} {what}", node.path, path.display()), help);
                None
            }
        }
    }

    fn show(&self) -> Json {
        json!(self.path.display().to_string())
    }
}

/// Why a file says nothing about the capacity of a listener.
struct KneeFileError {
    what: String,
    help: String,
}

impl KneeFileError {
    fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { what: what.into(), help: help.into() }
    }
}

fn measured(bytes: &[u8]) -> Result<Measured, KneeFileError> {
    let file: Json =
        serde_json::from_slice(bytes).map_err(|error| KneeFileError::new(format!("is not JSON: {error}"), HOW))?;
    match file["schema"].as_str() {
        Some(SCHEMA) => {}
        Some(other) => {
            let other: String = other.chars().take(64).collect();
            return Err(KneeFileError::new(format!("has the schema {other:?}, this version reads {SCHEMA:?}"), HOW));
        }
        None => return Err(KneeFileError::new("names no schema, so it is not a result of the lab", HOW)),
    }
    let row = text(&file, "/shape/row")?;
    if row.ends_with(QUICK) {
        return Err(KneeFileError::new(
            "is a result of --quick, which is not exact enough for a knee",
            "run weir lab knee again without --quick",
        ));
    }
    let outcome = &file["knee"]["outcome"];
    let is_at_ceiling = outcome == AT_CEILING;
    let rate = file["knee"]["clean"]["rate"].as_f64().filter(|rate| rate.is_finite() && *rate > 0.0);
    let Some(requests_per_second) = rate.filter(|_| is_at_ceiling || outcome == VERIFIED) else {
        let how = match outcome {
            Json::String(word) => word.clone(),
            Json::Object(words) => words.keys().next().cloned().unwrap_or_default(),
            _ => "unknown".to_owned(),
        };
        let what = format!("has no clean knee (outcome: {})", how.chars().take(64).collect::<String>());
        return Err(KneeFileError::new(what, "see why with weir lab report, and search again"));
    };
    Ok(Measured {
        requests_per_second,
        budget_vcpu: file["shape"]["budget_vcpu"].as_f64().ok_or_else(|| lacks("/shape/budget_vcpu"))?,
        protocol: protocol(&text(&file, "/scenario")?)?,
        run_id: text(&file, "/run_id")?,
        ended: file["ended"].as_u64().ok_or_else(|| lacks("/ended"))?,
        is_at_ceiling,
        is_synthetic: row.ends_with(SYNTHETIC),
        has_tls: text(&file, "/shape/tls")? != "off",
        telemetry: telemetry(&text(&file, "/shape/telemetry")?)?,
        kernel: file["host"]["kernel"].as_str().map(str::to_owned),
        cpu_model: file["host"]["cpu_model"].as_str().map(str::to_owned),
    })
}

fn text(file: &Json, pointer: &str) -> Result<String, KneeFileError> {
    let found = file.pointer(pointer).and_then(Json::as_str);
    found.map(str::to_owned).ok_or_else(|| lacks(pointer))
}

fn telemetry(level: &str) -> Result<&'static str, KneeFileError> {
    let known = ["off", "on", "capture-all"].into_iter().find(|known| *known == level);
    known.ok_or_else(|| lacks("/shape/telemetry: off, on or capture-all"))
}

fn lacks(pointer: &str) -> KneeFileError {
    let field = pointer[1..].replace('/', ".");
    KneeFileError::new(format!("lacks `{field}`"), HOW)
}

/// The protocol that the scenario, which is TOML, names.
fn protocol(scenario: &str) -> Result<String, KneeFileError> {
    let table = DeTable::parse(scenario).ok();
    let found = table.as_ref().and_then(|table| table.get_ref().get("protocol")?.get_ref().as_str());
    found.map(|word| word.chars().take(64).collect()).ok_or_else(|| lacks("/scenario: protocol"))
}
