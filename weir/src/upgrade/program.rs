//! Which file an upgrade starts: the one that is now where this program was started from.

use std::{
    env,
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// How this process was started. Taken at the start: later `/proc/self/exe` of a replaced file names one that is gone.
#[derive(Clone, Debug)]
pub struct Program {
    /// The first word of the command line, as it was.
    pub name: OsString,
    /// The other words.
    pub arguments: Vec<OsString>,
    path: PathBuf,
}

impl Program {
    /// The program of this process.
    pub fn of_this_process() -> Self {
        let mut words = env::args_os();
        let name = words.next().unwrap_or_default();
        let folder = env::current_dir().unwrap_or_default();
        let executable = env::current_exe().map(without_deleted).unwrap_or_default();
        let path = env::var_os("PATH").unwrap_or_default();
        let path = resolve(Path::new(&name), &folder, &path, &executable);
        Self { name, arguments: words.collect(), path }
    }

    /// The file to start. Symbolic links in it are followed when it is started, so one that was turned to another version
    /// is taken.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The path through which `executable` was started with the first word `name`; `executable` itself if that is not how.
///
/// The word matters: `/usr/bin/weir -> /opt/weir-1/weir` is upgraded by turning the link, and the kernel's name for the
/// running program is the old target.
fn resolve(name: &Path, folder: &Path, search: &std::ffi::OsStr, executable: &Path) -> PathBuf {
    let candidates: Vec<PathBuf> = if name.components().count() > 1 || name.is_absolute() {
        vec![folder.join(name)]
    } else {
        env::split_paths(search).map(|directory| folder.join(directory).join(name)).collect()
    };
    let first = candidates.into_iter().find(|path| is_executable(path));
    // A first word may be anything; only one that leads to this very program is believed.
    let is_ours = |path: &PathBuf| path.canonicalize().ok() == executable.canonicalize().ok();
    first.filter(is_ours).unwrap_or_else(|| executable.to_owned())
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The kernel marks a file that was replaced while it ran (proc_pid_exe(5)).
fn without_deleted(path: PathBuf) -> PathBuf {
    let text = path.to_string_lossy();
    match text.strip_suffix(" (deleted)") {
        Some(rest) if !path.exists() => PathBuf::from(rest),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fs, os::unix::fs::symlink};

    use super::*;

    fn program(path: &Path) {
        fs::write(path, "#!/bin/sh\n").expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    #[test]
    fn the_link_that_was_started_is_kept_and_not_its_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, link) = (folder.path().join("weir-1"), folder.path().join("weir"));
        program(&one);
        symlink(&one, &link).expect("a link");
        let none = OsStr::new("");
        assert_eq!(resolve(&link, Path::new("/"), none, &one), link);
        assert_eq!(resolve(Path::new("./weir"), folder.path(), none, &one), folder.path().join("./weir"));
        let search = env::join_paths(["/nowhere".as_ref(), folder.path()]).expect("a search path");
        assert_eq!(resolve(Path::new("weir"), Path::new("/"), &search, &one), link);
    }

    #[test]
    fn a_word_that_leads_elsewhere_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, other) = (folder.path().join("weir"), folder.path().join("other"));
        program(&ours);
        program(&other);
        for word in [other.as_path(), Path::new("/nowhere/weir"), Path::new("weir"), Path::new("")] {
            assert_eq!(resolve(word, Path::new("/"), OsStr::new(""), &ours), ours, "{}", word.display());
        }
    }

    #[test]
    fn the_mark_of_a_replaced_file_is_no_part_of_its_name() {
        assert_eq!(without_deleted(PathBuf::from("/nowhere/weir (deleted)")), Path::new("/nowhere/weir"));
        let folder = tempfile::tempdir().expect("a folder");
        let odd = folder.path().join("weir (deleted)");
        program(&odd);
        assert_eq!(without_deleted(odd.clone()), odd);
    }
}
