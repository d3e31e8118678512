//! A tutorial of `docs/tutorial`, carried out as a reader would: every command, in one shell, on the ports that it names.
//!
//! Fences of a tutorial: `sh` is commands, each of which must succeed; `sh serve=PORT` is a command of a terminal of its own, which
//! serves that port; `sh long` takes too long for a test. Each line of a `text` fence must be in what the commands before it print,
//! in this order.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::gateway::program;

/// For all commands of a tutorial together, in seconds.
const SECONDS_MAX: u32 = 180;

#[derive(Debug, PartialEq, Eq)]
enum Fence<'a> {
    Commands(&'a str),
    Server { port: u16, command: &'a str },
    Long,
    Output(Vec<&'a str>),
}

fn fences(text: &str) -> Vec<Fence<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (info, after) = after.split_once('\n').expect("a fence has a first line");
        let (body, after) = after.split_once("\n```").expect("a fence has an end");
        found.push(match info.split_once(' ').unwrap_or((info, "")) {
            ("sh", "") => Fence::Commands(body),
            ("sh", "long") => Fence::Long,
            ("sh", serve) => {
                let port = serve.strip_prefix("serve=").and_then(|port| port.parse().ok());
                Fence::Server {
                    port: port.unwrap_or_else(|| panic!("```{info}: a form without meaning")),
                    command: body,
                }
            }
            ("text", "") => Fence::Output(body.lines().collect()),
            _ => panic!("```{info}: a form without meaning"),
        });
        rest = after;
    }
    found
}

/// The shell script of a tutorial. The output of fence number N follows the line `==N`.
fn script(fences: &[Fence<'_>]) -> String {
    let mut script = "ip link set lo up\n".to_owned();
    for (number, fence) in fences.iter().enumerate() {
        match fence {
            Fence::Commands(commands) => writeln!(script, "echo; echo '=={number}'\nset -e\n{commands}\nset +e"),
            Fence::Server { port, command } => writeln!(
                script,
                "({command}) > server{number}.log 2>&1 &\n\
                 until (echo > /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.05; done"
            ),
            Fence::Long | Fence::Output(_) => Ok(()),
        }
        .expect("a string can be written to");
    }
    script
}

/// Carries out `docs/tutorial/NAME.md` in an empty folder. Its processes have a network and process numbers of their own, so its ports
/// are free, and none of them outlives it.
///
/// # Errors
/// A command failed, or its output lacks a line of the tutorial.
///
/// # Panics
/// If the tutorial cannot be read, or has a fence without meaning.
pub fn carry_out(name: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorial").join(name).with_extension("md");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let fences = fences(&text);
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("tutorial.sh"), script(&fences)).expect("a script");
    // Its file may have another name.
    let programs = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(program(), programs.path().join("weir")).expect("a link");
    // Without root a user namespace gives the right to make the other two.
    let is_root = fs::metadata("/proc/self").expect("procfs").uid() == 0;
    let output = Command::new("unshare")
        .args((!is_root).then_some("--map-root-user"))
        .args(["--net", "--pid", "--mount-proc", "--fork", "--kill-child", "timeout", &SECONDS_MAX.to_string()])
        .args(["bash", "-c", "bash tutorial.sh 2>&1"])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap_or_default()))
        .stdin(Stdio::null())
        .output()
        .expect("unshare can be started");
    let printed = String::from_utf8_lossy(&output.stdout);
    let logs = || -> String {
        let files = fs::read_dir(folder.path()).expect("the folder").flatten().map(|file| file.path());
        let logs = files.filter(|path| path.extension().is_some_and(|kind| kind == "log"));
        logs.map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
    };
    if !output.status.success() {
        return Err(format!("{}: {}\n{printed}\n{}", path.display(), output.status, logs()));
    }
    for (number, fence) in fences.iter().enumerate() {
        let Fence::Output(lines) = fence else { continue };
        let (_, after) =
            printed.split_once(&format!("=={}\n", number - 1)).expect("commands stand before their output");
        let mut rest = after.split_once("\n==").map_or(after, |(before, _)| before);
        for line in lines {
            let Some((_, after)) = rest.split_once(line) else {
                return Err(format!("{}: {line:?} is not in\n{rest}\n{}", path.display(), logs()));
            };
            rest = after;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_become_a_script() {
        let text = "# T\n\n```sh serve=80\nserve\n```\n\nText.\n\n```sh\none\ntwo\n```\n\n```text\n1\n2\n```\n\n```sh long\nx\n```\n";
        let fences = fences(text);
        let server = Fence::Server { port: 80, command: "serve" };
        assert_eq!(fences, [server, Fence::Commands("one\ntwo"), Fence::Output(vec!["1", "2"]), Fence::Long]);
        let script = script(&fences);
        assert!(script.contains("(serve) > server0.log 2>&1 &\nuntil (echo > /dev/tcp/127.0.0.1/80)"), "{script}");
        assert!(script.ends_with("echo; echo '==1'\nset -e\none\ntwo\nset +e\n"), "{script}");
    }
}
