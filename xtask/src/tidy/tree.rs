//! Rules on the dependency tree of this platform, as cargo builds it (`cargo tree`; the lock file alone also lists crates behind
//! disabled features).

use std::collections::BTreeSet;

use anyhow::Result;

use crate::command;
use crate::workspace::Workspace;

/// Crates that must not be in the tree, with the reason.
const BANNED: &[(&str, &str)] = &[
    ("ring", "aws-lc-rs is the one TLS provider; two of them make rustls panic at first use"),
    ("openssl-sys", "TLS is rustls; no system library is linked"),
    ("native-tls", "TLS is rustls; no system library is linked"),
];

/// Crates that may stand in the tree in one version only: two of them do not share types or state.
const SINGLE: &[&str] = &["rustls", "compio", "tokio", "aws-lc-rs"];

/// Banned crates, git sources, and second versions.
pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let words =
        [cargo.as_str(), "tree", "--workspace", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}"];
    let printed = command::output(&mut command::command(&workspace.root, &words))?;
    Ok(judge(&printed))
}

/// Judges lines of the form `name v1.2.3 (source)`.
fn judge(printed: &str) -> Vec<String> {
    let lines: BTreeSet<&str> = printed.lines().map(str::trim).collect();
    let packages: BTreeSet<(&str, &str, bool)> = lines
        .iter()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let is_git = line.contains("(git+") || line.contains(".git?") || line.contains("#");
            Some((words.next()?, words.next()?, is_git))
        })
        .collect();
    let mut found = Vec::new();
    for (name, _, is_git) in &packages {
        if let Some((_, why)) = BANNED.iter().find(|(banned, _)| banned == name) {
            found.push(format!("Cargo.lock: `{name}` is in the tree: {why} (who pulls it: cargo tree -i {name})"));
        }
        if *is_git {
            found.push(format!("Cargo.lock: `{name}` comes from git; depend on a published version"));
        }
    }
    for single in SINGLE {
        let versions: BTreeSet<&str> =
            packages.iter().filter(|(name, _, _)| name == single).map(|(_, version, _)| *version).collect();
        if versions.len() > 1 {
            let list: Vec<_> = versions.into_iter().collect();
            found.push(format!(
                "Cargo.lock: {single} stands in {} versions ({}); one is allowed",
                list.len(),
                list.join(", ")
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_git_and_double_crates_are_found() {
        let tree = "weir v0.1.0 (/x/weir)\nrustls v0.23.1\nrustls v0.22.0\nring v0.17.14\n\
                    odd v1.0.0 (https://host.example/odd.git?rev=1#abcdef)\nserde v1.0.0 (*)\n";
        let found = judge(tree);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(judge("rustls v0.23.1\nweir v0.1.0 (/x/weir)\n").is_empty());
    }
}
