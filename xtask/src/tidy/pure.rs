//! Crates without I/O: their text names no clock, socket, file, thread or process. Time and seeds are arguments.

use super::arrows::PURE;
use super::sources::Sources;
use crate::workspace::Workspace;

/// Words that a crate without I/O may not have. Types of std such as `SystemTime` may pass through; asking for the time may not.
const FORBIDDEN: &[&str] = &[
    "Time::now",
    "Instant::now",
    "turn::now",
    "thread_local!",
    "thread::",
    "fs::",
    "process::",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "std::os::",
    "std::env::",
];

/// Each line of the source of a crate without I/O that breaks the rule. Tests may do as they like.
pub fn violations(workspace: &Workspace, sources: &Sources) -> Vec<String> {
    let packages = workspace.metadata.workspace_packages();
    let pure = packages.iter().filter(|package| PURE.iter().any(|(name, _)| *name == package.name.as_str()));
    let folders: Vec<String> = pure
        .filter_map(|package| package.manifest_path.parent())
        .map(|folder| format!("{}/src/", workspace.relative(folder.as_std_path())))
        .collect();
    let files = sources.files.iter().filter(|file| folders.iter().any(|folder| file.name.starts_with(folder.as_str())));
    files.filter(|file| !is_test(&file.name)).flat_map(|file| lines(&file.name, &file.text)).collect()
}

fn is_test(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

/// The lines in front of the tests that have a forbidden word, comments left out.
fn lines(name: &str, text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = product.lines().zip(1..).filter(|(line, _)| !line.trim_start().starts_with("//"));
    let found = code.filter_map(|(line, number)| {
        let word = FORBIDDEN.iter().find(|word| line.contains(**word))?;
        Some(format!("{name}:{number}: `{word}` in a crate without I/O: let the shell give it"))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_and_sockets_are_found_outside_of_comments_and_tests() {
        let text = "use weir_base::time::Time;\n// Time::now() is the shell's\nlet now = Time::now();\n#[cfg(test)]\nmod tests { fn a() { Time::now(); } }\n";
        assert_eq!(lines("a.rs", text), ["a.rs:3: `Time::now` in a crate without I/O: let the shell give it"]);
        assert!(lines("a.rs", "let now = io.now();\nuse std::net::IpAddr;\n").is_empty());
        assert!(is_test("proxy/x/src/pubsub/tests.rs") && !is_test("proxy/x/src/pubsub.rs"));
    }
}
