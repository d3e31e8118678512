//! The change that a run of the tests answers for: the files that differ from an older commit, in the commits since and in the
//! working tree.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::command::{command, output};

/// Without `--since`, the change begins at the newest commit that is older than this.
const AGE: &str = "24 hours ago";

/// Files that differ, and from what.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// The commit it begins at, as `git` shortens it, with its subject.
    pub base: String,
    /// Paths from the root of the workspace, with `/`.
    pub files: BTreeSet<String>,
    /// The commit that is tested: it decides what rotates.
    pub head: String,
}

/// The change since `since`, a revision as `git rev-parse` reads it. Without it: since the newest commit that is older than a
/// day. `None` if there is no such commit (a shallow clone, a young repository), or no repository that `git` reads: then
/// nothing says what changed.
///
/// # Errors
/// `since` is given and is no revision, or `git` fails.
pub fn read(root: &Path, since: Option<&str>) -> Result<Option<Change>> {
    let Some(revision) = since else {
        let base = git(root, &["rev-list", "-1", "--first-parent", &format!("--before={AGE}"), "HEAD"]);
        let change = base.and_then(|base| match base.trim() {
            "" => Ok(None),
            base => since_commit(root, base).map(Some),
        });
        return Ok(change.unwrap_or_else(|error| {
            println!("the change cannot be read: {error:#}");
            None
        }));
    };
    let wanted = format!("{revision}^{{commit}}");
    let base = git(root, &["rev-parse", "--verify", "--quiet", &wanted])
        .with_context(|| format!("--since: `{revision}` is no revision of this repository"))?;
    since_commit(root, base.trim()).map(Some)
}

fn git(root: &Path, words: &[&str]) -> Result<String> {
    output(command(root, &[&["git"], words].concat()).env("LC_ALL", "C"))
}

fn since_commit(root: &Path, base: &str) -> Result<Change> {
    // A file that was renamed counts at both places.
    let changed = git(root, &["diff", "--name-only", "--no-renames", "-z", base])?;
    let new = git(root, &["ls-files", "--others", "--exclude-standard", "-z"])?;
    let names = changed.split('\0').chain(new.split('\0'));
    let files = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let base = git(root, &["log", "-1", "--format=%h %s", base])?.trim().to_owned();
    let head = git(root, &["rev-parse", "HEAD"])?.trim().to_owned();
    Ok(Change { base, files, head })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one old commit and one of today.
    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let run = |words: &[&str], date: &[(&str, &str)]| {
            let words = [&["git", "-c", "user.name=a", "-c", "user.email=a@b"], words].concat();
            output(command(folder.path(), &words).envs(date.iter().copied())).expect("git runs");
        };
        let long_ago = [("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")];
        let write = |name: &str| std::fs::write(folder.path().join(name), name).expect("written");
        run(&["init", "--quiet"], &[]);
        write("old");
        run(&["add", "."], &[]);
        run(&["commit", "--quiet", "-m", "first"], &long_ago);
        write("committed");
        run(&["add", "."], &[]);
        run(&["commit", "--quiet", "-m", "second"], &[]);
        write("new file");
        folder
    }

    #[test]
    fn the_change_begins_at_the_newest_commit_that_is_a_day_old() {
        let folder = repository();
        let change = read(folder.path(), None).expect("git runs").expect("there is an old commit");
        assert!(change.base.ends_with(" first"), "{}", change.base);
        assert_eq!(change.files.iter().collect::<Vec<_>>(), ["committed", "new file"]);
        assert_eq!(change.head.len(), 40);
    }

    #[test]
    fn a_revision_can_be_named_and_must_exist() {
        let folder = repository();
        let change = read(folder.path(), Some("HEAD")).expect("git runs").expect("HEAD exists");
        assert_eq!(change.files.iter().collect::<Vec<_>>(), ["new file"]);
        let error = read(folder.path(), Some("no-such")).expect_err("no such revision");
        assert_eq!(error.to_string(), "--since: `no-such` is no revision of this repository");
    }

    #[test]
    fn without_a_repository_changes_are_unknown() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path(), None).expect("no error"), None);
    }
}
