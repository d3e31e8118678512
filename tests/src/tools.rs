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

/// The server with the API of S3.
///
/// # Panics
/// If it was not built.
pub fn s3() -> PathBuf {
    installed("go/versitygw").unwrap_or_else(|| panic!("no versitygw: run `cargo xtask setup s3`"))
}

/// The interpreter of Python that has the tests' libraries, as [`python`], or the one that `cargo xtask setup` made.
///
/// # Panics
/// If there is none.
pub fn python_installed() -> PathBuf {
    installed("python/bin/python").unwrap_or_else(python)
}

/// A program that checks a driver of PostgreSQL: `go/postgres`.
///
/// # Panics
/// If it was not built.
pub fn postgres(name: &str) -> PathBuf {
    let found = installed(&format!("postgres/{name}"));
    found.unwrap_or_else(|| panic!("no {name}: run `cargo xtask setup postgres-drivers`"))
}

/// A program or an interpreter of the tests of MongoDB: `ferretdb/ferretdb`, `go/mongodb`, `pymongo/bin/python`.
///
/// # Panics
/// If it was not built.
pub fn mongodb(name: &str) -> PathBuf {
    let found = installed(&format!("mongodb/{name}"));
    found.unwrap_or_else(|| panic!("no {name}: run `cargo xtask setup mongodb mongodb-drivers`"))
}

/// The interpreter of Python that has the SDKs of language models.
///
/// # Panics
/// If it was not installed.
pub fn ai_sdks() -> PathBuf {
    let found = installed("ai-sdks/bin/python");
    found.unwrap_or_else(|| panic!("no SDKs of language models: run `cargo xtask setup ai-sdks`"))
}

/// The interpreter of Python that has the SDK of Unleash.
///
/// # Panics
/// If it was not installed.
pub fn flag_sdks() -> PathBuf {
    let found = installed("flag-sdks/bin/python");
    found.unwrap_or_else(|| panic!("no SDK of Unleash for Python: run `cargo xtask setup flag-sdks`"))
}

/// A program around an SDK of Unleash: `go/flags`.
///
/// # Panics
/// If it was not built.
pub fn flags(name: &str) -> PathBuf {
    let found = installed(&format!("flags/{name}"));
    found.unwrap_or_else(|| panic!("no {name}: run `cargo xtask setup flag-sdks`"))
}

/// The interpreter of Python that has the exporter of PgBouncer's figures.
///
/// # Panics
/// If it was not installed.
pub fn exporter() -> PathBuf {
    let found = installed("pgbouncer-exporter/bin/python");
    found.unwrap_or_else(|| panic!("no exporter: run `cargo xtask setup postgres-drivers`"))
}

/// The folder of a package in the interpreter's environment.
///
/// # Panics
/// If it is not installed.
pub fn python_package(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let environments = test.ancestors().map(|folder| folder.join("tools/python"));
    let named = std::env::var_os("WEIR_TEST_PYTHON").map(PathBuf::from);
    // The environment of the named interpreter is two folders above it.
    let named = named.as_deref().and_then(|program| program.ancestors().nth(2)).map(Path::to_path_buf);
    let libraries = named.into_iter().chain(environments).flat_map(|folder| folders(&folder.join("lib")));
    let mut found = libraries.map(|library| library.join("site-packages").join(name));
    found
        .find(|folder| folder.is_dir())
        .unwrap_or_else(|| panic!("no Python package {name}: run `cargo xtask setup postgres`"))
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}

/// In the folder of tools, which is beside the one that the test was built into.
fn installed(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    test.ancestors().map(|folder| folder.join("tools").join(name)).find(|file| file.is_file())
}
