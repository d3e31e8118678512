//! One load from several processes of this program on one machine. The conductor starts them, holds them at a barrier before
//! every phase, and makes one record of theirs, the one that a single process with all shards would have written.
//!
//! | file | concept |
//! |---|---|
//! | [`protocol`] | messages between the conductor and a process |
//! | [`conductor`] | starts the processes, lets them begin together, merges what they tell |
//! | [`member`] | one of the processes |
//!
//! Nothing is left running: a process that fails, dies or falls silent ends the run, and so does Ctrl-C; the others are then
//! killed. A process whose conductor is gone ends itself.

pub mod conductor;
pub mod member;
pub mod protocol;
