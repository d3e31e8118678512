//! The budget of one analysis.

/// Budget of one command. A command beyond any of these is not whole: the analysis then says so (cases M3 and M17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Elements of the command and of its document sequences, those inside of others included. Default 32,768.
    pub elements_max: usize,
    /// Documents inside of each other. Default 100: servers store no deeper ones.
    pub depth_max: usize,
    /// Collections of a command. Default 64; an aggregation with more of them is none of a person, and a bulkWrite rarely has more.
    pub namespaces_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { elements_max: 32 * 1024, depth_max: 100, namespaces_max: 64 }
    }
}
