//! The arrow law: who may depend on whom. The table is the one of ARCHITECTURE.md, "Rooms".
//!
//! A crate belongs to the room that its folder names. Arrows inside a room are forbidden unless the
//! table lists them. Dev-dependencies obey the same arrows; external crates are free there.

use cargo_metadata::{DependencyKind, Package};

use crate::workspace::Workspace;

/// A row of the table: a room, the rooms it may use, and the single arrows allowed besides.
struct Room {
    /// First folder of the crate's path.
    folder: &'static str,
    may_use: &'static [&'static str],
    /// `(from, to)` by crate name.
    besides: &'static [(&'static str, &'static str)],
}

const DATAPLANE_USES: &[&str] = &["base", "engine", "codec", "telemetry"];
const PROXY_USES: &[&str] = &["base", "engine", "codec", "telemetry", "dataplane"];
const CONTROL_USES: &[&str] = &["base", "engine", "codec", "telemetry", "dataplane", "proxy"];
const PRODUCT: &[&str] = &["base", "engine", "codec", "telemetry", "dataplane", "proxy", "control", "lab"];
/// Tests see the product and the rules of the tree (`xtask`), for the law is also a test.
const TEST_USES: &[&str] = &["base", "engine", "codec", "telemetry", "dataplane", "proxy", "control", "lab", "xtask"];

const ROOMS: &[Room] = &[
    Room { folder: "weir", may_use: PRODUCT, besides: &[] },
    Room { folder: "base", may_use: &[], besides: &[] },
    Room { folder: "engine", may_use: &["base"], besides: &[] },
    // Messages of HTTP/2 are those of HTTP.
    Room { folder: "codec", may_use: &["base"], besides: &[("weir-http2-codec", "weir-http-codec")] },
    Room { folder: "telemetry", may_use: &["base"], besides: &[] },
    // Policy judges what analysis found, and routes are chosen by it: facts come before a verdict.
    Room {
        folder: "dataplane",
        may_use: DATAPLANE_USES,
        besides: &[
            ("weir-policy", "weir-analysis"),
            ("weir-route", "weir-analysis"),
            ("weir-upstream", "weir-placement"),
        ],
    },
    Room {
        folder: "proxy",
        may_use: PROXY_USES,
        besides: &[
            ("weir-ai", "weir-ai-session"),
            ("weir-ai", "weir-ai-translate"),
            ("weir-ai", "weir-http"),
            ("weir-ai", "weir-mcp-session"),
            ("weir-ai-translate", "weir-ai-session"),
            ("weir-flags", "weir-flags-session"),
            ("weir-flags", "weir-http"),
            ("weir-mongodb", "weir-mongodb-session"),
            ("weir-mongodb-simulation", "weir-mongodb-session"),
            ("weir-postgres", "weir-postgres-session"),
            ("weir-postgres-simulation", "weir-postgres-session"),
            ("weir-redis", "weir-redis-session"),
            ("weir-redis-simulation", "weir-redis-session"),
        ],
    },
    // Tests run the output of an import through the check of the configuration.
    Room { folder: "control", may_use: CONTROL_USES, besides: &[("weir-import", "weir-config")] },
    // From telemetry only the histogram: see `sources.rs`.
    // The generator speaks of its steps in the judge's words, and is tested against the origin; `trials` puts them together.
    Room {
        folder: "lab",
        may_use: &["base", "engine", "codec", "telemetry"],
        besides: &[
            ("weir-load", "weir-flagsets"),
            ("weir-load", "weir-knee"),
            ("weir-load", "weir-origin"),
            ("weir-origin", "weir-flagsets"),
            ("weir-trials", "weir-knee"),
            ("weir-trials", "weir-load"),
            ("weir-trials", "weir-parties"),
        ],
    },
    Room { folder: "tests", may_use: TEST_USES, besides: &[] },
    Room { folder: "fuzz", may_use: PRODUCT, besides: &[] },
    Room { folder: "xtask", may_use: PRODUCT, besides: &[] },
];

/// Crates without I/O, and the crates of the tree that each may use: fewer than its room may.
pub(super) const PURE: &[(&str, &[&str])] = &[
    ("weir-placement", &[]),
    ("weir-sasl", &["weir-base"]),
    ("weir-sse-codec", &["weir-base"]),
    ("weir-json-codec", &["weir-base"]),
    ("weir-flags-codec", &["weir-base"]),
    ("weir-mongodb-codec", &["weir-base"]),
    ("weir-analysis", &["weir-base", "weir-json-codec", "weir-mongodb-codec"]),
    // In its tests alone.
    ("weir-import", &["weir-config"]),
    ("weir-policy", &["weir-base", "weir-analysis", "weir-http-codec", "weir-mongodb-codec"]),
    ("weir-ai-session", &["weir-base", "weir-sse-codec", "weir-json-codec", "weir-analysis"]),
    ("weir-ai-translate", &["weir-ai-session", "weir-sse-codec", "weir-json-codec"]),
    ("weir-mcp-session", &["weir-sse-codec", "weir-json-codec"]),
    ("weir-flags-session", &["weir-base", "weir-flags-codec"]),
    ("weir-mongodb-session", &["weir-base", "weir-mongodb-codec", "weir-sasl", "weir-analysis"]),
    ("weir-mongodb-simulation", &["weir-base", "weir-mongodb-codec", "weir-mongodb-session", "weir-sasl"]),
    ("weir-postgres-session", POSTGRES_SESSION_USES),
    ("weir-postgres-simulation", &["weir-base", "weir-postgres-codec", "weir-postgres-session"]),
    ("weir-redis-session", REDIS_SESSION_USES),
    (
        "weir-redis-simulation",
        &["weir-base", "weir-resp", "weir-analysis", "weir-placement", "weir-policy", "weir-redis-session"],
    ),
];
const POSTGRES_SESSION_USES: &[&str] = &["weir-base", "weir-postgres-codec", "weir-sasl", "weir-analysis"];
const REDIS_SESSION_USES: &[&str] =
    &["weir-base", "weir-resp", "weir-telemetry", "weir-analysis", "weir-placement", "weir-policy"];

/// External crates that only some rooms may name as a normal dependency.
const EXTERNAL_ONLY_IN: &[(&str, &[&str])] = &[
    ("tokio", &["control", "weir"]),
    ("axum", &["control"]),
    ("hyper", &["control"]),
    ("compio", &["engine"]),
    ("compio-executor", &["engine"]),
];

/// External crates that `base` may use: it stands on the standard library.
const EXTERNAL_OF_BASE: &[&str] = &["zeroize", "subtle"];

/// An arrow between two workspace crates, or from one to an external crate.
struct Arrow<'a> {
    from: &'a str,
    from_room: &'a str,
    to: &'a str,
    /// `None`: an external crate.
    to_room: Option<&'a str>,
    is_dev: bool,
}

/// Every arrow of the workspace that the table does not allow.
pub fn violations(workspace: &Workspace) -> Vec<String> {
    let members: Vec<&Package> = workspace.metadata.workspace_packages();
    let room_of = |package: &Package| -> String {
        let manifest = workspace.relative(package.manifest_path.as_std_path());
        manifest.split('/').next().unwrap_or_default().to_owned()
    };
    let rooms: Vec<(String, String)> =
        members.iter().map(|package| (package.name.to_string(), room_of(package))).collect();
    let mut found = Vec::new();
    for package in &members {
        let from_room = room_of(package);
        for dependency in &package.dependencies {
            let to_room = rooms.iter().find(|(name, _)| *name == dependency.name).map(|(_, room)| room.as_str());
            let arrow = Arrow {
                from: &package.name,
                from_room: &from_room,
                to: &dependency.name,
                to_room,
                is_dev: dependency.kind == DependencyKind::Development,
            };
            found.extend(judge(&arrow));
        }
    }
    found
}

/// Why an arrow is not allowed; `None` if it is.
fn judge(arrow: &Arrow<'_>) -> Option<String> {
    let Some(room) = ROOMS.iter().find(|room| room.folder == arrow.from_room) else {
        return Some(format!(
            "{}: folder `{}` is not a room of the table in xtask/src/tidy/arrows.rs",
            arrow.from, arrow.from_room
        ));
    };
    match arrow.to_room {
        Some(to_room) => judge_inside(arrow, room, to_room),
        None if arrow.is_dev => None,
        None => judge_external(arrow),
    }
}

fn judge_inside(arrow: &Arrow<'_>, room: &Room, to_room: &str) -> Option<String> {
    if let Some((_, uses)) = PURE.iter().find(|(name, _)| *name == arrow.from)
        && !uses.contains(&arrow.to)
    {
        return Some(format!("{} -> {}: it has no I/O, and may use only [{}]", arrow.from, arrow.to, uses.join(", ")));
    }
    let is_listed = room.besides.contains(&(arrow.from, arrow.to));
    if is_listed || room.may_use.contains(&to_room) {
        return None;
    }
    Some(format!("{} -> {}: `{}` may use only [{}]", arrow.from, arrow.to, room.folder, room.may_use.join(", ")))
}

fn judge_external(arrow: &Arrow<'_>) -> Option<String> {
    if arrow.from_room == "base" && !EXTERNAL_OF_BASE.contains(&arrow.to) {
        return Some(format!(
            "{} -> {}: `base` stands on std and [{}]",
            arrow.from,
            arrow.to,
            EXTERNAL_OF_BASE.join(", ")
        ));
    }
    let (name, rooms) = EXTERNAL_ONLY_IN.iter().find(|(name, _)| *name == arrow.to)?;
    if rooms.contains(&arrow.from_room) {
        return None;
    }
    Some(format!("{} -> {name}: only [{}] may use it", arrow.from, rooms.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrow<'a>(from: (&'a str, &'a str), to: &'a str, to_room: Option<&'a str>) -> Arrow<'a> {
        Arrow { from: from.0, from_room: from.1, to, to_room, is_dev: false }
    }

    #[test]
    fn allowed_and_forbidden_arrows_are_distinguished() {
        let allowed = [
            arrow(("weir-redis", "proxy"), "weir-upstream", Some("dataplane")),
            arrow(("weir-ai", "proxy"), "weir-http", Some("proxy")),
            arrow(("weir-redis-session", "proxy"), "weir-policy", Some("dataplane")),
            arrow(("weir-redis-simulation", "proxy"), "weir-redis-session", Some("proxy")),
            arrow(("weir-origin", "lab"), "weir-engine", Some("engine")),
            arrow(("weir-admin", "control"), "tokio", None),
            arrow(("weir-tests", "tests"), "xtask", Some("xtask")),
        ];
        for arrow in &allowed {
            assert_eq!(judge(arrow), None, "{} -> {}", arrow.from, arrow.to);
        }
        let forbidden = [
            arrow(("weir-redis", "proxy"), "weir-http", Some("proxy")),
            arrow(("weir-redis-session", "proxy"), "weir-engine", Some("engine")),
            arrow(("weir-redis-session", "proxy"), "weir-upstream", Some("dataplane")),
            arrow(("weir-redis-simulation", "proxy"), "weir-listener", Some("dataplane")),
            arrow(("weir-upstream", "dataplane"), "weir-analysis", Some("dataplane")),
            arrow(("weir-policy", "dataplane"), "weir-engine", Some("engine")),
            arrow(("weir-origin", "lab"), "weir-upstream", Some("dataplane")),
            arrow(("weir-resp", "codec"), "weir-engine", Some("engine")),
            arrow(("weir-engine", "engine"), "weir-redis", Some("proxy")),
            arrow(("weir", "weir"), "weir-tests", Some("tests")),
            arrow(("weir-redis", "proxy"), "tokio", None),
            arrow(("weir-base", "base"), "memchr", None),
            arrow(("weir-new", "attic"), "weir-base", Some("base")),
        ];
        for arrow in &forbidden {
            assert!(judge(arrow).is_some(), "{} -> {}", arrow.from, arrow.to);
        }
    }

    #[test]
    fn dev_dependencies_may_be_external_but_obey_the_arrows() {
        let mut external = arrow(("weir-base", "base"), "proptest", None);
        external.is_dev = true;
        assert_eq!(judge(&external), None);
        let mut upward = arrow(("weir-engine", "engine"), "weir-config", Some("control"));
        upward.is_dev = true;
        assert!(judge(&upward).is_some());
    }
}
