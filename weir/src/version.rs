//! Version and build of the program. `build.rs` finds the commit and the profile.

/// Version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit that was checked out at the build, twelve digits; `unknown` if neither git nor the build's environment named one.
pub const COMMIT: &str = env!("WEIR_COMMIT");

/// Profile of cargo: `debug`, `release`, or `dist` for the program of a package.
pub const PROFILE: &str = env!("WEIR_PROFILE");

/// The version that `weir --version` prints behind the name.
pub const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WEIR_COMMIT"), ")");

#[cfg(test)]
#[path = "../build.rs"]
#[allow(dead_code, reason = "cargo calls its main")]
mod build_script;

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, process::Command};

    use super::build_script::{commit, profile, watched};

    fn git(folder: &Path, words: &[&str]) -> String {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
        let output = Command::new("git").current_dir(folder).args(identity).args(words).output().expect("git");
        assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    #[test]
    fn the_commit_is_the_one_of_the_environment_or_of_git_or_unknown() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        assert_eq!(commit(root, None), "unknown");
        git(root, &["init", "--quiet"]);
        git(root, &["commit", "--quiet", "--allow-empty", "--message", "one"]);
        let head = git(root, &["rev-parse", "HEAD"]);
        assert_eq!(commit(root, None), head[..12]);
        assert_eq!(commit(root, Some(" ")), head[..12]);
        assert_eq!(commit(root, Some("v1\ncargo:rustc-env=A=b")), "v1cargorustc");
        assert_eq!(commit(root, Some("0123456789abcdef")), "0123456789ab");
    }

    #[test]
    fn the_repository_around_an_unpacked_tarball_is_not_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        git(folder.path(), &["init", "--quiet"]);
        git(folder.path(), &["commit", "--quiet", "--allow-empty", "--message", "one"]);
        let tree = folder.path().join("weir-0.1.0");
        fs::create_dir(&tree).expect("a folder");
        assert_eq!(commit(&tree, None), "unknown");
    }

    #[test]
    fn each_commit_changes_a_watched_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        assert_eq!(watched(root).len(), 0);
        git(root, &["init", "--quiet"]);
        let contents = || watched(root).iter().map(|file| fs::read(file).expect("readable")).collect::<Vec<_>>();
        let mut before = contents();
        for step in
            [&["commit", "--allow-empty", "--message", "one"][..], &["commit", "--allow-empty", "--message", "two"]]
                .into_iter()
                .chain([&["pack-refs", "--all"][..], &["commit", "--allow-empty", "--message", "three"]])
        {
            git(root, step);
            let now = contents();
            assert!(now != before && !now.is_empty(), "after {step:?}");
            before = now;
        }
    }

    #[test]
    fn the_text_has_version_and_commit() {
        assert_eq!(super::TEXT, format!("{} (commit {})", super::VERSION, super::COMMIT));
        assert!(super::COMMIT == "unknown" || super::COMMIT.len() == 12, "{}", super::COMMIT);
        assert_eq!(super::PROFILE == "debug", cfg!(debug_assertions));
    }

    #[test]
    fn the_profile_is_read_from_the_output_folder() {
        assert_eq!(profile(Path::new("/t/dist/build/weir-1f/out")), Some("dist"));
        assert_eq!(profile(Path::new("/t/x86_64-unknown-linux-gnu/release/build/weir-1f/out")), Some("release"));
        assert_eq!(profile(Path::new("/elsewhere")), None);
    }
}
