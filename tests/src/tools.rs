//! Programs and interpreters that `cargo xtask setup` installs for the tests.

use std::path::{Path, PathBuf};

/// The interpreter of Python that has the tests' libraries: named by the lane, or the one of the environment that is active.
///
/// # Panics
/// If there is neither.
pub fn python() -> PathBuf {
    let named = std::env::var_os("WEIR_TEST_PYTHON").map(PathBuf::from);
    let active = || std::env::var_os("VIRTUAL_ENV").map(|folder| Path::new(&folder).join("bin/python"));
    named
        .or_else(active)
        .expect("WEIR_TEST_PYTHON or VIRTUAL_ENV says where the libraries are: cargo xtask setup python")
}

/// A program built from a Go module: `h2spec`, `grpc/client`.
///
/// # Panics
/// If it was not built.
pub fn go(name: &str) -> PathBuf {
    installed(&format!("go/{name}")).unwrap_or_else(|| panic!("no {name}: run `cargo xtask setup http2`"))
}

/// In the folder of tools, which is beside the one that the test was built into.
fn installed(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    test.ancestors().map(|folder| folder.join("tools").join(name)).find(|file| file.is_file())
}
