//! Completeness: a protocol of the gateway lacks nothing that the others have.
//!
//! The list of protocols is that of the crates in `proxy/`: a folder there with a `Cargo.toml` holds the sessions that a
//! listener can have, and its name is the protocol's. A folder `x-y` is a part of the protocol `x`; without `x`, no listener can have
//! the protocol yet, and no piece is due. Nothing else has to be declared: each piece has its place by name.
//!
//! | piece | place, for the protocol `x` |
//! |---|---|
//! | a life cycle | `proxy/x/LIFECYCLE.md`, or that of a part |
//! | a fuzz target of its codec or its session | `fuzz/targets/x_*.rs` |
//! | an origin of the lab | `lab/origin/src/x.rs`, or that of the protocol whose origin its load names: `origin: "y"` |
//! | a load of the lab | `lab/load/src/protocols/x.rs`, and a scenario `examples/lab/x*.toml` |
//! | a peer of the lab | `lab/parties/src/peers/`: Weir with a listener of `x`, and another gateway for the same load |
//! | tests of the product | a file `x.rs` or a folder `x` anywhere below `tests/tests` |
//! | an example | `examples/x*.toml` |
//! | a page of the guide | `docs/guide/x.md` |
//! | a row of the status table | a row in README.md whose first cell has the word `x` |

use std::path::Path;

use anyhow::{Context, Result};

use crate::tidy::sources::collect;
use crate::workspace::Workspace;

/// A piece whose place is a file: folder, and beginning and end of its name. `{}` is the protocol, `{origin}` the
/// origin of its load.
struct FilePiece {
    what: &'static str,
    folder: &'static str,
    begins: &'static str,
    ends: &'static str,
}

const FILES: &[FilePiece] = &[
    FilePiece { what: "life cycle", folder: "proxy/{}", begins: "LIFECYCLE", ends: ".md" },
    FilePiece { what: "fuzz target", folder: "fuzz/targets", begins: "{}_", ends: ".rs" },
    FilePiece { what: "lab origin", folder: "lab/origin/src", begins: "{origin}.", ends: "rs" },
    FilePiece { what: "lab load", folder: "lab/load/src/protocols", begins: "{}.", ends: "rs" },
    FilePiece { what: "lab scenario", folder: "examples/lab", begins: "{}", ends: ".toml" },
    FilePiece { what: "example", folder: "examples", begins: "{}", ends: ".toml" },
    FilePiece { what: "guide page", folder: "docs/guide", begins: "{}.", ends: "md" },
];

/// Pieces that protocols lack.
pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    missing(&workspace.root)
}

/// The same for the tree at `root`.
fn missing(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for protocol in protocols(root)? {
        let origin = origin(root, &protocol);
        for piece in FILES {
            let [folder, begins] = [piece.folder, piece.begins]
                .map(|pattern| pattern.replace("{}", &protocol).replace("{origin}", &origin));
            let fits = |name: &String| name.strip_prefix(&*begins).is_some_and(|rest| rest.ends_with(piece.ends));
            let mut places = if piece.folder.contains("{}") { parts(root, &protocol)? } else { vec![folder.clone()] };
            places.retain(|place| names(&root.join(place)).is_ok_and(|names| names.iter().any(fits)));
            if places.is_empty() {
                let star = if begins.ends_with('.') || begins == "LIFECYCLE" { "" } else { "*" };
                let place = format!("{folder}/{begins}{star}{}", piece.ends);
                found.push(format!("proxy/{protocol}: the protocol has no {}: add {place}", piece.what));
            }
        }
        if !has_tests(&root.join("tests/tests"), &protocol)? {
            let place = format!("{protocol}.rs, or a folder {protocol}, below tests/tests");
            found.push(format!("proxy/{protocol}: the protocol has no test module: add {place}"));
        }
        found.extend(missing_peer(root, &protocol)?);
        if !has_row(&text(&root.join("README.md"))?, &protocol) {
            found.push(format!("proxy/{protocol}: the protocol has no row in the status table: add it to README.md"));
        }
    }
    Ok(found)
}

/// The origin that the load of a protocol names; its own if there is no load.
fn origin(root: &Path, protocol: &str) -> String {
    let load = text(&root.join(format!("lab/load/src/protocols/{protocol}.rs"))).unwrap_or_default();
    let named = load.split_once("origin: \"").and_then(|(_, rest)| rest.split('"').next());
    named.unwrap_or(protocol).to_owned()
}

/// Names of the protocols in `proxy/`, in order.
fn protocols(root: &Path) -> Result<Vec<String>> {
    Ok(crates(root)?.into_iter().filter(|name| !name.contains('-')).collect())
}

/// The folders of the crates of a protocol.
fn parts(root: &Path, protocol: &str) -> Result<Vec<String>> {
    let is_part = |name: &&String| name.split('-').next() == Some(protocol);
    Ok(crates(root)?.iter().filter(is_part).map(|name| format!("proxy/{name}")).collect())
}

/// Names of the crates in `proxy/`, in order.
fn crates(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("proxy");
    let mut found = names(&folder)?;
    found.retain(|name| folder.join(name).join("Cargo.toml").is_file());
    found.sort();
    Ok(found)
}

/// Names of the entries of a folder; none if there is no folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{} is not readable text", path.display()))
}

fn has_tests(folder: &Path, protocol: &str) -> Result<bool> {
    if !folder.is_dir() {
        return Ok(false);
    }
    let mut files = Vec::new();
    collect(folder, &folder.join("target"), &["rs"], &mut files)?;
    Ok(files.iter().filter_map(|file| file.strip_prefix(folder).ok()).any(|file| {
        let is_inside = file.parent().is_some_and(|parents| parents.iter().any(|parent| parent == protocol));
        is_inside || file.file_stem().is_some_and(|stem| stem == protocol)
    }))
}

/// A comparison needs Weir in front of the protocol, and one more gateway that carries the same load.
fn missing_peer(root: &Path, protocol: &str) -> Result<Option<String>> {
    let folder = root.join("lab/parties/src/peers");
    let peers: Vec<String> = names(&folder)?.iter().map(|name| text(&folder.join(name))).collect::<Result<_>>()?;
    let (ours, others): (Vec<_>, Vec<_>) = peers.iter().partition(|peer| line_of(peer, "name") == Some("\"weir\""));
    let listener = format!("protocol = \"{protocol}\"");
    let Some(ours) = ours.into_iter().find(|peer| peer.lines().any(|line| line == listener)) else {
        let place = format!("a weir*.toml with {listener} to lab/parties/src/peers");
        return Ok(Some(format!("proxy/{protocol}: the lab has no Weir for the protocol: add {place}")));
    };
    let is_carried = words(ours).any(|word| others.iter().any(|other| words(other).any(|spoken| spoken == word)));
    let place = "another gateway for one of its words to lab/parties/src/peers";
    Ok((!is_carried).then(|| format!("proxy/{protocol}: the protocol has no lab peer: add {place}")))
}

/// The value of a key that has a line of its own.
fn line_of<'a>(peer: &'a str, key: &str) -> Option<&'a str> {
    peer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))
}

/// The loads that a peer carries.
fn words(peer: &str) -> impl Iterator<Item = &str> {
    line_of(peer, "protocols").unwrap_or_default().split('"').skip(1).step_by(2)
}

/// Whether the first cell of a row has the word, whatever its case.
fn has_row(readme: &str, protocol: &str) -> bool {
    let cells = readme.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells
        .flat_map(|cell| cell.split(|letter: char| !letter.is_alphanumeric()))
        .any(|word| word.eq_ignore_ascii_case(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every piece of a protocol `x`, and the words by which its absence is named.
    const TREE: &[(&str, &str, &str)] = &[
        ("proxy/x/LIFECYCLE.md", "", "no life cycle: add proxy/x/LIFECYCLE.md"),
        ("fuzz/targets/x_frames.rs", "", "no fuzz target: add fuzz/targets/x_*.rs"),
        ("lab/origin/src/x.rs", "", "no lab origin: add lab/origin/src/x.rs"),
        ("lab/load/src/protocols/x.rs", "", "no lab load: add lab/load/src/protocols/x.rs"),
        ("examples/lab/x1.toml", "", "no lab scenario: add examples/lab/x*.toml"),
        ("examples/x-full.toml", "", "no example: add examples/x*.toml"),
        ("docs/guide/x.md", "", "no guide page: add docs/guide/x.md"),
        ("tests/tests/http/x.rs", "", "no test module: add x.rs"),
        (
            "lab/parties/src/peers/weir-x.toml",
            "name = \"weir\"\nprotocols = [\"x1\", \"x2\"]\ntext = '''\nprotocol = \"x\"\n'''\n",
            "the lab has no Weir for the protocol",
        ),
        ("lab/parties/src/peers/envoy-x.toml", "name = \"envoy-x\"\nprotocols = [\"x2\"]\n", "no lab peer"),
    ];
    const README: &str = "| protocol | state |\n|---|---|\n| X/1, and Y | works |\n";

    /// A tree with all pieces but the one at `without`.
    fn tree(without: Option<&str>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("proxy/x/Cargo.toml", "");
        write("proxy/notes/README.md", "no crate");
        write("README.md", if without == Some("README.md") { "| Y | works |\n" } else { README });
        TREE.iter().filter(|(name, ..)| Some(*name) != without).for_each(|(name, text, _)| write(name, text));
        folder
    }

    #[test]
    fn a_protocol_with_every_piece_is_complete() {
        let whole = tree(None);
        assert_eq!(missing(whole.path()).expect("readable"), Vec::<String>::new());
        std::fs::rename(whole.path().join("tests/tests/http"), whole.path().join("tests/tests/x")).expect("moved");
        assert_eq!(missing(whole.path()).expect("readable"), Vec::<String>::new(), "a folder of its name will do");
    }

    #[test]
    fn a_part_of_a_protocol_is_no_protocol_and_may_have_its_life_cycle() {
        let lacking = tree(Some("proxy/x/LIFECYCLE.md"));
        let part = lacking.path().join("proxy/x-session");
        std::fs::create_dir_all(&part).expect("made");
        std::fs::write(part.join("Cargo.toml"), "").expect("written");
        assert_eq!(missing(lacking.path()).expect("readable").len(), 1, "the life cycle");
        std::fs::write(part.join("LIFECYCLE.md"), "").expect("written");
        assert_eq!(missing(lacking.path()).expect("readable"), Vec::<String>::new());
    }

    #[test]
    fn a_part_without_its_protocol_lacks_nothing() {
        let whole = tree(None);
        let part = whole.path().join("proxy/z-session");
        std::fs::create_dir_all(&part).expect("made");
        std::fs::write(part.join("Cargo.toml"), "").expect("written");
        assert_eq!(missing(whole.path()).expect("readable"), Vec::<String>::new());
    }

    #[test]
    fn a_load_may_use_the_origin_of_another_protocol() {
        let borrowing = tree(Some("lab/origin/src/x.rs"));
        let write = |name: &str, text: &str| std::fs::write(borrowing.path().join(name), text).expect("written");
        write("lab/load/src/protocols/x.rs", "&Family { own_keys: &[], origin: \"y\", has_workers: true }");
        assert_eq!(
            missing(borrowing.path()).expect("readable"),
            ["proxy/x: the protocol has no lab origin: add lab/origin/src/y.rs"]
        );
        std::fs::create_dir_all(borrowing.path().join("lab/origin/src")).expect("made");
        write("lab/origin/src/y.rs", "");
        assert_eq!(missing(borrowing.path()).expect("readable"), Vec::<String>::new());
    }

    #[test]
    fn each_missing_piece_has_an_error_of_its_own() {
        let readme = ("README.md", "", "no row in the status table");
        for (name, _, words) in TREE.iter().chain([&readme]) {
            let found = missing(tree(Some(name)).path()).expect("readable");
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert!(found[0].starts_with("proxy/x: ") && found[0].contains(words), "{name}: {}", found[0]);
        }
    }

    #[test]
    fn files_of_another_protocol_are_no_piece_of_this_one() {
        let lacking = tree(Some("fuzz/targets/x_frames.rs"));
        std::fs::create_dir_all(lacking.path().join("fuzz/targets")).expect("made");
        for other in ["xy_frames.rs", "x.rs", "x_frames.txt"] {
            std::fs::write(lacking.path().join("fuzz/targets").join(other), "").expect("written");
        }
        assert_eq!(missing(lacking.path()).expect("readable").len(), 1);
        assert!(!has_row("| Xy | works |\nx\n", "x") && has_row("| **x**, y | works |", "x"));
    }
}
