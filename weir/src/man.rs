//! `weir man`: the manual pages, made of the definition of the command line. Packages call it.

use std::{fs, path::PathBuf};

use clap::{Args, Command};

/// Write the manual pages: weir.1, and one for each subcommand, such as weir-lab-load.1.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder, which is made if it is missing.
    folder: PathBuf,
}

/// Writes the pages of `command`, the whole command line.
///
/// # Errors
/// The folder cannot be written.
pub fn run(args: &ManArgs, command: Command) -> Result<(), String> {
    let folder = &args.folder;
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.map_err(|error| format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use clap::CommandFactory;

    use super::*;

    /// The pages of a command and of all below it, with the options that each must explain.
    fn pages(command: &Command, name: &str, found: &mut Vec<(String, Vec<String>)>) {
        let options = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let options = options.filter_map(|argument| argument.get_long().map(str::to_owned)).collect();
        found.push((format!("{name}.1"), options));
        for below in command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
        {
            pages(below, &format!("{name}-{}", below.get_name()), found);
        }
    }

    fn read(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[test]
    fn each_subcommand_has_a_page_with_its_options() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = ManArgs { folder: folder.path().join("man1") };
        run(&args, crate::Cli::command()).expect("written");
        let mut expected = Vec::new();
        pages(&crate::Cli::command(), "weir", &mut expected);
        assert!(expected.iter().any(|(name, _)| name == "weir-lab-origin-redis.1"), "{expected:?}");
        for (name, options) in &expected {
            let page = read(&args.folder, name);
            for option in options {
                // A hyphen of the text is escaped in roff.
                let option = format!("\\-\\-{}", option.replace('-', "\\-"));
                assert!(page.contains(&option), "{name} lacks {option}");
            }
        }
        let names: BTreeSet<_> = expected.into_iter().map(|(name, _)| name).collect();
        for entry in fs::read_dir(&args.folder).expect("the folder") {
            let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
            assert!(names.contains(&name) || name.contains("-help"), "{name} is the page of no command");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let error = run(&ManArgs { folder: "/proc/weir".into() }, crate::Cli::command()).expect_err("no folder");
        assert!(error.starts_with("/proc/weir: "), "{error}");
    }
}
