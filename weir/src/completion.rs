//! `weir completion`: the completion script of a shell, made of the definition of the command line.

use std::io::{self, ErrorKind, Write};

use clap::{Args, Command, ValueEnum};
use clap_complete::shells;

/// Print the completion script of a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir completion bash > /etc/bash_completion.d/weir\n  \
                  weir completion zsh > ~/.zfunc/_weir\n  \
                  weir completion fish > ~/.config/fish/completions/weir.fish\n\n\
                  The Debian package installs the scripts of all three shells.")]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// A shell that `weir completion` knows.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script for `command`, the whole command line.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &CompletionArgs, command: Command) -> Result<(), String> {
    match io::stdout().write_all(&script(args.shell, command)) {
        // The reader has seen enough: `weir completion bash | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| format!("standard output: {error}")),
    }
}

fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let mut script = Vec::new();
    match shell {
        Shell::Bash => clap_complete::generate(shells::Bash, &mut command, "weir", &mut script),
        Shell::Zsh => clap_complete::generate(shells::Zsh, &mut command, "weir", &mut script),
        Shell::Fish => clap_complete::generate(shells::Fish, &mut command, "weir", &mut script),
    }
    script
}

#[cfg(test)]
mod tests {
    use std::{fs, process};

    use clap::CommandFactory;

    use super::*;

    fn output(words: &[&str]) -> String {
        let output = process::Command::new(words[0]).args(&words[1..]).output().expect("the program starts");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[test]
    fn bash_completes_subcommands_and_options() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("weir");
        fs::write(&file, script(Shell::Bash, crate::Cli::command())).expect("written");
        let file = file.to_str().expect("a plain path");
        output(&["bash", "-n", file]);
        let complete = |line: &str| {
            // As bash calls it: the words, the number of the last one, and the function with the word and the one before.
            let call = "source \"$1\"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                        _weir weir \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; echo \"${COMPREPLY[*]}\"";
            output(&["bash", "-c", call, "bash", file, line]).trim().to_owned()
        };
        assert_eq!(complete("weir upg"), "upgrade");
        assert_eq!(complete("weir lab kn"), "knee");
        assert_eq!(complete("weir top --on"), "--once");
        assert_eq!(complete("weir completion f"), "fish");
    }

    #[test]
    fn scripts_of_all_shells_name_every_command() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell, crate::Cli::command())).expect("text");
            let command = crate::Cli::command();
            for name in command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name) {
                assert!(script.contains(name), "{shell:?} lacks {name}");
            }
        }
    }
}
