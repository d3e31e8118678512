//! A text becomes an analysis.

use super::build::statement;
use super::fingerprint::fingerprint_of;
use super::lexer::Reading;
use super::limits::Limits;
use super::statement::{Analysis, Flaw};
use super::tokens::{statements, tokens};

/// Analyses `text` for a session whose setting `standard_conforming_strings` is not known: where it matters for the
/// ends of strings, the text is not whole. Never fails; the cost is linear in the text and bounded by `limits`.
pub fn analyse(text: &[u8], limits: &Limits) -> Analysis {
    analyse_as(text, Reading::Unknown, limits)
}

/// The same for a session that reads backslashes as `reading` says.
pub fn analyse_as(text: &[u8], reading: Reading, limits: &Limits) -> Analysis {
    whole(text, reading, limits).unwrap_or_else(Analysis::flawed)
}

fn whole(text: &[u8], reading: Reading, limits: &Limits) -> Result<Analysis, Flaw> {
    let tokens = tokens(text, reading, limits)?;
    let parts = statements(&tokens.all, limits)?;
    Ok(Analysis {
        statements: parts.iter().map(|part| statement(text, part)).collect(),
        fingerprint: fingerprint_of(text, &parts),
        leading_comment: tokens.leading_comment,
        trailing_comment: tokens.trailing_comment,
        ..Analysis::empty()
    })
}
