//! What the phases found: one line each, with its goal.

use weir_knee::markdown::Table;

/// Whether a finding is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// As it should be.
    Met,
    /// Not as it should be, and it does not depend on the machine: the run fails.
    Failed,
    /// A figure over its goal.
    Missed,
    /// No goal: for information.
    Told,
}

impl Judgement {
    /// A rule that clients rely on.
    pub(crate) fn rule(is_kept: bool) -> Self {
        if is_kept { Self::Met } else { Self::Failed }
    }

    /// A figure with a goal.
    pub(crate) fn figure(is_met: bool) -> Self {
        if is_met { Self::Met } else { Self::Missed }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Failed => "FAILED",
            Self::Missed => "missed",
            Self::Told => "",
        }
    }
}

/// All findings.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    findings: Vec<[String; 5]>,
    has_failed: bool,
}

impl Outcome {
    /// Adds a finding.
    pub(crate) fn add(&mut self, phase: &str, what: &str, found: String, goal: &str, judgement: Judgement) {
        self.has_failed |= judgement == Judgement::Failed;
        let found = found.replace(['\n', '|'], " ");
        self.findings.push([phase.into(), what.into(), found, goal.into(), judgement.word().into()]);
    }

    /// Adds something without a goal.
    pub(crate) fn tell(&mut self, phase: &str, what: &str, found: String) {
        self.add(phase, what, found, "", Judgement::Told);
    }

    /// A phase that ended with an error.
    pub(crate) fn failed(&mut self, phase: &str, error: &str) {
        self.add(phase, "the phase itself", error.to_owned(), "runs to its end", Judgement::Failed);
    }

    /// A phase that cannot be run with these options.
    pub(crate) fn not_run(&mut self, phase: &str, reason: &str) {
        self.tell(phase, "not run", reason.to_owned());
    }

    /// Whether anything failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The table.
    pub(crate) fn markdown(&self) -> String {
        let mut table = Table::new(&["phase", "what", "found", "goal", "verdict"]);
        for finding in &self.findings {
            table.row(finding.to_vec());
        }
        table.markdown()
    }
}
