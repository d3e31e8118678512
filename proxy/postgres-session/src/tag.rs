//! Command tags that show a change of the session: a second look behind the analysis of texts (K5).
//!
//! A text may be read wrongly: by an error here, or because a setting of the server changed how it reads. A server whose reply shows
//! a change that the text did not is reset before another client gets it. Tags do not show everything: a temporary table is CREATE TABLE.

use weir_analysis::postgres::Effect;

/// The effects of a statement are such that its tag may be this one. Tags that change nothing for the next client always may be.
#[inline]
pub(crate) fn is_foreseen(tag: &[u8], effects: &[Effect]) -> bool {
    let shows_change = matches!(
        tag,
        b"SET"
            | b"RESET"
            | b"LISTEN"
            | b"UNLISTEN"
            | b"PREPARE"
            | b"DEALLOCATE"
            | b"DEALLOCATE ALL"
            | b"DISCARD ALL"
            | b"LOAD"
            | b"DECLARE CURSOR"
            | b"DO"
            | b"CALL"
    );
    !shows_change || effects.iter().any(|effect| may_have(effect, tag))
}

fn may_have(effect: &Effect, tag: &[u8]) -> bool {
    let is = |tags: &[&[u8]]| tags.contains(&tag);
    match effect {
        // Such a server is reset as it is.
        Effect::Opaque => true,
        Effect::Set { .. }
        | Effect::SetTransaction { .. }
        | Effect::SetRole { .. }
        | Effect::SetSessionAuthorization { .. } => is(&[b"SET", b"RESET"]),
        Effect::Reset(_) | Effect::ResetAll => is(&[b"RESET"]),
        // The server gets an UNLISTEN in its place.
        Effect::Listen(_) => is(&[b"LISTEN", b"UNLISTEN"]),
        Effect::Unlisten(_) | Effect::UnlistenAll => is(&[b"UNLISTEN"]),
        Effect::Prepare { .. } => is(&[b"PREPARE"]),
        Effect::Deallocate(_) => is(&[b"DEALLOCATE"]),
        Effect::DeallocateAll => is(&[b"DEALLOCATE ALL"]),
        Effect::DiscardAll => is(&[b"DISCARD ALL"]),
        Effect::Load => is(&[b"LOAD"]),
        Effect::DeclareCursor { .. } => is(&[b"DECLARE CURSOR"]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use weir_analysis::postgres::{Limits, analyse};

    use super::*;

    /// Each statement with the tag that PostgreSQL gives it.
    #[test]
    fn a_tag_is_foreseen_by_the_text_that_has_it_and_by_no_other() {
        let tags = [
            ("set a.b = '1'", "SET"),
            ("set local work_mem = '1MB'", "SET"),
            ("set session characteristics as transaction read only", "SET"),
            ("set transaction isolation level serializable", "SET"),
            ("set transaction_read_only = on", "SET"),
            ("set time zone local", "SET"),
            ("set names 'utf8'", "SET"),
            ("set role x", "SET"),
            ("set session authorization default", "SET"),
            ("reset all", "RESET"),
            ("reset role", "RESET"),
            ("reset session authorization", "RESET"),
            ("reset transaction isolation level", "RESET"),
            ("listen a", "LISTEN"),
            ("listen a", "UNLISTEN"),
            ("unlisten *", "UNLISTEN"),
            ("prepare p as select 1", "PREPARE"),
            ("deallocate p", "DEALLOCATE"),
            ("deallocate all", "DEALLOCATE ALL"),
            ("discard all", "DISCARD ALL"),
            ("load 'x'", "LOAD"),
            ("declare c cursor for select 1", "DECLARE CURSOR"),
            ("declare c cursor with hold for select 1", "DECLARE CURSOR"),
            ("do ''", "DO"),
            ("call p()", "CALL"),
            ("select 1", "SELECT 1"),
            ("create table t (a int)", "CREATE TABLE"),
            ("set constraints all deferred", "SET CONSTRAINTS"),
            ("discard plans", "DISCARD PLANS"),
        ];
        for (text, tag) in tags {
            let analysis = analyse(text.as_bytes(), &Limits::default());
            assert!(is_foreseen(tag.as_bytes(), &analysis.statements[0].effects), "{text}: {tag}");
        }
        for (text, tag) in [("select 1", "SET"), ("set a.b = '1'", "LISTEN"), ("listen a", "SET"), ("commit", "DO")] {
            let analysis = analyse(text.as_bytes(), &Limits::default());
            assert!(!is_foreseen(tag.as_bytes(), &analysis.statements[0].effects), "{text}: {tag}");
        }
    }
}
