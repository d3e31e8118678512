//! Links of documents: each leads to a file or folder of this tree, and to a heading that is there.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::tidy::sources::collect;
use crate::workspace::Workspace;

/// Broken links. Links out of the tree (`https:`) are not followed.
pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    collect(&workspace.root, &workspace.target, &["md"], &mut paths)?;
    let mut documents = BTreeMap::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).with_context(|| format!("{} is not readable", path.display()))?;
        documents.insert(path, text);
    }
    let mut found = Vec::new();
    for (path, text) in &documents {
        for (line, link) in links(text) {
            if let Some(wrong) = wrong(path, link, &documents) {
                found.push(format!("{}:{line}: the link to {link} leads nowhere: {wrong}", workspace.relative(path)));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The fault of a link in the document at `path`; `None` if it has none.
fn wrong(path: &Path, link: &str, documents: &BTreeMap<PathBuf, String>) -> Option<String> {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = match file {
        "" => path.to_path_buf(),
        file => normal(&path.parent().unwrap_or(path).join(file)),
    };
    if !target.exists() {
        return Some("there is no such file".to_owned());
    }
    let anchor = anchor?;
    let Some(text) = documents.get(&target) else { return Some("only documents have headings".to_owned()) };
    if headings(text).contains(&anchor.to_owned()) { None } else { Some("there is no such heading".to_owned()) }
}

/// Without `..` and `.`.
fn normal(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            part => whole.push(part),
        }
    }
    whole
}

/// Lines of a document that are no code, with their numbers.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence && !line.starts_with("    ")).then_some((at + 1, line))
    })
}

/// Targets of `[text](target)` within the tree, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let mut is_code = false;
        for (at, letter) in line.char_indices() {
            is_code ^= letter == '`';
            // Between backquotes nothing is a link.
            let Some(rest) = line[at..].strip_prefix("](").filter(|_| !is_code) else { continue };
            let target = rest.split(')').next().unwrap_or_default();
            if !target.contains(':') {
                found.push((number, target));
            }
        }
    }
    found
}

/// Names of headings as links have them: lower case, words joined by `-`, other characters left out; a number behind those
/// that come again.
fn headings(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        let name: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let again = found.iter().filter(|known| **known == name).count();
        found.push(if again == 0 { name } else { format!("{name}-{again}") });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_prose_and_not_in_code() {
        let text = "see [a](b.md) and [`c`](d.md#e), not [web](https://x) nor `[f](g)`\n```\n[h](i)\n```\n    [j](k)\n";
        assert_eq!(links(text), [(1, "b.md"), (1, "d.md#e")]);
    }

    #[test]
    fn headings_have_names() {
        let text = "# `[listener.http]`\n## A word, and more\n## Twice\n```\n# none\n```\n## Twice\n";
        assert_eq!(headings(text), ["listenerhttp", "a-word-and-more", "twice", "twice-1"]);
    }

    #[test]
    fn a_link_leads_to_a_file_and_a_heading_that_are_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (folder.path().join("one.md"), folder.path().join("two.md"));
        let documents = BTreeMap::from([(one.clone(), "# Here\n".to_owned()), (two.clone(), "# There\n".to_owned())]);
        for (path, text) in &documents {
            std::fs::write(path, text).expect("written");
        }
        for good in ["two.md", "./two.md#there", "#here"] {
            assert_eq!(wrong(&one, good, &documents), None, "{good}");
        }
        for bad in ["three.md", "two.md#here", "#there", "../two.md"] {
            assert!(wrong(&one, bad, &documents).is_some(), "{bad}");
        }
    }
}
