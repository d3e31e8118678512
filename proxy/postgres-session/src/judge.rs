//! Rules about statements: the shell judges a text, the session refuses it in its place among the replies.

use weir_postgres_codec::frame::Head;

use crate::client::Turn;
use crate::io::Io;
use crate::refusal::Refusal;
use crate::server::ServerState;
use crate::session::Session;

/// Judges the statements of one client. A session without one judges nothing.
pub trait Judge {
    /// Why a text may not run; `None`: it may. Called once for each Query and each Parse.
    fn text(&self, text: &[u8]) -> Option<Refusal>;

    /// The same for a text that is too large to be held.
    fn unread(&self) -> Option<Refusal>;

    /// The same for a FunctionCall, which names a function by its number.
    fn function_call(&self) -> Option<Refusal>;
}

/// A request that is judged.
#[derive(Clone, Copy)]
pub(crate) enum Judged<'a> {
    Text(&'a [u8]),
    Unread,
    FunctionCall,
}

impl Session {
    /// Refuses the message if its client may not send it; true: it is done with. A message that is looked at again, as after a wait for a
    /// server, is judged once: its place in all that the client has sent names it.
    pub(crate) fn is_denied<I: Io>(
        &mut self,
        judged: Judged<'_>,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> bool {
        let Some(judge) = &self.judge else { return false };
        let place = self.taken_bytes + turn.feed.consumed() as u64;
        if self.judged_at == Some(place) {
            return false;
        }
        let refusal = match judged {
            Judged::Text(text) => judge.text(text),
            Judged::Unread => judge.unread(),
            Judged::FunctionCall => judge.function_call(),
        };
        self.judged_at = Some(place);
        match refusal {
            Some(refusal) => {
                self.refuse(&refusal, head, turn, server);
                true
            }
            None => false,
        }
    }
}
