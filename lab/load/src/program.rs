//! The program that generates a load, as records name it. The binary sets its profile and commit once; tests leave them unset.

use std::sync::OnceLock;

static NAMED: OnceLock<(&'static str, &'static str)> = OnceLock::new();

/// Names the profile of cargo and the commit that the program was built with. Only the first call counts.
pub fn name(profile: &'static str, commit: &'static str) {
    let _ = NAMED.set((profile, commit));
}

/// Version and profile, such as `0.1.0 dist`.
pub fn build() -> String {
    let unnamed = if cfg!(debug_assertions) { "debug" } else { "release" };
    let profile = NAMED.get().map_or(unnamed, |(profile, _)| profile);
    format!("{} {profile}", env!("CARGO_PKG_VERSION"))
}

/// The commit, if the program has named one.
pub fn commit() -> Option<String> {
    NAMED.get().map(|(_, commit)| (*commit).to_owned())
}
