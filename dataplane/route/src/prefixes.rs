//! All prefixes that a path has, longest first, without a look at the others.
//!
//! Prefixes are sorted as bytes; each knows the longest other one that it begins with, its parent. Between a prefix of a
//! path and the path itself, in that order, stands nothing that does not begin with the prefix. So the last prefix that
//! is not behind the path, and the chain of its parents, have all prefixes of the path in them: one binary search, one
//! comparison with the path, and a walk up.

use std::collections::BTreeMap;

use crate::path::is_below;

/// Numbers of routes by prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    /// Sorted by text.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    text: Box<str>,
    parent: Option<usize>,
    routes: Routes,
}

/// In order of precedence, each.
#[derive(Clone, Debug, Default)]
struct Routes {
    segments: Vec<usize>,
    text: Vec<usize>,
}

/// Collects prefixes.
#[derive(Debug, Default)]
pub(crate) struct Builder<'a>(BTreeMap<&'a str, Routes>);

impl<'a> Builder<'a> {
    /// Routes of one prefix come in order of precedence.
    pub(crate) fn add_segments(&mut self, text: &'a str, route: usize) {
        self.0.entry(text).or_default().segments.push(route);
    }

    /// The same for a string prefix.
    pub(crate) fn add_text(&mut self, text: &'a str, route: usize) {
        self.0.entry(text).or_default().text.push(route);
    }

    pub(crate) fn build(self) -> Prefixes {
        let mut nodes: Vec<Node> = Vec::with_capacity(self.0.len());
        // The chain of the last node, from the shortest prefix to itself.
        let mut chain: Vec<usize> = Vec::new();
        for (text, routes) in self.0 {
            while chain.last().is_some_and(|&last| !text.starts_with(&*nodes[last].text)) {
                chain.pop();
            }
            let parent = chain.last().copied();
            chain.push(nodes.len());
            nodes.push(Node { text: text.into(), parent, routes });
        }
        Prefixes { nodes }
    }
}

impl Prefixes {
    /// The routes whose prefix `path` has: longer prefixes first, segments before text.
    pub(crate) fn routes<'a>(&'a self, path: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let behind = self.nodes.partition_point(|node| node.text.as_bytes() <= path);
        let last = behind.checked_sub(1).map(|at| &self.nodes[at]);
        let common = last.map_or(0, |node| common_len(node.text.as_bytes(), path));
        let chain = std::iter::successors(last, |node| node.parent.map(|at| &self.nodes[at]));
        chain.filter(move |node| node.text.len() <= common).flat_map(move |node| {
            let segments = if is_below(&node.text, path) { &*node.routes.segments } else { &[] };
            segments.iter().chain(&node.routes.text).copied()
        })
    }
}

fn common_len(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_a_path_come_longest_first() {
        let mut builder = Builder::default();
        for (route, text) in ["/", "/a", "/a/b", "/a/b/c", "/ab", "/a-b", "/z"].into_iter().enumerate() {
            builder.add_segments(text, route);
            builder.add_text(text, route + 10);
        }
        let prefixes = builder.build();
        for (path, expected) in [
            ("/", &[0, 10][..]),
            ("/a", &[1, 11, 0, 10]),
            ("/a/b/cd", &[13, 2, 12, 1, 11, 0, 10]),
            ("/a/b/c/d", &[3, 13, 2, 12, 1, 11, 0, 10]),
            ("/a/bb", &[12, 1, 11, 0, 10]),
            ("/ab/", &[4, 14, 11, 0, 10]),
            ("/a-", &[11, 0, 10]),
            ("/zz", &[16, 0, 10]),
            ("", &[]),
        ] {
            assert_eq!(prefixes.routes(path.as_bytes()).collect::<Vec<_>>(), expected, "{path}");
        }
        assert_eq!(Prefixes::default().routes(b"/").count(), 0);
    }
}
