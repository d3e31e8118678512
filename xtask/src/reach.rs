//! The reach of a change: the packages of its files and all that is built on them, and the lanes that prove these.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::Change;
use crate::workspace::Workspace;

/// The coverage of a lane. A change of any of it runs the lane in full.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covers {
    /// Packages, each with all packages of the workspace that it is built on.
    pub stacks: &'static [&'static str],
    /// Packages by themselves: what puts the others together, and would have every lane cover everything.
    pub packages: &'static [&'static str],
    /// Files and folders, from the root.
    pub paths: &'static [&'static str],
}

/// Files that decide how everything is built, installed and run.
pub const ROOTS: [&str; 17] = [
    "Cargo.toml",
    "Cargo.lock",
    ".cargo/",
    ".ci/",
    "rust-toolchain",
    "tests/clients/python/requirements.txt",
    "xtask/src/change.rs",
    "xtask/src/command.rs",
    "xtask/src/lane.rs",
    "xtask/src/lanes",
    "xtask/src/main.rs",
    "xtask/src/plan.rs",
    "xtask/src/programs.rs",
    "xtask/src/reach.rs",
    "xtask/src/setup/",
    "xtask/src/totals.rs",
    "xtask/src/workspace.rs",
];

/// Files that the tests of a package read although they are not its own: documents that it writes, what they are made of, and the fuzzer's seeds.
pub const READ: [(&str, &str); 7] = [
    ("docs/CONFIG.md", "weir-config"),
    ("docs/METRICS.md", "weir-telemetry"),
    ("docs/results/", "weir-trials"),
    ("docs/guide/operations.md", "weir-tests"),
    ("docs/tutorial/", "weir-tests"),
    ("fuzz/corpus/", "weir-tests"),
    ("packaging/", "xtask"),
];

/// Packages of the workspace, and which are built on which.
pub struct Graph {
    /// Folder from the root, with a `/` at its end, and the package in it.
    folders: BTreeMap<String, String>,
    /// Package, and those of the workspace that it names in its manifest.
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// From what `cargo metadata` says. Packages that only tests need count as well: their change can break a test.
    pub fn of(workspace: &Workspace) -> Self {
        let packages = workspace.metadata.workspace_packages();
        let names: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
        let mut graph = Self { folders: BTreeMap::new(), uses: BTreeMap::new() };
        for package in &packages {
            let folder = package.manifest_path.parent().unwrap_or(&package.manifest_path);
            let folder = workspace.relative(folder.as_std_path()) + "/";
            graph.folders.insert(folder, package.name.to_string());
            let used = package.dependencies.iter().map(|one| one.name.clone()).filter(|name| names.contains(&**name));
            graph.uses.insert(package.name.to_string(), used.collect());
        }
        graph
    }

    /// The names of all packages.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.uses.keys().map(String::as_str)
    }

    /// The workspace has that package.
    pub fn has(&self, package: &str) -> bool {
        self.uses.contains_key(package)
    }

    /// The packages that a lane with these covers proves.
    pub fn covered(&self, covers: &Covers) -> BTreeSet<String> {
        let stacks = covers.stacks.iter().flat_map(|package| self.stack(package));
        let packages = covers.packages.iter().map(|package| (*package).to_owned());
        let folders =
            self.folders.iter().filter(|(folder, _)| covers.paths.iter().any(|path| path.starts_with(*folder)));
        stacks.chain(packages).chain(folders.map(|(_, package)| package.clone())).collect()
    }

    /// The package that a file is of, and those that read it.
    fn packages_of<'a>(&'a self, file: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.folders.iter().filter(|(folder, _)| file.starts_with(folder.as_str()));
        let own = found.max_by_key(|(folder, _)| folder.len()).map(|(_, package)| package.as_str());
        own.into_iter().chain(readers(file))
    }

    /// A package and all that it is built on.
    fn stack(&self, package: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::from([package.to_owned()]);
        let mut next = vec![package];
        while let Some(name) = next.pop() {
            for used in self.uses.get(name).into_iter().flatten() {
                if found.insert(used.clone()) {
                    next.push(used);
                }
            }
        }
        found
    }

    /// Packages that a change of `changed` can reach: those that are built on them.
    fn reached(&self, changed: &BTreeSet<String>) -> BTreeSet<String> {
        self.uses.keys().filter(|package| !self.stack(package).is_disjoint(changed)).cloned().collect()
    }
}

fn readers(file: &str) -> impl Iterator<Item = &str> {
    READ.into_iter().filter_map(move |(path, package)| file.starts_with(path).then_some(package))
}

/// A document: only people and the tests of `tidy` read it. A file beside code may be one that a test compares with.
fn is_document(file: &str) -> bool {
    let is_prose = file.ends_with(".md") || file == "LICENSE";
    is_prose && !file.contains("/src/") && !file.contains("/tests/") && readers(file).next().is_none()
}

/// Packages of the workspace that a change reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReachedPackages {
    /// Every one.
    All,
    /// These.
    Some(BTreeSet<String>),
}

impl ReachedPackages {
    /// Whether it reaches that one.
    pub fn has(&self, package: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(packages) => packages.contains(package),
        }
    }

    /// It reaches none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Some(packages) if packages.is_empty())
    }

    /// For the closing table.
    pub fn describe(&self) -> String {
        match self {
            Self::All => "all packages".to_owned(),
            Self::Some(packages) => format!("{} packages are reached", packages.len()),
        }
    }

    /// They and `besides`, as words of cargo.
    pub fn selection<'a>(&'a self, besides: &[&'a str]) -> Vec<&'a str> {
        let Self::Some(packages) = self else { return vec!["--workspace"] };
        let mut packages: BTreeSet<&str> = packages.iter().map(String::as_str).collect();
        packages.extend(besides);
        packages.into_iter().flat_map(|package| ["--package", package]).collect()
    }
}

/// The reach of one change.
pub struct Reach<'a> {
    graph: &'a Graph,
    change: &'a Change,
}

impl<'a> Reach<'a> {
    /// The reach of `change` in the workspace that `graph` describes.
    pub fn new(graph: &'a Graph, change: &'a Change) -> Self {
        Self { graph, change }
    }

    /// Nothing but documents changed.
    pub fn is_documents(&self) -> bool {
        !self.change.files.is_empty() && self.change.files.iter().all(|file| is_document(file))
    }

    /// Packages with a changed file.
    fn changed(&self) -> BTreeSet<String> {
        let files = self.change.files.iter().filter(|file| !is_document(file));
        files.flat_map(|file| self.graph.packages_of(file)).map(str::to_owned).collect()
    }

    /// Packages that the change reaches: all, if it changes how everything is built, or a file that is in no package (an example,
    /// which tests of several read).
    pub fn packages(&self) -> ReachedPackages {
        let decides_all = |file: &String| {
            ROOTS.iter().any(|root| file.starts_with(root))
                || (!is_document(file) && self.graph.packages_of(file).next().is_none())
        };
        if self.change.files.iter().any(decides_all) {
            ReachedPackages::All
        } else {
            ReachedPackages::Some(self.graph.reached(&self.changed()))
        }
    }

    /// The first changed file for which a lane runs in full, if there is one.
    pub fn file_in(&self, covers: &Covers) -> Option<&'a str> {
        let mut packages: BTreeSet<String> =
            covers.stacks.iter().flat_map(|package| self.graph.stack(package)).collect();
        packages.extend(covers.packages.iter().map(|package| (*package).to_owned()));
        let is_covered = |file: &str| {
            ROOTS.iter().any(|root| file.starts_with(root))
                || covers.paths.iter().any(|path| file.starts_with(path))
                || self.graph.packages_of(file).any(|package| packages.contains(package))
        };
        let mut files = self.change.files.iter().map(String::as_str);
        files.find(|file| !is_document(file) && is_covered(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        let packages = [
            ("engine/", "engine", &[][..]),
            ("proxy/one/", "one", &["engine"]),
            ("proxy/two/", "two", &["engine"]),
            ("control/config/", "weir-config", &["one", "two"]),
            ("weir/", "weir", &["weir-config", "one", "two"]),
        ];
        let mut graph = Graph { folders: BTreeMap::new(), uses: BTreeMap::new() };
        for (folder, name, uses) in packages {
            graph.folders.insert(folder.into(), name.into());
            graph.uses.insert(name.into(), uses.iter().map(|used| (*used).to_owned()).collect());
        }
        graph
    }

    const ONE: Covers = Covers { stacks: &["one"], packages: &["weir"], paths: &["tests/one/"] };

    fn change(files: &[&str]) -> Change {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        Change { base: "base".into(), files, head: "head".into() }
    }

    #[test]
    fn a_lane_is_reached_by_its_dependencies_and_not_by_its_neighbour() {
        let graph = graph();
        let file = |files: &[&str]| {
            let change = change(files);
            Reach::new(&graph, &change).file_in(&ONE).map(str::to_owned)
        };
        for reached in ["proxy/one/src/lib.rs", "engine/src/lib.rs", "weir/src/main.rs", "tests/one/a.rs", "Cargo.lock"]
        {
            assert_eq!(file(&[reached]).as_deref(), Some(reached));
        }
        for elsewhere in ["proxy/two/src/lib.rs", "tests/two/a.rs", "proxy/one/README.md", "docs/CONFIG.md"] {
            assert_eq!(file(&[elsewhere]), None);
        }
        assert_eq!(file(&["proxy/two/a.rs", "proxy/one/a.rs"]).as_deref(), Some("proxy/one/a.rs"));
    }

    #[test]
    fn generated_documents_are_of_their_program() {
        let graph = graph();
        let hand_written = change(&["README.md", "docs/guide/http.md"]);
        assert!(Reach::new(&graph, &hand_written).is_documents());
        let generated = change(&["README.md", "docs/CONFIG.md"]);
        let reach = Reach::new(&graph, &generated);
        assert!(!reach.is_documents());
        assert_eq!(reach.changed(), BTreeSet::from(["weir-config".to_owned()]));
        let result = change(&["docs/results/redis.json", "docs/results/redis.md"]);
        assert_eq!(Reach::new(&graph, &result).changed(), BTreeSet::from(["weir-trials".to_owned()]));
        let nothing = change(&[]);
        assert!(!Reach::new(&graph, &nothing).is_documents(), "nothing changed is no change of documents");
        let compared = change(&["proxy/one/src/testdata/report.md"]);
        assert!(!Reach::new(&graph, &compared).is_documents(), "a test compares with it");
        let seeds = change(&["fuzz/corpus/redis_session/a"]);
        assert_eq!(Reach::new(&graph, &seeds).changed(), BTreeSet::from(["weir-tests".to_owned()]));
    }

    #[test]
    fn a_package_reaches_all_that_is_built_on_it() {
        let graph = graph();
        let reached = |files: &[&str]| {
            let change = change(files);
            Reach::new(&graph, &change).packages()
        };
        let two = reached(&["proxy/two/src/lib.rs", "README.md"]);
        assert_eq!(two, ReachedPackages::Some(["two", "weir", "weir-config"].map(str::to_owned).into()));
        assert!(two.has("weir") && !two.has("one") && !two.is_empty());
        assert_eq!(
            two.selection(&["one", "weir"]).join(" "),
            "--package one --package two --package weir --package weir-config"
        );
        assert!(reached(&["README.md"]).is_empty());
        for all in ["Cargo.lock", "examples/weir.toml", "xtask/src/lanes/suites.rs"] {
            assert_eq!(reached(&["proxy/two/src/lib.rs", all]), ReachedPackages::All, "{all}");
        }
        assert_eq!(ReachedPackages::All.selection(&["one"]), ["--workspace"]);
    }
}
